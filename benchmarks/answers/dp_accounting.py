"""dp-accounting (Google): privacy loss distributions and Renyi accounting of Poisson sampling."""

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from benchmarks.contestants import Answer
from benchmarks.workloads import Workload


def answer(workload: Workload, method: str) -> Answer:
    """PLD gives its pessimistic and its optimistic estimate, RDP an upper bound."""
    if method == "rdp":
        return Answer(upper=_rdp(workload))
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
