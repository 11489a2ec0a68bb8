"""The batches of a run as torch loads them."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, SequentialSampler

from hockeystick.errors import InvalidInputError
from hockeystick.training.run import Run


class BatchSampler(Sampler[list[int]]):
    """The batches of a run as lists of indices, empty ones included: a ``batch_sampler`` for a DataLoader.

    One pass goes from the next step to the end of its epoch of ``run.steps_per_epoch`` steps, or to the last step.
    Batches that were read ahead and not used come again in the next pass.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=2, epochs=2), noise_multiplier=1.0)
    >>> run = hs.training.Run(mechanism, num_examples=4, shape=1)
    >>> sampler = BatchSampler(run)
    >>> for batch in sampler:
    ...     _ = run.noise(batch)
    ...     print(batch)
    [0, 1]
    [2, 3]

    Args:
        run: takes the steps elsewhere.
        rank, world_size: of this process, in a distributed run: it gets every ``world_size``-th example of a batch.

    Raises: InvalidInputError when a pass begins after the last planned step.
    """

    def __init__(self, run: Run, *, rank: int = 0, world_size: int = 1) -> None:
        self.run = run
        self.rank = rank
        self.world_size = world_size
        self.delivered: int | None = None
        """The step of the batch that the loader gave out last; None where another loader does."""
        self.drawn: int | None = None
        """The step of the batch that was drawn last; None before there is one."""
        self.reads_ahead = False
        """Whether batches are drawn before they are given out."""
        self.begin: Callable[[], None] = lambda: None
        """Is called when a pass begins."""

    def __len__(self) -> int:
        """The steps of a whole epoch."""
        return self.run.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of this process, to the end of the epoch."""
        if not self.run.remaining:
            raise InvalidInputError(
                f"All {self.run.steps} planned steps were taken; training for longer needs a plan with more steps."
            )
        self.delivered = self.drawn = None
        self.begin()
        left = len(self) - self.run.step % len(self)
        for step, batch in enumerate(islice(self.run.batches(), left), start=self.run.step):
            self.drawn = step
            yield batch[self.rank :: self.world_size].tolist()


class RunLoader(DataLoader[Any]):
    """A DataLoader over the batches of a run, which knows the step of the batch that it gave out last."""

    def __iter__(self) -> Any:
        """One pass, to the end of the epoch."""
        sampler = self.batch_sampler
        for step, batch in enumerate(super().__iter__(), start=sampler.run.step):
            sampler.delivered = step
            yield batch


def loader_of(run: Run, given: DataLoader[Any], batches: BatchSampler, *, batch_first: bool) -> RunLoader:
    """The user's loader with the run's batches in place of its own."""
    check_loader(given, run)
    batches.reads_ahead = given.num_workers > 0
    return RunLoader(
        dataset=given.dataset,
        batch_sampler=batches,
        collate_fn=CollateWithEmpty(given, batch_first),
        num_workers=given.num_workers,
        pin_memory=given.pin_memory,
        timeout=given.timeout,
        worker_init_fn=given.worker_init_fn,
        multiprocessing_context=given.multiprocessing_context,
        # A generator of its own: a pass that begins after a resume takes nothing from the global one.
        generator=torch.Generator() if given.generator is None else given.generator,
        prefetch_factor=given.prefetch_factor,
        persistent_workers=given.persistent_workers,
    )


def check_loader(given: DataLoader[Any], run: Run) -> None:
    """Raise InvalidInputError, naming what to change, unless a plan's batches can take the place of the loader's."""
    check_dataset(given, run.num_examples)
    expected = round(run.expected_batch_size)
    if type(given.sampler) is not SequentialSampler or given.batch_size is None:
        raise InvalidInputError(
            "The 'data_loader' argument must have no sampler, batch_sampler or shuffle=True of its own; the plan's "
            "sampler forms the batches."
        )
    if given.drop_last:
        raise InvalidInputError(
            "The 'data_loader' argument must not have drop_last=True; every batch of the plan counts."
        )
    if given.batch_size not in (1, expected):
        raise InvalidInputError(
            f"The 'data_loader' argument must have batch_size = {expected}, which the plan expects, or none. "
            f"Got {given.batch_size} instead."
        )


def check_dataset(given: DataLoader[Any], num_examples: int | None) -> int:
    """The size of the dataset; raises InvalidInputError where it has none, or is empty or not of the plan's size."""
    if not isinstance(given, DataLoader):
        raise InvalidInputError(
            f"The 'data_loader' argument must be a torch DataLoader. Got an object of type {type(given).__name__!r}."
        )
    return size_of_dataset(given.dataset, num_examples, "The dataset of the 'data_loader' argument")


def size_of_dataset(dataset: Any, num_examples: int | None, name: str) -> int:
    """The size of a dataset, which errors call ``name``; raises InvalidInputError as :func:`check_dataset`."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InvalidInputError(f"{name} must have a length and give examples by index; a stream cannot be sampled.")
    size = len(dataset)
    if num_examples is not None and size != num_examples:
        raise InvalidInputError(f"{name} must have the plan's {num_examples} examples. Got {size} instead.")
    if not size:
        raise InvalidInputError(f"{name} must have at least one example. Got none.")
    return size


class CollateWithEmpty:
    """The user's ``collate_fn``, and for a batch without examples what it gives for one example, cut to none.

    The structure is learned once, in the main process, so that all workers know it, whatever batch they see first.
    """

    def __init__(self, given: DataLoader[Any], batch_first: bool) -> None:
        self.collate = given.collate_fn
        self.dimension = 0 if batch_first else 1
        self.empty = without_examples(self.collate([given.dataset[0]]), self.dimension)

    def __call__(self, examples: list[Any]) -> Any:
        """The batch of these examples."""
        return self.collate(examples) if examples else without_examples(self.empty, self.dimension)


def without_examples(batch: Any, dimension: int) -> Any:
    """The same structure without examples; raises InvalidInputError for what has no such form."""
    if isinstance(batch, torch.Tensor):
        kept = dimension if batch.dim() > dimension else 0
        return batch.narrow(kept, 0, 0).clone() if batch.dim() else batch.new_empty(0)
    if isinstance(batch, Mapping):
        parts = {name: without_examples(part, dimension) for name, part in batch.items()}
        return parts if type(batch) is dict else type(batch)(parts)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(without_examples(part, dimension) for part in batch))
    if isinstance(batch, list | tuple):
        parts_in_order = [without_examples(part, dimension) for part in batch if not isinstance(part, str | bytes)]
        return type(batch)(parts_in_order)
    raise InvalidInputError(
        "The 'collate_fn' of the data loader must give tensors, mappings, lists or tuples, as there are batches "
        f"without examples. Got an object of type {type(batch).__name__!r} instead."
    )
