"""Every accountant of Poisson and cyclic Poisson sampling against the true profile of small random mechanisms."""

from collections import Counter
from math import erfc, exp, log, sqrt

import bins_oracle
import monte_carlo_oracle
import numpy as np
import pytest
from bins_oracle import Truth
from crossings import all_violations, violations
from scipy.stats import binom, norm
from subset_oracle import Choices, adaptive_delta, cyclic_truth, exceedances, poisson_truth, subsets

import hockeystick as hs
from hockeystick.accountants import direct
from hockeystick.accountants.registry import every_accountant
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.base import Array, StrategyMatrix
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.types import Direction, Kind, Side

CHUNKS, MECHANISMS, EPSILONS = 4, 11, 12
"""528 cases of each of the two samplers: a case is one mechanism and one epsilon, for all accountants and sides."""
COLUMNS_WEIGHTS = (0.07, 0.28, 0.33, 0.25, 0.05, 0.02)
"""Of 1 to 6 columns in which an example may take part."""
MOST_STEPS, MOST_GROUPS = 12, 5
QUICK = Settings(resolution=Resolution(nodes_per_unit=20, smallest_delta=1e-8), effort=0.5)
GRID = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0])
COVERING = {
    kind: [
        accountant
        for accountant in every_accountant().values()
        if accountant.covers(SubsetMixture) and accountant.kind is Kind.DETERMINISTIC and accountant.name != other
    ]
    for kind, other in (("SubsetMixture", "generalized_mmcc"), ("CyclicSubsets", "mmcc"))
}


def random_matrix(steps: int, rng: np.random.Generator) -> StrategyMatrix:
    """A family of the library, or any entries: dense, banded, Toeplitz, sparse, nearly diagonal, unlike columns.

    Bounds by conditional composition are tight, and so would be seen to be wrong, where correlations are weak.
    """
    family = rng.integers(9)
    if family == 0:
        return hs.BandedSquareRoot(bands=int(rng.integers(1, steps + 1))).matrix(steps)
    if family == 1:
        return hs.BinaryTree().matrix(steps)
    if family == 2:
        return hs.TreeRestart(height=int(rng.integers(1, steps.bit_length() + 1))).matrix(steps)
    entries = np.tril(rng.random((steps, steps)) * rng.uniform(0.1, 1.0), -1) + np.diag(rng.uniform(0.5, 1.0, steps))
    lag = np.arange(steps)[:, None] - np.arange(steps)
    if family == 3:
        entries = np.tril(entries[:, 0][lag])
    if family in (3, 4):
        entries[lag >= rng.integers(1, steps + 1)] = 0.0
    if family == 5:
        entries *= (rng.random((steps, steps)) < rng.uniform(0.1, 0.9)) | np.eye(steps, dtype=bool)
    if family == 6:
        entries[lag > 0] *= 10.0 ** rng.uniform(-3.0, 0.0)
    if family == 7:
        entries *= np.exp(rng.normal(0.0, 0.7, steps))
    return DenseMatrix(entries)


def random_settings(rng: np.random.Generator) -> tuple[float, float, int]:
    """Noise, chance of taking part and columns; one in ten is not subsampled."""
    sigma = float(np.exp(rng.uniform(np.log(0.4), np.log(8.0))))
    rate = 1.0 if rng.random() < 0.1 else float(np.exp(rng.uniform(np.log(1e-3), 0.0)))
    return sigma, rate, 1 + int(rng.choice(len(COLUMNS_WEIGHTS), p=COLUMNS_WEIGHTS))


def random_poisson(rng: np.random.Generator) -> SubsetMixture:
    sigma, rate, steps = random_settings(rng)
    return SubsetMixture(noise_multiplier=sigma, matrix=random_matrix(steps, rng), sampling_prob=rate)


def random_cyclic(rng: np.random.Generator) -> SubsetMixture:
    """The last round is short more often than not."""
    sigma, rate, rounds = random_settings(rng)
    groups = int(rng.integers(2, MOST_GROUPS + 1))
    steps = min((rounds - 1) * groups + int(rng.integers(1, groups + 1)), MOST_STEPS)
    matrix = random_matrix(steps, rng)
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=rate)


def random_epsilons(pair: SubsetMixture, rng: np.random.Generator) -> Array:
    """0, and more up to about where one Gaussian of full sensitivity, thinned once, is at 1e-6."""
    shift = pair.full_sensitivity / pair.noise_multiplier
    largest = log(1.0 + pair.sampling_prob * np.expm1(min(0.5 * shift**2 + 4.8 * shift, 40.0)))
    return np.concatenate([[0.0], np.sort(largest * rng.random(EPSILONS - 1) ** 2.0)])


