"""The second computation of moments against sums over all tuples in 40 digits; every small mistake is found."""

import itertools
from fractions import Fraction
from math import comb

import mpmath as mp
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, UnsupportedError
from hockeystick.moments import recheck as module
from hockeystick.moments.bands import dense_moments
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.recheck import recheck, recheck_cost, recheck_on_ranges, sums_on_ranges

Array = np.ndarray


def gram_of(means: Array, scale: float) -> ExactGram:
    entries = means.T @ means
    return ExactGram(entries=np.maximum(entries, entries.T), scale=scale, common=0.0)


def ring_gram(first: list[float], scale: float) -> ExactGram:
    bins = len(first)
    entries = np.array([[first[min((i - j) % bins, (j - i) % bins)] for j in range(bins)] for i in range(bins)])
    return ExactGram(entries=entries, scale=scale, common=0.0)


def banded_gram(bins: int) -> ExactGram:
    """Reach 1, no two entries of a kind equal."""
    place = np.arange(bins)
    entries = np.diag(1.0 + 0.1 * place)
    entries[place, (place + 1) % bins] = entries[(place + 1) % bins, place] = 0.2 + 0.02 * place
    return ExactGram(entries=entries, scale=0.6, common=0.0)


def line_gram(bins: int) -> ExactGram:
    """Reach 2, nothing passes the seam, no two entries of a kind equal."""
    place = np.arange(bins)
    distance = np.abs(place[:, None] - place)
    entries = np.where(distance <= 2, (1.0 + 0.05 * (place[:, None] + place)) / (1.0 + distance), 0.0)
    return ExactGram(entries=entries, scale=0.6, common=0.0)


def wide_gram(bins: int, scale: float) -> ExactGram:
    return gram_of(np.random.default_rng(7).uniform(0.0, 1.0, (bins + 2, bins)), scale)


def true_moments(gram: ExactGram, largest: int) -> ExactMoments:
    """The mean over all tuples of draws of the product, over their pairs, of e^S."""
    values = []
    with mp.workdps(40):
        factors = [[mp.exp(mp.mpf(gram.scale) * mp.mpf(x)) for x in row] for row in gram.entries.tolist()]
        for order in range(largest + 1):
            total = mp.mpf(0)
            for draws in itertools.combinations_with_replacement(range(gram.bins), order):
                ways = mp.factorial(order)
                for _, group in itertools.groupby(draws):
                    ways /= mp.factorial(len(list(group)))
                for i, j in itertools.combinations(draws, 2):
                    ways *= factors[i][j]
                total += ways
            value = total / mp.mpf(gram.bins) ** order
            values.append(Fraction(int(mp.nint(value * mp.mpf(2) ** 120)), 2**120))
    return ExactMoments(values=tuple(values), error=Fraction(1, 10**25))


