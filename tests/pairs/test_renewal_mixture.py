"""The pair of b-min-sep subsampling: what it is made of, and what it refuses to be made of."""

from fractions import Fraction
from itertools import product
from math import exp, expm1, log1p

import mpmath as mp
import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.min_separated import from_b_min_sep, from_multi_attribution
from hockeystick.pairs.renewal_mixture import ROOM, RenewalMixture
from hockeystick.samplers import BMinSep, MultiAttribution
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Side


def run_with(sampler: BMinSep | MultiAttribution, bands: int = 3) -> hs.Mechanism:
    return hs.Mechanism(strategy=hs.BandedSquareRoot(bands=bands), sampler=sampler, noise_multiplier=1.5)


def separated(steps: int, min_sep: int) -> list[tuple[int, ...]]:
    """All vectors of zeros and ones whose ones are min_sep apart."""
    vectors = product((0, 1), repeat=steps)
    return [v for v in vectors if all(sum(v[i : i + min_sep]) <= 1 for i in range(steps))]


def pair_of(matrix: DenseMatrix | ToeplitzMatrix | TreeMatrix, min_sep: int, examples: int = 1) -> RenewalMixture:
    return RenewalMixture(
        noise_multiplier=1.0,
        matrix=matrix,
        min_sep=min_sep,
        participation_prob=0.2,
        warm_start=False,
        examples_per_user=examples,
    )


@pytest.mark.parametrize("warm", [False, True])
def test_it_takes_its_fields_from_the_sampler(warm: bool) -> None:
    run = run_with(BMinSep(min_sep=4, sampling_prob=0.1, steps=12, warm_start=warm))
    pair: DominatingPair = from_b_min_sep(run)
    assert isinstance(pair, RenewalMixture)
    assert pair.noise_multiplier == 1.5
    assert (pair.min_sep, pair.warm_start, pair.examples_per_user, pair.slack) == (4, warm, 1, 0.0)
    assert pair.participation_prob == pytest.approx(0.1 / (1.0 - 0.3), rel=1e-15)
    assert pair.banded
    assert not pair.batches_are_public
    rates = pair.participation_prob * pair.availability
    if warm:
        assert rates == pytest.approx(np.full(12, 0.1), rel=1e-14)
        assert pair.first_available.sum() == pytest.approx(1.0, rel=1e-15)
    else:
        assert rates[0] == pair.participation_prob
        assert rates[3] == pytest.approx(pair.participation_prob * (1.0 - pair.participation_prob) ** 3, rel=1e-14)


@pytest.mark.parametrize("bands", [1, 3, 9])
@pytest.mark.parametrize("min_sep", [1, 3, 4])
def test_full_sensitivity_is_that_of_the_worst_participations(bands: int, min_sep: int) -> None:
    matrix = hs.BandedSquareRoot(bands=bands).matrix(9)
    dense = matrix.materialize()
    worst = max(float(np.linalg.norm(dense @ np.array(v, dtype=float))) for v in separated(9, min_sep))
    for examples in (1, 3):
        pair = RenewalMixture(
            noise_multiplier=1.0,
            matrix=matrix,
            min_sep=min_sep,
            participation_prob=0.2,
            warm_start=True,
            examples_per_user=examples,
        )
        assert examples * worst <= pair.full_sensitivity <= examples * worst * (1.0 + 1e-10)
        assert pair.sensitivity_error == 0.0
        assert pair.banded == (bands <= min_sep)


def test_full_sensitivity_covers_a_matrix_without_structure() -> None:
    entries = np.tril(np.random.default_rng(1).uniform(0.0, 1.0, (8, 8))) + np.eye(8)
    worst = max(float(np.linalg.norm(entries @ np.array(v, dtype=float))) for v in separated(8, 3))
    assert worst <= pair_of(DenseMatrix(entries), 3).full_sensitivity <= 1.5 * worst


