"""hockeystick's two bounds by its best method for independent steps, without the certificate around them."""

import hockeystick as hs
from benchmarks.contestants import Answer
from benchmarks.workloads import Workload
from hockeystick.bounds import Question
from hockeystick.types import Side


def answer(workload: Workload) -> Answer:
    """Both sides of epsilon or delta."""
    sampler = hs.Poisson(sampling_prob=workload.rate, steps=workload.steps)
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=workload.noise_multiplier)
    asks_delta = workload.asks == "delta"
    question = Question(epsilon=workload.epsilon) if asks_delta else Question(delta=workload.delta)
    lower, upper = (question.answer(hs.bound(mechanism, "direct", side=side)) for side in (Side.LOWER, Side.UPPER))
    return Answer(lower=lower, upper=upper)
