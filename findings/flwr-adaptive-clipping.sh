#!/bin/bash
# Expected: the noise of a round has the scale of the norm that its updates were clipped to, and the norm grows while
# more updates are clipped than wanted.
# Happens: the norm is changed between clipping and noise, so that the noise has the scale of the *next* norm. It also
# moves the wrong way: when all clients are clipped it shrinks, by exp(-.1) a round, and goes on shrinking. With 200
# clients that are always clipped the effective noise multiplier is about .905 in place of 1.0, round after round.
# Who is hurt: every round in which the norm falls: epsilon is about a tenth too small.
# Version: flwr 1.42.0. Source: flwr/server/strategy/dp_adaptive_clipping.py, aggregate_fit; the same in serverapp.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0 numpy==2.1.3
"$room/venv/bin/python" - <<'PYTHON'
import logging
import math
from importlib.metadata import version

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg

logging.disable(logging.CRITICAL)
np.random.seed(1)
CLIENTS, SIZE, ROUNDS = 200, 20_000, 8
strategy = DifferentialPrivacyServerSideAdaptiveClipping(
    FedAvg(), noise_multiplier=1.0, num_sampled_clients=CLIENTS, initial_clipping_norm=1.0
)
strategy.current_round_params = [np.zeros(SIZE)]
print(f"flwr {version('flwr')}: noise multiplier of the updates {strategy.noise_multiplier:.4f}; every update is clipped")
multipliers = []
for number in range(ROUNDS):
    clipped_to = strategy.clipping_norm
    replies = [
        (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.ones(SIZE)]), 10, {})) for _ in range(CLIENTS)
    ]
    parameters, _ = strategy.aggregate_fit(number + 1, replies, [])
    noise = (parameters_to_ndarrays(parameters)[0] - clipped_to / math.sqrt(SIZE)) * CLIENTS
    multipliers.append(float(noise.std()) / clipped_to)
    print(f"round {number + 1}: clipped to {clipped_to:.3f}, next norm {strategy.clipping_norm:.3f}, ", end="")
    print(f"noise over the norm {multipliers[-1]:.3f}")
assert strategy.clipping_norm < 0.6
assert 0.88 < np.mean(multipliers) < 0.93
print("The noise fits the next norm, and the norm falls although everything is clipped.")
PYTHON
