#!/bin/bash
# Expected: a run that is saved by save_checkpoint and goes on after load_checkpoint adds new noise to new batches.
# Happens: a checkpoint has the model, the optimizer and the accountant, and no state of a random generator. A script that sets a seed
# at its start, as scripts do, draws the batches and the noise of its first steps again when it is resumed: the second
# epoch has the examples and the noise of the first one. The difference of two releases then has no noise at all, while
# the accountant adds up both epochs. A noise generator with a seed of its own does not help.
# Truth inside: the noise of every step, which is the released sum less the sum that Opacus keeps, and the examples in it.
# Who is hurt: runs on machines that are preempted, and long runs in jobs of fixed length.
# Version: opacus 1.6.0, torch 2.13.0. Source: opacus/privacy_engine.py, save_checkpoint and load_checkpoint.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0
cat > "$room/train.py" <<'PYTHON'
"""One epoch of a run with a seed, resumed where there is a checkpoint; its noise and its batches are kept for a look."""
import sys
import warnings
from pathlib import Path

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
checkpoint, kept, own_generator = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "generator"
torch.manual_seed(42)
model = torch.nn.Linear(10, 1)
data = TensorDataset(torch.randn(100, 10), torch.randn(100, 1), torch.arange(100))
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(data, batch_size=10),
    noise_multiplier=1.0, max_grad_norm=1.0, noise_generator=torch.Generator().manual_seed(7) if own_generator else None,
)
if checkpoint.exists():
    engine.load_checkpoint(path=checkpoint, module=model, optimizer=optimizer)
noise, batches = [], []
for x, y, numbers in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    weights = optimizer.params[0]
    noise.append((weights.grad * optimizer.expected_batch_size - weights.summed_grad).flatten())
    batches.append(numbers.tolist())
engine.save_checkpoint(path=checkpoint, module=model, optimizer=optimizer)
torch.save((torch.stack(noise), batches, float(engine.get_epsilon(1e-5)), [int(entry[2]) for entry in engine.accountant.history]), kept)
PYTHON
for generator in none generator; do
    "$room/venv/bin/python" "$room/train.py" "$room/$generator.pt" "$room/$generator.first" "$generator"
    "$room/venv/bin/python" "$room/train.py" "$room/$generator.pt" "$room/$generator.second" "$generator"
done
"$room/venv/bin/python" - "$room" <<'PYTHON'
import sys
from importlib.metadata import version

import torch

print(f"opacus {version('opacus')}, torch {torch.__version__}: an epoch, a checkpoint, and an epoch after it")
for generator in ("none", "generator"):
    (noise, batches, before, _), (again, same, after, steps) = (
        torch.load(f"{sys.argv[1]}/{generator}.{epoch}") for epoch in ("first", "second")
    )
    difference = (noise - again).abs().max().item()
    print(f"noise_generator {generator}: noise of deviation {noise.std():.2f} differs by at most {difference:.0e} between the epochs; "
          f"the same batches: {batches == same}; {sum(steps)} steps, epsilon {before:.2f}, then {after:.2f}")
    assert difference < 1e-5 and batches == same and sum(steps) == 20 and after > before
PYTHON
