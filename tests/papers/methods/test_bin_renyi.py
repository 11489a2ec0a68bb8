"""Moments of a mixture of bins against enumeration, closed forms and each other; the accountant built on them."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.moments.bands import (
    band,
    banded_cost,
    banded_moments,
    dense_cost,
    dense_moments,
    ring_maxima,
    scaled_gram,
)
from hockeystick.moments.log_moments import LogMoments
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.identity import Identity
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side
from hockeystick_papers import renyi
from hockeystick_papers.bin_renyi import ACCOUNTANT, _convex, remove_moments

Array = np.ndarray
LARGEST = 6


def bsr_pair(steps: int, bands: int, bins: int, sigma: float) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=BandedSquareRoot(bands=bands).matrix(steps), bins=bins)


def enumerated(scaled: Array, order: int) -> mp.mpf:
    """E X^a as a sum over all ways to draw a bins, in 40 digits."""
    bins = len(scaled)
    with mp.workdps(40):
        total = mp.mpf(0)
        for counts in itertools.product(range(order + 1), repeat=bins):
            if sum(counts) == order:
                exponent = mp.mpf(0)
                for i, r in enumerate(counts):
                    exponent += mp.mpf(scaled[i, i]) * (r * (r - 1)) / 2
                    for j in range(i):
                        exponent += mp.mpf(scaled[i, j]) * (r * counts[j])
                total += mp.exp(exponent) / math.prod(math.factorial(r) for r in counts)
        return math.factorial(order) * total / mp.mpf(bins) ** order


def quickly_enumerated(scaled: Array, order: int) -> float:
    """The same in doubles, all summands positive."""
    bins = len(scaled)
    counts = np.array([c for c in itertools.product(range(order + 1), repeat=bins) if sum(c) == order], dtype=float)
    exponent = 0.5 * np.einsum("ni,ij,nj->n", counts, scaled, counts) - 0.5 * counts @ np.diag(scaled)
    ways = np.array([math.factorial(order) // math.prod(math.factorial(int(r)) for r in c) for c in counts])
    return math.fsum(ways * np.exp(exponent)) / bins**order


def distances(bins: int) -> Array:
    gap = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
    return np.minimum(gap, bins - gap)


def reduced(scaled: Array, bandwidth: int) -> Array:
    """The matrix that a bandwidth stands for, by its definition."""
    outside = distances(len(scaled)) >= bandwidth
    common = scaled[outside].max(initial=0.0)
    return np.where(outside, common, np.maximum(scaled, common))


def random_matrix(rng: np.random.Generator, bins: int, kind: str) -> Array:
    scale = float(rng.choice([0.2, 1.0, 3.0]))
    half = rng.uniform(0.0, scale, (bins, bins))
    matrix = 0.5 * (half + half.T)
    if kind == "banded":  # tau = 0 from bandwidth 2 on
        matrix[distances(bins) >= 2] = 0.0
    if kind == "decaying":
        matrix *= 0.5 ** distances(bins)
        matrix[np.diag_indices(bins)] += scale
    if kind == "far":  # entries of the band, and some of the diagonal, are below tau
        matrix[distances(bins) == bins // 2] += scale
    return matrix


# --- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["any", "banded", "decaying", "far"])
@pytest.mark.parametrize("bins", [1, 2, 3, 4, 5, 6])
def test_every_reduction_against_enumeration(bins: int, kind: str) -> None:
    rng = np.random.default_rng([bins, len(kind)])
    for _ in range(3):
        scaled = random_matrix(rng, bins, kind)
        dense = np.exp(dense_moments(scaled, 4).values)
        np.testing.assert_allclose(dense, [quickly_enumerated(scaled, a) for a in (2, 3, 4)], rtol=1e-10)
        for bandwidth in (1, 2, 3):
            matrix = reduced(scaled, bandwidth)
            circulant = ring_maxima(matrix)[distances(bins)]
            for share, target in ((False, matrix), (True, circulant)):
                moments = banded_moments(scaled, bandwidth, LARGEST, share=share)
                expected = [quickly_enumerated(target, a) for a in range(2, LARGEST + 1)]
                np.testing.assert_array_equal(moments.orders, np.arange(2, LARGEST + 1))
                np.testing.assert_allclose(np.exp(moments.values), expected, rtol=1e-10)


@pytest.mark.parametrize(("bins", "bandwidth"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 1), (5, 3)])
def test_moments_are_never_below_those_in_many_digits(bins: int, bandwidth: int) -> None:
    scaled = random_matrix(np.random.default_rng(bins), bins, "decaying")
    matrix = reduced(scaled, bandwidth)
    moments = banded_moments(scaled, bandwidth, 5)
    with mp.workdps(40):
        for order, value in zip(moments.orders, moments.values, strict=True):
            error = mp.mpf(value) - mp.log(enumerated(matrix, int(order)))
            assert 0 <= error < 1e-10
        for order, value in enumerate(dense_moments(scaled, 4).values, 2):
            assert 0 <= mp.mpf(value) - mp.log(enumerated(scaled, order)) < 1e-10


@pytest.mark.parametrize("largest", [2, 3, 5, 9])
def test_a_smaller_largest_order_changes_nothing(largest: int) -> None:
    scaled = random_matrix(np.random.default_rng(7), 12, "decaying")
    for share in (False, True):
        whole = banded_moments(scaled, 3, 10, share=share)
        part = banded_moments(scaled, 3, largest, share=share)
        np.testing.assert_allclose(part.values, whole.values[: largest - 1], rtol=1e-11)


@pytest.mark.parametrize(("sigma", "bins"), [(0.7, 2), (1.0, 7), (2.0, 60), (5.0, 1000)])
def test_orthogonal_bins_give_the_power_series(sigma: float, bins: int) -> None:
    expected = renyi.averaged_moments(sigma, bins, 24)
    scaled = np.eye(bins) / sigma**2
    for bandwidth, share in ((1, False), (2, True), (3, True)):
        if bandwidth > 1 and bins < 24 * (bandwidth - 1):
            continue
        moments = banded_moments(scaled, bandwidth, 24, share=share)
        np.testing.assert_allclose(moments.values, expected.values, rtol=1e-9, atol=1e-10)


def test_weights_of_their_own_against_the_product_of_blocks() -> None:
    """Bins in separate pairs are independent: the series of the ring is the product of those of its pairs."""
    rng = np.random.default_rng(3)
    bins, largest = 24, 9
    scaled = np.diag(rng.uniform(0.2, 1.0, bins))
    product = np.polynomial.Polynomial([1.0])
    for i in range(0, bins, 2):
        scaled[i, i + 1] = scaled[i + 1, i] = rng.uniform(0.0, 0.2)
        pair = scaled[i : i + 2, i : i + 2]
        series = [quickly_enumerated(pair, a) * 2.0**a / math.factorial(a) for a in range(largest + 1)]
        product = (product * np.polynomial.Polynomial(series)).cutdeg(largest)
    expected = [product.coef[a] * math.factorial(a) / bins**a for a in range(2, largest + 1)]
    for bandwidth in (2, 3, 4):  # bandwidth 4 has draws without a gap from order 8 on
        moments = banded_moments(scaled, bandwidth, 7 if bandwidth == 4 else largest)
        np.testing.assert_allclose(np.exp(moments.values), expected[: moments.orders.size], rtol=1e-10)


def test_place_of_the_seam_does_not_matter() -> None:
    scaled = random_matrix(np.random.default_rng(11), 15, "decaying")
    first = banded_moments(scaled, 3, 9)
    for turn in (1, 4, 7):
        turned = np.roll(scaled, (turn, turn), axis=(0, 1))
        np.testing.assert_allclose(banded_moments(turned, 3, 9).values, first.values, rtol=1e-11)
    np.testing.assert_allclose(banded_moments(scaled[::-1, ::-1], 3, 9).values, first.values, rtol=1e-11)


def test_little_noise_neither_overflows_nor_loses_the_bound() -> None:
    """With S = 1000 and more the moment is that of the largest diagonal entry, ``exp(S a (a-1) / 2) b^-a``."""
    scaled = 1000.0 * np.eye(40) + 300.0 * (distances(40) == 1)
    scaled[5, 5] = 1100.0
    orders = np.arange(2.0, 16.0)
    for share in (False, True):
        heaviest = np.log(40.0) if share else 0.0
        expected = 550.0 * orders * (orders - 1.0) - orders * math.log(40.0) + heaviest
        moments = banded_moments(scaled, 2, 15, share=share)
        assert np.all(moments.values >= expected)
        np.testing.assert_allclose(moments.values, expected, rtol=1e-9)
    dense = dense_moments(scaled, 4).values
    np.testing.assert_allclose(dense, 550.0 * orders[:3] * (orders[:3] - 1) - orders[:3] * math.log(40), rtol=1e-9)


def test_wider_bands_are_tighter_and_the_whole_matrix_tightest() -> None:
    pair = bsr_pair(160, 8, 16, 4.0)
    scaled = scaled_gram(pair.gram, pair.rounding, pair.noise_multiplier)
    previous = np.full(3, np.inf)
    for bandwidth in range(1, 7):
        values = banded_moments(scaled, bandwidth, 4).values
        assert np.all(values <= previous * (1.0 + 1e-12))
        assert np.all(banded_moments(scaled, bandwidth, 4, share=True).values >= values * (1.0 - 1e-12))
        previous = values
    assert np.all(dense_moments(scaled, 4).values <= previous * (1.0 + 1e-12))


def test_a_ring_is_never_below_the_matrix() -> None:
    scaled = random_matrix(np.random.default_rng(5), 9, "any")
    for bandwidth in range(1, 7):
        for part in (band(scaled, bandwidth), band(scaled, bandwidth).shared()):
            rows = part.diagonal.size
            for i, j in itertools.combinations_with_replacement(range(9), 2):
                late, gap = (j, j - i) if j - i <= 4 else (i, 9 - (j - i))
                entry = part.diagonal[i % rows] if gap == 0 else 0.0
                if 0 < gap <= part.reach:
                    entry = part.band[late % rows, gap - 1]
                assert entry + part.common >= scaled[i, j] * (1.0 - 1e-15)


def test_too_many_draws_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'largest' argument"):
        banded_moments(np.eye(1000), 2, 100)
    assert banded_cost(1000, 1, 100, True) == math.inf


def test_costs_grow_with_what_they_are_for() -> None:
    assert banded_cost(100, 3, 32, True) < banded_cost(100, 3, 32, False)
    assert banded_cost(100, 2, 20, True) < banded_cost(100, 3, 20, True) < banded_cost(100, 3, 32, True)
    assert banded_cost(10, 2, 9, False) > 5 * banded_cost(100, 2, 9, False) / 10
    assert dense_cost(300, 2) < dense_cost(300, 3) < dense_cost(300, 4)


# --- accountant -------------------------------------------------------------------------------------------------------


def test_convex_hull_of_bounds() -> None:
    orders = np.arange(2.0, 7.0)
    bounds = [LogMoments(orders[:2], np.array([1.0, 2.5])), LogMoments(orders, np.array([2.0, 4.0, 6.0, 6.5, 9.0]))]
    joined = _convex(bounds)
    np.testing.assert_array_equal(joined.orders, orders)
    np.testing.assert_allclose(joined.values, [1.0, 2.5, 4.5, 6.5, 9.0], rtol=1e-14)


def test_one_bin_is_a_gaussian() -> None:
    """X is log-normal: the moments are ``exp(S a (a-1) / 2)``, the profiles close to the Gaussian's and above it."""
    pair = bsr_pair(50, 4, 1, 20.0)
    size = float(pair.gram[0, 0]) / 400.0
    moments = remove_moments(pair, Settings())
    np.testing.assert_allclose(moments.values, 0.5 * size * moments.orders * (moments.orders - 1.0), rtol=1e-10)
    bound = ACCOUNTANT.bound(pair, Side.UPPER)
    for epsilon in (0.5, 2.0, 5.0):
        exact = gaussian_delta(1.0, math.sqrt(size), epsilon, Side.LOWER)
        for profile in bound.profiles.values():
            assert exact <= profile(epsilon) <= 8.0 * exact


