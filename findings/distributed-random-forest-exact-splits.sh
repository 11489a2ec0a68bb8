#!/bin/bash
# Expected: a random forest that is trained with epsilon .1 tells little about any single example.
# Happens: noise is added to the leaves alone. Where trees split, and at which number, is taken from the data without noise, although the
# documentation speaks of the exponential mechanism: a threshold is the middle between two values of the table. So a patient
# with unusual values is seen from the thresholds. The shares of classes at inner nodes have no noise either. At the
# leaves, noise that was made for counts meets shares, as scikit-learn has had them since 1.3, so predictions are noise.
# Truth inside: 200 forests, half of them with one more example, told apart by their largest threshold. At epsilon .1 no attack tells
# right more often than .525.
# Who is hurt: clients of a federation that send such forests to their server.
# Version: distributed-random-forest 0.4.0, scikit-learn 1.9.1. Source: distributed_random_forest/models/dp_rf.py, _build_dp_tree.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check distributed-random-forest==0.4.0 scikit-learn==1.9.1
"$room/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from distributed_random_forest import DPRandomForest

rng = np.random.default_rng(0)
table = rng.normal(size=(200, 5))
labels = (table[:, 0] > 0).astype(int)


def forest(member):
    rows = np.vstack([table, np.full((member, 5), 9.0)])
    return DPRandomForest(n_estimators=20, epsilon=0.1).fit(rows, np.append(labels, np.zeros(member, int)))


def largest_threshold(trained):
    return max(tree.tree_.threshold[tree.tree_.children_left >= 0].max() for tree in trained._trees)


right = sum((largest_threshold(forest(member)) > 5) == bool(member) for _ in range(100) for member in (0, 1))
print(f"distributed-random-forest {version('distributed-random-forest')}: epsilon {forest(1).get_privacy_budget()}; "
      f"{right} of 200 forests told right, where .525 of them is the best that epsilon .1 allows")
assert right > 190
one = forest(0)._trees[0].tree_
inner = one.children_left >= 0
print(f"shares of classes: inner nodes add up to {np.unique(one.value[inner, 0].sum(axis=1).round(9))}, "
      f"leaves to {one.value[~inner, 0].sum(axis=1).round(1)[:6]} ...")
assert np.allclose(one.value[inner, 0].sum(axis=1), 1)
PYTHON
