"""hockeystick itself, through its public functions."""

from collections.abc import Callable

import numpy as np

import hockeystick as hs
from benchmarks.contestants import Answer
from benchmarks.workloads import Workload
from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.certificate import Certificate
from hockeystick.samplers import BatchSampler

BUDGET = 100.0


def answer(workload: Workload) -> Answer:
    """Certify, calibrate or draw."""
    answers: dict[str, Callable[[Workload], Answer]] = {
        "allocation": _certify,
        "poisson": _certify,
        "poisson calibration": _calibrate_poisson,
        "calibration": _calibrate,
        "sampling": _draw,
    }
    return answers[workload.kind](workload)


def _certify(workload: Workload) -> Answer:
    sampler: hs.Poisson | hs.RandomAllocation
    if workload.kind == "poisson":
        sampler = hs.Poisson(sampling_prob=workload.rate, steps=workload.steps)
    else:
        sampler = hs.RandomAllocation(
            bins=workload.steps, participations=workload.participations, epochs=workload.epochs
        )
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=workload.noise_multiplier)
    if workload.asks == "delta":
        return _answer(hs.certify(mechanism, epsilon=workload.epsilon, budget=BUDGET))
    return _answer(hs.certify(mechanism, delta=workload.delta, budget=BUDGET))


def _answer(certificate: Certificate) -> Answer:
    bounds, method = certificate.bounds, certificate.method
    return Answer(lower=bounds.lower, upper=bounds.upper, note=f"upper by {method.upper}, lower by {method.lower}")


def _calibrate(workload: Workload) -> Answer:
    mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=workload.steps, epochs=workload.epochs))
    certificate = calibrate_and_certify(mechanism, epsilon=workload.epsilon, delta=workload.delta, budget=BUDGET)
    bounds = certificate.bounds
    return Answer(
        upper=certificate.mechanism.sigma,
        note=f"where epsilon is certified in [{bounds.lower:.6g}, {bounds.upper:.6g}]",
    )


def _calibrate_poisson(workload: Workload) -> Answer:
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=workload.rate, steps=workload.steps))
    return Answer(upper=hs.calibrate(mechanism, epsilon=workload.epsilon, delta=workload.delta).sigma)


def _draw(workload: Workload) -> Answer:
    steps, size = workload.steps, workload.num_examples // workload.steps
    samplers: dict[str, Callable[[], BatchSampler]] = {
        "deterministic": lambda: hs.Deterministic(bins=steps),
        "shuffle": lambda: hs.Shuffle(batch_size=size, bins=steps),
        "poisson": lambda: hs.Poisson(sampling_prob=workload.rate, steps=steps),
        "balls_in_bins": lambda: hs.BallsInBins(bins=steps),
        "random_allocation": lambda: hs.RandomAllocation(bins=steps),
    }
    batches = samplers[workload.scheme]().batches(workload.num_examples, np.random.default_rng(0))
    drawn = sum(1 for _ in batches)
    return Answer(estimate=float(drawn))
