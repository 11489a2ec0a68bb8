"""What one process of ``python -m benchmarks.monte_carlo`` measures: rates of naive sampling, and our bounds."""

import resource
import sys
import time
from contextlib import nullcontext
from math import inf, log, log1p, sqrt
from typing import Any

from benchmarks.monte_carlo_cases import CASES, Target
from benchmarks.monte_carlo_naive import CONTESTANTS, NotOffered

FAILURE = 1e-6
"""Of the interval around a naive estimate, both sides together."""
STRETCHES = 10
"""Timed stretches of equal numbers of samples: the best counts; the peak of memory is read after each of them."""
MANY = 10.0
"""How many times the samples are asked for where the memory of a whole run is watched."""


def peak_mb() -> float:
    """The most that this process has had in memory so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def rate(name: str, contestant: str, seconds: float) -> dict[str, Any]:
    """Naive samples a CPU-second after a warm-up, and delta at the case's easy epsilon from all of them.

    The interval is the Chernoff-KL one, so that contestants that sample the same law overlap except with a probability
    of about 1e-6.
    """
    import numpy as np

    case = CASES[name]
    try:
        draw, batch = CONTESTANTS[contestant][1](case)
    except NotOffered as reason:
        return {"status": str(reason)}

    def total(batches: int) -> float:
        excess = 0.0
        for _ in range(batches):
            excess -= float(np.expm1(np.minimum(case.easy - draw(batch), 0.0)).sum())
        return excess

    total(1)
    start = time.process_time()
    total(1)
    batches = max(round(seconds / STRETCHES / max(time.process_time() - start, 1e-6)), 1)
    times, peaks, values = [], [], 0.0
    started = time.perf_counter()
    for _ in range(STRETCHES):
        start = time.process_time()
        values += total(batches)
        times.append(time.process_time() - start)
        peaks.append(peak_mb())
    elapsed = time.perf_counter() - started
    samples = STRETCHES * batches * batch
    mean = values / samples
    return {
        "status": "ok",
        "value": mean,
        "lower": chernoff(mean, samples, 0.5 * FAILURE, 0.0),
        "upper": chernoff(mean, samples, 0.5 * FAILURE, 1.0),
        "samples": samples,
        "cpu": sum(times),
        "seconds": elapsed,
        "rate": batches * batch / min(times),
        "slowest": batches * batch / max(times),
        "peak_mb": peaks[0],
        "peak_mb_tenfold": peaks[-1],
    }


def chernoff(mean: float, samples: int, failure: float, end: float) -> float:
    """The bound on the side of ``end``, 0 or 1, with ``samples KL(mean || bound) = log(1 / failure)``: 0 < mean < 1."""

    def far(p: float) -> bool:
        rest = (1.0 - mean) * (log1p(-mean) - log1p(-p)) if p < 1.0 else inf
        return p == 0.0 or samples * (mean * log(mean / p) + rest) >= -log(failure)

    near = mean
    while abs(end - near) > 1e-12 * mean:
        middle = 0.5 * (near + end)
        near, end = (near, middle) if far(middle) else (middle, end)
    return end


def samples_for(delta: float, ratio: float, failure: float) -> float:
    """How many naive samples have Chernoff-KL bounds with upper / lower = 1 + ratio around a mean of delta.

    With ``KL(d || d (1 + x)) ~ d x^2 / 2`` the bounds after s samples are ``d (1 +- w)``, ``w^2 = 2 l / (s d)``,
    ``l = log(2 / failure)``; their ratio is 1 + ratio for ``w = ratio / (2 + ratio)``. So about
    ``s = 2 l (2 + ratio)^2 / (ratio^2 delta)``; here by bisection with the exact bounds.
    """

    def wide(samples: float) -> bool:
        lower, upper = (chernoff(delta, round(samples), 0.5 * failure, end) for end in (0.0, 1.0))
        return upper > (1.0 + ratio) * lower

    low = high = 1.0 / delta
    while wide(high):
        low, high = high, 2.0 * high
    while high > 1.001 * low:
        middle = sqrt(low * high)
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


def interval(name: str, called: str, budget: float, tenfold: bool) -> dict[str, Any]:
    """Two-sided bounds on delta of the wanted ratio: by the Monte Carlo accountant alone, and by all of certify.

    A first run with a ratio of 10 and another seed loads the compiled kernels and is not counted.
    """
    from hockeystick.mechanism import Mechanism

    case = CASES[name]
    target = case.targets[called]
    mechanism = Mechanism.model_validate(case.mechanism)
    with _executor(target.workers) as chunks:
        _sampled(mechanism, target, ratio=10.0, seed=2, budget=budget, chunks=chunks)
        record = _sampled(mechanism, target, ratio=target.ratio, seed=1, budget=budget, chunks=chunks)
        record["peak_mb"] = peak_mb()
        if record["lower"] > 0.0:
            delta = sqrt(record["lower"] * record["upper"])
            record["naive_samples"] = samples_for(delta, target.ratio, target.failure)
        if tenfold:
            ratio = target.ratio / sqrt(MANY)
            more = _sampled(mechanism, target, ratio=ratio, seed=1, budget=MANY * budget, chunks=chunks)
            record |= {"peak_mb_tenfold": peak_mb(), "tenfold": more["samples"] / record["samples"]}
        if target.certify:
            record["certify"] = _certified(mechanism, target, budget, chunks)
    return record


def _executor(workers: int) -> Any:
    from hockeystick.execution import executor
    from hockeystick.monte_carlo.runs import in_this_process

    return nullcontext(in_this_process) if workers == 1 else executor("local", workers=workers)


def _sampled(mechanism: Any, target: Target, *, ratio: float, seed: int, budget: float, chunks: Any) -> dict[str, Any]:
    from hockeystick.accountants.registry import accountant
    from hockeystick.bounds import Question
    from hockeystick.deadline import Deadline
    from hockeystick.errors import BudgetExceededError
    from hockeystick.laws.grid import Resolution
    from hockeystick.pairs.registry import dominating_pair
    from hockeystick.settings import MonteCarlo, Settings
    from hockeystick.types import Side

    options = MonteCarlo(failure_probability=target.failure, ratio=ratio, seed=seed, executor=chunks)
    question = Question(epsilon=target.epsilon)
    started, busy = time.perf_counter(), time.process_time()
    settings = Settings(Resolution(64), Deadline(seconds=budget), question, options)
    try:
        sides = accountant("monte_carlo").bounds(dominating_pair(mechanism), tuple(Side), settings)
    except BudgetExceededError:
        sides = {}
    upper = question.answer(sides[Side.UPPER]) if sides else inf
    lower = question.answer(sides[Side.LOWER]) if sides else 0.0
    runs = sides[Side.UPPER].claim.runs if sides else ()
    return {
        "status": "ok" if lower > 0.0 and upper <= (1.0 + ratio) * lower * (1.0 + 1e-9) else "did not close",
        "lower": lower,
        "upper": min(upper, 1.0),
        "cpu": time.process_time() - busy,
        "seconds": time.perf_counter() - started,
        "samples": sum(claimed.chunks * claimed.run.chunk_size for claimed in runs),
        "runs": [
            f"{claimed.run.direction.value} {claimed.run.proposal} {claimed.chunks * claimed.run.chunk_size}"
            for claimed in runs
        ],
    }


def _certified(mechanism: Any, target: Target, budget: float, chunks: Any) -> dict[str, Any]:
    from hockeystick.certification.issue import certify
    from hockeystick.settings import MonteCarlo

    options = MonteCarlo(failure_probability=target.failure, ratio=target.ratio, seed=1, executor=chunks)
    started, busy = time.perf_counter(), time.process_time()
    certificate = certify(mechanism, epsilon=target.epsilon, method="monte_carlo", budget=budget, monte_carlo=options)
    bounds = certificate.bounds
    return {
        "lower": bounds.lower or 0.0,
        "upper": bounds.upper,
        "cpu": time.process_time() - busy,
        "seconds": time.perf_counter() - started,
        "peak_mb": peak_mb(),
    }
