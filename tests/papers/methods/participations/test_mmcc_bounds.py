"""MMCC and its cyclic form against brute force, and where they are exact."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from mmcc_oracle import true_profile

from hockeystick.accountants.direct import ACCOUNTANT as DIRECT
from hockeystick.bounds import Bound, Question
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.discretise import mixture_law as plain_law
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import point_mass_at_one
from hockeystick.laws.operations import compose, power, thin
from hockeystick.laws.powers import composed_powers
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction, Side
from hockeystick_papers.generalized_mmcc import ACCOUNTANT as GENERALIZED
from hockeystick_papers.mmcc import ACCOUNTANT as MMCC
from hockeystick_papers.participations import engine
from hockeystick_papers.participations.engine import composed_law, mixture_law
from hockeystick_papers.participations.rows import Mixture, described, dominating_mixtures
from hockeystick_papers.participations.tails import participation_bounds

COARSE = Settings(Resolution(24, 1e-2), effort=1.0)
FINE = Settings(Resolution(72, 1e-4))
EPSILONS = (0.0, 0.3, 1.0, 2.0)
GRID_ERROR = 2e-6
"""Of the brute force on its grids, where it is compared with a grid twice as fine."""


def nothing() -> None:
    """Time does not matter here."""


def poisson(matrix: object, sigma: float, prob: float, settings: Settings = COARSE) -> Bound:
    return MMCC.bound(SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob), Side.UPPER, settings)


def cyclic(matrix: object, groups: int, sigma: float, prob: float, settings: Settings = COARSE) -> Bound:
    pair = SubsetMixture(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=prob)
    return GENERALIZED.bound(pair, Side.UPPER, settings)


def random_lower(rng: np.random.Generator, steps: int) -> np.ndarray:
    return np.tril(rng.uniform(0.0, 1.0, (steps, steps)), -1) + np.diag(rng.uniform(0.3, 1.0, steps))


def test_brute_force_has_converged() -> None:
    entries = random_lower(np.random.default_rng(1), 2)
    for epsilon in EPSILONS:
        rough, fine = (true_profile(entries, 1.0, 0.4, epsilon, points) for points in (200, 400))
        for direction in Direction:
            assert abs(rough[direction] - fine[direction]) < 50 * GRID_ERROR
            assert abs(true_profile(entries, 1.0, 0.4, epsilon, 800)[direction] - fine[direction]) < 10 * GRID_ERROR


@pytest.mark.parametrize("seed", range(12))
def test_upper_bounds_stay_above_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = 3 if seed % 4 == 0 else 2
    entries = random_lower(rng, steps)
    prob, sigma = float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.6, 3.0))
    bound = poisson(DenseMatrix(entries), sigma, prob)
    for epsilon in EPSILONS:
        truth = true_profile(entries, sigma, prob, epsilon, 90 if steps == 3 else 400)
        for direction in Direction:
            assert bound.profiles[direction](epsilon) >= truth[direction] * (1.0 - 1e-3) - 10 * GRID_ERROR


def test_chances_that_ignore_the_past_give_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: with p in place of its bounds, the profile falls below the truth."""
    entries = np.array([[1.0, 0.0], [1.0, 1.0]])
    truth = true_profile(entries, 1.0, 0.1, 1.0, 400)[Direction.REMOVE]
    assert poisson(DenseMatrix(entries), 1.0, 0.1).profiles[Direction.REMOVE](1.0) > truth
    monkeypatch.setattr(engine, "participation_bounds", lambda blocks, *_: np.full(blocks.norm.size, 0.1))
    blocks = described(DenseMatrix(entries), 1, None, nothing)
    law = composed_law(blocks, 1.0, 0.1, 1e-9, Direction.REMOVE, 10, Resolution(72, 1e-4), nothing)
    assert law_delta(law, 1.0, Direction.REMOVE) < truth - 1e-3


