#!/bin/bash
# Expected: clipping by layers bounds what each example adds to the sum of each layer, by that layer's norm.
# Happens: a layer whose input has no dimension for the batch, as position embeddings of torch.arange(length), has
# gradients that torch has summed over the batch already. Clipping by layers takes its first dimension, the positions, for
# examples: it clips the batch's gradient at each position. One example then turns clipped rows round instead of adding
# to them. Flat clipping needs as many rows of all layers, and stops with an error unless there are as many positions.
# Truth inside: the sums that Opacus adds noise to, of a batch with and without one example.
# Who is hurt: transformers with learned positions and clipping="per_layer": with 64 positions one example moves that sum
# by 16 of its norms, and the noise multiplier there is .11 in place of 1.73.
# Version: opacus 1.6.0. Source: opacus/optimizers/perlayeroptimizer.py, clip_and_accumulate.
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
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
LENGTH, WORDS, WIDTH, NORM, SIGMA = 64, 20, 16, 1e-3, 1.0


class Reader(nn.Module):
    """Predicts one of two classes for each word, from the word (fixed) and its position (trained)."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.out = nn.Linear(WIDTH, 2)
        self.words.requires_grad_(False)

    def forward(self, x):
        return self.out(self.words(x) + self.positions(torch.arange(x.shape[1]))).mean(dim=1)


def sums(clipping, x, y):
    """The sum of clipped gradients of the positions and of the output's weight, for this batch."""
    torch.manual_seed(0)
    model, criterion = Reader(), nn.CrossEntropyLoss()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model, optimizer, _ = PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(trained, lr=0.0), data_loader=DataLoader(TensorDataset(x, y)),
        noise_multiplier=SIGMA, clipping=clipping, max_grad_norm=[NORM] * 3 if clipping == "per_layer" else NORM,
    )
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    return [part.summed_grad.clone() for part in (trained[0], trained[1])], optimizer.max_grad_norm


x = torch.randint(WORDS, (3, LENGTH), generator=torch.Generator().manual_seed(1))
y = torch.tensor([0, 1, 1])
print(f"opacus {version('opacus')}: {LENGTH} positions, each layer clipped to {NORM}")
try:
    sums("flat", x, y)
    flat = "accepts it"
except RuntimeError as error:
    flat = f"says: {error}"
print(f"flat clipping {flat}")
(with_it, norm), (without, _) = sums("per_layer", x, y), sums("per_layer", x[:2], y[:2])
(one, _) = sums("per_layer", x[:1], y[:1])
positions, output = ((a - b).norm().item() / NORM for a, b in zip(with_it, without))
print(f"per_layer: the sum over one example has {one[0].norm().item() / NORM:.2f} norms in the layer of positions")
print(f"per_layer: a third example moves the sum of the output's layer by {output:.2f} norms, of positions {positions:.2f}")
print(f"The noise has {SIGMA * norm / NORM:.2f} norms: a noise multiplier of {SIGMA * norm / NORM / positions:.2f} there.")
assert "stack expects each tensor to be equal size" in flat
assert output < 1.001
assert positions > 5
print("Clipping by layers takes positions for examples.")
PYTHON
