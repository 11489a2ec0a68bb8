"""The binary tree over shuffled batches."""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.samplers import Shuffle
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF


@dataclass(frozen=True, kw_only=True, eq=False)
class ShuffledTree(DominatingPair):
    """The noisy nodes of one binary tree whose leaves are the batches of a fresh random permutation in every epoch.

    No dominating pair is known. What is known: revealing the permutations gives an upper bound, also for adaptively
    chosen gradients; for gradients that are fixed beforehand there is docs/theory/subsets/shuffled-tree.md.

    Attributes:
        matrix: C, a row of zeros and ones for every node that is completed.
        batch_size: examples in every batch, exactly.
        bins: batches in an epoch.
        epochs: number of epochs.
    """

    matrix: StrategyMatrix
    batch_size: int
    bins: int
    epochs: int = 1

    @property
    def full_sensitivity(self) -> float:
        """At least the largest norm of a sum of one column in each epoch; exact for one epoch and for one bin."""
        return _norm_of_an_example(self.matrix, self.bins)

    @property
    def sensitivity_error(self) -> float:
        """The relative rounding of a square root and of the norms of the columns."""
        return 8.0 * UNIT_ROUNDOFF

    @property
    def batches_are_public(self) -> bool:
        """True when there is a single batch in an epoch."""
        return self.bins == 1


@lru_cache(maxsize=16)
def _norm_of_an_example(matrix: StrategyMatrix, bins: int) -> float:
    """The norm of the sum of one column c_e in each epoch e, each inner product at its largest.

    ``|sum_e c_e|^2 = sum_e |c_e|^2 + 2 sum_{e < f} <c_e, c_f>``, and ``<c_e, c_f>`` counts the nodes above both. As a
    node is an interval, they are most for the last step of e and the first of f. O(steps) time and memory.
    """
    squares = np.square(matrix.column_norms).reshape(-1, bins).max(axis=1)
    shared = 0
    for level in range(matrix.steps.bit_length()):
        first = np.arange(matrix.steps >> level, dtype=np.int64) << level
        after = first + (1 << level)
        ended, started = after // bins - 1, -(-after // bins) - 1  # the last epochs to end, to start in the node
        earliest = first // bins
        epochs = np.maximum(ended - earliest + 1, 0)  # epochs e whose last step is below the node
        shared += int((epochs * started - epochs * (earliest + ended) // 2).sum())
    return sqrt(float(np.rint(squares.sum())) + 2.0 * shared)


def from_shuffle(mechanism: Mechanism) -> ShuffledTree:
    """Pair of a mechanism that permutes the data afresh in every epoch, with one tree over all steps."""
    sampler = require(mechanism.sampler, Shuffle)
    if sampler.remainder is not None:
        raise UnsupportedError(
            f"The strategy 'binary_tree' with shuffled batches and remainder = {sampler.remainder!r} has not been "
            f"analysed; a batch size that divides num_examples = {sampler.num_examples} would do."
        )
    return ShuffledTree(
        noise_multiplier=mechanism.sigma,
        matrix=mechanism.matrix,
        batch_size=sampler.batch_size,
        bins=sampler.bins,
        epochs=sampler.epochs,
    )
