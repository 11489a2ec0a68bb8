#!/bin/bash
# Expected: a logistic regression of several classes is one private model for each class, with noise of its own; n_jobs changes only how fast
# they are trained.
# Happens: with n_jobs above 1, joblib sends every class a copy of the same generator, in one state, so all classes draw the same noise. At
# the optimum, noise is the gradient of what was released: for two classes it cancels, and what is left is an equation between the
# table and the coefficients, without any noise. With n_jobs=1 the generator goes on from class to class, as it should.
# Truth inside: the noise of every class, from the conditions of the optimum; and 20 models, half of them with one row changed, told apart by
# which table solves the equation. At epsilon .1 no attack tells right more often than .525.
# Who is hurt: whoever trains a classifier of three or more classes on several cores: every row can be tested, at any epsilon.
# Version: diffprivlib 0.6.6, scikit-learn 1.6.1, joblib 1.5.2. Source: diffprivlib/models/logistic_regression.py, LogisticRegression.fit.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check diffprivlib==0.6.6 scikit-learn==1.6.1 joblib==1.5.2 numpy==2.2.6
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")
SIZE, WIDTH, CLASSES, EPSILON, RUNS = 200, 4, 3, 0.1, 10
rng = np.random.default_rng(0)
X = rng.standard_normal((SIZE, WIDTH))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = rng.integers(0, CLASSES, SIZE)
OTHER = Y.copy()
OTHER[0] = (OTHER[0] + 1) % CLASSES  # the label of one person


def train(labels, jobs):
    """The coefficients of all classes, the intercept last."""
    model = LogisticRegression(epsilon=EPSILON, data_norm=1.0, tol=1e-10, max_iter=2000, n_jobs=jobs).fit(X, labels)
    return np.column_stack([model.coef_, model.intercept_])


def noise(coefficients, labels):
    """What the gradient of every class's objective without noise is short of 0, if the table has these labels."""
    rows = np.column_stack([X, np.ones(SIZE)])
    flat = np.array([1.0] * WIDTH + [0.0])  # the intercept has no penalty, C = 1
    ridge = 0.25 * np.sqrt(2) / np.expm1(EPSILON / CLASSES / 4) - 1  # what the mechanism adds for a small epsilon
    found = []
    for k, w in enumerate(coefficients):
        residual = 1 / (1 + np.exp(-rows @ w)) - (labels == k)
        found.append(-(residual @ rows + flat * w + ridge * w))
    return np.array(found)


def distance(found):
    return np.abs(found - found[0]).max()


print(f"diffprivlib {version('diffprivlib')}, scikit-learn {version('scikit-learn')}: epsilon {EPSILON}, {CLASSES} classes")
for jobs in (1, 2):
    found = noise(train(Y, jobs), Y)
    print(f"n_jobs={jobs}: noise of norm {np.linalg.norm(found, axis=1).mean():.0f}; between classes it differs by up to {distance(found):.1e}")
    assert (distance(found) < 1e-2) == (jobs == 2)
right = 0
for _ in range(RUNS):
    for labels in (Y, OTHER):
        released = train(labels, jobs=2)
        right += (distance(noise(released, Y)) < distance(noise(released, OTHER))) == (labels is Y)
print(f"{right} of {2 * RUNS} models told right which label one person has")
assert right == 2 * RUNS
PYTHON
