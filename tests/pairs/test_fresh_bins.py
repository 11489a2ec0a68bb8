"""Random allocation with correlated noise: which pair it has, and what known batches reveal."""

from itertools import product

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import UnsupportedError
from hockeystick.pairs import fresh_bins
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.users import Users
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix


def mechanism(strategy: object, bins: int, epochs: int, participations: int = 1, **more: object) -> hs.Mechanism:
    sampler = hs.RandomAllocation(bins=bins, epochs=epochs, participations=participations)
    return hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0, **more)


def test_each_epoch_has_its_own_bin() -> None:
    pair = dominating_pair(mechanism(hs.BandedSquareRoot(bands=3), 4, 3))
    assert isinstance(pair, FreshBins)
    assert (pair.bins, pair.epochs, pair.noise_multiplier) == (4, 3, 2.0)
    assert not pair.batches_are_public
    assert dominating_pair(mechanism(hs.SquareRoot(), 1, 3)).batches_are_public


def test_one_epoch_is_that_of_balls_in_bins() -> None:
    pair = dominating_pair(mechanism(hs.SquareRoot(), 5, 1))
    assert isinstance(pair, BinMixture)
    assert pair.bins == 5


def test_several_visits_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"'sampler.participations' field must be 1 .* Got 2"):
        dominating_pair(mechanism(hs.SquareRoot(), 5, 2, participations=2))


@pytest.mark.parametrize(
    "matrix",
    [
        ToeplitzMatrix(np.array([1.0, 0.5, 0.3, 0.2]), 6),
        ToeplitzMatrix(np.array([1.0, 0.2]), 6),
        TreeMatrix(8, 6),
        TreeMatrix(2, 6),
    ],
)
@pytest.mark.parametrize("bins", [1, 2, 3])
def test_known_batches_reveal_no_more_than_the_longest_sum_of_columns(
    matrix: ToeplitzMatrix | TreeMatrix, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = matrix.materialize()
    sums = [
        columns[:, [epoch * bins + place for epoch, place in enumerate(places)]].sum(axis=1)
        for places in product(range(bins), repeat=6 // bins)
    ]
    longest = max(float(np.linalg.norm(total)) for total in sums)
    pair = FreshBins(noise_multiplier=1.0, matrix=matrix, bins=bins)
    assert longest <= pair.full_sensitivity * (1.0 + pair.sensitivity_error)
    assert pair.full_sensitivity <= 1.25 * longest
    if bins == 1:
        assert pair.full_sensitivity == pytest.approx(longest, rel=1e-12)
    fresh_bins._largest_norm.cache_clear()
    monkeypatch.setattr(fresh_bins, "MOST_STEPS", 5)
    assert longest <= pair.full_sensitivity * (1.0 + 1e-12)
    fresh_bins._largest_norm.cache_clear()


def test_a_user_is_a_chain_of_single_examples() -> None:
    """The laws of copies that are placed in the same steps are for independent noise."""
    unit = hs.Unit(kind="user", examples_per_user=2)
    pair = dominating_pair(mechanism(hs.BandedSquareRoot(bands=2), 4, 2, unit=unit))
    assert isinstance(pair, Users)
    assert pair.copies is None
    assert pair.below is None
    assert isinstance(pair.single, FreshBins)


def test_a_single_bin_is_a_gaussian_however_long_the_run() -> None:
    """The batches are public, so the sensitivity has to be attained: it is that of balls in one bin."""
    for epochs in (20, fresh_bins.MOST_STEPS + 100):
        strategy = hs.BandedSquareRoot(bands=4)
        fresh = dominating_pair(mechanism(strategy, 1, epochs))
        once = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=1, epochs=epochs), noise_multiplier=2.0)
        assert fresh.batches_are_public
        assert fresh.full_sensitivity == pytest.approx(dominating_pair(once).full_sensitivity, rel=1e-12)
