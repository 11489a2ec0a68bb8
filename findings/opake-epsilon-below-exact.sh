#!/bin/bash
# Expected: `epsilon_at` is an upper bound for every delta, or says that this delta is out of reach.
# Happens: full batches with noise multiplier sqrt(steps) are together a Gaussian mechanism with mu = 1, exact in closed
# form. After 10,000 of them the epsilon of opake is below the exact one from delta 1e-12 on; after 100,000 from 1e-10
# on, by 2.5 percent at 1e-12 and 10 percent at 1e-14. Nothing is said. Up to delta 1e-9 it is an upper bound.
# Who is hurt: long runs on large data sets, whose delta is one over the number of examples or less.
# Version: opake 0.16.1 (needs Python 3.12; its accounting was imported under 3.13). Source: opake.dpsgd.accounting.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"$(command -v python3.13 || echo python3)" -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opake==0.16.1 torch==2.13.0 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from math import sqrt

import mpmath
from opake.dpsgd.accounting import gaussian

mpmath.mp.dps = 50


def exact_epsilon(delta):
    """Of a Gaussian mechanism with mu = 1, by bisection of its profile."""
    low, high = mpmath.mpf(0), mpmath.mpf(50)
    for _ in range(150):
        middle = (low + high) / 2
        profile = mpmath.ncdf(0.5 - middle) - mpmath.exp(middle) * mpmath.ncdf(-0.5 - middle)
        low, high = (middle, high) if profile > delta else (low, middle)
    return float(high)


print(f"opake {version('opake')}: full batches with noise multiplier sqrt(steps)")
rows = {}
for steps in (100, 10_000, 100_000):
    run = gaussian(sqrt(steps)) * steps
    for delta in (1e-5, 1e-9, 1e-10, 1e-12, 1e-14):
        rows[steps, delta] = run.epsilon_at(delta), exact_epsilon(delta)
        print("steps {}, delta {:.0e}: opake {:.5f}, exact {:.5f}".format(steps, delta, *rows[steps, delta]))
assert all(found >= exact for (steps, delta), (found, exact) in rows.items() if delta >= 1e-9)
assert rows[10_000, 1e-12][0] < rows[10_000, 1e-12][1]
assert rows[100_000, 1e-10][0] < rows[100_000, 1e-10][1]
assert rows[100_000, 1e-12][0] < 0.98 * rows[100_000, 1e-12][1]
assert rows[100_000, 1e-14][0] < 0.92 * rows[100_000, 1e-14][1]
print("The epsilon is below the exact one at small deltas; after 100,000 steps from 1e-10 on.")
PYTHON
