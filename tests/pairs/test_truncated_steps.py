"""Poisson batches that are cut: against the enumeration of all batches, exact binomial laws, and dp_accounting."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, product
from math import comb, cos, exp, sin

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from hockeystick import Mechanism, Poisson, bound
from hockeystick.accountants.cut_batches import ANGLES
from hockeystick.accountants.direct import ACCOUNTANT
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.mechanism import Unit
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.truncated_steps import TruncatedSteps
from hockeystick.pairs.users import Users
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
SETTINGS = Settings(Resolution(36, 1e-12))
Place = tuple[float, ...]
Mixture = dict[Place, float]

GRADIENTS: dict[str, Place] = {"same": (1.0, 0.0), "opposite": (-1.0, 0.0), "across": (0.0, 1.0), "none": (0.0, 0.0)}


def sums(size: int, q: float, cap: int, gradients: Sequence[Place]) -> tuple[Mixture, Mixture]:
    """The sum of the gradients of a batch, and the same when the first example has none."""

    def one_run(of: Sequence[Place]) -> Mixture:
        law: Mixture = defaultdict(float)
        for coins in product((0, 1), repeat=size):
            taken = [e for e, coin in enumerate(coins) if coin]
            batches = list(combinations(taken, min(cap, len(taken))))
            chance = q ** len(taken) * (1.0 - q) ** (size - len(taken)) / len(batches)
            for batch in batches:
                law[float(sum(of[e][0] for e in batch)), float(sum(of[e][1] for e in batch))] += chance
        return dict(law)

    return one_run(gradients), one_run([(0.0, 0.0), *gradients[1:]])


def truth(p: Mixture, q: Mixture, sigma: float, width: float | None = None) -> np.ndarray:
    """(remove, add) at all EPSILONS, by sums over a grid of outputs; cells of a plane have so many sigmas, if given."""
    places = np.array([*p, *q])
    flat = bool(np.all(places[:, 1] == 0.0))
    axis = np.linspace(places[:, 0].min() - 8.0 * sigma, places[:, 0].max() + 8.0 * sigma, 40_001 if flat else 1_201)
    other = np.zeros(1) if flat else np.linspace(-8.0 * sigma, places[:, 1].max() + 8.0 * sigma, 601)
    if width is not None:
        axis, other = (np.arange(side[0], side[-1], width * sigma) for side in (axis, other))

    def density(mixture: Mixture) -> np.ndarray:
        result = np.zeros((axis.size, other.size))
        for (x, y), weight in mixture.items():
            across = np.ones(1) if flat else np.exp(-0.5 * ((other - y) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
            along = np.exp(-0.5 * ((axis - x) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
            result += weight * np.outer(along, across)
        return result

    cell = (axis[1] - axis[0]) * (1.0 if flat else other[1] - other[0])
    one, two = density(p), density(q)
    remove = [np.maximum(one - exp(epsilon) * two, 0.0).sum() * cell for epsilon in EPSILONS]
    add = [np.maximum(two - exp(epsilon) * one, 0.0).sum() * cell for epsilon in EPSILONS]
    return np.array([remove, add])


GRID_ERROR = 2e-4
"""Of ``truth``, relative, beside 1e-9: that of a hinge of densities on cells of at most sigma / 20."""


CELL_LOSS = 0.02
"""Of a law of square cells of a sixteenth of sigma, five standard deviations out: 2 (5 / 16)^2 / 12.

Deltas near 1e-7 are hinges at the very end of a bounded ratio, of which less is left."""


def mechanism(size: int, q: float, cap: int, sigma: float, steps: int = 1, **unit: object) -> Mechanism:
    sampler = Poisson(sampling_prob=q, steps=steps, truncated_batch_size=cap, num_examples=size)
    return Mechanism(sampler=sampler, noise_multiplier=sigma, unit=Unit(**unit) if unit else Unit())


@pytest.mark.parametrize(
    ("size", "cap", "q", "sigma"),
    [(2, 1, 0.3, 0.5), (3, 1, 0.9, 1.0), (3, 2, 0.5, 0.4), (4, 1, 0.1, 0.7), (4, 2, 0.3, 0.6), (4, 3, 1.0, 2.0)],
)
def test_no_data_set_is_above(size: int, cap: int, q: float, sigma: float) -> None:
    """All batches of one step, for every choice of the others' gradients out of four."""
    upper = ACCOUNTANT.bound(dominating_pair(mechanism(size, q, cap, sigma)), Side.UPPER, SETTINGS)
    worst = np.zeros((2, len(EPSILONS)))
    for others in combinations_with_replacement(GRADIENTS, size - 1):
        worst = np.maximum(worst, _truth(size, q, cap, sigma, others))
    for row, direction in enumerate((Direction.REMOVE, Direction.ADD)):
        for column, epsilon in enumerate(EPSILONS):
            assert upper.profiles[direction](epsilon) >= worst[row, column] * (1.0 - GRID_ERROR) - 1e-9