@pytest.mark.parametrize("toeplitz", [False, True])
def test_overlaps_are_at_least_their_exact_value(toeplitz: bool) -> None:
    """Over all sets of later steps, in exact fractions; sums of rounded products would end below for some column."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        column = rng.random(8) + 0.1
        lower = np.tril(rng.random((8, 8))) + np.eye(8)
        matrix = ToeplitzMatrix(column, 8) if toeplitz else DenseMatrix(lower)
        exact = [[Fraction(entry) for entry in row] for row in matrix.materialize().T.tolist()]
        for i, overlap in enumerate(pair_of(matrix, 2).overlaps.tolist()):
            products = [sum(a * b for a, b in zip(exact[i], exact[j], strict=True)) for j in range(8)]
            sets = (np.flatnonzero(chosen).tolist() for chosen in separated(8, 2) if not any(chosen[: i + 2]))
            best = max(sum((products[j] for j in steps), Fraction(0)) for steps in sets)
            assert best <= Fraction(overlap) <= best * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("steps", "min_sep", "prob", "examples"),
    [(1, 1, 0.3, 1), (5, 3, 0.2, 1), (4, 5, 0.7, 2), (3, 5, 0.2, 3), (2, 9, 0.9, 1), (400_000, 100_000, 6e-6, 1)],
)
def test_the_chance_to_take_part_in_no_step(steps: int, min_sep: int, prob: float, examples: int, warm: bool) -> None:
    """The sum over the first steps of availability. Added up in doubles, that of the last case is 4 ROOM too large."""
    pair = RenewalMixture(
        noise_multiplier=1.0,
        matrix=hs.Identity().matrix(steps),
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
        examples_per_user=examples,
    )
    with mp.workdps(40):
        stay = (1 - mp.mpf(prob)) ** examples
        starts = [mp.mpf(1), *[1 - stay] * (min_sep - 1 if warm else 0)]
        idle, power = mp.mpf(0), stay ** max(steps - len(starts) + 1, 0)
        for at in reversed(range(len(starts))):  # from the last start on, each has one step more, if the run has it
            idle += starts[at] * power
            power *= stay if at <= steps else 1
        idle /= sum(starts)
        exact, active = mp.log(idle), 1 - idle
        assert exact - 2.0 * ROOM * (1.0 - exact) <= pair.log_idle <= exact
        assert abs(mp.exp(pair.active_moments[2]) / active - 1) < 1e-14


@pytest.mark.parametrize("prob", [0.2, 0.9, 0.999, 1.0 - 1e-6])
def test_moments_are_from_above_where_an_example_hardly_ever_stays(prob: float) -> None:
    """In exact fractions, for a second column so long that what is left of ``1 - h`` decides."""
    for lengths in ([1.0, 1.0, 1.0], [1.0, 1e3, 1.0], [1.0, 1e6, 1.0]):
        pair = RenewalMixture(
            noise_multiplier=1.0,
            matrix=DenseMatrix(np.diag(lengths)),
            min_sep=2,
            participation_prob=prob,
            warm_start=False,
            examples_per_user=2,
        )
        q, stay = Fraction(prob), (1 - Fraction(prob)) ** 2
        available = [Fraction(1), stay, stay * stay + 1 - stay]
        for computed, exact in zip(pair.availability.tolist(), available, strict=True):
            assert abs(Fraction(computed) / exact - 1) <= Fraction(24, 2**53) / stay
        active = 1 - stay**3
        means = [2 * q * a * Fraction(length) / active for a, length in zip(available, lengths, strict=True)]
        squares = [
            (2 * q * (1 - q) + 4 * q * q) * a * Fraction(length) ** 2 / active
            for a, length in zip(available, lengths, strict=True)
        ]
        variance, drift, _ = pair.active_moments
        exact_variance = sum(mean**2 for mean in means)
        assert exact_variance <= Fraction(variance)
        assert (sum(squares) - exact_variance) / 2 <= Fraction(drift)


def test_columns_are_packed_below_the_diagonal() -> None:
    entries = np.tril(np.random.default_rng(2).uniform(0.1, 1.0, (7, 7)))
    entries[np.subtract.outer(range(7), range(7)) >= 3] = 0.0
    columns = pair_of(DenseMatrix(entries), 3).columns
    assert columns.shape == (7, 3)
    for j in range(7):
        assert np.array_equal(columns[j], np.append(entries[:, j], np.zeros(3))[j : j + 3])
    with pytest.raises(ValueError, match="read-only"):
        columns[0, 0] = 1.0
    toeplitz = ToeplitzMatrix(np.array([1.0, 0.5]), 600)  # more than one block of columns
    packed = pair_of(toeplitz, 3).columns
    assert np.array_equal(packed[:-1], np.tile([1.0, 0.5], (599, 1)))
    assert packed[-1].tolist() == [1.0, 0.0]
    assert pair_of(toeplitz, 3).columns is not None
    assert pair_of(toeplitz, 3).too_large is None


def test_matrices_that_columns_cannot_hold_say_why() -> None:
    assert pair_of(TreeMatrix(4, 6), 4).too_large is not None
    large = pair_of(ToeplitzMatrix(np.ones(1 << 14), 1 << 14), 4)
    assert large.too_large == f"it needs all entries of C, more than {1 << 26} here"


@pytest.mark.parametrize(
    ("warm", "what"),
    [(True, "balls-in-bins over 4 bins: use the sampler 'balls_in_bins'"), (False, "no sampling at all")],
)
def test_taking_every_available_example_is_another_scheme(warm: bool, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        from_b_min_sep(run_with(BMinSep(min_sep=4, sampling_prob=0.25, steps=12, warm_start=warm)))


def attributed(**changes: object) -> MultiAttribution:
    fields = {"min_sep": 4, "sampling_prob": 0.1, "steps": 12, "examples_per_user": 1, "warm_up_steps": 9} | changes
    return MultiAttribution.model_validate(fields)


def test_multi_attribution_starts_cold_whatever_its_warm_up() -> None:
    pair = from_multi_attribution(run_with(attributed()))
    assert (pair.min_sep, pair.participation_prob, pair.warm_start, pair.examples_per_user) == (4, 0.1, False, 1)
    assert not pair.attained


def test_batches_of_other_users_can_reveal_more_than_the_pair_allows() -> None:
    """Why users who share more than one example get no amplification: two steps, C = I, b = 2, k_u = 2.

    A user has one example, which is the other example of each of many more users. Sampling it in the first step
    keeps all of theirs out of the second batch, so that batch tells whether it was sampled, and the mechanism's delta
    is at least ``q`` times that of a Gaussian. The pair, with two examples, would claim far less.
    """
    prob, sigma, epsilon = 0.01, 1.0, 1.0
    revealed = prob * gaussian_delta(sigma, 1.0, epsilon, Side.LOWER)
    assert _delta_remove_of_two_steps(prob, sigma, epsilon) < 1e-3 * revealed


def _delta_remove_of_two_steps(prob: float, sigma: float, epsilon: float) -> float:
    """The pair's, for C = I, b = 2 and k_u = 2: X depends on ``f = 1 - h + sum_j w_j LR(j)`` of either step alone."""
    hit = -expm1(2.0 * log1p(-prob))
    weights = {1: 2.0 * prob * (1.0 - prob), 2: prob**2}
    points = np.linspace(-8.0, 11.0, 2001) * sigma
    mass = np.exp(-0.5 * (points / sigma) ** 2) / (sigma * np.sqrt(2.0 * np.pi)) * (points[1] - points[0])
    taken = sum(w * np.exp((j * points - 0.5 * j * j) / sigma**2) for j, w in weights.items())
    ratio = (1.0 - hit) * ((1.0 - hit) + taken)[None, :] + taken[:, None]
    return float(mass @ np.maximum(ratio - exp(epsilon), 0.0) @ mass)
