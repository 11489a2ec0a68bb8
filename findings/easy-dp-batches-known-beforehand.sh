#!/bin/bash
# Expected: a sampler for Poisson batches draws its coins anew in every run, and nobody knows which batches an example was in.
# Happens: its generator is a new torch.Generator that is never seeded, and such a generator always begins with the same state. All
# runs, everywhere, have the same batches (the shuffle before them has seed 42), and every process the same places in its share. The
# engine computes noise for secret batches. Who knows an example's row knows its batches.
# Truth inside: an example's batches as another process draws them; given these, all steps are one Gaussian mechanism, exact in closed form.
# Who is hurt: every run with this engine and sampler: asked for epsilon 2 at delta 1e-5 with batches of 100 of 10,000 examples for five
# epochs, more than half of the examples are in five batches or more, and have an epsilon of at least 12.6.
# Version: easy-dp 0.1.0, torch 2.13.0. Source: easy_dp/Sampler.py, DistributedPoissonSampler.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check easy-dp==0.1.0 torch==2.13.0 numpy==2.4.6 scipy==1.17.1
cat > "$room/batches.py" <<'PYTHON'
import os
import tempfile

import torch
from easy_dp.Sampler import DistributedPoissonSampler

SIZE, RATE, EPOCHS = 10_000, 0.01, 5


def batches():
    """The batches of all epochs, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{os.path.join(folder, 'meet')}", rank=0, world_size=1)
        sampler = DistributedPoissonSampler(SIZE, RATE, rank=0)
        drawn = []
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            drawn.extend(sampler)
        torch.distributed.destroy_process_group()
    return drawn


if __name__ == "__main__":
    torch.manual_seed(int.from_bytes(os.urandom(4), "big"))  # no matter
    print(batches())
PYTHON
cd "$room"
venv/bin/python batches.py > mine.txt 2> /dev/null
venv/bin/python batches.py > yours.txt 2> /dev/null
venv/bin/python - <<'PYTHON'
import ast
from importlib.metadata import version
from pathlib import Path

from batches import EPOCHS, RATE, SIZE
from easy_dp.PrivacyEngine import PrivacyEngine
from scipy.optimize import brentq
from scipy.stats import norm

DELTA = 1e-5
mine, yours = (ast.literal_eval(Path(name).read_text()) for name in ("mine.txt", "yours.txt"))
engine = PrivacyEngine(SIZE, int(RATE * SIZE), 1.0, EPOCHS, target_epsilon=2.0, target_delta=DELTA)


def exact_epsilon(mu):
    return brentq(lambda epsilon: norm.cdf(mu / 2 - epsilon / mu) - norm.cdf(-mu / 2 - epsilon / mu) * 2.718281828459045**epsilon - DELTA, 0, 60)


visits = [0] * SIZE
for batch in mine:
    for row in batch:
        visits[row] += 1
print(f"easy-dp {version('easy-dp')}, torch {version('torch')}: noise multiplier {engine.noise_multiplier:.3f} for epsilon 2")
print(f"{len(mine)} batches of about {sum(map(len, mine)) / len(mine):.0f}; two processes drew the same: {mine == yours}")
for known in (5, max(visits)):
    epsilon = exact_epsilon(known**0.5 / engine.noise_multiplier)
    print(f"{sum(v >= known for v in visits)} examples are in {known} or more batches, whose epsilon is at least {epsilon:.1f}")
    assert epsilon > 8
assert mine == yours and len(mine) == EPOCHS / RATE
PYTHON
