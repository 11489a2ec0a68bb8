"""A training with Opacus that can be killed at any moment; dropout and momentum have states of their own."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs

STEPS, EVERY = 150, 3
"""Steps of a training, and from one saved state to the next."""
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=5),
    sampler=hs.BMinSep(min_sep=5, sampling_prob=0.05, steps=STEPS),
    noise_multiplier=1.0,
)


def train(
    folder: Path, saved: Callable[[int], None] = lambda step: None, *, exact: bool = False, **options: Any
) -> None:
    """``saved`` is called with the step of every saved state; ``options`` are more arguments of the DataLoader.

    With ``exact`` without dropout, and in physical batches that are smaller than many batches.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(100, 6), torch.randint(3, (100,)))
    dropout = torch.nn.Dropout(0.0 if exact else 0.3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 20), dropout, torch.nn.ReLU(), torch.nn.Linear(20, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    whole_numbers: dict[str, Any] = {"exact": True, "physical_batch_size": 4} if exact else {}
    engine = hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(1), **whole_numbers)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=DataLoader(data, **options), max_grad_norm=1.0
    )
    state = folder / "state.pt"
    if state.exists():
        engine.load_checkpoint(path=state, module=model, optimizer=optimizer)
    while engine.run.remaining:
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            before = engine.run.step
            optimizer.step()
            step = engine.run.step
            if step > before and (step % EVERY == 0 or not engine.run.remaining):
                engine.save_checkpoint(path=state, module=model, optimizer=optimizer)
                saved(step)
    engine.record(engine.certificate(1e-5, method="gaussian")).save(folder / "run.json")
