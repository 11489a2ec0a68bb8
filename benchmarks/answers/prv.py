"""prv-accountant (Microsoft): FFT composition of Poisson sampling with error bounds."""

from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

from benchmarks.contestants import Answer
from benchmarks.workloads import Workload

EPSILON_ERROR = 0.01


def answer(workload: Workload) -> Answer:
    """Its lower bound, estimate and upper bound."""
    accountant = PRVAccountant(
        prvs=PoissonSubsampledGaussianMechanism(
            sampling_probability=workload.rate, noise_multiplier=workload.noise_multiplier
        ),
        max_self_compositions=workload.steps,
        eps_error=EPSILON_ERROR,
        delta_error=workload.delta / 1000.0 if workload.delta else 1e-12,
    )
    if workload.asks == "delta":
        lower, estimate, upper = accountant.compute_delta(workload.epsilon, workload.steps)
    else:
        lower, estimate, upper = accountant.compute_epsilon(workload.delta, workload.steps)
    return Answer(lower=float(lower), upper=float(upper), estimate=float(estimate))
