"""Conditional composition against simulation, slow oracles and the other bounds of the same pair."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm

from hockeystick.accountants import comparison, conditional_composition, gaussian
from hockeystick.accountants.conditional_composition import conditional_profiles
from hockeystick.bounds import Bound, Question
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.discretise import mixture_law
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, point_mass_at_one
from hockeystick.laws.operations import compose
from hockeystick.laws.profile import law_delta
from hockeystick.moments import geometric_mean
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.posteriors.bins import budget, hazards, kernels
from hockeystick.posteriors.bins.dominating_steps import composed_law
from hockeystick.posteriors.bins.levels import LevelledMeans, levelled_means
from hockeystick.settings import Settings
from hockeystick.strategies import BandedSquareRoot
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side

PATHS = 10_000
SURE = 1e-6
"""Allowed probability that one exact binomial bound is wrong."""
EPSILONS = (0.0, 0.1, 0.5, 1.0, 3.0)
COARSE = Settings(Resolution(24, 1e-4))


def square_root_pair(bands: int, bins: int, epochs: int, sigma: float) -> BinMixture:
    return BinMixture(noise_multiplier=sigma, matrix=BandedSquareRoot(bands=bands).matrix(bins * epochs), bins=bins)


def random_pair(seed: int, bins: int, epochs: int, sigma: float) -> BinMixture:
    rng = np.random.default_rng(seed)
    entries = np.tril(rng.exponential(0.5, size=(bins * epochs,) * 2) * (rng.random((bins * epochs,) * 2) < 0.6))
    np.fill_diagonal(entries, 1.0)
    return BinMixture(noise_multiplier=sigma, matrix=DenseMatrix(entries), bins=bins)


def levels_of(pair: BinMixture) -> LevelledMeans:
    return levelled_means(pair.means(), pair.rounding)


def all_tails(pair: BinMixture, levelled: LevelledMeans, direction: Direction, spent: float, shares: Array) -> Array:
    rows = np.arange(pair.matrix.rows)
    tries = {direction: np.array([spent])}
    tails = hazards.tail_bounds(
        pair.means(), pair.noise_multiplier, pair.rounding, levelled, rows, tries, shares, lambda: None
    )
    return tails[direction][0]


def failures(pair: BinMixture, levelled: LevelledMeans, tails: Array, direction: Direction, seed: int) -> int:
    """Paths on which some row's true posterior is not dominated by the tails; by the definition, row by row."""
    rng = np.random.default_rng(seed)
    means, sigma = pair.means(), pair.noise_multiplier
    bins = rng.integers(pair.bins, size=PATHS)
    likelihood = np.ones((PATHS, pair.bins))
    failed = np.zeros(PATHS, dtype=bool)
    for row in range(pair.matrix.rows):
        total = likelihood.sum(axis=1)
        for level in np.unique(levelled.index[row])[1:]:
            above = likelihood[:, levelled.index[row] >= level].sum(axis=1)
            failed |= above > (tails[row, level] + 1e-9) * total
        moved = np.flatnonzero(means[row])
        centre = means[row, bins] if direction is Direction.REMOVE else 0.0
        output = sigma * rng.standard_normal(PATHS) + centre
        likelihood[:, moved] *= np.exp((np.outer(output, means[row, moved]) - 0.5 * means[row, moved] ** 2) / sigma**2)
    return int(failed.sum())


def at_most(count: int) -> float:
    """Exact (Clopper-Pearson) upper confidence bound for a probability; wrong with probability SURE."""
    return float(beta.ppf(1.0 - SURE, count + 1, PATHS - count))


def at_least(count: int) -> float:
    """The lower one."""
    return float(beta.ppf(SURE, count, PATHS - count + 1)) if count else 0.0


