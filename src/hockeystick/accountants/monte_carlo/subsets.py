"""Tilts for Poisson and cyclic Poisson sampling with banded strategy matrices (docs/theory/monte-carlo/subsets.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, log1p
from typing import Any, ClassVar

import numpy as np

from hockeystick.accountants.monte_carlo.participations import Participations, participations
from hockeystick.accountants.monte_carlo.subset_kernels import draw_moved, draw_powers, power_table
from hockeystick.accountants.monte_carlo.tilt import Array, Family, Tilt
from hockeystick.accountants.monte_carlo.tilt_bounds import (
    FARTHEST_NORMAL,
    LARGEST_EXPONENT,
    bounded_exp,
    largest_of_power,
    log_factor,
)
from hockeystick.bounds import Profile
from hockeystick.errors import InvalidInputError
from hockeystick.pairs.band import band_of
from hockeystick.pairs.cyclic_subsets import CyclicSubsets
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

MAX_WINDOW = 12
"""Every block of every sample visits 2^window patterns."""
MAX_EXPONENT = 480.0
"""Of a sample of P: the factors of the recursion then stay in the range of doubles. Blocks of one row may have a sum of
16 sigma."""
SECONDS_PER_PATTERN = 2e-9
SECONDS_PER_ROW = 3e-8
SECONDS_PER_COPY = 2e-8
MAX_ORDER = 12
"""Largest order of a power tilt."""
MAX_TABLE_TIME = 4e7
"""Terms that are summed for a table of a power tilt: a fraction of a second."""
MAX_TABLE = 1 << 22
"""Numbers in such a table: 32 MB."""
SHARE = 0.9
"""Weight of the tilted distribution; the rest of the samples come from P itself."""
MAX_BETA = 1e4
"""Largest strength that is taken from outside."""
BETAS = np.round(np.geomspace(1e-2, 1e3, 501), 4)
"""Strengths of the mean tilt that are tried."""
SMALLEST_LARGEST = 1e-3
"""Below this the largest value of the naive tilt is not followed: rounding of the loss would show in it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetTilt(Tilt):
    """What the tilts share.

    Attributes:
        pair: the pair; not refused by :func:`why_not`.
    """

    pair: SubsetMixture | CyclicSubsets

    @property
    def turns(self) -> Participations:
        """In what steps the example may take part, and what that adds to later rows."""
        return participations(self.pair)

    @property
    def cost(self) -> float:
        """One visit of 2^w patterns for each block of rows."""
        turns, rows, window = self.turns.scaled.shape
        return float(turns * (rows * SECONDS_PER_ROW + SECONDS_PER_PATTERN * 2.0**window))

    @property
    def loss_error(self) -> float:
        """First-order bound: 3w + 8 roundings of positive numbers and the exponents of every block."""
        turns, rows, window = self.turns.scaled.shape
        exponents = (5.0 + rows) * self.turns.largest_exponent(self._reach)
        return float(max(1e-9, self._slope * 2.0 * UNIT_ROUNDOFF * turns * (3.0 * window + 8.0 + exponents)))

    @property
    def _reach(self) -> float:
        """How far outputs are shifted at most, in sums of rows, plus one."""
        return 2.0

    @property
    def _slope(self) -> float:
        """How often an error of the loss, or of ``<mbar, y>``, counts in the log-weight; at least 1."""
        return 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveSubsets(SubsetTilt):
    """The output of the direction's own first distribution, without a weight."""

    name: ClassVar[str] = "naive"

    @property
    def parameters(self) -> dict[str, float]:
        """None."""
        return {}

    def largest(self, epsilon: float) -> float:
        """1, and for add ``1 - e^epsilon min X``."""
        if self.direction is Direction.REMOVE:
            return 1.0
        return max(smallest_ratio_bound(self.pair)(epsilon), SMALLEST_LARGEST)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """Unit weights."""
        log_weights[:] = 0.0
        if self.direction is Direction.REMOVE:
            losses[:] = _from_powers(rng, self.turns, losses.size)
        else:
            losses[:] = -_from_normals(rng, self.turns, losses.size, 0.0)[:, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerSubsets(SubsetTilt):
    """Remove: the mixture of P, with weight ``1 - share``, and of ``X^order Q / Z``.

    The latter is ``y = C (x_1 + ... + x_order) + noise`` for participations that are drawn together, with their
    probability times ``exp(sum_{i<j} <C x_i, C x_j> / sigma^2)``. The weight is
    ``1 / (1 - share + share X^(order - 1) / Z)``, a function of the loss alone.

    Attributes:
        order: a >= 2.
        share: in (0, 1].
    """

    name: ClassVar[str] = "power"
    order: int
    share: float = SHARE

    @property
    def parameters(self) -> dict[str, float]:
        """order and share."""
        return {"order": float(self.order), "share": self.share}

    @property
    def cost(self) -> float:
        """The copies are drawn turn by turn before the recursion runs."""
        turns, rows, _ = self.turns.scaled.shape
        return float(super().cost + turns * rows * SECONDS_PER_COPY * self.order)

    @property
    def log_norm(self) -> float:
        """log Z."""
        return float(_power_table(self.turns, self.order)[0, 0])

    @property
    def _reach(self) -> float:
        return self.order + 1.0

    @property
    def _slope(self) -> float:
        return float(self.order)

    def largest(self, epsilon: float) -> float:
        """Close to ``Z e^(-(a-1) epsilon) (a-1)^(a-1) / a^a / share``."""
        return largest_of_power(epsilon, self.order - 1.0, self.log_norm, self.share)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """The weight follows from the loss."""
        losses[:] = _from_powers(rng, self.turns, losses.size, self.order, self.share)
        far = np.log(self.share) + (self.order - 1.0) * losses - self.log_norm
        log_weights[:] = -np.logaddexp(far, log1p(-self.share) if self.share < 1.0 else -np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanSubsets(SubsetTilt):
    """Add: ``y ~ N(-beta C E x, sigma^2 I)``, away from the average participation.

    With ``g = |C E x|^2 / sigma^2`` and ``A = E |C x|^2 / sigma^2``, Jensen's inequality
    ``log X >= <C E x, y> / sigma^2 - A / 2`` bounds the weight ``exp(beta <C E x, y> / sigma^2 + beta^2 g / 2)`` by
    ``exp(beta (A / 2 - l) + beta^2 g / 2)``, l the loss.

    Attributes:
        beta: > 0.
    """

    name: ClassVar[str] = "mean"
    beta: float

    @property
    def parameters(self) -> dict[str, float]:
        """beta."""
        return {"beta": self.beta}

    @property
    def _reach(self) -> float:
        return self.beta + 2.0

    @property
    def _slope(self) -> float:
        return self.beta + 1.0

    def largest(self, epsilon: float) -> float:
        """``exp(-beta (epsilon - A/2) + beta^2 g / 2) beta^beta / (beta + 1)^(beta + 1)``."""
        return bounded_exp(log_largest_of_mean(self.turns, self.beta, epsilon))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """The weight is known from ``<C E x, y>`` alone."""
        drawn = _from_normals(rng, self.turns, losses.size, self.beta)
        squared_mean, _ = self.turns.moments
        log_weights[:] = self.beta * drawn[:, 1] + 0.5 * self.beta**2 * squared_mean
        losses[:] = -drawn[:, 0]


def _from_normals(rng: np.random.Generator, turns: Participations, samples: int, beta: float) -> Array:
    """``log X`` and ``<C E x, y> / sigma^2`` of ``y ~ N(-beta C E x, sigma^2 I)``, shape (samples, 2)."""
    drawn = np.empty((samples, 2))
    draw_moved(rng, turns.scaled, turns.fresh, turns.prob, beta, turns.mean_shift, drawn)
    return drawn


def _from_powers(
    rng: np.random.Generator, turns: Participations, samples: int, order: int = 1, share: float = 0.0
) -> Array:
    """``log X`` of outputs of P, or of the mixture with the tilted distribution, shape (samples,)."""
    log_ratios = np.empty(samples)
    table = _power_table(turns, order) if share > 0.0 else np.empty((0, 0))
    draw_powers(rng, turns.scaled, turns.fresh, turns.prob, order, table, share, log_ratios)
    return log_ratios


def orders(pair: SubsetMixture | CyclicSubsets) -> Sequence[int]:
    """The orders whose table of 2^(order w) terms for each turn is small enough; none without subsampling.

    Copies that are all in the same steps must leave the factors of the recursion in the range of doubles.
    """
    if pair.batches_are_public:
        return ()
    part = participations(pair)
    turns, rows, window = part.scaled.shape
    different = int(np.count_nonzero(part.fresh))
    return [
        order
        for order in range(2, MAX_ORDER + 1)
        if (turns + different * rows * order) * 2.0 ** (order * window) <= MAX_TABLE_TIME
        and turns * 2.0 ** (order * (window - 1)) + 2.0 ** (order * window) <= MAX_TABLE
        and part.largest_exponent(order) <= LARGEST_EXPONENT
    ]


@lru_cache(maxsize=8)
def _power_table(turns: Participations, order: int) -> Array:
    table: Array = power_table(turns.scaled, turns.fresh, turns.prob, order)
    return table


def log_largest_of_mean(turns: Participations, beta: float, epsilon: float) -> float:
    """log M of the mean tilt."""
    squared_mean, mean_square = turns.moments
    tilted = -beta * (epsilon - 0.5 * mean_square) + 0.5 * beta**2 * squared_mean
    return tilted + log_factor(beta)


def smallest_ratio_bound(pair: SubsetMixture | CyclicSubsets) -> Profile:
    """``delta_add <= (1 - e^epsilon (1-p)^k)_+``: X is at least the chance to take no turn of k. Rounded up."""
    if pair.batches_are_public:
        return lambda epsilon: 1.0
    log_smallest = participations(pair).count * log1p(-pair.sampling_prob) * (1.0 + 8.0 * UNIT_ROUNDOFF)
    return lambda epsilon: max(-expm1(min(epsilon + log_smallest, 0.0)) * (1.0 + 8.0 * UNIT_ROUNDOFF), 0.0)


def propose(pair: SubsetMixture | CyclicSubsets, direction: Direction, epsilon: float) -> Sequence[Tilt]:
    """Tilts with an M below that of the naive tilt, by cost times M; the naive tilt."""
    naive = NaiveSubsets(direction=direction, pair=pair)
    tilted: list[Tilt]
    if direction is Direction.REMOVE:
        tilted = [PowerSubsets(direction=direction, pair=pair, order=order) for order in orders(pair)]
    else:
        turns = participations(pair)
        beta = float(min(BETAS, key=lambda beta: log_largest_of_mean(turns, float(beta), epsilon)))
        tilted = [MeanSubsets(direction=direction, pair=pair, beta=beta)]
    useful = [tilt for tilt in tilted if tilt.largest(epsilon) < naive.largest(epsilon)]
    return (*sorted(useful, key=lambda tilt: tilt.cost * tilt.largest(epsilon)), naive)


def build(
    pair: SubsetMixture | CyclicSubsets, direction: Direction, name: str, parameters: Mapping[str, float]
) -> Tilt:
    """The tilt that evidence names."""
    beta, order, share = (parameters.get(key, 0.0) for key in ("beta", "order", "share"))
    remove = direction is Direction.REMOVE
    if name == NaiveSubsets.name and not parameters:
        return NaiveSubsets(direction=direction, pair=pair)
    if name == PowerSubsets.name and remove and order in orders(pair) and 0.0 < share <= 1.0:
        return PowerSubsets(direction=direction, pair=pair, order=int(order), share=share)
    if name == MeanSubsets.name and not remove and 0.0 < beta <= MAX_BETA:
        return MeanSubsets(direction=direction, pair=pair, beta=beta)
    raise InvalidInputError(
        f"The 'tilt' field must be 'naive', 'power' with an order of {list(orders(pair))} and a share for remove, or "
        f"'mean' with a positive beta for add. Got {name!r} with {dict(parameters)} for {direction.value} instead."
    )


def why_not(pair: SubsetMixture | CyclicSubsets, side: Side) -> str | None:
    """Why the recursion does not run for this pair."""
    matrix, groups = pair.matrix, pair.groups
    if matrix.rows != matrix.steps:
        return "its recursion needs a square strategy matrix"
    if groups > 1 and matrix.toeplitz_column is None:
        return "which group is the worst is known for Toeplitz matrices only"
    if matrix.bands > MAX_WINDOW * groups:
        return (
            f"its recursion visits 2^(bands / groups) patterns and takes at most {MAX_WINDOW * groups} bands, "
            f"not {matrix.bands}"
        )
    if participations(pair).largest_exponent(1) > MAX_EXPONENT:
        return (
            f"its recursion needs more noise: rows m of the strategy matrix, summed and divided by it, with "
            f"sum m (m + {FARTHEST_NORMAL:g}) <= {MAX_EXPONENT:g} from each turn to the next"
        )
    return None


def fingerprint(pair: SubsetMixture | CyclicSubsets) -> Sequence[Any]:
    """The rate, the groups and the diagonals of C."""
    column = pair.matrix.toeplitz_column
    entries = band_of(pair.matrix) if column is None else column[: pair.matrix.bands]
    return (pair.sampling_prob, pair.groups, pair.matrix.steps, entries)


def known_upper(pair: SubsetMixture | CyclicSubsets, direction: Direction) -> Profile | None:
    """Add ends where X cannot be small enough."""
    return smallest_ratio_bound(pair) if direction is Direction.ADD else None


FAMILY, CYCLIC_FAMILY = (
    Family(
        pair=kind,
        propose=propose,
        build=build,
        fingerprint=fingerprint,
        known_upper=known_upper,
        refusal=why_not,
    )
    for kind in (SubsetMixture, CyclicSubsets)
)
