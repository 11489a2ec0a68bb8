"""Confidence bounds on the mean of bounded samples, each with a proved failure probability.

Proofs: docs/theory/monte-carlo/confidence.md. Every bound errs to its safe side in floating point too: statistics
that were added up in double precision, in any order, from N terms of one sign are off by at most N roundings
relatively, and every function moves what it is given by that much (:func:`_drift`) before it does anything else.
"""

from collections.abc import Iterable
from math import ceil, exp, expm1, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.arrays import Array
from hockeystick.types import Side

LARGEST_BET = 0.9
"""theta M of an upper bound stays below this: log(1 - theta Y) then loses at most four roundings to the product."""
_UNIT = 2.0**-52
_ROUNDED = 1.0 + 64 * _UNIT
"""More than the closed forms lose, each a handful of operations that are accurate to a rounding or two."""
_DECADES = 15
"""A bet is sought among fractions from the largest one down to this many decades below it."""
_ATOMS = 256
"""Weighted atoms that stand for a pilot when a fraction is chosen."""
_STAGE = 33
"""Fractions that are tried in each of two stages; the answer is within 7 percent, and the optimum is flat."""
BET_STEP = _DECADES * log(10.0) / (_STAGE - 1) / ((_STAGE - 1) // 2)
"""Fractions are LARGEST_BET / M times a power of e to this: a bet that lies elsewhere was not chosen by a pilot."""


def betting_upper(samples: int, logs: float, theta: float, failure: float) -> float:
    """Upper bound on E Y from ``logs = sum log(1 - theta Y)``; it may be read at any stopping time.

    theta has to be chosen without these samples, with ``theta M <= LARGEST_BET`` for ``0 <= Y <= M``. Never more than
    about 1 / theta. (Waudby-Smith and Ramdas 2024, section 4; here with one fraction and in closed form.)

    Raises: InvalidInputError for arguments outside of their ranges, NaN included.
    """
    _check(samples, failure)
    _check_bet(theta, logs <= 0.0, "at most 0", logs)
    moved = logs * (1.0 + _drift(samples))
    return -expm1(_ROUNDED * (moved + log(failure)) / samples) / theta * _ROUNDED


def betting_lower(samples: int, logs: float, theta: float, failure: float) -> float:
    """Lower bound on E Y, at least 0, from ``logs = sum log(1 + theta Y)``; it may be read at any stopping time.

    theta > 0 has to be chosen without these samples; Y >= 0 needs no upper bound.

    Raises: InvalidInputError for arguments outside of their ranges, NaN included.
    """
    _check(samples, failure)
    _check_bet(theta, 0.0 <= logs < inf, "at least 0 and finite", logs)
    gain = logs * (1.0 - _drift(samples)) / _ROUNDED + log(failure) * _ROUNDED
    return max(expm1(gain / samples) / theta / _ROUNDED, 0.0) if gain > 0.0 else 0.0


def bet_from_pilot(side: Side, values: ArrayLike, largest: float, samples: int, failure: float) -> float:
    """The fraction theta that would have been best had the run had the law of a pilot, which is then thrown away.

    For an upper bound the law gets one atom more, with the weight of one sample, half-way (in logarithms) from the
    largest value of the pilot to M: what the pilot was too short to see costs the run little then.

    Args:
        side: of the bound.
        values: Y of all samples of the pilot, zeros included; NaN counts as M (upper) or 0 (lower).
        largest: M > 0.
        samples: planned for the whole run.
        failure: of the bound.
    """
    _check(samples, failure)
    pilot = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=largest if side is Side.UPPER else 0.0)
    pilot = np.minimum(pilot, largest)
    highest = float(pilot.max(initial=0.0))
    unseen = sqrt(highest) * sqrt(largest) if highest > 0.0 else largest  # the product may be below the doubles
    positive = pilot[pilot > 0.0]
    if side is Side.UPPER or positive.size == 0:  # there is nothing to bet on without a positive value
        positive = np.append(positive, unseen)
    atoms, weights = _merged(positive, 1.0 / (pilot.size + 1))
    return _best_fraction(side, atoms, weights, largest, samples, failure)


