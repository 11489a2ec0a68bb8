#!/bin/bash
# Expected: LocalDpMod(clipping_norm, sensitivity, epsilon, delta) adds noise that has this epsilon and delta for an update
# that changes by the sensitivity.
# Happens: for every epsilon the deviation is sensitivity sqrt(2 ln(1.25 / delta)) / epsilon, which is proved for epsilon
# below 1. At delta 1e-5 it is enough up to epsilon 8; at 10, 20 and 50 delta is 2.4e-5, 1.5e-3 and .6. Any positive
# epsilon is accepted, without a word.
# Truth inside: the deviation of the noise in a reply is measured; one Gaussian, exact in closed form.
# Who is hurt: clients whose local epsilon is above 8, as it often is where each client adds its own noise.
# Version: flwr 1.42.0. Source: flwr/clientapp/mod/localdp_mod.py, __call__.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0 numpy==2.1.3 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import logging
import math
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.supercore.task_identity import TaskIdentity
from scipy.stats import norm

logging.disable(logging.CRITICAL)
np.random.seed(1)
SIZE, DELTA = 400_000, 1e-5
TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1


def deviation(epsilon: float) -> float:
    """Of the noise in the reply of a client whose update is next to nothing."""
    model, trained = (RecordDict({"arrays": ArrayRecord({"weights": Array(np.full(SIZE, x))})}) for x in (0.0, 1e-9))
    asked = Message(content=model, dst_node_id=1, message_type="train")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=epsilon, delta=DELTA)
    reply = mod(asked, context, lambda message, context: Message(content=trained, reply_to=message))
    return float(next(iter(reply.content.array_records.values()))["weights"].numpy().std())


def exact_delta(sigma: float, epsilon: float) -> float:
    far, near = -0.5 / sigma - epsilon * sigma, 0.5 / sigma - epsilon * sigma
    return norm.cdf(near) - math.exp(epsilon + norm.logcdf(far))


print(f"flwr {version('flwr')}: asked for delta {DELTA}")
seen = {}
for epsilon in (1.0, 8.0, 10.0, 20.0, 50.0):
    sigma = deviation(epsilon)
    seen[epsilon] = exact_delta(sigma, epsilon)
    print(f"epsilon {epsilon:4.0f}: noise of {sigma:.4f}, delta {seen[epsilon]:.2g}")
assert seen[1.0] < DELTA and seen[8.0] < DELTA
assert 2.0 * DELTA < seen[10.0] < 3.0 * DELTA
assert 100.0 * DELTA < seen[20.0] and 0.5 < seen[50.0] < 0.7
print("Above 8 the noise is too little.")
PYTHON
