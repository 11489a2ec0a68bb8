"""Moments on a ring against enumeration in many digits, exact counts, other programmes and each other."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from hockeystick.moments import bands as bin_moments
from hockeystick.moments import ring as ring_module
from hockeystick.moments.double_double import rational
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.ring import (
    along_line,
    chain_count,
    clusters_by_bins,
    clusters_by_draws,
    in_sweep,
    line_factors,
    needs_gapless,
    relative_error,
    ring_cost,
    ring_factors,
    ring_moments,
    sweep_cost,
    sweep_error,
    sweep_factors,
    with_gap,
    without_gap,
)

Array = np.ndarray
WAYS = {"bins": clusters_by_bins, "draws": clusters_by_draws}


def ring_distances(bins: int) -> Array:
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    return np.minimum(gap, bins - gap)


def banded(bins: int, reach: int, *, seed: int, circulant: bool, scale: float = 0.73) -> ExactGram:
    """Random non-negative entries up to a ring distance; the identity needs no positive semidefinite matrix."""
    rng, distance = np.random.default_rng(seed), ring_distances(bins)
    entries = rng.uniform(0.0, 1.0, bins)[distance] if circulant else rng.uniform(0.0, 1.0, (bins, bins))
    return ExactGram(entries=np.where(distance <= reach, np.maximum(entries, entries.T), 0.0), scale=scale, common=0.0)


def over_all_tuples(gram: ExactGram, order: int) -> mp.mpf:
    """E X^order as a sum over sorted tuples of bins, each as often as it can be ordered, in 50 digits."""
    with mp.workdps(50):
        factor = [[mp.exp(mp.mpf(float(x)) * mp.mpf(gram.scale)) for x in row] for row in gram.entries]
        total = mp.mpf(0)
        for draw in itertools.combinations_with_replacement(range(gram.bins), order):
            orders = math.factorial(order) // math.prod(math.factorial(draw.count(i)) for i in set(draw))
            total += orders * mp.fprod(factor[i][j] for i, j in itertools.combinations(draw, 2))
        return total / mp.mpf(gram.bins) ** order


def deviation(value: Fraction, truth: mp.mpf) -> float:
    """Relative to the value."""
    with mp.workdps(50):
        return float(abs(1 - truth * value.denominator / value.numerator))


def apart(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> float:
    return max(float(abs(x / y - 1)) for x, y in zip(a, b, strict=True))


def sums_by(gram: ExactGram, largest: int, way: str) -> tuple[tuple[Fraction, ...], Fraction]:
    """The moments with the clusters summed in one given way, and their error."""
    ring, deadline = ring_factors(gram, largest), Deadline()
    total = with_gap(ring, WAYS[way](ring, deadline), deadline)
    sums = [rational(pair) for pair in total]
    if needs_gapless(ring.bins, ring.reach, largest):
        rest = without_gap(ring, deadline)
        sums = [s + rational(pair) for s, pair in zip(sums, rest, strict=True)]
    values = tuple(s * math.factorial(m) / gram.bins**m for m, s in enumerate(sums))
    return values, relative_error(ring, by_bins=way == "bins")


# (bins, reach, largest): all draws leave a gap, some leave none, opposite bins met once, a single bin
SMALL = [(1, 0, 4), (2, 1, 4), (3, 1, 5), (4, 2, 4), (5, 0, 4), (5, 1, 4), (5, 2, 5), (6, 1, 5), (6, 3, 4), (7, 2, 4)]
SMALL += [(7, 3, 4), (8, 1, 5), (8, 2, 5), (8, 3, 4), (8, 4, 3)]


@pytest.mark.parametrize("circulant", [False, True])
@pytest.mark.parametrize(("bins", "reach", "largest"), SMALL)
def test_every_way_is_the_sum_over_all_tuples(bins: int, reach: int, largest: int, circulant: bool) -> None:
    gram = banded(bins, reach, seed=bins + reach, circulant=circulant)
    truth = [over_all_tuples(gram, order) for order in range(largest + 1)]
    chosen = ring_moments(gram, largest, deadline=Deadline())
    results = [(chosen.values, chosen.error)]
    results += [sums_by(gram, largest, way) for way in (WAYS if bins > 1 else ["draws"])]
    for values, error in results:
        assert len(values) == largest + 1
        assert error < Fraction(1, 10**27)
        assert max(deviation(v, t) for v, t in zip(values, truth, strict=True)) <= float(error)


@pytest.mark.parametrize(
    ("bins", "reach", "largest", "circulant"),
    [
        (100, 3, 8, False),
        (36, 3, 12, True),
        (35, 4, 9, False),
        (100, 21, 5, True),
        (21, 10, 5, False),
        (20, 10, 5, True),
    ],
)
def test_every_way_to_draw_is_counted_once(bins: int, reach: int, largest: int, circulant: bool) -> None:
    """Entries so small that all factors are 1: X = 1. The distances decide which draws have gaps all the same."""
    entries = np.where(ring_distances(bins) <= reach, 1e-200, 0.0)
    gram = ExactGram(entries=entries, scale=1e-20, common=0.0)
    if not circulant:
        vars(gram)["is_circulant"] = False
    assert gram.reach == reach
    moments = ring_moments(gram, largest, deadline=Deadline())
    assert max(abs(value - 1) for value in moments.values) <= 2 * moments.error
    assert moments.values[:2] == (1, 1)


@pytest.mark.parametrize(("bins", "reach", "largest"), [(40, 3, 6), (23, 5, 5), (30, 1, 7), (9, 4, 6)])
@pytest.mark.parametrize("circulant", [False, True])
def test_growing_by_bins_and_by_draws_agree(bins: int, reach: int, largest: int, circulant: bool) -> None:
    gram = banded(bins, reach, seed=5, circulant=circulant, scale=2.0)
    by_bins, by_draws = (sums_by(gram, largest, way) for way in WAYS)
    assert apart(by_bins[0], by_draws[0]) <= float(by_bins[1] + by_draws[1])


@pytest.mark.parametrize(("largest", "by_bins"), [(5, False), (7, True), (9, True)])
def test_clusters_grow_by_bins_unless_draws_are_far_cheaper(largest: int, by_bins: bool) -> None:
    """Told by the stated error. At order 7 the estimate for draws is the lower one, by less than half."""
    gram = banded(100, 3, seed=5, circulant=False)
    factors = ring_factors(gram, largest)
    errors = {way: relative_error(factors, by_bins=way) for way in (False, True)}
    assert errors[True] != errors[False]
    assert ring_moments(gram, largest, deadline=Deadline()).error == errors[by_bins]


@pytest.mark.parametrize(("bins", "reach", "largest"), [(50, 2, 8), (13, 3, 6), (40, 15, 4)])
def test_one_first_bin_stands_for_all_where_the_matrix_is_circulant(bins: int, reach: int, largest: int) -> None:
    gram, general = (banded(bins, reach, seed=7, circulant=True) for _ in range(2))
    vars(general)["is_circulant"] = False
    shared, each = (ring_moments(g, largest, deadline=Deadline()) for g in (gram, general))
    assert ring_cost(gram, largest) < ring_cost(general, largest)
    assert apart(shared.values, each.values) <= min(1e-27, float(shared.error + each.error))


@pytest.mark.parametrize(("bins", "reach", "largest"), [(100, 3, 4), (30, 9, 4), (25, 12, 4)])
def test_all_draws_along_a_line_give_the_same(bins: int, reach: int, largest: int) -> None:
    gram = banded(bins, reach, seed=11, circulant=False)
    factors = line_factors(gram, largest)
    line = [
        rational(pair) * math.factorial(m) / bins**m for m, pair in enumerate(along_line(factors, Deadline()).tolist())
    ]
    ring, error = sums_by(gram, largest, "draws")
    assert apart(ring, tuple(line)) <= float(error + relative_error(factors, by_bins=False))


def on_a_line(bins: int, reach: int, *, seed: int, scale: float = 0.73) -> ExactGram:
    """The same random entries, but for those that pass the seam."""
    whole, place = banded(bins, reach, seed=seed, circulant=False, scale=scale), np.arange(bins)
    passes = np.abs(np.subtract.outer(place, place)) > reach
    return ExactGram(entries=np.where(passes, 0.0, whole.entries), scale=scale, common=0.0)


def by_sweep(gram: ExactGram, largest: int) -> tuple[tuple[Fraction, ...], Fraction]:
    """The moments in one sweep along the bins, and their error."""
    factors = sweep_factors(gram, largest)
    sums = [rational(pair) for pair in in_sweep(factors, Deadline())]
    return tuple(s * math.factorial(m) / gram.bins**m for m, s in enumerate(sums)), sweep_error(factors)


@pytest.mark.parametrize(
    ("bins", "reach", "largest"), [(1, 0, 4), (2, 1, 5), (5, 0, 4), (6, 1, 5), (7, 2, 4), (6, 4, 4)]
)
def test_a_sweep_is_the_sum_over_all_tuples(bins: int, reach: int, largest: int) -> None:
    """On a line, and where every bin is within the span of every other, on a ring too."""
    for gram in (on_a_line(bins, reach, seed=bins), banded(bins, bins // 2, seed=bins, circulant=False)):
        values, error = by_sweep(gram, largest)
        assert error < Fraction(1, 10**27)
        assert values[:2] == (1, 1) or abs(values[1] - 1) <= error
        for order in range(2, largest + 1):
            assert deviation(values[order], over_all_tuples(gram, order)) <= float(error)


@pytest.mark.parametrize(("bins", "reach", "largest"), [(40, 3, 6), (25, 6, 5), (60, 1, 8)])
def test_a_sweep_gives_what_clusters_give_and_is_chosen(bins: int, reach: int, largest: int) -> None:
    gram = on_a_line(bins, reach, seed=3, scale=2.0)
    swept, clusters, chosen = by_sweep(gram, largest), sums_by(gram, largest, "draws"), ring_moments
    assert apart(swept[0], clusters[0]) <= float(swept[1] + clusters[1])
    assert ring_cost(gram, largest) == sweep_cost(bins, reach, largest)
    assert chosen(gram, largest, deadline=Deadline()).values == swept[0]


def test_the_deadline_stops_a_sweep() -> None:
    with pytest.raises(BudgetExceededError):
        in_sweep(sweep_factors(on_a_line(12, 2, seed=31), 4), Deadline(seconds=0.0))


def test_the_programme_in_doubles_gives_the_same() -> None:
    gram = banded(100, 3, seed=13, circulant=False, scale=0.4)
    moments = ring_moments(gram, 8, deadline=Deadline())
    logs = bin_moments.banded_moments(gram.entries * gram.scale, 4, 8).values
    assert np.exp(logs) == pytest.approx([float(v) for v in moments.values[2:]], rel=1e-10)


def test_bins_that_do_not_interact_are_a_product_of_series() -> None:
    gram = banded(60, 0, seed=17, circulant=False)
    moments = ring_moments(gram, 6, deadline=Deadline())
    with mp.workdps(50):
        series = [mp.mpf(1)] + [mp.mpf(0)] * 6
        for own in np.diag(gram.entries):
            factor = [mp.exp(mp.mpf(float(own)) * gram.scale * r * (r - 1) / 2) / math.factorial(r) for r in range(7)]
            series = [mp.fsum(factor[r] * series[m - r] for r in range(m + 1)) for m in range(7)]
        truth = [s * math.factorial(m) / mp.mpf(60) ** m for m, s in enumerate(series)]
    assert max(deviation(v, t) for v, t in zip(moments.values, truth, strict=True)) <= float(moments.error)


def test_large_exponents_stay_within_the_error() -> None:
    """Weights up to e^300, near the limit of what is taken."""
    gram = banded(6, 2, seed=19, circulant=False, scale=50.0)
    moments = ring_moments(gram, 4, deadline=Deadline())
    for order in (2, 3, 4):
        assert deviation(moments.values[order], over_all_tuples(gram, order)) <= float(moments.error)


rings = st.tuples(
    st.integers(5, 12), st.integers(1, 4), st.integers(3, 5), st.integers(0, 2**20), st.sampled_from([0.1, 1.0, 4.0])
)


@given(rings, st.integers(0, 11))
@settings(max_examples=25)
def test_turning_and_reflecting_the_ring_change_nothing(case: tuple[int, int, int, int, float], turn: int) -> None:
    bins, reach, largest, seed, scale = case
    gram = banded(bins, reach, seed=seed, circulant=False, scale=scale)
    place = (turn - np.arange(bins)) % bins
    other = ExactGram(entries=np.ascontiguousarray(gram.entries[np.ix_(place, place)]), scale=scale, common=0.0)
    a, b = (ring_moments(g, largest, deadline=Deadline()) for g in (gram, other))
    assert apart(a.values, b.values) <= float(a.error + b.error)


@given(rings, st.integers(0, 11), st.integers(0, 4))
@settings(max_examples=25)
def test_a_larger_entry_makes_every_order_larger(case: tuple[int, int, int, int, float], i: int, distance: int) -> None:
    bins, reach, largest, seed, scale = case
    gram = banded(bins, reach, seed=seed, circulant=False, scale=scale)
    raised, i, j = gram.entries.copy(), i % bins, (i + distance) % bins
    raised[i, j] = raised[j, i] = raised[i, j] + 1e-3
    below = ring_moments(gram, largest, deadline=Deadline())
    above = ring_moments(ExactGram(entries=raised, scale=scale, common=0.0), largest, deadline=Deadline())
    assert all(x < y for x, y in zip(below.values[2:], above.values[2:], strict=True))


def test_lower_orders_do_not_depend_on_the_highest() -> None:
    gram = banded(20, 2, seed=23, circulant=False)
    high = ring_moments(gram, 9, deadline=Deadline())
    for largest in (1, 2, 5):
        low = ring_moments(gram, largest, deadline=Deadline())
        assert low.degree == largest
        assert apart(low.values, high.values[: largest + 1]) <= float(low.error + high.error)


@pytest.mark.parametrize("circulant", [False, True])
def test_pieces_of_work_add_up(circulant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gram = banded(14, 3, seed=29, circulant=circulant)  # draws with and without a gap
    whole, whole_deadline, deadline = sums_by(gram, 6, "draws"), Deadline(), Deadline()
    clusters_by_draws(ring_factors(gram, 6), whole_deadline)
    monkeypatch.setattr(ring_module, "CHAINS_PER_PIECE", 20.0)
    pieces = sums_by(gram, 6, "draws")
    clusters_by_draws(ring_factors(gram, 6), deadline)
    assert deadline.ticks == whole_deadline.ticks * 4**3  # three steps of 0..3 are fixed, all of them within the ring
    assert pieces[1] > whole[1]  # the sums over pieces are charged
    assert apart(whole[0], pieces[0]) <= float(whole[1] + pieces[1])


def test_the_count_of_chains() -> None:
    for draws, reach, least, most in [(4, 3, 0, 20), (4, 3, 2, 5), (5, 1, 3, 3), (3, 6, 10, 12), (3, 2, 5, 9)]:
        steps = itertools.product(range(reach + 1), repeat=draws - 1)
        assert chain_count(draws, reach, least, most) == sum(least <= sum(s) <= most for s in steps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("circulant", [False, True])
def test_the_deadline_stops_it(way: str, circulant: bool) -> None:
    ring = ring_factors(banded(12, 2, seed=31, circulant=circulant), 4)
    with pytest.raises(BudgetExceededError):
        WAYS[way](ring, Deadline(seconds=0.0))
    with pytest.raises(BudgetExceededError):
        without_gap(ring, Deadline(seconds=0.0))


def test_what_does_not_fit_is_refused() -> None:
    loud = banded(30, 2, seed=37, circulant=False, scale=100.0)
    assert ring_cost(loud, 5) == math.inf
    assert ring_cost(loud, 3) < math.inf
    with pytest.raises(UnsupportedError, match="too large for doubles"):
        ring_moments(loud, 5, deadline=Deadline())
    many = ExactGram(entries=np.zeros((1, 1)), scale=1.0, common=0.0)
    assert ring_cost(many, 300) == math.inf  # 1 / 300! is not a double
    with pytest.raises(InvalidInputError, match="negative"):
        ring_moments(many, -1, deadline=Deadline())
