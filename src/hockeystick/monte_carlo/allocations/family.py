"""Proposals for random allocation with independent noise (docs/theory/monte-carlo/allocations.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import ClassVar

import numpy as np

from hockeystick.moments.copies.allocations import Joined, copies_of
from hockeystick.monte_carlo.allocations.kernels import draw_copies, draw_outputs
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.moved import Moved, best_beta
from hockeystick.monte_carlo.proposals import Family, Naive, Plain, Proposal
from hockeystick.monte_carlo.weighing import weigh
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL, largest_of_power
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

ORDERS = range(2, 65)
TILTED_SHARE = 0.9
"""Of outputs of copies; the others are outputs of P."""
MORE_COPIES = (1.15, 1.3)
"""Factors of the order with the smallest M, which is flat there: more copies have less variance."""
MAX_EXPONENT = 600.0
"""Weights of copies at a step, and odds of a visit, stay below e to this, within the range of doubles."""
LEAST_JOINED, MOST_JOINED = 1e-7, 1.0 - 1e-7
"""Of the chance that copies are joined at a step; and the most that any chance to join more of them may be."""
SECONDS_PER_STEP, SECONDS_PER_MASS = 4e-8, 1e-9
MOST_SECONDS = 5e-3
"""Of a sample: pilots draw hundreds, whatever they cost."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AllocationProposal(Plain):
    """What the proposals share.

    Attributes:
        pair: k of t visits in each of E epochs; not refused by :func:`why_not`.
    """

    pair: AveragedSteps

    @property
    def proved(self) -> bool:
        """Whether odds stay in the range of doubles."""
        return self._reach <= MAX_EXPONENT

    @property
    def cost(self) -> float:
        """A table of counts of visits, and some exponentials, for each step."""
        steps = self.pair.bins * self.pair.epochs
        return steps * (SECONDS_PER_STEP + SECONDS_PER_MASS * self.pair.participations)

    @property
    def farthest(self) -> float:
        """The most that an output is moved."""
        return 1.0

    @property
    def _reach(self) -> float:
        """Bound of the logs of odds."""
        pair, sigma = self.pair, self.pair.visit_noise
        middle = abs(log(pair.participations / (pair.bins - pair.participations)))
        return 2.0 * (FARTHEST_NORMAL / sigma + (self.farthest + 0.5) / sigma**2) + middle

    def rounding(self, power: float) -> float:
        """First-order bound on the error of ``power log X`` (allocations.md, Rounding)."""
        pair, reach = self.pair, self._reach
        steps, visits = float(pair.bins), float(pair.participations)
        logs = steps * (reach + 1.0)
        ways = visits * log(steps)
        own = visits * (6.0 * reach + 4.0) + 4.0 * steps + 10.0 * logs + 6.0 * visits * reach + (visits + 8.0) * ways
        return 2.0 * UNIT_ROUNDOFF * power * pair.epochs * (own + 4096.0 + pair.epochs * visits * reach)

    @property
    def places_error(self) -> float:
        """Of the chances of the steps of one copy: each is one of ``bins`` multiples of ``2^-53``."""
        pair = self.pair
        return 4.0 * UNIT_ROUNDOFF * pair.participations * pair.epochs * pair.bins

    @property
    def loss_error(self) -> float:
        return float(max(1e-9, self.rounding(2.0) + self.places_error))

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        """Every output of Q is moved by ``-beta k / t``."""
        rate, drawn = self.pair.participations / self.pair.bins, np.empty((samples, 2))
        draw_outputs(rng, sizes_of(self.pair), self.pair.visit_noise, beta is None, -(beta or 0.0) * rate, drawn)
        drawn[:, 1] *= rate
        return drawn


