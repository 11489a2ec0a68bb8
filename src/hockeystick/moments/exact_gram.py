"""Gram matrices that are exactly what their doubles say, on a known side of the true one.

Kahane's inequality (docs/theory/comparison.md) compares two mixtures of bins whose covariances are both positive
semidefinite and ordered entry by entry. The matrices here satisfy this as the numbers that they are.

Proofs: ``docs/theory/moment-majorants/gram.md``.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_triangular

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.moments.exact import ExactGram, ring_distances
from hockeystick.types import Side

LARGEST_ROUNDING = 1e-6
"""Largest relative error of a Gram matrix; the proofs take 1 / (1 - x) for 1 + 1.01 x."""
LARGEST_CHANGE = 1e-3
"""Largest relative increase of the diagonal over the rest, beyond rounding, that is tried to get a proof."""
LARGEST_REPAIR = 0.2
"""Largest relative change of the diagonal, or of the entries beside it, that makes a circulant envelope definite."""
LIFT, ALIKE = 0.7, 1e-3
"""Bins are lifted this part of the way to the others; entries within ALIKE, relatively, count as alike."""
UNDERFLOW = 1e-290
"""More than all underflows together can change in a row of a scaled matrix."""


def proved_gram(gram: Array, rounding: float, noise_multiplier: float, side: Side) -> ExactGram:
    """``G / sigma^2`` rounded to its side and proved positive semidefinite, with its common factor.

    Formal guarantee: no entry of ``scale * entries`` is below (UPPER) or above (LOWER) the true ``G / sigma^2``, so
    bounds on that side for its mixture, in both directions, are bounds for the true one. Zeros stay zeros.

    Args:
        gram: G, shape (b, b), non-negative, each entry within ``rounding`` relative. Do not write to it afterwards.
        rounding: >= 0.
        noise_multiplier: sigma.
        side: of the bounds.

    Cost: O(b^3) once for each array and side, O(1) for each further sigma.

    Raises: UnsupportedError where no proof of definiteness is found or 1 / sigma^2 is not in the range of doubles.
    """
    return replace(_proved_gram(_Identity(gram), rounding, side), scale=_inverse_square(noise_multiplier, side))


@lru_cache(maxsize=4)
def _proved_gram(key: "_Identity", rounding: float, side: Side) -> ExactGram:
    """The Gram matrix itself (scale 1) rounded to its side and proved."""
    if not rounding <= LARGEST_ROUNDING:
        raise UnsupportedError(f"The Gram matrix must be known to {LARGEST_ROUNDING:g}, but is to {rounding:g}.")
    slack = 1.01 * rounding + 8.0 * UNIT_ROUNDOFF
    gram, bins = np.maximum(key.array, key.array.T), len(key.array)
    # rounding may have moved an eigenvalue by this much of a scaled matrix; the factor 2 is for its diagonal >= 1/2
    change = 2.0 * (2.0 * slack * float(_scaled(gram)[0].sum(axis=1).max()) + 8.0 * _shift(bins))
    while change <= LARGEST_CHANGE:
        entries = _changed(gram, slack, change, side)
        if proved_semidefinite(entries):
            return ExactGram(entries=_frozen(entries), scale=1.0, common=_common(entries))
        change *= 4.0
    raise UnsupportedError(f"No Gram matrix close to that of the {bins} bins could be proved positive semidefinite.")


def _changed(gram: Array, slack: float, change: float, side: Side) -> Array:
    """``gram`` times ``1 +- slack`` and, on the diagonal only (upper) or beside it only (lower), ``1 +- change``."""
    diagonal = np.eye(len(gram), dtype=bool)
    if side is Side.UPPER:
        entries = np.nextafter(gram * (1.0 + slack + np.where(diagonal, change, 0.0)), np.inf)
    else:
        entries = np.nextafter(gram * (1.0 - slack - np.where(diagonal, 0.0, change)), 0.0)
    return np.where(gram > 0.0, entries, 0.0)


def _inverse_square(sigma: float, side: Side) -> float:
    """``1 / sigma^2`` rounded to the side."""
    exact = 1 / Fraction(sigma) ** 2
    try:
        scale = float(exact)
    except OverflowError:
        scale = 0.0
    if side is Side.UPPER and Fraction(scale) < exact:
        scale = float(np.nextafter(scale, np.inf))
    if side is Side.LOWER and Fraction(scale) > exact:
        scale = float(np.nextafter(scale, 0.0))
    if not 1e-150 < scale < 1e150:
        raise UnsupportedError(f"The noise multiplier {sigma:g} is out of the range of this method.")
    return scale


def proved_semidefinite(matrix: Array, relative_error: float = 0.0) -> bool:
    """Whether every symmetric matrix whose entries are within this relative error is *proved* positive semidefinite.

    Never accepts another one. Accepts a matrix of doubles whose smallest eigenvalue, after scaling to a diagonal of
    about 1, is at least about ``16 b^2 2^-53``; may reject those between.

    With L a Cholesky factor of the matrix less a small multiple of the identity, the residual ``matrix - L L^T`` must
    be diagonally dominant, rounding included (after Rump 2006, *Verification of positive definiteness*). O(b^3).
    """
    if not (np.isfinite(matrix).all() and (matrix == matrix.T).all()):
        return False
    used = matrix.any(axis=1)
    matrix = matrix[np.ix_(used, used)]
    if (matrix.diagonal() <= 0.0).any():
        return False
    scaled, _ = _scaled(matrix)
    bins = len(scaled)
    try:
        factor = np.linalg.cholesky(scaled - _shift(bins) * np.eye(bins))
    except np.linalg.LinAlgError:
        return False
    size = np.abs(factor)
    rest = scaled - factor @ factor.T
    centre, radius = rest.diagonal(), np.abs(rest).sum(axis=1) - np.abs(rest.diagonal())
    products = (bins + 2.0) * UNIT_ROUNDOFF * (size @ size.sum(axis=0))
    unknown = relative_error * np.abs(scaled).sum(axis=1) + UNDERFLOW
    return bool((0.99 * centre >= 1.01 * (radius + products + unknown) + bins * UNIT_ROUNDOFF * np.abs(centre)).all())


def _scaled(matrix: Array) -> tuple[Array, Array]:
    """``D matrix D`` with a diagonal in [1/2, 2) (or 0), and the diagonal of D: powers of 2, so nothing is rounded."""
    half = np.frexp(matrix.diagonal())[1] // 2
    return np.ldexp(matrix, -(half[:, None] + half[None, :])), np.ldexp(1.0, -half)


def _shift(bins: int) -> float:
    """More than all rounding in a Cholesky factorisation and its check can change of a scaled matrix's eigenvalues."""
    return 8.0 * bins * (bins + 8.0) * UNIT_ROUNDOFF


