"""Samplers of the kind ``deterministic``: the same batches in every epoch."""

import numpy as np
from sampler_laws import Batches, Broken, Declaration, Law, runs_of_batches

from hockeystick.samplers import Deterministic


def deterministic_law(sampler: Deterministic, num_examples: int) -> Law:
    size = sampler.batch_size or num_examples // sampler.bins
    epoch = [range(num_examples)[b * size : (b + 1) * size] for b in range(sampler.bins)]
    return {runs_of_batches(epoch * sampler.epochs, num_examples): 1.0}


def shuffled_deterministic(rng: np.random.Generator) -> Batches:
    """Shuffled batches passed off as fixed ones."""
    yield from rng.permutation(4)[:, None]


WHOLE = [list(range(first, first + 6)) for first in range(0, 24, 6)]
RUNS = [
    Deterministic(bins=4, epochs=3),
    Deterministic(bins=4, epochs=3, batch_size=5, remainder="drop", num_examples=24),
    Deterministic(bins=4, epochs=3, batch_size=7, remainder="short", num_examples=24),
]

DECLARATION = Declaration(
    cases=[
        (Deterministic(bins=3, epochs=2), 6),
        (Deterministic(bins=4), 4),
        (Deterministic(bins=2, epochs=2, batch_size=2, remainder="drop", num_examples=5), 5),
        (Deterministic(bins=3, batch_size=2, remainder="short", num_examples=5), 5),
    ],
    law=deterministic_law,
    wrong=[
        (shuffled_deterministic, Deterministic(bins=4), 4),
    ],
    plans=[({}, Deterministic(bins=20, epochs=4))],
    mechanisms=[
        (Deterministic(bins=4, epochs=3), 1.3),
    ],
    runs=RUNS,
    broken=[
        Broken(RUNS[0], [WHOLE[0], WHOLE[2]], "fixed_batches", 1),
        Broken(RUNS[2], [range(7), range(7, 14), range(14, 21), [21, 22]], "participations_an_epoch", 3),
        Broken(RUNS[1], [range(5), range(15, 20)], "fixed_batches", 1),
    ],
)