def sizes_of(pair: AveragedSteps) -> tuple[int, int, int]:
    """Steps of an epoch, visits of an epoch, epochs."""
    return pair.bins, pair.participations, pair.epochs


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveAllocation(Naive, AllocationProposal):
    """The pair itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CopiedAllocation(AllocationProposal):
    """Remove: outputs of ``order`` copies with the density ``X^order / Z``, or of P with the rest of the chance.

    Some samples of the first kind are given up and have no value, as Z is larger than the mean of ``X^order``.

    Attributes:
        order: a, one of ORDERS.
    """

    name: ClassVar[str] = "copies"
    chosen: ClassVar[tuple[str, ...]] = ("order",)
    directions: ClassVar[tuple[Direction, ...]] = (Direction.REMOVE,)
    order: int

    @property
    def farthest(self) -> float:
        return float(self.order)

    @property
    def proved(self) -> bool:
        return self.order in ORDERS and super().proved and self._copies is not None

    @property
    def _copies(self) -> Joined | None:
        return joinable(self.pair, self.order)

    @property
    def log_norm(self) -> float:
        """log Z: ``bins epochs log zeta``; infinite where there is none."""
        copies = self._copies
        return inf if copies is None else self.pair.bins * self.pair.epochs * copies.log_zeta

    @property
    def loss_error(self) -> float:
        """That of log X, of Z, and of the chances with which copies are drawn."""
        pair, copies = self.pair, self._copies
        assert copies is not None  # else nothing is proved
        order, steps = float(self.order), float(pair.bins * pair.epochs)
        comparisons = 2.0 * order * pair.participations * pair.epochs
        least = 1.0 - float(copies.more.max())  # of not joining more
        drawn = comparisons * (2.0**-33 + UNIT_ROUNDOFF / least) + order * self.places_error
        exponent = 0.5 * order * (order - 1.0) / pair.visit_noise**2
        tables = steps * UNIT_ROUNDOFF * (8.0 * order**2 + 5.0 * exponent + 2.0 / (1.0 - copies.more[0]))
        return float(max(1e-9, self.rounding(order + 1.0) + drawn + tables))

    def weight_bound(self, epsilon: float) -> float:
        """``(Z / share) e^(-(a-1) epsilon) (a-1)^(a-1) / a^a``, or a little less: the outputs of P lower it."""
        log_norm = self.log_norm
        if log_norm == inf:
            return inf
        return largest_of_power(epsilon, self.order - 1.0, log_norm, TILTED_SHARE)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        pair, copies = self.pair, self._copies
        assert copies is not None  # else nothing is proved
        visits = np.arange(pair.participations, dtype=np.float64)
        ratios = (pair.participations - visits) / (pair.bins - visits) * (pair.bins / pair.participations)
        kept = np.ones(pair.participations + 1)
        np.cumprod(ratios, out=kept[1:])
        draw_copies(rng, sizes_of(pair), pair.visit_noise, self.order, copies.more, kept, TILTED_SHARE, losses)
        densities = (TILTED_SHARE, self.order * losses - self.log_norm), (1.0 - TILTED_SHARE, losses)
        weigh(losses, densities, log_weights, losses)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanAllocation(Moved, AllocationProposal):
    """Add."""

    name: ClassVar[str] = "mean"

    @property
    def farthest(self) -> float:
        return max(1.0, self.beta * self.pair.participations / self.pair.bins)

    @property
    def loss_error(self) -> float:
        """That of log X, and of the sum of outputs, which are added one by one."""
        pair = self.pair
        added = self.beta * pair.participations * pair.bins * pair.epochs**2 * self._reach * UNIT_ROUNDOFF
        return float(max(1e-9, self.rounding(2.0 + self.beta) + added))

    @property
    def moments(self) -> tuple[float, float]:
        return moments_of(self.pair)


def moments_of(pair: AveragedSteps) -> tuple[float, float]:
    """``g = |E x|^2 / sigma^2`` and ``A = E |x|^2 / sigma^2``, x the visits."""
    visits, variance = float(pair.participations * pair.epochs), pair.visit_noise**2
    return visits * pair.participations / pair.bins / variance, visits / variance


def joinable(pair: AveragedSteps, order: int) -> Joined | None:
    """The copies; None where weights leave the range of doubles, or random numbers are too coarse for the chances."""
    if order * (order - 1.0) / (2.0 * pair.visit_noise**2) > MAX_EXPONENT:
        return None
    copies = copies_of(order, pair.participations / pair.bins, pair.visit_noise)
    return copies if copies.more[0] >= LEAST_JOINED and float(copies.more.max()) <= MOST_JOINED else None


def propose(pair: AveragedSteps, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Those with the smallest M and a little beyond, and the naive one."""
    naive = NaiveAllocation(direction=direction, pair=pair)
    tilted: Sequence[Proposal]
    if direction is Direction.REMOVE:
        each = [CopiedAllocation(direction=direction, pair=pair, order=order) for order in ORDERS]
        proved = {proposal.order: proposal for proposal in each if proposal.proved}
        if not proved:
            return (naive,)
        best = min(proved, key=lambda order: proved[order].weight_bound(epsilon))
        wanted = [best, *(max(best + 1 + place, round(more * best)) for place, more in enumerate(MORE_COPIES))]
        tilted = [proved[order] for order in wanted if order in proved]
    else:
        beta = best_beta(moments_of(pair), epsilon)
        tilted = [MeanAllocation(direction=direction, pair=pair, beta=beta)]
    return (*(each for each in tilted if each.proved and each.weight_bound(epsilon) < 1.0), naive)


def why_not(pair: AveragedSteps, side: Side) -> str | None:
    """Why the pair cannot be sampled."""
    if pair.batches_are_public:
        return "the example is in every batch: nothing is random"
    naive = NaiveAllocation(direction=Direction.REMOVE, pair=pair)
    if naive.cost > MOST_SECONDS:
        return "a sample takes too long for so many steps and participations"
    if not naive.proved:
        return (
            f"its odds need more noise: 2 ({FARTHEST_NORMAL:g} / s + 1.5 / s^2) + |log(k / (t - k))| <= "
            f"{MAX_EXPONENT:g}, s the noise multiplier of a visit"
        )
    return None


FAMILY = Family(
    pair=AveragedSteps,
    kinds=(NaiveAllocation, CopiedAllocation, MeanAllocation),
    propose=propose,
    fingerprint=lambda pair: (pair.bins, pair.participations, pair.epochs, pair.replays),
    refusal=why_not,
)