FOUR_EQUAL = BinMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.ones(4), 60), bins=30)
"""At every row four bins share a level, with different prefixes."""
SIMULATED = (
    square_root_pair(1, 50, 2, 1.5),
    square_root_pair(4, 50, 2, 1.5),
    FOUR_EQUAL,
    random_pair(1, 8, 2, 3.0),
)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("pair", SIMULATED)
def test_the_posterior_is_dominated_but_for_the_budget(pair: BinMixture, direction: Direction) -> None:
    """The simulated probability is about a sixth of the budget or less, so a true bound fails far below SURE."""
    levelled = levels_of(pair)
    tails = all_tails(pair, levelled, direction, 0.05, budget.union_shares(pair.means(), levelled))
    count = failures(pair, levelled, tails, direction, seed=1)
    assert at_most(count) <= 0.05


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("sigma", "claimed", "factor"), [(1.5, 0.002, 1.0), (4.0, 0.02, 5.0)])
def test_the_largest_bound_of_an_epoch_is_not_one_for_the_epoch(
    sigma: float, claimed: float, factor: float, direction: Direction
) -> None:
    """The paper's appendix E with the one bound that a row of C = I needs: true failures exceed what is claimed."""
    pair = square_root_pair(1, 50, 2, sigma)
    shares = np.full((100, 50), 1.0 / pair.epochs)
    shares[:50] /= 50
    levelled = levels_of(pair)
    tails = all_tails(pair, levelled, direction, claimed, shares)
    tails[50:] = tails[50:].max(axis=0)
    assert at_least(failures(pair, levelled, tails, direction, seed=1)) > factor * claimed


@pytest.mark.parametrize("direction", Direction)
def test_the_largest_of_exact_quantiles_is_no_quantile_of_the_largest(direction: Direction) -> None:
    """The same with simulated quantiles, so that no slack of a bound hides it: C = I, b = 50, k = 2, sigma = 1.5.

    Every row of the second epoch passes the largest of their 0.998-quantiles with probability about 0.002 or less,
    some row with probability near 0.09 (800,000 paths; 0.053 at 10,000, whose largest quantile is too large). At 10,000
    paths a lower confidence bound above 0.03 needs 400 failures, five standard deviations below what is expected.
    """

    def weights_of_the_next_bin(seed: int) -> Array:
        rng = np.random.default_rng(seed)
        bins = rng.integers(50, size=PATHS)
        likelihood = np.ones((PATHS, 50))
        weights = np.empty((50, PATHS))
        for row in range(100):
            i = row % 50
            if row >= 50:
                weights[i] = likelihood[:, i] / likelihood.sum(axis=1)
            centre = (bins == i) * (direction is Direction.REMOVE)
            likelihood[:, i] *= np.exp((1.5 * rng.standard_normal(PATHS) + centre - 0.5) / 1.5**2)
        return weights

    largest = np.quantile(weights_of_the_next_bin(1), 1.0 - 0.002, axis=1).max()
    passed = weights_of_the_next_bin(2) > largest
    assert at_most(int(passed.sum(axis=1).max())) < 0.006
    assert at_least(int(passed.any(axis=0).sum())) > 0.03


def test_the_simulation_rejects_a_part_of_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the tail over the components k >= i alone, as in the paper's Algorithm 4, for C = I (k = i)."""
    pair = square_root_pair(1, 50, 2, 4.0)
    real: Callable[..., Array] = kernels.thresholds

    def own_component_only(centres: Array, deviation: Array, own: np.ndarray, *rest: object) -> Array:
        return real(np.take_along_axis(centres, own[:, None, None], axis=2), deviation, np.zeros_like(own), *rest)

    levelled = levels_of(pair)
    monkeypatch.setattr(kernels, "thresholds", own_component_only)
    shares = pair.bins * budget.union_shares(pair.means(), levelled)  # that component has the weight 1 / b
    tails = all_tails(pair, levelled, Direction.REMOVE, 0.05, shares)
    assert at_least(failures(pair, levelled, tails, Direction.REMOVE, seed=1)) > 0.05


