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
ARRAY, HUGE = np.array([1.0, 2.0]), 10**400
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
        (lambda: hs.Resolution("x"), "'nodes_per_unit' field must be a whole number of at least 1. Got 'x' instead."),
        (lambda: hs.Resolution(-5), "'nodes_per_unit' field must be a whole number of at least 1. Got -5 instead."),
        (lambda: hs.Resolution(8, 0.0), "'smallest_delta' field must be positive and finite. Got 0.0 instead."),
        (
            lambda: hs.Resolution(8, float("nan")),
            "'smallest_delta' field must be positive and finite. Got nan instead.",
        ),
        (lambda: hs.Deadline(True), "'seconds' field must be a number. Got True instead."),
        (lambda: hs.recommend(PLAN, budget=0, on_answer=1), "'on_answer' argument must be a function of a Recommend"),
        (lambda: hs.bound(RUN, "direct").epsilon(1e-5, "x"), "'near' field must be a number. Got 'x' instead."),
        (lambda: hs.Limits(samplers=None), "must be a tuple of names, such as ('poisson',). Got None instead."),
        (lambda: hs.Limits(samplers=(1,)), "deterministic, fixed_size. Got 1 instead."),
        (lambda: hs.Limits(dtype=["float32"]), "'dtype' field must be one of float32, float64. Got ['float32'] inst"),
        (lambda: hs.Workload(schedule=ARRAY), "'schedule' field must be one of constant, cosine, linear, step. Got a"),
        (lambda: hs.certify(RUN, delta=1e-5, generator=[1]), "opacus-secure-cpu, opacus-secure-cuda. Got [1] instead."),
        (
            lambda: hs.tuning(RUN, trials=3, delta=1e-5, distribution="poison"),
            "Got 'poison' instead (did you mean 'poisson'?).",
        ),
        (
            lambda: hs.tuning(RUN, trials=3, delta=1e-5, distribution=ARRAY),
            "must be one of fixed, poisson, geometric, logarithmic",
        ),
        (lambda: hs.compose([RUN], delta=1e-5, data=ARRAY), "'data' argument must be 'same', 'disjoint' or lists of"),
        (lambda: hs.BallsInBins(kind=ARRAY, bins=3), "'kind' field must be 'balls_in_bins'. Got array([1., 2.]) inst"),
        (
            lambda: hs.last_iterate(sampling_prob=0.1, steps=HUGE, noise_multiplier=1.0),
            "'steps' argument must be a whole number from 1 to 100000000000. Got 1000",
        ),
        (
            lambda: hs.group_privacy_poisson(group_size=True, sampling_prob=0.1, steps=3, noise_multiplier=1.0),
            "'group_size' argument must be a whole number from 1 to 100000000000. Got True instead.",
        ),
        (
            lambda: list(RUN.sampler.batches(num_examples=HUGE, rng=np.random.default_rng(0))),
            "'num_examples' argument must be a whole number from 1 to 100000000000. Got 1000",
        ),
        (lambda: hs.bound(RUN, "direct", settings=3), "'settings' argument must be hs.Settings, such as hs.Settings("),
        (lambda: hs.bound(RUN, "direct", settings={}), "'settings' argument must be hs.Settings, such as hs.Settings("),
        (lambda: hs.MixtureStep("x", "y"), "'probabilities' field must hold numbers. Got 'x' instead."),
        (lambda: hs.MixtureStep((1.0,), (None,)), "'sensitivities' field must be a number. Got None instead."),
        (lambda: hs.MixtureSteps(noise_multiplier=1.0, steps=3), "'steps' field must be a tuple of hs.MixtureStep obj"),
        (
            lambda: hs.last_iterate(sampling_prob="x", steps=3, noise_multiplier=1.0),
            "'sampling_prob' field must be a number. Got 'x' instead.",
        ),
        (
            lambda: hs.last_iterate(sampling_prob=0.1, steps=3, noise_multiplier="1"),
            "'noise_multiplier' field must be a number. Got '1' instead.",
        ),
        (lambda: hs.audit.mechanism(PLAN), "'mechanism' argument must be a Mechanism. Got Plan("),
        (lambda: hs.audit.mechanism(PLAN), "instead; give its mechanism()."),
        (lambda: hs.audit.noise([[1.0]], hs.certify(RUN, delta=1e-5)), "instead; give its mechanism."),
        (
            lambda: hs.audit.addendum(RUN),
            "'certificate' argument must be a Certificate, as hs.certify makes them. Got Mec",
        ),
        (lambda: hs.audit.mechanism(RUN, samples="x"), "'samples' field must be a number. Got 'x' instead."),
        (
            lambda: hs.bound_contributions([1, 2], 3, rng=np.random.default_rng(0)),
            "'attribution' argument must be an Attribution, such as Attribution.from_pairs makes. Got [1, 2] instead.",
        ),
        (
            lambda: stream(RUN, 3, rng=np.random.default_rng(0), rows="memory"),
            "'rows' argument must be a place for rows, such as hs.noise.Memory() or hs.noise.Replay(). Got 'memory'",
        ),
        (
            lambda: stream(RUN, 3, rng=np.random.default_rng(0), max_bytes="8GB"),
            "'max_bytes' field must be a number. Got '8GB' instead.",
        ),
        (lambda: hs.audit.noise("x", RUN), "'rows' argument must hold arrays of real numbers. Got 'x'."),
        (lambda: hs.audit.noise(3, RUN), "'rows' argument must hold arrays of real numbers. Got 3 instead."),
        (lambda: list(hs.audit.batches_of([], epochs="2")), "'epochs' argument must be a whole number from 1 to"),
        (lambda: replayed(train="x"), "'train' argument must be a function of the data and a tape. Got 'x' instead."),
        (lambda: replayed(clip_norm="x"), "'clip_norm' field must be a number. Got 'x' instead."),
        (lambda: replayed(seed=-1), "'seed' field must be a whole number of at least 0. Got -1 instead."),
        (
            lambda: hs.audit.addendum(hs.certify(RUN, delta=1e-5), num_examples="x"),
            "'num_examples' argument must be a whole number from 1 to 100000000000. Got 'x' instead.",
        ),
        (
            lambda: hs.audit.addendum(hs.certify(RUN, delta=1e-5), parts="noise"),
            "'parts' argument must be a tuple of names, such as ('noise',). Got 'noise' instead.",
        ),
        (
            lambda: hs.training.ScaledAdam(learning_rate=0.1, betas=0.9),
            "'betas' argument must be two numbers of at least 0 and below 1. Got 0.9 instead.",
        ),
        (
            lambda: hs.training.clipped(np.ones(3), 1.0),
            "must have one row for each example. Got an array of shape (3,)",
        ),
        (lambda: hs.noise.floor(PLAN, "jax-float32"), "instead; give its mechanism()."),
        (
            lambda: stream(RUN, 3, rng=np.random.default_rng(0), dtype="1e-5"),
            "'dtype' parameter must be float32 or float64. Got '1e-5' instead.",
        ),
        (lambda: hs.noise.MappedFile(3), "'folder' argument must be text or a path. Got 3 instead."),
        (
            lambda: hs.bound_contributions(None, 3, rng=np.random.default_rng(0)),
            "'attribution' argument must be an Attribution, such as Attribution.from_pairs makes. Got None instead.",
        ),
        (
            lambda: hs.bound(RUN, "direct", side=ARRAY),
            "'side' argument must be one of upper, lower. Got array([1., 2.])",
        ),
        (lambda: hs.training.noise_variance(PLAN), "instead; give its mechanism()."),
        (lambda: hs.training.clipped([[3.0]], 1.0), "'rows' argument must be an array of numpy. Got [[3.0]] instead."),
        (lambda: hs.training.clipped(np.ones((2, 3)), "1"), "'norm' field must be a number. Got '1' instead."),
        (lambda: hs.training.steps_within("x", 0.1), "'steps' argument must be a whole number from 1 to 268435456."),
        (
            lambda: hs.certify(RUN, delta=1e-5).save(3),
            "The output path must be text or a path. Got an object of type 'int' instead.",
        ),
        (
            lambda: stream(PLAN, 3, rng=np.random.default_rng(0)),
            "'mechanism' argument must be a Mechanism. Got Plan(",
        ),
    ],
)
def test_arguments_of_other_types_are_named(use: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        use()
    assert said in str(raised.value)


def replayed(**wrong: Any) -> object:
    return hs.audit.replay(**{"train": print, "data": 1, "neighbour": 2, "clip_norm": 1.0} | wrong)


def tuned(distribution: Any) -> hs.Tuning:
    return hs.tuning(RUN, trials=3, delta=1e-5, distribution=distribution)
