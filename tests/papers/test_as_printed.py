"""Algorithms and theorems as printed: the comparison curves, the loop of Algorithm 1, the crossings, the settings."""

import sys
from itertools import pairwise, product
from math import exp, inf
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick.accountants.registry import every_accountant
from hockeystick.errors import InvalidInputError
from hockeystick.reproduction.papers import Output, figures_of, folder_of


def module(paper: str, name: str) -> ModuleType:
    figures_of(folder_of(paper))
    return sys.modules[f"hockeystick_papers_{paper.replace('-', '_')}.{name}"]


# --- choquette-choo-2024, Algorithms 2 and 4 --------------------------------------------------------------------------


def slow_chances(entries: np.ndarray, cuts: list[int], sigma: float, prob: float, budget: float) -> list[float]:
    """Line by line, with all subsets of participations where the number of them is bounded."""
    columns = entries.shape[1]
    share = budget / (2.0 * (np.count_nonzero(entries) - columns))
    chances = []
    for first, last in pairwise(cuts):
        before = entries[:first]
        seen = [j for j in range(columns) if np.any(before[:, j])]
        for j in reversed(range(columns)):
            if not np.any(entries[first:last, j]):
                continue
            if entries[first, j] == 0.0:
                chances.append(1.0)
                continue
            products = sorted((float(before[:, j] @ before[:, k]) for k in seen), reverse=True)
            tail = dict.fromkeys(range(len(seen) + 1), 0.0)
            for coins in product((0, 1), repeat=len(seen)):
                chance = prob ** sum(coins) * (1.0 - prob) ** (len(seen) - sum(coins))
                for most in tail:
                    tail[most] += chance * (sum(coins) > most)
            most = min(most for most, value in tail.items() if value <= share)
            own = float(before[:, j] @ before[:, j])
            loss = norm.isf(share) * np.sqrt(own) / sigma + (2.0 * sum(products[:most]) - own) / (2.0 * sigma**2)
            chances.append(prob * exp(loss) / (prob * exp(loss) + 1.0 - prob))
    return chances


@pytest.mark.parametrize("strategy", [hs.SquareRoot(), hs.BinaryTree()])
def test_chances_are_those_of_the_printed_algorithm(strategy: Any) -> None:
    entries = strategy.matrix(6).materialize()
    cuts = np.arange(entries.shape[0] + 1)
    chances, norms, starts = module("choquette-choo-2024", "printed").tail_chances(
        entries, cuts, 1.7, 0.2, 1e-3, lambda: None
    )
    assert chances == pytest.approx(slow_chances(entries, cuts.tolist(), 1.7, 0.2, 1e-3), rel=1e-9)
    assert starts[-1] == chances.size == norms.size


def test_printed_algorithms_lie_above_the_lower_bound_and_are_no_accountants(output: Output) -> None:
    """They are in no registry, so nothing that is certified can rest on them."""
    runs = module("choquette-choo-2024", "runs")
    run = runs.poisson(hs.SquareRoot(), 1.0 / 8.0, 8, 20.0)
    printed = runs.printed(run, output)
    assert runs.epsilon_of(run, "linear_statistic", hs.Side.LOWER, output) <= printed
    assert printed <= 1.5 * runs.epsilon_of(run, "mmcc", hs.Side.UPPER, output)
    point = runs.cyclic(20.0, output, 8)
    assert point.lower <= point.printed < inf
    assert not any("printed" in name or "algorithm" in name for name in every_accountant())
    with pytest.raises(InvalidInputError):
        hs.bound(run, "as printed")


# --- chua-2024 --------------------------------------------------------------------------------------------------------


def test_loop_is_adaptive_and_adds_the_noise_of_the_mechanism() -> None:
    """Fixed batches, a query that looks at the last output: with hardly any noise the outputs are known."""
    ablq = module("chua-2024", "ablq")
    run = hs.Mechanism(sampler=hs.Deterministic(bins=3), noise_multiplier=0.01)

    def query(outputs: Any, records: np.ndarray) -> np.ndarray:
        return -records if outputs and outputs[-1][0] > 0.0 else records

    outputs = ablq.ablq(run, query, np.full((6, 1), 0.5), np.random.default_rng(0))
    assert [float(output[0]) for output in outputs] == pytest.approx([1.0, -1.0, 1.0], abs=0.07)  # seven deviations
    with pytest.raises(ValueError, match="norm at most 1"):
        ablq.ablq(run, ablq.identity, np.full((6, 1), 2.0), np.random.default_rng(0))


