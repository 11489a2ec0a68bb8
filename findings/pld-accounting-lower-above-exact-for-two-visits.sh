#!/bin/bash
# Expected: of the two ends that are returned for an example in k of t steps, the lower one is at most the exact epsilon.
# Happens: for k above 1 both ends are of another scheme, which cuts the steps into k blocks and visits each of them once.
# That tells more of when the example was there, so it is proved to bound epsilon from above, and its lower end bounds
# nothing: for 2 of 3 steps it is above the exact epsilon by 7 percent. For k = 1 the interval holds the truth.
# Truth inside: the exact epsilon, larger direction, by a sum over a grid of the outputs of all three steps; for 1 of 3 the
# same sum is within the interval.
# Who is hurt: whoever takes the interval for a bracket: an accountant that is tighter, and right, is below its lower end.
# Version: PLD_accounting 2.0. Source: PLD_accounting/random_allocation_api.py, gaussian_allocation_epsilon_range.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check PLD_accounting==2.0 dp-accounting==0.6.0 numpy==2.4.6 scipy==1.17.1
"$room/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version
from itertools import combinations

import numpy as np
from PLD_accounting import gaussian_allocation_epsilon_range
from scipy.optimize import brentq

STEPS, DELTA = 3, 1e-3


def exact(visits: int, sigma: float) -> float:
    """Epsilon at DELTA: the ratio is the mean over all sets of visited steps of products of the steps' ratios."""
    z = np.linspace(-7.0, 7.0, 161)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    ratio = np.exp((sigma * z - 0.5) / sigma**2)
    mass = np.prod(np.meshgrid(*[weight] * STEPS, indexing="ij"), axis=0)
    ratios = np.meshgrid(*[ratio] * STEPS, indexing="ij")
    mean = np.mean([np.prod([ratios[i] for i in chosen], axis=0) for chosen in combinations(range(STEPS), visits)], axis=0)

    def delta(epsilon: float) -> float:
        a = np.exp(epsilon)
        return float(max((mass * np.maximum(mean - a, 0.0)).sum(), (mass * np.maximum(1.0 - a * mean, 0.0)).sum()))

    return brentq(lambda epsilon: delta(epsilon) - DELTA, 0.01, 20.0, xtol=1e-9)


print(f"PLD_accounting {version('PLD_accounting')}: {STEPS} steps, delta {DELTA}")
for visits, sigma in ((1, 1.0), (2, 1.0), (2, 2.0)):
    upper, lower = gaussian_allocation_epsilon_range(
        delta=DELTA, sigma=sigma, num_steps=STEPS, num_selected=visits, epsilon_accuracy=0.01
    )
    truth = exact(visits, sigma)
    print(f"{visits} visits, noise multiplier {sigma}: from {lower:.4f} to {upper:.4f}, exact {truth:.4f}")
    assert truth <= upper
    assert lower <= truth if visits == 1 else lower > 1.06 * truth
print("With two visits the lower end is above the truth.")
PYTHON
