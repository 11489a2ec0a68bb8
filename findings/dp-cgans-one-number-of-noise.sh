#!/bin/bash
# Expected: a discriminator that is trained with private=True has its gradients clipped, and noise in every coordinate.
# Happens: the noise is one single number for a whole tensor: the hooks, made in a loop, all ask for noise of the last
# parameter's shape, a bias of one number, which is then spread over 1,440 coordinates. Every difference of two coordinates
# has no noise at all. The gradient is of the mean loss, whose examples are not clipped (the *weights* are, afterwards), and
# each step adds its hooks to those of the steps before. The epsilon that is printed is of Gaussian noise of multiplier 1
# on clipped gradients.
# Truth inside: the gradients of the first step with and without private, from the same random numbers: the noise is their difference.
# Who is hurt: whoever releases synthetic tables for their epsilon, here 5.9 of a table of 200 rows: nothing bounds what they tell.
# Version: dp-cgans 0.3.0, torch 2.13.0. Source: dp_cgans/synthesizers/dp_cgan.py, DPCGANSynthesizer.fit.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check dp-cgans==0.3.0 torch==2.13.0 six==1.17.0
cd "$room"  # it writes a folder for weights
"$room/venv/bin/python" - <<'PYTHON'
import contextlib
import io
import random
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
import torch
from dp_cgans import DP_CGAN

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
TABLE = pd.DataFrame({
    "age": rng.normal(50, 10, 200), "sex": rng.choice(["a", "b"], 200), "ill": rng.choice(["y", "n"], 200)
})


def first_gradients(private):
    """Of the discriminator, as its optimizer sees them, and what the package prints about privacy."""
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    seen, step, said = [], torch.optim.Adam.step, io.StringIO()

    def watched(self, *arguments, **options):
        seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return step(self, *arguments, **options)

    torch.optim.Adam.step = watched
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        model = DP_CGAN(epochs=2, batch_size=100, generator_dim=(8, 8), discriminator_dim=(8, 8), private=private, cuda=False)
        model.fit(TABLE)
    torch.optim.Adam.step = step
    return seen[0], [line for line in said.getvalue().splitlines() if "eps =" in line]


plain, nothing = first_gradients(False)
noisy, said = first_gradients(True)
print(f"dp-cgans {version('dp-cgans')}: {said}")
assert not nothing and said
for before, after in zip(plain, noisy):
    noise = after - before
    spread = (noise - noise.mean()).abs().max().item()
    print(f"{before.numel()} coordinates: gradient of norm {before.norm():.2f}, noise of mean {noise.mean():+.4f}, "
          f"which no coordinate leaves by more than {spread:.0e}")
    assert spread < 1e-6 and noise.mean().abs() > 1e-4
assert max(gradient.norm().item() for gradient in plain) > 5 and plain[0].numel() == 1440
print("One number of noise for each tensor, and no clipping.")
PYTHON
