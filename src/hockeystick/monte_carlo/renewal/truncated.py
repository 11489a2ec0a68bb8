"""Proposals for truncated b-min-sep subsampling (docs/theory/monte-carlo/truncated.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, log
from typing import Any, ClassVar

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Family, Naive, Proposal
from hockeystick.monte_carlo.renewal import family as renewal
from hockeystick.monte_carlo.renewal.densities import recursion
from hockeystick.monte_carlo.renewal.truncated_kernels import Truncation, draw_truncated
from hockeystick.monte_carlo.weighing import OTHER_SHARE, stand_for_others
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.truncated_renewal import TruncatedRenewal, cuts
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

LARGEST_SHIFT = 2.0
"""Of a survivor in a truncated batch, in columns."""
SECONDS_PER_STEP = 2e-7
SECONDS_PER_ENTRY = 2e-9
RARE = 1e-5
"""Cuts may change so much of the largest weight without a cap, and so much in all where the naive one does not run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveTruncated(Naive):
    """Counts of the others and an output of the direction's own first distribution, without a weight.

    Neither distribution is a single Gaussian, so the proposals of plain b-min-sep have no proved largest value here.

    Attributes:
        pair: the pair; not refused by :func:`why_not`.
    """

    pair: TruncatedRenewal

    @property
    def proved(self) -> bool:
        """Where its recursion applies."""
        return _why_not_naive(self.pair) is None

    @property
    def cost(self) -> float:
        """A binomial, and two recursions, for each step."""
        steps, bands = self.pair.columns.shape
        return float((steps + self.pair.min_sep) * SECONDS_PER_STEP + steps * bands * SECONDS_PER_ENTRY)

    @property
    def loss_error(self) -> float:
        """First-order bound: 8 roundings of a logarithm at each step, and the exponents of the participations.

        A logarithm is at most the sum of the exponents of ``ceil(n / b)`` participations, an exponent at most
        ``2 |c|_1 (2 |c|_max + z)`` for a column c in units of sigma and a normal of at most z.
        """
        scaled = self.pair.without_cuts.columns / self.pair.noise_multiplier
        steps, bands = scaled.shape
        reach = LARGEST_SHIFT * float(scaled.max()) + FARTHEST_NORMAL
        exponent = LARGEST_SHIFT * float(scaled.sum(axis=1).max()) * reach
        participations = -(-steps // self.pair.min_sep)
        logarithm = participations * exponent + steps * abs(np.log1p(-min(self.pair.participation_prob, 0.5)))
        roundings = 8.0 * steps * (1.0 + logarithm) + 2.0 * (bands + 4.0) * participations * exponent
        return float(max(1e-9, 2.0 * UNIT_ROUNDOFF * roundings))

    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        """Of P, or of Q where it is; no sum of outputs, as nothing is moved."""
        pair, drawn = self.pair, np.zeros((samples, 2))
        law = recursion(pair.without_cuts, self.direction)
        others = pair.num_examples - 1
        cuts_of = Truncation(law, pair.participation_prob, pair.warm_start, pair.truncated_batch_size, others)
        draw_truncated(rng, cuts_of, beta is None, drawn[:, 0])
        return drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class Covered(Proposal):
    """A proposal that bounds the run without a cap from above, and samples that stand for what cuts can change.

    Attributes:
        pair: the run with the cap.
        inner: the proposal, for the pair's :attr:`~.TruncatedRenewal.without_cuts`; it has an upper side.
    """

    name: ClassVar[str] = "covered"
    pair: TruncatedRenewal
    inner: Proposal

    @property
    def evidence_name(self) -> str:
        return self.inner.evidence_name

    @property
    def parameters(self) -> dict[str, float]:
        return self.inner.parameters

    @property
    def whole(self) -> frozenset[str]:
        return self.inner.whole

    @property
    def proved(self) -> bool:
        """Not for lower bounds, whose means may be below the profile."""
        return Side.UPPER in self.inner.sides and self.inner.proved and isfinite(self.added)

    @property
    def cost(self) -> float:
        return self.inner.cost

    @property
    def sides(self) -> tuple[Side, ...]:
        """Cuts are added."""
        return (Side.UPPER,)

    @property
    def loss_error(self) -> float:
        """That of the proposal, and of a logarithm that is taken off its weights, which are at least e^-700."""
        return self.inner.loss_error + 1e-12

    @property
    def added(self) -> float:
        """What is added to the profile of the run without a cap."""
        return _added(self.pair)[self.direction]

    def weight_bound(self, epsilon: float) -> float:
        """The larger of the two kinds of samples."""
        rest = 1.001 * self.added / OTHER_SHARE
        return max(self.inner.weight_bound(epsilon) / (1.0 - OTHER_SHARE) * (1.0 + 8.0 * UNIT_ROUNDOFF), rest)

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        rest = rng.random(losses.size) < OTHER_SHARE
        self.inner.draw(rng, log_weights, losses)
        stand_for_others(rest, log(self.added) - log(OTHER_SHARE), log_weights, losses)


def _added(pair: TruncatedRenewal) -> Mapping[Direction, float]:
    """What cuts add at most to each direction of the profile, at every epsilon."""
    chance, expected = _cuts(pair)
    return {Direction.REMOVE: 2.0 * chance, Direction.ADD: chance + expected}


_cuts = lru_cache(maxsize=4)(cuts)


def _covered(pair: TruncatedRenewal, direction: Direction, epsilon: float) -> Sequence[Covered]:
    """Importance proposals of the run without a cap; its naive one has no smaller M than that of the run with it."""
    inner = renewal.propose(pair.without_cuts, direction, epsilon)
    kept = (proposal for proposal in inner if Side.UPPER in proposal.sides and not isinstance(proposal, Naive))
    return [Covered(direction=direction, pair=pair, inner=proposal) for proposal in kept]


def propose(pair: TruncatedRenewal, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Those of the run without a cap where cuts are rare beside what they resolve, and the naive one where it runs.

    Raises: UnsupportedError where there is none of them.
    """
    covered = [proposal for proposal in _covered(pair, direction, epsilon) if proposal.proved]
    if _why_not_naive(pair) is not None:
        if not covered:
            raise UnsupportedError("No samples of the run without a cap bound it from above at this noise.")
        return covered
    rare = [proposal for proposal in covered if proposal.added <= RARE * proposal.inner.weight_bound(epsilon) < RARE]
    return (*rare, NaiveTruncated(direction=direction, pair=pair))


def make(pair: TruncatedRenewal, kind: type[Proposal], **values: Any) -> Proposal:
    """A proposal of a kind, from its parameters."""
    if kind is NaiveTruncated:
        return NaiveTruncated(pair=pair, **values)
    inner = renewal.FAMILY.make(pair.without_cuts, kind, **values)
    return Covered(direction=inner.direction, pair=pair, inner=inner)


def _known_upper(pair: TruncatedRenewal, direction: Direction) -> Profile | None:
    """That of the run without a cap, and what cuts add."""
    inner, added = renewal.known_upper(pair.without_cuts, direction), _added(pair)[direction]
    return None if inner is None else lambda epsilon: min(inner(epsilon) + added, 1.0)


def _why_not_naive(pair: TruncatedRenewal) -> str | None:
    if pair.matrix.rows != pair.matrix.steps:
        return "its recursion needs a square strategy matrix"
    if pair.matrix.bands > pair.min_sep:
        return f"it needs a strategy with at most min_sep = {pair.min_sep} bands, not {pair.matrix.bands}"
    return None


def why_not(pair: TruncatedRenewal, side: Side) -> str | None:
    """Why the pair cannot be sampled for this side."""
    if side is Side.LOWER:
        return "the pair of truncated batches bounds the mechanism from above only"
    reason = _why_not_naive(pair)
    if reason is None:
        return None
    if not max(_added(pair).values()) <= RARE:
        return f"{reason}, or batches that are hardly ever cut"
    return renewal.refusal(pair.without_cuts, side)


FAMILY = Family(
    pair=TruncatedRenewal,
    kinds=(NaiveTruncated, *(kind for kind in renewal.FAMILY.kinds if not issubclass(kind, Naive))),
    propose=propose,
    fingerprint=lambda pair: (
        pair.truncated_batch_size,
        pair.num_examples,
        *renewal.fingerprint(pair.without_cuts),
    ),
    known_upper=_known_upper,
    refusal=why_not,
    make=make,
)