def samples_needed(relative_variance: float, largest_over_mean: float, width: float, failure: float) -> int:
    """How many samples a bound within ``width`` of the mean, relatively, is expected to take.

    ``E Y^2 / (E Y)^2 - 1``, ``M / E Y`` and the width decide: the smallest N with
    ``sqrt(2 l (1 + relative_variance) / N) + l largest_over_mean / N <= width``, ``l = log(1/failure)``. Two-sided
    bounds with a ratio of 1 + w take about width = w / 2. A plan, not a claim.
    """
    if not (relative_variance >= 0.0 and largest_over_mean >= 1.0 and width > 0.0):
        raise InvalidInputError(
            "The relative variance must be at least 0, M over the mean at least 1 and the width above 0. "
            f"Got {relative_variance!r}, {largest_over_mean!r} and {width!r} instead."
        )
    _check(1, failure)
    nats = -log(failure)
    root, flat = sqrt(2.0 * nats * (1.0 + relative_variance)), nats * largest_over_mean
    return max(ceil(((root + sqrt(root * root + 4.0 * flat * width)) / (2.0 * width)) ** 2), 1)


def _merged(values: Array, weight: float) -> tuple[Array, Array]:
    """Positive values of equal weight as few weighted atoms: neighbours are replaced by their mean.

    Atoms of about equal width in logarithms keep the few large values, which matter, apart. Any law will do for a bet.
    """
    if values.size <= _ATOMS:
        return values, np.full(values.size, weight)
    logs = np.log(values)
    cells = ((logs - logs.min()) * ((_ATOMS - 1) / max(float(np.ptp(logs)), 1e-300))).astype(np.int64)
    counts, sums = np.bincount(cells, minlength=_ATOMS), np.bincount(cells, values, minlength=_ATOMS)
    filled = counts > 0
    means: Array = sums[filled] / counts[filled]
    return means, counts[filled].astype(np.float64) * weight


def _best_fraction(side: Side, atoms: Array, weights: Array, largest: float, samples: int, failure: float) -> float:
    """The fraction that makes the bound of a run tightest whose average log is the expected one of this law."""
    nats = -log(failure) / samples
    sign = -1.0 if side is Side.UPPER else 1.0

    def excess(theta: float) -> float:  # falls, then rises in theta, whatever the law (proved with the bounds)
        return -expm1(float(weights @ np.log1p(sign * theta * atoms)) - nats) / theta

    limit, half = log(LARGEST_BET / largest), (_STAGE - 1) // 2
    # A lower bound's bet is not limited by M; far above 1 / E Y there is nothing to gain.
    top = 0 if side is Side.UPPER else int((log(1e3 / float(weights @ atoms)) - limit) / BET_STEP)

    def best(places: Iterable[int]) -> int:
        return min(places, key=lambda place: excess(exp(limit + place * BET_STEP)))

    centre = best(range(top, top - half * _STAGE, -half))
    return exp(limit + best(min(centre + place, top) for place in range(-half, half + 1)) * BET_STEP)


def off_grid(theta: float, largest: float) -> float:
    """How far a fraction is from the nearest one that :func:`bet_from_pilot` can give, in steps."""
    place = log(theta * largest / LARGEST_BET) / BET_STEP
    return abs(place - round(place))


def _drift(samples: int) -> float:
    """Relative rounding of a sum of ``samples`` terms of one sign, each within 16 roundings."""
    return (samples + 16) * _UNIT


def _check(samples: int, failure: float) -> None:
    if not samples >= 1:
        raise InvalidInputError(f"The 'samples' argument must be at least 1. Got {samples!r} instead.")
    if not 0.0 < failure < 1.0:
        raise InvalidInputError(f"The 'failure' argument must be between 0 and 1. Got {failure!r} instead.")


def _check_bet(theta: float, possible: bool, allowed: str, logs: float) -> None:
    if not 0.0 < theta < inf:
        raise InvalidInputError(f"The 'theta' argument must be above 0 and finite. Got {theta!r} instead.")
    if not possible:
        raise InvalidInputError(f"The 'logs' argument must be {allowed}. Got {logs!r} instead.")
