#!/bin/bash
# Expected: PrivBayes chooses which columns belong together with half of epsilon, so one person hardly changes the choice.
# Happens: scores are mutual information divided by the root of both entropies, but noise is for the sensitivity of mutual
# information itself, which is near 2 log(n) / n. Where a column is nearly constant, so is its entropy, and the ratio jumps: from 0 to
# the largest score, 1, for two columns that are constant but for one person who differs in both. Then the two columns are chosen at once.
# Truth inside: 20 models with and 20 without that person, of 20,000, told apart by whether the two columns share a marginal. At epsilon .5
# no attack tells right more often than .622 (and .00001).
# Who is hurt: persons with two rare properties: that they are in the table stands in the structure of the model, which is released with it.
# Version: dpmm 0.1.9. Source: dpmm/models/priv_bayes.py, MI.__call__ and ExponentialMechanism.compute_delta.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check dpmm==0.1.9
export PYTHONHASHSEED=0  # candidates stand in sets of names
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
from dpmm.models.priv_bayes import PrivBayesGM

warnings.simplefilter("ignore")
SIZE, COLUMNS, RUNS, EPSILON = 20_000, 10, 20, 0.5
rng = np.random.default_rng(0)
TABLE = pd.DataFrame({f"c{i}": rng.integers(0, 3, SIZE) for i in range(COLUMNS - 2)} | {"rare": 0, "odd": 0})
DOMAIN = {name: 3 for name in TABLE.columns}


def chosen(person, seed):
    """The marginals that a model of the table chooses."""
    table = TABLE.copy()
    table.loc[0, ["rare", "odd"]] = int(person)
    model = PrivBayesGM(epsilon=EPSILON, delta=1e-5, domain=DOMAIN, n_jobs=1, n_iters=1)
    model.set_random_state(np.random.RandomState(seed))
    model.fit(table)
    return model.generator.cliques


right = {False: 0, True: 0}
for person in right:
    for seed in range(RUNS):
        right[person] += any(set(clique) == {"rare", "odd"} for clique in chosen(person, seed)) == person
print(f"dpmm {version('dpmm')}: {COLUMNS} columns, {SIZE} rows, epsilon {EPSILON}")
print(f"right in {right[True]} of {RUNS} models with the person, and in {right[False]} of {RUNS} without")
assert right[True] == RUNS and sum(right.values()) >= 0.8 * 2 * RUNS
PYTHON
