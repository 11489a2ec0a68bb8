"""Users with several examples against brute force: every accountant, both directions, all samplers."""

from collections.abc import Callable
from functools import cache
from itertools import combinations, product
from math import exp, fsum

import numpy as np
import pytest
import unit_oracle as oracle
from unit_oracle import EPSILONS, GRID_ERROR, Outcomes

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BMinSep,
    Bound,
    CyclicPoisson,
    Deterministic,
    Direction,
    Identity,
    Kind,
    Mechanism,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Resolution,
    Settings,
    Shuffle,
    Side,
)
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.mechanism import Unit
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.occupancy import dealt
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.users import Users
from hockeystick.samplers import Sampler
from hockeystick.strategies import StrategySpec

SETTINGS = Settings(Resolution(24, 1e-4), effort=0.1)
TESTED = [
    method
    for name, method in every_accountant().items()
    if method.kind is Kind.DETERMINISTIC and method.assumes is None and name != "moment_majorant_cells"
]
"""Not the one whose every value takes a tenth of a second; users are bounded by the same lines for all accountants."""

Enumerated = Callable[[int], list[Outcomes]]
"""From the number of examples to everything that can happen, once for each choice that the data's order makes."""


def assigned(options: list[list[tuple[float, tuple[int, ...]]]]) -> Enumerated:
    """Each example has one of several laws, whichever is worst."""

    def all_of(examples: int) -> list[Outcomes]:
        chosen = product(options, repeat=examples)
        return [
            [(float(np.prod([p for p, _ in each])), tuple(steps for _, steps in each)) for each in product(*laws)]
            for laws in chosen
        ]

    return all_of


def alone(law: list[tuple[float, tuple[int, ...]]]) -> Enumerated:
    return lambda examples: [oracle.independently(law, examples)]


CASES: dict[str, tuple[StrategySpec, Sampler, float, Enumerated]] = {
    "deterministic": (
        Identity(),
        Deterministic(bins=2),
        2.0,
        assigned([[(1.0, (0,))], [(1.0, (1,))]]),
    ),
    "deterministic, correlated": (
        BandedSquareRoot(bands=2),
        Deterministic(bins=3),
        2.0,
        assigned([[(1.0, (i,))] for i in range(3)]),
    ),
    "poisson": (Identity(), Poisson(sampling_prob=0.3, steps=3), 1.0, alone(oracle.coins(range(3), 0.3))),
    "poisson, correlated": (
        BandedSquareRoot(bands=2),
        Poisson(sampling_prob=0.2, steps=3),
        1.3,
        alone(oracle.coins(range(3), 0.2)),
    ),
    "poisson, four steps": (Identity(), Poisson(sampling_prob=0.15, steps=4), 0.9, alone(oracle.coins(range(4), 0.15))),
    "cyclic": (
        Identity(),
        CyclicPoisson(groups=2, sampling_prob=0.4, steps=3),
        1.2,
        assigned([oracle.coins((0, 2), 0.4), oracle.coins((1,), 0.4)]),
    ),
    "cyclic, correlated": (
        BandedSquareRoot(bands=3),
        CyclicPoisson(groups=2, sampling_prob=0.4, steps=3),
        1.5,
        assigned([oracle.coins((0, 2), 0.4), oracle.coins((1,), 0.4)]),
    ),
    "secret groups": (
        Identity(),
        CyclicPoisson(groups=2, sampling_prob=0.5, steps=3, partition="independent"),
        1.0,
        alone([(0.5 * p, v) for p, v in [*oracle.coins((0, 2), 0.5), *oracle.coins((1,), 0.5)]]),
    ),
    "bins": (Identity(), BallsInBins(bins=3), 0.9, alone(oracle.replayed(3, 1))),
    "bins replayed": (Identity(), BallsInBins(bins=2, epochs=2), 1.5, alone(oracle.replayed(2, 2))),
    "bins, correlated": (BandedSquareRoot(bands=2), BallsInBins(bins=3), 1.5, alone(oracle.replayed(3, 1))),
    "allocation": (Identity(), RandomAllocation(bins=2, epochs=2), 1.2, alone(oracle.allocations(2, 1, 2))),
    "allocation, 2 of 3": (
        Identity(),
        RandomAllocation(bins=3, participations=2),
        1.5,
        alone(oracle.allocations(3, 2, 1)),
    ),
    "min sep, cold": (
        BandedSquareRoot(bands=2),
        BMinSep(min_sep=2, sampling_prob=0.25, steps=3, warm_start=False),
        1.3,
        alone(oracle.renewals(3, 2, 1.0 / 3.0, warm=False)),
    ),
    "min sep, four steps": (
        BandedSquareRoot(bands=3),
        BMinSep(min_sep=2, sampling_prob=0.2, steps=4),
        1.5,
        alone(oracle.renewals(4, 2, 0.25, warm=True)),
    ),
    "min sep, warm": (
        Identity(),
        BMinSep(min_sep=3, sampling_prob=0.25, steps=3),
        0.8,
        alone(oracle.renewals(3, 3, 0.5, warm=True)),
    ),
    "attributed, by example": (
        BandedSquareRoot(bands=2),
        MultiAttribution(min_sep=2, sampling_prob=0.3, steps=3, examples_per_user=1, exclusion="example"),
        1.3,
        alone(oracle.renewals(3, 2, 0.3, warm=False)),
    ),
    "attributed": (
        BandedSquareRoot(bands=2),
        MultiAttribution(min_sep=2, sampling_prob=0.3, steps=3, examples_per_user=1),
        1.5,
        lambda examples: [oracle.attributed(examples, 3, 2, 0.3)],
    ),
    "shuffle": (
        Identity(),
        Shuffle(batch_size=2, bins=3),
        1.0,
        lambda examples: [oracle.deals(examples, 2, 3, 1)],
    ),
    "shuffle, two epochs": (
        Identity(),
        Shuffle(batch_size=3, bins=2, epochs=2),
        1.6,
        lambda examples: [oracle.deals(examples, 3, 2, 2)] if examples < 3 else [],
    ),
}
SIZES = (2, 3)


