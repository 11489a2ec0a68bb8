"""The rates in certificates against batches that are drawn, and against what no draw may exceed."""

from math import ceil

import numpy as np
import pytest
from sampler_laws import DATA
from samplers import DECLARED

from hockeystick import BMinSep, CyclicPoisson, MultiAttribution, Poisson
from hockeystick.certification.description import rates
from hockeystick.samplers import Sampler

EXAMPLES = DATA["num_examples"]
RUNS: tuple[Sampler, ...] = tuple(declared.plans[0][1] for declared in DECLARED.values())


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
    assert rates(Poisson(sampling_prob=0.13, steps=20)).rate_when_available is None
    assert rates(CyclicPoisson(groups=4, sampling_prob=0.3, steps=20)).rate_when_available == 0.3
    separated = rates(BMinSep(min_sep=4, sampling_prob=0.2, steps=21))
    assert separated.rate_when_available == pytest.approx(0.2 / (1 - 3 * 0.2))
    alone = MultiAttribution(min_sep=4, sampling_prob=0.15, steps=21, examples_per_user=1, warm_up_steps=3)
    assert rates(alone).rate_when_available == 0.15


def test_without_a_number_of_examples_there_is_no_batch_size() -> None:
    assert rates(Poisson(sampling_prob=0.13, steps=20)).expected_batch_size is None


def test_nobody_takes_part_more_often() -> None:
    assert rates(BMinSep(min_sep=4, sampling_prob=0.2, steps=21)).most_participations == ceil(21 / 4)
    assert rates(CyclicPoisson(groups=4, sampling_prob=0.3, steps=20)).most_participations == 5
