"""opake (Rust): one privacy loss distribution of Poisson sampling, and its own bisection."""

from itertools import count
from typing import Any

import opake.accounting as accounting
import opake.dpsgd.accounting as steps_of

from benchmarks.contestants import Answer
from benchmarks.workloads import Workload

LEAST, MOST = 0.3, 10.0
"""Noise multipliers between which it searches."""
TOLERANCE = 1e-3
"""Of the epsilon that it searches for, relative; its default is a thousand times smaller and slower."""
RUNS = count()
"""Every run has a little more noise, as answers stay in a cache of the extension that cannot be emptied."""
STEP = 1e-12


def answer(workload: Workload) -> Answer:
    """Its upper bound on epsilon or delta, or the noise multiplier that it finds."""
    more = 1.0 + STEP * next(RUNS)
    if workload.asks == "noise multiplier":
        budget = accounting.epsilon_budget(workload.epsilon, delta=workload.delta)
        calibrated = accounting.calibrate(
            budget, lambda noise: _run(workload, more * noise), LEAST, MOST, tolerance=TOLERANCE
        )
        return Answer(upper=float(calibrated.param))
    run = _run(workload, more * workload.noise_multiplier)
    value = run.delta_at(workload.epsilon) if workload.asks == "delta" else run.epsilon_at(workload.delta)
    return Answer(upper=float(value))


def _run(workload: Workload, noise: float) -> Any:
    return steps_of.poisson(steps_of.gaussian(noise), sample_rate=workload.rate) * workload.steps