def test_loop_shows_the_masses_of_the_paper(output: Output) -> None:
    """Six intervals, each wrong with probability 1e-6; the seeds are fixed."""
    checks = module("chua-2024", "ablq").loop_checks(output, runs=60)
    assert len(checks) == 9
    assert all(check.holds for check in checks)


def test_half_spaces_and_proof_cross_after_the_deltas(output: Output) -> None:
    crossing = module("chua-2024", "crossing")
    case = crossing.located(2, 0.5, output, points=20)
    assert case.order == crossing.CROSSING
    assert case.high - case.low <= 10 * crossing.WIDTH
    assert case.high < case.half_space < case.proof
    # At the proof's epsilon_1 the two sides of (6) and (7) are equal.
    root = np.sqrt(2.0)
    left = 0.5 * norm.cdf(-(case.proof + 2.0 * np.log(2.0) + np.log(2.0)) * 0.5 / root - root)
    assert left == pytest.approx(norm.cdf(-case.proof * 0.5 + 1.0), rel=1e-6)


def test_half_space_has_the_mass_that_integration_gives(output: Output) -> None:
    """P(E) - e^eps Q(E) equals the deterministic delta at the located epsilon: by the binomial mixture of T = 2."""
    crossing = module("chua-2024", "crossing")
    epsilon, sigma = crossing.half_space_epsilon(2, 1.0), 1.0
    cut = (epsilon + np.log(2.0) + 2.0 * np.log(2.0)) * sigma**2 + 1.0
    masses = [norm.sf((cut - count) / np.sqrt(2.0)) for count in range(3)]
    shown = 0.25 * masses[0] + 0.5 * masses[1] + 0.25 * masses[2] - exp(epsilon) * masses[0]
    delta = norm.cdf(-epsilon + 0.5) - exp(epsilon) * norm.cdf(-epsilon - 0.5)
    assert shown == pytest.approx(delta, rel=1e-6)


def test_substitution_is_that_of_group_privacy() -> None:
    """For the Gaussian mechanism: the least 2 epsilon at which delta (1 + e^epsilon) is small enough."""
    module("chua-2024", "crossing")
    substituted = sys.modules["hockeystick_papers_chua_2024"].substituted(
        hs.bound(hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=2.0), "gaussian"), 1e-5
    )
    half = substituted / 2.0
    delta = norm.cdf(-2.0 * half + 0.25) - exp(half) * norm.cdf(-2.0 * half - 0.25)
    assert delta * (1.0 + exp(half)) == pytest.approx(1e-5, rel=1e-3)
    assert delta * (1.0 + exp(half)) <= 1e-5


def test_far_examples_give_the_batch_away() -> None:
    far = module("chua-2024", "crossing").far_delta
    truth = norm.cdf(-1.0 + 0.5) - exp(1.0) * norm.cdf(-1.0 - 0.5)
    assert far(50, 1.0, 1.0, 1.0) < 0.5 * truth
    assert far(50, 1.0, 1.0, 12.0) == pytest.approx(truth, rel=1e-6)


# --- schuchardt-kalinin-2026 ------------------------------------------------------------------------------------------


def test_wider_bands_cost_orders(output: Output) -> None:
    of_width = module("schuchardt-kalinin-2026", "bandwidth").of_width
    narrow, wide = (of_width("BISR, p=4", 3.0, width, 0.02, output) for width in (1, 8))
    assert wide["largest_order"] < narrow["largest_order"]
    assert wide["order_2"] <= narrow["order_2"] * (1.0 + 1e-9)
    assert narrow["best"] <= narrow["order_2"]


def test_library_agrees_with_our_laws(output: Output) -> None:
    """The same allocation, discretised twice: both are upper bounds of one composition, on different grids."""
    pytest.importorskip("dp_accounting")
    bandwidth, runs = (module("schuchardt-kalinin-2026", name) for name in ("bandwidth", "runs"))
    run = runs.mechanism(runs.STRATEGIES["DP-SGD"], 6, 1, 1.5)
    assert bandwidth.library_epsilon(run, output) == pytest.approx(runs.paper_epsilon(run, output), rel=0.01)


def test_exponents_are_those_of_powers(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's slopes, with measurements that are known."""
    cost = module("schuchardt-kalinin-2026", "cost")
    ticks = iter(range(1, 1000))
    monkeypatch.setattr(cost, "seconds", lambda work: float(next(ticks)) ** 2)
    monkeypatch.setattr(cost, "peak", lambda work: 5.0)
    cost.cost(output, small=True)
    lines = [line for line in output.lines if line.startswith("exponent of bytes")]
    assert len(lines) == 2
    assert all("confirmed" in line for line in lines)
