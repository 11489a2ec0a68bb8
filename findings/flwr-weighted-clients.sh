#!/bin/bash
# Expected: a strategy with noise multiplier 1 adds noise of one clipping norm to the sum, over the clients, of what a
# client can change.
# Happens: the noise is that norm divided by the number of clients, but FedAvg weights a clipped update by the number of
# examples that its client reports. A client with 1,000 of 1,090 examples moves the average by 9.2 standard deviations.
# The newer strategies refuse unequal weights only when they are given an accountant.
# Who is hurt: clients with more data than others, the more the larger they are.
# Version: flwr 1.42.0. Source: flwr/server/strategy/dp_fixed_clipping.py, flwr/supercore/differential_privacy.py.
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
CLIENTS, SIZE, LARGE, SMALL = 10, 100_000, 1_000, 10


def reply(update, examples):
    return None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([update]), examples, {})


strategy = DifferentialPrivacyServerSideFixedClipping(
    FedAvg(), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=CLIENTS
)
strategy.current_round_params = [np.zeros(SIZE)]
update = np.zeros(SIZE)
update[0] = 5.0  # is clipped to 1
others = [reply(np.full(SIZE, 1e-9), SMALL) for _ in range(CLIENTS - 1)]
parameters, _ = strategy.aggregate_fit(1, [reply(update, LARGE), *others], [])
average = parameters_to_ndarrays(parameters)[0]
deviation = float(average[1:].std())
moved = LARGE / (LARGE + SMALL * (CLIENTS - 1))
print(f"flwr {version('flwr')}: the noise in the average has standard deviation {deviation:.4f}")
print(f"The large client moves coordinate 0 to {average[0]:.3f}, by {moved / deviation:.1f} standard deviations.")
assert abs(deviation - 1 / CLIENTS) < 0.002
assert abs(average[0] - moved) < 6 * deviation
assert moved / deviation > 9
print(f"Its noise multiplier is {deviation / moved:.3f}, not 1.")
PYTHON
