"""Randomisers that are not Gaussian, and allocations of them: against enumeration and closed forms."""

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from math import comb, exp, prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import FAR, Law, in_units
from hockeystick.laws.profile import law_delta
from hockeystick.laws.randomisers import allocated, discrete_gaussian_law, finite_law, laplace_law, pure_law
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 0.1, 0.3, 1.0, 2.0)
FINE = Resolution(72, 1e-12)
COARSE = Resolution(18, 1e-9)
UPPER_AND_LOWER = (Side.UPPER, Side.LOWER)
Weights = list[int]


def shares(weights: Weights) -> list[Fraction]:
    return [Fraction(weight, sum(weights)) for weight in weights]


def enumerated(p: Weights, q: Weights, steps: int, visits: int, epochs: int) -> list[tuple[Fraction, Fraction]]:
    """The probabilities of all outputs of all epochs, with and without the example."""
    of_p, of_q = shares(p), shares(q)
    epoch = []
    for outputs in product(range(len(p)), repeat=steps):
        sets = list(combinations(range(steps), visits))
        terms = [prod(of_p[o] if at in chosen else of_q[o] for at, o in enumerate(outputs)) for chosen in sets]
        epoch.append((sum(terms, Fraction(0)) / len(sets), prod(of_q[o] for o in outputs)))
    runs = product(epoch, repeat=epochs)
    return [(prod(a for a, _ in run), prod(b for _, b in run)) for run in runs]


def exact(outputs: list[tuple[Fraction, Fraction]], epsilon: float, direction: Direction) -> float:
    ratio = Fraction(exp(epsilon))
    pairs = outputs if direction is Direction.REMOVE else [(b, a) for a, b in outputs]
    return float(sum((max(a - ratio * b, Fraction(0)) for a, b in pairs), Fraction(0)))


def assert_sandwich(law_of: Callable[[Side], Law], truth: Callable[[float, Direction], float], loose: float) -> None:
    """Both sides, and no farther apart than ``loose`` of the truth, beside 1e-9."""
    upper, lower = law_of(Side.UPPER), law_of(Side.LOWER)
    for direction in Direction:
        for epsilon in EPSILONS:
            delta = truth(epsilon, direction)
            above, below = law_delta(upper, epsilon, direction), law_delta(lower, epsilon, direction)
            assert delta - 1e-12 <= above <= delta * (1.0 + loose) + 1e-9
            assert delta * (1.0 - loose) - 1e-9 <= below <= delta + 1e-12


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (4, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize(("p", "q"), [([3, 1], [1, 3]), ([5, 2, 1], [1, 2, 4]), ([1, 3, 4], [2, 6, 0])], ids=str)
def test_one_visit_is_known_exactly(p: Weights, q: Weights, steps: int, epochs: int) -> None:
    outputs = enumerated(p, q, steps, 1, epochs)

    def law_of(side: Side) -> Law:
        return allocated(finite_law(p, q, side), steps, FINE, epochs=epochs)

    if 0 in q:  # a lower law leaves out what only the example answers
        for epsilon in EPSILONS:
            for direction in Direction:
                above, below = (law_delta(law_of(side), epsilon, direction) for side in (Side.UPPER, Side.LOWER))
                assert below - 1e-12 <= exact(outputs, epsilon, direction) <= above + 1e-12
    else:
        assert_sandwich(law_of, lambda epsilon, direction: exact(outputs, epsilon, direction), 1e-3)


@given(
    weights=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=3),
    steps=st.integers(2, 4),
    visits=st.integers(1, 4),
)
def test_several_visits_are_between_the_sides(weights: list[tuple[int, int]], steps: int, visits: int) -> None:
    p, q = [a for a, _ in weights], [b for _, b in weights]
    assume(any(p))
    visits = min(visits, steps)
    outputs = enumerated(p, q, steps, visits, 1)
    upper, lower = (allocated(finite_law(p, q, side), steps, COARSE, participations=visits) for side in UPPER_AND_LOWER)
    for epsilon in EPSILONS:
        for direction in Direction:
            truth = exact(outputs, epsilon, direction)
            assert law_delta(lower, epsilon, direction) - 1e-12 <= truth <= law_delta(upper, epsilon, direction) + 1e-12


