"""Moving averages with weights of their own for every bin: the order of covariances."""

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import local_fits as module
from hockeystick.sequences.comparable_covariances import shortfall
from hockeystick.sequences.local_fits import local_fit
from hockeystick.sequences.moving_averages import MovingAverages
from hockeystick.types import Side

BINS = 60
WEIGHTS = np.array([0.6, 0.6, 0.3] + [0.1] * (BINS - 3))


def uneven(ring: bool = False, bands: int = 3) -> Array:
    """Bands whose entries grow along the bins, with little white noise at the end."""
    rows = np.zeros((BINS, BINS + bands - 1))
    for i in range(BINS):
        falling = 0.2 / np.arange(1, bands - 1)
        rows[i, i : i + bands] = [1.0, 0.3 + 0.5 * i / BINS, *(falling + 0.4 / (bands - 2) * i / BINS)]
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    if ring:
        rows[:, : bands - 1] += rows[:, BINS:]
        rows = rows[:, :BINS]
    covariance: Array = rows @ rows.T
    return covariance


@pytest.mark.parametrize(("ring", "bands"), [(False, 3), (True, 3), (False, 6), (True, 6)])
@pytest.mark.parametrize("side", list(Side))
def test_fits_are_comparable(side: Side, ring: bool, bands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference is two semidefinite matrices and one without negative entries, by eigenvalues.

    Of six bands two or three share an innovation.
    """
    shared: list[Array] = []

    def recorded(products: Array, covariance: Array, error: float, side: Side, part: Array) -> Array:
        shared.append(part)
        return shortfall(products, covariance, error, side, part)

    monkeypatch.setattr(module, "shortfall", recorded)
    monkeypatch.setattr(module, "WHITES", {False: (0.1,), True: (0.25,)})
    covariance = uneven(ring, bands)
    chain = local_fit(covariance, 1e-12, side, WEIGHTS, lambda chain: True, Deadline(), ring)
    assert chain is not None
    assert chain.period == (1 if bands == 3 else 2)
    assert chain.ring == ring
    assert np.linalg.eigvalsh(shared[-1]).min() >= -1e-12
    sign = 1.0 if side is Side.UPPER else -1.0
    difference = sign * (chain.products - covariance) - shared[-1]
    beside = np.where(np.eye(BINS, dtype=bool), 0.0, np.maximum(difference, 0.0))
    assert np.linalg.eigvalsh(difference - beside).min() >= -1e-12
    assert chain.whites.min() > 0.0
    assert len(np.unique(chain.weights, axis=0)) > BINS // 2
    assert np.abs(chain.products - covariance).max() < (0.1 if bands == 3 else 0.3)


def test_more_white_noise_where_less_is_not_affordable() -> None:
    """The finest lattice that is affordable; nothing where none is."""

    def fit(least: float) -> MovingAverages | None:
        return local_fit(uneven(), 1e-12, Side.UPPER, WEIGHTS, lambda chain: chain.spacing >= least, Deadline())

    fine, coarse = fit(0.3), fit(0.55)
    assert fine is not None
    assert coarse is not None
    assert 0.3 <= fine.spacing < 0.55 <= coarse.spacing
    assert fine.whites.mean() < coarse.whites.mean()
    assert fit(0.9) is None


@pytest.mark.parametrize("bin_", [0, BINS - 1])
def test_bins_that_show_nothing_are_not_fitted(bin_: int) -> None:
    """Nothing can be taken from a variance of 0; it was divided by."""
    covariance = uneven()
    covariance[bin_] = covariance[:, bin_] = 0.0
    assert local_fit(covariance, 1e-12, Side.LOWER, np.ones(BINS), lambda chain: True, Deadline()) is None
