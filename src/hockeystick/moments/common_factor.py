"""Moments without the log-normal factor that all bins share.

Proofs: ``docs/theory/moment-majorants/moments.md``.
"""

from fractions import Fraction

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
