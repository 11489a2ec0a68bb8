#!/bin/bash
# Expected: an engine that takes Opacus' place and adds the noise of a binary tree reports the epsilon of tree noise.
# Happens: it keeps Opacus' accountant, which counts steps with independent noise of the given multiplier. A tree's noise is
# scaled for an example that is in one step; in DP-SGD it comes again and again, and nodes then hold many of its gradients.
# After 64 full batches at noise multiplier 8 epsilon is 21.9 and 4.4 is reported. Independent noise (SimpleMech, the
# default) has the epsilon that is reported.
# Truth inside: the released models with no gradient (their covariance) and with almost no noise (their shift) are measured.
# All of them together are one Gaussian mechanism, exact in closed form; mu of the tree is counted from its nodes too.
# Who is hurt: whoever chooses a tree for its accuracy: what it gains is paid with privacy that no number shows.
# Version: opacus-dpcr 1.0.0, dpcrpy 1.0.0, opacus 1.6.0. Source: opacus_dpcr/dpcr_engine.py, DPCREngine.make_private, and
# dpcrpy/treeMethods/binMech.py, getL2Sens.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus-dpcr==1.0.0 dpcrpy==1.0.0 opacus==1.6.0 torch==2.13.0 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import math
import warnings
from importlib.metadata import version

import dpcrpy
import numpy as np
import torch
from opacus_dpcr import DPCREngine
from scipy.optimize import brentq
from scipy.stats import norm
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
LEVELS, SIGMA, DELTA, SIZE = 6, 8.0, 1e-5, 200
STEPS = 2**LEVELS


def exact_epsilon(mu):
    """Of a Gaussian mechanism at DELTA, by its profile."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 0, 99)


def released(noise, scale, generator):
    """The weights after each step from 0, shape (STEPS, numbers), and the engine; the one example has a long gradient."""
    torch.manual_seed(0)
    model = torch.nn.Linear(SIZE, SIZE, bias=False)
    torch.nn.init.zeros_(model.weight)
    data = TensorDataset(scale * torch.ones(1, SIZE), torch.zeros(1, dtype=torch.long))
    engine = DPCREngine(accountant="prv", dpcrGenerator=generator)
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.0),
        data_loader=DataLoader(data, batch_size=1), noise_multiplier=noise, max_grad_norm=1.0,
    )
    weights = []
    for _ in range(STEPS):
        for x, _ in loader:  # one batch of all the data, at rate 1
            optimizer.zero_grad()
            private(x).sum().backward()
            optimizer.step()
            weights.append(model.weight.detach().flatten().double().numpy().copy())
    return np.stack(weights), engine


print(f"opacus-dpcr {version('opacus-dpcr')}, opacus {version('opacus')}: {STEPS} full batches, multiplier {SIGMA:g}")
# Step t closes the node of its last `t & -t` steps. Every node has noise of SIGMA sqrt(LEVELS + 1), and all sums are
# made of these nodes, so that they tell what the nodes tell.
nodes = math.sqrt(sum((t & -t) ** 2 for t in range(1, STEPS + 1)) / (LEVELS + 1)) / SIGMA
for name, generator, expected in (
    ("SimpleMech", lambda block: dpcrpy.SimpleMech(1), math.sqrt(STEPS) / SIGMA),
    ("BinMech", lambda block: dpcrpy.BinMech(LEVELS), nodes),
):
    shift = np.linalg.norm(released(1e-9, 100.0, generator)[0], axis=1)
    noise, engine = released(SIGMA, 0.0, generator)
    covariance = noise @ noise.T / noise.shape[1]
    mu = math.sqrt(shift @ np.linalg.solve(covariance, shift))
    reported, exact = engine.get_epsilon(DELTA), exact_epsilon(expected)
    print(f"{name}: mu measured {mu:.3f}, counted {expected:.3f}: epsilon {exact:.2f}; history "
          f"{engine.accountant.history}, reported {reported:.2f}")
    assert np.allclose(shift, np.arange(1, STEPS + 1), rtol=1e-4)
    assert abs(mu / expected - 1) < 0.03
    assert abs(exact - reported) < 0.1 if name == "SimpleMech" else exact > 4 * reported
print("The tree's noise is reported as if it were drawn anew in each step.")
PYTHON
