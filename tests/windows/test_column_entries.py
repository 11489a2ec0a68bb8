"""The entries of C that are read one by one, and what is known of them."""

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.windows.column_entries import entries_of


class Uncertain(DenseMatrix):
    """A matrix whose entries are known to a millionth."""

    @property
    def rounding(self) -> float:
        return 1e-6


def test_sums_of_products_allow_for_entries_that_are_not_exact() -> None:
    """Two entries that are both too small by a millionth have a product that is too small by two."""
    entries = entries_of(Uncertain(np.tril(np.ones((4, 4)))), np.arange(4), Deadline())
    assert (1.0 - 1e-6) ** -2 - 1.0 < entries.error < 1e-5
