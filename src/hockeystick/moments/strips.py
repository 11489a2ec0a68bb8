"""Moments of the mixture where a weighted mean of its Gaussians lies in a given range, a *strip*, for any Gram matrix.

Let ``u ~ N(0, T)`` with ``T = S - v 1 1^T``, the Gram matrix without a common factor, and
``Y = (1/b) sum_i e^(u_i - T_ii / 2)``. Let zeta have unit variance and be jointly Gaussian with u, with covariances
``Cov(zeta, u_i) = step n_i`` for whole numbers n_i, the *labels*. With r how often each bin is drawn, tilting gives

    E[Y^k; zeta in I] = b^-k sum_(|r| = k) k! / prod_i r_i! Pr(N(step sum_i n_i r_i, 1) in I)
                        exp(sum_i T_ii r_i (r_i - 1) / 2 + sum_(i<j) T_ij r_i r_j).

The weights of all r of one label ``sum_i n_i r_i`` are summed once; each strip then takes one normal probability for
every label and order.

Proofs: ``docs/theory/moment-majorants/strips.md``.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial, frexp, inf, ldexp, sqrt

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.double_double import ROUNDING, Pairs, pair_of, products
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exact_gram import proved_semidefinite
from hockeystick.moments.exponential import EXPONENTIAL_ERROR, exponential, rational_exponential, rational_root
from hockeystick.moments.floor import floor_above
from hockeystick.moments.normal_tail import TAIL_ERROR
from hockeystick.moments.recheck import recheck, recheck_cost, recheck_on_ranges, sums_on_ranges
from hockeystick.moments.ring import highest_order
from hockeystick.moments.strip_kernels import Integers, add_draws, strip_sums, tails_of
from hockeystick.moments.summation import moments_on_ranges, pieces

SHARE = 0.9
"""Share of the common factor that is split off, so that what is left has an inverse that is not too large."""
LOSS = 1e-3
"""What rounding to labels may add to the variance of zeta, relatively, where ``MOST_LABELS`` allow that."""
FEWEST_LABELS = 20
MOST_LABELS = 1000
"""Bounds on the number of labels between 0 and the largest one."""
ROOM = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""By how much, relatively, the variance of zeta is raised until a proof is found."""
HIGHEST_ORDER = 15
SECONDS_PER_TERM = 1e-8
SECONDS_PER_TAIL = 2e-6
SECONDS_PER_FACTOR = 5e-7
"""Measured costs of the three parts."""
PIECE = 5e6
"""Multisets between two ticks of the deadline, roughly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StripMoments:
    """Strips, the moments of the mixture on them, and where it lies on them.

    Attributes:
        edges: increasing, shape (n,), in standard deviations of zeta; the first and the last of the n + 1 strips are
            half lines.
        covariances: of zeta, which has unit variance, with every u_i; shape (b,). Like the edges they are rounded.
        variance: v >= 0, the log-variance of the common factor that was split off, rounded to a double of which the
            relative error is at most that of one product of doubles.
        moments: one for each strip; the entry 0 is the mass of the strip, and they add up to 1.
        floors: one for each strip: Y is below it, on the strip, with probability ``floor.BEYOND`` at most.
    """

    edges: Array
    covariances: Array
    variance: float
    moments: tuple[ExactMoments, ...]
    floors: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Label:
    """zeta for the matrix ``entries - common`` (scale 1): variance and ``unit * labels``, its covariances with u.

    Attributes:
        common: v_0 <= that of the Gram matrix.
        unit: a double of few digits, so that its multiples by labels are exact.
        labels: shape (b,).
        variance: a double; the bordered matrix is proved semidefinite.
        weights: shape (b,), >= 0 and of sum 1 but for rounding; the mean of u with them is nearly a multiple of zeta.
    """

    common: float
    unit: float
    labels: Integers
    variance: float
    weights: Array


def why_no_strips(gram: ExactGram) -> str | None:
    """Why :func:`strip_moments` has no answer for any order, or None. Cost: O(b^3) once for each matrix."""
    if gram.bins == 1:
        return "there is a single bin"
    return None if _label_of(gram) is not None else "no Gaussian beside those of the bins could be proved to exist"


def strip_cost(gram: ExactGram, largest: int, strips: int) -> float:
    """Rough seconds of :func:`strip_moments`; infinite where it does not apply."""
    if largest < 2 or largest > highest_order(gram, min(largest, HIGHEST_ORDER)) or why_no_strips(gram) is not None:
        return inf
    terms = comb(gram.bins + largest - 1, largest)
    probabilities = strips * _range(_known_label(gram), largest)[1]
    moments = terms * SECONDS_PER_TERM + probabilities * SECONDS_PER_TAIL + gram.bins**2 * SECONDS_PER_FACTOR
    return moments + recheck_cost(gram, largest)


def strip_edges(gram: ExactGram, negligible: float, strips: int) -> Array:
    """Edges of so many strips, in standard deviations of zeta.

    Outside, the mass below the first one and the part of ``E Y`` above the last one are about ``negligible``.
    """
    label = _known_label(gram)
    step = _step(gram, label)
    lowest = float(ndtri(negligible))
    return np.linspace(lowest, step * float(label.labels.max()) - lowest, strips - 1)


def strip_moments(gram: ExactGram, largest: int, edges: Array, *, deadline: Deadline) -> StripMoments:
    """Moments 0..largest on every strip, in about 23 digits; their proved error is stated with them.

    They are compared with a second computation.

    Args:
        gram: S.
        largest: highest order >= 2.
        edges: increasing, where strips end, in standard deviations of zeta; rounded to steps of its labels.

    Cost: :func:`strip_cost`. Raises UnsupportedError where :func:`why_no_strips` says so, for orders that leave the
    range of doubles, and where the second computation disagrees.
    """
    if largest < 2:
        raise InvalidInputError(f"The 'largest' argument must be at least 2. Got {largest} instead.")
    if largest > highest_order(gram, min(largest, HIGHEST_ORDER)):
        raise UnsupportedError(f"Moments of order {largest} of this pair are beyond the range of doubles.")
    label = _known_label(gram)
    offset = int(label.labels.min())
    table = _table(gram, largest, label.labels - offset, deadline)
    step = rational_root(Fraction(gram.scale) * Fraction(label.unit) ** 2 / Fraction(label.variance))
    places = np.unique(np.round(np.asarray(edges) / float(step)).astype(np.int64))
    lowest, count = _range(label, largest)
    tails = _tails(step, places, lowest, count, deadline)
    sizes = np.zeros((largest + 1, places.size + 1))
    sums = np.zeros(sizes.shape, dtype=np.complex128)
    for k in range(largest + 1):
        deadline.tick()
        strip_sums(sums[k], sizes[k], table[k], k * offset, places, lowest, tails)
    factors = [Fraction(factorial(k), gram.bins**k) for k in range(largest + 1)]
    weights, tail_error = _weight_error(gram.bins, largest, table.shape[1]), Fraction(max(4.0 * TAIL_ERROR, 2.0**-100))
    whole = moments_on_ranges(sums.T, sizes.T, factors, weights, tail_error)
    values = tuple(sum(column, Fraction(0)) for column in zip(*(part.values for part in whole), strict=True))
    recheck(gram, ExactMoments(values=values, error=max(part.error for part in whole)), deadline=deadline)
    for k in range(largest + 1):
        means = float(step) * (np.arange(table.shape[1], dtype=np.float64) + k * offset)
        borders = float(step) * places.astype(np.float64)
        recheck_on_ranges(sums_on_ranges(table[k, :, None].real, means, borders), k, whole)
    common = Fraction(gram.scale) * Fraction(label.common)
    decays = [rational_exponential(-common * (k * (k - 1) // 2)) for k in range(largest + 1)]
    moments = tuple(
        ExactMoments(
            values=tuple(value * decay for value, decay in zip(part.values, decays, strict=True)),
            error=part.error + Fraction(1, 2**150),
        )
        for part in whole
    )
    starts = [-inf, *(float(step) * place for place in places.tolist())]
    return StripMoments(
        edges=np.array(starts[1:]),
        covariances=float(step) * label.labels.astype(np.float64),
        variance=float(common),
        moments=moments,
        floors=tuple(_floor(gram, label, start) for start in starts),
    )


def proved_covariance(entries: Array, common: float, covariances: Array, variance: float) -> bool:
    """Whether ``[[variance, covariances^T], [covariances, entries - common]]`` is proved positive semidefinite.

    The differences are rounded; what that changes is less than a diagonal matrix that is taken off before the proof.

    Args:
        entries: shape (b, b), symmetric.
        covariances: shape (b,).
    """
    rest = entries - common
    room = 4.0 * UNIT_ROUNDOFF * np.abs(rest).sum(axis=1)
    bins = len(entries)
    bordered = np.empty((bins + 1, bins + 1))
    bordered[0, 0] = variance
    bordered[0, 1:] = bordered[1:, 0] = covariances
    bordered[1:, 1:] = rest - np.diag(room)
    return proved_semidefinite(bordered)


def _label_of(gram: ExactGram) -> _Label | None:
    return _cached_label(gram.entries.tobytes(), gram.bins, gram.common)


def _known_label(gram: ExactGram) -> _Label:
    label = _label_of(gram) if gram.bins > 1 else None
    if label is None:
        raise UnsupportedError(f"Moments on strips cannot be computed: {why_no_strips(gram)}.")
    return label


@lru_cache(maxsize=4)
def _cached_label(entries_bytes: bytes, bins: int, common: float) -> _Label | None:
    entries = np.frombuffer(entries_bytes).reshape(bins, bins)
    common *= SHARE
    rest = entries - common
    try:
        factor = cho_factor(rest)
        inverse = cho_solve(factor, np.eye(bins))
    except np.linalg.LinAlgError:
        return None
    covariances = rest.mean(axis=1)  # those of the mean of u, which is all of Y to first order
    largest = float(np.abs(covariances).max())
    trace = float(inverse.trace())
    if not (largest > 0.0 and trace > 0.0):
        return None
    unit = sqrt(12.0 * LOSS * float(covariances @ inverse @ covariances) / trace)
    unit = _short(min(max(unit, largest / MOST_LABELS), largest / FEWEST_LABELS))
    labels = np.round(covariances / unit).astype(np.int64)
    exact: Array = unit * labels.astype(np.float64)
    direction = inverse @ exact
    explained = float(direction @ exact)
    for room in ROOM:
        variance = explained * (1.0 + room)
        if proved_covariance(entries, common, exact, variance):
            weights = np.maximum(direction, 0.0)
            return _Label(common=common, unit=unit, labels=labels, variance=variance, weights=weights / weights.sum())
    return None


def _short(number: float) -> float:
    """A double near the number whose product with any label is exact: it has 24 bits."""
    digits, power = frexp(number)
    return ldexp(round(ldexp(digits, 24)), power - 24)


def _step(gram: ExactGram, label: _Label) -> float:
    return label.unit * sqrt(gram.scale / label.variance)


def _table(gram: ExactGram, largest: int, labels: Integers, deadline: Deadline) -> Pairs:
    """The summed weights of all multisets, by the number of draws and the sum of their labels >= 0."""
    bins = gram.bins
    table = np.zeros((largest + 1, largest * int(labels.max()) + 1), dtype=np.complex128)
    table[0, 0] = 1.0
    factors = exponential(products(gram.scale, gram.entries))
    for first in range(bins):
        work = np.array([comb(bins - end + largest - 3, largest - 2) for end in range(first, bins)])
        for start, stop in pieces(work, PIECE):
            deadline.tick()
            add_draws(table, first, first + start, first + stop, factors, labels)
    return table


def _range(label: _Label, largest: int) -> tuple[int, int]:
    """The smallest sum of at most ``largest`` labels, and how many numbers there are up to the largest sum."""
    lowest = largest * min(int(label.labels.min()), 0)
    return lowest, largest * max(int(label.labels.max()), 0) - lowest + 1


def _tails(step: Fraction, places: Integers, lowest: int, count: int, deadline: Deadline) -> Pairs:
    """Normal tails for every edge and sum of labels, shape (edges, count)."""
    tails = np.zeros((places.size, count), dtype=np.complex128)
    for place, part in zip(places.tolist(), tails, strict=True):
        deadline.tick()
        tails_of(pair_of(step), place - lowest, part)
    return tails


def _weight_error(bins: int, largest: int, keys: int) -> Fraction:
    """Half the relative error of a sum of weights, its products with probabilities and their sum."""
    operations = comb(bins + largest - 1, largest) + largest * (largest + 3) + keys + 8
    return Fraction(ROUNDING) * operations + Fraction(EXPONENTIAL_ERROR) * (largest * largest)


def _floor(gram: ExactGram, label: _Label, start: float) -> float:
    """x_0 >= 0 with ``Pr(Y < x_0, zeta > start) < BEYOND``, see :func:`.floor.floor_above`."""
    covariance = label.unit * float(label.weights @ label.labels)
    if start == -inf or covariance < 0.0:
        return 0.0
    return floor_above(gram, label.common, label.weights, covariance / sqrt(label.variance), start)