def test_the_simulation_rejects_a_level_without_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the largest ratio of a level in place of their sum."""

    def largest_only(*arguments: object) -> Array:
        threshold, informative, alike, level, lowest, levels = arguments
        below = alike + informative * np.exp(threshold)  # type: ignore[operator, call-overload]
        keep = [int(np.argmin(np.where(level == value, below, np.inf))) for value in np.unique(level)]  # type: ignore[call-overload]
        return real(threshold[keep], informative[keep], alike[keep], level[keep], lowest, levels)  # type: ignore[index]

    real: Callable[..., Array] = kernels.level_tails
    levelled = levels_of(FOUR_EQUAL)
    shares = budget.union_shares(FOUR_EQUAL.means(), levelled)
    monkeypatch.setattr(kernels, "level_tails", largest_only)
    tails = all_tails(FOUR_EQUAL, levelled, Direction.REMOVE, 0.05, shares)
    assert at_least(failures(FOUR_EQUAL, levelled, tails, Direction.REMOVE, seed=1)) > 0.05


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("pair", [square_root_pair(3, 6, 2, 1.3), random_pair(3, 5, 2, 2.0)])
def test_thresholds_spend_what_they_may_by_a_slow_oracle(pair: BinMixture, direction: Direction) -> None:
    """The failure bound straight from its definition, at the hazards that the tails imply."""
    levelled = levels_of(pair)
    shares = budget.union_shares(pair.means(), levelled)
    tails = all_tails(pair, levelled, direction, 1e-3, shares)
    means, sigma, bins = pair.means(), pair.noise_multiplier, pair.bins
    checked = 0
    for row in range(1, pair.matrix.rows):
        index, prefix = levelled.index[row], means[:row].T
        for i in np.flatnonzero(index > index.min()):
            below = np.flatnonzero(index < index[i])
            same = [j for j in below if not prefix[j].any() and not prefix[i].any()]
            others = np.array([j for j in below if j not in same])
            if np.count_nonzero(index == index[i]) > 1 or not others.size:
                continue
            above = float(tails[row, index[i] + 1]) if index[i] + 1 < levelled.values.size else 0.0
            hazard = (tails[row, index[i]] - above) / (1.0 - above)
            threshold = np.log(((1.0 - hazard) / hazard - len(same)) / others.size)
            distances = ((prefix[others] - prefix[i]) ** 2).sum(axis=1)
            families = [np.full(others.size, 1.0 / others.size)]
            for temperature in (*hazards.TEMPERATURES, 2.0 * sigma**2):
                weights = np.exp(-(distances - distances.min()) / temperature)
                families.append(weights / weights.sum())
            centres = prefix if direction is Direction.REMOVE else np.zeros((1, row))
            worst = []
            for centre in centres:
                options = []
                for psi in families:
                    towards = psi @ prefix[others]
                    divergence = float(np.sum(psi * np.log(np.maximum(psi * others.size, 1e-300))))
                    squares = float(prefix[i] @ prefix[i] - psi @ (prefix[others] ** 2).sum(axis=1))
                    nu = float(centre @ (towards - prefix[i])) / sigma**2 + squares / (2 * sigma**2) - divergence
                    xi = float(np.linalg.norm(towards - prefix[i])) / sigma
                    options.append(norm.cdf((threshold - nu) / xi))
                worst.append(min(options))
            allowed = 1e-3 * shares[row, i]
            assert 0.85 * allowed <= np.mean(worst) <= allowed * (1.0 + 1e-5)
            checked += 1
    assert checked > bins


@pytest.mark.parametrize("pair", [*SIMULATED, square_root_pair(5, 5, 1, 0.7)])
def test_shares_sum_to_at_most_one(pair: BinMixture) -> None:
    levelled = levels_of(pair)
    shares = budget.union_shares(pair.means(), levelled)
    assert shares.min() >= 0.0
    assert 0.999 < shares.sum() <= 1.0
    assert not shares[levelled.index == levelled.index.min(axis=1, keepdims=True)].any()


@pytest.mark.parametrize("most", [1, 3, 16])
def test_levels_never_lower_a_mean(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_pair(5, 20, 2, 1.0)
    monkeypatch.setattr("hockeystick.posteriors.bins.levels.most_bounded", lambda rows, bins: most)
    levelled = levels_of(pair)
    raised = levelled.values[levelled.index]
    assert np.all(np.diff(levelled.values) > 0.0)
    assert np.all(raised >= pair.means())
    assert np.count_nonzero(levelled.index > levelled.index.min(axis=1, keepdims=True), axis=1).max() <= most


@settings(max_examples=25, derandomize=True)
@given(
    weights=st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
    means=st.lists(st.floats(0.0, 3.0), min_size=3, max_size=3),
    moved=st.floats(0.0, 1.0),
    raised=st.floats(0.0, 1.0),
)
def test_more_mass_on_larger_means_dominates(
    weights: list[float], means: list[float], moved: float, raised: float
) -> None:
    """Lemma 1: a share of the lowest mean's mass moves to the largest, and every mean goes up."""
    at, mass = np.sort(means), np.array(weights) / sum(weights)
    resolution = Resolution(24, 1e-6)
    smaller = mixture_law(mass, at, 1.0, Side.LOWER, resolution)
    larger = mixture_law(mass + mass[0] * moved * np.array([-1.0, 0.0, 1.0]), at + raised, 1.0, Side.UPPER, resolution)
    for direction in Direction:
        for epsilon in EPSILONS:
            assert law_delta(smaller, epsilon, direction) <= law_delta(larger, epsilon, direction)


