"""The training with Opacus, with workers that read ahead of the steps: up to eight batches that no step has used."""

from pathlib import Path

import torch_training


def train(folder: Path) -> None:
    torch_training.train(folder, num_workers=2, prefetch_factor=4)
