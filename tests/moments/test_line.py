"""Moments from all multisets of draws against sums over all tuples, closed forms and doubles of another engine."""

from fractions import Fraction
from itertools import pairwise, product
from math import comb, factorial, inf

import mpmath
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from hockeystick.moments import ring
from hockeystick.moments.bands import dense_moments
from hockeystick.moments.double_double import rational
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.ring import along_line, highest_order, line_factors, relative_error, ring_cost, ring_moments


def _line_moments(gram, largest, deadline=None):
    """Along a line, whichever way is cheaper; a Gram matrix that is circulant is treated like any other."""
    vars(gram)["is_circulant"] = False
    factors = line_factors(gram, max(largest, 3))
    total = along_line(factors, deadline or Deadline())
    return ExactMoments(
        values=tuple(rational(total[k]) * factorial(k) / gram.bins**k for k in range(largest + 1)),
        error=relative_error(factors, by_bins=False),
    )


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


def _check(moments, truths, largest_error=1e-27):
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
    _check(_line_moments(gram, largest), _over_all_tuples(gram, largest))


@pytest.mark.parametrize(("bins", "largest"), [(2, 8), (3, 6), (4, 6), (5, 5), (8, 4)])
def test_circulant_against_all_tuples(bins, largest):
    gram = _circulant_gram(bins)
    assert gram.is_circulant
    _check(_line_moments(gram, largest), _over_all_tuples(gram, largest))


def test_one_bin():
    gram = ExactGram(entries=np.array([[1.7]]), scale=0.3, common=0.0)
    with mpmath.workdps(60):
        variance = mpmath.mpf(0.3) * mpmath.mpf(1.7)
        truths = [mpmath.exp(variance * (k * (k - 1) // 2)) for k in range(13)]
    _check(_line_moments(gram, 12), truths)


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
    _check(_line_moments(gram, largest), _independent(diagonal, 0.9, largest))


@pytest.mark.parametrize(("bins", "largest"), [(50, 6), (7, 12), (203, 4)])
def test_equal_independent_bins(bins, largest):
    gram = ExactGram(entries=1.25 * np.eye(bins), scale=0.9, common=0.0)
    assert gram.is_circulant
    _check(_line_moments(gram, largest), _independent(1.25 * np.ones(bins), 0.9, largest))


@pytest.mark.parametrize(("bins", "largest"), [(13, 6), (30, 5), (6, 9)])
def test_any_order_of_the_bins_is_the_same(bins, largest):
    # along the ring where the matrix is circulant; permuted, it no longer is
    gram = _circulant_gram(bins)
    order = np.random.default_rng(5).permutation(bins)
    permuted = ExactGram(entries=gram.entries[np.ix_(order, order)], scale=gram.scale, common=0.0)
    assert not permuted.is_circulant
    first, second = ring_moments(gram, largest, deadline=Deadline()), _line_moments(permuted, largest)
    for a, b in zip(first.values, second.values, strict=True):
        assert abs(a - b) <= first.error * a + second.error * b


def test_the_same_in_pieces(monkeypatch):
    gram = _random_gram(11, seed=8)
    whole = _line_moments(gram, 6)
    monkeypatch.setattr(ring, "CHAINS_PER_PIECE", 20.0)
    deadline = Deadline()
    pieces = _line_moments(gram, 6, deadline)
    assert deadline.ticks > 100
    for a, b in zip(whole.values, pieces.values, strict=True):
        assert abs(a - b) <= whole.error * a + pieces.error * b


def test_the_budget_is_kept():
    with pytest.raises(BudgetExceededError):
        _line_moments(_random_gram(11, seed=8), 6, Deadline(seconds=0.0))


@pytest.mark.parametrize("bins", [21, 40])
def test_against_doubles(bins):
    gram = _random_gram(bins, seed=4, scale=0.05)
    moments = _line_moments(gram, 4)
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
    _check(_line_moments(gram, 5), truths)


def test_at_the_edge_of_the_range():
    gram = ExactGram(entries=np.diag([1.0, 0.5, 0.25]), scale=590.0 / 6.0, common=0.0)
    assert highest_order(gram, 8) == 4
    _check(_line_moments(gram, 4), _independent([1.0, 0.5, 0.25], gram.scale, 4))
    with pytest.raises(UnsupportedError, match="too large for doubles"):
        ring_moments(gram, 5, deadline=Deadline())
    assert ring_cost(gram, 5) == inf


def test_order_one_and_zero_need_nothing():
    gram = ExactGram(entries=np.diag([1e300, 1.0]), scale=1.0, common=0.0)
    assert highest_order(gram, 8) == 1
    assert ring_cost(gram, 1) == 0.0
    moments = ring_moments(gram, 1, deadline=Deadline())
    assert (moments.values, moments.error) == ((Fraction(1), Fraction(1)), 0)
    assert ring_moments(gram, 0, deadline=Deadline()).values == (Fraction(1),)
    with pytest.raises(InvalidInputError, match="must not be negative"):
        ring_moments(gram, -1, deadline=Deadline())


def test_what_needs_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr(ring, "MAX_TABLE", 100)
    monkeypatch.setattr(ring, "MAX_STATES", 100)
    gram = _random_gram(30, seed=0, scale=1e-3)
    assert ring_cost(gram, 3) == inf
    with pytest.raises(UnsupportedError, match="memory"):
        ring_moments(gram, 3, deadline=Deadline())


def test_the_cheaper_way_is_taken():
    narrow = np.where(np.abs(np.subtract.outer(np.arange(60), np.arange(60))) <= 1, 0.5, 0.0)
    narrow[0, 0] = 0.6
    wide = _random_gram(60, seed=1, scale=0.01)
    costs = [ring_cost(wide, order) for order in range(3, 8)]
    assert all(2 * a < b for a, b in pairwise(costs))
    assert ring_cost(ExactGram(entries=narrow, scale=0.01, common=0.0), 7) < 0.01 * costs[-1]
    assert ring_cost(_circulant_gram(60, scale=0.01), 6) < costs[2]
    for gram, on_line in ((wide, True), (ExactGram(entries=narrow, scale=0.01, common=0.0), False)):
        moments = ring_moments(gram, 4, deadline=Deadline())
        assert (moments.error == _line_moments(gram, 4).error) is on_line
