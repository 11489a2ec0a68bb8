"""Error rates and rates of success of attackers that are certified by a bound on the privacy profile."""

from dataclasses import replace
from math import log

import numpy as np

from hockeystick.attacks.samples import SampledProfile
from hockeystick.bounds import Bound, Numbers, for_each
from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.law import Array
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.spec import real_number
from hockeystick.types import Direction, Side, as_direction

TOLERANCE = 5e-7
"""How far the supremum over epsilon of a trade-off function may be from its bound, unless said otherwise."""
SMALLEST_PRIOR = 1e-300
ROUNDING = 1e-14
"""More than the rounding of the few operations on numbers from 0 to 1 after a profile was evaluated."""


def expect_bound(bound: object) -> None:
    """Raise InvalidInputError for what is no bound."""
    if not isinstance(bound, Bound):
        raise InvalidInputError(
            f"The 'bound' argument must be a Bound, such as hs.profile(mechanism)[hs.Side.UPPER]. "
            f"Got {shortened(bound)} instead."
        )


@called("hs.attacks.advantage(upper)")
def advantage(bound: Bound) -> float:
    """The largest true positive rate minus false positive rate of any attacker: delta at epsilon 0.

    It is the total-variation distance between the two runs. Errs on the side of the bound.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> round(hs.attacks.advantage(hs.bound(run, "gaussian")), 6)
    0.382925
    """
    expect_bound(bound)
    return bound.delta(0.0)


@called("hs.attacks.bayes_error(upper, prior=0.01)")
def bayes_error(bound: Bound, prior: float | Numbers) -> float | Array:
    """The error of the best attacker who guesses which of the two runs it was; one of them has this prior probability.

    Whichever of the two runs the prior is about, ``min(prior, 1 - prior) * (1 - delta(log odds))`` is the least
    error (Kulynych et al. 2025, Proposition D.1). For an array, an array of its shape.

    Which side it errs on: every attacker errs at least that often for an UPPER bound; for a LOWER bound some attacker
    errs at most that often.

    Raises: InvalidInputError unless the prior is from 1e-300 to below 1.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> round(hs.attacks.bayes_error(hs.bound(run, "gaussian"), 0.5), 6)
    0.308538
    """
    expect_bound(bound)

    def error(prior: float) -> float:
        if not SMALLEST_PRIOR <= prior < 1.0:
            raise InvalidInputError(
                f"The 'prior' field must be from {SMALLEST_PRIOR:g} to below 1. Got {prior!r} instead."
            )
        rarer = min(prior, 1.0 - prior)
        log_odds = max(log(1.0 - rarer) - log(rarer), 0.0)
        return _outwards(rarer * (1.0 - bound.delta(log_odds)), bound.side)

    return for_each(error, "prior", prior)


@called("hs.attacks.type_two_error(upper, alpha=0.05)")
def type_two_error(
    bound: Bound, alpha: float | Numbers, *, direction: Direction | None = None, tolerance: float = TOLERANCE
) -> float | Array:
    """The trade-off function: the least type II error of a test between the two runs with type I error ``alpha``.

    Without a direction it is the symmetric trade-off function of the mechanism in the sense of f-DP, the largest convex
    function below both orders of the two runs (Dong, Roth and Su 2022). With ``Direction.REMOVE`` the type I error is
    the rate of "took part" in runs without the example, so ``1 - type_two_error`` is the true positive rate of a
    membership attack; with ``Direction.ADD`` the runs change places. For an array, an array of its shape.

    Which side it errs on: at most the truth for an UPPER bound, at least for a LOWER one. The supremum over
    epsilon that it takes is over finitely many for the first, and bounded from above on every interval between them
    for the second.

    Args:
        bound: on either side.
        alpha: from 0 to 1.
        direction: of one order of the two runs, or None for the symmetric function.
        tolerance: of the supremum; affects tightness and speed only.

    Raises: InvalidInputError for anything but numbers from 0 to 1, or a tolerance outside of 1e-9 to 0.1.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> round(hs.attacks.type_two_error(hs.bound(run, "gaussian"), 0.05), 4)  # Phi(Phi^-1(0.95) - 1)
    0.7405
    """
    expect_bound(bound)
    _check_tolerance(tolerance)
    steep, flat = _profiles(bound, direction)

    def error(alpha: float) -> float:
        if not 0.0 <= alpha <= 1.0:
            raise InvalidInputError(f"The 'alpha' field must be from 0 to 1. Got {alpha!r} instead.")
        return _error(steep, flat, alpha, bound.side, tolerance)

    return for_each(error, "alpha", alpha)


