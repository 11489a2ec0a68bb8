"""Independent steps that are mixtures of Gaussians, against closed forms and against integration."""

from math import exp, log

import numpy as np
import pytest
from scipy.special import ndtr

from hockeystick.accountants.registry import accountant
from hockeystick.errors import InvalidInputError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.mixture_steps import MixtureStep, MixtureSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

SETTINGS = Settings()


def both_sides(pair: DominatingPair, method: str = "direct") -> list[dict[Direction, object]]:
    return [accountant(method).bound(pair, side, SETTINGS).profiles for side in (Side.UPPER, Side.LOWER)]


def poisson_delta(q: float, s: float, level: float, direction: Direction) -> float:
    """H(P || level Q) or H(Q || level P) for P = (1-q) N(0,1) + q N(s,1), at any level > 0, from the two cdfs."""
    limit = level if direction is Direction.REMOVE else 1.0 / level
    y = log((limit - 1.0 + q) / q) / s + 0.5 * s if limit > 1.0 - q else -np.inf
    p_below, q_below = (1.0 - q) * ndtr(y) + q * ndtr(y - s), ndtr(y)
    if direction is Direction.REMOVE:
        return 1.0 - p_below - level * (1.0 - q_below)
    return q_below - level * p_below


def two_step_delta(
    weights: list[float], shifts: list[float], q: float, s: float, epsilon: float, direction: Direction
) -> float:
    """First a mixture, then a Poisson step: the outer integral by the trapezoidal rule, the inner one closed."""
    y, step = np.linspace(-9.0, 9.0 + max(shifts), 4001, retstep=True)
    total = 0.0
    for place in y:
        ratio = sum(w * exp(m * place - 0.5 * m * m) for w, m in zip(weights, shifts, strict=True))
        density = exp(-0.5 * place * place) / np.sqrt(2.0 * np.pi) * step
        if direction is Direction.REMOVE:
            total += density * ratio * poisson_delta(q, s, exp(epsilon) / ratio, direction)
        else:
            total += density * poisson_delta(q, s, exp(epsilon) * ratio, direction)
    return total


def test_two_different_steps_compose() -> None:
    weights, shifts, q, s = [0.6, 0.25, 0.15], [0.0, 0.8, 2.1], 0.2, 1.0
    first = MixtureStep(tuple(weights), tuple(2.0 * m for m in shifts))
    pair = MixtureSteps(noise_multiplier=2.0, steps=(first, MixtureStep((1.0 - q, q), (0.0, 2.0 * s))))
    upper, lower = both_sides(pair)
    for direction in Direction:
        for epsilon in (0.0, 0.5, 2.0):
            truth = two_step_delta(weights, shifts, q, s, epsilon, direction)
            assert lower[direction](epsilon) <= truth <= upper[direction](epsilon)
            assert upper[direction](epsilon) <= lower[direction](epsilon) * 1.01


def test_poisson_steps_are_the_simplest_mixtures() -> None:
    mixture = MixtureSteps(noise_multiplier=1.3, steps=(MixtureStep((0.99, 0.01), (0.0, 1.0), count=50),))
    poisson = IndependentSteps(noise_multiplier=1.3, sampling_prob=0.01, steps=50)
    sides = [both_sides(pair) for pair in (mixture, poisson)]
    for direction in Direction:
        for epsilon in (0.0, 0.2, 1.0):
            ours, theirs = ([side[direction](epsilon) for side in both] for both in sides)
            assert ours[1] <= theirs[0]
            assert theirs[1] <= ours[0] <= ours[1] * 1.01


def test_public_steps_are_one_gaussian() -> None:
    steps = (MixtureStep((1.0,), (3.0,)), MixtureStep((0.0, 1.0), (7.0, 4.0)), MixtureStep((1.0,), (0.0,), count=9))
    pair = MixtureSteps(noise_multiplier=5.0, steps=steps)
    assert pair.batches_are_public
    assert pair.full_sensitivity == pytest.approx(5.0)
    for method in ("direct", "gaussian"):
        upper, lower = both_sides(pair, method)
        for direction in Direction:
            for epsilon in (0.0, 1.0, 3.0):
                truth = [gaussian_delta(5.0, 5.0, epsilon, side) for side in (Side.UPPER, Side.LOWER)]
                assert lower[direction](epsilon) <= truth[0]
                assert truth[1] <= upper[direction](epsilon) <= lower[direction](epsilon) * 1.01


def test_the_unamplified_gaussian_covers_a_mixture_from_above_alone() -> None:
    pair = MixtureSteps(noise_multiplier=1.0, steps=(MixtureStep((0.5, 0.5), (0.0, 1.0), count=4),))
    gaussian = accountant("gaussian")
    assert gaussian.why_not(pair, Side.LOWER) is not None
    closed = gaussian.bound(pair, Side.UPPER).delta(1.0)
    assert closed == pytest.approx(gaussian_delta(1.0, 2.0, 1.0, Side.UPPER))
    assert accountant("direct").bound(pair, Side.UPPER).delta(1.0) < closed


def test_order_and_repetition_of_steps_do_not_matter() -> None:
    a, b = MixtureStep((0.9, 0.1), (0.0, 1.0)), MixtureStep((0.5, 0.5), (0.0, 0.5), count=2)
    pair = MixtureSteps(noise_multiplier=1.0, steps=(a, b, a))
    other = MixtureSteps(noise_multiplier=1.0, steps=(MixtureStep(a.probabilities, a.sensitivities, 2), b))
    assert pair.distinct_steps == other.distinct_steps
    assert list(pair.distinct_steps.values()) == [2, 2]
    for direction in Direction:
        assert both_sides(pair)[0][direction](0.5) == both_sides(other)[0][direction](0.5)


def test_errors_of_probabilities_move_both_sides_outward() -> None:
    sure, unsure = (
        MixtureSteps(noise_multiplier=1.0, steps=(MixtureStep((0.9, 0.1), (0.0, 1.0), 3, error),))
        for error in (0.0, 1e-4)
    )
    (high, low), (higher, lower) = both_sides(sure), both_sides(unsure)
    for direction in Direction:
        assert higher[direction](0.3) > high[direction](0.3) > low[direction](0.3) > lower[direction](0.3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"probabilities": (0.5, 0.4), "sensitivities": (0.0, 1.0)}, "sum to 1"),
        ({"probabilities": (0.5, 0.5), "sensitivities": (0.0,)}, "one entry for each"),
        ({"probabilities": (1.0,), "sensitivities": (-1.0,)}, "non-negative"),
        ({"probabilities": (float("nan"),), "sensitivities": (1.0,)}, "non-negative"),
        ({"probabilities": (), "sensitivities": ()}, "finite"),
        ({"probabilities": (1.0,), "sensitivities": (1.0,), "count": 0}, "from 1 to 100000000000"),
        ({"probabilities": (1.0,), "sensitivities": (1.0,), "count": 2.5}, "whole number"),
        ({"probabilities": (1.0,), "sensitivities": (1.0,), "probability_error": 0.5}, "probability_error"),
    ],
)
def test_what_is_no_step_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        MixtureStep(**fields)


def test_a_pair_needs_steps_and_noise() -> None:
    with pytest.raises(InvalidInputError, match="at least one step"):
        MixtureSteps(noise_multiplier=1.0, steps=())
    with pytest.raises(InvalidInputError, match="positive and finite"):
        MixtureSteps(noise_multiplier=0.0, steps=(MixtureStep((1.0,), (1.0,)),))