def _common(entries: Array) -> float:
    """v_0 close to ``1 / (1^T H^-1 1)`` for the semidefinite H of these doubles, with H - v_0 1 1^T proved; or 0."""
    scaled, scales = _scaled(entries)
    shift = 4.0 * _shift(len(entries))
    while shift < LARGEST_CHANGE:
        # the quotient for H less a small diagonal matrix: what is left for the proof is at least that matrix
        try:
            factor = np.linalg.cholesky(scaled - shift * np.eye(len(entries)))
        except np.linalg.LinAlgError:
            return 0.0
        whitened = solve_triangular(factor, scales, lower=True)
        common = 1.0 / float(whitened @ whitened)
        if proved_semidefinite(entries - common, 1.01 * UNIT_ROUNDOFF):
            return common
        shift *= 4.0
    return 0.0


def circulant(gram: ExactGram, side: Side) -> ExactGram | None:
    """A circulant matrix entry by entry above (UPPER) or below (LOWER) the given one, proved semidefinite, or None.

    It has the largest or smallest entry of each ring distance. Where that is not semidefinite the diagonal is raised
    (UPPER) or the rest shrunk (LOWER); None where this takes more than ``LARGEST_REPAIR``. A circulant matrix comes
    back as it is.

    Cost: O(b^3) once for each matrix of entries.
    """
    if gram.is_circulant:
        return gram
    ring = _circulant(_Identity(gram.entries), side)
    return None if ring is None else replace(ring, scale=gram.scale)


def lifted(gram: ExactGram) -> ExactGram | None:
    """A matrix entry by entry above the given one, proved semidefinite, whose few bins that differ do so less, or None.

    Every entry goes ``LIFT`` of the way to the largest one at its distance: along the line where nothing passes the
    seam, else along the ring. The last columns of a strategy are cut off, and a few small bins limit the factor that
    all have in common; lifting them costs less than the larger factor brings. None where fewer than half of the
    entries are that largest one already.

    Cost: O(b^3) once for each matrix of entries.
    """
    higher = _lifted(_Identity(gram.entries), gram.span)
    return None if higher is None else replace(higher, scale=gram.scale)


