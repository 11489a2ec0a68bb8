"""What a run cannot execute it refuses, in one sentence that names the argument."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.training import Run

EXAMPLES = 24
SAMPLER = hs.Poisson(sampling_prob=0.1, steps=12)
MECHANISM = hs.Mechanism(sampler=SAMPLER, noise_multiplier=2.0)


def run_of(**options):
    return Run(MECHANISM, **({"num_examples": EXAMPLES, "shape": 3, "rng": np.random.default_rng(0)} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_examples": 0}, "'num_examples'"),
        ({"shape": 0}, "'shape'"),
        ({"rng": 3}, "'rng'"),
        ({"secure": True}, "'rng' argument must not be given with secure=True"),
        ({"dtype": np.float16}, "'dtype'"),
        ({"attribution": hs.Attribution.from_pairs([0], [0])}, "does not apply"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(InvalidInputError, match=message):
        run_of(**options)


def test_a_plan_without_noise_is_refused():
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        Run(hs.Mechanism(sampler=SAMPLER), num_examples=EXAMPLES, shape=3)
    with pytest.raises(InvalidInputError, match="'mechanism' argument"):
        Run(SAMPLER, num_examples=EXAMPLES, shape=3)
    with pytest.raises(InvalidInputError, match="row of whole numbers"):
        run_of().noise([0.5])
