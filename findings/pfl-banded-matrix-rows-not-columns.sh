#!/bin/bash
# Expected: the banded matrix factorisation mechanism adds noise C^-1 z for a matrix C whose *columns* have norm 1: a device in
# one round then moves C x by 1, and one in k rounds that are far apart by sqrt(k), which the accountant is asked about.
# Happens: the Gram matrix X = C^T C is optimised, with 1 on its diagonal. But C is made by a Cholesky factorisation, whose
# L L^T is X, so the *rows* of C have norm 1. Its first column has norm 2.8 for 60 rounds with one participation, and what
# a device changes in 100 rounds, five of them 20 apart, is 1.4 times what is accounted for. Nothing else is scaled.
# Truth inside: the noise that add_noise adds is measured, and the device that is in the first round looked for; all rounds
# are one Gaussian mechanism, exact in closed form. The same is counted from the matrix.
# Who is hurt: every run with this mechanism: asked for epsilon 2 at delta 1e-6, 60 rounds with one participation have 6.2.
# Version: pfl 0.6.0. Source: pfl/privacy/ftrl_mechanism.py, BandedMatrixFactorizationMechanism.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check pfl==0.6.0 torch==2.13.0 scipy==1.17.1
cd "$room"
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

import numpy as np
import torch
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.stats import MappedVectorStatistics
from scipy.optimize import brentq
from scipy.stats import norm

set_framework_module(pytorch_ops)
EPSILON, DELTA, SIZE = 2.0, 1e-6, 100_000


def exact_epsilon(mu):
    """Of a Gaussian mechanism at DELTA, by its profile."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 99)


def accountant(compositions):
    """For full participation of a device in so many rounds."""
    return PLDPrivacyAccountant(
        num_compositions=compositions, sampling_probability=1.0, mechanism="gaussian", epsilon=EPSILON, delta=DELTA,
        noise_scale=1.0,
    )


print(f"pfl {version('pfl')}: noise for epsilon {EPSILON:g} at delta {DELTA:g}, clipping bound 1")
for rounds, apart in ((60, 60), (100, 20)):
    mechanism = BandedMatrixFactorizationMechanism(1.0, rounds, apart, accountant)
    matrix = mechanism.query_matrix.astype(float)
    noise = []
    for number in range(rounds):
        zeros = MappedVectorStatistics({"weights": torch.zeros(SIZE)}, weight=1)
        noisy, _ = mechanism.add_noise(zeros, cohort_size=1, seed=number)
        noise.append(noisy["weights"].double().cpu().numpy())
    there = np.zeros(rounds)
    there[::apart] = 1.0  # of the device that is in the first round, and every `apart` rounds after it
    covariance = np.cov(np.stack(noise))
    measured = math.sqrt(there @ np.linalg.solve(covariance, there))
    counted = np.linalg.norm(matrix @ there) / mechanism.relative_noise_stddev
    asked = math.sqrt(there.sum()) / mechanism.relative_noise_stddev
    rows, columns = (np.linalg.norm(matrix, axis=axis) for axis in (1, 0))
    print(f"{rounds} rounds, {apart} apart: rows have norms {rows.min():.3f} to {rows.max():.3f}, columns {columns.min():.3f} "
          f"to {columns.max():.3f}; mu {asked:.3f} was accounted for, {counted:.3f} by the matrix, {measured:.3f} measured")
    print(f"    epsilon {exact_epsilon(asked):.2f} was accounted for, and {exact_epsilon(counted):.2f} is exact")
    assert abs(rows - 1).max() < 1e-3
    assert columns.max() > 1.9
    assert abs(measured / counted - 1) < 0.02
    assert exact_epsilon(asked) < EPSILON + 0.01
    assert exact_epsilon(counted) > 1.4 * EPSILON
print("The rows have norm 1, and the sensitivity is that of the columns.")
PYTHON