def residue_classes(gram: ExactGram, m: int) -> list[tuple[float, ExactGram]]:
    """The bins r, r + m, r + 2m, ... for each r < m: weight and Gram matrix; weights of equal ones are added up.

    Revealing the class of the drawn bin cannot help privacy, so the weighted mean of the classes' deltas is an upper
    bound of the whole mixture's delta; it is not a lower one.

    Cost: O(b^3 / m^2) once for each matrix of entries.

    Raises: InvalidInputError where m is not from 1 to b.
    """
    if not 1 <= m <= gram.bins:
        raise InvalidInputError(f"The 'm' argument must be from 1 to {gram.bins}. Got {m} instead.")
    if m == 1:
        return [(1.0, gram)]
    classes = _residue_classes(_Identity(gram.entries), gram.common, m)
    return [(weight, replace(part, scale=gram.scale)) for weight, part in classes]


class _Identity:
    """An array as a key: equal only to itself. It keeps the array alive, so no other one takes its place."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __hash__(self) -> int:
        return id(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.array is other.array


@lru_cache(maxsize=8)
def _circulant(key: _Identity, side: Side) -> ExactGram | None:
    entries = key.array
    bins = len(entries)
    place = np.arange(bins)
    chosen = np.max if side is Side.UPPER else np.min
    rings = np.array([chosen(entries[place, place - d]) for d in range(bins // 2 + 1)])
    repaired = _repaired(rings, bins, side)
    if repaired is None:
        return None
    envelope = repaired[ring_distances(bins)]
    if not proved_semidefinite(envelope):
        return None
    return ExactGram(entries=_frozen(envelope), scale=1.0, common=_common(envelope))


@lru_cache(maxsize=8)
def _lifted(key: _Identity, span: int) -> ExactGram | None:
    entries, bins = key.array, len(key.array)
    place = np.arange(bins)
    if span < bins // 2:
        largest = np.array([np.diagonal(entries, d).max() for d in range(bins)])
        top = largest[np.abs(place[:, None] - place[None, :])]
    else:
        ring = _circulant(key, Side.UPPER)
        if ring is None:
            return None
        top = ring.entries
    used = entries > 0.0
    if np.count_nonzero(top[used] <= (1.0 + ALIKE) * entries[used]) < 0.5 * np.count_nonzero(used):
        return None
    raised = np.maximum(entries, entries + LIFT * (top - entries))
    raised = np.maximum(raised, raised.T)
    if not proved_semidefinite(raised):
        return None
    return ExactGram(entries=_frozen(raised), scale=1.0, common=_common(raised))


def _repaired(rings: Array, bins: int, side: Side) -> Array | None:
    """Entries for each ring distance, not below (UPPER) or above (LOWER) these, with room for a proof; else None."""
    top = float(rings[0])
    if top <= 0.0:
        return None
    if side is Side.LOWER:
        rings = np.minimum(rings, top)
    place = np.arange(bins)
    lowest = float(np.fft.rfft(rings[np.minimum(place, bins - place)]).real.min())
    missing = 16.0 * _shift(bins) * top - lowest
    if missing <= 0.0:
        return rings
    if side is Side.UPPER:
        factors = np.where(np.arange(rings.size) == 0, 1.0 + missing / top, 1.0)
    else:
        factors = np.where(np.arange(rings.size) == 0, 1.0, 1.0 - missing / (top - lowest))
    return rings * factors if np.abs(factors - 1.0).max() <= LARGEST_REPAIR else None


@lru_cache(maxsize=8)
def _residue_classes(key: _Identity, common: float, m: int) -> tuple[tuple[float, ExactGram], ...]:
    entries = key.array
    counts: dict[bytes, int] = {}
    parts: dict[bytes, Array] = {}
    for r in range(m):
        part = np.ascontiguousarray(entries[r::m, r::m])
        name = part.tobytes()
        counts[name] = counts.get(name, 0) + len(part)
        parts[name] = part
    # a principal submatrix of a semidefinite matrix is one, also after subtracting the whole's common part
    return tuple(
        (
            counts[name] / len(entries),
            ExactGram(entries=_frozen(part), scale=1.0, common=max(common, _common(part))),
        )
        for name, part in parts.items()
    )


def _frozen(entries: Array) -> Array:
    entries.flags.writeable = False
    return entries
