"""Poisson and cyclic Poisson sampling with banded matrices: recursion and proposals against sums over all subsets."""

import pickle
from itertools import product
from math import exp, inf, log, sqrt

import numpy as np
import pytest

from hockeystick.accountants import direct, split_noise
from hockeystick.accountants.monte_carlo import costly_upper, known_upper
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.subsets.family import FAMILY
from hockeystick.monte_carlo.subsets.kernels import log_ratio
from hockeystick.monte_carlo.subsets.participations import participations
from hockeystick.monte_carlo.subsets.proposals import (
    CountSubsets,
    MeanSubsets,
    NaiveSubsets,
    SubsetProposal,
    count_orders,
)
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.base import StrategyMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side

FAILURE = 1e-9
"""Of each interval; there are some fifty of them, so all tests together fail by chance with probability 1e-7."""


def random_matrix(steps: int, bands: int, seed: int) -> BandedMatrix:
    rng = np.random.default_rng(seed)
    band = rng.random((steps, bands)) * (rng.random((steps, bands)) < 0.8)
    band[:, 0] += 0.1
    band[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0.0
    return BandedMatrix(band)


def subsets(steps: int, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """All participation vectors and their probabilities."""
    vectors = np.array(list(product((0.0, 1.0), repeat=steps)))
    taken = vectors.sum(axis=1)
    return vectors, prob**taken * (1.0 - prob) ** (steps - taken)


def turns_of(matrix: StrategyMatrix, sigma: float) -> np.ndarray:
    """Blocks of one row, shape (steps, 1, bands)."""
    dense = matrix.materialize() / sigma
    steps, bands = matrix.steps, matrix.bands
    return np.array([[[dense[t, t - d] if d <= t else 0.0 for d in range(bands)]] for t in range(steps)])


@pytest.mark.parametrize(
    ("steps", "bands", "prob", "sigma"),
    [(1, 1, 0.3, 1.0), (10, 1, 0.2, 0.4), (10, 2, 0.5, 1.0), (10, 3, 0.1, 0.3), (9, 9, 0.3, 2.0), (12, 12, 0.4, 0.7)],
)
@pytest.mark.parametrize("toeplitz", [False, True])
def test_recursion_is_the_sum_over_all_subsets(
    steps: int, bands: int, prob: float, sigma: float, toeplitz: bool
) -> None:
    column = np.linspace(1.0, 0.2, bands)
    matrix = ToeplitzMatrix(column, steps) if toeplitz else random_matrix(steps, bands, 7)
    vectors, weights = subsets(steps, prob)
    means = vectors @ matrix.materialize().T / sigma
    rows = turns_of(matrix, sigma)
    same_as_before = np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=(1, 2))])
    for y in np.random.default_rng(1).normal(1.0, 3.0, (20, steps)):
        expected = log(weights @ np.exp(means @ y - 0.5 * np.einsum("st,st->s", means, means)))
        for fresh in (same_as_before, np.ones(steps, dtype=bool)):
            assert log_ratio(rows, fresh, prob, y[:, None]) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("steps", "bands", "groups"), [(9, 2, 3), (9, 3, 3), (9, 7, 3), (10, 10, 3), (11, 5, 2), (3, 3, 5)]
)
def test_recursion_over_turns_is_the_sum_over_all_subsets(steps: int, bands: int, groups: int) -> None:
    """Also where the last block is short, and with more groups than steps. Rows that do not exist change nothing."""
    matrix, prob, sigma = ToeplitzMatrix(np.linspace(1.0, 0.2, bands), steps), 0.4, 0.6
    pair = SubsetMixture(noise_multiplier=sigma, matrix=matrix, groups=groups, sampling_prob=prob)
    opportunities = participations(pair)
    columns = matrix.materialize()[:, pair.group_steps(0)] / sigma
    vectors, weights = subsets(columns.shape[1], prob)
    means = vectors @ columns.T
    for y in np.random.default_rng(1).normal(1.0, 2.0, (10, opportunities.count * groups)):
        there = y[:steps]
        expected = log(weights @ np.exp(means @ there - 0.5 * np.einsum("st,st->s", means, means)))
        logarithm = log_ratio(opportunities.scaled, opportunities.fresh, prob, y.reshape(opportunities.count, groups))
        assert logarithm == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert opportunities.mean_shift.ravel()[:steps] == pytest.approx(prob * columns.sum(axis=1), rel=1e-14)
    squared_mean, mean_square = opportunities.moments
    assert squared_mean == pytest.approx(np.square(weights @ means).sum(), rel=1e-12)
    assert mean_square == pytest.approx(weights @ np.square(means).sum(axis=1), rel=1e-12)