def poisson_of(pair: SubsetMixture, at: Array) -> Truth:
    return poisson_truth(pair.matrix.materialize(), pair.sampling_prob, pair.noise_multiplier, at)


def cyclic_of(pair: SubsetMixture, at: Array) -> Truth:
    return cyclic_truth(pair.matrix.materialize(), pair.groups, pair.sampling_prob, pair.noise_multiplier, at)


SAMPLERS = {"SubsetMixture": (random_poisson, poisson_of), "CyclicSubsets": (random_cyclic, cyclic_of)}


@pytest.mark.parametrize("chunk", [0, *(pytest.param(chunk, marks=pytest.mark.weekly) for chunk in (1, 2, 3))])
@pytest.mark.parametrize("kind", list(SAMPLERS))
def test_no_accountant_of_subsets_crosses_the_truth(kind: str, chunk: int) -> None:
    """False-failure probability below 1e-4 over all chunks: see the oracle's deviations; seeds are fixed."""
    rng = np.random.default_rng([20_240_700, chunk, *kind.encode()])
    draw, oracle = SAMPLERS[kind]
    seen: Counter[str] = Counter()
    crossed, sharp = [], 0
    for number in range(MECHANISMS):
        pair = draw(rng)
        at = random_epsilons(pair, rng)
        exact = oracle(pair, at)
        sharp += int(np.count_nonzero(exact.remove_error <= 0.01 * exact.remove))
        for accountant in COVERING[kind]:
            texts, profiles = all_violations(accountant, pair, exact, at, QUICK)
            seen[accountant.name] += profiles
            crossed += [f"chunk {chunk} number {number} {pair}: {text}" for text in texts]
    assert not crossed, "\n".join(crossed)
    assert sharp >= 0.5 * MECHANISMS * EPSILONS  # the truth is known to a percent in most cases
    assert all(seen[accountant.name] > 0 for accountant in COVERING[kind] if accountant.name not in REFUSING)


REFUSING = {"direct", "row_filter", "participation_windows"}
"""They are for some structures only, which need not come up in every chunk."""


def test_there_are_a_thousand_cases() -> None:
    assert len(SAMPLERS) * CHUNKS * MECHANISMS * EPSILONS >= 1000
    both = {"gaussian", "direct", "linear_statistic", "split_noise"}
    assert {accountant.name for accountant in COVERING["SubsetMixture"]} >= both | {"mmcc"}
    assert {accountant.name for accountant in COVERING["CyclicSubsets"]} >= both | {"generalized_mmcc"}


# The oracle itself.


def thinned_gaussian(shift: float, rate: float, epsilon: float, direction: Direction) -> float:
    """The closed form for one column: ``X = 1 - p + p X_1`` turns c into another threshold of one Gaussian."""

    def excess(threshold: float) -> float:
        """``E (X_1 - threshold)_+`` under Q."""
        middle = log(threshold) / shift
        above = [0.5 * erfc((middle + part * shift) / sqrt(2.0)) for part in (-0.5, 0.5)]
        return above[0] - threshold * above[1]

    c = exp(epsilon)
    if direction is Direction.REMOVE:
        return rate * excess((c - 1.0 + rate) / rate)
    left = 1.0 / c - (1.0 - rate)
    if left <= 0.0:
        return 0.0
    return c * (rate * excess(left / rate) + left - rate)  # (l - pX)_+ = (pX - l)_+ + l - pX


def both(exact: Truth) -> dict[Direction, tuple[Array, Array]]:
    return {
        Direction.REMOVE: (exact.remove, exact.remove_error),
        Direction.ADD: (exact.add, exact.add_error),
    }


@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize("sigma", [0.4, 1.3, 8.0])
def test_oracle_one_column_is_a_thinned_gaussian(sigma: float, rate: float) -> None:
    column = np.array([[0.9], [0.0], [0.5]])
    exact = poisson_truth(column, rate, sigma, GRID)
    for direction, (values, errors) in both(exact).items():
        for epsilon, value, error in zip(GRID, values, errors, strict=True):
            expected = thinned_gaussian(float(np.linalg.norm(column)) / sigma, rate, float(epsilon), direction)
            assert abs(value - expected) <= error < 1e-9


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_oracle_without_subsampling_is_one_gaussian(steps: int) -> None:
    entries = random_matrix(steps, np.random.default_rng(steps)).materialize()
    exact = poisson_truth(entries, 1.0, 3.0, GRID)
    shift = float(np.linalg.norm(entries.sum(axis=1))) / 3.0
    for direction, (values, errors) in both(exact).items():
        for epsilon, value, error in zip(GRID, values, errors, strict=True):
            assert abs(value - thinned_gaussian(shift, 1.0, float(epsilon), direction)) <= error < 1e-9


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.02), (1.0, 0.4), (4.0, 0.9)])
@pytest.mark.parametrize("steps", [2, 3, 4, 5])
def test_oracle_identity_lies_between_the_laws(steps: int, sigma: float, rate: float) -> None:
    """C = I is DP-SGD, bracketed by the law engine; by grids up to four steps, by simulation above."""
    exact = poisson_truth(np.eye(steps), rate, sigma, GRID)
    uncorrelated = IndependentSteps(noise_multiplier=sigma, sampling_prob=rate, steps=steps)
    for side in Side:
        for direction, profile in direct.ACCOUNTANT.bound(uncorrelated, side).profiles.items():
            assert not violations(profile, side, direction, exact, GRID)
    if steps <= 3:
        assert np.all(exact.remove_error <= 1e-3 * exact.remove + 2e-11)


