#!/bin/bash
# Expected: an upper bound on epsilon stays close however many steps there are and however small epsilon is.
# Happens: what opake adds to epsilon grows with the number of steps. Full batches are a Gaussian mechanism, exact in
# closed form: with mu = .02 opake says .0600 for .0586 after 10,000 steps and .0710 after 100,000. Poisson batches at
# rate .0926, 70,830 steps, noise multiplier 676.6: .447, where dp-accounting with a fine grid certifies .115.
# Who is hurt: large batches with much noise at an epsilon below 1; calibrated for .25 at rate .08 and 9,686 steps, they add a fifth.
# Version: opake 0.16.1 (its accounting was imported under Python 3.13), dp-accounting 0.6.0. Source: opake.dpsgd.accounting.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"$(command -v python3.13 || echo python3)" -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opake==0.16.1 torch==2.13.0 dp-accounting==0.6.0 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from math import sqrt

import mpmath
from dp_accounting.pld import privacy_loss_distribution as losses
from opake.dpsgd.accounting import gaussian, poisson

DELTA = 1e-5
mpmath.mp.dps = 30


def exact_epsilon(mu):
    """Of a Gaussian mechanism, by bisection of its profile."""
    low, high = mpmath.mpf(0), mpmath.mpf(50)
    for _ in range(90):
        middle = (low + high) / 2
        profile = mpmath.ncdf(mu / 2 - middle / mu) - mpmath.exp(middle) * mpmath.ncdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if profile > DELTA else (low, middle)
    return float(high)


print(f"opake {version('opake')}, dp-accounting {version('dp-accounting')}, delta {DELTA}")
exact = exact_epsilon(0.02)
full = {steps: (gaussian(sqrt(steps) / 0.02) * steps).epsilon_at(DELTA) for steps in (100, 10_000, 100_000)}
for steps, found in full.items():
    print(f"full batches with mu = .02, {steps} steps: opake {found:.4f}, exact {exact:.4f}")
rate, steps, noise = 0.09261, 70_830, 676.6
sampled = (poisson(gaussian(noise), sample_rate=rate) * steps).epsilon_at(DELTA)
one = losses.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-7)
fine = one.self_compose(steps).get_epsilon_for_delta(DELTA)
print(f"Poisson batches, rate {rate}, {steps} steps: opake {sampled:.4f}, dp-accounting {fine:.4f}")
assert exact <= full[100] < 1.001 * exact
assert 1.02 * exact < full[10_000] < 1.03 * exact
assert 1.2 * exact < full[100_000] < 1.22 * exact
assert sampled > 3.8 * fine
print("The more steps, the more is added to epsilon; it is four times too large in the last row.")
PYTHON
