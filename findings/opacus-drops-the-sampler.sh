#!/bin/bash
# Expected: a loader that was made for a part of the data, as by SubsetRandomSampler, is made private for that part.
# Happens: the private loader draws from the whole dataset; of the old sampler only its length is left, as the rate. With
# 200 of 1,000 examples held out, a fifth of what is trained on is held-out examples, and every one of them has been used
# after 20 epochs. No warning says so, and WeightedRandomSampler with weights of 0 goes the same way.
# Truth inside: the numbers of the examples are the data, and the batches are looked at.
# Who is hurt: people whose examples were left out on purpose (no consent, deleted, held out): the model has seen them;
# and whoever audits with held-out examples, which are members: attacks seem to fail. A torch Subset is respected.
# Version: opacus 1.6.0. Source: opacus/data_loader.py, DPDataLoader.from_data_loader.
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
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
SIZE, KEPT, EPOCHS = 1_000, 800, 20
data = TensorDataset(torch.arange(SIZE, dtype=torch.float32)[:, None], torch.zeros(SIZE, dtype=torch.long))
weights = [1.0] * KEPT + [0.0] * (SIZE - KEPT)
loaders = {
    "SubsetRandomSampler": DataLoader(data, batch_size=50, sampler=SubsetRandomSampler(range(KEPT))),
    "WeightedRandomSampler": DataLoader(data, batch_size=50, sampler=WeightedRandomSampler(weights, KEPT)),
    "Subset": DataLoader(Subset(data, range(KEPT)), batch_size=50, shuffle=True),
}


def used(loader):
    """How often each example is in a batch of an epoch, over EPOCHS of them."""
    counts = torch.zeros(SIZE)
    for _ in range(EPOCHS):
        for numbers, _ in loader:
            counts.index_add_(0, numbers.flatten().long(), torch.ones(len(numbers)))
    return counts


print(f"opacus {version('opacus')}: {SIZE - KEPT} of {SIZE} examples are left out")
for name, loader in loaders.items():
    model = torch.nn.Linear(1, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, _, private = PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader,
            noise_multiplier=1.0, max_grad_norm=1.0,
        )
    said = [str(warning.message) for warning in caught if "ampler" in str(warning.message)]
    before, after = used(loader)[KEPT:], used(private)
    share, touched = (after[KEPT:].sum() / after.sum()).item(), int((after[KEPT:] > 0).sum())
    print(f"{name}: before {int(before.sum())} uses of left-out examples; private: {share:.3f} of all uses, "
          f"{touched} of {SIZE - KEPT} examples; warnings about it: {said}")
    assert before.sum() == 0 and not said
    assert (touched == 0) if name == "Subset" else (touched == SIZE - KEPT and 0.17 < share < 0.23)
print("The sampler is dropped, and with it the choice of examples.")
PYTHON