def test_identity_matrix_agrees_with_random_allocation() -> None:
    pair = BinMixture(noise_multiplier=2.0, matrix=Identity().matrix(60), bins=30)
    expected = renyi.averaged_moments(2.0 / math.sqrt(2.0), 30, 20)
    moments = remove_moments(pair, Settings())
    np.testing.assert_allclose(moments.values[:19], expected.values, rtol=1e-9, atol=1e-10)


def test_bound_is_above_simulation() -> None:
    """The remove profile by 4e5 seeded draws from P; ``1 - e^eps / X`` is in [0, 1], so Hoeffding at 6e-8 a point."""
    pair = bsr_pair(24, 3, 6, 2.0)
    bound = ACCOUNTANT.bound(pair, Side.UPPER, Settings(deadline=Deadline(seconds=20.0)))
    rng, draws = np.random.default_rng(2), 400_000
    scaled = np.asarray(pair.gram) / 4.0
    root = np.linalg.cholesky(scaled)
    noise = rng.standard_normal((draws, 6)) @ root.T
    log_x = np.logaddexp.reduce(noise + scaled[rng.integers(6, size=draws)] - 0.5 * np.diag(scaled), axis=1) - np.log(6)
    log_y = np.logaddexp.reduce(noise - 0.5 * np.diag(scaled), axis=1) - np.log(6)
    margin = math.sqrt(math.log(1.0 / 6e-8) / (2 * draws))
    for epsilon in (0.25, 0.75, 1.25):
        removed = float(np.maximum(-np.expm1(epsilon - log_x), 0.0).mean())
        added = float(np.maximum(-np.expm1(epsilon + log_y), 0.0).mean())
        assert removed > 3 * margin  # else the test could not fail
        assert bound.profiles[Direction.REMOVE](epsilon) >= removed - margin
        assert bound.profiles[Direction.ADD](epsilon) >= added - margin
        assert bound.profiles[Direction.REMOVE](epsilon) <= 3.0 * (removed + margin)


