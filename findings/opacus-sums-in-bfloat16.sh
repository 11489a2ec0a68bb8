#!/bin/bash
# Expected: one example moves the sum that Opacus adds noise to by at most one clipping norm, in whatever type the model is.
# Happens: with parameters in bfloat16 the sum of clipped gradients is rounded to 8 bits before noise is added. In a batch of 4,096
# whose gradients point about the same way, as in the first steps of a run, each coordinate is rounded to multiples of about
# 1/64 of the largest; the example, too small to change most of them, makes some jump, and the jumps together are longer
# than it is, about as the root of the batch size. With parameters in float32 it moves the sum by 1.000 norms each time.
# Truth inside: the sum is taken before noise is added, with and without one example, and the noise is looked at: its
# deviation is 1. One full batch is a Gaussian mechanism, exact in closed form.
# Who is hurt: large batches of models in bfloat16: in batches of 4,096 at noise multiplier 1 the epsilon is 21, and 4.4 is reported.
# Version: opacus 1.6.0, torch 2.13.0 on a CPU. Source: opacus/optimizers/optimizer.py, clip_and_accumulate.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0 mpmath==1.3.0
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import mpmath
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
WIDTH = 300


def exact_epsilon(mu, delta=1e-5):
    """Of a Gaussian mechanism, by bisection of its profile."""
    mu, low, high = mpmath.mpf(mu), mpmath.mpf(0), mpmath.mpf(500)
    for _ in range(100):
        middle = (low + high) / 2
        profile = mpmath.ncdf(mu / 2 - middle / mu) - mpmath.exp(middle) * mpmath.ncdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if profile > delta else (low, middle)
    return float(high)


def step(rows, dtype):
    """The sum of one full batch before noise, the gradient after it, in units of the clipping norm, and the epsilon reported."""
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False).to(dtype)
    engine = PrivacyEngine()
    model, optimizer, _ = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), noise_multiplier=1.0, max_grad_norm=1.0,
        data_loader=DataLoader(TensorDataset(rows), batch_size=len(rows)), poisson_sampling=False,
    )
    model(rows.to(dtype)).float().sum(dim=1).mean().backward()
    optimizer.step()
    parameter = optimizer.params[0]
    noisy = parameter.grad.double() * optimizer.expected_batch_size
    return parameter.summed_grad.double(), noisy, engine.get_epsilon(1e-5)


print(f"opacus {version('opacus')}, torch {torch.__version__}: noise multiplier 1, delta 1e-5")
moved = {}
for batch in (256, 1024, 4096):
    generator = torch.Generator().manual_seed(1)
    rows = 1 + 0.3 * torch.randn(batch + 1, WIDTH, generator=generator)
    rows[-1] = torch.randn(WIDTH, generator=generator)  # the example of the neighbour, which points elsewhere
    for dtype in (torch.float32, torch.bfloat16):
        (without, _, _), (sums, noisy, reported) = step(rows[:-1], dtype), step(rows, dtype)
        moved[batch, dtype] = (sums - without).norm().item()
        print(f"{batch} examples, {dtype}: one example moves the sum by {moved[batch, dtype]:.3f} clipping norms, noise of deviation "
              f"{(noisy - sums).std():.3f}; epsilon {exact_epsilon(moved[batch, dtype]):.2f}, reported {reported:.2f}")
        assert sums.dtype == torch.float64 and abs((noisy - sums).std().item() - 1) < 0.02
assert all(abs(size - 1) < 1e-4 for (_, dtype), size in moved.items() if dtype == torch.float32)
narrow = [size for (_, dtype), size in moved.items() if dtype == torch.bfloat16]
assert 1.02 < narrow[0] < narrow[1] < narrow[2] and narrow[1] > 1.7 and narrow[2] > 3
PYTHON
