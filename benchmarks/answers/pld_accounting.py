"""PLD-accounting (Feldman and Shenfeld): numerical accounting of random allocation."""

from PLD_accounting import (
    AllocationSchemeConfig,
    BoundType,
    PrivacyParams,
    gaussian_allocation_delta_configurable,
    gaussian_allocation_epsilon_configurable,
)

from benchmarks.answers.bisection import smallest_noise
from benchmarks.contestants import Answer
from benchmarks.workloads import Workload

CONFIG = AllocationSchemeConfig()


def answer(workload: Workload) -> Answer:
    """Both bounds at the default configuration."""
    if workload.kind == "calibration":
        return _calibrate(workload)
    params = PrivacyParams(
        sigma=workload.noise_multiplier,
        num_steps=workload.steps,
        num_selected=workload.participations,
        num_epochs=workload.epochs,
        delta=workload.delta or None,
        epsilon=workload.epsilon or None,
    )
    asked = (
        gaussian_allocation_delta_configurable if workload.asks == "delta" else gaussian_allocation_epsilon_configurable
    )
    upper = asked(params=params, config=CONFIG, bound_type=BoundType.DOMINATES)
    lower = asked(params=params, config=CONFIG, bound_type=BoundType.IS_DOMINATED)
    return Answer(lower=lower, upper=upper)


def _calibrate(workload: Workload) -> Answer:
    """Replayed bins are one allocation at noise sigma / sqrt(epochs)."""
    scale = workload.epochs**0.5

    def epsilon_at(noise_multiplier: float) -> float:
        params = PrivacyParams(sigma=noise_multiplier / scale, num_steps=workload.steps, delta=workload.delta)
        return float(gaussian_allocation_epsilon_configurable(params=params, config=CONFIG))

    return Answer(upper=smallest_noise(epsilon_at, workload.epsilon, scale))
