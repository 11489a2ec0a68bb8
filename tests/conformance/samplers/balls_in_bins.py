"""Samplers of the kind ``balls_in_bins``: a bin for every example and the whole run."""

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, batches_of_bins, independent_examples

from hockeystick.samplers import BallsInBins


def balls_in_bins_law(sampler: BallsInBins, num_examples: int) -> Law:
    patterns = {tuple(range(b, sampler.steps, sampler.bins)): 1 / sampler.bins for b in range(sampler.bins)}
    return independent_examples(patterns, num_examples)


def fresh_bins(rng: np.random.Generator) -> Batches:
    """New bins in every epoch passed off as balls-in-bins."""
    for _ in range(2):
        yield from batches_of_bins(rng.integers(3, size=(3, 1)), 3)


def balanced_bins(rng: np.random.Generator) -> Batches:
    """Shuffled batches of equal size passed off as balls-in-bins."""
    bins = list(batches_of_bins(rng.permutation(3)[:, None], 3))
    yield from bins + bins


BINS = BallsInBins(bins=3, epochs=2)
WHOLE = [list(range(first, first + 6)) for first in range(0, 24, 6)]
RUNS = [
    BallsInBins(bins=4, epochs=3),
]

DECLARATION = Declaration(
    cases=[(BallsInBins(bins=3, epochs=2), 4), (BallsInBins(bins=5), 2)],
    law=balls_in_bins_law,
    wrong=[
        (fresh_bins, BINS, 3),
        (balanced_bins, BINS, 3),
    ],
    plans=[({}, BallsInBins(bins=20, epochs=4))],
    mechanisms=[
        (BallsInBins(bins=2), 0.5),
        (BallsInBins(bins=50, epochs=4), 1.2),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [*WHOLE, WHOLE[1]], "one_bin_an_example", 4),
    ],
)
