"""What counts weigh too much in a chain, for all opportunities at once."""

import numpy as np

from hockeystick.monte_carlo.far.chains import Chain
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.kept_counts import begin, law_of, log_excess, log_waited


def whole_excess(counts: np.ndarray, own: Columns, chain: Chain) -> float:
    """Of the field."""
    assert chain.tables is not None
    law = law_of(counts.size, chain.tables)
    begin(law)
    excess, _, _ = log_excess(counts, own.couplings, chain.tables, 0, counts.size, 0, 0, law)
    return excess


def whole_waited(counts: np.ndarray, own: Columns, chain: Chain) -> float:
    """Of copies that wait too little: not above 0."""
    assert chain.tables is not None
    copies = int(chain.tables.waits.free[0])
    waited, _, _ = log_waited(counts, chain.tables, own.law.min_sep, starts_of(own), 0, counts.size, copies, 0)
    return waited


def starts_of(own: Columns) -> np.ndarray:
    """The chance to be free by u for an example that takes part there, over that at later steps."""
    starts = np.cumsum(own.law.start * (1.0 - own.law.prob) ** -np.arange(own.law.start.size))
    return np.asarray(starts / starts[-1])