@pytest.mark.parametrize(("steps", "visits", "epochs"), [(6, 2, 1), (5, 4, 1), (4, 2, 2), (3, 3, 2)])
@pytest.mark.parametrize(("p", "q"), [([3, 1], [1, 3]), ([4, 1], [4, 3]), ([0, 2], [1, 2])], ids=str)
def test_several_visits_with_two_ratios_are_known_exactly(
    p: Weights, q: Weights, steps: int, visits: int, epochs: int
) -> None:
    outputs = enumerated(p, q, steps, visits, epochs)
    assert_sandwich(
        lambda side: allocated(finite_law(p, q, side), steps, FINE, participations=visits, epochs=epochs),
        lambda epsilon, direction: exact(outputs, epsilon, direction),
        1e-9 if epochs == 1 and visits < steps else 1e-3,
    )


@pytest.mark.parametrize(("steps", "visits"), [(60, 3), (400, 25)])
def test_many_visits_of_randomised_response_by_its_count(steps: int, visits: int) -> None:
    """The number of answers that speak for the example, in rational arithmetic, down to deltas of 1e-40."""
    weights = [3, 1]
    of_p, of_q = shares(weights)[0], shares(weights)[1]

    def counts(trials: int, chance: Fraction) -> list[Fraction]:
        return [comb(trials, n) * chance**n * (1 - chance) ** (trials - n) for n in range(trials + 1)]

    q, others, p = counts(steps, of_q), counts(steps - visits, of_q), [Fraction(0)] * (steps + 1)
    for n, mass in enumerate(counts(visits, of_p)):
        for m, other in enumerate(others):
            p[n + m] += mass * other
    pairs = list(zip(p, q, strict=True))
    for side in Side:
        law = allocated(finite_law(weights, weights[::-1], side), steps, FINE, participations=visits)
        for epsilon in (0.1, 1.0, 3.0, 6.0):
            for direction in Direction:
                truth, delta = exact(pairs, epsilon, direction), law_delta(law, epsilon, direction)
                assert abs(delta - truth) <= 1e-8 * truth + 1e-59
                assert delta >= truth if side is Side.UPPER else delta <= truth


@pytest.mark.parametrize(
    "law_of",
    [
        lambda side: laplace_law(1.0, side, FINE),
        lambda side: discrete_gaussian_law(2.0, side),
        lambda side: discrete_gaussian_law(0.7, side),
        lambda side: finite_law([9, 3, 1], [4, 4, 5], side),
    ],
    ids=["laplace", "discrete_gaussian", "steep", "three_answers"],
)
@pytest.mark.parametrize(("steps", "visits"), [(1_000, 4), (20_000, 60)])
def test_both_sides_of_several_visits_are_near_each_other(
    law_of: Callable[[Side], Law], steps: int, visits: int
) -> None:
    """Within 3 percent of delta. One visit alone has less than a fourth of it."""
    upper, lower = (allocated(law_of(side), steps, COARSE, participations=visits) for side in UPPER_AND_LOWER)
    for direction in Direction:
        above, below = law_delta(upper, 0.2, direction), law_delta(lower, 0.2, direction)
        assert 0.97 * above <= below <= above
        assert law_delta(allocated(law_of(Side.LOWER), steps, COARSE), 0.2, direction) < 0.25 * below


@pytest.mark.parametrize("epsilon", [7.0, 20.0, 250.0])
@pytest.mark.parametrize(("steps", "visits"), [(4, 3), (100, 50), (400, 300)])
def test_answers_that_are_all_but_impossible_without_the_example_count(epsilon: float, steps: int, visits: int) -> None:
    """Any event bounds delta from below: that ``visits`` or more of the answers speak for the example."""
    law = allocated(pure_law(epsilon, Side.UPPER), steps, FINE, participations=visits)
    rare = exp(-epsilon) / (1.0 + exp(-epsilon))
    with_example = (1.0 - rare) ** visits
    without = sum(comb(steps, n) * rare**n for n in range(visits, steps + 1))
    for target in (0.0, 1.0, 10.0):
        assert law_delta(law, target, Direction.REMOVE) >= with_example - exp(target) * without


def test_lower_laws_that_tell_nothing_or_all() -> None:
    nothing = Law(np.ones(1), np.zeros(1), 0.0, Side.LOWER, 0.0, 0.0)
    assert law_delta(allocated(nothing, 5, FINE, participations=3), 0.0, Direction.ADD) == 0.0
    never = finite_law([0, 1], [1, 0], Side.LOWER)  # no answer without the example is one with it
    assert law_delta(allocated(never, 5, FINE, participations=3), 2.0, Direction.ADD) == pytest.approx(1.0, rel=1e-9)


def test_upper_laws_in_far_units_are_taken_in_blocks() -> None:
    """Ratios beyond ordinary units would be infinite ones, which sums of scores do not count."""
    ordinary = pure_law(1.0, Side.UPPER)
    near, far = (allocated(law, 40, COARSE, participations=5) for law in (ordinary, in_units(ordinary, FAR)))
    for direction in Direction:
        assert law_delta(near, 0.5, direction) < law_delta(far, 0.5, direction)