def mechanism(case: str, examples: int) -> Mechanism:
    strategy, sampler, sigma, _ = CASES[case]
    if isinstance(sampler, MultiAttribution):  # which knows its users
        sampler = sampler.model_copy(update={"examples_per_user": examples})
    unit = Unit(kind="user", examples_per_user=examples)
    return Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma, unit=unit)


@cache
def bounds(case: str, examples: int, side: Side) -> dict[str, Bound]:
    """What every accountant that can says of the user."""
    return bounds_of(dominating_pair(mechanism(case, examples)), side)


def bounds_of(pair: DominatingPair, side: Side = Side.UPPER) -> dict[str, Bound]:
    """What every accountant that can says of a pair."""
    by_method = {}
    for method in TESTED:
        if method.why_not(pair, side) is None:
            try:
                by_method[method.name] = method.bound(pair, side, SETTINGS)
            except UnsupportedError:
                continue
    return by_method


def gradients_of(examples: int, steps: int) -> list[np.ndarray]:
    """Aligned, opposed, weaker, and changing from step to step, each with norm at most 1."""
    rng = np.random.default_rng(5)
    ones = np.ones((examples, steps))
    opposed = ones.copy()
    opposed[0] = -1.0
    return [ones, opposed, np.linspace(0.3, 1.0, examples)[:, None] * ones, rng.uniform(-1.0, 1.0, (examples, steps))]


def outcomes(case: str, examples: int) -> list[Outcomes]:
    return CASES[case][3](examples)


def test_the_oracle_itself() -> None:
    for steps in (1, 2, 3, 4):
        for mean in (
            np.linspace(0.5, 1.0, steps),
            np.linspace(2.0, 0.3, steps),
            np.ones(steps),
            -1.3 * np.eye(steps)[0],
        ):
            profile = oracle.deltas([(1.0, tuple(mean.tolist()))], [(1.0, (0.0,) * steps)], 0.8)
            for epsilon, remove, add in zip(EPSILONS, *profile, strict=True):
                truth = gaussian_delta(0.8, float(np.linalg.norm(mean)), epsilon, Side.UPPER)
                assert remove == pytest.approx(truth, abs=GRID_ERROR[steps])
                assert add == pytest.approx(truth, abs=GRID_ERROR[steps])


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_no_user_is_less_private_than_certified(case: str, examples: int) -> None:
    sigma, matrix = CASES[case][2], mechanism(case, 1).matrix.materialize()
    worst = np.zeros((2, len(EPSILONS)))
    for enumerated in outcomes(case, examples):
        assert sum(p for p, _ in enumerated) == pytest.approx(1.0)
        for gradients in gradients_of(examples, matrix.shape[1]):
            p = oracle.mixture(enumerated, matrix, gradients)
            worst = np.maximum(worst, oracle.deltas(p, oracle.nobody(matrix), sigma))
            if case.startswith("shuffle"):  # the others have gradient -1, and the user takes their places
                p = oracle.mixture(enumerated, matrix, gradients, others=1.0)
                q = oracle.mixture(enumerated, matrix, np.zeros_like(gradients), others=1.0)
                worst = np.maximum(worst, oracle.deltas(p, q, sigma))
    upper, lower = bounds(case, examples, Side.UPPER), bounds(case, examples, Side.LOWER)
    assert "gaussian" in upper
    error = GRID_ERROR[matrix.shape[0]]
    for row, direction in enumerate(Direction):
        for column, epsilon in enumerate(EPSILONS):
            for bound in upper.values():
                assert bound.profiles[direction](epsilon) >= worst[row, column] - error, bound.method
            if not case.startswith("shuffle"):  # whose worst data set is not among these
                for bound in lower.values():
                    if direction in bound.profiles:
                        assert bound.profiles[direction](epsilon) <= worst[row, column] + error, bound.method


