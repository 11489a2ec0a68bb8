#!/bin/bash
# Expected: a schedule for the clipping norm changes what gradients are clipped to and, with it, the noise.
# Happens: with ghost clipping, and with clipping by layers, only the noise follows. Gradients are clipped by a norm that
# the model (or a list in the optimizer) keeps, and the scheduler sets another attribute. With a factor of .5 an epoch
# the noise multiplier is 1, 1/2, 1/4, 1/8 of the one in the history, which says the same number for all steps.
# Truth inside: the sum for one example whose gradient is long is measured, and the deviation of the noise is measured
# where all gradients are 0. Four full batches are together a Gaussian mechanism, exact in closed form.
# Who is hurt: whoever decays the clipping norm: after four epochs on full batches at noise multiplier 4 delta 1e-5 takes
# epsilon 11.9, and 2.0 is reported. With flat clipping by hooks the norm and the noise go together.
# Version: opacus 1.6.0. Source: opacus/schedulers/grad_clip_scheduler.py; optimizers/perlayeroptimizer.py;
# grad_sample/grad_sample_module_fast_gradient_clipping.py, get_clipping_coef.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import math
import warnings
from importlib.metadata import version

import torch
from opacus import PrivacyEngine
from opacus.schedulers import ExponentialGradClip
from scipy.optimize import brentq
from scipy.stats import norm
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
SIGMA, EPOCHS, DELTA, INPUTS, OUTPUTS = 4.0, 4, 1e-5, 300, 300


def exact_epsilon(multipliers):
    """Of one Gaussian release for each noise multiplier, together."""
    mu = math.hypot(*(1 / multiplier for multiplier in multipliers))
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 99)


def run(mode, clipping, noise, scale):
    """The norm of each step's sum before noise, the deviation of what a step releases, and the engine."""
    model, engine = torch.nn.Linear(INPUTS, OUTPUTS, bias=False), PrivacyEngine(accountant="prv")
    data = TensorDataset(scale * torch.ones(1, INPUTS), torch.zeros(1, dtype=torch.long))
    made = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), data_loader=DataLoader(data, batch_size=1),
        criterion=torch.nn.CrossEntropyLoss(), noise_multiplier=noise, grad_sample_mode=mode, clipping=clipping,
        max_grad_norm=[1.0] if clipping == "per_layer" else 1.0,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()
    schedule, rows = ExponentialGradClip(optimizer, gamma=0.5), []
    for _ in range(EPOCHS):
        for x, y in loader:  # one batch of all the data, at rate 1
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            (weight,) = model.parameters()
            rows.append((weight.summed_grad.norm().item(), weight.grad.std().item()))
        schedule.step()
    sums, deviations = zip(*rows)
    return sums, deviations, engine


print(f"opacus {version('opacus')}: {EPOCHS} full batches at noise multiplier {SIGMA:g}, clipping norm halved each time")
for mode, clipping in (("hooks", "flat"), ("hooks", "per_layer"), ("ghost", "flat")):
    sums, _, _ = run(mode, clipping, 0.0, 100.0)  # no noise: a gradient that is clipped
    _, deviations, engine = run(mode, clipping, SIGMA, 0.0)  # no gradient: the noise
    multipliers = [deviation / total for deviation, total in zip(deviations, sums)]
    reported, exact = engine.get_epsilon(DELTA), exact_epsilon(multipliers)
    print(f"{mode}, {clipping}: clipped to", *(f"{total:.3f}" for total in sums), "noise", end=" ")
    print(*(f"{deviation:.3f}" for deviation in deviations), "noise multiplier", *(f"{m:.2f}" for m in multipliers))
    print(f"    history {engine.accountant.history}: epsilon {reported:.2f}; of what was released {exact:.2f}")
    if (mode, clipping) == ("hooks", "flat"):
        assert abs(exact - reported) < 0.1
    else:
        assert all(0.99 < total < 1.001 for total in sums)
        assert abs(multipliers[-1] / multipliers[0] - 0.125) < 0.005
        assert exact > 5 * reported
print("By layers and with ghost clipping the schedule takes noise away and leaves the gradients as long as they were.")
PYTHON