def test_budget_chooses_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is started whose estimated cost is beyond the time, and a run out of time says so."""
    pair, costs = bsr_pair(120, 6, 40, 4.0), []

    def recorded(
        scaled: Array, bandwidth: int, largest: int, *, share: bool = False, deadline: Deadline | None = None
    ) -> LogMoments:
        if bandwidth > 1:
            costs.append(banded_cost(len(scaled), bandwidth - 1, largest, share))
        return banded_moments(scaled, bandwidth, largest, share=share, deadline=deadline)

    monkeypatch.setattr("hockeystick.moments.bands.banded_moments", recorded)
    short = remove_moments(pair, Settings(deadline=Deadline(seconds=2.0)))
    assert costs
    assert sum(costs) <= 1.0
    assert np.all(np.diff(short.values) > 0.0)
    with pytest.raises(BudgetExceededError):
        remove_moments(pair, Settings(deadline=Deadline(seconds=0.0)))


def test_rounding_of_the_gram_matrix_is_added() -> None:
    pair = bsr_pair(40, 4, 10, 3.0)
    assert np.all(
        scaled_gram(pair.gram, pair.rounding, pair.noise_multiplier)
        >= np.asarray(pair.gram) * (1.0 + pair.rounding) / 9.0
    )
    assert pair.rounding > UNIT_ROUNDOFF
