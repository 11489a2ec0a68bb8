"""Many complex exponentials, by one tangent each, which NumPy finds several times faster than a sine and a cosine.

With ``t = tan(x / 2)``, ``cos x = (1 - t^2) / (1 + t^2)`` and ``sin x = 2 t / (1 + t^2)``. A relative error e of t is
one of ``e |sin x|`` of the angle, as ``dx = 2 dt / (1 + t^2)``. NumPy's own tests let tangents of doubles err by one
unit in the last place; all bounds below allow for four, so for e up to ``8 u``, u the unit roundoff.
Proof: docs/theory/contours.md, "Rotations by tangents".
"""

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.law import Array

ERROR = 16.0
"""Units of roundoff: 8 of the tangent, and 5 and 3 of the operations that make a cosine and a sine of it."""


def rotations(angles: Array) -> NDArray[np.complex128]:
    """``e^(i angle)`` for each angle, an array of their shape; each is off by at most ``ERROR`` units of roundoff.

    >>> rotations(np.array([0.0, np.pi])).round(9).tolist()
    [(1+0j), (-1+0j)]
    """
    tangents, squares, whole = _tangents(angles)
    values = np.empty(tangents.shape, dtype=np.complex128)
    np.divide(1.0 - squares, whole, out=values.real)
    np.divide(tangents + tangents, whole, out=values.imag)
    return values


def exponentials_less_one(values: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """``e^w - 1`` for each w with a real part up to 0; each is off by at most ``26 u |w|``, and by ``26 u``.

    With ``v = 1 - cos b = 2 t^2 / (1 + t^2)`` for ``w = a + ib``, the real part is ``(e^a - 1) - e^a v``. An error of t
    changes v by ``8 u sin(b)^2`` and rounding by ``3 u v``, so it is off by at most ``19 u v``, and by ``14 u``;
    ``v <= .73 |b|``. NumPy promises the real function for real numbers alone.
    """
    sizes = np.exp(values.real)
    tangents, squares, whole = _tangents(values.imag)
    less = np.empty(values.shape, dtype=np.complex128)
    np.subtract(np.expm1(values.real), sizes * ((squares + squares) / whole), out=less.real)
    np.multiply(sizes, (tangents + tangents) / whole, out=less.imag)
    return less


def _tangents(angles: Array) -> tuple[Array, Array, Array]:
    """``t = tan(angle / 2)``, ``t^2`` and ``1 + t^2``."""
    tangents = np.tan(0.5 * angles)
    squares = tangents * tangents
    return tangents, squares, 1.0 + squares
