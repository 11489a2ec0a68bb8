#!/bin/bash
# Expected: clipping leaves an update of 0 as it is, so a client that learned nothing counts as zeros, and noise covers it.
# Happens: the factor is min(1, norm / length), and a length of 0 raises a ZeroDivisionError. On the server it ends the
# round for everybody; behind LocalDpMod it ends that client's answer, before noise is added.
# Truth inside: a sum of zeros is 0; the same round with an update of 1e-12 is clipped and gets its noise.
# Who is hurt: rounds with a client that has no data to train on, or whose gradients are 0. Whether the round has a model
# depends on that client's data alone, at any noise multiplier.
# Version: flwr 1.42.0. Source: flwr/supercore/differential_privacy.py, clip_inputs_inplace; called by
# server/strategy/dp_fixed_clipping.py, aggregate_fit, by serverapp/strategy and by clientapp/mod.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0 numpy==2.1.3
"$room/venv/bin/python" - <<'PYTHON'
import logging
from importlib.metadata import version

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

logging.disable(logging.CRITICAL)
np.random.seed(1)
CLIENTS, SIZE = 200, 1_000


def model_after(change: float) -> np.ndarray:
    """A round in which one client of 200 changes every weight by this much; the noise is 10 times the clipping norm."""
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=10.0, clipping_norm=1.0, num_sampled_clients=CLIENTS
    )
    strategy.current_round_params = [np.zeros(SIZE)]
    updates = [np.ones(SIZE)] * (CLIENTS - 1) + [np.full(SIZE, change)]
    replies = [(None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([sent]), 10, {})) for sent in updates]
    parameters, _ = strategy.aggregate_fit(1, replies, [])
    return parameters_to_ndarrays(parameters)[0]


print(f"flwr {version('flwr')}: {CLIENTS} clients, noise multiplier 10")
print(f"one client changes weights by 1e-12: a model with noise of {model_after(1e-12).std():.3f}")
try:
    model_after(0.0)
except ZeroDivisionError as error:
    print(f"one client changes nothing: {type(error).__name__}, and no model")
else:
    raise SystemExit("an update of 0 is clipped now")
assert abs(model_after(1e-12).std() * CLIENTS / 10.0 - 1.0) < 0.1
PYTHON
