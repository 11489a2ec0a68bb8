"""dp-accounting (Google): privacy loss distributions and Renyi accounting of Poisson sampling."""

from dp_accounting import (
    ExplicitBracketInterval,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    calibrate_dp_mechanism,
)
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from benchmarks.contestants import Answer
from benchmarks.workloads import Workload

TOLERANCE = 1e-3
"""Of the noise multiplier."""


def answer(workload: Workload, method: str) -> Answer:
    """PLD gives its pessimistic and its optimistic estimate, RDP an upper bound."""
    if method == "rdp":
        return Answer(upper=_rdp(workload))
    if workload.asks == "noise multiplier":
        return Answer(upper=_calibrated(workload))
    return Answer(lower=_pld(workload, pessimistic=False), upper=_pld(workload, pessimistic=True))


def _rdp(workload: Workload) -> float:
    accountant = RdpAccountant()
    event = PoissonSampledDpEvent(workload.rate, GaussianDpEvent(workload.noise_multiplier))
    accountant.compose(event, workload.steps)
    if workload.asks == "delta":
        return float(accountant.get_delta(workload.epsilon))
    return float(accountant.get_epsilon(workload.delta))


def _pld(workload: Workload, *, pessimistic: bool) -> float:
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        workload.noise_multiplier, sampling_prob=workload.rate, pessimistic_estimate=pessimistic
    ).self_compose(workload.steps)
    if workload.asks == "delta":
        return float(pld.get_delta_for_epsilon(workload.epsilon))
    return float(pld.get_epsilon_for_delta(workload.delta))


def _calibrated(workload: Workload) -> float:
    def event(noise: float) -> SelfComposedDpEvent:
        return SelfComposedDpEvent(PoissonSampledDpEvent(workload.rate, GaussianDpEvent(noise)), workload.steps)

    bracket = ExplicitBracketInterval(0.3, 10.0)
    noise_multiplier = calibrate_dp_mechanism(
        PLDAccountant, event, workload.epsilon, workload.delta, bracket, tol=TOLERANCE
    )
    return float(noise_multiplier)