@pytest.mark.parametrize("case", ["deterministic", "poisson", "cyclic"])
def test_copies_without_correlated_noise_are_near_exact(case: str) -> None:
    for epsilon in EPSILONS:
        for direction in Direction:
            top = min(bound.profiles[direction](epsilon) for bound in bounds(case, 2, Side.UPPER).values())
            bottom = max(
                bound.profiles[direction](epsilon)
                for bound in bounds(case, 2, Side.LOWER).values()
                if direction in bound.profiles
            )
            assert top <= bottom * 1.02 + 1e-6


@pytest.mark.parametrize("examples", [*SIZES, 5])
@pytest.mark.parametrize("case", CASES)
def test_never_worse_than_group_privacy(case: str, examples: int) -> None:
    """What users are told, the best of all bounds, is at most group privacy from any of these methods."""
    alone, of_user = bounds(case, 1, Side.UPPER), bounds(case, examples, Side.UPPER)
    methods = set(alone) & set(of_user)
    assert methods
    for epsilon in EPSILONS:
        part = epsilon / examples
        for direction in Direction:
            told = min(bound.profiles[direction](epsilon) for bound in of_user.values())
            for method in methods:
                group = sum(exp(i * part) for i in range(examples)) * alone[method].profiles[direction](part)
                assert told <= min(group, 1.0) * (1.0 + 1e-9) + 1e-300


@pytest.mark.parametrize(
    "case", ["poisson", "bins", "allocation", "shuffle", "min sep, cold", "attributed, by example"]
)
def test_more_examples_are_never_more_private(case: str) -> None:
    for name in bounds(case, 2, Side.UPPER):
        for epsilon in EPSILONS:
            two, three = (bounds(case, k, Side.UPPER)[name].delta(epsilon) for k in SIZES)
            assert two <= three * (1.0 + 1e-9)


def test_gradients_that_react_do_not_beat_constant_ones() -> None:
    """Two examples, two steps, a bin each: what both contribute at step 2 may depend on the first output."""
    axis = np.linspace(-8.0, 10.0, 1201)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    density = np.exp(-(first**2 + second**2) / 2.0) / (2.0 * np.pi) * (axis[1] - axis[0]) ** 2

    def divergences(
        rule_a: Callable[[np.ndarray], np.ndarray], rule_b: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        own = (rule_a(first), rule_b(first))
        ratio = np.zeros_like(first)
        for bins in product((0, 1), repeat=2):
            before = float(bins.count(0))
            after = sum((own[e] for e in range(2) if bins[e] == 1), np.zeros_like(first))
            ratio += 0.25 * np.exp(before * first - before**2 / 2.0 + after * second - after**2 / 2.0)
        remove = [(np.maximum(ratio - exp(epsilon), 0.0) * density).sum() for epsilon in EPSILONS]
        add = [(np.maximum(1.0 - exp(epsilon) * ratio, 0.0) * density).sum() for epsilon in EPSILONS]
        return np.array([remove, add])

    constant = divergences(np.ones_like, np.ones_like)
    assert np.abs(divergences(np.sign, np.sign) - constant).max() < 1e-5  # turning both round together changes nothing
    for rules in ((np.sign, lambda y: -np.sign(y)), (np.tanh, np.ones_like), (np.cos, np.sin)):
        gain = divergences(*rules) - constant
        assert gain.max() <= 1e-5
        assert gain.min() < -1e-3


@pytest.mark.parametrize("examples", SIZES)
def test_truncated_batches(examples: int) -> None:
    """Four examples, at most two in a batch; all that are drawn beyond that are left out at random."""
    unit = Unit(kind="user", examples_per_user=examples)
    sampler = Poisson(sampling_prob=0.3, steps=1, truncated_batch_size=2, num_examples=4)
    run = Mechanism(sampler=sampler, noise_multiplier=1.0, unit=unit)
    pair = dominating_pair(run)
    upper = [method.bound(pair, Side.UPPER, SETTINGS) for method in TESTED if method.why_not(pair, Side.UPPER) is None]
    assert len(upper) > 1
    for others in (1.0, -1.0):
        p: dict[float, float] = {}
        q: dict[float, float] = {}
        for drawn in product((0, 1), repeat=4):
            chance = 0.3 ** sum(drawn) * 0.7 ** (4 - sum(drawn))
            taken = [e for e in range(4) if drawn[e]]
            batches = list(combinations(taken, min(2, len(taken))))
            for batch in batches:
                rest = others * sum(e >= examples for e in batch)
                mine = float(sum(e < examples for e in batch))
                p[rest + mine] = p.get(rest + mine, 0.0) + chance / len(batches)
                q[rest] = q.get(rest, 0.0) + chance / len(batches)
        truth = oracle.deltas([(w, (m,)) for m, w in p.items()], [(w, (m,)) for m, w in q.items()], 1.0)
        for column, epsilon in enumerate(EPSILONS):
            for bound in upper:
                assert bound.delta(epsilon) >= truth[:, column].max() - GRID_ERROR[1]


REPLACED = (
    "deterministic",
    "poisson",
    "poisson, correlated",
    "cyclic",
    "bins",
    "allocation",
    "min sep, cold",
    "shuffle",
)


@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize("case", REPLACED)
def test_no_replacement_is_less_private_than_certified(case: str, examples: int) -> None:
    """Examples of one gradient by those of another: opposed ones, weaker ones, ones that change from step to step."""
    strategy, sampler, sigma, enumerated = CASES[case]
    kind: dict[str, object] = {"kind": "user", "examples_per_user": examples} if examples > 1 else {}
    unit = Unit.parse({**kind, "neighbours": "replace"})
    run = Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma, unit=unit)
    pair, matrix = dominating_pair(run), run.matrix.materialize()
    worst = np.zeros((2, len(EPSILONS)))
    others = 1.0 if case == "shuffle" else 0.0
    for outcomes in enumerated(examples):
        for gradients in gradients_of(examples, matrix.shape[1]):
            for instead in (-gradients, 0.0 * gradients, np.flip(gradients, axis=0)):
                p, q = (oracle.mixture(outcomes, matrix, visits, others=others) for visits in (gradients, instead))
                worst = np.maximum(worst, oracle.deltas(p, q, sigma))
    error = GRID_ERROR[matrix.shape[0]]
    for side in Side:
        for accountant in TESTED:
            if accountant.why_not(pair, side) is not None:
                continue
            bound = accountant.bound(pair, side, SETTINGS)
            for row, direction in enumerate(Direction):
                if direction not in bound.profiles:
                    continue
                for column, epsilon in enumerate(EPSILONS):
                    delta = bound.profiles[direction](epsilon)
                    if side is Side.UPPER:
                        assert delta >= worst[row, column] - error, accountant.name
                    elif case != "shuffle":
                        assert delta <= worst[row, column] + error, accountant.name


