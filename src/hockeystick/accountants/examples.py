"""Tiny pairs that accountants run once, so that the first request on a machine does not pay for compiling kernels."""

import numpy as np

from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


def poisson() -> SubsetMixture:
    """Poisson sampling of 8 steps, two bands."""
    return SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 8), sampling_prob=0.1)


def min_separated() -> RenewalMixture:
    """b-min-sep sampling of 8 steps, two bands."""
    matrix = ToeplitzMatrix(np.array([1.0, 0.5]), 8)
    return RenewalMixture(noise_multiplier=2.0, matrix=matrix, min_sep=4, participation_prob=0.1, warm_start=True)


def fresh_bins() -> FreshBins:
    """Two epochs of four bins, two bands."""
    return FreshBins(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 8), bins=4)


def bins(bands: int = 3) -> BinMixture:
    """Nine bins, one epoch, columns that differ."""
    from hockeystick.strategies.matrix.banded import BandedMatrix

    matrix = BandedMatrix(np.linspace(1.0, 2.0, 9 * bands).reshape(9, bands))
    return BinMixture(noise_multiplier=3.0, matrix=matrix, bins=9)


def low_noise_bins() -> BinMixture:
    """Twelve bins, one epoch, two bands."""
    from hockeystick.strategies.matrix.banded import BandedMatrix

    band = np.tile([1.0, 0.2], (12, 1))
    band[-1, 1] = 0.0
    return BinMixture(noise_multiplier=0.8, matrix=BandedMatrix(band), bins=12)
