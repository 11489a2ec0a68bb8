#!/bin/bash
# Expected: a client of dp_mechanism "gaussian" (or "laplace") adds noise to its model that has the epsilon of its settings.
# Happens: noise is for 2 * clip_value * lr, what one local step can change. But the model is sent after all local steps, each of which
# may move it by as much in the same direction. The noise is the same after 1 step and after 100, and no warning is given.
# Truth inside: models of two clients that differ in the label of one of four examples, with plain SGD and clipped gradients: the distance
# of the models without noise, and 40 noisy models told apart. At epsilon 1 and delta 1e-5 no attack tells right more often than .74.
# Who is hurt: every client that makes more than one step in a round, as nearly all do: with 100 steps one round has mu 20 in place of .2.
# Version: appfl 1.12.0, torch 2.13.0. Source: appfl/algorithm/trainer/vanilla_trainer.py, VanillaTrainer.train.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 opacus==1.6.0 numpy==2.4.6 omegaconf==2.3.0 \
    packaging==26.4 pandas==3.1.1 colorama==0.4.6 lz4==4.4.5 zstd==1.5.7.2 blosc==1.11.4 python-xz==0.7.0 requests==2.34.2 grpcio==1.85.3 \
    matplotlib==3.11.2 wandb==0.31.0 scikit-learn==1.9.1
"$room/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps appfl==1.12.0  # not ray, nor what talks to clusters
cd "$room"
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
import torch
from appfl.algorithm.trainer.vanilla_trainer import VanillaTrainer
from omegaconf import OmegaConf

warnings.simplefilter("ignore")
torch.set_num_threads(1)
EPSILON, CLIP, RATE = 1.0, 1.0, 0.1
X = torch.eye(4)


class Silent:
    def info(self, *_):
        pass

    set_title = log_title = log_content = debug = warning = info


def train(label, steps, private):
    """What the client sends after one round: four weights."""
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    settings = OmegaConf.create({
        "mode": "step", "num_local_steps": steps, "optim": "SGD", "optim_args": {"lr": RATE}, "train_batch_size": 4,
        "clip_grad": True, "clip_value": CLIP, "clip_norm": 2, "do_validation": False, "do_pre_validation": False,
        "use_dp": private, "dp_mechanism": "gaussian", "epsilon": EPSILON,
    })
    labels = torch.tensor([[label], [1.0], [-1.0], [0.5]])
    trainer = VanillaTrainer(
        model=model, loss_fn=torch.nn.MSELoss(), metric=lambda *_: 0.0, train_dataset=torch.utils.data.TensorDataset(X, labels),
        train_configs=settings, logger=Silent(),
    )
    trainer.train()
    sent = trainer.get_parameters()
    return (sent[0] if isinstance(sent, tuple) else sent)["weight"].flatten().numpy()


print(f"appfl {version('appfl')}, torch {version('torch')}: SGD at rate {RATE}, clip_value {CLIP}, epsilon {EPSILON}")
mu = {}
for steps in (1, 100):
    high, low = (train(label, steps, private=False) for label in (1000.0, -1000.0))
    deviation = np.std([train(1000.0, steps, private=True) - high for _ in range(50)])
    mu[steps] = np.linalg.norm(high - low) / deviation
    print(f"{steps} local steps: one label moves the model by {np.linalg.norm(high - low):.2f}, noise has deviation {deviation:.2f}: mu {mu[steps]:.2f}")
right = sum((train(label, 100, private=True)[0] > 0) == (label > 0) for label in (1000.0, -1000.0) for _ in range(20))
print(f"{right} of 40 models of 100 steps told right")
assert mu[1] < 0.3 and mu[100] > 15 and right == 40
PYTHON
