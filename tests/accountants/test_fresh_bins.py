"""Random allocation with correlated noise: independent epochs on both sides of the truth."""

from itertools import product
from math import exp, sqrt

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants import bin_filter, comparison, fresh_bins, fresh_epochs
from hockeystick.deadline import Deadline
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side

WORK = Settings(resolution=Resolution(40, 1e-6), effort=0.5)
BANDED = ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 12)


def pair(matrix: object, bins: int, sigma: float) -> FreshBins:
    return FreshBins(noise_multiplier=sigma, matrix=matrix, bins=bins)


def gram(pair: FreshBins) -> np.ndarray:
    columns = pair.matrix.materialize()
    return columns.T @ columns


@pytest.mark.parametrize(
    "matrix", [BANDED, ToeplitzMatrix(np.full(12, 1.0), 12), TreeMatrix(16, 12), TreeMatrix(4, 12)]
)
def test_inner_products_are_those_of_all_columns(matrix: object) -> None:
    fresh = pair(matrix, 4, 1.0)
    band = fresh_bins.diagonals(fresh.matrix, max(fresh.matrix.bands, 4))
    exact = gram(fresh)
    for lag in range(12):
        expected = np.append(np.diagonal(exact, lag), np.zeros(lag))
        diagonal = band[lag] if lag < band.shape[0] else np.zeros(12)
        np.testing.assert_allclose(diagonal, expected, rtol=fresh_bins.rounding_of(fresh.matrix), atol=1e-300)


@pytest.mark.parametrize("sigma", [1.0, 2.5])
@pytest.mark.parametrize("matrix", [BANDED, ToeplitzMatrix(0.8 ** np.arange(12.0), 12), TreeMatrix(4, 12)])
def test_chains_reveal_more_than_all_columns_together(matrix: object, sigma: float) -> None:
    """K - G has no negative eigenvalue, K zero between epochs."""
    fresh = pair(matrix, 4, sigma)
    for chain in fresh_epochs.chains(fresh, Deadline()):
        whole = np.kron(np.eye(3), chain.products)
        assert np.linalg.eigvalsh(whole - gram(fresh)).min() >= 0.0


def test_the_middle_of_a_chain_is_repeated_and_then_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_epochs, "FITTED_BINS", 6)
    fresh = pair(ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 24), 12, 1.0)
    for chain in fresh_epochs.chains(fresh, Deadline()):
        assert chain.scales.size == 12
        assert np.ptp(chain.scales[3:9]) <= 0.5 * np.ptp(chain.scales)
        assert np.linalg.eigvalsh(np.kron(np.eye(2), chain.products) - gram(fresh)).min() >= 0.0


@pytest.mark.parametrize(
    ("matrix", "kinds"),
    [(BANDED, 2), (ToeplitzMatrix(0.8 ** np.arange(12.0), 12), 3), (TreeMatrix(4, 12), 1), (TreeMatrix(16, 12), 2)],
)
def test_epochs_by_themselves_share_no_more_than_they_do(matrix: object, kinds: int) -> None:
    fresh = pair(matrix, 4, 1.0)
    epochs = fresh_bins.epochs_below(fresh)
    assert len(epochs) == kinds
    assert sum(count for _, count in epochs) == 3
    exact, epoch = gram(fresh), 0
    for mixture, count in epochs:
        for _ in range(count):
            block = exact[4 * epoch : 4 * epoch + 4, 4 * epoch : 4 * epoch + 4]
            assert (mixture.gram <= block).all()
            np.testing.assert_allclose(mixture.gram, block, rtol=1e-9)
            epoch += 1


def test_epochs_that_are_more_than_laws_are_lowered_to_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_bins, "MOST_KINDS", 2)
    fresh = pair(ToeplitzMatrix(0.8 ** np.arange(12.0), 12), 3, 1.0)
    epochs = fresh_bins.epochs_below(fresh)
    assert [count for _, count in epochs] == [2, 2]
    exact, epoch = gram(fresh), 0
    for mixture, count in epochs:
        for _ in range(count):
            assert (mixture.gram <= exact[3 * epoch : 3 * epoch + 3, 3 * epoch : 3 * epoch + 3]).all()
            epoch += 1


def test_without_columns_for_an_epoch_there_is_no_lower_bound() -> None:
    """The third column meets both others in rows of the next epoch, where these do not meet each other."""
    entries = np.eye(6)
    entries[[3, 4, 3, 4], [0, 1, 2, 2]] = 1.0
    fresh = pair(DenseMatrix(entries), 3, 1.0)
    block = gram(fresh)[:3, :3]
    assert np.linalg.cholesky(block[::-1, ::-1]).min() < 0.0
    assert fresh_bins.epochs_below(fresh) == []
    for accountant in (comparison.ACCOUNTANT, bin_filter.ACCOUNTANT):
        reason = accountant.why_not(fresh, Side.LOWER)
        assert reason is not None