def test_answers_that_tell_nothing_tell_nothing_after_several_visits() -> None:
    for side in Side:
        law = allocated(finite_law([2, 2, 4], [1, 1, 2], side), 50, FINE, participations=7)
        assert law_delta(law, 0.0, Direction.REMOVE) <= 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 3.0])
def test_an_answer_with_pure_privacy(epsilon: float) -> None:
    """Randomised response: ``(e^epsilon0 - e^epsilon)_+ / (e^epsilon0 + 1)`` in both directions."""
    assert_sandwich(
        lambda side: pure_law(epsilon, side),
        lambda asked, direction: max(exp(epsilon) - exp(asked), 0.0) / (exp(epsilon) + 1.0),
        1e-9,
    )


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_laplace_noise(scale: float) -> None:
    """``1 - e^((epsilon - 1 / scale) / 2)``, in both directions."""
    assert_sandwich(
        lambda side: laplace_law(scale, side, FINE),
        lambda epsilon, direction: max(-np.expm1(0.5 * (epsilon - 1.0 / scale)), 0.0),
        1e-3,
    )


@pytest.mark.parametrize("sigma", [0.25, 0.8, 5.0, 40.0])
def test_discrete_gaussian_noise(sigma: float) -> None:
    k = np.arange(-60 * int(sigma + 1), 60 * int(sigma + 1) + 1.0)
    q, p = (np.exp(-0.5 * ((k - moved) / sigma) ** 2) for moved in (0.0, 1.0))
    total = q.sum()

    def truth(epsilon: float, direction: Direction) -> float:
        with_example, without = (p, q) if direction is Direction.REMOVE else (q, p)
        return float(np.maximum(with_example - exp(epsilon) * without, 0.0).sum() / total)

    assert_sandwich(lambda side: discrete_gaussian_law(sigma, side), truth, 1e-9)


def test_epochs_of_laplace_answers_against_an_independent_mean() -> None:
    """One of 2 steps: the mean of two ratios, by sums over a grid of both outputs."""
    scale, y = 0.8, (np.arange(-16_000, 17_000) + 0.5) / 1_000.0
    q = np.exp(-np.abs(y) / scale) * 0.5e-3 / scale
    ratio = np.exp((np.abs(y) - np.abs(y - 1.0)) / scale)
    masses, inverse = np.unique(ratio.round(6), return_inverse=True)
    of_q = np.bincount(inverse, q)
    mean, weight = 0.5 * np.add.outer(masses, masses), np.outer(of_q, of_q)

    def truth(epsilon: float, direction: Direction) -> float:
        hinge = mean - exp(epsilon) if direction is Direction.REMOVE else 1.0 - exp(epsilon) * mean
        return float((weight * np.maximum(hinge, 0.0)).sum())

    upper, lower = (allocated(laplace_law(scale, side, FINE), 2, FINE) for side in (Side.UPPER, Side.LOWER))
    for epsilon in EPSILONS:
        for direction in Direction:
            delta = truth(epsilon, direction)
            assert law_delta(lower, epsilon, direction) <= delta * 1.001 + 1e-5
            assert law_delta(upper, epsilon, direction) >= delta * 0.999 - 1e-5
            assert law_delta(upper, epsilon, direction) <= delta * 1.003 + 2e-5


@pytest.mark.parametrize(
    ("steps", "visits", "theirs"),
    [
        (10, 1, (0.08153025, 0.05476204, 0.01256138)),
        (100, 1, (0.00771431, 0.00083772, 2.3348131e-08)),
        (100, 4, (0.11026672, 0.07879352, 0.02269434)),
    ],
)
def test_laplace_answers_beside_feldman_and_shenfeld(steps: int, visits: int, theirs: tuple[float, ...]) -> None:
    """Their package PLD_accounting 2.0 says delta at epsilon .1, .2 and .5, from above, on intervals of 2e-4.

    ``general_allocation_delta``, both realizations ``laplace_distribution(scale=1, value_discretization=2e-4)``, with
    ``loss_discretization=2e-4`` and the geometric convolution; rounded up. Its k visits are of blocks, as ours are.
    """
    upper, lower = (
        allocated(laplace_law(1.0, side, FINE), steps, FINE, participations=visits) for side in UPPER_AND_LOWER
    )
    for epsilon, delta in zip((0.1, 0.2, 0.5), theirs, strict=True):
        above, below = (max(law_delta(law, epsilon, direction) for direction in Direction) for law in (upper, lower))
        assert 0.95 * delta <= below <= above <= delta