def test_recursion_survives_outputs_that_leave_the_range_of_doubles() -> None:
    """Without subsampling the ratio is one exponential; here it is e^+-3000 and more."""
    matrix = random_matrix(300, 3, 2)
    rows = turns_of(matrix, 0.3)
    shift = rows.sum(axis=(1, 2))
    for sign in (-1.0, 1.0, 2.0):
        expected = float(sign * shift @ shift - 0.5 * shift @ shift)
        logarithm = log_ratio(rows, np.ones(300, dtype=bool), 1.0, sign * shift[:, None])
        assert logarithm == pytest.approx(expected, rel=1e-12)
        assert abs(expected) > 2000.0


def deltas(pair: SubsetMixture, epsilon: float) -> dict[Direction, float]:
    """Both profiles of two opportunities, by a trapezoidal sum in the plane of their columns; good to about 1e-6."""
    steps = pair.group_steps(0) if pair.groups > 1 else np.arange(2)
    vectors, weights = subsets(2, pair.sampling_prob)
    means = vectors @ np.linalg.qr(pair.matrix.columns(steps) / pair.noise_multiplier)[1].T
    axis = np.linspace(-9.0 + means.min(), 9.0 + means.max(), 1601)
    y0, y1 = np.meshgrid(axis, axis, indexing="ij")
    density = np.exp(-0.5 * (y0**2 + y1**2)) / (2.0 * np.pi)
    ratio = sum(w * np.exp(m[0] * y0 + m[1] * y1 - 0.5 * m @ m) for w, m in zip(weights, means, strict=True))
    cell = (axis[1] - axis[0]) ** 2
    return {
        Direction.REMOVE: float((density * np.maximum(ratio - exp(epsilon), 0.0)).sum() * cell),
        Direction.ADD: float((density * np.maximum(1.0 - exp(epsilon) * ratio, 0.0)).sum() * cell),
    }


def interval(proposal: Proposal, epsilon: float, samples: int, seed: int = 1) -> tuple[float, float, float]:
    """Mean of Y, half the width of an empirical Bernstein interval (Maurer and Pontil) and the largest Y / M."""
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(seed)), log_weights, losses)
    values = np.exp(log_weights) * np.maximum(-np.expm1(epsilon - losses), 0.0)
    largest = proposal.weight_bound(epsilon)
    spread = sqrt(2.0 * values.var(ddof=1) * log(4.0 / FAILURE) / samples)
    width = spread + 7.0 * largest * log(4.0 / FAILURE) / (3.0 * (samples - 1))
    return float(values.mean()), width, float(values.max()) / largest


TWO_STEPS = SubsetMixture(
    noise_multiplier=0.9, matrix=BandedMatrix(np.array([[1.0, 0.6], [0.8, 0.0]])), sampling_prob=0.2
)
TWO_TURNS = SubsetMixture(
    noise_multiplier=1.0, matrix=ToeplitzMatrix(np.array([1.0, 0.6, 0.4]), 3), groups=2, sampling_prob=0.2
)