@pytest.mark.parametrize("seed", range(4))
def test_oracle_agrees_with_a_plain_grid_over_the_outputs(seed: int) -> None:
    """Two integrations that share nothing: over the outputs themselves, kink and all."""
    rng = np.random.default_rng(seed)
    entries = random_matrix(2 if seed < 3 else 3, rng).materialize()
    sigma, rate = float(rng.uniform(0.6, 2.0)), float(rng.uniform(0.05, 0.95))
    members, probabilities = subsets(entries.shape[1], rate)
    there = {tuple(row): float(chance) for row, chance in zip(members, probabilities, strict=True)}
    exact = poisson_truth(entries, rate, sigma, GRID)
    for direction, (values, errors) in both(exact).items():
        for epsilon, value, error in zip(GRID, values, errors, strict=True):
            other = monte_carlo_oracle.truth(
                entries, sigma, there, monte_carlo_oracle.absent(there), direction, float(epsilon)
            )
            assert abs(value - other.value) <= error + other.error


@pytest.mark.parametrize("seed", range(3))
def test_oracle_grids_and_simulation_of_subsets_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    entries = random_matrix(3, rng).materialize()
    sigma, rate = float(rng.uniform(0.8, 2.0)), (0.02, 0.2, 0.7)[seed]
    by_grid = both(poisson_truth(entries, rate, sigma, GRID))
    monkeypatch.setattr(bins_oracle, "MOST_POINTS", 0)
    simulated = both(poisson_truth(entries, rate, sigma, GRID))
    for direction in Direction:
        (value, error), (other, other_error) = by_grid[direction], simulated[direction]
        assert np.all(np.abs(value - other) <= error + other_error)
        assert np.all(error < 0.1 * other_error + 2e-11)


def test_oracle_reproduces_the_reference_values() -> None:
    """Rows that are wrongly taken to be independent are above the truth at 0 and below it, removing, at 1."""
    at = np.array([0.0, 1.0])
    exact = poisson_truth(np.array([[1.0, 0.0], [1.0, 1.0]]), 0.5, 1.0, at)
    independent_rows = poisson_truth(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), 0.5, 1.0, at)
    assert exact.remove[0] == pytest.approx(0.384, abs=5e-4)
    assert exact.add[1] == pytest.approx(0.027, abs=5e-4)
    assert independent_rows.remove[0] == pytest.approx(0.399, abs=5e-4)
    assert independent_rows.add[1] == pytest.approx(0.073, abs=5e-4)
    assert independent_rows.remove[1] + 1e-3 < exact.remove[1]


@pytest.mark.parametrize("groups", [3, 5])
def test_oracle_of_groups_of_one_step_is_the_largest_column(groups: int) -> None:
    exact = cyclic_truth(np.diag([1.0, 2.0, 0.5]), groups, 0.5, 1.0, GRID)
    for direction, (values, errors) in both(exact).items():
        for epsilon, value, error in zip(GRID, values, errors, strict=True):
            assert abs(value - thinned_gaussian(2.0, 0.5, float(epsilon), direction)) <= error < 1e-9


def test_oracle_of_groups_leaves_out_the_columns_of_others() -> None:
    """Of three steps in two groups the first and the third belong together; the second hardly matters."""
    exact = both(cyclic_truth(np.diag([1.0, 0.1, 1.0]), 2, 0.5, 1.0, GRID))
    two_steps = both(poisson_truth(np.eye(2), 0.5, 1.0, GRID))
    for direction in Direction:
        np.testing.assert_allclose(exact[direction][0], two_steps[direction][0], rtol=1e-9)


def test_a_bound_on_subsets_that_is_wrong_by_a_percent_is_found() -> None:
    at = GRID[:4]
    exact = poisson_truth(np.eye(3), 0.3, 1.5, at)
    uncorrelated = IndependentSteps(noise_multiplier=1.5, sampling_prob=0.3, steps=3)
    for side, factor in ((Side.UPPER, 0.99), (Side.LOWER, 1.01)):
        for direction, profile in direct.ACCOUNTANT.bound(uncorrelated, side).profiles.items():
            wrong = violations(lambda x, f=factor, p=profile: f * p(x), side, direction, exact, at)
            assert len(wrong) == np.count_nonzero(both(exact)[direction][0] > 0.0)


