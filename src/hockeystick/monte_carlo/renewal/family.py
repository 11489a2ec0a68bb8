"""Samples of a renewal mixture: b-min-sep subsampling with any strategy matrix, by the backward recursion for X.

Statements and proofs: docs/theory/monte-carlo/renewal.md. Where columns of C that are min_sep apart overlap, the
recursion gives a bound on X instead of X, above it for remove and below it for add: upper bounds on either profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import expm1, sqrt
from typing import Any

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.moments.geometric_mean import active_profile
from hockeystick.monte_carlo.far import family as far
from hockeystick.monte_carlo.far.subjects import why_not as why_not_far
from hockeystick.monte_carlo.proposals import Family, Naive, Proposal
from hockeystick.monte_carlo.renewal import proposals as renewal_proposals
from hockeystick.monte_carlo.renewal.densities import PlainRenewal
from hockeystick.monte_carlo.renewal.kernels import Recursion
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.renewal_mixture import ROOM, RenewalMixture
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveRenewal(Naive, PlainRenewal):
    """Outputs of P itself for remove, of Q itself for add; of pairs that are not :attr:`RenewalMixture.too_large`."""

    @property
    def proved(self) -> bool:
        """Where the entries of C are those of its recursion."""
        return self.pair.too_large is None

    @cached_property
    def log_smallest(self) -> float:
        """At most the logarithm of the least value of X."""
        return self.pair.log_idle - ROOM

    @property
    def cost(self) -> float:
        """Seconds: noise, exponentials and the recursion for each step; a product for each tap."""
        n, p = self.law.half_squares.size, self.law.taps.shape[0]
        products = p * (n - 0.5 * p)
        each = 0.15e-9 if self.law.taps.shape[1] == 1 else 0.5e-9
        return float(14e-9 * n + 3e-9 * n * (self.law.log_weights.size - 1) + each * products)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Both, or the upper one alone where the recursion bounds X."""
        return (Side.UPPER, Side.LOWER) if self.pair.banded else (Side.UPPER,)

    @cached_property
    def loss_error(self) -> float:
        """Grows with the steps and with the largest exponent that a draw can lead to."""
        return _loss_error(self.pair, self.law)

    def weight_bound(self, epsilon: float) -> float:
        """1 for remove; ``(1 - e^epsilon x0)_+`` for add, as X and its lower bound never go below x0.

        X here is what the kernel computes, so x0 is lowered by its error.
        """
        if self.direction is Direction.REMOVE:
            return 1.0
        return max(-expm1(min(epsilon + self.log_smallest - 3.0 * self.loss_error, 0.0)), 0.0)


def _loss_error(pair: RenewalMixture, law: Recursion) -> float:
    """Bound on the rounding of log X: ``exponents`` bounds the sum of the exponents of one participation vector.

    An entry of C counts with its own error, of which the loss sees less than three times; a step of the recursion,
    in logarithms, rounds to the size of its value.
    """
    n = law.half_squares.size
    reach = pair.full_sensitivity / pair.noise_multiplier
    participations = pair.examples_per_user * (-(-n // pair.min_sep))
    exponents = reach * (FARTHEST_NORMAL * sqrt(n) + reach) + 0.5 * reach**2
    exponents += participations * float(law.shifts.max())
    from_products = (3.0 * pair.matrix.rounding + (law.taps.shape[0] + 16) * UNIT_ROUNDOFF) * exponents
    value = exponents + n * -law.log_stay - float(law.log_weights.min()) + 100.0
    from_steps = 8 * (pair.examples_per_user + 1) * n * UNIT_ROUNDOFF * value
    return max(float(from_products + from_steps), 1e-9)


def propose(pair: RenewalMixture, direction: Direction, epsilon: float) -> Sequence[Proposal]:
    """Importance proposals, where they are proved, and the naive one, where it can be drawn."""
    importance = far.propose if why_not_far(pair) is None else renewal_proposals.propose
    naive = [] if pair.too_large is not None else [NaiveRenewal(direction=direction, pair=pair)]
    return (*importance(pair, direction, epsilon), *naive)


def quick(pair: RenewalMixture, direction: Direction, epsilon: float) -> Proposal | None:
    """The first proposal where the columns of one example overlap, and one with the smallest table elsewhere."""
    first = far.first_proposal if why_not_far(pair) is None else renewal_proposals.quick
    return first(pair, direction, epsilon)


def fingerprint(pair: RenewalMixture) -> Sequence[Any]:
    """The columns of C and the law of the participations."""
    matrix, column = pair.matrix, pair.matrix.toeplitz_column
    entries: Any = column
    if matrix.rows != matrix.steps:
        entries = np.frombuffer(bytes.fromhex(matrix.digest), dtype=np.uint8)
    elif column is None:
        entries = pair.columns
    return (
        matrix.steps,
        matrix.bands,
        entries,
        pair.min_sep,
        pair.participation_prob,
        pair.warm_start,
        pair.examples_per_user,
    )


def known_upper(pair: RenewalMixture, direction: Direction) -> Profile | None:
    """Jensen's bound for add, over the participations of an example that takes part."""
    return active_profile(*pair.active_moments, pair.log_idle) if direction is Direction.ADD else None


def refusal(pair: RenewalMixture, side: Side) -> str | None:
    """Why the recursion does not run, or does not bound this side."""
    if side is Side.LOWER and pair.why_not_from_below is not None:
        return pair.why_not_from_below
    if why_not_far(pair) is None:
        return None
    if pair.too_large is not None:
        return pair.too_large
    if side is Side.LOWER and not pair.banded:
        return "its recursion bounds the profile only from above where the strategy matrix has more bands than min_sep"
    return None


FAMILY = Family(
    pair=RenewalMixture,
    kinds=(NaiveRenewal, *renewal_proposals.KINDS, *far.KINDS),
    propose=propose,
    quick=quick,
    fingerprint=fingerprint,
    known_upper=known_upper,
    refusal=refusal,
)