@pytest.mark.parametrize("epsilon", [0.3, 1.5])
@pytest.mark.parametrize(
    "proposal",
    [
        proposal
        for pair in (TWO_STEPS, TWO_TURNS)
        for proposal in (
            NaiveSubsets(direction=Direction.REMOVE, pair=pair),
            NaiveSubsets(direction=Direction.ADD, pair=pair),
            *(
                CountSubsets(direction=Direction.REMOVE, pair=pair, order=order, reach=reach, cap=cap)
                for order, reach, cap in ((2, 2, 2), (2, 3, 1), (2, 4, 2), (3, 3, 3), (3, 6, 2))
            ),
            *(MeanSubsets(direction=Direction.ADD, pair=pair, beta=beta) for beta in (0.5, 2.0)),
        )
    ],
    ids=lambda proposal: f"{type(proposal.pair).__name__}-{proposal.direction}-{proposal.name}-{proposal.parameters}",
)
def test_samples_average_to_the_profile(proposal: SubsetProposal, epsilon: float) -> None:
    """Up to the quadrature error; the add profile at epsilon 1.5 is 0, as no output is that much rarer under P."""
    truth = deltas(proposal.pair, epsilon)[proposal.direction]
    mean, width, worst = interval(proposal, epsilon, 200_000)
    assert abs(mean - truth) <= width + 1e-5 * truth
    assert width < 0.3 * truth or (truth == 0.0 and proposal.direction is Direction.ADD)
    assert worst <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("sigma", "prob", "steps", "epsilon", "within"),
    [(1.0, 0.01, 100, 1.0, 0.5), (1.0, 0.01, 100, 2.0, 0.4), (0.8, 0.02, 50, 3.0, 0.2), (2.0, 0.2, 50, 1.0, 0.1)],
)
def test_without_correlation_it_is_the_exact_law(
    sigma: float, prob: float, steps: int, epsilon: float, within: float
) -> None:
    """The remove direction is the larger one, so the exact profile of both is its own. delta goes down to 3e-10."""
    exact = IndependentSteps(noise_multiplier=sigma, sampling_prob=prob, steps=steps)
    upper = direct.ACCOUNTANT.bound(exact, Side.UPPER).profiles[Direction.REMOVE](epsilon)
    lower = direct.ACCOUNTANT.bound(exact, Side.LOWER).profiles[Direction.REMOVE](epsilon)
    assert upper < 1.01 * lower
    pair = SubsetMixture(noise_multiplier=sigma, matrix=ToeplitzMatrix(np.ones(1), steps), sampling_prob=prob)
    proposal = min(FAMILY.propose(pair, Direction.REMOVE, epsilon), key=lambda proposal: proposal.weight_bound(epsilon))
    assert proposal.name == "counts"
    mean, width, worst = interval(proposal, epsilon, 50_000)
    assert lower - width <= mean <= upper + width
    assert width < within * upper
    assert worst <= 1.0 + 1e-9


def test_add_without_correlation_is_the_exact_law() -> None:
    exact = IndependentSteps(noise_multiplier=2.0, sampling_prob=0.2, steps=50)
    pair = SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.ones(1), 50), sampling_prob=0.2)
    upper = direct.ACCOUNTANT.bound(exact, Side.UPPER).profiles[Direction.ADD](1.0)
    lower = direct.ACCOUNTANT.bound(exact, Side.LOWER).profiles[Direction.ADD](1.0)
    tilted, naive = FAMILY.propose(pair, Direction.ADD, 1.0)
    for proposal in (tilted, naive):
        mean, width, worst = interval(proposal, 1.0, 200_000)
        assert lower - width <= mean <= upper + width
        assert width < 0.25 * upper
        assert worst <= 1.0 + 1e-9


