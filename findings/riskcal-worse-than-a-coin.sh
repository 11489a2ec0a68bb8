#!/bin/bash
# Expected: the type II error of the best attack with false positive rate alpha is at most 1 - alpha, since a coin
# that ignores the data has that error.
# Happens: for 1,000 Poisson batches (rate .01, noise multiplier 1) the error is above 1 - alpha: at the default grid
# at alpha 1e-5, and on a grid of 1e-5, which is meant to be finer, at .001: the attacker seems up to thousands of times
# too weak (forty times at the default grid). The noise that Fourier transforms leave in the masses dominates the tail.
# Who is hurt: noise that is calibrated to a type II error at a small false positive rate.
# Version: riskcal 1.5.1. Source: riskcal/analysis/conversions.py (get_beta_from_pld) and accountants/ctd.py.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check riskcal==1.5.1 dp-accounting==0.6.0
"$room/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from riskcal.accountants import CTDAccountant

accountant = CTDAccountant()
for _ in range(1_000):
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
print(f"riskcal {version('riskcal')}: power of the best attack, and of a coin with the same false positive rate")
power = {}
for grid in (1e-3, 1e-4, 1e-5):
    for alpha in (1e-5, 1e-4, 1e-3):
        power[grid, alpha] = 1 - float(accountant.get_beta(alpha=alpha, grid_step=grid))
        print(f"grid {grid:.0e}, alpha {alpha:.0e}: {power[grid, alpha]:.3e}, a coin has {alpha:.0e}")
assert power[1e-3, 1e-5] > 1e-5
assert power[1e-4, 1e-5] < 1e-5 / 10  # the default grid
assert power[1e-5, 1e-3] < 1e-3 / 1_000
print("On the two finer grids an attacker is said to be weaker than a coin.")
PYTHON
