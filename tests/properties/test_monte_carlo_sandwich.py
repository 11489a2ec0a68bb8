"""Monte Carlo bounds, and all others on the same pairs, against the true profiles of small random mechanisms.

Every bound fails with probability at most 1e-9, and every truth is further off than it says with about 4e-9 at most: of
fewer than 2000 comparisons one fails by chance with a probability below 2e-5.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monte_carlo_oracle import Array, participations, truth
from random_mechanisms import Case, random_case

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.bounds import Bound
from hockeystick.errors import BudgetExceededError, UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.monte_carlo import pilots as pilot
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

FAILURE = 1e-9
SLOW = {"conditional_composition", "moment_majorant", "moment_majorant_cells"}
COUNTS = {
    "balls_in_bins": 20,
    "random_allocation": 20,
    "fresh_bins": 20,
    "poisson": 18,
    "cyclic_poisson": 14,
    "b_min_sep": 24,
    "multi_attribution": 12,
    "users": 10,
    "truncated": 16,
    "longer_truncated": 6,
    "secret_groups": 8,
    "waiting_threes": 8,
    "shuffle": 12,
}
"""Mechanisms of each kind, at most; each is asked for delta at one epsilon, in both directions and on both sides."""
SOME = 6
"""As many of each kind, or half of them, are in the usual tests; the other parts run weekly."""
PARTS = [0, *(pytest.param(part, marks=pytest.mark.weekly) for part in (1, 2, 3))]
SECONDS = 0.5
"""For the samples of one case with a tiny delta, which is not waited for: bounds hold whenever sampling stops."""
PILOT_SAMPLES = (512, 2048)
"""Fewer than usual: pilots decide how fast bounds close, never whether they hold."""
SMALLEST_ASKED = 1e-3
"""Of cases with a smaller delta it is not asked that the bounds be close."""
CLOSE = 3.0
"""A ratio of 1 is asked for: upper over lower is 2 in one direction, and a little more when they come from two."""


def bounds_of(pair: DominatingPair, epsilon: float, seed: int, deadline: hs.Deadline) -> Iterator[Bound]:
    """Of every accountant and side that applies; the slow ones, which have a test of their own, are left out."""
    options = hs.MonteCarlo(seed=seed, ratio=1.0, failure_probability=FAILURE)
    sampled = Settings(deadline=deadline, question=hs.Question(epsilon=epsilon), monte_carlo=options)
    quick = Settings(resolution=Resolution(nodes_per_unit=20, smallest_delta=1e-8))
    for accountant in every_accountant().values():
        for side in accountant.sides:
            if accountant.why_not(pair, side) is None and accountant.name not in SLOW:
                with suppress(BudgetExceededError, UnsupportedError):  # before any sample, or no moments
                    yield accountant.bound(pair, side, sampled if accountant.kind is Kind.MONTE_CARLO else quick)


def check(case: Case, seed: int) -> tuple[list[str], Counter[str]]:
    """What is wrong with the bounds of a case, and what was compared."""
    epsilon, pair = case.epsilon, case.pair
    truths = {
        direction: [
            truth(case.entries, case.mechanism.sigma, there, ghost, direction, epsilon) for there, ghost in case.worlds
        ]
        for direction in Direction
    }
    least = max(truth.value - truth.error for values in truths.values() for truth in values)
    wrong, seen = [], Counter({"mechanisms": 1})
    closest: dict[Side, float] = {}
    deadline = hs.Deadline() if least > SMALLEST_ASKED else hs.Deadline(seconds=SECONDS)
    for bound in bounds_of(pair, epsilon, seed, deadline):
        name = f"{bound.method} {bound.side.value} of {case.mechanism} at {epsilon}"
        if bound.side is Side.UPPER:
            seen[f"upper {bound.kind.value}"] += 1
            if not bound.delta(epsilon) >= least:
                wrong.append(f"{name}: {bound.delta(epsilon)} below {truths}")
            if not pair.slack:
                for direction, values in truths.items():
                    value = bound.profiles[direction](epsilon)
                    if not value >= max(truth.value - truth.error for truth in values) - 1e-300:
                        wrong.append(f"{name}, {direction.value}: {value} below {values}")
        elif case.attained and bound.kind is Kind.MONTE_CARLO:
            for direction, profile in bound.profiles.items():
                seen[f"lower {bound.kind.value}"] += 1
                if not profile(epsilon) <= max(truth.value + truth.error for truth in truths[direction]):
                    wrong.append(f"{name}, {direction.value}: {profile(epsilon)} above {truths[direction]}")
        if bound.kind is Kind.MONTE_CARLO:
            closest[bound.side] = bound.delta(epsilon)
    if len(closest) == len(Side) and case.attained and not case.one_sided and least > SMALLEST_ASKED:
        seen["asked to be close"] += 1
        seen["close"] += int(closest[Side.UPPER] <= CLOSE * closest[Side.LOWER])
    return wrong, seen


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", list(COUNTS))
def test_monte_carlo_bounds_hold_the_truth(
    kind: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pilot, "PILOT_SAMPLES", PILOT_SAMPLES)
    rng, several = np.random.default_rng([41, part, *kind.encode()]), min(COUNTS[kind] // 2, SOME)
    wrong, seen = [], Counter[str]()
    for number in range(several):
        broken, counts = check(random_case(kind, rng, tmp_path), seed=1000 + number)
        wrong += broken
        seen += counts
    assert not wrong, "\n".join(wrong)
    assert seen["upper monte_carlo"] + seen["lower monte_carlo"] >= 0.5 * several
    assert seen["close"] >= 0.8 * seen["asked to be close"]


@pytest.mark.parametrize(
    ("strategy", "sigma", "epsilon"),
    [(hs.BandedSquareRoot(bands=13), 2.5, 0.3), (hs.SquareRoot(), 5.0, 0.2), (hs.BinaryTree(), 4.0, 0.3)],
)
def test_bounds_for_more_than_twelve_bands_hold_the_truth(strategy: Any, sigma: float, epsilon: float) -> None:
    """The truth is a mean of exact ratios, sums over all 8192 sets of steps, within 6.2 standard errors."""
    sampler = hs.Poisson(sampling_prob=0.1, steps=13)
    pair = dominating_pair(hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma))
    law = participations(sampler)
    weights = np.array(list(law.values()))
    means = np.array(list(law)) @ strategy.matrix(13).columns(np.arange(13)).T / sigma
    rng = np.random.default_rng(43)
    noise = rng.standard_normal((2000, means.shape[1]))
    shift = means[rng.choice(weights.size, size=len(noise), p=weights)]

    def ratios(y: Array) -> Array:
        return np.asarray(np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ weights)

    values = {
        Direction.REMOVE: np.maximum(1.0 - np.exp(epsilon) / ratios(noise + shift), 0.0),
        Direction.ADD: np.maximum(1.0 - np.exp(epsilon) * ratios(noise), 0.0),
    }
    options = hs.MonteCarlo(seed=44, ratio=1.0, failure_probability=FAILURE)
    settings = Settings(deadline=hs.Deadline(60.0), question=hs.Question(epsilon=epsilon), monte_carlo=options)
    for side in Side:
        bound = ACCOUNTANTS["monte_carlo"].bound(pair, side, settings)
        for direction, profile in bound.profiles.items():
            about, error = values[direction].mean(), 6.2 * values[direction].std() / len(noise) ** 0.5
            if side is Side.UPPER:
                assert about - error <= profile(epsilon)
                assert direction is Direction.ADD or profile(epsilon) <= CLOSE * (about + error)
            else:
                assert profile(epsilon) <= about + error