def test_without_sampling_it_is_the_gaussian() -> None:
    entries = random_lower(np.random.default_rng(2), 5)
    bound = poisson(DenseMatrix(entries), 3.0, 1.0, FINE)
    norm = float(np.linalg.norm(entries.sum(axis=1)))
    for epsilon in EPSILONS:
        exact = gaussian_delta(3.0, norm, epsilon, side=Side.LOWER)
        for direction in Direction:
            assert exact <= bound.profiles[direction](epsilon) <= exact * (1.0 + 1e-6)
    blocks = described(DenseMatrix(entries), 1, None, nothing)
    law = composed_law(blocks, 3.0, 1.0, 0.0, Direction.REMOVE, 10, FINE.resolution, nothing)
    exact = gaussian_delta(3.0, norm, 1.0, side=Side.LOWER)
    assert exact <= law_delta(law, 1.0, Direction.REMOVE) <= exact * 1.005


def test_without_correlation_it_is_poisson_and_spends_nothing() -> None:
    bound = poisson(ToeplitzMatrix(np.array([1.0]), 100), 1.0, 0.1, FINE)
    pair = IndependentSteps(noise_multiplier=1.0, sampling_prob=0.1, steps=100)
    exact = DIRECT.bound(pair, Side.LOWER, FINE)
    for delta in (1e-2, 1e-4):
        assert exact.epsilon(delta) <= bound.epsilon(delta) <= exact.epsilon(delta) * 1.002


def test_bands_within_a_round_are_a_product_of_thinned_gaussians() -> None:
    """Columns of one group do not overlap, so every turn is a step of its own, cut short at the end."""
    entries = np.tril(np.random.default_rng(4).uniform(0.2, 1.0, (8, 8)))
    entries = np.where(np.subtract.outer(np.arange(8), np.arange(8)) < 3, entries, 0.0)
    resolution = FINE.resolution
    bound = cyclic(DenseMatrix(entries), 3, 1.0, 0.3, FINE)
    laws = []
    for group in range(3):
        steps = [
            thin(gaussian_law(1.0, float(np.linalg.norm(entries[:, j])), Side.LOWER, resolution), 0.3)
            for j in range(group, 8, 3)
        ]
        law = steps[0]
        for step in steps[1:]:
            law = compose(law, step, resolution)
        laws.append(law)
    for epsilon in EPSILONS:
        for direction in Direction:
            exact = max(law_delta(law, epsilon, direction) for law in laws)
            assert exact <= bound.profiles[direction](epsilon) <= exact * 1.004


def test_cyclic_bounds_stay_above_the_truth_of_every_group() -> None:
    for seed in range(4):
        rng = np.random.default_rng(100 + seed)
        entries = random_lower(rng, 3)
        prob, sigma = float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.6, 2.0))
        bound = cyclic(DenseMatrix(entries), 2, sigma, prob)
        for epsilon in EPSILONS:
            for group in range(2):
                truth = true_profile(entries[:, group::2], sigma, prob, epsilon, 90)
                for direction in Direction:
                    assert bound.profiles[direction](epsilon) >= truth[direction] * (1.0 - 1e-3) - 10 * GRID_ERROR


def test_the_first_group_of_a_toeplitz_matrix_is_the_worst() -> None:
    matrix = ToeplitzMatrix(np.array([1.0, 0.6, 0.3, 0.2, 0.1]), 9)
    settings = Settings(Resolution(40, 1e-3), effort=2.0)
    first = cyclic(matrix, 3, 2.0, 0.4, settings)
    every = cyclic(DenseMatrix(matrix.materialize()), 3, 2.0, 0.4, settings)
    for epsilon in EPSILONS:
        for direction in Direction:
            assert first.profiles[direction](epsilon) == pytest.approx(every.profiles[direction](epsilon), rel=1e-6)


def test_one_group_of_single_rows_is_poisson() -> None:
    """With c_0 > 0 every row begins a column, so the blocks of a single group are the rows."""
    matrix = ToeplitzMatrix(np.array([1.0, 0.6, 0.3]), 6)
    by_rows, by_columns = described(matrix, 1, None, nothing), described(matrix, 1, 0, nothing)
    for ours, theirs in zip(by_rows.numbers, by_columns.numbers, strict=True):
        assert np.array_equal(ours, theirs)
    assert by_rows.informed == by_columns.informed


