#!/bin/bash
# Expected: one step of the optimizer releases one logical batch, in which an example has at most one clipping norm.
# Happens: leaving an epoch early, with `break`, keeps the clipped gradients of the unfinished logical batch; they are
# added to the next one, `zero_grad` or not. After two such breaks one example is three times in one sum, and the
# accountant counts a single step of norm 1.
# Who is hurt: loops that leave an epoch early (time limits, a maximum number of steps) within BatchMemoryManager.
# Version: opacus 1.6.0. Source: opacus/utils/batch_memory_manager.py and optimizers/optimizer.py, zero_grad.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
inputs = torch.zeros(32, 2)
inputs[0, 0], inputs[1:, 1] = 1.0, 1.0  # the first example alone moves the first weight
data = TensorDataset(inputs, torch.ones(32))
model, engine = torch.nn.Linear(2, 1, bias=False), PrivacyEngine(accountant="rdp")
model.weight.data.zero_()
model, optimizer, loader = engine.make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), data_loader=DataLoader(data, batch_size=32),
    noise_multiplier=1e-9, max_grad_norm=1.0,
)  # one logical batch an epoch, of rate 1
add_noise, sums = optimizer.add_noise, []


def watched():
    sums.append(abs(float(optimizer.params[0].summed_grad[0, 0])))
    add_noise()


optimizer.add_noise = watched
with BatchMemoryManager(data_loader=loader, max_physical_batch_size=8, optimizer=optimizer) as batches:
    for epoch in range(3):
        for x, y in batches:
            optimizer.zero_grad()
            (model(x)[:, 0] - 2 * y).sum().backward()
            optimizer.step()
            if epoch < 2:
                break
(_, _, steps) = engine.accountant.history[-1]
print(f"opacus {version('opacus')}: steps accounted {steps}; the first example's norms in the sums: {sums}")
assert steps == len(sums) == 1 and sums[0] > 2.99
print("Its sensitivity is three clipping norms in a single accounted step.")
PYTHON
