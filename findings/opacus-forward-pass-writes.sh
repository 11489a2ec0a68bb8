#!/bin/bash
# Expected: in a model that the validator accepts, what an example changes in the trained model comes through sums that
# were clipped and have noise.
# Happens: two layers of torch write to the model while they compute, and the validator, which asks about trained layers
# with buffers, sees neither. A frozen BatchNorm moves its running mean a tenth of the way to the batch's, without noise
# (and make_private insists that the model is in training mode). An Embedding with max_norm shortens each row that the
# batch looks up, so that lengths tell which words were in the batches, at any noise multiplier.
# Truth inside: 100 pairs of runs with noise multiplier 100 that differ in one example, told apart from the saved model.
# One full batch is a Gaussian mechanism, of which no attack tells right more often than .502.
# Who is hurt: fine-tuning of networks whose BatchNorm is frozen, and word models with max_norm: no epsilon holds.
# Version: opacus 1.6.0, torch 2.13.0. Source: opacus/validators/module_validator.py, validate, and
# grad_sample/grad_sample_module.py, validate; torch.nn.functional.embedding, batch_norm.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import torch
from opacus import PrivacyEngine
from opacus.validators import ModuleValidator
from scipy.stats import norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
SIGMA, PAIRS, WIDTH, RARE = 100.0, 100, 8, 7


class Words(nn.Module):
    """The mean of word vectors that are no longer than 1 when they are used."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(30, WIDTH, max_norm=1.0), nn.Linear(WIDTH, 2)
        nn.init.constant_(self.words.weight, 1.0)  # of length 2.83

    def forward(self, x):
        return self.out(self.words(x).mean(dim=1))


def frozen_norm():
    return nn.Sequential(nn.BatchNorm1d(WIDTH).requires_grad_(False), nn.Linear(WIDTH, 2))


def numbers(size, member):
    """Ones; the last example is ten times as large where it is there."""
    x = torch.ones(size, WIDTH)
    x[-1] *= 10
    return x if member else x[:-1]


def sentences(size, member):
    """Of words 0 to 4; the last one has a rare word where it is there."""
    x = torch.randint(5, (size, 6))
    x[-1, 0] = RARE
    return x if member else x[:-1]


def trained(make, x):
    """A model after one epoch of one batch of all examples, and what the accountant says."""
    model, engine, y = make(), PrivacyEngine(accountant="prv"), torch.zeros(len(x), dtype=torch.long)
    assert ModuleValidator.validate(model, strict=True) == []
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(learned, lr=0.01), data_loader=loader, noise_multiplier=SIGMA,
        max_grad_norm=1.0,
    )
    for batch, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(batch), labels).backward()
        optimizer.step()
    return model, engine.accountant.history


def says_member(model):
    """A guess from the model alone."""
    if isinstance(model, Words):
        return model.words.weight[RARE].norm().item() < 2
    return model[0].running_mean.mean().item() > 0.101


print(f"opacus {version('opacus')}, torch {torch.__version__}: noise multiplier {SIGMA:g}, one full batch of 50")
best = norm.cdf(0.5 / SIGMA)  # of all tests of N(0, 1) against N(1 / SIGMA, 1) with equal prior chances
for make, data in ((frozen_norm, numbers), (Words, sentences)):
    right = 0
    for pair in range(PAIRS):
        torch.manual_seed(pair)
        for member in (True, False):
            model, history = trained(make, data(50, member))
            right += says_member(model) == member
    print(f"{make.__name__}: {right} of {2 * PAIRS} guesses are right, {right / (2 * PAIRS):.3f}; with the history "
          f"{history} no attack is right with more than {best:.3f}")
    assert right == 2 * PAIRS
print("What the forward pass writes has no noise.")
PYTHON
