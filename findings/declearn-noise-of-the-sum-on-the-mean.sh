#!/bin/bash
# Expected: a client that is asked to train with epsilon 2 adds the noise of epsilon 2.
# Happens: gradients are clipped and then *averaged* over the batch, and noise of noise_multiplier times the clipping norm, which belongs to
# their sum, is added to the average: as many times too much as a batch has examples. The accountant reports 2, and the model is
# what an epsilon of .1 leaves. Gradients are also clipped tensor by tensor, which hides behind the noise unless batches are tiny.
# Truth inside: the noise of a step whose gradients are zero; the epsilon of that noise, by the accountant that the client uses; and what the
# same steps learn with the noise divided by the size of the batch.
# Who is hurt: models of every federation with privacy: with batches of 50, accuracy .48 where .96 costs the same epsilon.
# Version: declearn 2.9.1, opacus 1.6.0, torch 2.13.0. Source: declearn/training/dp/_manager.py, DPTrainingManager.make_private, and
# declearn/model/torch/_model.py, TorchModel._compute_clipped_gradients.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 opacus==1.6.0 declearn==2.9.1
"$room/venv/bin/python" - <<'PYTHON'
import logging
import warnings
from importlib.metadata import version

import numpy as np
import torch
from declearn.aggregator import AveragingAggregator
from declearn.dataset import InMemoryDataset
from declearn.messaging import PrivacyRequest
from declearn.model.torch import TorchModel
from declearn.optimizer import Optimizer
from declearn.training.dp import DPTrainingManager
from opacus.accountants import RDPAccountant

warnings.simplefilter("ignore")
torch.set_num_threads(1)
SIZE, WIDTH, BATCH, STEPS, CLIP, DELTA = 1000, 20, 50, 100, 1.0, 1e-5
rng = np.random.default_rng(0)
X = rng.standard_normal((SIZE, WIDTH)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")


def client():
    """A client that has been told to train with epsilon 2 for STEPS steps."""
    model = TorchModel(torch.nn.Linear(WIDTH, 1, bias=False), loss=torch.nn.BCEWithLogitsLoss())
    silent = logging.Logger("client", logging.CRITICAL)
    manager = DPTrainingManager(model, Optimizer(lrate=1.0), AveragingAggregator(), InMemoryDataset(X, Y), logger=silent, verbose=False)
    manager.make_private(PrivacyRequest(
        budget=(2.0, DELTA), sclip_norm=CLIP, accountant="rdp", use_csprng=False, seed=1, rounds=1,
        batches={"batch_size": BATCH, "poisson": True}, n_epoch=None, n_steps=STEPS,
    ))
    return manager


def weights(manager):
    return next(iter(manager.model.get_weights().coefs.values())).detach().numpy().ravel().copy()


def epsilon(noise_multiplier):
    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, BATCH / SIZE, STEPS)]
    return accountant.get_epsilon(DELTA)


manager = client()
claimed = manager.get_noise_multiplier()
noise = []
for _ in range(50):
    before = weights(manager)
    manager.run_train_step((np.zeros((BATCH, WIDTH), "float32"), Y[:BATCH], None))  # inputs of 0, so gradients of 0
    noise.append(weights(manager) - before)
done = np.std(noise) * BATCH / CLIP
print(f"declearn {version('declearn')}, opacus {version('opacus')}: batches of {BATCH}, noise multiplier {claimed:.2f} for epsilon {epsilon(claimed):.2f}")
print(f"noise of the mean has deviation {np.std(noise):.2f}: a noise multiplier of {done:.1f}, for epsilon {epsilon(done):.3f}")
assert abs(done / (claimed * BATCH) - 1) < 0.1 and epsilon(done) < 0.15
accuracy = {}
for divisor in (1, BATCH):
    manager = client()
    manager.optim.modules[0].std /= divisor
    draw = np.random.default_rng(2)
    for _ in range(STEPS):
        rows = draw.random(SIZE) < BATCH / SIZE
        manager.run_train_step((X[rows], Y[rows], None))
    accuracy[divisor] = np.mean((X @ weights(manager) > 0) == (Y.ravel() > 0))
    print(f"noise divided by {divisor}: accuracy {accuracy[divisor]:.2f} after {STEPS} steps")
assert accuracy[1] < 0.75 < 0.85 < accuracy[BATCH]
PYTHON