def truth(pair: FreshBins, epsilon: float, direction: Direction) -> float:
    """A midpoint rule in the span of all sums of columns, one for each epoch: at most three dimensions."""
    columns = pair.matrix.materialize()
    sums = [
        columns[:, [epoch * pair.bins + place for epoch, place in enumerate(places)]].sum(axis=1)
        for places in product(range(pair.bins), repeat=pair.epochs)
    ]
    basis = np.linalg.qr(np.stack(sums, axis=1))[0]
    means = np.stack(sums) @ basis / pair.noise_multiplier
    rank = int(np.linalg.matrix_rank(means))
    means = means @ np.linalg.svd(means)[2].T[:, :rank]
    points, reach = {1: 20001, 2: 1200, 3: 160}[rank], 8.0 + float(np.abs(means).max())
    axis = (np.arange(points) + 0.5) / points * 2.0 * reach - reach
    grids = np.meshgrid(*[axis] * rank, indexing="ij", sparse=True)
    density = 1.0
    for grid in grids:
        density = density * np.exp(-0.5 * grid**2) / sqrt(2.0 * np.pi) * (axis[1] - axis[0])
    exponents = [sum(m * g for m, g in zip(mean, grids, strict=True)) - 0.5 * float(mean @ mean) for mean in means]
    ratio = sum(np.exp(exponent) for exponent in exponents) / len(exponents)
    if direction is Direction.REMOVE:
        return float((density * np.maximum(ratio - exp(epsilon), 0.0)).sum())
    return float((density * np.maximum(1.0 - exp(epsilon) * ratio, 0.0)).sum())


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize(
    "fresh",
    [
        pair(ToeplitzMatrix(np.array([1.0, 0.4]), 4), 2, 1.5),
        pair(ToeplitzMatrix(np.array([1.0, 0.8, 0.6, 0.5]), 4), 2, 2.5),
        pair(TreeMatrix(4, 4), 2, 3.0),
    ],
)
@pytest.mark.parametrize("direction", Direction)
def test_bounds_are_on_their_sides_of_the_truth(fresh: FreshBins, epsilon: float, direction: Direction) -> None:
    """Two epochs of two bins: the four sums of columns span three dimensions."""
    exact = truth(fresh, epsilon, direction)
    above = fresh_epochs.ACCOUNTANT.bound(fresh, Side.UPPER, WORK).profiles[direction](epsilon)
    below = comparison.ACCOUNTANT.bound(fresh, Side.LOWER, WORK).profiles[direction](epsilon)
    assert below <= 1.002 * exact
    assert above >= 0.998 * exact
    assert above <= 4.0 * exact
    assert below >= 0.2 * exact


@pytest.mark.parametrize("bins", [3, 40])
def test_without_correlation_both_sides_are_those_of_independent_noise(bins: int) -> None:
    sigma, epochs = 1.2, 3
    fresh = pair(ToeplitzMatrix(np.array([1.0]), bins * epochs), bins, sigma)
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=bins, epochs=epochs), noise_multiplier=sigma)
    for side, law in (
        (Side.UPPER, fresh_epochs.ACCOUNTANT.laws_of(fresh, Side.UPPER, WORK)[0]),
        (Side.LOWER, comparison.ACCOUNTANT.laws_of(fresh, Side.LOWER, WORK)[0]),
    ):
        exact = hs.bound(run, "direct", side=side)
        for direction in Direction:
            for epsilon in (0.1, 0.8):
                known = exact.profiles[direction](epsilon)
                delta = law_delta(law, epsilon, direction)
                assert delta >= 0.999 * known if side is Side.UPPER else delta <= 1.001 * known
                assert delta == pytest.approx(known, rel=0.1)


def test_both_sides_are_close_for_few_bands() -> None:
    sampler = hs.RandomAllocation(bins=30, epochs=4)
    run = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=sampler, noise_multiplier=1.8)
    certificate = hs.certify(run, delta=1e-5)
    assert certificate.method.upper == "fresh_epochs"
    assert certificate.method.lower == "bin_filter"
    assert certificate.bounds.lower is not None
    assert certificate.bounds.lower <= certificate.bounds.upper <= 1.06 * certificate.bounds.lower
    hs.verify(certificate)


def test_more_epochs_and_less_noise_cost_more() -> None:
    def epsilon(epochs: int, sigma: float) -> float:
        sampler = hs.RandomAllocation(bins=12, epochs=epochs)
        run = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=3), sampler=sampler, noise_multiplier=sigma)
        return hs.certify(run, delta=1e-5, method="fresh_epochs").bounds.upper

    assert epsilon(2, 3.0) < epsilon(3, 3.0) < epsilon(3, 2.5)


def test_what_is_not_served_is_refused() -> None:
    alone, long = (
        pair(ToeplitzMatrix(np.array([1.0, 0.5]), 4), 1, 1.0),
        pair(ToeplitzMatrix(np.ones(2), 2000), 1000, 1.0),
    )
    assert fresh_epochs.ACCOUNTANT.why_not(alone, Side.UPPER) is not None
    assert "bins" in (fresh_epochs.ACCOUNTANT.why_not(long, Side.UPPER) or "")
    full = pair(ToeplitzMatrix(0.9 ** np.arange(3000.0), 3000), 100, 1.0)
    assert "bands" in (fresh_epochs.ACCOUNTANT.why_not(full, Side.UPPER) or "")
    assert "from below only" in (comparison.ACCOUNTANT.why_not(long, Side.UPPER) or "")
    assert bin_filter.ACCOUNTANT.why_not(pair(BANDED, 4, 1.0), Side.LOWER) is not None
    quiet = pair(BANDED, 4, 0.1)
    assert fresh_epochs.ACCOUNTANT.laws_of(quiet, Side.UPPER, WORK) == ()
