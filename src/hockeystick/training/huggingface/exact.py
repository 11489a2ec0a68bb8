"""Exact sums in the Trainer: physical batches of one shape, which are together the batch of a step.

The engine's loader gives one physical batch after the other, filled up with zeros. transformers takes whatever a loader
gives for the batch of a step, so those of a step are joined here, and the Trainer takes them apart again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.huggingface.shards import is_sharded


class WholeBatches:
    """A loader of physical batches that gives all those of a step as one batch, one after the other in its rows.

    Args:
        loader: of the engine.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __len__(self) -> int:
        """The steps of an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """One pass; a batch has to be used before the next one is drawn."""
        physical: list[Any] = []
        for batch in self.loader:
            physical.append(batch)
            if self.loader.batch_sampler.pieces[len(physical) - 1].last:
                yield joined(physical)
                physical = []


def joined(batches: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One batch with the rows of all of them; raises InvalidInputError where their rows have several shapes."""
    entries = {}
    for name in batches[0]:
        parts = [batch[name] for batch in batches]
        shapes = sorted({tuple(part.shape[1:]) for part in parts})
        if len(shapes) > 1:
            raise InvalidInputError(
                f"The 'data_collator' must give {name!r} of one shape for exact sums, so pad all texts to one length, "
                f"as padding='max_length' does. Got rows of shapes {shapes[0]} and {shapes[1]}."
            )
        entries[name] = torch.cat(parts)
    return entries


def check_mode(grad_sample_mode: str, model: Any) -> None:
    """Raise UnsupportedError for ghost clipping, which sums in floating point, except with ``fully_shard``."""
    if grad_sample_mode != "hooks" and not is_sharded(model):
        raise UnsupportedError(
            "Exact sums need the gradient of every example: the 'grad_sample_mode' argument must be 'hooks', except "
            f"for a model of fully_shard. Got {grad_sample_mode!r} instead."
        )


@contextmanager
def without_random_numbers(device: torch.device) -> Iterator[None]:
    """Raise UnsupportedError where a model drew from torch's generators, as dropout in functions of a model does.

    Such numbers follow the place in the batch. Layers that draw are refused before the first step; what is called as a
    function is seen by the generators alone.
    """
    before = _generators(device)
    yield
    if not all(torch.equal(now, then) for now, then in zip(_generators(device), before, strict=True)):
        raise UnsupportedError(
            "The model drew random numbers by the place in the batch, so the gradient of an example depends on the "
            "others: set all dropout of its configuration to 0 for exact sums."
        )


def _generators(device: torch.device) -> list[torch.Tensor]:
    """The states of torch's generators on the CPU and on the device."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
