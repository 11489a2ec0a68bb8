"""jax-privacy (Google DeepMind): batch selection."""

import numpy as np
from jax_privacy import batch_selection

from benchmarks.contestants import Answer, NotApplicableError
from benchmarks.workloads import Workload


def answer(workload: Workload) -> Answer:
    """Draw all batches."""
    if workload.scheme == "poisson":
        strategy = batch_selection.CyclicPoissonSampling(sampling_prob=workload.rate, iterations=workload.steps)
    elif workload.scheme == "balls_in_bins":
        strategy = batch_selection.BallsInBinsSampling(iterations=workload.steps, cycle_length=workload.steps)
    else:
        raise NotApplicableError(f"it has no {workload.scheme} sampler")
    batches = strategy.batch_iterator(workload.num_examples, np.random.default_rng(0))
    return Answer(estimate=float(sum(1 for _ in batches)))
