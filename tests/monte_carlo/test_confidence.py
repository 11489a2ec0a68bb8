"""Confidence bounds: coverage by thousands of runs, which wrong procedures fail; closed forms; rounding.

A coverage test counts misses in independent seeded runs at failure probability 0.05 each. A correct bound exceeds
:func:`allowed` with a probability below 1e-6; the seeds are fixed, so the tests do not flicker.
"""

from collections.abc import Callable
from math import exp, log, log1p, sqrt

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom
from toy_gaussian import GaussianProposal, exact_delta, node, run_of

from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.confidence import (
    LARGEST_BET,
    _best_fraction,
    bet_from_pilot,
    betting_lower,
    betting_upper,
    samples_needed,
)
from hockeystick.monte_carlo.runs import run_chunk
from hockeystick.types import Side

RUNS = 2000
FAILURE = 0.05
FALSE_ALARM = 1e-6
CHUNKS = 12
CHUNK = 25
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

LAWS: dict[str, tuple[float, float, Draw]] = {  # largest value, mean, sampler
    "rare": (1.0, 0.01, lambda rng, shape: (rng.random(shape) < 0.01).astype(float)),
    "heavy": (7.0, 0.01 + 0.02 * 6.99, lambda rng, shape: np.where(rng.random(shape) < 0.02, 7.0, 0.01)),
    "uniform": (1.0, 0.5, lambda rng, shape: rng.random(shape)),
    "coin": (1.0, 0.5, lambda rng, shape: (rng.random(shape) < 0.5).astype(float)),
    "power": (1.0, 1 / 9, lambda rng, shape: rng.random(shape) ** 8),
}
LAW = pytest.mark.parametrize("law", LAWS)
SIDE = pytest.mark.parametrize("side", Side)


def allowed(runs: int = RUNS) -> int:
    """As many misses as a correct bound exceeds with probability FALSE_ALARM at most."""
    return int(binom.isf(FALSE_ALARM, runs, FAILURE))


def missed(side: Side, bound: float, truth: float) -> bool:
    return bound < truth if side is Side.UPPER else bound > truth


def betting(side: Side, samples: int, logs: float, theta: float, failure: float = FAILURE) -> float:
    bound = betting_upper if side is Side.UPPER else betting_lower
    return bound(samples, logs, theta, failure)


def logs_of(side: Side, values: Array, theta: float) -> Array:
    return np.log1p((-theta if side is Side.UPPER else theta) * values)


# Betting bounds, read after every chunk, at the worst moment.


