"""The pair of a sampler without one of its own, against enumeration, closed forms and samplers that have a pair."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import exp, log, sqrt
from typing import Literal

import numpy as np
import pytest
from samplers import DECLARED
from scipy.stats import norm

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.counted_visits import CountedVisits, from_any, largest_move
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.registry import dominating_pair, registered
from hockeystick.samplers import BatchSampler
from hockeystick.samplers.promises import Batch
from hockeystick.spec import Count
from hockeystick.types import Adjacency, Direction, Side

STEPS = 6
EPSILONS = (0.0, 0.3, 1.0, 2.0)
MATRICES = [
    hs.Identity(),
    hs.BandedSquareRoot(bands=2),
    hs.BandedInverseSquareRoot(bands=3),
    hs.BandedToeplitz(bands=4),
    hs.ColumnNormalizedBanded(bands=3),
    hs.SquareRoot(),
    hs.BinaryTree(),
    hs.TreeRestart(height=1),
]


class Counted(BatchSampler):
    """A sampler that the registries do not know, which only states how often an example takes part."""

    kind: Literal["counted"] = "counted"
    steps: Count
    chances: Mapping[int, float] | None
    independent: bool = True

    @property
    def rate(self) -> float:
        return self.most_participations / self.steps

    @property
    def most_participations(self) -> int:
        return max(self.chances or {self.steps: 1.0})

    @property
    def participation_chances(self) -> Mapping[int, float] | None:
        return self.chances

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE) if self.independent else (Adjacency.ZERO_OUT,)

    @property
    def requirement(self) -> str:
        return "Draw as often as stated."

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        raise NotImplementedError


def mechanism(
    chances: Mapping[int, float] | None,
    steps: int = STEPS,
    strategy: hs.strategies.StrategySpec | None = None,
    noise: float = 1.2,
    unit: hs.Unit | None = None,
    independent: bool = True,
) -> Mechanism:
    """Not validated, as the sampler is in no union."""
    return Mechanism.model_construct(
        strategy=strategy or hs.Identity(),
        sampler=Counted(steps=steps, chances=chances, independent=independent),
        noise_multiplier=noise,
        unit=unit or hs.Unit(),
    )


def bounds(pair: object, side: Side) -> list[float]:
    """The best of all deterministic accountants at every epsilon, in the remove and add directions at once."""
    best = min if side is Side.UPPER else max
    candidates = [
        method.bound(pair, side)
        for method in ACCOUNTANTS.values()
        if method.kind is hs.Kind.DETERMINISTIC and method.why_not(pair, side) is None
    ]
    return (
        [best(bound.delta(epsilon) for bound in candidates) for epsilon in EPSILONS]
        if candidates
        else [0.0] * len(EPSILONS)
    )


@pytest.mark.parametrize("strategy", MATRICES, ids=lambda spec: spec.kind)
def test_no_set_of_steps_moves_further(strategy: hs.strategies.StrategySpec) -> None:
    run = mechanism({STEPS: 1.0}, strategy=strategy)
    columns = run.matrix.materialize()
    for visits in range(STEPS + 1):
        moves = [np.linalg.norm(columns[:, list(which)].sum(axis=1)) for which in combinations(range(STEPS), visits)]
        assert largest_move(run, visits) >= max(moves) * (1.0 - 1e-12)
    assert largest_move(run, STEPS) == pytest.approx(float(np.linalg.norm(columns.sum(axis=1))), rel=1e-9)


def test_independent_noise_moves_by_the_root_of_the_visits() -> None:
    assert [largest_move(mechanism({1: 1.0}), visits) for visits in (0, 1, 4)] == pytest.approx([0.0, 1.0, 2.0])


@pytest.mark.parametrize("strategy", MATRICES, ids=lambda spec: spec.kind)
def test_all_or_nothing_is_known_in_closed_form(strategy: hs.strategies.StrategySpec) -> None:
    """Half a Gaussian: ``E (1/2 + L/2 - e^eps)_+`` is half of a Gaussian's delta at ``log(2 e^eps - 1)``."""
    run = mechanism({0: 0.5, STEPS: 0.5}, strategy=strategy)
    pair = dominating_pair(run)
    assert isinstance(pair, CountedVisits)
    assert pair.attained
    shift = float(np.linalg.norm(run.matrix.materialize().sum(axis=1))) / run.sigma
    for side, sign in ((Side.UPPER, 1.0), (Side.LOWER, -1.0)):
        profile = ACCOUNTANTS["direct"].bound(pair, side).profiles[Direction.REMOVE]
        for epsilon in EPSILONS:
            threshold = log(2.0 * exp(epsilon) - 1.0)
            tail = norm.cdf(shift / 2.0 - threshold / shift) - exp(threshold) * norm.cdf(
                -shift / 2.0 - threshold / shift
            )
            assert sign * profile(epsilon) >= sign * 0.5 * tail - 1e-12
            assert profile(epsilon) == pytest.approx(0.5 * tail, rel=1e-2)