def test_replacement_in_known_batches_is_exact() -> None:
    run = Mechanism(sampler=Deterministic(bins=5, epochs=4), noise_multiplier=8.0, unit=Unit(neighbours="replace"))
    for side in Side:
        bound = ACCOUNTANTS["gaussian"].bound(dominating_pair(run), side, SETTINGS)
        for epsilon in (0.0, 0.5, 2.0):
            assert bound.delta(epsilon) == pytest.approx(gaussian_delta(8.0, 4.0, epsilon, side), rel=1e-8)


def test_what_a_user_is_where_the_sampler_knows_users() -> None:
    sampler = MultiAttribution(min_sep=3, sampling_prob=0.05, steps=9, examples_per_user=2)
    own = Mechanism(sampler=sampler, noise_multiplier=2.0)
    same = Mechanism(sampler=sampler, noise_multiplier=2.0, unit=Unit(kind="user", examples_per_user=2))
    assert type(dominating_pair(own)) is type(dominating_pair(same))
    other = Mechanism(sampler=sampler, noise_multiplier=2.0, unit=Unit(kind="user", examples_per_user=3))
    with pytest.raises(UnsupportedError, match=r"The 'unit.examples_per_user' field must be .* = 2 .* Got 3 instead"):
        dominating_pair(other)


def test_a_user_with_one_example_is_an_example() -> None:
    run = Mechanism(
        sampler=Poisson(sampling_prob=0.1, steps=5), noise_multiplier=1.0, unit=Unit(kind="user", examples_per_user=1)
    )
    assert not isinstance(dominating_pair(run), Users)


@pytest.mark.parametrize("epochs", [3, 10**5, 10**8])
def test_what_the_chances_of_many_epochs_are_rounded_by_is_charged(epochs: int) -> None:
    """They sum to 1 but for rounding, which grows with the epochs."""
    for examples, batch_size, bins in [(2, 7, 10), (2, 5, 3), (4, 3, 11)]:
        revealed = dealt(examples, batch_size, bins, epochs, 0.01)
        assert abs(fsum(revealed.probabilities) - 1.0) <= 0.1 * revealed.probability_error
    run = Mechanism(
        sampler=Shuffle(batch_size=7, bins=10, epochs=epochs),
        noise_multiplier=0.01,
        unit=Unit(kind="user", examples_per_user=2),
    )
    assert ACCOUNTANTS["gaussian"].bound(dominating_pair(run), Side.UPPER).delta(0.0) == 1.0
