"""Monte Carlo bounds, and all others on the same pairs, against the true profiles of small random mechanisms.

Every bound fails with probability at most 1e-9, and every truth is further off than it says with about 4e-9 at most: of
fewer than 2000 comparisons one fails by chance with a probability below 2e-5.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monte_carlo_oracle import (
    Array,
    Law,
    absent,
    cut_batches,
    epoch_shuffle,
    participations,
    sums,
    truth,
    turns,
    user_participations,
)

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS
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
    "balls_in_bins": 28,
    "random_allocation": 10,
    "poisson": 18,
    "cyclic_poisson": 14,
    "b_min_sep": 32,
    "multi_attribution": 12,
    "users": 16,
    "truncated": 16,
    "shuffle": 12,
}
"""Mechanisms of each kind; each is asked for delta at one epsilon, in both directions and on both sides."""
SECONDS = 0.5
"""For the samples of one case with a tiny delta, which is not waited for: bounds hold whenever sampling stops."""
PILOT_SAMPLES = (512, 2048)
"""Fewer than usual: pilots decide how fast bounds close, never whether they hold."""
MOST_STEPS = 5
SMALLEST_NOISE = 0.02
TOEPLITZ = 0.8
"""Of the cyclic cases: others are not sampled."""
EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.0)
SMALLEST_ASKED = 1e-3
"""Of cases with a smaller delta it is not asked that the bounds be close."""
CLOSE = 3.0
"""A ratio of 1 is asked for: upper over lower is 2 in one direction, and a little more when they come from two."""
EXACT = {"balls_in_bins", "random_allocation", "poisson", "cyclic_poisson", "shuffle", "users"}
"""Samplers whose pair is attained whatever the strategy, so that lower bounds are about the truth of the oracle."""
ONE_SIDED = {"users"}
"""Ratios are bounded from one side for each sample, which is close only where participations are rare."""


Sampled = tuple[Any, tuple[tuple[Law, Law], ...]]
"""A sampler, and its :attr:`Case.worlds`."""


@dataclass(frozen=True)
class Case:
    """A mechanism, the truth's ingredients and where to look."""

    kind: str
    mechanism: hs.Mechanism
    entries: Array
    worlds: tuple[tuple[Law, Law], ...]
    """With the example, or user, and with its ghost; several where several datasets are possible."""
    attained: bool
    epsilon: float

    @property
    def pair(self) -> DominatingPair:
        return dominating_pair(self.mechanism)


def random_case(kind: str, rng: np.random.Generator, folder: Path) -> Case:
    """A case of this kind; small enough for the oracle."""
    bins, epochs = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    while bins * epochs > MOST_STEPS + 1:
        epochs -= 1
    steps = int(rng.integers(1, MOST_STEPS + 1))
    sampler, worlds = SAMPLERS[kind](rng, steps, bins, epochs)
    steps = sampler.steps
    identity = kind in ("random_allocation", "shuffle")
    if identity:
        strategy, entries = hs.Identity(), np.eye(steps)
    elif kind == "cyclic_poisson" and rng.random() < TOEPLITZ:
        strategy = hs.BandedSquareRoot(bands=int(rng.integers(1, steps + 1)))
        entries = strategy.matrix(steps).materialize()
    else:
        strategy, entries = random_strategy(rng, steps, folder)
    longest = np.linalg.norm(entries.sum(axis=1))
    sigma = float(longest * np.exp(rng.uniform(np.log(0.25), np.log(1.5))) / max(1.0, steps**0.5))
    mechanism = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=max(sigma, SMALLEST_NOISE))
    if kind == "users":
        examples = int(max(max(vector) for there, _ in worlds for vector in there))
        mechanism = mechanism.model_copy(update={"unit": hs.Unit(kind="user", examples_per_user=examples)})
    bands = int(max(np.subtract(*np.nonzero(entries)))) + 1
    exact = kind == "b_min_sep" or (
        kind == "multi_attribution" and sampler.exclusion == "participating" and not sampler.warm_up_steps
    )
    attained = kind in EXACT or (exact and bands <= sampler.min_sep)
    return Case(kind, mechanism, entries, worlds, attained, float(rng.choice(EPSILONS)))


