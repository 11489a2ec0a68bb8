#!/bin/bash
# Expected: the Renyi curve that an accountant hands out is a bound, and the one that its own epsilon is computed from.
# Happens: get_rdp_curve, and compute_rdp_curve that is to replace JAX Privacy's, say a q^2 / (2 sigma^2) a step for order
# a: what small q and a would give in the limit. The exact divergence of whole orders is a sum of exponentials: at sigma .5
# and rate .1 it is .43 at order 2, where the curve says .04, and 29.5 at order 16, where it says .32. As an epsilon
# the curve gives .79 for one batch whose epsilon is 6.58. get_epsilon of the same object says 7.35, and is sound.
# Who is hurt: whoever adds the curves of several runs, or plots them; every sigma and rate is affected, small ones most.
# Version: dp-accelerator 0.1.0. Source: dp_accelerator/__init__.py, DPSGDAccountant.get_rdp_curve.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check dp-accelerator==0.1.0 numpy==2.4.6 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

import mpmath
from dp_accelerator import DPSGDAccountant

mpmath.mp.dps = 40
SIGMA, RATE, DELTA = 0.5, mpmath.mpf(1) / 10, 1e-5
accountant = DPSGDAccountant(noise_multiplier=SIGMA, batch_size=6_000, dataset_size=60_000)


def exact_divergence(order):
    """Of (1 - q) N(0, sigma^2) + q N(1, sigma^2) from N(0, sigma^2), for a whole order, by the binomial theorem."""
    terms = (
        mpmath.binomial(order, j) * (1 - RATE) ** (order - j) * RATE**j * mpmath.exp(j * (j - 1) / (2 * SIGMA**2))
        for j in range(order + 1)
    )
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)


def exact_epsilon():
    """Of one batch: the likelihood ratio exceeds e^epsilon right of `edge`; by bisection of delta."""
    def delta(epsilon):
        edge = SIGMA**2 * mpmath.log((mpmath.exp(epsilon) - 1) / RATE + 1) + 0.5
        above, above_shifted = mpmath.ncdf(-edge / SIGMA), mpmath.ncdf((1 - edge) / SIGMA)
        return (1 - RATE) * above + RATE * above_shifted - mpmath.exp(epsilon) * above

    low, high = mpmath.mpf(0), mpmath.mpf(50)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return float(high)


curve = accountant.get_rdp_curve(1)
print(f"dp-accelerator {version('dp-accelerator')}: one Poisson batch of rate .1, noise multiplier {SIGMA}")
for order in (8, 16, 32):
    exact = float(exact_divergence(order))
    print(f"order {order}: curve {curve[order]:.3f}, exact {exact:.3f}")
    assert curve[order] < exact / 50
second = min(order for order in curve if order > 2)  # divergences grow with the order
print(f"order {second:.3f}: curve {curve[second]:.3f}, exact at order 2 {float(exact_divergence(2)):.3f}")
assert curve[second] < exact_divergence(2) / 5
# Canonne, Kamath and Steinke 2020, proposition 12
converted = min(
    value + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1) for order, value in curve.items()
)
own, exact = accountant.get_epsilon(steps=1, delta=DELTA), exact_epsilon()
print(f"epsilon at delta {DELTA:g}: from the curve {converted:.2f}, exact {exact:.2f}, get_epsilon {own:.2f}")
assert converted < exact / 2 < exact < own
print("The curve is far below the divergences that it is named after.")
PYTHON
