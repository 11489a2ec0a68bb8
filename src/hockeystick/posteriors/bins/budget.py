"""Shares of the failure probability, and how much of it to spend."""

import numpy as np

from hockeystick.laws.law import Array
from hockeystick.posteriors.bins.levels import LevelledMeans

CANDIDATES = (0.01, 0.03, 0.1, 0.25, 0.5, 0.8)
"""Shares of delta that may be spent on failures; the best is kept."""


def union_shares(means: Array, levelled: LevelledMeans) -> Array:
    """Shares of the budget, shape (rows, bins); over the bins above their row's lowest level they sum to at most 1.

    A bound costs privacy in proportion to its mean times the deviation of its log ratio, which grows like the norm of
    the prefix: shares follow that product. Any shares are valid.
    """
    squares = means**2
    before = np.zeros_like(squares)
    np.cumsum(squares[:-1], axis=0, out=before[1:])
    shares: Array = levelled.values[levelled.index] * np.sqrt(before + before.mean(axis=1, keepdims=True))
    shares[levelled.index == levelled.index.min(axis=1, keepdims=True)] = 0.0
    total = float(shares.sum())
    return shares * ((1.0 - 1e-9) / total) if total > 0.0 else shares