@SIDE
@LAW
def test_betting_covers_at_the_worst_moment(law: str, side: Side) -> None:
    largest, mean, draw = LAWS[law]
    rng = np.random.default_rng(11)
    misses = 0
    for _ in range(RUNS // 40):  # each pilot serves 40 runs: whatever it says, they miss with probability 0.05 at most
        theta = bet_from_pilot(side, draw(rng, (40,)), largest, CHUNKS * CHUNK, FAILURE)
        chunks = logs_of(side, draw(rng, (40, CHUNKS, CHUNK)), theta).sum(axis=2)
        for logs in np.cumsum(chunks, axis=1):
            looks = [betting(side, CHUNK * (i + 1), float(logs[i]), theta) for i in range(CHUNKS)]
            misses += missed(side, min(looks) if side is Side.UPPER else max(looks), mean)
    assert misses <= allowed()


def test_betting_covers_a_proposal_at_the_worst_moment() -> None:
    """Through ``run_chunk``; both sides are watched, each by itself."""
    proposal = GaussianProposal(shift=0.5, centre=2.0)
    delta = exact_delta(0.5, 1.0)
    misses = dict.fromkeys(Side, 0)
    for seed in range(RUNS):
        run = run_of(proposal, tuple(node(proposal, side, 1.0, share=0.2) for side in Side), chunk_size=60, seed=seed)
        chunks = [run_chunk(proposal, run, stream) for stream in range(4)]
        for j, this_node in enumerate(run.nodes):
            logs = np.cumsum([chunk.logs[j] for chunk in chunks])
            looks = [betting(this_node.side, 60 * (i + 1), float(logs[i]), this_node.theta) for i in range(4)]
            misses[this_node.side] += missed(
                this_node.side, min(looks) if this_node.side is Side.UPPER else max(looks), delta
            )
    assert max(misses.values()) <= allowed()


@SIDE
def test_betting_uses_most_of_its_failure_probability(side: Side) -> None:
    """A coin watched for long misses in more than 1 of 100 runs: the coverage tests above are about a tight bound."""
    rng = np.random.default_rng(5)
    values = (rng.random((RUNS, 3000)) < 0.5).astype(float)
    logs = np.cumsum(logs_of(side, values, 0.2), axis=1)
    counts = np.arange(1, 3001)
    sign = -1 if side is Side.UPPER else 1
    # log of the capital at the true mean; the bound misses the mean when it exceeds log(1/failure) (checked below)
    misses = (logs - counts * log1p(sign * 0.2 * 0.5) >= -log(FAILURE)).any(axis=1).sum()
    assert 0.2 * FAILURE * RUNS < misses <= allowed()


@SIDE
def test_a_bound_misses_when_the_capital_reaches_its_limit(side: Side) -> None:
    sign = -1 if side is Side.UPPER else 1
    level = 50 * log1p(sign * 0.2 * 0.5) - log(FAILURE)
    assert missed(side, betting(side, 50, level + 1e-9, 0.2), 0.5)
    assert not missed(side, betting(side, 50, level - 1e-9, 0.2), 0.5)


# Bounds for a number of samples that was fixed in advance.


# The same test refuses what is wrong.


def test_a_bet_may_not_be_chosen_on_the_same_samples() -> None:
    looks = np.unique(np.geomspace(1, 200_000, 260).astype(int))
    rng = np.random.default_rng(43)
    hits = np.cumsum(rng.binomial(np.diff(looks, prepend=0), 0.5, (RUNS, looks.size)), axis=1)
    misses = {}
    for name, thetas in (("frozen", [0.02]), ("chosen", np.geomspace(1e-3, 0.9, 40))):
        wrong = np.zeros(RUNS, dtype=bool)
        for theta in thetas:
            capital = hits * log1p(-theta) - looks * log1p(-theta * 0.5)
            wrong |= (capital > -log(FAILURE)).any(axis=1)
        misses[name] = wrong.sum()
    assert misses["frozen"] <= allowed() < misses["chosen"]


def test_a_union_over_bets_repairs_it() -> None:
    looks = np.unique(np.geomspace(1, 200_000, 260).astype(int))
    rng = np.random.default_rng(43)
    hits = np.cumsum(rng.binomial(np.diff(looks, prepend=0), 0.5, (RUNS, looks.size)), axis=1)
    wrong = np.zeros(RUNS, dtype=bool)
    for theta in np.geomspace(1e-3, 0.9, 40):
        wrong |= (hits * log1p(-theta) - looks * log1p(-theta * 0.5) > -log(FAILURE / 40)).any(axis=1)
    assert wrong.sum() <= allowed()


def test_mean_and_standard_error_miss_on_a_heavy_tail() -> None:
    """Outputs drawn from the wrong place look calm while all that matters is never drawn; M is honest about it."""
    shift, epsilon, samples = 1.0, 4.0, 400
    delta = exact_delta(shift, epsilon)
    rng = np.random.default_rng(51)
    calm = honest = 0
    proposal = GaussianProposal(shift=shift, centre=shift)  # the naive proposal: M = 1, delta near 5e-5
    theta = 0.5
    for _ in range(RUNS):
        weights, losses = np.empty(samples), np.empty(samples)
        proposal.draw(rng, weights, losses)
        values = np.maximum(1 - np.exp(epsilon - losses), 0.0)
        calm += values.mean() + 2 * values.std(ddof=1) / sqrt(samples) < delta
        honest += betting_upper(samples, float(np.log1p(-theta * values).sum()), theta, FAILURE) < delta
    assert honest <= allowed() < calm


# Closed forms and rounding.


def test_betting_is_the_closed_form() -> None:
    assert betting_upper(100, -3.0, 0.5, 0.01) == pytest.approx((1 - exp((-3 + log(0.01)) / 100)) / 0.5, rel=1e-12)
    assert betting_lower(100, 9.0, 0.5, 0.01) == pytest.approx((exp((9 + log(0.01)) / 100) - 1) / 0.5, rel=1e-12)
    assert betting_lower(100, 4.0, 0.5, 0.01) == 0.0


@pytest.mark.parametrize("samples", [1, 1000, 10**9])
@pytest.mark.parametrize("failure", [0.5, 1e-9, 1e-300])
@pytest.mark.parametrize("scale", [1e-12, 0.3, 1.0])
def test_betting_errs_to_its_side_of_the_exact_value(samples: int, failure: float, scale: float) -> None:
    with mpmath.workdps(60):
        nats = -mpmath.log(mpmath.mpf(failure))
        for theta in (1e-7, 0.37, 1e9):
            logs = -scale * samples
            exact = (1 - mpmath.exp((mpmath.mpf(logs) - nats) / samples)) / mpmath.mpf(theta)
            bound = betting_upper(samples, logs, theta, failure)
            assert exact <= bound <= exact * (1 + 1e-13 + 3e-16 * samples)
            gain = scale * samples + float(nats)
            exact = (mpmath.exp((mpmath.mpf(gain) - nats) / samples) - 1) / mpmath.mpf(theta)
            bound = betting_lower(samples, gain, theta, failure)
            assert bound <= exact
            lost = (1e-13 + 3e-16 * samples) * (1 + float(nats) / (scale * samples)) * (1 + scale + float(nats))
            assert bound >= exact * (1 - 2 * lost)


def test_a_sum_that_lost_its_digits_stays_on_the_safe_side() -> None:
    """Each small term is below half a unit of the first one, and all of them are lost."""
    count, small = 200_000, -5e-14
    added = -1e3
    for _ in range(count):
        added += small
    assert added == -1e3
    bound = betting_upper(count + 1, added, 0.5, 0.01)
    with mpmath.workdps(40):
        exact = (1 - mpmath.exp((-1000 + count * mpmath.mpf(small) - mpmath.log(100)) / (count + 1))) / 0.5
        lost = (1 - mpmath.exp((-1000 - mpmath.log(100)) / (count + 1))) / 0.5
    assert lost < exact <= bound


# Bets and plans.


def expected_bound(side: Side, theta: float, atoms: Array, weights: Array, samples: int, failure: float) -> float:
    return betting(side, samples, samples * float(weights @ logs_of(side, atoms, theta)), theta, failure)


def best_by_search(side: Side, atoms: Array, weights: Array, largest: float, samples: int, failure: float) -> float:
    """The expected bound with the best of many fractions."""
    mean = float(weights @ atoms)
    thetas = np.geomspace(1e-9 / mean, LARGEST_BET / largest if side is Side.UPPER else 1e3 / mean, 4000)
    bounds = [expected_bound(side, float(t), atoms, weights, samples, failure) for t in thetas]
    return min(bounds) if side is Side.UPPER else max(bounds)


def worst_law(side: Side, mean: float, second: float, largest: float) -> tuple[Array, Array]:
    """The two atoms in [0, largest] with these moments for which bounds of this side are widest."""
    if side is Side.LOWER:
        return np.array([0.0, second / mean]), np.array([1 - mean * mean / second, mean * mean / second])
    variance = second - mean * mean
    chance = variance / (variance + (largest - mean) ** 2)
    return np.array([max(mean - variance / (largest - mean), 0.0), largest]), np.array([1 - chance, chance])


@SIDE
@pytest.mark.parametrize("samples", [100, 10**4, 10**7])
@pytest.mark.parametrize(("mean", "second"), [(1e-3, 1e-3), (1e-3, 1e-5), (1e-3, 1.001e-6), (0.4, 0.2)])
def test_bet_is_nearly_the_best_for_two_atoms(mean: float, second: float, samples: int, side: Side) -> None:
    atoms, weights = worst_law(side, mean, second, 1.0)
    assert weights @ atoms**2 == pytest.approx(second)
    theta = _best_fraction(side, atoms, weights, 1.0, samples, 1e-6)
    bound = expected_bound(side, theta, atoms, weights, samples, 1e-6)
    assert abs(bound - mean) <= abs(best_by_search(side, atoms, weights, 1.0, samples, 1e-6) - mean) * 1.003


@SIDE
def test_bet_is_near_its_limit_when_samples_abound(side: Side) -> None:
    theta = _best_fraction(side, *worst_law(side, 1e-6, 5e-12, 1e-4), 1e-4, 10**10, 1e-9)
    assert theta == pytest.approx(sqrt(2 * log(1e9) / (10**10 * 5e-12)), rel=0.1)


@SIDE
def test_bet_from_pilot_is_nearly_the_best_for_the_law(side: Side) -> None:
    rng = np.random.default_rng(61)
    values = rng.random(20_000) ** 8
    law = (np.arange(20_000) + 0.5) ** 8 / 20_000.0**8
    theta = bet_from_pilot(side, values, 1.0, 10**5, 1e-6)
    weights = np.full(law.size, 1 / law.size)
    bound = expected_bound(side, theta, law, weights, 10**5, 1e-6)
    grid = np.geomspace(theta / 30, min(theta * 30, 0.9), 200)
    best = min(abs(expected_bound(side, float(t), law, weights, 10**5, 1e-6) - 1 / 9) for t in grid)
    assert abs(bound - 1 / 9) <= 1.02 * best


def test_an_empty_pilot_bets_with_care() -> None:
    for side in Side:
        theta = bet_from_pilot(side, np.zeros(100), 2.0, 1000, 1e-6)
        assert 0.0 < theta < np.inf
    assert bet_from_pilot(Side.UPPER, np.zeros(100), 2.0, 10**7, 1e-6) < bet_from_pilot(
        Side.UPPER, np.zeros(10**5), 2.0, 10**7, 1e-6
    )


def test_what_is_not_a_number_is_the_worst_in_a_pilot() -> None:
    values = np.r_[np.full(50, np.nan), np.full(50, 0.1)]
    assert bet_from_pilot(Side.UPPER, values, 1.0, 10**4, 0.01) == bet_from_pilot(
        Side.UPPER, np.nan_to_num(values, nan=1.0), 1.0, 10**4, 0.01
    )
    assert bet_from_pilot(Side.LOWER, values, 1.0, 10**4, 0.01) == bet_from_pilot(
        Side.LOWER, np.nan_to_num(values, nan=0.0), 1.0, 10**4, 0.01
    )


@SIDE
@pytest.mark.parametrize(("relative", "ratio"), [(0.5, 3.0), (5.0, 50.0), (20.0, 1e4), (1e4, 1.0001e4)])
@pytest.mark.parametrize("width", [0.02, 0.3])
def test_the_plan_is_enough_and_not_far_too_much(side: Side, relative: float, ratio: float, width: float) -> None:
    samples = samples_needed(relative, ratio, width, 1e-9)
    mean = 1 / ratio
    second = (1 + relative) * mean**2

    def relative_error(count: int) -> float:
        atoms, weights = worst_law(side, mean, second, 1.0)
        theta = _best_fraction(side, atoms, weights, 1.0, count, 1e-9)
        return abs(expected_bound(side, theta, atoms, weights, count, 1e-9) / mean - 1)

    assert relative_error(samples) <= width
    if side is Side.UPPER and relative >= 5.0:  # M does not matter to lower bounds, which take less than planned
        assert relative_error(samples // 4) > width


def test_the_plan_solves_its_equation() -> None:
    def width(count: float) -> float:
        return sqrt(2 * log(1e6) * 6 / count) + log(1e6) * 100 / count

    count = brentq(lambda n: width(n) - 0.05, 1.0, 1e9)
    assert samples_needed(5.0, 100.0, 0.05, 1e-6) == pytest.approx(count, abs=1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: betting_upper(0, -1.0, 0.5, 0.1),
        lambda: betting_upper(10, 1.0, 0.5, 0.1),
        lambda: betting_upper(10, float("nan"), 0.5, 0.1),
        lambda: betting_upper(10, -1.0, 0.0, 0.1),
        lambda: betting_lower(10, -1.0, 0.5, 0.1),
        lambda: betting_lower(10, float("inf"), 0.5, 0.1),
        lambda: betting_lower(10, 1.0, 0.5, 1.0),
        lambda: betting_lower(10, 1.0, 0.5, 0.0),
        lambda: samples_needed(-1.0, 10.0, 0.1, 0.1),
        lambda: samples_needed(1.0, 10.0, 0.0, 0.1),
        lambda: bet_from_pilot(Side.UPPER, [0.1], 1.0, 0, 0.1),
    ],
)
def test_refuses(call: Callable[[], float]) -> None:
    with pytest.raises(InvalidInputError, match="must"):
        call()


def test_a_pilot_of_values_near_the_end_of_the_doubles_has_a_bet() -> None:
    values = np.zeros(16384)
    values[:260] = 6.4e-299
    theta = bet_from_pilot(Side.UPPER, values, 1e-26, 1000, 1e-9)
    assert 0.0 < theta * 1e-26 < 1.0
