#!/bin/bash
# Expected: the three epsilons that compute_epsilon returns are a lower bound, an estimate and an upper bound.
# Happens: for 1,000 full batches with noise multiplier sqrt(1,000) (a Gaussian mechanism with mu = 1) at delta 1e-13
# the lower bound is above the exact epsilon by .05, five times the error that was asked for. No warning is given.
# Who is hurt: comparisons that take the lower bound as a proof that another bound is too small.
# Version: prv-accountant 0.2.0. Source: prv_accountant/accountant.py, PRVAccountant.compute_epsilon.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check prv-accountant==0.2.0 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

import mpmath
from prv_accountant import GaussianMechanism, PRVAccountant

mpmath.mp.dps = 50
STEPS, ERROR = 1_000, 0.01


def exact_epsilon(delta):
    """Of a Gaussian mechanism with mu = 1, by bisection of its profile."""
    low, high = mpmath.mpf(0), mpmath.mpf(50)
    for _ in range(150):
        middle = (low + high) / 2
        profile = mpmath.ncdf(0.5 - middle) - mpmath.exp(middle) * mpmath.ncdf(-0.5 - middle)
        low, high = (middle, high) if profile > delta else (low, middle)
    return float(high)


print(f"prv-accountant {version('prv-accountant')}: {STEPS} full batches, noise multiplier sqrt({STEPS})")
rows = {}
for delta in (1e-9, 1e-13):
    accountant = PRVAccountant(
        prvs=GaussianMechanism(math.sqrt(STEPS)), max_self_compositions=STEPS, eps_error=ERROR, delta_error=delta / 1000
    )
    rows[delta] = *map(float, accountant.compute_epsilon(delta, STEPS)), exact_epsilon(delta)
    print("delta {:.0e}: lower {:.4f}, estimate {:.4f}, upper {:.4f}; exact {:.4f}".format(delta, *rows[delta]))
assert rows[1e-9][0] <= rows[1e-9][3] <= rows[1e-9][2]
assert rows[1e-13][0] > rows[1e-13][3] + 4 * ERROR
print("At delta 1e-13 the lower bound is above the exact epsilon.")
PYTHON