@pytest.mark.parametrize(("groups", "name"), [(1, "mmcc"), (2, "generalized_mmcc")])
def test_each_number_of_groups_has_its_method(groups: int, name: str) -> None:
    pair = SubsetMixture(noise_multiplier=2.0, matrix=TreeMatrix(8, 8), sampling_prob=0.1, groups=groups)
    assert [method.name for method in (MMCC, GENERALIZED) if method.why_not(pair, Side.UPPER) is None] == [name]


def test_fewer_laws_give_a_larger_bound_that_is_not_far() -> None:
    blocks = described(ToeplitzMatrix(1.0 / np.sqrt(1.0 + np.arange(60)), 60), 1, None, nothing)
    bounds = participation_bounds(blocks, 6.0, 0.1, 1e-4, Direction.REMOVE)
    few, all_of_them = (dominating_mixtures(blocks, bounds, 6.0, most, nothing) for most in (8, 1000))
    assert sum(mixture.copies for mixture in few) == sum(mixture.copies for mixture in all_of_them) == 60
    assert len(few) == 8 < len(all_of_them)
    resolution = Resolution(40, 1e-4)
    deltas = [
        law_delta(
            composed_law(blocks, 6.0, 0.1, 1e-4, Direction.REMOVE, most, resolution, nothing), 1.0, Direction.REMOVE
        )
        for most in (8, 1000)
    ]
    assert deltas[1] < deltas[0] < 1.3 * deltas[1]


def test_dominating_mixtures_are_at_least_every_block() -> None:
    blocks = described(TreeMatrix(16, 13), 1, None, nothing)
    bounds = participation_bounds(blocks, 2.0, 0.2, 1e-3, Direction.ADD)
    (whole,) = dominating_mixtures(blocks, bounds, 2.0, 1, nothing)
    assert whole.copies == blocks.copies.sum()
    for first, last in zip(blocks.starts[:-1], blocks.starts[1:], strict=True):
        assert np.all(whole.probabilities[: last - first] >= bounds[first:last])
        assert np.all(whole.sensitivities[: last - first] >= blocks.norm[first:last])


def test_norms_are_raised_from_their_exact_squares() -> None:
    """One column is one block, whose squared norm is rational: no rounding may end below it."""
    rng = np.random.default_rng(31)
    for _ in range(40):
        entries = np.tril(rng.random((9, 9)))
        blocks = described(DenseMatrix(entries), 9, 0, nothing)
        (mixture,) = dominating_mixtures(blocks, np.full(1, 0.5), 1.0, 1, nothing)
        square = sum(Fraction(entry) ** 2 for entry in entries[:, 0].tolist())
        assert square <= Fraction(float(mixture.sensitivities[0])) ** 2 <= square * (1 + Fraction(1, 10**12))


def test_a_mixture_with_certain_and_possible_steps() -> None:
    resolution = Resolution(40, 1e-6)
    mixture = Mixture(np.array([1.0, 0.3, 1.0, 0.0]), np.array([0.5, 0.8, 0.25, 9.0]), 1)
    law = mixture_law(mixture, 1.5, 512, resolution)
    exact = plain_law(np.array([0.7, 0.3]), np.array([0.75, 1.55]), 1.5, Side.LOWER, resolution)
    for direction in Direction:
        value = law_delta(exact, 0.5, direction)
        assert value <= law_delta(law, 0.5, direction) <= value * 1.01


def test_many_different_steps_are_rounded_up_a_little() -> None:
    rng = np.random.default_rng(0)
    mixture = Mixture(rng.uniform(0.0, 0.1, 80), rng.uniform(0.1, 1.0, 80), 1)
    resolution = Resolution(40, 1e-6)
    rough, fine = (mixture_law(mixture, 5.0, shares, resolution) for shares in (512, 8192))
    for direction in Direction:
        value = law_delta(fine, 0.5, direction)
        assert value <= law_delta(rough, 0.5, direction) <= value * 1.02