@called("hs.attacks.true_positive_rate(upper, fpr=0.01)")
def true_positive_rate(bound: Bound, fpr: float | Numbers, *, tolerance: float = TOLERANCE) -> float | Array:
    """The largest true positive rate at this false positive rate, whichever of the two runs is the positive one.

    Which side it errs on: at least that of every attacker for an UPPER bound; some attacker reaches at least as much
    for a LOWER one. ``tolerance`` is that of :func:`type_two_error`. For an array, an array of its shape.

    Raises: InvalidInputError for anything but numbers from 0 to 1.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> hs.attacks.true_positive_rate(hs.bound(run, "gaussian"), [0.1, 0.01, 0.001]).round(4).tolist()
    [0.3891, 0.0924, 0.0183]
    """
    return _largest_success(bound, "fpr", fpr, tolerance)


@called("hs.attacks.reconstruction_success(upper, baseline=0.01)")
def reconstruction_success(bound: Bound, baseline: float | Numbers, *, tolerance: float = TOLERANCE) -> float | Array:
    """The largest chance of an attack on one record that succeeds with chance ``baseline`` without the run.

    ``1 - f(baseline)``: it covers reconstruction, attribute inference and re-identification of a target alike, as
    "the attack succeeds" is a test between the run with the target's record and one that does not depend on it
    (Hayes, Mahloujifar and Balle 2023; Kulynych et al. 2025).

    Args:
        bound: on either side.
        baseline: kappa, from 0 to 1: the largest chance of success, over the attacker's prior, without the run.

    Which side it errs on: no attack does better for an UPPER bound. A LOWER bound says that no such limit, derived from
    this mechanism's trade-off function, can be smaller. For an array, an array of its shape.

    Raises: InvalidInputError for anything but numbers from 0 to 1.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> round(hs.attacks.reconstruction_success(hs.bound(run, "gaussian"), 0.1), 4)  # one of ten records
    0.3891
    """
    return _largest_success(bound, "baseline", baseline, tolerance)


def _largest_success(bound: Bound, name: str, rates: float | Numbers, tolerance: float) -> float | Array:
    expect_bound(bound)
    _check_tolerance(tolerance)
    orders = [_profiles(bound, direction) for direction in Direction]

    def success(rate: float) -> float:
        if not 0.0 <= rate <= 1.0:
            raise InvalidInputError(f"The {name!r} field must be from 0 to 1. Got {rate!r} instead.")
        least = min(_error(steep, flat, rate, bound.side, tolerance) for steep, flat in orders)
        # The bound's own rounding already moved ``least``; the subtraction rounds once more.
        return _outwards(1.0 - least, Side.LOWER if bound.side is Side.UPPER else Side.UPPER)

    return for_each(success, name, rates)


def _check_tolerance(tolerance: float) -> None:
    if not 1e-9 <= real_number("tolerance", tolerance) <= 0.1:
        raise InvalidInputError(f"The 'tolerance' field must be from 1e-9 to 0.1. Got {tolerance!r} instead.")


def _profiles(bound: Bound, direction: Direction | None) -> tuple[SampledProfile, SampledProfile]:
    """The profile for slopes steeper than -1 and the one for flatter slopes, of one order or of both together."""
    if direction is None:
        both = SampledProfile(bound.delta)
        return both, both
    direction = as_direction(direction)
    other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
    return _one_direction(bound, direction), _one_direction(bound, other)


def _one_direction(bound: Bound, direction: Direction) -> SampledProfile:
    """delta as a function of epsilon for one direction, on the side of the bound, its slack included."""
    if direction not in bound.profiles:  # only lower bounds may leave one out
        return SampledProfile(np.zeros_like)
    return SampledProfile(replace(bound, profiles=dict.fromkeys(Direction, bound.profiles[direction])).delta)


def _error(steep: SampledProfile, flat: SampledProfile, alpha: float, side: Side, tolerance: float) -> float:
    """The safe end of ``sup max(1 - delta - e^eps alpha, e^-eps (1 - delta' - alpha), 0)`` over epsilon >= 0."""
    # Beyond its reach the steep objective is 0 (or, for an alpha below e^-700, 1), and the flat one is small.
    steep_reach = min(max(-log(alpha), 1e-3), MAX_EPSILON) if alpha > 0.0 else MAX_EPSILON
    flat_reach = min(max(-log(0.5 * tolerance), 1.0), MAX_EPSILON)
    ends = [
        steep.supremum(
            lambda epsilon, delta: np.maximum(1.0 - delta - np.exp(epsilon) * alpha, 0.0), steep_reach, tolerance
        ),
        flat.supremum(
            lambda epsilon, delta: np.exp(-epsilon) * np.maximum(1.0 - delta - alpha, 0.0), flat_reach, tolerance
        ),
    ]
    end = 0 if side is Side.UPPER else 1
    return _outwards(max(interval[end] for interval in ends), side)


def _outwards(error: float, side: Side) -> float:
    """An error rate moved by the rounding of its last operations: down for an upper bound on the profile."""
    return min(max(error - ROUNDING if side is Side.UPPER else error + ROUNDING, 0.0), 1.0)
