#!/bin/bash
# Expected: Opacus' PRV accountant returns an upper bound on epsilon, and refuses deltas that double precision cannot
# reach ("Floating point errors will dominate").
# Happens: the refusal comes too late. For 10,000 full batches with noise multiplier 100 (a Gaussian mechanism with
# mu = 1) at delta 1e-12 the bound is 7.171, and the exact epsilon is 7.238; at 1e-13 it refuses.
# Who is hurt: long runs accounted at a delta far below one over the number of examples.
# Version: opacus 1.6.0. Source: opacus/accountants/prv.py and analysis/prv/compose.py.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import mpmath
from opacus.accountants import PRVAccountant

warnings.simplefilter("ignore")
mpmath.mp.dps = 50


def exact_epsilon(delta):
    """Of a Gaussian mechanism with mu = 1, by bisection of its profile."""
    low, high = mpmath.mpf(0), mpmath.mpf(50)
    for _ in range(150):
        middle = (low + high) / 2
        profile = mpmath.ncdf(0.5 - middle) - mpmath.exp(middle) * mpmath.ncdf(-0.5 - middle)
        low, high = (middle, high) if profile > delta else (low, middle)
    return float(high)


accountant = PRVAccountant()
accountant.history = [(100.0, 1.0, 10_000)]
print(f"opacus {version('opacus')}: 10,000 full batches, noise multiplier 100")
rows = {}
for delta in (1e-5, 1e-9, 1e-11, 1e-12):
    rows[delta] = float(accountant.get_epsilon(delta)), exact_epsilon(delta)
    print("delta {:.0e}: upper {:.4f}, exact {:.4f}".format(delta, *rows[delta]))
assert rows[1e-11][0] >= rows[1e-11][1]
assert rows[1e-12][0] < rows[1e-12][1] - 0.05
print("At delta 1e-12 the bound is below the exact epsilon, without a warning.")
PYTHON
