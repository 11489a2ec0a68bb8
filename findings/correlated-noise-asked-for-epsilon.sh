#!/bin/bash
# Expected: make_private_with_epsilon chooses the noise of a buffered linear toeplitz (BLT) mechanism for the epsilon asked for.
# Happens: three formulas fall short. For several epochs that are streamed, the wanted *epsilon* stands where the zCDP
# parameter belongs (which is about .08 for epsilon 2), and the norm of a column of C where its square does. For one
# epoch the norm alone. With min_sep, squares of columns are added up without their products, and only rows of one epoch
# are counted, in which an example of a later epoch has no column: three visits are paid as one. get_epsilon, which counts
# independent Poisson steps, reports a third number, below all of them.
# Truth inside: the noise of a run with gradients of zero is measured (its covariance), and compared with C^-1 of the optimizer's own
# parameters. The batches are fixed and an example is in the first of each epoch: all steps are one Gaussian mechanism, exact in
# closed form. Independent noise of the same engine keeps the epsilon asked for.
# Who is hurt: runs of several epochs: asked for epsilon 2, three epochs have 12.4 (streaming) and 3.4 (min_sep); asked for 8, 31.
# Version: correlated-noise-mechanism 0.4.0, opacus 1.6.0. Source: correlated_noise_mechanism/utils.py, get_noise_multiplier and
# calculate_sensitivity_squared.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0 dp-accounting==0.6.0 tqdm==4.70.1 mpmath==1.3.0
"$room/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps correlated-noise-mechanism==0.4.0  # not torchvision
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import mpmath
import numpy as np
import torch
from correlated_noise_mechanism.privacy_engine import CNMEngine
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
mpmath.mp.dps = 40
BATCHES, WIDTH, DELTA = 20, 20_000, 1e-5


def exact_epsilon(mu):
    """Of a Gaussian mechanism, by bisection of its profile."""
    mu, low, high = mpmath.mpf(mu), mpmath.mpf(0), mpmath.mpf(500)
    for _ in range(100):
        middle = (low + high) / 2
        profile = mpmath.ncdf(mu / 2 - middle / mu) - mpmath.exp(middle) * mpmath.ncdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if profile > DELTA else (low, middle)
    return float(high)


def train(mode, participation, epochs, target):
    """The engine, its optimizer and the noise of every step, where all gradients are zero."""
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, 1, bias=False)
    data = TensorDataset(torch.zeros(2 * BATCHES, WIDTH), torch.zeros(2 * BATCHES, 1))
    engine = CNMEngine()
    private, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), criterion=torch.nn.MSELoss(),
        data_loader=DataLoader(data, batch_size=2), target_epsilon=target, target_delta=DELTA, epochs=epochs,
        max_grad_norm=1.0, mode=mode, participation=participation, error_type="rmse", d=2, b=BATCHES, k=epochs,
        poisson_sampling=False,
    )
    rows = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(private(x), y).backward()
            before = model.weight.detach().clone()
            optimizer.step()
            rows.append((before - model.weight.detach()).flatten().double().numpy() * optimizer.expected_batch_size)
    return engine, optimizer, np.array(rows)


def exact_mu(optimizer, steps, joint):
    """From the optimizer's numbers: C is I and a sum of geometric series below the diagonal, new every epoch or not."""
    series = np.zeros(steps)
    series[0] = 1
    if torch.is_tensor(optimizer.a):
        a, decay = optimizer.a.double().numpy(), optimizer.lamda.double().numpy()
        series[1:] = (a * decay ** np.arange(steps - 1)[:, None]).sum(axis=1)
    image = np.zeros(steps)
    for start in range(0, steps, BATCHES):
        end = steps if joint else start + BATCHES
        image[start:end] += series[: end - start]
    return np.linalg.norm(image) / float(optimizer.noise_multiplier)


print(f"correlated-noise-mechanism {version('correlated-noise-mechanism')}, opacus {version('opacus')}, delta {DELTA}")
found = {}
for case in (
    ("DP-SGD-BASE", "streaming", 3, 2.0), ("BLT", "streaming", 1, 2.0), ("Multi-Epoch-BLT", "minSep", 3, 2.0),
    ("Multi-Epoch-BLT", "streaming", 3, 2.0), ("Multi-Epoch-BLT", "streaming", 3, 8.0),
):
    mode, participation, epochs, target = case
    engine, optimizer, rows = train(*case)
    steps = len(rows)
    visits = np.zeros(steps)
    visits[::BATCHES] = 1
    covariance = rows @ rows.T / (WIDTH - steps - 1)  # so that its inverse is unbiased
    measured = float(np.sqrt(visits @ np.linalg.solve(covariance, visits)))
    mu = exact_mu(optimizer, steps, joint=mode.startswith("Multi"))
    found[case] = exact_epsilon(mu)
    print(f"{mode}, {participation}, {epochs} epochs: asked for {target}; mu {mu:.3f}, {measured:.3f} in the noise; "
          f"epsilon {found[case]:.2f}; get_epsilon says {engine.get_epsilon(DELTA):.2f}")
    assert abs(measured / mu - 1) < 0.03 and engine.get_epsilon(DELTA) < found[case]
values = list(found.values())
assert values[0] < 2 < values[1] < 2.6 and 3 < values[2] < 4 and 10 < values[3] < 15 and 22 < values[4] < 32
print("Only independent noise keeps the epsilon that was asked for.")
PYTHON
