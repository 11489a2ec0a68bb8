"""A mechanism's privacy as curves: delta by epsilon, errors of tests, and the numbers that sum them up."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hockeystick.attacks import summary, type_two_error
from hockeystick.bounds import Bound, Question
from hockeystick.certification.profiles import SMALLEST_DELTA, profile
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import Array
from hockeystick.mechanism import Mechanism
from hockeystick.types import Side

POINTS = 61
TOLERANCE, POINT_TOLERANCE = 1e-5, 5e-5
"""Tolerances of the true positive rates among the numbers, and of the points of a trade-off curve."""
FARTHEST = 100.0
"""No curve goes on beyond this epsilon."""


@dataclass(frozen=True)
class Sandwich:
    """A function between two bounds: ``lower <= truth at x <= upper``, arrays of one shape."""

    x: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Curve:
    """The two-sided privacy of one mechanism.

    Attributes:
        mechanism: with its noise multiplier.
        bounds: on the whole profile, by side.
        profile: delta by epsilon.
        trade_off: type II error by type I error, of the symmetric trade-off function.
        numbers: what sums the curve up, by name: (at least, at most). An infinite end says that nothing is known.
    """

    mechanism: Mechanism
    bounds: dict[Side, Bound]
    profile: Sandwich
    trade_off: Sandwich
    numbers: dict[str, tuple[float, float]]

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is infinite is None."""
        return {
            "noise_multiplier": self.mechanism.sigma,
            "methods": {side.value: bound.method for side, bound in self.bounds.items()},
            "numbers": {
                name: {"lower": lower, "upper": upper if upper < float("inf") else None}
                for name, (lower, upper) in self.numbers.items()
            },
            "profile": _columns("epsilon", "delta", self.profile),
            "trade_off": _columns("type_one_error", "type_two_error", self.trade_off),
        }


def curve(
    mechanism: Mechanism,
    *,
    delta: float = 1e-5,
    points: int = POINTS,
    budget: float | None = None,
    deadline: Deadline | None = None,
) -> Curve:
    """The two-sided curves of a mechanism, from epsilon 0 to where delta falls below the one given.

    Every value errs on its side: the bounds are those of :func:`hockeystick.profile`, and the rest is computed from
    the two as :mod:`hockeystick.attacks` says.

    Args:
        mechanism: with its noise multiplier.
        delta: of the epsilon among the numbers; it also sets the range of epsilons.
        points: of each of the two curves, from 2 to 10,000.
        budget, deadline: as for :func:`hockeystick.profile`.

    Raises: InvalidInputError for a delta that is no number from 1e-30 to below 1 or another number of points, and what
        :func:`hockeystick.profile` raises.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> [round(end, 6) for end in curve(run, points=3).numbers["mu"]]
    [0.5, 0.5]
    """
    delta = Question(delta=delta).delta or delta
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= 10_000:
        raise InvalidInputError(f"The 'points' field must be a whole number from 2 to 10000. Got {points!r} instead.")
    smallest = min(delta, SMALLEST_DELTA)
    bounds = profile(mechanism, smallest_delta=smallest, budget=budget, deadline=deadline)
    upper, lower = bounds[Side.UPPER], bounds[Side.LOWER]
    epsilons = _printable(np.linspace(0.0, min(max(1.25 * upper.epsilon(delta), 1e-3), FARTHEST), points))
    alphas = _printable(np.linspace(0.0, 1.0, points) ** 3)  # denser near 0, where attackers are
    return Curve(
        mechanism=mechanism,
        bounds=bounds,
        profile=Sandwich(epsilons, lower.delta(epsilons), upper.delta(epsilons)),
        trade_off=Sandwich(
            alphas,
            np.asarray(type_two_error(upper, alphas, tolerance=POINT_TOLERANCE)),
            np.asarray(type_two_error(lower, alphas, tolerance=POINT_TOLERANCE)),
        ),
        numbers={
            "epsilon": (lower.epsilon(delta), upper.epsilon(delta)),
            **summary(upper, lower, tolerance=TOLERANCE),
        },
    )


def _printable(places: Array) -> Array:
    """About the same places, which six digits say exactly."""
    return np.array([float(f"{place:.6g}") for place in places.tolist()])


def _columns(x: str, y: str, sandwich: Sandwich) -> dict[str, list[float]]:
    return {
        x: sandwich.x.tolist(),
        f"{y}_lower": sandwich.lower.tolist(),
        f"{y}_upper": sandwich.upper.tolist(),
    }
