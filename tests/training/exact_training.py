"""The training with Opacus, with sums of whole numbers, in several physical batches a step."""

from collections.abc import Callable
from pathlib import Path

import torch_training

STEPS, EVERY = torch_training.STEPS, torch_training.EVERY


def train(folder: Path, saved: Callable[[int], None] = lambda step: None) -> None:
    torch_training.train(folder, saved, exact=True)
