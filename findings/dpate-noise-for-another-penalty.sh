#!/bin/bash
# Expected: a private logistic regression by output perturbation has noise for 2 / (n lambda), what one of n rows of norm 1 can move its
# weights by, where lambda is the penalty beside a *mean* of losses.
# Happens: the weights are scikit-learn's, whose C stands before the *sum* of losses, so lambda is 1 / (n C), and a row can move them by 2 C.
# Noise is made for 2 / (n C): n C^2 times too little. It is also one single number for all weights, so that their differences have
# none; and the intercept, which is released with them, has none at all.
# Truth inside: the weights with and without noise, what replacing one row changes, and 40 models of two tables that differ in one
# row, told apart by the intercept. At epsilon .1 no attack tells right more often than .525.
# Who is hurt: whoever releases the propensity model; the treatment effects that are computed from it have this step's epsilon for free.
# Version: dpate 0.0.1, scikit-learn 1.9.1. Source: dpate/models.py, PrivPropScoreModel.fit.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check scikit-learn==1.9.1 numpy==2.4.6
export PIP_IGNORE_REQUIRES_PYTHON=1  # the package asks for Python 3.12, and runs on 3.11
"$room/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps dpate==0.0.1
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
from dpate import PrivPropScoreModel

warnings.simplefilter("ignore")
SIZE, WIDTH, EPSILON = 1000, 5, 0.1
rng = np.random.default_rng(0)
X = rng.standard_normal((SIZE, WIDTH))
X /= np.linalg.norm(X, axis=1, keepdims=True)
W = (rng.random(SIZE) < 0.01).astype(int)
W[0] = 0
other_x, other_w = X.copy(), W.copy()
other_x[0] = (W @ X) / np.linalg.norm(W @ X)
other_w[0] = 1  # one person replaced


def train(x, w):
    model = PrivPropScoreModel(eps=EPSILON)
    model.fit(x, w)
    return model


mine, yours = train(X, W), train(other_x, other_w)
noise = (mine.non_priv_params - mine.coef_).ravel()
scale = np.mean([np.abs(train(X, W).coef_[0, 0] - mine.non_priv_params[0, 0]) for _ in range(400)])
moved = np.linalg.norm(mine.non_priv_params - yours.non_priv_params)
print(f"dpate {version('dpate')}, scikit-learn {version('scikit-learn')}: {SIZE} rows, {WIDTH} weights, epsilon {EPSILON}")
print(f"noise of one model: {', '.join(f'{z:.4f}' for z in noise)}; its scale {scale:.3f} is for a change of {EPSILON * scale:.4f}")
print(f"replacing one row moves the weights by {moved:.3f}, {moved / (EPSILON * scale):.0f} times as much")
assert np.ptp(noise) < 1e-12 and abs(EPSILON * scale / (2 / SIZE) - 1) < 0.2 and moved > 20 * EPSILON * scale
near = (mine.intercept_[0], yours.intercept_[0])
right = 0
for _ in range(20):
    for member, table in enumerate(((X, W), (other_x, other_w))):
        seen = train(*table).intercept_[0]
        right += int(abs(seen - near[1]) < abs(seen - near[0])) == member
print(f"{right} of 40 models told right from the intercept")
assert right == 40
PYTHON
