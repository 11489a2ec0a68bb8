"""Moments without the log-normal factor that all bins share, and moments about a point.

Proofs: ``docs/theory/moment-majorants/moments.md``.
"""

from fractions import Fraction
from math import comb

from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import RATIONAL_ERROR, rational_exponential


def without_common(moments: ExactMoments, gram: ExactGram) -> ExactMoments:
    """``E X'^k`` of the mixture with the Gram matrix ``S - v 1 1^T``, ``v = gram.scale * gram.common`` exactly.

    ``X = L X'`` with L independent of X', log-normal of mean one and variance v of its logarithm, so
    ``E X'^k = e^(-v k (k-1) / 2) E X^k``.

    Formal guarantee: the stated error covers that of ``moments`` and that of the exponentials.

    Args:
        moments: of the whole mixture of ``gram``.
    """
    variance = Fraction(gram.scale) * Fraction(gram.common)
    values = tuple(
        value * rational_exponential(-variance * (k * (k - 1) // 2)) for k, value in enumerate(moments.values)
    )
    # relative to the computed value: (1 + error) / (1 - RATIONAL_ERROR) - 1, and less on the other side
    return ExactMoments(values=values, error=moments.error + 2 * RATIONAL_ERROR * (1 + moments.error))


def moments_about(moments: ExactMoments, centre: float) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """``E (Y - centre)^k`` for k = 0..degree, and a bound of the absolute error of each.

    The first are exact combinations of ``moments.values``; the second is what the error of those can do to them:
    ``moments.error`` times the moment of order k of ``Y + |centre|``, computed from the same values.
    """
    shift, distance = -Fraction(centre), abs(Fraction(centre))
    moved = _shifted(moments.values, shift)
    return moved, tuple(moments.error * size for size in _shifted(moments.values, distance))


def _shifted(values: tuple[Fraction, ...], shift: Fraction) -> tuple[Fraction, ...]:
    """From moments of Y to moments of Y + shift."""
    powers = [Fraction(1)]
    for _ in values[1:]:
        powers.append(powers[-1] * shift)
    return tuple(
        sum((comb(k, j) * powers[k - j] * values[j] for j in range(k + 1)), Fraction(0)) for k in range(len(values))
    )