@pytest.mark.parametrize("matrix", [random_matrix(30, 3, 11), ToeplitzMatrix(np.array([1.0, 0.5, 0.3]), 30)])
def test_counts_and_naive_agree_on_correlated_noise(matrix: StrategyMatrix) -> None:
    """Two ways to draw the same profile: 30 steps, 3 bands, columns that differ or not."""
    pair = SubsetMixture(noise_multiplier=2.0, matrix=matrix, sampling_prob=0.1)
    *tilted, naive = FAMILY.propose(pair, Direction.REMOVE, 1.0)
    expected, error, _ = interval(naive, 0.5, 100_000)
    more = CountSubsets(direction=Direction.REMOVE, pair=pair, order=3, reach=5, cap=2)
    assert tilted
    for proposal in (*tilted, more):
        mean, width, worst = interval(proposal, 0.5, 50_000, seed=2)
        assert abs(mean - expected) <= width + error
        assert width + error < 0.5 * expected
        assert worst <= 1.0 + 1e-9


@pytest.mark.parametrize(("epsilon", "fewest"), [(1.5, 3), (8.0, 1)])
def test_no_proposal_is_proposed_twice(epsilon: float, fewest: int) -> None:
    column = np.array([1.0, 0.5, 0.375, 0.3125])
    pair = SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(column, 1000), sampling_prob=0.01)
    *tilted, naive = FAMILY.propose(pair, Direction.REMOVE, epsilon)
    assert naive.name == "naive"
    assert len(tilted) >= fewest
    assert len({tuple(proposal.parameters.values()) for proposal in tilted}) == len(tilted)


def test_add_ends_where_the_ratio_cannot_be_smaller() -> None:
    """X >= (1 - p)^n, approached far away from all means."""
    pair = SubsetMixture(noise_multiplier=1.0, matrix=random_matrix(10, 2, 3), sampling_prob=0.1)
    bound = FAMILY.known_upper(pair, Direction.ADD)
    assert bound is not None
    assert FAMILY.known_upper(pair, Direction.REMOVE) is None
    assert bound(-10.0 * log(0.9) + 1e-12) == 0.0
    assert bound(1.0) <= 1.0 - exp(1.0) * 0.9**10 + 1e-12
    mean, width, _ = interval(NaiveSubsets(direction=Direction.ADD, pair=pair), 0.2, 50_000)
    assert 0.0 < mean - width <= bound(0.2)
    rows = turns_of(pair.matrix, 1.0)
    far = log_ratio(rows, np.ones(10, dtype=bool), 0.1, np.full((10, 1), -300.0))
    assert far == pytest.approx(10.0 * log(0.9), rel=1e-9)
    public = SubsetMixture(noise_multiplier=1.0, matrix=random_matrix(10, 2, 3), sampling_prob=1.0)
    everything = gaussian_delta(1.0, float(np.linalg.norm(public.matrix.materialize().sum(axis=1))), 5.0, Side.LOWER)
    unamplified = FAMILY.known_upper(public, Direction.ADD)
    assert unamplified is not None
    assert 0.1 < everything <= unamplified(5.0)


def test_what_is_known_takes_no_more_time_than_there_is() -> None:
    pair = SubsetMixture(noise_multiplier=2.0, matrix=ToeplitzMatrix(np.ones(3), 1000), sampling_prob=0.01)
    with pytest.raises(BudgetExceededError):
        known_upper(pair, Settings(deadline=Deadline(0.0)))


def test_windows_say_more_of_the_add_direction_than_split_noise() -> None:
    pair = SubsetMixture(noise_multiplier=0.8, matrix=ToeplitzMatrix(0.6 ** np.arange(200), 200), sampling_prob=0.02)
    split = split_noise.ACCOUNTANT.bound(pair, Side.UPPER, Settings()).profiles[Direction.ADD]
    costly = costly_upper(pair)
    assert costly is not None
    windows = costly.profile(Deadline())
    assert windows is not None
    assert windows(1.0) < 0.5 * split(1.0)
    assert known_upper(pair, Settings())[Direction.ADD](1.0) == split(1.0)