# Adversaries who adapt.


SIGNS_AND_SIZES = np.array([1.0, -1.0, 0.0, 0.5, -0.5])


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(("steps", "points", "cases"), [(2, 61, 12), (3, 19, 2)])
def test_adapting_the_gradients_gains_nothing(steps: int, points: int, cases: int, adding: bool) -> None:
    """The best of all adversaries over these gradients is the constant one, whose delta is the pair's."""
    rng = np.random.default_rng([steps, adding])
    for _ in range(cases):
        entries = np.tril(rng.random((steps, steps))) + 0.3 * np.eye(steps)
        rate, sigma, epsilon = rng.uniform(0.05, 1.0), rng.uniform(0.7, 3.0), rng.choice([0.0, 0.2, 0.7])
        best, constant = adaptive_delta(entries, rate, sigma, epsilon, adding, Choices(SIGNS_AND_SIZES, points))
        exact = poisson_truth(entries, rate, sigma, np.array([epsilon]))
        value = float((exact.add if adding else exact.remove)[0])
        assert constant == pytest.approx(value, rel=1e-3, abs=1e-8)  # the grid over the outputs before the last
        assert constant <= best <= constant * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("adding", [False, True])
def test_the_search_finds_better_adversaries_where_entries_are_negative(adding: bool) -> None:
    """There the constant gradient is not the worst: the condition on C is needed, and the search can find something."""
    entries = np.array([[1.0, 0.0], [-0.8, 1.0]])
    best, constant = adaptive_delta(entries, 0.5, 1.0, 0.3, adding, Choices(SIGNS_AND_SIZES, 61))
    assert best > 1.05 * constant


# The budget for the tail bounds of cyclic sampling.


def claimed_chance(column: Array, rate: float, sigma: float, tail: float) -> float:
    """The tail bound on "took part", given rows in which one column alone has entries: two parts fail with ``tail``."""
    square = float(column @ column)
    most = square if binom.sf(0, 1, rate) > tail else 0.0  # of the dot product: square times a Bernoulli
    loss = norm.isf(tail) * sqrt(square) / sigma + (2.0 * most - square) / (2.0 * sigma**2)
    return rate * exp(loss) / (rate * exp(loss) + 1.0 - rate)


def test_the_printed_budget_of_cyclic_sampling_overspends() -> None:
    """choquette-choo-2024, Figures 6 and 7: n = 8, b = 4, bp = 0.9, and a C that is as sparse as can be.

    Of the first group's two columns the first one has entries in rows 1 and 5 and the other in row 5, so nnz - n is 1
    and the printed delta' is ``b delta_1 / 2`` for each of two events: the bound may fail up to b times too often. A
    budget of delta_1 for the one pair of a block and a column that there is holds.
    """
    groups, rate, sigma, delta, runs = 4, 0.9, 1.2, 0.01, 400_000
    columns = np.zeros((8, 2))
    columns[[0, 4], 0] = 1.0
    columns[4, 1] = 1.0
    pairs = np.count_nonzero(columns) - columns.shape[1]
    seen = [4]  # rows before the second block, the first having no bounds to claim

    def failures(tail: float) -> int:
        claims = np.array([[claimed_chance(columns[:4, 0], rate, sigma, tail), 1.0]])
        return exceedances(columns, seen, rate, sigma, claims, adding=False, runs=runs, seed=7)

    printed = failures(groups * delta / (2.0 * pairs))
    z = norm.isf(groups * delta / 2.0)
    expected = runs * (rate * norm.sf(z) + (1.0 - rate) * norm.sf(z + 1.0 / sigma))
    assert abs(printed - expected) <= 6.0 * sqrt(expected)
    assert printed >= delta * runs + 6.0 * sqrt(delta * runs)
    assert printed / runs == pytest.approx(0.0182, abs=0.0012)
    assert failures(0.5 * delta) <= delta * runs


def test_exceedances_adding_are_those_of_the_noise_alone() -> None:
    """One column and no rows but one: the chance exceeds a claim where the noise exceeds a quantile."""
    rate, sigma, tail, runs = 0.3, 1.5, 0.05, 100_000
    loss = norm.isf(tail) / sigma - 0.5 / sigma**2
    claim = rate * exp(loss) / (rate * exp(loss) + 1.0 - rate)
    wrong = exceedances(np.ones((1, 1)), [1], rate, sigma, np.array([[claim]]), adding=True, runs=runs, seed=3)
    assert abs(wrong - tail * runs) <= 6.0 * sqrt(tail * runs)
