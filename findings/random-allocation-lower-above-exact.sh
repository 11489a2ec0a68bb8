#!/bin/bash
# Expected: a lower bound on the epsilon of random allocation is at most the exact epsilon.
# Happens: in one batch with one participation, which is a plain Gaussian mechanism with a closed form, the lower bound
# is above the exact epsilon: it is what a search over upper ends returns. The excess is about 7e-4 at delta 1e-5.
# Who is hurt: whoever takes the two bounds for a bracket and calls a tighter upper bound wrong.
# Version: random-allocation 1.0.5. Source: random_allocation/random_allocation_scheme/lower_bound.py.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check random-allocation==1.0.5 dp-accounting==0.6.0 pandas==2.3.3 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

from random_allocation.comparisons.definitions import PrivacyParams, SchemeConfig
from random_allocation.random_allocation_scheme import allocation_epsilon_lower_bound
from scipy.optimize import brentq
from scipy.stats import norm

print(f"random-allocation {version('random-allocation')}: one step, one participation, noise multiplier 1")
for delta in (1e-5, 1e-8):
    params = PrivacyParams(sigma=1.0, num_steps=1, num_selected=1, num_epochs=1, delta=delta)
    lower = float(allocation_epsilon_lower_bound(params=params, config=SchemeConfig()))
    exact = brentq(lambda e: norm.cdf(0.5 - e) - math.exp(e) * norm.cdf(-0.5 - e) - delta, 0.1, 9, xtol=1e-12)
    print(f"delta {delta:.0e}: lower bound {lower:.6f}, exact {exact:.6f}")
    assert lower > exact + 1e-4
print("The lower bound is above the truth.")
PYTHON
