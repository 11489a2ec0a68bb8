"""Bounds on strips against integrals for few bins, and beside those of the whole for many."""

from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.special import ndtr

import hockeystick as hs
from hockeystick.bounds import SMALLEST_UPPER
from hockeystick.deadline import Deadline
from hockeystick.moments.common_factor import without_common
from hockeystick.moments.exact import ExactGram
from hockeystick.moments.exact_gram import proved_gram
from hockeystick.moments.floor import floor_of
from hockeystick.moments.majorant.majorant import majorant_profile
from hockeystick.moments.majorant.ranges import strip_profile
from hockeystick.moments.ring import ring_moments
from hockeystick.moments.strips import StripMoments, strip_edges, strip_moments
from hockeystick.pairs.bin_mixture import from_balls_in_bins
from hockeystick.types import Direction, Side

PAIR = ExactGram(entries=np.array([[1.0, 0.3], [0.3, 0.7]]), scale=0.3, common=0.25)
TRIPLE = ExactGram(entries=np.array([[1.0, 0.5, 0.1], [0.5, 1.2, 0.4], [0.1, 0.4, 0.8]]), scale=0.2, common=0.2)


def deltas(gram: ExactGram, direction: Direction, epsilon: float) -> float:
    """``E (X - K)_+`` or ``E (1 - K X)_+``: Black's formula for what half of ``gram.common`` gives, a product rule
    for the rest."""
    v = gram.scale * gram.common / 2
    rest = gram.scale * gram.entries - v
    values, vectors = np.linalg.eigh(rest)
    x, w = np.polynomial.hermite_e.hermegauss(80)
    draws = vectors @ (np.sqrt(values)[:, None] * np.stack([g.ravel() for g in np.meshgrid(*[x] * gram.bins)]))
    weights = np.prod(np.stack([g.ravel() for g in np.meshgrid(*[w / w.sum()] * gram.bins)]), axis=0)
    y = np.exp(draws - rest.diagonal()[:, None] / 2).mean(axis=0)
    strike, mu = exp(epsilon), sqrt(v)
    if direction is Direction.REMOVE:
        up = (np.log(y) - log(strike)) / mu + mu / 2
        return float(weights @ (y * ndtr(up) - strike * ndtr(up - mu)))
    up = (np.log(y) + log(strike)) / mu + mu / 2
    return float(weights @ (ndtr(mu - up) - strike * y * ndtr(-up)))


def strips_of(gram: ExactGram, largest: int, count: int) -> StripMoments:
    return strip_moments(gram, largest, strip_edges(gram, 1e-9, count), deadline=Deadline())


@pytest.fixture(scope="module")
def few_bins() -> list[tuple[ExactGram, StripMoments]]:
    return [(gram, strips_of(gram, 6, 16)) for gram in (PAIR, TRIPLE)]


@pytest.mark.parametrize("direction", list(Direction))
def test_bounds_enclose_the_integral_closely(
    direction: Direction, few_bins: list[tuple[ExactGram, StripMoments]]
) -> None:
    for gram, strips in few_bins:
        upper = strip_profile(strips, direction, Side.UPPER, degrees=range(2, 7), delta=1e-4)
        lower = strip_profile(strips, direction, Side.LOWER, degrees=range(2, 7), delta=1e-4)
        for epsilon in (0.2, 1.0):
            truth = deltas(gram, direction, epsilon)
            assert lower(epsilon) <= truth * (1.0 + 1e-9)
            assert upper(epsilon) >= truth * (1.0 - 1e-9)
            assert upper(epsilon) - lower(epsilon) <= 0.02 * truth


def test_degree_two_is_enough_for_a_bound_and_more_is_better(few_bins: list[tuple[ExactGram, StripMoments]]) -> None:
    _, strips = few_bins[0]
    for direction in Direction:
        rough, fine = (
            strip_profile(strips, direction, Side.UPPER, degrees=degrees, delta=1e-4)(0.5)
            for degrees in ([2], range(2, 7))
        )
        assert fine <= rough < 1.0
        rough, fine = (
            strip_profile(strips, direction, Side.LOWER, degrees=degrees, delta=1e-4)(0.5)
            for degrees in ([2], range(2, 7))
        )
        assert fine >= rough > 0.0


def test_profiles_end_where_hockey_sticks_do(few_bins: list[tuple[ExactGram, StripMoments]]) -> None:
    _, strips = few_bins[0]
    for direction in Direction:
        assert strip_profile(strips, direction, Side.LOWER, degrees=[2], delta=1e-4)(400.0) == 0.0
        assert SMALLEST_UPPER <= strip_profile(strips, direction, Side.UPPER, degrees=[2], delta=1e-4)(400.0) < 1e-7


def test_a_smaller_delta_is_resolved_too(few_bins: list[tuple[ExactGram, StripMoments]]) -> None:
    gram, _ = few_bins[0]
    strips = strip_moments(gram, 6, strip_edges(gram, 1e-14, 24), deadline=Deadline())
    for direction, epsilon in ((Direction.REMOVE, 2.0), (Direction.ADD, 2.0)):
        truth = deltas(gram, direction, epsilon)
        assert 1e-7 < truth < 1e-6
        upper = strip_profile(strips, direction, Side.UPPER, degrees=range(2, 7), delta=truth)(epsilon)
        lower = strip_profile(strips, direction, Side.LOWER, degrees=range(2, 7), delta=truth)(epsilon)
        assert truth * (1.0 - 1e-5) <= upper <= 1.06 * truth
        assert 0.94 * truth <= lower <= truth * (1.0 + 1e-5)


def test_wide_band_over_one_epoch_is_far_closer_than_with_one_polynomial() -> None:
    mechanism = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=64), sampler=hs.BallsInBins(bins=100, epochs=1), noise_multiplier=2.9094
    )
    pair = from_balls_in_bins(mechanism)
    values: dict[tuple[Direction, Side], tuple[float, float]] = {}
    for side in Side:
        gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
        strips = strips_of(gram, 4, 16)
        plain = without_common(ring_moments(gram, 4, deadline=Deadline()), gram)
        for direction in Direction:
            values[direction, side] = (
                strip_profile(strips, direction, side, degrees=[4], delta=1e-5)(0.95),
                majorant_profile(plain, gram.scale * gram.common, direction, side, degrees=[4], floor=floor_of(gram))(
                    0.95
                ),
            )
    for direction in Direction:
        (upper, plain_upper), (lower, plain_lower) = values[direction, Side.UPPER], values[direction, Side.LOWER]
        assert max(lower, plain_lower) <= min(upper, plain_upper)
        assert upper - lower < 0.3 * (plain_upper - plain_lower)
        assert upper < 1.2 * lower
