"""Upper bounds from outputs of several independent histories at once (docs/theory/monte-carlo/tuples.md).

Where epsilon is small a small M takes the counts of many histories, more than a chain follows that knows who waits.
Here the histories are drawn as they are, and M rests on a bound on what their participations have in common.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import log, log1p
from typing import ClassVar

import numpy as np

from hockeystick.moments.tuple_moments import POWERS, log_moment, log_tail
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.draws import Tupled
from hockeystick.monte_carlo.far.limits import WORTH, Limits, limits, tail_beside
from hockeystick.monte_carlo.far.proposals import Above
from hockeystick.monte_carlo.memo import remembered
from hockeystick.monte_carlo.proposals import rounded
from hockeystick.monte_carlo.weighing import TILTED_SHARE, log_largest
from hockeystick.monte_carlo.weight_bounds import bounded_exp, log_factor
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF

ORDERS = (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
MISSING = 1 / 8
"""The largest part of the density that tuples above the cap may have for outputs whose ratio is sampled."""
CAPS = tuple(rounded(float(cap)) for cap in np.geomspace(0.1, 64.0, 201))
LEAST_CHANCE = 1e-6
"""Of a participation: below, the waits that are drawn are too coarse, as random numbers are multiples of 2^-53."""
ALONE = 16
"""From so many histories on no chain is looked for beside them: its tables are too large for as many."""
SECONDS_PER_PARTICIPATION, SECONDS_PER_ADDED_ENTRY = 3e-8, 3e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuples(Above):
    """Outputs of several histories at once.

    Attributes:
        cap: tuples that have s in common are kept with the chance ``min(1, e^(s - cap))``; one of CAPS.
    """

    name: ClassVar[str] = "far_tuples"
    chosen: ClassVar[tuple[str, ...]] = ("order", "cap", "rate", "block", "limit")
    cap: float

    @property
    def proved(self) -> bool:
        return super().proved and _served(self.own) and self.order in ORDERS and self.cap in CAPS

    @property
    def cost(self) -> float:
        """The columns of the participations; most tuples are not kept."""
        participations = self.order * self.own.law.prob * self.own.steps
        added = 0.5 * float(self.own.couplings.shape[1]) * SECONDS_PER_ADDED_ENTRY
        filtered = super().cost * (1.0 - TILTED_SHARE)
        return float(filtered + participations * (SECONDS_PER_PARTICIPATION + added))

    @property
    def loss_error(self) -> float:
        """That of the products and filters, and of what participations of histories from A have in common."""
        own = self.own
        participations = self.order * self.limit * (own.steps // self.block + 1.0)
        common = 2.0 * self.cap + participations * float(own.couplings[:, 0].max())
        entries = 8.0 * UNIT_ROUNDOFF * (participations + own.steps) * (common + 1.0)
        entries += 2.0 * UNIT_ROUNDOFF * participations / own.law.prob  # waits are drawn from multiples of 2^-53
        return float(max(1e-9, own.rounding(self.order + 1.0, self.order + 1.0) + entries))

    @property
    def log_norm(self) -> float:
        return log_norm(self.cap)

    @property
    def left_out(self) -> float:
        return super().left_out + bounded_exp(log_missed(self.own, self.order, self.cap))

    @property
    def source(self) -> Tupled:
        return Tupled(self.order, self.cap, np.empty(self.own.steps))


def log_norm(cap: float) -> float:
    """log Z: tuples above the cap may have a part MISSING of the density."""
    return cap - log1p(-MISSING)


def log_missed(own: Columns, order: int, cap: float) -> float:
    """At least the log of what outputs whose density misses more than MISSING add to any profile."""
    return log_factor(order - 1.0) + log_tail(_log_moments(own, order), cap) - log(MISSING)


@remembered
def _log_moments(own: Columns, order: int) -> list[float]:
    """Of what tuples of so many histories have in common."""
    return [log_moment(own.couplings, own.law.prob, order, power) for power in POWERS]


def _served(own: Columns) -> bool:
    return own.law.coins == 1 and not own.law.bins and own.law.prob >= LEAST_CHANCE


def best_tuples(own: Columns, epsilon: float) -> tuple[int, float, Limits] | None:
    """Order, cap and limits with the smallest M; what is left out is a small part of it. None without any."""
    tried: list[tuple[float, int, float]] = []
    for order in ORDERS if _served(own) else ():
        cap = _smallest_cap(own, order, epsilon)
        if cap is None or (tried and log_largest(order, log_norm(cap), epsilon) > tried[-1][0] + 1.0):
            break
        tried.append((log_largest(order, log_norm(cap), epsilon), order, cap))
    if not tried:
        return None
    least, order, cap = min(tried)
    return order, cap, limits(own, tail_beside(bounded_exp(least)))


def _smallest_cap(own: Columns, order: int, epsilon: float) -> float | None:
    """By bisection: what is missed falls with the cap, and M grows."""

    def enough(cap: float) -> bool:
        return log_missed(own, order, cap) <= log(WORTH) + log_largest(order, log_norm(cap), epsilon)

    return CAPS[bisect_left(CAPS, True, key=enough)] if enough(CAPS[-1]) else None
