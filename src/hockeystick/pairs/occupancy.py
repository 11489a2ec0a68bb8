"""Several examples of one user in hidden or revealed batches: how many of them share a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from math import factorial, perm, prod, sqrt

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.pairs.base import DominatingPair

Pattern = tuple[int, ...]
"""How many of the examples are in each batch that holds any, largest first: a partition of their number."""
MOST_EXAMPLES = 24
"""The patterns of more examples are too many."""
MOST_PATTERNS = 22
"""The least likely of more patterns count as the worst one, all examples in one batch."""
MOST_LEVELS = 1024
"""Squares of revealed sensitivities are rounded up to so many levels."""
ROUNDING = 1e-14
"""Relative, of a square root."""
PROBABILITY_ROUNDING, EPOCH_ROUNDING = 1e-9, 5e-13
"""Relative rounding of a probability that is charged in any case, and no less than each epoch adds.

The chances of one epoch are sums of up to 2,200 positive numbers, and a convolution adds ``MOST_LEVELS`` products for
each mass. Relative errors of factors add up, so all squares together cost no more than two convolutions for each epoch:
4,300 roundings (docs/theory/units.md, "Shuffled batches").
"""


@dataclass(frozen=True, kw_only=True)
class PlacedCopies(DominatingPair):
    """k examples, each in a uniformly random bin of its own, in each of ``epochs`` independent rounds.

    In a round ``P = E N(x, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``, x the number of the examples in each bin; a
    bin is visited ``replays`` times, and an example that is in it takes part with probability ``sampling_prob``, by its
    own coins. Exactly the mechanism with equal gradients (docs/theory/units.md).

    Attributes:
        bins: b.
        examples: k, from 2 to ``MOST_EXAMPLES``.
        epochs: rounds in which the bins are drawn afresh.
        replays: how often the batches of a round are run through.
        sampling_prob: q in (0, 1].
    """

    bins: int
    examples: int
    epochs: int = 1
    replays: int = 1
    sampling_prob: float = 1.0

    @property
    def patterns(self) -> dict[Pattern, float]:
        """The chance of each pattern in one round, within a unit of rounding; the rare ones count as the worst."""
        return _likeliest(occupancy(self.examples, self.bins, lambda size: 1))

    @property
    def full_sensitivity(self) -> float:
        """All examples in every batch of one bin."""
        return self.examples * sqrt(self.epochs * self.replays)

    @property
    def batches_are_public(self) -> bool:
        """True when there is a single bin and no sampling in it."""
        return self.bins == 1 and self.sampling_prob == 1.0


@dataclass(frozen=True, kw_only=True)
class RevealedVisits(DominatingPair):
    """One Gaussian of a random sensitivity, which is told to the adversary: an upper bound only.

    The profile is the mean of those of the Gaussians.

    Attributes:
        sensitivities: in clipping norms, rounded up.
        probabilities: of the same length, sum 1 up to their error.
        probability_error: at least the relative error of each probability.
    """

    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]
    probability_error: float

    @property
    def full_sensitivity(self) -> float:
        """The largest."""
        return max(self.sensitivities)


def occupancy(examples: int, bins: int, ways: Callable[[int], int]) -> dict[Pattern, float]:
    """The chance of each pattern of examples in bins, where ``ways(s)`` counts how s examples can share one bin.

    ``ways(s) = 1`` puts every example in a uniform bin of its own; ``ways(s) = B (B-1) ... (B-s+1)`` deals them to
    places without replacement, B to a bin. Exact up to the last rounding: sums of whole numbers.

    >>> occupancy(2, 4, lambda size: 1)
    {(2,): 0.25, (1, 1): 0.75}
    """
    counts: dict[Pattern, int] = {}
    for pattern in _partitions(examples, examples):
        if len(pattern) > bins:
            continue
        equal = prod(factorial(len(list(same))) for _, same in groupby(pattern))
        splits = factorial(examples) // prod(factorial(size) for size in pattern)
        count = perm(bins, len(pattern)) // equal * splits * prod(ways(size) for size in pattern)
        if count:
            counts[pattern] = count
    total = sum(counts.values())
    return {pattern: float(Fraction(count, total)) for pattern, count in counts.items()}


def dealt(examples: int, batch_size: int, bins: int, epochs: int, noise_multiplier: float) -> RevealedVisits:
    """The pair of a shuffled run whose permutations are revealed, for k examples of one user.

    In an epoch the sensitivity is the norm of the numbers of the examples in each batch; squares add up over epochs.
    """
    squares = np.zeros(examples**2 + 1)
    for pattern, chance in occupancy(examples, bins, lambda size: perm(batch_size, size)).items():
        squares[sum(size * size for size in pattern)] += chance
    masses, unit = _sum_of(squares, epochs)
    places = np.flatnonzero(masses)
    return RevealedVisits(
        noise_multiplier=noise_multiplier,
        sensitivities=tuple((np.sqrt(places * float(unit)) * (1.0 + ROUNDING)).tolist()),
        probabilities=tuple(masses[places].tolist()),
        probability_error=max(PROBABILITY_ROUNDING, epochs * EPOCH_ROUNDING),
    )


def _sum_of(masses: Array, count: int) -> tuple[Array, int]:
    """The masses of a sum of ``count`` independent copies, at the multiples of a unit, rounded up; and the unit."""
    total, unit = np.ones(1), 1
    for digit in f"{count:b}":
        total, unit = _few(np.convolve(total, total), unit)
        if digit == "1":
            spread = np.zeros(-(-(masses.size - 1) // unit) + 1)
            np.add.at(spread, -(-np.arange(masses.size) // unit), masses)
            total, unit = _few(np.convolve(total, spread), unit)
    return total, unit


def _few(masses: Array, unit: int) -> tuple[Array, int]:
    """At most ``MOST_LEVELS`` levels: neighbours are put together at the upper one while there are more."""
    while masses.size > MOST_LEVELS:
        padded = np.concatenate([[0.0], masses, [0.0]])[: masses.size // 2 * 2 + 2]
        masses, unit = np.add.reduceat(padded, np.arange(0, padded.size, 2)), 2 * unit
    return masses, unit


@lru_cache(maxsize=64)
def _partitions(total: int, largest: int) -> tuple[Pattern, ...]:
    """The ways to write ``total`` as a sum of positive numbers up to ``largest``, each largest first."""
    if total == 0:
        return ((),)
    return tuple(
        (first, *rest) for first in range(min(total, largest), 0, -1) for rest in _partitions(total - first, first)
    )


def _likeliest(chances: dict[Pattern, float]) -> dict[Pattern, float]:
    ordered = sorted(chances, key=lambda pattern: chances[pattern], reverse=True)
    kept = {pattern: chances[pattern] for pattern in ordered[:MOST_PATTERNS]}
    rest = sum(chances[pattern] for pattern in ordered[MOST_PATTERNS:])
    worst = (sum(ordered[0]),)
    return kept | {worst: kept.get(worst, 0.0) + rest}
