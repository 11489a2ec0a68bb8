"""random-allocation: the bounds of Feldman and Shenfeld (2025) and of Dong, Chen and Ozgur, in their own package."""

from random_allocation import random_allocation_scheme
from random_allocation.comparisons.definitions import PrivacyParams, SchemeConfig

from benchmarks.answers.bisection import smallest_noise
from benchmarks.contestants import Answer
from benchmarks.workloads import Workload


def answer(workload: Workload, method: str) -> Answer:
    """One of its methods, both directions."""
    config = SchemeConfig(allocation_direct_alpha_orders=list(range(2, 61)))
    if workload.kind == "calibration":
        scale = workload.epochs**0.5

        def epsilon_at(noise_multiplier: float) -> float:
            params = PrivacyParams(sigma=noise_multiplier / scale, num_steps=workload.steps, delta=workload.delta)
            return float(random_allocation_scheme.allocation_epsilon_combined(params=params, config=config))

        return Answer(upper=smallest_noise(epsilon_at, workload.epsilon, scale))
    params = PrivacyParams(
        sigma=workload.noise_multiplier,
        num_steps=workload.steps,
        num_selected=workload.participations,
        num_epochs=workload.epochs,
        delta=workload.delta or None,
        epsilon=workload.epsilon or None,
    )
    function = getattr(random_allocation_scheme, f"allocation_{workload.asks}_{method}")
    value = float(function(params=params, config=config))
    return Answer(lower=value) if method == "lower_bound" else Answer(upper=value)
