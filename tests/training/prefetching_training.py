"""The training with Opacus, with workers that read ahead of the steps: up to eight batches that no step has used."""

from collections.abc import Callable
from pathlib import Path

import torch_training

STEPS, EVERY = torch_training.STEPS, torch_training.EVERY


def train(folder: Path, saved: Callable[[int], None] = lambda step: None) -> None:
    torch_training.train(folder, saved, num_workers=2, prefetch_factor=4)