def test_powers_share_their_squarings() -> None:
    resolution = Resolution(40, 1e-6)
    steps = [
        (thin(gaussian_law(2.0, reach, Side.UPPER, resolution), 0.2), count) for reach, count in ((1.0, 13), (0.5, 6))
    ]
    together = composed_powers(steps, resolution, nothing)
    apart = compose(power(steps[0][0], 13, resolution), power(steps[1][0], 6, resolution), resolution)
    for direction in Direction:
        assert law_delta(together, 0.5, direction) == pytest.approx(law_delta(apart, 0.5, direction), rel=5e-3)
    assert composed_powers([], resolution, nothing).support.tolist() == [1.0]


def test_add_ends_where_the_empty_set_ends_it() -> None:
    matrix = DenseMatrix(random_lower(np.random.default_rng(3), 4))
    profile = poisson(matrix, 0.2, 0.1).profiles[Direction.ADD]
    end = -4.0 * np.log(0.9)
    assert profile(end * 1.001) == 0.0
    assert profile(end * 0.5) == pytest.approx(1.0 - exp(-0.5 * end), rel=0.05)


@pytest.mark.parametrize(
    "matrix", [ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 12), DenseMatrix(np.tril(np.ones((5, 5))))]
)
def test_one_group_retrieves_mmcc(matrix: ToeplitzMatrix | DenseMatrix) -> None:
    """choquette-choo-2024, Appendix D: for b = 1 blocks are rows, whose description is made in another way here."""
    pair = SubsetMixture(noise_multiplier=4.0, matrix=matrix, sampling_prob=0.2)
    retrieved = GENERALIZED.analyses[SubsetMixture](pair, Side.UPPER, FINE)
    ours = poisson(matrix, 4.0, 0.2, FINE)
    for direction in Direction:
        for epsilon in EPSILONS:
            assert retrieved[direction](epsilon) == pytest.approx(ours.profiles[direction](epsilon), rel=1e-9)
    several = cyclic(matrix, 2, 4.0, 0.2, FINE)
    assert several.delta(1.0) < 0.9 * ours.delta(1.0)


def test_a_whole_profile_is_as_good_as_one_delta() -> None:
    """What is spent for the smallest delta alone costs more at a usual one."""
    pair = SubsetMixture(noise_multiplier=12.0, matrix=TreeMatrix(16, 16), sampling_prob=1.0 / 16.0)

    def bound(smallest: float, question: Question | None) -> Bound:
        return MMCC.bound(pair, Side.UPPER, Settings(Resolution(16, smallest), question=question))

    whole = bound(1e-30, None)
    for delta in (1e-5, 1e-8):
        assert whole.epsilon(delta) <= 1.002 * bound(delta, Question(delta=delta)).epsilon(delta)
    assert bound(1e-30, Question(delta=1e-30)).epsilon(1e-5) > 1.2 * whole.epsilon(1e-5)


@pytest.mark.parametrize("direction", Direction)
def test_what_is_spent_is_charged(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that reveals nothing outside of the event leaves the event: the bound is its probability, and no less."""
    blocks = described(ToeplitzMatrix(np.array([1.0, 0.5]), 8), 1, None, nothing)
    monkeypatch.setattr(engine, "best_spending", lambda *_: 1e-3)
    monkeypatch.setattr(engine, "composed_law", lambda *_, **__: point_mass_at_one(Side.UPPER))
    profiles = engine.blocks_profiles(blocks, 0.1, 0.9, 10.0, 8, (1e-3,), COARSE.resolution, Deadline())
    for epsilon in (0.0, 0.5, 3.0):
        assert 1e-3 <= profiles[direction](epsilon) <= 1e-3 * (1.0 + 1e-12) + 1e-12


def test_time_runs_out() -> None:
    pair = SubsetMixture(noise_multiplier=2.0, matrix=TreeMatrix(8, 8), sampling_prob=0.1)
    with pytest.raises(BudgetExceededError):
        MMCC.bound(pair, Side.UPPER, Settings(Resolution(8, 1e-2), deadline=Deadline(seconds=-1.0)))


def test_no_memory_no_bound() -> None:
    pair = SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.ones(20_000), 20_000), sampling_prob=0.1)
    assert "memory" in (MMCC.why_not(pair, Side.UPPER) or "")
