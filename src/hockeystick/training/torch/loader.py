"""The batches of a run as torch loads them."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from math import ceil, floor
from typing import Any, NamedTuple

import torch
from opacus.data_loader import DPDataLoader
from pydantic import Field
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, Sampler, SequentialSampler

from hockeystick.calls import made_by, outside
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.samplers import PoissonOptions, SamplerOptions
from hockeystick.samplers.promises import Batch, Promises
from hockeystick.spec import Positive, Spec, expect_kind
from hockeystick.strategies.base import StrategySpec
from hockeystick.training.run import Run
from hockeystick.training.torch.collation import CollateWithEmpty


class Piece(NamedTuple):
    """A physical batch of exact sums.

    Attributes:
        step: whose batch it is a part of.
        examples: how many of its rows are examples, the first ones; the others fill it up.
        last: of its step.
    """

    step: int
    examples: int
    last: bool


@made_by("hs.torch.BatchSampler(run)")
class BatchSampler(Sampler[list[int]]):
    """The batches of a run as lists of indices, empty ones included: a ``batch_sampler`` for a DataLoader.

    One pass goes from the next step to the end of its epoch. Where the steps of an epoch are no whole number, passes
    differ by one step, so that as many passes as there are epochs take exactly the planned steps. Batches that were
    read ahead and not used come again in the next pass.

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
        epochs: of the plan, where it says a number of them.
        physical: give batches in pieces of at most so many examples, at least one for a batch and as many on every
            process, and remember the pieces.

    Raises: InvalidInputError when a pass begins after the last planned step.
    """

    def __init__(
        self,
        run: Run,
        *,
        rank: int = 0,
        world_size: int = 1,
        epochs: float | None = None,
        physical: int | None = None,
    ) -> None:
        self.run = run
        self.physical = physical
        self.pieces: deque[Piece] = deque()
        """The pieces that were drawn and not used yet, in order; none without ``physical``."""
        self.steps_drawn: list[int] = []
        """The step of every batch or piece that was drawn in this pass."""
        self.epoch_length = epoch_length(run, epochs)
        """The steps of an epoch, a fraction."""
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
        """The steps of the whole epoch that the next step is in."""
        epoch = min(self.run.step, self.run.steps - 1) // self.epoch_length
        return self._end(epoch) - (self._end(epoch - 1) if epoch else 0)

    def _end(self, epoch: int) -> int:
        """The number of steps at the end of an epoch, from 0: the smallest that is at least its share of all."""
        return min(self.run.steps, ceil((epoch + 1) * self.epoch_length))

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of this process, to the end of the epoch."""
        if not self.run.remaining:
            raise InvalidInputError(
                f"All {self.run.steps} planned steps were taken; training for longer needs a plan with more steps."
            )
        self.delivered = self.drawn = None
        self.pieces.clear()
        self.steps_drawn = []
        self.begin()
        left = self._end(self.run.step // self.epoch_length) - self.run.step
        for step, batch in enumerate(islice(self.run.batches(), left), start=self.run.step):
            self.drawn = step
            for piece in self._pieces(step, batch):
                self.steps_drawn.append(step)
                yield piece

    def _pieces(self, step: int, batch: Batch) -> Iterator[list[int]]:
        """What this process gets of a batch, whole or in pieces."""
        own: list[int] = batch[self.rank :: self.world_size].tolist()
        if self.physical is None:
            yield own
            return
        number = max(1, ceil(ceil(len(batch) / self.world_size) / self.physical))
        for at in range(number):
            piece = own[at * self.physical : (at + 1) * self.physical]
            self.pieces.append(Piece(step, len(piece), last=at == number - 1))
            yield piece


class RunLoader(DataLoader[Any]):
    """A DataLoader over the batches of a run, which knows the step of the batch that it gave out last."""

    def __iter__(self) -> Any:
        """One pass, to the end of the epoch."""
        sampler = self.batch_sampler
        for at, batch in enumerate(super().__iter__()):
            sampler.delivered = sampler.steps_drawn[at]
            yield batch


def epoch_length(run: Run, epochs: float | None = None) -> Fraction:
    """The steps of an epoch, such that all planned steps are the asked epochs, or those that they nearly are.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.28, steps=36), noise_multiplier=1.0)
    >>> epoch_length(hs.training.Run(mechanism, num_examples=1000, shape=1))  # 3.57 as it is drawn
    Fraction(18, 5)

    Args:
        epochs: of the plan, where it says a number of them.
    """
    drawn = run.epoch_length
    if epochs is None:
        whole = round(run.steps / drawn)
        return Fraction(run.steps, whole) if whole and abs(whole * drawn - run.steps) < 1 else drawn
    return max(Fraction(1), run.steps / Fraction(epochs))


def batches_of_epoch(given: DataLoader[Any]) -> int:
    """How many batches a loader makes of its data: one over the rate at which Opacus draws in its place."""
    return round(1.0 / given.sample_rate) if isinstance(given, DPDataLoader) else len(given)


class Drawn(NamedTuple):
    """How a user's loader would have formed its batches.

    Attributes:
        batch_size: of the loader; None where it has none.
        instead: in words, what the run's batches take the place of; empty where nobody has to be told.
    """

    batch_size: int | None
    instead: list[str]


class WithoutPlan(Spec):
    """What an engine without a plan is told of one; the data follow from the loader."""

    sampler: SamplerOptions = Field(default_factory=PoissonOptions, discriminator="kind")
    epochs: Positive | None = None


def checked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine is asked for without a plan, as far as it is: a sampler, a strategy and epochs.

    Raises: InvalidInputError for what no plan could say.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    expect_kind("strategy", given.get("strategy"), StrategySpec, "a strategy, such as hs.BandedSquareRoot(bands=4)")
    tables = {"sampler": sampler_table(given["sampler"])} if "sampler" in given else {}
    WithoutPlan.parse(tables | {"epochs": given.get("epochs")})
    return given


def sampler_table(sampler: object) -> dict[str, Any]:
    """The ``[sampler]`` table of a plan for the engine's argument: the kind of a sampler, or the table itself.

    Raises: InvalidInputError for anything else.
    """
    if isinstance(sampler, Mapping):
        return dict(sampler)
    if not isinstance(sampler, str):
        raise InvalidInputError(
            "The 'sampler' argument must be the kind of a sampler, such as 'poisson', or a table of fields, such as "
            f"{{'kind': 'poisson'}}; rates follow from the loader. Got {shortened(sampler)} instead."
        )
    return {"kind": sampler}


def drawn_by(given: DataLoader[Any]) -> Drawn:
    """What a loader draws; raises InvalidInputError for batches of another law than any that a run can stand in for."""
    if isinstance(given, RunLoader):  # of another run
        return Drawn(None, [])
    if isinstance(given, DPDataLoader):
        return Drawn(None, ["the loader's own Poisson batches"])
    sampler, size, drop_last = given.sampler, given.batch_size, given.drop_last
    if size is None and type(given.batch_sampler) is TorchBatchSampler:
        cut = given.batch_sampler
        sampler, size, drop_last = cut.sampler, cut.batch_size, cut.drop_last
    instead = []
    if type(sampler) is RandomSampler and len(sampler) == len(given.dataset):
        instead.append("replacement=True" if sampler.replacement else "shuffle=True")
    elif isinstance(sampler, DistributedSampler) and sampler.dataset is given.dataset:
        instead.append("the DistributedSampler")
    elif type(sampler) is not SequentialSampler or size is None:
        what = given.batch_sampler if size is None else sampler
        if what is None:
            raise InvalidInputError(
                "The 'data_loader' argument must have a batch_size, or a BatchSampler of torch, as a run makes "
                "batches. Got batch_size = None, with which a loader gives single examples."
            )
        raise InvalidInputError(
            "The 'data_loader' argument must have no sampler or batch_sampler of its own, which may leave examples out "
            "or draw some more often than others; the plan's sampler forms the batches. Got one of type "
            f"{type(what).__name__!r}; to train on a part of the data, make it a torch.utils.data.Subset."
        )
    return Drawn(size, [*instead, *(["drop_last=True"] * bool(drop_last))])


def loader_of(given: DataLoader[Any], batches: BatchSampler, collate: CollateWithEmpty) -> RunLoader:
    """The user's loader with the run's batches in place of its own."""
    batches.reads_ahead = given.num_workers > 0
    return RunLoader(
        dataset=given.dataset,
        batch_sampler=batches,
        collate_fn=collate,
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


def check_batch_size(promises: Promises, given: int | None, planned: float | None, world_size: int) -> None:
    """Raise InvalidInputError unless a loader's batch size is the plan's, or makes as many batches as the plan has.

    Args:
        promises: of the plan's sampler.
        given: of the loader; None or 1 where it says nothing.
        planned: what the plan says, where that is not what its sampler then draws on average.
        world_size: the processes, which may have been given their shares.
    """
    expected = promises.expected_batch_size if planned is None else planned
    sizes = {nearby(size) for size in (promises.expected_batch_size, expected) for nearby in (floor, ceil)}
    bins = getattr(promises.sampler, "bins", None)
    if given in sizes | {size // world_size for size in sizes} | {1, None}:
        return
    if given is not None and bins in (promises.num_examples // given, ceil(promises.num_examples / given)):
        return
    raise InvalidInputError(
        f"The 'data_loader' argument must have batch_size = {round(expected)}, which the plan expects, or none. "
        f"Got {given} instead."
    )


BATCHES = {
    "shuffle": "shuffled batches",
    "poisson": "Poisson batches",
    "cyclic_poisson": "cyclic Poisson batches",
    "random_allocation": "random-allocation batches",
    "balls_in_bins": "balls-in-bins batches",
    "b_min_sep": "b-min-sep batches",
    "fixed_size": "batches of one size",
    "multi_attribution": "multi-attribution batches",
}
"""Batches of a sampler in words; those that are not here have the sampler's name."""


def warn_instead(batches: BatchSampler, instead: list[str]) -> None:
    """Say in one line what is drawn in place of what a script asked for; nothing where it asked for nothing."""
    if not instead:
        return
    run = batches.run
    kind = run.mechanism.sampler.kind
    warnings.warn(
        f"In place of {' and '.join(instead)}, the run draws {BATCHES.get(kind, f'{kind} batches')} of "
        f"{run.expected_batch_size:g} examples on average, {float(batches.epoch_length):g} to an epoch.",
        stacklevel=outside(),
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