@pytest.mark.parametrize("blocks", [1, 3, 50])
def test_blocks_of_rows_dominate_the_rows(blocks: int) -> None:
    rng = np.random.default_rng(2)
    values = np.array([0.0, 0.4, 1.0])
    tails = np.ones((13, 3))
    tails[:, 1] = rng.uniform(0.02, 0.2, 13)
    tails[:, 2] = tails[:, 1] * rng.uniform(0.0, 1.0, 13)
    resolution = Resolution(36, 1e-6)
    law = composed_law(values, tails, 2, 1.2, blocks, resolution, lambda: None)
    exact = None
    for row in np.repeat(tails, 2, axis=0):
        step = mixture_law(row - np.append(row[1:], 0.0), values, 1.2, Side.LOWER, resolution)
        exact = step if exact is None else compose(exact, step, resolution)
    assert exact is not None
    for direction in Direction:
        for epsilon in EPSILONS:
            upper, lower = law_delta(law, epsilon, direction), law_delta(exact, epsilon, direction)
            assert lower <= upper
            assert blocks < 50 or upper <= 1.02 * lower + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_stays_above_the_lower_bound_of_the_comparison(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = random_pair(seed, int(rng.integers(2, 7)), int(rng.integers(1, 4)), float(rng.uniform(1.0, 6.0)))
    upper = conditional_profiles(pair, COARSE)
    lower = comparison.ACCOUNTANT.bound(pair, Side.LOWER, COARSE).profiles
    for direction in Direction:
        for epsilon in EPSILONS:
            assert lower[direction](epsilon) <= upper[direction](epsilon)


@pytest.mark.parametrize("seed", [11, 12])
def test_stays_above_a_simulation(seed: int) -> None:
    """Hoeffding: each of the 10 comparisons fails with probability at most 1e-6 if the bound holds."""
    pair = random_pair(seed, 6, 2, 2.5)
    upper = conditional_profiles(pair, COARSE)
    rng = np.random.default_rng(seed)
    count, means, sigma = 100_000, pair.means(), pair.noise_multiplier
    bins = rng.integers(pair.bins, size=count)
    noise = sigma * rng.standard_normal((count, pair.matrix.rows))
    error = np.sqrt(np.log(1.0 / SURE) / (2 * count))
    for direction, output in ((Direction.REMOVE, noise + means.T[bins]), (Direction.ADD, noise)):
        exponents = (output @ means - 0.5 * (means**2).sum(axis=0)) / sigma**2
        log_ratio = np.log(np.mean(np.exp(exponents), axis=1))
        loss = log_ratio if direction is Direction.REMOVE else -log_ratio
        for epsilon in EPSILONS:
            estimate = float(np.mean(np.maximum(-np.expm1(epsilon - loss), 0.0)))
            assert upper[direction](epsilon) >= estimate - error


@pytest.mark.parametrize("direction", Direction)
def test_what_is_spent_is_charged(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that reveals nothing outside of the event leaves the event: the bound is its probability, and no less."""
    spent = dict.fromkeys(Direction, np.array([1e-3]))
    monkeypatch.setattr(conditional_composition, "_best_budgets", lambda *_: spent)
    monkeypatch.setattr(conditional_composition, "_composed", lambda *_: point_mass_at_one(Side.UPPER))
    monkeypatch.setattr(geometric_mean, "geometric_mean_profile", lambda *_: lambda epsilon: 1.0)
    profile = conditional_profiles(square_root_pair(2, 4, 2, 1.0), COARSE)[direction]
    for epsilon in (0.0, 0.5, 3.0):
        assert 1e-3 <= profile(epsilon) <= 1e-3 * (1.0 + 1e-12) + 1e-12


def test_a_whole_profile_is_as_good_as_one_delta() -> None:
    """DP-SGD with one epoch: what is spent for the smallest delta alone would cost a fifth of epsilon at 1e-5."""
    pair = square_root_pair(1, 30, 1, 1.5)

    def bound(smallest: float, question: Question | None) -> Bound:
        settings = Settings(Resolution(16, smallest), question=question)
        return conditional_composition.ACCOUNTANT.bound(pair, Side.UPPER, settings)

    whole = bound(1e-30, None)
    for delta in (1e-5, 1e-8):
        assert whole.epsilon(delta) <= 1.002 * bound(delta, Question(delta=delta)).epsilon(delta)
    assert bound(1e-30, Question(delta=1e-30)).epsilon(1e-5) > 1.2 * whole.epsilon(1e-5)


@pytest.mark.parametrize("epochs", [1, 9])
def test_one_bin_is_a_gaussian(epochs: int) -> None:
    """Nothing to bound, so only the grid is lost; the exact profile is in closed form."""
    pair = square_root_pair(min(3, epochs), 1, epochs, 2.0)
    ours = conditional_composition.ACCOUNTANT.bound(pair, Side.UPPER, Settings(Resolution(72, 1e-5)))
    exact = gaussian.ACCOUNTANT.bound(pair, Side.LOWER)
    assert exact.epsilon(1e-5) <= ours.epsilon(1e-5) <= 1.05 * exact.epsilon(1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1000.0])
def test_extreme_noise_gives_a_bound_and_no_warning(sigma: float) -> None:
    pair = square_root_pair(4, 10, 3, sigma)
    ours = conditional_composition.ACCOUNTANT.bound(pair, Side.UPPER, COARSE).delta(1.0)
    assert ours >= comparison.ACCOUNTANT.bound(pair, Side.LOWER, COARSE).delta(1.0)
    assert ours <= gaussian.ACCOUNTANT.bound(pair, Side.UPPER).delta(1.0)


def test_one_epoch_is_amplified() -> None:
    """C = I, one epoch, where it is known to be good: less than a fifth of the epsilon of known batches."""
    pair = square_root_pair(1, 200, 1, 4.0)
    ours = conditional_composition.ACCOUNTANT.bound(pair, Side.UPPER, COARSE)
    assert ours.epsilon(1e-4) < 0.2 * gaussian.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-4)


def test_the_accountant_uses_the_union_bound() -> None:
    pair = square_root_pair(1, 20, 3, 2.0)
    certified = conditional_profiles(pair, COARSE)
    accountant = conditional_composition.ACCOUNTANT.bound(pair, Side.UPPER, COARSE).profiles
    for epsilon in EPSILONS:
        for direction in Direction:
            known = gaussian_delta(2.0, pair.full_sensitivity * (1.0 + pair.sensitivity_error), epsilon, Side.UPPER)
            assert accountant[direction](epsilon) == min(certified[direction](epsilon), known)


def test_stops_when_the_time_is_over() -> None:
    with pytest.raises(BudgetExceededError):
        conditional_profiles(square_root_pair(4, 50, 2, 2.0), Settings(COARSE.resolution, Deadline(seconds=0.0)))
