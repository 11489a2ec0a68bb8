"""Arguments of other types than are wanted are refused in one sentence, before anything is computed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.noise import stream

PLAN = hs.Plan.parse(
    {
        "data": {"num_examples": 100, "batch_size": 10, "epochs": 1},
        "sampler": {"kind": "poisson"},
        "noise_multiplier": 1.0,
        "target": {"epsilon": 1.0, "delta": 1e-5},
    }
)
RUN = PLAN.mechanism()
DEADLINE = "'deadline' argument must be a Deadline, such as hs.Deadline(60.0)"
SAMPLES = "'monte_carlo' argument must be an hs.MonteCarlo, such as hs.MonteCarlo(), or None"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: hs.certify(RUN, delta=1e-5, deadline=10), f"{DEADLINE}; budget takes seconds. Got 10 instead."),
        (lambda: hs.compose([RUN], delta=1e-5, deadline=10), f"{DEADLINE}; budget takes seconds. Got 10 instead."),
        (lambda: hs.verify(hs.certify(RUN, delta=1e-5), deadline=10), f"{DEADLINE}. Got 10 instead."),
        (lambda: hs.Deadline("x"), "'seconds' field must be a number. Got 'x' instead."),
        (lambda: hs.Deadline(float("nan")), "'seconds' field must be a number. Got nan instead."),
        (lambda: hs.certify(RUN, delta=1e-5, monte_carlo=True), f"{SAMPLES}. Got True instead."),
        (lambda: hs.compare(RUN, delta=1e-5, monte_carlo=True), f"{SAMPLES}. Got True instead."),
        (lambda: hs.calibrate(PLAN, monte_carlo="allow"), f"{SAMPLES}. Got 'allow' instead."),
        (lambda: hs.recommend(PLAN, budget=0, monte_carlo=True), f"{SAMPLES}. Got True instead."),
        (lambda: hs.recommend(PLAN, budget=0, workload="sgd"), "'workload' argument must be a Workload, such as hs."),
        (lambda: hs.recommend(PLAN, budget=0, limits={}), "'limits' argument must be Limits, such as hs.Limits("),
        (lambda: hs.recommend(PLAN, budget="x"), "'budget' field must be a number. Got 'x' instead."),
        (lambda: hs.Workload(momentum="x"), "'momentum' field must be a number. Got 'x' instead."),
        (lambda: hs.Limits(memory="8GB", parameters=3), "'memory' field must be a number. Got '8GB' instead."),
        (lambda: hs.Limits(memory=8e9, parameters="3"), "'parameters' field must be a number. Got '3' instead."),
        (
            lambda: hs.Limits(samplers="poisson"),
            "must be a tuple of names, such as ('poisson',). Got 'poisson' instead.",
        ),
        (lambda: stream(PLAN, 3, rng=np.random.default_rng(0)), "'mechanism' parameter must be a Mechanism. Got Plan("),
    ],
)
def test_arguments_of_other_types_are_named(use: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        use()
    assert said in str(raised.value)
