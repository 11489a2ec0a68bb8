#!/bin/bash
# Expected: the loader that Opacus returns has as many batches as the one it was made from, and the rate that it draws
# with is the rate that is accounted for.
# Happens: for a loader of 93 batches the new one has int(1 / (1 / 93)) = 92. It draws at 1/93; the noise is calibrated
# for 93 steps an epoch at 1/93, and the history says 1/92. So do 70 of the lengths up to 1,000.
# Who is hurt: whoever checks or converts the history later: it describes a run that did not happen.
# Version: opacus 1.6.0. Source: opacus/data_loader.py and opacus/privacy_engine.py.
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
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
data = TensorDataset(torch.randn(930, 4), torch.randint(0, 2, (930,)))
engine, model = PrivacyEngine(accountant="rdp"), torch.nn.Linear(4, 2)
before = DataLoader(data, batch_size=10)
model, optimizer, loader = engine.make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=before,
    noise_multiplier=1.0, max_grad_norm=1.0,
)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
((_, rate, steps),) = engine.accountant.history
print(f"opacus {version('opacus')}: {len(before)} batches before, {len(loader)} after")
print(f"drawn at 1/{1 / loader.sample_rate:.0f}; the history says {steps} steps at 1/{1 / rate:.0f}")
lengths = sum(int(1 / (1 / length)) != length for length in range(1, 1_001))
print(f"{lengths} of the lengths up to 1,000 lose a batch")
assert (len(before), len(loader), round(1 / loader.sample_rate), round(1 / rate)) == (93, 92, 93, 92)
PYTHON
