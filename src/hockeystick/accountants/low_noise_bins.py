"""What the accountants of bins at low noise share: how many bins they take, and which covariances matter."""

from typing import TYPE_CHECKING

import numpy as np

from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Array
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings

if TYPE_CHECKING:
    from hockeystick.sequences.comparable_covariances import Sensitivity

FEWEST_BINS, MOST_BINS = 12, 1024
LARGEST_VARIANCE = 30.0
"""The largest variance of a bin's Gaussian: beyond it epsilon is that of a known bin for all purposes."""


def bins_refusal(pair: BinMixture) -> str | None:
    """Why this number of bins is not taken, or None."""
    if FEWEST_BINS <= pair.bins <= MOST_BINS:
        return None
    return f"it is for {FEWEST_BINS} to {MOST_BINS} bins"


def covariance_of(pair: BinMixture) -> Array:
    """The covariance of the bins' Gaussians, shape (bins, bins); raises UnsupportedError where the noise is too low."""
    covariance: Array = pair.gram / pair.noise_multiplier**2
    if not float(covariance.diagonal().max()) <= LARGEST_VARIANCE:
        raise UnsupportedError("The noise is too low: the ratios of the bins leave the range of this method.")
    return covariance


def sensitivity_of(covariance: Array, settings: Settings) -> "Sensitivity":
    """An estimate of epsilon, and how much each covariance matters to it; a guide, no bound rests on it."""
    from hockeystick.sequences.comparable_covariances import sensitivity

    try:
        return sensitivity(covariance, settings.resolution.smallest_delta, settings.deadline)
    except np.linalg.LinAlgError:
        raise UnsupportedError("The Gram matrix of the bins is not definite to its rounding.") from None
