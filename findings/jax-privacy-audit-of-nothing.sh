#!/bin/bash
# Expected: a lower bound on epsilon with significance .05 is above the true epsilon in at most 5 of 100 audits, and it
# falls when there are fewer canaries to learn from.
# Happens: epsilon_from_gdp takes the absolute value of a mu that it computes from *upper* ends for both error rates.
# Where intervals are wide these add up to more than 1, mu is negative, and its size is reported as privacy loss. Scores
# of 100 canaries on each side that say nothing about membership are said to prove an epsilon of about 7, in every
# audit; with 10,000 on each side it is still about 2. For a true mu of .5 (epsilon 1.99) 100 canaries "prove" 5.5.
# epsilon_clopper_pearson, on the same scores, is right each time.
# Who is hurt: whoever reads the number as evidence that a correct run leaks, or compares attacks by it.
# Version: jax-privacy 2.0.0. Source: jax_privacy/auditing.py, CanaryScoreAuditor.epsilon_from_gdp.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check jax-privacy==2.0.0 jax==0.10.2 dp-accounting==0.6.0 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

import numpy as np
from jax_privacy.auditing import CanaryScoreAuditor
from scipy.optimize import brentq
from scipy.stats import norm

SIGNIFICANCE, DELTA, AUDITS = 0.05, 1e-5, 40
rng = np.random.default_rng(0)


def exact_epsilon(mu):
    """Of scores that are normal, and shifted by mu for members: no test of one score does better than these two laws."""
    if not mu:
        return 0.0
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 50)


print(f"jax-privacy {version('jax-privacy')}: {AUDITS} lower bounds on epsilon at delta {DELTA:g}, significance .05")
medians = {}
for mu, canaries in ((0.0, 100), (0.0, 10_000), (0.5, 100)):
    exact = exact_epsilon(mu)
    made = [
        CanaryScoreAuditor(rng.standard_normal(canaries) + mu, rng.standard_normal(canaries)) for _ in range(AUDITS)
    ]
    by_gdp = np.array([auditor.epsilon_from_gdp(SIGNIFICANCE, DELTA) for auditor in made])
    by_counts = np.array([auditor.epsilon_clopper_pearson(SIGNIFICANCE, DELTA) for auditor in made])
    medians[mu, canaries] = np.median(by_gdp)
    print(f"mu {mu}, exact epsilon {exact:.2f}, {canaries} canaries on each side: epsilon_from_gdp is above it in "
          f"{(by_gdp > exact).sum()} audits, median {np.median(by_gdp):.2f}; epsilon_clopper_pearson in "
          f"{(by_counts > exact).sum()}, median {np.median(by_counts):.2f}")
    assert (by_gdp > exact).sum() >= 35
    assert (by_counts > exact).sum() <= 7  # 2 are expected at most, and 8 or more with probability .001
assert medians[0.0, 100] > 5 and medians[0.0, 10_000] > 1.5
print("The fewer canaries there are, the larger is the epsilon that they are said to prove.")
PYTHON
