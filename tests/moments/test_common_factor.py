"""The common log-normal factor divided out of moments."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.moments.common_factor import without_common
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exponential import RATIONAL_ERROR, rational_exponential
from hockeystick.moments.ring import ring_moments


def _exact(number):
    return mpmath.mpf(number.numerator) / number.denominator


@pytest.mark.parametrize(
    "x", [0, Fraction(-1, 3), Fraction(1, 10**40), Fraction(-1, 10**80), Fraction(700), Fraction(-98765.4321)]
)
def test_rational_exponential(x):
    result = rational_exponential(Fraction(x))
    with mpmath.workdps(80):
        assert abs(_exact(result) / mpmath.exp(_exact(Fraction(x))) - 1) <= _exact(RATIONAL_ERROR)


def test_rational_exponential_at_multiples_of_ln_2():
    for turns in range(-60, 61):
        x = Fraction(turns * np.log(2.0) / 2)
        with mpmath.workdps(80):
            assert abs(_exact(rational_exponential(x)) / mpmath.exp(_exact(x)) - 1) <= _exact(RATIONAL_ERROR)


def test_nothing_is_left_of_a_log_normal():
    gram = ExactGram(entries=np.full((3, 3), 0.7), scale=0.9, common=0.7)
    left = without_common(ring_moments(gram, 8, deadline=Deadline()), gram)
    assert 0 < left.error < 1e-28
    assert all(abs(value - 1) <= left.error * value for value in left.values)


def test_against_the_smaller_gram_matrix():
    # entries that are exact in binary, so that S - v 1 1^T is a Gram matrix of doubles as well
    entries = np.array([[3.0, 1.0, 1.5], [1.0, 2.5, 1.0], [1.5, 1.0, 4.0]])
    gram = ExactGram(entries=entries, scale=0.3, common=0.75)
    smaller = ExactGram(entries=entries - 0.75, scale=0.3, common=0.0)
    left = without_common(ring_moments(gram, 6, deadline=Deadline()), gram)
    direct = ring_moments(smaller, 6, deadline=Deadline())
    for a, b in zip(left.values, direct.values, strict=True):
        assert abs(a - b) <= left.error * a + direct.error * b


def test_no_common_factor_changes_nothing():
    moments = ExactMoments(values=(Fraction(1), Fraction(1), Fraction(7, 3)), error=Fraction(1, 10**29))
    left = without_common(moments, ExactGram(entries=np.eye(2), scale=0.5, common=0.0))
    assert left.values == moments.values
    assert left.error >= moments.error