@cache
def _truth(size: int, q: float, cap: int, sigma: float, others: tuple[str, ...]) -> np.ndarray:
    gradients = [GRADIENTS["same"], *(GRADIENTS[other] for other in others)]
    return truth(*sums(size, q, cap, gradients), sigma)


@pytest.mark.parametrize(("size", "cap", "q", "sigma"), [(3, 1, 0.9, 1.0), (4, 2, 0.5, 0.7), (4, 3, 0.9, 1.5)])
def test_others_of_one_gradient_attain_the_lower_bounds(size: int, cap: int, q: float, sigma: float) -> None:
    """Each law by itself: others without gradients, and those at an angle, by the enumeration of all batches."""
    pair = dominating_pair(mechanism(size, q, cap, sigma))
    laws = ACCOUNTANT.laws[TruncatedSteps](pair, Side.LOWER, SETTINGS)
    datasets = [(0.0, 0.0), *((-cos(angle), sin(angle)) for angle in ANGLES)]
    for law, other in zip(laws, datasets, strict=True):
        exact = truth(*sums(size, q, cap, [(1.0, 0.0), *[other] * (size - 1)]), sigma)
        for row, direction in enumerate((Direction.REMOVE, Direction.ADD)):
            for column, epsilon in enumerate(EPSILONS):
                delta = law_delta(law, epsilon, direction)
                assert delta <= exact[row, column] * (1.0 + GRID_ERROR) + 1e-9
                assert delta >= exact[row, column] * (1.0 - CELL_LOSS) - 1e-7


def test_two_steps_compose() -> None:
    """All pairs of batches of two steps, with opposite others: the sums of both steps are the outputs."""
    size, q, cap, sigma = 3, 0.6, 1, 1.0
    pair = dominating_pair(mechanism(size, q, cap, sigma, steps=2))
    upper = ACCOUNTANT.bound(pair, Side.UPPER, SETTINGS)
    p, q_ = sums(size, q, cap, [(1.0, 0.0), (-1.0, 0.0), (-1.0, 0.0)])

    def twice(step: Mixture) -> Mixture:
        return {(a, b): w * v for (a, _), w in step.items() for (b, _), v in step.items()}

    exact = _plane(twice(p), twice(q_), sigma)
    for row, direction in enumerate((Direction.REMOVE, Direction.ADD)):
        for column, epsilon in enumerate(EPSILONS):
            assert upper.profiles[direction](epsilon) >= exact[row, column] * (1.0 - 2e-3) - 1e-6