SMALL = [
    (hs.Poisson(sampling_prob=0.3, steps=STEPS), hs.Identity()),
    (hs.Poisson(sampling_prob=0.3, steps=STEPS), hs.BandedSquareRoot(bands=2)),
    (hs.RandomAllocation(bins=STEPS), hs.Identity()),
    (hs.RandomAllocation(bins=3, epochs=2), hs.BandedSquareRoot(bands=2)),
    (hs.BallsInBins(bins=3, epochs=2), hs.Identity()),
    (hs.BallsInBins(bins=3, epochs=2), hs.BandedSquareRoot(bands=3)),
    (hs.CyclicPoisson(groups=2, sampling_prob=0.5, steps=STEPS, partition="independent"), hs.Identity()),
    (hs.BMinSep(min_sep=2, sampling_prob=0.2, steps=STEPS), hs.BandedSquareRoot(bands=2)),
]


@pytest.mark.parametrize(("sampler", "strategy"), SMALL, ids=lambda spec: spec.kind)
def test_it_is_above_every_lower_bound_of_samplers_with_a_pair(
    sampler: BatchSampler, strategy: hs.strategies.StrategySpec
) -> None:
    law = DECLARED[sampler.kind].law(sampler, 1)
    chances = Counter[int]()
    for (steps,), chance in law.items():
        chances[len(steps)] += chance
    counted = from_any(mechanism(chances, strategy=strategy, noise=0.8))
    assert isinstance(counted, CountedVisits)
    own = dominating_pair(Mechanism(sampler=sampler, strategy=strategy, noise_multiplier=0.8))
    lower = bounds(own, Side.LOWER)
    assert any(value > 0.0 for value in lower)
    assert all(above >= below for above, below in zip(bounds(counted, Side.UPPER), lower, strict=True))


def test_the_rounding_of_stated_chances_is_charged() -> None:
    pair = dominating_pair(mechanism({0: 0.5, STEPS: 0.5}))
    assert isinstance(pair, CountedVisits)
    assert [step.probability_error for step in pair.steps] == [1e-12]


@pytest.mark.parametrize("chances", [{0: 0.5, STEPS: 0.5}, {STEPS: 1.0}], ids=["hidden", "public"])
def test_the_rounding_of_norms_is_left_out_of_lower_bounds(chances: Mapping[int, float]) -> None:
    """A tenth, as its own is too small to be seen: norms that may be so much too long are as much shorter."""
    pair = dominating_pair(mechanism(chances, strategy=hs.BandedSquareRoot(bands=2)))
    assert isinstance(pair, CountedVisits)
    assert pair.excess > 0.0
    rough, exact = replace(pair, error=0.1), replace(pair, error=0.0)
    (step,) = pair.steps
    short = replace(step, sensitivities=tuple(norm / 1.1 for norm in step.sensitivities))
    assert all(
        0.0 < lower <= shorter * (1.0 + 1e-9)
        for lower, shorter in zip(
            bounds(rough, Side.LOWER), bounds(replace(exact, steps=(short,)), Side.UPPER), strict=True
        )
    )


def test_it_is_tighter_than_known_batches() -> None:
    chances = {0: 0.9, 1: 0.1}
    revealed = mechanism(chances, independent=False)
    assert isinstance(from_any(revealed), RevealedBatches)
    above = bounds(from_any(revealed), Side.UPPER)
    assert all(
        ours < 0.5 * known for ours, known in zip(bounds(from_any(mechanism(chances)), Side.UPPER), above, strict=True)
    )


@pytest.mark.parametrize("unit", [hs.Unit(), hs.Unit(kind="user", examples_per_user=2), hs.Unit(neighbours="replace")])
def test_nothing_bounds_it_from_below_where_steps_are_hidden(unit: hs.Unit) -> None:
    """Two of six steps, always: nobody knows which."""
    for run in (mechanism({2: 1.0}, unit=unit), mechanism(None, unit=unit), mechanism({1: 0.5, 6: 0.5}, unit=unit)):
        pair = dominating_pair(run)
        assert not pair.batches_are_public
        for method in ACCOUNTANTS.values():
            assert method.why_not(pair, Side.LOWER) is not None


def test_without_chances_the_batches_are_revealed() -> None:
    assert registered("banded_square_root", "counted") == ("every other strategy", "every other sampler")
    run = mechanism(None, strategy=hs.BandedSquareRoot(bands=2))
    pair = dominating_pair(run)
    assert isinstance(pair, RevealedBatches)
    assert pair.full_sensitivity >= np.linalg.norm(run.matrix.materialize().sum(axis=1))


def test_a_user_of_two_is_a_chain() -> None:
    """Twice the steps move it twice as far, which a chain of two has to cover."""
    single, user = (
        dominating_pair(mechanism({0: 0.5, STEPS: 0.5}, unit=unit))
        for unit in (hs.Unit(), hs.Unit(kind="user", examples_per_user=2))
    )
    assert user.full_sensitivity == pytest.approx(2.0 * sqrt(STEPS))
    both = zip(bounds(user, Side.UPPER), bounds(single, Side.LOWER), strict=True)
    assert all(above >= below for above, below in both)