def test_a_ratio_below_the_range_of_doubles_is_no_number() -> None:
    """Without subsampling there is no component to keep it up; the statistics count what is no number as the worst."""
    rows = turns_of(ToeplitzMatrix(np.ones(1), 1), 0.1)
    assert np.isnan(log_ratio(rows, np.ones(1, dtype=bool), 1.0, np.full((1, 1), -100.0)))


def test_proposals_are_built_again_from_their_parameters() -> None:
    poisson = SubsetMixture(noise_multiplier=1.2, matrix=random_matrix(20, 3, 11), sampling_prob=0.1)
    for pair, direction in product((poisson, TWO_TURNS), Direction):
        for proposal in family_of(pair).propose(pair, direction, 0.5):
            again = family_of(pair).build(pair, direction, proposal.name, proposal.parameters)
            results = []
            for copy in (proposal, again, pickle.loads(pickle.dumps(proposal))):
                drawn = np.empty((2, 500))
                copy.draw(np.random.Generator(np.random.SFC64(3)), drawn[0], drawn[1])
                results.append(drawn)
            assert np.array_equal(results[0], results[1])
            assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (Direction.REMOVE, "mean", {"beta": 1.0}),
        (Direction.ADD, "counts", {"order": 2.0, "reach": 2.0, "cap": 2.0}),
        (Direction.REMOVE, "counts", {"order": 2.5, "reach": 3.0, "cap": 2.0}),
        (Direction.REMOVE, "counts", {"order": 50.0, "reach": 50.0, "cap": 2.0}),
        (Direction.REMOVE, "counts", {"order": 2.0, "reach": 1.0, "cap": 1.0}),
        (Direction.REMOVE, "counts", {"order": 2.0, "reach": 200.0, "cap": 1.0}),
        (Direction.REMOVE, "counts", {"order": 2.0, "reach": 3.0, "cap": 3.0}),
        (Direction.REMOVE, "counts", {"order": 2.0}),
        (Direction.REMOVE, "counts", {"order": inf, "reach": inf, "cap": 1.0}),
        (Direction.REMOVE, "counts", {"order": 2.0, "reach": 2.0, "cap": 2.0, "share": 0.5}),
        (Direction.ADD, "mean", {"beta": -1.0}),
        (Direction.ADD, "other", {}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be 'naive' with nothing or"):
        FAMILY.build(TWO_STEPS, direction, name, parameters)


def test_groups_of_any_matrix_are_bounded_by_one_of_their_own() -> None:
    def reason(matrix: StrategyMatrix, groups: int) -> str | None:
        pair = SubsetMixture(noise_multiplier=1.0, matrix=matrix, groups=groups, sampling_prob=0.1)
        return FAMILY.refusal(pair, Side.LOWER)

    assert reason(ToeplitzMatrix(np.full(36, 0.1), 50), 3) is None
    assert reason(ToeplitzMatrix(np.full(37, 0.1), 50), 3) is None  # many_bands.py
    assert reason(random_matrix(20, 4, 1), 2) is None  # many_bands.py


def test_what_the_recursion_cannot_do_is_refused() -> None:
    def reason(matrix: StrategyMatrix, sigma: float = 1.0) -> str | None:
        pair = SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=0.1)
        return FAMILY.refusal(pair, Side.UPPER)

    assert reason(ToeplitzMatrix(np.ones(12), 20)) is None
    assert reason(ToeplitzMatrix(np.ones(13), 20)) is None  # many_bands.py
    steep = SubsetMixture(noise_multiplier=0.1, matrix=ToeplitzMatrix(np.ones(1), 20), sampling_prob=0.1)
    assert list(count_orders(steep)) == [2, 3, 4, 5]  # 10 (10 a + 14) <= 690
    assert "needs more noise" in str(reason(ToeplitzMatrix(np.ones(4), 20), 0.2))
    pair = SubsetMixture(noise_multiplier=0.5, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 20), sampling_prob=0.1)
    assert participations(pair).largest_exponent(1) == pytest.approx(3.0 * (3.0 + 14.0))
