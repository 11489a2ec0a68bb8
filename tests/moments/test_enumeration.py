"""Enumerated moments against sums over all tuples, closed forms and the doubles of another accountant."""

from fractions import Fraction
from itertools import pairwise, product
from math import comb

import mpmath
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from hockeystick.moments import enumeration
from hockeystick.moments.bands import dense_moments
from hockeystick.moments.enumeration import enumerated_moments, enumeration_cost, highest_order
from hockeystick.moments.enumeration_kernels import MOST_BINS
from hockeystick.moments.exact import ExactGram


def _random_gram(bins, seed, scale=0.37):
    root = np.random.default_rng(seed).random((bins, bins))
    entries = root @ root.T
    return ExactGram(entries=np.triu(entries) + np.triu(entries, 1).T, scale=scale, common=0.0)


def _circulant_gram(bins, scale=0.61):
    place = np.arange(bins)
    distance = np.abs(place[:, None] - place[None, :])
    distance = np.minimum(distance, bins - distance)
    return ExactGram(entries=2.0 * np.exp(-distance.astype(float)) + 0.1, scale=scale, common=0.0)


def _exact(number):
    return mpmath.mpf(number.numerator) / number.denominator


def _check(moments, truths, largest_error=1e-28):
    assert moments.error <= largest_error
    with mpmath.workdps(60):
        for value, truth in zip(moments.values, truths, strict=True):
            assert abs(_exact(value) - truth) <= _exact(moments.error) * _exact(value)


def _over_all_tuples(gram, largest):
    bins, entries = gram.bins, gram.entries
    with mpmath.workdps(60):
        factors = [[mpmath.exp(mpmath.mpf(gram.scale) * mpmath.mpf(float(s))) for s in row] for row in entries]
        weights = {(): mpmath.mpf(1)}
        result = [mpmath.mpf(1)]
        for order in range(1, largest + 1):
            weights = {
                (*drawn, i): mpmath.fprod([weight, *(factors[i][j] for j in drawn)])
                for (drawn, weight), i in product(weights.items(), range(bins))
            }
            result.append(mpmath.fsum(weights.values()) / mpmath.mpf(bins) ** order)
        return result


@pytest.mark.parametrize(("bins", "largest"), [(1, 6), (2, 8), (3, 6), (4, 5), (5, 5), (9, 3)])
def test_against_all_tuples(bins, largest):
    gram = _random_gram(bins, seed=bins)
    _check(enumerated_moments(gram, largest, deadline=Deadline()), _over_all_tuples(gram, largest))


@pytest.mark.parametrize(("bins", "largest"), [(2, 8), (3, 6), (4, 6), (5, 5), (8, 4)])
def test_circulant_against_all_tuples(bins, largest):
    gram = _circulant_gram(bins)
    assert gram.is_circulant
    _check(enumerated_moments(gram, largest, deadline=Deadline()), _over_all_tuples(gram, largest))