def random_strategy(rng: np.random.Generator, steps: int, folder: Path) -> tuple[Any, Array]:
    """Identity, banded square root, or any lower-triangular matrix, banded or dense."""
    bands = int(rng.integers(1, steps + 1))
    which = rng.integers(4)
    if which == 0:
        return hs.Identity(), np.eye(steps)
    if which == 1:
        strategy = hs.BandedSquareRoot(bands=bands)
        return strategy, strategy.matrix(steps).columns(np.arange(steps))
    entries = np.tril(rng.uniform(0.0, 1.0, (steps, steps)))
    entries[np.arange(steps)[:, None] - np.arange(steps)[None, :] >= bands] = 0.0
    entries[np.diag_indices(steps)] += 0.3
    if which == 3:
        entries[np.diag_indices(steps)] = rng.choice([0.05, 1.0, 3.0])
    path = folder / f"{rng.integers(1 << 62)}.npy"
    np.save(path, entries)
    return hs.Custom(path=str(path)), entries


def _balls_in_bins(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    return _alone(hs.BallsInBins(bins=bins, epochs=epochs))


def _random_allocation(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    return _alone(hs.RandomAllocation(bins=int(rng.integers(1, 7)), participations=1))


def _poisson(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    return _alone(hs.Poisson(sampling_prob=_rate(rng, 0.5), steps=steps))


def _users(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Poisson batches: the examples of a user are sampled independently of each other."""
    steps, examples = min(steps, 4), int(rng.integers(2, 4))
    sampler = hs.Poisson(sampling_prob=_rate(rng, 0.4), steps=steps)
    one = participations(sampler)
    law = one
    for _ in range(examples - 1):
        law = sums(law, one)
    return sampler, ((law, absent(law)),)


def _cyclic_poisson(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Nobody knows which group the example is in."""
    sampler = hs.CyclicPoisson(groups=int(rng.integers(2, 4)), sampling_prob=_rate(rng, 0.9), steps=steps)
    laws = [turns(sampler, group) for group in range(min(sampler.groups, steps))]
    return sampler, tuple((law, absent(law)) for law in laws)


def _b_min_sep(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    b, warm = int(rng.integers(1, steps + 2)), bool(rng.random() < 0.5)
    return _alone(hs.BMinSep(min_sep=b, sampling_prob=_rate(rng, 0.999 / b), steps=steps, warm_start=warm))


def _multi_attribution(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    steps = min(steps, 3)
    sampler = hs.MultiAttribution(
        min_sep=int(rng.integers(1, steps + 2)),
        sampling_prob=_rate(rng, 0.99),
        steps=steps,
        examples_per_user=int(rng.integers(1, 4)),
        warm_up_steps=int(rng.integers(0, 3)),
        exclusion=str(rng.choice(["sampled", "participating"])),
    )
    laws = [user_participations(sampler, examples) for examples in range(1, sampler.examples_per_user + 1)]
    return sampler, tuple((law, absent(law)) for law in laws)


def _truncated(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Poisson or b-min-sep batches that are cut, with other examples of gradient -1, 0 or 1."""
    steps, size = min(steps, 2), int(rng.integers(1, 5))
    cap = int(rng.integers(1, size + 1))
    cut: dict[str, Any] = {"truncated_batch_size": cap, "num_examples": size}
    if rng.random() < 0.3:
        sampler: Any = hs.Poisson(sampling_prob=_rate(rng, 0.2), steps=steps, **cut)
    else:
        b, warm = int(rng.integers(1, steps + 2)), bool(rng.random() < 0.5)
        sampler = hs.BMinSep(min_sep=b, sampling_prob=_rate(rng, 1.0 / b), steps=steps, warm_start=warm, **cut)
    taken = participations(sampler)
    return sampler, tuple(
        (cut_batches(taken, size - 1, cap, 1.0, theirs), cut_batches(taken, size - 1, cap, 0.0, theirs))
        for theirs in (-1.0, 0.0, 1.0)
    )


def _shuffle(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    count = int(rng.integers(1, 5))
    return hs.Shuffle(batch_size=1, bins=count, epochs=1), (epoch_shuffle(count),)


def _alone(sampler: Any) -> Sampled:
    law = participations(sampler)
    return sampler, ((law, absent(law)),)


def _rate(rng: np.random.Generator, most: float) -> float:
    return float(most * rng.choice([rng.uniform(0.02, 0.98), 0.01, 0.5, 1.0 - 1e-6]))


SAMPLERS = {
    "balls_in_bins": _balls_in_bins,
    "random_allocation": _random_allocation,
    "poisson": _poisson,
    "cyclic_poisson": _cyclic_poisson,
    "b_min_sep": _b_min_sep,
    "multi_attribution": _multi_attribution,
    "users": _users,
    "truncated": _truncated,
    "shuffle": _shuffle,
}


def bounds_of(pair: DominatingPair, epsilon: float, seed: int, deadline: hs.Deadline) -> Iterator[Bound]:
    """Of every accountant and side that applies; the slow ones, which have a test of their own, are left out."""
    options = hs.MonteCarlo(seed=seed, ratio=1.0, failure_probability=FAILURE)
    sampled = Settings(deadline=deadline, question=hs.Question(epsilon=epsilon), monte_carlo=options)
    quick = Settings(resolution=Resolution(nodes_per_unit=20, smallest_delta=1e-8))
    for one in ACCOUNTANTS.values():
        for side in one.sides:
            if one.why_not(pair, side) is None and one.name not in SLOW:
                with suppress(BudgetExceededError, UnsupportedError):  # before any sample, or no moments
                    yield one.bound(pair, side, sampled if one.kind is Kind.MONTE_CARLO else quick)


def check(case: Case, seed: int) -> tuple[list[str], Counter[str]]:
    """What is wrong with the bounds of a case, and what was compared."""
    epsilon, pair = case.epsilon, case.pair
    truths = {
        direction: [
            truth(case.entries, case.mechanism.sigma, there, ghost, direction, epsilon) for there, ghost in case.worlds
        ]
        for direction in Direction
    }
    least = max(one.value - one.error for found in truths.values() for one in found)
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
                for direction, found in truths.items():
                    value = bound.profiles[direction](epsilon)
                    if not value >= max(one.value - one.error for one in found) - 1e-300:
                        wrong.append(f"{name}, {direction.value}: {value} below {found}")
        elif case.attained and bound.kind is Kind.MONTE_CARLO:
            for direction, profile in bound.profiles.items():
                seen[f"lower {bound.kind.value}"] += 1
                if not profile(epsilon) <= max(one.value + one.error for one in truths[direction]):
                    wrong.append(f"{name}, {direction.value}: {profile(epsilon)} above {truths[direction]}")
        if bound.kind is Kind.MONTE_CARLO:
            closest[bound.side] = bound.delta(epsilon)
    if len(closest) == len(Side) and case.attained and case.kind not in ONE_SIDED and least > SMALLEST_ASKED:
        seen["asked to be close"] += 1
        seen["close"] += int(closest[Side.UPPER] <= CLOSE * closest[Side.LOWER])
    return wrong, seen


@pytest.mark.parametrize("kind", list(COUNTS))
def test_monte_carlo_bounds_hold_the_truth(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot, "PILOT_SAMPLES", PILOT_SAMPLES)
    rng = np.random.default_rng([41, *kind.encode()])
    wrong, seen = [], Counter[str]()
    for number in range(COUNTS[kind]):
        found, counts = check(random_case(kind, rng, tmp_path), seed=1000 + number)
        wrong += found
        seen += counts
    assert not wrong, "\n".join(wrong)
    assert seen["upper monte_carlo"] + seen["lower monte_carlo"] >= 0.5 * COUNTS[kind]
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
