#!/bin/bash
# Expected: an example changes a noisy sum by its clipped gradient, whatever is in the example.
# Happens: an infinite gradient is multiplied by the factor 0, a NaN by the factor NaN, and either makes the sum NaN. Noise
# hides nothing of that: every number of the model is NaN as soon as a batch has the example.
# Truth inside: 100 pairs of runs with noise multiplier 100 that differ in one example, whose one number is infinite, told
# apart by whether the saved model has numbers. One full batch is a Gaussian mechanism, of which no attack tells right
# more often than .502.
# Who is hurt: data with missing or overflowing numbers, and losses that are infinite for some examples: no epsilon holds
# for those.
# Version: opacus 1.6.0, torch 2.13.0. Source: opacus/optimizers/optimizer.py, clip_and_accumulate.
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
from scipy.stats import norm
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
SIGMA, PAIRS = 100.0, 100


def trained(x):
    """A model after one epoch of one batch of all examples, and what the accountant says."""
    model, engine = torch.nn.Linear(4, 2), PrivacyEngine(accountant="prv")
    loader = DataLoader(TensorDataset(x, torch.zeros(len(x), dtype=torch.long)), batch_size=len(x))
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), data_loader=loader,
        noise_multiplier=SIGMA, max_grad_norm=1.0,
    )
    for batch, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(batch), labels).backward()
        optimizer.step()
    return model, engine.accountant.history


print(f"opacus {version('opacus')}, torch {torch.__version__}: noise multiplier {SIGMA:g}, one full batch of 50")
best = norm.cdf(0.5 / SIGMA)  # of all tests of N(0, 1) against N(1 / SIGMA, 1) with equal prior chances
for value in (float("inf"), float("nan")):
    right = 0
    for pair in range(PAIRS):
        torch.manual_seed(pair)
        for member in (True, False):
            x = torch.randn(50, 4)
            x[-1, 0] = value
            model, history = trained(x if member else x[:-1])
            says_member = not all(parameter.isfinite().all() for parameter in model.parameters())
            right += says_member == member
    print(f"{value}: {right} of {2 * PAIRS} guesses are right, {right / (2 * PAIRS):.3f}; with the history {history} no "
          f"attack is right with more than {best:.3f}")
    assert right == 2 * PAIRS
print("What is not finite is not clipped.")
PYTHON
