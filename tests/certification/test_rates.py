"""The rates in certificates against batches that are drawn, and against what no draw may exceed."""

from math import ceil

import numpy as np
import pytest

from hockeystick import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from hockeystick.certification.rates import rates
from hockeystick.samplers import SAMPLERS, Sampler

EXAMPLES = 1200
RUNS: tuple[Sampler, ...] = (
    Deterministic(bins=6, epochs=3),
    Shuffle(batch_size=200, bins=6, epochs=3),
    Poisson(sampling_prob=0.13, steps=20),
    RandomAllocation(bins=9, participations=2, epochs=3),
    BallsInBins(bins=7, epochs=4),
    CyclicPoisson(groups=4, sampling_prob=0.3, steps=20),
    BMinSep(min_sep=4, sampling_prob=0.2, steps=21),
    MultiAttribution(min_sep=4, sampling_prob=0.15, steps=21, examples_per_user=1, warm_up_steps=3),
)


def test_every_sampler_has_rates() -> None:
    assert {one.kind for one in RUNS} == set(SAMPLERS)


@pytest.mark.parametrize("sampler", RUNS, ids=lambda one: one.kind)
def test_examples_take_part_as_often_as_the_certificate_says(sampler: Sampler) -> None:
    """An example is in T batches at most, and its own share of them is in [0, T / steps]: Hoeffding over independent
    examples at 1e-9 for each sampler (batches of a fixed size do not vary at all)."""
    found = rates(sampler, EXAMPLES)
    counts = np.zeros(EXAMPLES)
    for batch in sampler.batches(EXAMPLES, np.random.default_rng(3)):
        counts[batch] += 1
    assert counts.max() <= found.most_participations
    width = found.most_participations / found.steps * np.sqrt(np.log(2e9) / (2 * EXAMPLES))
    assert abs(counts.mean() / found.steps - found.rate) <= width
    assert found.expected_batch_size == pytest.approx(found.rate * EXAMPLES)
    assert found.steps == sampler.steps


def test_an_available_example() -> None:
    assert [rates(one).rate_when_available for one in RUNS] == [
        None,
        None,
        None,
        None,
        None,
        0.3,
        pytest.approx(0.2 / (1 - 3 * 0.2)),
        0.15,
    ]
    assert rates(RUNS[2]).expected_batch_size is None


def test_nobody_takes_part_more_often() -> None:
    assert rates(RUNS[6]).most_participations == ceil(21 / 4)
    assert rates(RUNS[5]).most_participations == 5
