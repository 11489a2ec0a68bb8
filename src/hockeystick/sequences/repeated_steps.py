"""A linear step applied many times, by an Arnoldi basis of few vectors, with a bound on the error of every entry.

Proof: docs/theory/hidden-chains.md, section 6. Cost: some 25 steps, whatever their number.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Vectors = NDArray[np.complex128]

FEWEST, FURTHER, MOST = 24, 6, 48
"""Vectors of a basis: at first, how many more at a time, and most."""
SMALL = 1e-11
"""What the end of a basis may add to the error before more vectors are looked for."""
WORTH = 40
"""Repetitions below which steps are made one by one."""
SHORTEST = 1e-290
"""What a vector is divided by at least; what is shorter than this is next to nothing."""


def repeated(
    step: Callable[[Vectors], Vectors],
    start: Vectors,
    times: int,
    norm: float,
    rounding: float,
    fewest: int | None = None,
    small: float = SMALL,
) -> tuple[Vectors, Array]:
    """``step`` applied ``times`` times to each row of ``start``, and a bound on the error of the entries of each row.

    Arguments as for :func:`repeated_often`.
    """
    return repeated_often(step, start, (times,), norm, rounding, fewest, small)[0]


def repeated_often(
    step: Callable[[Vectors], Vectors],
    start: Vectors,
    times: Sequence[int],
    norm: float,
    rounding: float,
    fewest: int | None = None,
    small: float = SMALL,
) -> list[tuple[Vectors, Array]]:
    """The same for several numbers of steps, by one basis.

    Args:
        step: linear in each row, of shape (F, S).
        norm: bound on the maximum norm of a row that a step makes of one whose maximum norm is 1, and at least 1.
        rounding: bound on the error of the entries of such a row.
        fewest: vectors of the basis at first, if not ``FEWEST``.
        small: what the end of a basis may add to the error before more vectors are looked for.
    """
    rows, size = start.shape
    basis = np.zeros((rows, MOST + 1, size), dtype=np.complex128)
    factors = np.zeros((rows, MOST + 1, MOST), dtype=np.complex128)
    length = _lengths(start)
    basis[:, 0] = start / length[:, None]
    used, wanted = 0, FEWEST if fewest is None else fewest
    while True:
        while used < wanted:
            used += 1
            later, known = step(basis[:, used - 1]), basis[:, :used]
            shares = np.conj(known @ np.conj(later)[:, :, None])[:, :, 0]
            later -= (shares[:, None, :] @ known)[:, 0]
            factors[:, :used, used - 1] = shares
            left = _lengths(later)
            factors[:, used, used - 1] = left
            basis[:, used] = later / left[:, None]
        largest = np.abs(basis[:, : used + 1]).max(axis=2)
        now = factors[:, : used + 1, :used]
        cut = _powers(now, largest, length, max(times), rounding)[1]
        wanted += FURTHER
        if wanted > MOST or float(cut.max()) <= small:
            break
    ends = []
    for each in times:
        found, cut, rounded = _powers(now, largest, length, each, rounding)
        error = norm**each * (cut + rounded) * (1.0 + 1e-9)
        ends.append(((found[:, None, :] @ basis[:, :used])[:, 0], error))
    return ends


def _lengths(rows: Vectors) -> Array:
    """Euclidean norms, of rows whose squares underflow too; not so small that quotients by them could overflow."""
    largest = np.maximum(np.abs(rows).max(axis=1), SHORTEST)
    return np.asarray(largest * np.maximum(np.linalg.norm(rows / largest[:, None], axis=1), 1.0))


def _powers(
    factors: Vectors, largest: Array, length: Array, times: int, rounding: float
) -> tuple[Vectors, Array, Array]:
    """Coordinates after all steps, and over all steps what the end of the basis leaves out and what rounding adds."""
    rows, more, used = factors.shape
    sizes, unit = np.abs(factors), (4.0 * more + 24.0) * UNIT_ROUNDOFF
    each = rounding * largest[:, :used] + unit * np.einsum("fij,fi->fj", sizes, largest)
    now = np.zeros((rows, used), dtype=np.complex128)
    now[:, 0] = length
    cut, rounded = np.zeros(rows), 8.0 * UNIT_ROUNDOFF * length * largest[:, 0]
    for _ in range(times):
        size = np.abs(now)
        cut += sizes[:, used, used - 1] * size[:, -1] * largest[:, used]
        rounded += (size * (2.0 * each)).sum(axis=1)
        now = (factors[:, :used] @ now[:, :, None])[:, :, 0]
    return now, cut, rounded + unit * (np.abs(now) * largest[:, :used]).sum(axis=1)
