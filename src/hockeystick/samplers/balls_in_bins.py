"""Each example picks one bin, once; every epoch replays the bins."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np

from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.epochs import EpochPromises, EpochSampler
from hockeystick.samplers.grouping import draw_bins, group_by_bin
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.types import Adjacency


class BallsInBinsPromises(EpochPromises):
    """Every example has one bin for the whole run."""

    meanings: ClassVar[Mapping[str, str]] = {
        **EpochPromises.meanings,
        "one_bin_an_example": "Every example was in one bin for the whole run.",
    }

    def begin(self) -> None:
        super().begin()
        self.bin = np.full(self.num_examples, -1, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        turn = step % self.sampler.bins
        known = self.bin[batch]
        expect(bool(np.all((known == turn) | (known == -1))), "one_bin_an_example")
        self.bin[batch] = turn


class BallsInBins(EpochSampler):
    """Random disjoint batches, drawn once and replayed in the same order in every epoch.

    >>> import numpy as np
    >>> sampler = BallsInBins(bins=3, epochs=2)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [331, 316, 353, 331, 316, 353]

    Formal guarantee of batches: each example draws one of ``bins`` bins uniformly, independently of all other
    examples, once for the whole run. Batch t is bin ``t mod bins``, so an example takes part ``epochs`` times,
    exactly ``bins`` steps apart. The batch sizes are random.

    Fields:
        bins: bins, and batches in one epoch.
        epochs: passes over the data.

    Memory and time: O(num_examples + bins) memory and time for the draw, then O(batch) for each batch.

    Raises: InvalidInputError at construction when ``bins * epochs`` exceeds 10**9.

    Reference: Choquette-Choo et al. (2025), "Near exact privacy amplification for matrix mechanisms"; Feldman and
    Shenfeld (2025), "Privacy amplification by random allocation", Definition 2.11 with k = 1, for one epoch.
    """

    PROMISES: ClassVar[type[Promises]] = BallsInBinsPromises

    kind: Literal["balls_in_bins"] = "balls_in_bins"

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Both: an example's bin is drawn independently of the others, so removing it is zeroing it out."""
        return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        return (
            f"Put each example independently in one of {self.bins} bins uniformly at random, once, and use the bins "
            f"as the batches, the same and in the same order in every one of {self.epochs} epoch(s)."
        )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        order, starts = group_by_bin(draw_bins(self.bins, num_examples, rng), self.bins)
        for _ in range(self.epochs):
            for b in range(self.bins):
                yield order[starts[b] : starts[b + 1]].astype(np.int64)


class BallsInBinsOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with balls-in-bins batches."""

    kind: Literal["balls_in_bins"] = "balls_in_bins"

    def sampler(self, data: Data) -> BallsInBins:
        """The sampler for these data: the nearest whole number of bins to num_examples / batch_size."""
        bins = data.bins(self.kind)
        return BallsInBins(bins=bins, epochs=data.whole_epochs(self.kind, bins))
