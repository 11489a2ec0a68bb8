"""Everything that is registered keeps the promises of its registry."""

from collections.abc import Iterator
from itertools import pairwise
from typing import get_args

import pytest
from samplers import DECLARED
from strategy_examples import EXAMPLES

from hockeystick import Direction, Kind, Mechanism, Outcome, Resolution, Side, Unit
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.certification.schedule import run_accountants
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import ANY, PAIRS, UNKNOWN, dominating_pair, pair_types, registered
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.waiting_copies import WaitingCopies
from hockeystick.samplers import (
    SAMPLER_OPTIONS,
    SAMPLERS,
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Data,
    Deterministic,
    FixedSize,
    Poisson,
    RandomAllocation,
    Sampler,
    Shuffle,
)
from hockeystick.settings import SearchPolicy, Settings
from hockeystick.strategies import STRATEGIES, BandedSquareRoot, BinaryTree, StrategySpec

PLAIN = [of_one for declared in DECLARED.values() for of_one in declared.mechanisms]
"""Small mechanisms over all samplers."""
CORRELATED: tuple[tuple[StrategySpec, Sampler, float], ...] = (
    *((strategy, BallsInBins(bins=4, epochs=2), 1.5) for kind, strategy in EXAMPLES.items() if kind != "custom"),
    (EXAMPLES["custom"], BallsInBins(bins=2, epochs=4), 1.5),  # without any structure, four bins take a minute
    (BandedSquareRoot(bands=2), Deterministic(bins=5, epochs=3), 2.0),
    (BandedSquareRoot(bands=4), BallsInBins(bins=1, epochs=5), 1.0),
    (BandedSquareRoot(bands=4), BallsInBins(bins=6, epochs=3), 4.0),
    (BandedSquareRoot(bands=1), BallsInBins(bins=12), 0.6),
    (BandedSquareRoot(bands=2), Poisson(sampling_prob=0.1, steps=6), 1.5),
    (BandedSquareRoot(bands=2), CyclicPoisson(groups=3, sampling_prob=0.3, steps=10), 1.2),
    (BandedSquareRoot(bands=3), CyclicPoisson(groups=2, sampling_prob=0.2, steps=9), 1.5),
    (BandedSquareRoot(bands=1), CyclicPoisson(groups=1, sampling_prob=0.1, steps=30), 1.0),
    (BandedSquareRoot(bands=3), BMinSep(min_sep=3, sampling_prob=0.1, steps=9), 1.5),
    (BandedSquareRoot(bands=3), BMinSep(min_sep=2, sampling_prob=0.1, steps=9), 1.5),
    (BandedSquareRoot(bands=2), RandomAllocation(bins=4, epochs=3), 1.5),
    (BandedSquareRoot(bands=2), RandomAllocation(bins=14, epochs=2), 1.2),
    (BinaryTree(), RandomAllocation(bins=3, epochs=2), 3.0),
    (BinaryTree(), Shuffle(batch_size=2, bins=8), 10.0),
)
MECHANISMS = [
    *(Mechanism(sampler=sampler, noise_multiplier=noise) for sampler, noise in PLAIN),
    *(Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=noise) for strategy, sampler, noise in CORRELATED),
]
KINDS = [f"{mechanism.strategy.kind}-{mechanism.sampler.kind}" for mechanism in MECHANISMS]
NAMES = [f"{kind}-{KINDS[:at].count(kind)}" for at, kind in enumerate(KINDS)]
"""A new case renames no other, so that the list of slow tests stays true."""
LONG = {
    "banded_inverse_fractional_root-balls_in_bins-0",
    "banded_square_root-balls_in_bins-2",
    "banded_square_root-balls_in_bins-3",
}
"""Cases that take many seconds."""
REPEATED = {
    "banded_square_root-cyclic_poisson-2",
    "banded_square_root-random_allocation-1",
    "identity-b_min_sep-1",
    "identity-balls_in_bins-1",
    "identity-random_allocation-3",
}
"""Larger cases of a pair that another case has too."""
WEEKLY = LONG | REPEATED
EPSILONS = (0.0, 1.0)
DELTAS = (1e-6,)
EFFORT = 0.2


def test_the_cases_cover_every_sampler() -> None:
    """Also those that do not wait for the week, which leave out one pair of strategy and sampler, that is long."""
    assert {sampler.kind for sampler, _ in PLAIN} == set(SAMPLERS)
    daily = {kind for kind, name in zip(KINDS, NAMES, strict=True) if name not in WEEKLY}
    assert set(KINDS) - daily == {"banded_inverse_fractional_root-balls_in_bins"}


@pytest.mark.parametrize("strategy", EXAMPLES)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_every_combination_has_a_pair_or_is_refused_by_name(kind: str, strategy: str) -> None:
    options = SAMPLER_OPTIONS[kind](**DECLARED[kind].needed)
    sampler = options.sampler(Data(num_examples=8, batch_size=2, epochs=2))
    mechanism = Mechanism(strategy=EXAMPLES[strategy], sampler=sampler, noise_multiplier=1.0)
    key = registered(strategy, kind)
    if key is not None:
        pair = dominating_pair(mechanism)
        assert isinstance(pair, pair_types(*key))
        assert pair.noise_multiplier > 0.0
        assert pair.full_sensitivity > 0.0
        assert pair.slack == 0.0  # nothing here is truncated
    else:
        with pytest.raises(UnsupportedError, match=kind):
            dominating_pair(mechanism)


def test_pairs_are_of_registered_kinds() -> None:
    kinds = {*STRATEGIES, ANY}
    for strategy, sampler in PAIRS:
        assert strategy in kinds
        assert sampler in {*SAMPLERS, UNKNOWN}


@pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_every_accountant_says_all_about_itself(accountant: Accountant) -> None:
    assert ACCOUNTANTS[accountant.name] is accountant
    assert accountant.name.replace("_", "").isalnum()
    assert accountant.name == accountant.name.lower()
    for text in (accountant.summary, accountant.errs, accountant.reference):
        assert text
        assert "\n" not in text
    assert accountant.sides
    assert set(accountant.sides) <= set(Side)
    assert len(set(accountant.sides)) == len(accountant.sides)
    assert accountant.kind in Kind
    assert accountant.analyses or accountant.joint_analyses
    for kind in (*accountant.analyses, *accountant.joint_analyses):
        assert issubclass(kind, DominatingPair)
    pairs = [kind for key in PAIRS for kind in pair_types(*key)]
    assert any(accountant.covers(kind) for kind in pairs)


EXCHANGED = Mechanism(
    sampler=FixedSize(batch_size=5, num_examples=24, steps=12),
    noise_multiplier=2.0,
    unit=Unit(neighbours="replace"),
)
"""An example that another one takes the place of."""


@pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_every_accountant_bounds_some_case_on_each_of_its_sides(accountant: Accountant) -> None:
    pairs = [dominating_pair(mechanism) for mechanism in (*MECHANISMS, EXCHANGED)]
    for side in accountant.sides:
        applicable = [pair for pair in pairs if accountant.why_not(pair, side) is None]
        assert applicable
        for pair in applicable:
            assert 0.0 < accountant.cost(pair) < 3600.0
    for side in set(Side) - set(accountant.sides):
        for pair in pairs:
            assert accountant.why_not(pair, side) is not None
            with pytest.raises(UnsupportedError, match=f"'{accountant.name}' does not apply"):
                accountant.bound(pair, side)


def everything(pair: DominatingPair, question: Question, smallest_delta: float) -> list[Outcome]:
    """All accountants on both sides, coarse and with little effort: nothing in that can make a bound wrong."""
    settings = Settings(Resolution(20, smallest_delta), effort=EFFORT)
    return run_accountants(pair, question, settings, policy=SearchPolicy(), run_all=True)


def questions(mechanism: Mechanism) -> Iterator[tuple[Question, float]]:
    """Questions with the delta down to which they need a good bound; one alone for bins with correlated noise.

    Those are slow, and have tests/properties/test_bins_sandwich.py for other epsilons.
    """
    slow = mechanism.sampler.kind == "balls_in_bins" and mechanism.strategy.kind != "identity"
    for epsilon in () if slow else EPSILONS:
        yield Question(epsilon=epsilon), 1e-10
    for delta in DELTAS:
        yield Question(delta=delta), delta


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(mechanism, id=name, marks=pytest.mark.weekly if name in WEEKLY else ())
        for mechanism, name in zip(MECHANISMS, NAMES, strict=True)
    ],
)
def test_every_upper_bound_is_above_every_lower_bound(mechanism: Mechanism) -> None:
    """The sandwich over the whole registry, in delta at several epsilon and in epsilon at several delta.

    The cases of ``WEEKLY`` run weekly, all others in every whole run.
    """
    pair = dominating_pair(mechanism)
    for question, smallest_delta in questions(mechanism):
        outcomes = everything(pair, question, smallest_delta)
        uppers = {
            outcome.method: outcome.value
            for outcome in outcomes
            if outcome.side is Side.UPPER and outcome.value is not None
        }
        lowers = {
            outcome.method: outcome.value
            for outcome in outcomes
            if outcome.side is Side.LOWER and outcome.value is not None
        }
        assert question.delta is not None or uppers
        for upper, above in uppers.items():
            for lower, below in lowers.items():
                assert below <= above, f"{question}: {lower} says at least {below!r}, {upper} at most {above!r}"


@pytest.mark.parametrize("mechanism", MECHANISMS[::3], ids=NAMES[::3])
def test_profiles_fall_and_cover_their_directions(mechanism: Mechanism) -> None:
    """With little effort, as in the sandwich."""
    pair = dominating_pair(mechanism)
    for accountant in ACCOUNTANTS.values():
        for side in accountant.sides:
            if accountant.why_not(pair, side) is not None:
                continue
            try:
                bound = accountant.bound(pair, side, Settings(Resolution(20, 1e-8), effort=EFFORT))
            except UnsupportedError:
                continue
            assert (bound.method, bound.side, bound.kind, bound.reference) == (
                accountant.name,
                side,
                accountant.kind,
                accountant.reference,
            )
            assert set(bound.profiles) == set(Direction) or side is Side.LOWER
            for profile in bound.profiles.values():
                values = [profile(epsilon) for epsilon in EPSILONS]
                assert all(value >= 0.0 for value in values)
                slack = 1e-9 * values[0]
                assert all(late <= early + slack for early, late in pairwise(values))


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_no_accountant_bounds_from_below_what_is_not_attained(name: str) -> None:
    """A new one need not think of it: the pair says so, whatever the accountant's own refusals are."""
    matrix = BandedSquareRoot(bands=2).matrix(8)
    single = RenewalMixture(
        noise_multiplier=1.0, matrix=matrix, min_sep=4, participation_prob=0.1, warm_start=True, attained=False
    )
    secret = SubsetMixture(noise_multiplier=1.0, matrix=matrix, sampling_prob=0.1, groups=2, groups_are_public=False)
    for pair in (single, WaitingCopies(noise_multiplier=1.0, one=single, examples=2), secret):
        assert pair.why_not_from_below is not None
        assert ACCOUNTANTS[name].why_not(pair, Side.LOWER) is not None


def test_every_union_member_is_registered() -> None:
    assert set(SAMPLERS.values()) == set(get_args(get_args(Sampler)[0]))
    assert set(SAMPLER_OPTIONS) == set(SAMPLERS)