@pytest.mark.parametrize(
    ("steps", "visits", "theirs"),
    [
        (10, 1, (0.09975479, 0.06650945, 0.01840297)),
        (100, 1, (0.01128459, 0.00189967, 6.4806324e-07)),
        (100, 4, (0.13226968, 0.09988256, 0.03627199)),
    ],
)
def test_randomised_response_beside_feldman_and_shenfeld(steps: int, visits: int, theirs: tuple[float, ...]) -> None:
    """As for Laplace answers, on intervals of 1e-3; the realizations are dp_accounting's randomised response.

    Ours is exact, so theirs, from above, is above both sides.
    """
    for side in UPPER_AND_LOWER:
        law = allocated(pure_law(1.0, side), steps, FINE, participations=visits)
        for epsilon, delta in zip((0.1, 0.2, 0.5), theirs, strict=True):
            assert 0.85 * delta <= max(law_delta(law, epsilon, direction) for direction in Direction) <= delta


@pytest.mark.parametrize(
    ("sigma", "lower", "upper"),
    [
        (1.0, 0.1684684, 0.1749325),
        (4.0 / 3.0, 0.0980895, 0.1045350),
        (2.0, 0.0560390, 0.0624727),
        (3.0, 0.0336453, 0.0401607),
        (4.0, 0.0235238, 0.0299444),
    ],
)
def test_figure_1_of_feldman_and_shenfeld(sigma: float, lower: float, upper: float) -> None:
    """Epsilon of 1 of 1,000 Gaussian steps at delta 1e-6, as their code says: an interval that ours is within.

    Feldman and Shenfeld 2026, Figure 1; the numbers are of a repetition with the authors' code, its table
    ``figure_1_comparison.csv`` (icml26-repro-HDBpda5Vih-privacy-loss-accounting).
    """
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=1_000), noise_multiplier=sigma)
    ours = hs.certify(run, delta=1e-6).bounds
    assert ours.lower is not None
    assert lower <= ours.lower <= ours.upper <= upper
    assert ours.upper <= ours.lower * (1.0 + 1e-4)


@pytest.mark.parametrize(
    ("epsilon", "allocation", "poisson"), [(1.0, 0.8899411, 0.8918294), (0.1, 1.8657261, 1.9387646)]
)
def test_noise_of_the_bernoulli_means_of_feldman_and_shenfeld(
    epsilon: float, allocation: float, poisson: float
) -> None:
    """Noise for 1 of 1,000 steps at delta 1e-10 that their code, and dp_accounting for Poisson, find to be enough.

    Feldman and Shenfeld 2026, the experiment with Bernoulli means, from the same repetition: ``privacy_noise.csv``.
    """
    for sampler, enough in (
        (hs.RandomAllocation(bins=1_000), allocation),
        (hs.Poisson(sampling_prob=1e-3, steps=1_000), poisson),
    ):
        noise = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=epsilon, delta=1e-10).sigma
        assert 0.994 * enough <= noise <= 1.0002 * enough


def test_what_cannot_be_is_one_sentence() -> None:
    law = pure_law(1.0, Side.UPPER)
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("same number of weights", lambda: finite_law([1, 2], [1], Side.UPPER)),
        ("weights of answers", lambda: finite_law([1, -2], [1, 1], Side.UPPER)),
        ("weights of answers", lambda: finite_law([0, 0], [1, 1], Side.UPPER)),
        ("ratio of two weights", lambda: finite_law([1, 1], [1, 1e-200], Side.UPPER)),
        ("'epsilon'", lambda: pure_law(-1.0, Side.UPPER)),
        ("'noise_multiplier'", lambda: laplace_law(0.0, Side.UPPER, FINE)),
        ("'noise_multiplier'", lambda: discrete_gaussian_law(0.1, Side.UPPER)),
        ("'participations' argument must be at most", lambda: allocated(law, 3, FINE, participations=4)),
        ("'steps' argument must be a whole number", lambda: allocated(law, 2.5, FINE)),  # type: ignore[arg-type]
        ("'epochs' argument must be a whole number", lambda: allocated(law, 3, FINE, epochs=0)),
        ("'epsilon' field must be a number", lambda: pure_law("1", Side.UPPER)),  # type: ignore[arg-type]
        ("'without' field must be a number", lambda: finite_law([1], ["a"], Side.UPPER)),  # type: ignore[list-item]
        ("'epsilon' argument must be from 0", lambda: pure_law(float("nan"), Side.UPPER)),
    ]
    for says, call in wrong:
        with pytest.raises(InvalidInputError, match=says):
            call()