CASES = {
    "wide": (wide_gram(6, 0.4), 6),
    "wide, long": (wide_gram(3, 0.3), 9),
    "wide, low noise": (wide_gram(5, 14.0), 4),
    "circulant": (ring_gram([2.0, 1.1, 0.7, 0.3], 0.5), 5),
    "circulant, even": (ring_gram([*[2.0, 1.1, 0.7, 0.3, 0.2][:4], 0.1, 0.3], 0.5), 4),
    "narrow": (banded_gram(7), 5),
    "narrow, along a line": (line_gram(8), 5),
    "narrow, no gap": (banded_gram(4), 6),
    "narrow, circulant": (ring_gram([1.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0], 0.7), 6),
    "independent": (ring_gram([1.0, 0.0, 0.0, 0.0, 0.0], 1.3), 6),
    "one bin": (ring_gram([1.0], 1.3), 5),
    "order two": (wide_gram(4, 1.0), 2),
    "circulant, order two": (ring_gram([1.0, 0.5, 0.2], 1.0), 2),
    "order one": (wide_gram(4, 1.0), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_right_moments_pass_and_wrong_ones_do_not(case: str) -> None:
    gram, largest = CASES[case]
    moments = true_moments(gram, largest)
    recheck(gram, moments, deadline=Deadline())
    assert 0.0 <= recheck_cost(gram, largest) < 1.0
    for order in range(largest + 1):
        for change in (Fraction(1, 10**6), Fraction(-1, 10**6)):
            values = list(moments.values)
            values[order] *= 1 + change
            with pytest.raises(UnsupportedError, match=f"order {order} disagree"):
                recheck(gram, ExactMoments(values=tuple(values), error=moments.error), deadline=Deadline())


@pytest.mark.parametrize("case", [case for case, (_, largest) in CASES.items() if largest >= 2])
@pytest.mark.parametrize("piece", [1, 30, 10**9])
def test_both_ways_are_close_to_the_truth(case: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself, whichever is cheaper, and however the enumeration is cut."""
    monkeypatch.setattr(module, "PIECE", piece)
    gram, largest = CASES[case]
    logs = np.array(
        [float(mp.log(mp.mpf(v.numerator) / v.denominator)) for v in true_moments(gram, largest).values[2:]]
    )
    enumerated = module._enumerated_logs(gram, largest, Deadline())
    assert np.abs(enumerated - logs).max() <= module._enumeration_error(gram, largest) <= 1e-9
    if piece == 1 and np.isfinite(module._banded_cost(gram, largest)):
        assert np.abs(module._banded_logs(gram, largest, Deadline()) - logs).max() <= 1e-9


def test_whole_lengths_of_vector_code() -> None:
    """Enough bins for every loop to run full, against matrix products."""
    for bins in (37, 40):
        gram = wide_gram(bins, 0.05)
        expected = dense_moments(gram.entries * gram.scale, 4).values
        assert np.abs(module._enumerated_logs(gram, 4, Deadline()) - expected).max() <= 1e-11


def test_refuses_where_nothing_is_exact_enough() -> None:
    """Moments beyond the range of doubles, and so many summands that their rounding would hide a mistake."""
    moments = ExactMoments(values=(Fraction(1),) * 13, error=Fraction(0))
    for gram in (wide_gram(40, 20.0), wide_gram(200, 0.01)):
        assert recheck_cost(gram, 12) == float("inf")
        with pytest.raises(UnsupportedError, match="No second computation"):
            recheck(gram, moments, deadline=Deadline())


def test_stops_when_the_budget_is_over() -> None:
    gram = wide_gram(30, 0.05)
    moments = ExactMoments(values=(Fraction(1),) * 5, error=Fraction(0))
    with pytest.raises(BudgetExceededError):
        recheck(gram, moments, deadline=Deadline(seconds=0.0))


def test_cost_knows_of_structure() -> None:
    narrow, wide = banded_gram(60), wide_gram(60, 0.05)
    assert recheck_cost(narrow, 8) < 0.01 * recheck_cost(wide, 8)
    circulant = ring_gram([2.0 - 0.05 * d for d in range(31)] + [0.0] * 29, 0.05)
    assert recheck_cost(circulant, 6) < 0.5 * recheck_cost(wide, 6)
    assert comb(65, 6) * 1e-11 < recheck_cost(wide, 6) < comb(65, 6) * 1e-7


@pytest.mark.parametrize("spread", [0.0, 1.0 / 64.0])
def test_a_wrong_moment_on_any_range_is_found(spread: float) -> None:
    """Also where the range holds 1e-15 of the whole, which the sum over all ranges does not see."""
    weights, means = np.array([0.5, 2.0, 0.25]), np.array([0.0, 0.7, 1.9])
    edges = np.array([-3.0, 0.0, 2.0, 6.0, 10.0])
    offsets = np.array([spread, -0.7 * spread, 0.2 * spread])

    def stated(change: float, place: int) -> list[ExactMoments]:
        borders = [-mp.inf, *edges.tolist(), mp.inf]
        parts = []
        for i, (low, high) in enumerate(itertools.pairwise(borders)):
            each = [mp.ncdf(high - mean) - mp.ncdf(low - mean) for mean in (means + offsets).tolist()]
            value = sum(weight * each[j] for j, weight in enumerate(weights.tolist()))
            factor = 1.0 + change * (i == place)
            parts.append(ExactMoments(values=(Fraction(float(value) * factor),), error=Fraction(1, 2**90)))
        return parts

    powers = weights[:, None] * offsets[:, None] ** np.arange(14)
    with mp.workdps(40):
        sums = sums_on_ranges(powers, means, edges)
        recheck_on_ranges(sums, 0, stated(0.0, 0))
        for place in range(edges.size + 1):
            for change in (1e-6, -1e-6):
                with pytest.raises(UnsupportedError, match="not confirmed"):
                    recheck_on_ranges(sums, 0, stated(change, place))