def _plane(p: Mixture, q: Mixture, sigma: float) -> np.ndarray:
    axis = np.linspace(-2.0 - 8.0 * sigma, 2.0 + 8.0 * sigma, 1_201)

    def density(mixture: Mixture) -> np.ndarray:
        def along(mean: float) -> np.ndarray:
            return np.exp(-0.5 * ((axis - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))

        return sum(
            (w * np.outer(along(a), along(b)) for (a, b), w in mixture.items()), np.zeros((axis.size, axis.size))
        )

    cell, one, two = (axis[1] - axis[0]) ** 2, density(p), density(q)
    remove = [np.maximum(one - exp(epsilon) * two, 0.0).sum() * cell for epsilon in EPSILONS]
    return np.array([remove, [np.maximum(two - exp(epsilon) * one, 0.0).sum() * cell for epsilon in EPSILONS]])


@pytest.mark.parametrize(("size", "cap", "q", "examples"), [(4, 2, 0.3, 2), (4, 1, 0.7, 3), (3, 2, 0.5, 2)])
def test_several_examples_of_one_user(size: int, cap: int, q: float, examples: int) -> None:
    """All batches, the user's gradients equal and the others' opposite, equal or none."""
    pair = dominating_pair(mechanism(size, q, cap, 0.8, kind="user", examples_per_user=examples))
    assert isinstance(pair, Users)
    assert isinstance(pair.copies, TruncatedSteps)
    upper, lower = (ACCOUNTANT.bound(pair.copies, side, SETTINGS) for side in (Side.UPPER, Side.LOWER))
    highest = np.zeros((2, len(EPSILONS)))
    for others in (1.0, 0.0, -1.0):
        with_user: Mixture = defaultdict(float)
        without: Mixture = defaultdict(float)
        for coins in product((0, 1), repeat=size):
            taken = [e for e, coin in enumerate(coins) if coin]
            batches = list(combinations(taken, min(cap, len(taken))))
            for batch in batches:
                chance = q ** len(taken) * (1.0 - q) ** (size - len(taken)) / len(batches)
                rest, mine = others * sum(e >= examples for e in batch), float(sum(e < examples for e in batch))
                with_user[rest + mine, 0.0] += chance
                without[rest, 0.0] += chance
        highest = np.maximum(highest, truth(with_user, without, 0.8))
    for row, direction in enumerate((Direction.REMOVE, Direction.ADD)):
        for column, epsilon in enumerate(EPSILONS):
            assert upper.profiles[direction](epsilon) >= highest[row, column] * (1.0 - GRID_ERROR) - 1e-9
            assert lower.profiles[direction](epsilon) <= highest[row, column] * (1.0 + GRID_ERROR) + 1e-9


@pytest.mark.parametrize(
    ("size", "cap", "rate"),
    [
        (60, 20, Fraction(1, 4)),
        (60, 59, Fraction(1, 2)),
        (5, 1, Fraction(3, 4)),
        (7, 3, Fraction(1)),
        (60, 1, Fraction(1, 64)),
    ],
)
def test_the_law_of_a_step_in_exact_fractions(size: int, cap: int, rate: Fraction) -> None:
    others = size - 1
    chance = [comb(others, r) * rate**r * (1 - rate) ** (others - r) for r in range(size)]
    crowded = sum(chance[cap:], Fraction(0))
    kept = sum((chance[r] * rate * cap / (r + 1) for r in range(cap, size)), Fraction(0))
    pair = TruncatedSteps(
        noise_multiplier=1.0, sampling_prob=float(rate), steps=1, truncated_batch_size=cap, num_examples=size
    )
    crowding, places = pair.crowding, pair.displacement
    pushed = sum((chance[r] * rate * cap / (r + 1) for r in range(cap, size)), Fraction(0))
    exact = {
        places.loose: sum(chance[: cap - 1], Fraction(0)),
        places.empty: chance[cap - 1] * (1 - rate),
        places.taken: crowded - pushed,
        places.placed: chance[cap - 1] * rate + pushed,
        places.pushed: pushed,
        float(places.counts[:2].sum()): sum(chance[max(cap - 2, 0) : cap], Fraction(0)),
        crowding.roomy: 1 - crowded,
        crowding.crowded: crowded,
        crowding.survivors[0]: 1 - kept / crowded,
        crowding.survivors[1]: kept / crowded,
        crowding.attained.probabilities[1]: (1 - crowded) * rate + kept,
    }
    assert crowding.error <= places.error <= 1e-10
    for number, fraction in exact.items():
        assert abs(Fraction(number) - fraction) <= Fraction(places.error + 1e-15) * fraction


def test_a_cap_that_is_never_reached_is_no_cut() -> None:
    assert isinstance(dominating_pair(mechanism(100, 0.25, 100, 1.0)), IndependentSteps)
    assert isinstance(dominating_pair(mechanism(1_000_000, 0.001, 900_000, 1.0)), IndependentSteps)
    assert isinstance(dominating_pair(mechanism(100, 0.25, 99, 1.0)), TruncatedSteps)


def test_many_examples_that_are_nearly_always_taken_are_left_to_the_chain() -> None:
    pair = dominating_pair(mechanism(100, 0.99, 50, 1.0, kind="user", examples_per_user=9))
    assert isinstance(pair, Users)
    assert pair.copies is None


def random_runs(count: int) -> list[Mechanism]:
    """Caps from two standard deviations below the mean batch to three and a half above."""
    rng = np.random.default_rng(17)
    runs: list[Mechanism] = []
    while len(runs) < count:
        size, q = int(10 ** rng.uniform(1.0, 4.7)), float(10 ** rng.uniform(-2.5, -0.3))
        cap = round(size * q + rng.uniform(-2.0, 3.5) * (size * q * (1.0 - q)) ** 0.5)
        steps, sigma = int(10 ** rng.uniform(0.0, 2.5)), float(rng.uniform(0.6, 4.0))
        if 1 <= cap < size:
            runs.append(mechanism(size, q, cap, sigma, steps))
    return runs


@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=pytest.mark.weekly if place > 3 else ()) for place, run in enumerate(random_runs(8))],
)
def test_never_above_dp_accounting(run: Mechanism) -> None:
    """Both are pessimistic; with twice the usual nodes our own rounding is below a ten-thousandth."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    sampler = run.sampler
    assert isinstance(sampler, Poisson)
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        sampler.num_examples, sampler.sampling_prob, sampler.truncated_batch_size, run.noise_multiplier
    )
    peer = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    peer.compose(event, sampler.steps)
    theirs = peer.get_epsilon(1e-5)
    ours = ACCOUNTANT.bound(dominating_pair(run), Side.UPPER, Settings(Resolution(144, 1e-5))).epsilon(1e-5)
    assert ours <= theirs


def test_the_run_of_the_manual() -> None:
    """dp_accounting 0.6 prints 1.8380 and 4.8357; before, our slack exceeded delta and there was no bound."""
    for cap, theirs in ((600, 1.8380), (550, 4.8357)):
        run = mechanism(50_000, 0.01, cap, 1.0, 1_000)
        upper, lower = bound(run, "direct").epsilon(1e-5), bound(run, "direct", side=Side.LOWER).epsilon(1e-5)
        assert lower <= upper <= theirs * (1.0 + 2e-4)


@pytest.mark.parametrize("above", [0, 1, 3, 14])
def test_crowding_keeps_its_digits_with_billions_of_examples(above: int) -> None:
    """Against mpmath's sum of terms, for a cut so many standard deviations above the mean.

    The proved error is twice that of some 50,000 terms with ten roundings each.
    """
    mpmath = pytest.importorskip("mpmath")
    size, mean = 12_700_000_000, 518_000
    q, cap = mean / size, int(mean + above * mean**0.5)
    pair = TruncatedSteps(noise_multiplier=0.6, sampling_prob=q, steps=1, truncated_batch_size=cap, num_examples=size)
    with mpmath.workdps(40):
        # Pr[r >= B] by its terms, each from the one before.
        log_first = (
            mpmath.loggamma(size)
            - mpmath.loggamma(cap + 1)
            - mpmath.loggamma(size - cap)
            + cap * mpmath.log(q)
            + (size - 1 - cap) * mpmath.log1p(-mpmath.mpf(q))
        )
        term, total, count, odds = mpmath.exp(log_first), mpmath.mpf(0), cap, mpmath.mpf(q) / (1 - mpmath.mpf(q))
        while term > mpmath.mpf(10) ** -60 and count < cap + 8_000:
            total += term
            term *= (size - 1 - count) * odds / (count + 1)
            count += 1
    crowding = pair.crowding
    assert abs(crowding.crowded / float(total) - 1.0) <= crowding.error
    assert crowding.error < 2 * 60_000 * 10 * 2.0**-53


def test_a_tiny_delta_of_a_tiny_rate_is_reached() -> None:
    """Laws know that no ratio is near 0, so products of a thousand of them have no mass to spread there."""
    run = mechanism(10**10, 1e-10, 1, 0.5, steps=1000)
    lower, upper = (bound(run, "direct", side=side).epsilon(1e-30) for side in (Side.LOWER, Side.UPPER))
    assert 0.0 < lower <= upper <= 1.05 * lower


@cache
def billions_of_sequences(cap: int) -> tuple[float, float]:
    size = 12_700_000_000
    sampler = Poisson(sampling_prob=518_000 / size, steps=100_000, truncated_batch_size=cap, num_examples=size)
    mechanism = Mechanism(sampler=sampler, noise_multiplier=0.6)
    lower, upper = (bound(mechanism, "direct", side=side).epsilon(1.1e-10) for side in (Side.LOWER, Side.UPPER))
    return lower, upper


def test_a_plan_of_billions_of_sequences_has_close_sides() -> None:
    """Where batches are hardly ever cut."""
    lower, upper = billions_of_sequences(528_076)
    assert lower <= upper <= 1.01 * lower
    assert lower <= 2.0


def test_a_cut_three_deviations_above_the_mean_costs_privacy() -> None:
    """Of examples that are never cut, epsilon is below 2: the bound without a cap is false for these batches."""
    lower, upper = billions_of_sequences(520_159)
    assert 1.4 * 2.0 <= lower <= upper <= 1.15 * lower


@pytest.mark.parametrize("cap", [518_000, 518_720])
def test_sides_are_close_where_many_batches_are_cut(cap: int) -> None:
    """At the mean and a standard deviation above: half and a sixth of the batches."""
    lower, upper = billions_of_sequences(cap)
    assert lower <= upper <= 1.1 * lower


def rare_others(size: int, q: float, cap: int, usual: Place, unusual: Place, few: int) -> tuple[Mixture, Mixture]:
    """The laws of the sums where all others have one gradient but a few that have another."""
    others = size - 1

    def of(taken: int) -> dict[Place, float]:
        return {
            ((taken - k) * usual[0] + k * unusual[0], (taken - k) * usual[1] + k * unusual[1]): float(
                hypergeom.pmf(k, others, few, taken)
            )
            for k in range(min(few, taken) + 1)
        }

    def add(law: Mixture, taken: int, chance: float, own: Place = (0.0, 0.0)) -> None:
        for (x, y), weight in of(taken).items():
            law[x + own[0], y + own[1]] += chance * weight

    p: Mixture = defaultdict(float)
    without: Mixture = defaultdict(float)
    for drawn in range(others + 1):
        chance = float(binom.pmf(drawn, others, q))
        kept = q if drawn < cap else q * cap / (drawn + 1)
        for law, own in ((p, (1.0, 0.0)), (without, (0.0, 0.0))):
            add(law, min(drawn, cap), chance * (1.0 - kept))
            add(law, min(drawn, cap - 1), chance * kept, own)
    return dict(p), dict(without)


@pytest.mark.parametrize(
    ("usual", "unusual", "few"),
    [((-0.25, 0.968), (0.0, 0.0), 0), ((-0.25, 0.968), (1.0, 0.0), 3), ((-0.9, 0.3), (-0.5, -0.8), 2)],
)
def test_a_hundred_in_a_batch_are_not_above(usual: Place, unusual: Place, few: int) -> None:
    """One step with a cap at the mean, where it can stay hidden how full a batch was."""
    run = mechanism(2_000, 0.052, 104, 1.0)
    upper = ACCOUNTANT.bound(dominating_pair(run), Side.UPPER, SETTINGS)
    exact = truth(*rare_others(2_000, 0.052, 104, usual, unusual, few), 1.0, width=0.1)
    for row, direction in enumerate((Direction.REMOVE, Direction.ADD)):
        for column, epsilon in enumerate(EPSILONS):
            assert upper.profiles[direction](epsilon) >= exact[row, column] * (1.0 - 2e-3) - 1e-9


@pytest.mark.parametrize(("cap", "cost"), [(520_159, 0.93), (518_720, 2.64), (518_000, 3.31)])
def test_what_a_cut_costs_is_proved(cap: int, cost: float) -> None:
    """At three, one and no standard deviations above the mean: what docs/theory/truncated-steps.md says."""
    plain = Mechanism(sampler=Poisson(sampling_prob=518_000 / 12_700_000_000, steps=100_000), noise_multiplier=0.6)
    assert billions_of_sequences(cap)[0] - bound(plain, "direct").epsilon(1.1e-10) >= cost