def test_one_bin():
    gram = ExactGram(entries=np.array([[1.7]]), scale=0.3, common=0.0)
    with mpmath.workdps(60):
        variance = mpmath.mpf(0.3) * mpmath.mpf(1.7)
        truths = [mpmath.exp(variance * (k * (k - 1) // 2)) for k in range(13)]
    _check(enumerated_moments(gram, 12, deadline=Deadline()), truths)


def _independent(diagonal, scale, largest):
    """A product of one power series for each bin."""
    bins = len(diagonal)
    with mpmath.workdps(60):
        total = [mpmath.mpf(1)] + [mpmath.mpf(0)] * largest
        for entry in diagonal:
            variance = mpmath.mpf(scale) * mpmath.mpf(float(entry))
            own = [mpmath.exp(variance * (r * (r - 1) // 2)) / mpmath.factorial(r) for r in range(largest + 1)]
            total = [mpmath.fsum(total[j] * own[k - j] for j in range(k + 1)) for k in range(largest + 1)]
        return [mpmath.factorial(k) * total[k] / mpmath.mpf(bins) ** k for k in range(largest + 1)]


@pytest.mark.parametrize(("bins", "largest"), [(50, 5), (5, 12), (17, 6)])
def test_independent_bins(bins, largest):
    diagonal = np.random.default_rng(3).uniform(0.2, 3.0, bins)
    gram = ExactGram(entries=np.diag(diagonal), scale=0.9, common=0.0)
    _check(enumerated_moments(gram, largest, deadline=Deadline()), _independent(diagonal, 0.9, largest))


@pytest.mark.parametrize(("bins", "largest"), [(50, 6), (7, 12), (203, 4)])
def test_equal_independent_bins(bins, largest):
    gram = ExactGram(entries=1.25 * np.eye(bins), scale=0.9, common=0.0)
    assert gram.is_circulant
    _check(enumerated_moments(gram, largest, deadline=Deadline()), _independent(1.25 * np.ones(bins), 0.9, largest))


@pytest.mark.parametrize(("bins", "largest"), [(13, 6), (30, 5), (6, 9)])
def test_any_order_of_the_bins_is_the_same(bins, largest):
    # permuted, a circulant Gram matrix is no longer one, and all of it is gone through
    gram = _circulant_gram(bins)
    order = np.random.default_rng(5).permutation(bins)
    permuted = ExactGram(entries=gram.entries[np.ix_(order, order)], scale=gram.scale, common=0.0)
    assert not permuted.is_circulant
    at_zero = enumerated_moments(gram, largest, deadline=Deadline())
    whole = enumerated_moments(permuted, largest, deadline=Deadline())
    for a, b in zip(at_zero.values, whole.values, strict=True):
        assert abs(a - b) <= at_zero.error * a + whole.error * b


def test_the_same_in_pieces(monkeypatch):
    gram = _random_gram(11, seed=8)
    whole = enumerated_moments(gram, 6, deadline=Deadline())
    monkeypatch.setattr(enumeration, "SECONDS_PER_PIECE", 1e-6)
    deadline = Deadline()
    pieces = enumerated_moments(gram, 6, deadline=deadline)
    assert deadline.ticks > 100
    for a, b in zip(whole.values, pieces.values, strict=True):
        assert abs(a - b) <= whole.error * a + pieces.error * b


def test_the_budget_is_kept(monkeypatch):
    monkeypatch.setattr(enumeration, "SECONDS_PER_PIECE", 1e-6)
    with pytest.raises(BudgetExceededError):
        enumerated_moments(_random_gram(11, seed=8), 6, deadline=Deadline(seconds=0.0))


@pytest.mark.parametrize("bins", [21, 40])
def test_against_doubles(bins):
    gram = _random_gram(bins, seed=4, scale=0.05)
    moments = enumerated_moments(gram, 4, deadline=Deadline())
    other = dense_moments(gram.scale * gram.entries, 4)
    np.testing.assert_allclose(
        [float(value) for value in moments.values[2:]], np.exp(other.values), rtol=1e-10, atol=0.0
    )


def test_all_bins_alike_give_a_log_normal():
    # u_i all equal: X is the log-normal itself, whatever b is
    gram = ExactGram(entries=np.full((37, 37), 0.75), scale=0.2, common=0.75)
    with mpmath.workdps(60):
        variance = mpmath.mpf(0.2) * mpmath.mpf(0.75)
        truths = [mpmath.exp(variance * comb(k, 2)) for k in range(6)]
    _check(enumerated_moments(gram, 5, deadline=Deadline()), truths)


def test_at_the_edge_of_the_range():
    gram = ExactGram(entries=np.diag([1.0, 0.5, 0.25]), scale=590.0 / 6.0, common=0.0)
    assert highest_order(gram, 8) == 4
    _check(enumerated_moments(gram, 4, deadline=Deadline()), _independent([1.0, 0.5, 0.25], gram.scale, 4))
    with pytest.raises(UnsupportedError, match="up to the order 4"):
        enumerated_moments(gram, 5, deadline=Deadline())
    assert enumeration_cost(gram, 5) == float("inf")


def test_order_one_and_zero_need_nothing():
    gram = ExactGram(entries=np.diag([1e300, 1.0]), scale=1.0, common=0.0)
    assert highest_order(gram, 8) == 1
    moments = enumerated_moments(gram, 1, deadline=Deadline())
    assert (moments.values, moments.error) == ((Fraction(1), Fraction(1)), 0)
    assert enumerated_moments(gram, 0, deadline=Deadline()).values == (Fraction(1),)


def test_refusals():
    with pytest.raises(InvalidInputError):
        enumerated_moments(_random_gram(2, seed=0), -1, deadline=Deadline())
    many = ExactGram(entries=np.eye(MOST_BINS + 1), scale=1e-3, common=0.0)
    with pytest.raises(UnsupportedError):
        enumerated_moments(many, 2, deadline=Deadline())
    assert enumeration_cost(many, 2) == float("inf")


def test_cost_grows_with_the_terms():
    true, ring = _random_gram(60, seed=1, scale=0.01), _circulant_gram(60, scale=0.01)
    costs = [enumeration_cost(true, order) for order in range(2, 8)]
    assert all(2 * a < b for a, b in pairwise(costs[2:]))
    assert enumeration_cost(ring, 6) == enumeration_cost(true, 5)
