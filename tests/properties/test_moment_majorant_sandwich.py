"""Moment majorants against the true profile of small mechanisms, and against the exact law where C is the identity."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import comb, exp, inf, log, sqrt

import numpy as np
import pytest
from moment_majorant_oracle import Truth, means_of, truth
from scipy.stats import norm

from hockeystick.accountants import direct
from hockeystick.accountants.registry import accountant
from hockeystick.bounds import Bound
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.moments.common_factor import without_common
from hockeystick.moments.exact_gram import proved_gram
from hockeystick.moments.floor import floor_of
from hockeystick.moments.majorant.majorant import majorant_profile
from hockeystick.moments.ring import highest_order, ring_cost, ring_moments
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.base import Array
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.types import Direction, Kind, Side

METHODS = ("moment_majorant", "moment_majorant_cells")
CHUNKS, MECHANISMS = 10, 200
ACCOUNTED = 4
"""Bounds of each accountant and side, for every chunk: they cost some tenths of a second each."""
SMALLEST_TARGET = 1e-10
ALONG_BINS = 20.0
"""The largest |m_i| / sigma when the means span two dimensions."""
ACROSS_BINS = 5.0
"""The same for more dimensions, where the oracle's grid grows faster."""


# Random mechanisms: each family gives the entries of a lower-triangular matrix >= 0 and the number of bins.

Drawn = tuple[Array, int]
Generator = np.random.Generator


def _sizes(rng: Generator) -> tuple[int, int]:
    """Bins and steps."""
    bins = int(rng.choice([2, 3], p=[0.7, 0.3]))
    return bins, bins * int(rng.integers(1, 4))


def dense(rng: Generator) -> Drawn:
    """Every entry random, many of them zero."""
    bins, steps = _sizes(rng)
    below = np.tril(rng.random((steps, steps)) * (rng.random((steps, steps)) < rng.uniform(0.1, 1.0)), -1)
    return below * rng.uniform(0.1, 2.0) + np.diag(rng.uniform(0.2, 1.0, steps)), bins


def square_root(rng: Generator) -> Drawn:
    """Some bands of the square root of the prefix sums."""
    bins, steps = _sizes(rng)
    bands = int(rng.integers(1, steps + 1))
    return sum(comb(2 * i, i) / 4.0**i * np.eye(steps, k=-i) for i in range(bands)), bins


def long_memory(rng: Generator) -> Drawn:
    """Coefficients that hardly decay."""
    bins, steps = _sizes(rng)
    power = rng.choice([0.0, 0.01, 0.3])
    return sum((1.0 + i) ** -power * np.eye(steps, k=-i) for i in range(steps)), bins


def identity(rng: Generator) -> Drawn:
    bins, steps = _sizes(rng)
    return np.eye(steps), bins


def nearly_orthogonal(rng: Generator) -> Drawn:
    bins, steps = _sizes(rng)
    below = np.tril(rng.random((steps, steps)), -1) * 10.0 ** rng.uniform(-9.0, -2.0)
    return np.diag(rng.uniform(0.5, 1.0, steps)) + below, bins


def nearly_equal(rng: Generator) -> Drawn:
    """Means that differ by little: a Gram matrix close to singular."""
    bins, steps = _sizes(rng)
    entries = np.tril(rng.random((steps, steps))) * 10.0 ** rng.uniform(-7.0, -1.0)
    entries[-1] += 1.0
    return entries, bins


def equal(rng: Generator) -> Drawn:
    """Means that are all the same: no secret at all, a single Gaussian."""
    bins, steps = _sizes(rng)
    entries = np.zeros((steps, steps))
    entries[-1] = rng.uniform(0.1, 2.0)
    return entries, bins


def low_rank(rng: Generator) -> Drawn:
    """Many bins whose means lie in a plane."""
    bins = int(rng.integers(4, 11))
    steps = bins * int(rng.integers(1, 3))
    entries = np.zeros((steps, steps))
    entries[-2:] = rng.random((2, steps)) * rng.uniform(0.2, 1.0, (2, 1))
    return np.tril(entries), bins


def one_heavy_bin(rng: Generator) -> Drawn:
    """Norms of very different sizes."""
    bins, steps = _sizes(rng)
    return np.diag(10.0 ** rng.uniform(-2.0, 0.0, steps)) + 0.3 * np.tril(rng.random((steps, steps)), -1), bins


def ring(rng: Generator) -> Drawn:
    """Four bins that overlap with their neighbours on the ring alone: a singular, circulant matrix."""
    entries = np.eye(12) + np.eye(12, k=-1)
    entries[0, 0] = entries[0, 0] if rng.random() < 0.5 else 1.0 + rng.random()
    return entries, 4


def polygon(rng: Generator) -> Drawn:
    """An odd number of means at the corners of a regular polygon around the diagonal of three rows: circulant."""
    bins = int(rng.choice([3, 5, 7]))
    angles = 2.0 * np.pi * np.arange(bins) / bins
    across = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]).T / np.sqrt([2.0, 6.0])
    corners = across @ np.array([np.cos(angles), np.sin(angles)])
    entries = np.zeros((bins, bins))
    entries[:3] = rng.uniform(1.0, 3.0) * sqrt(2.0 / 3.0) + corners
    return entries, bins


FAMILIES: dict[Callable[[Generator], Drawn], float] = {
    dense: 0.18,
    square_root: 0.15,
    long_memory: 0.08,
    identity: 0.05,
    nearly_orthogonal: 0.08,
    nearly_equal: 0.08,
    equal: 0.04,
    low_rank: 0.17,
    one_heavy_bin: 0.1,
    ring: 0.01,
    polygon: 0.06,
}


def random_mechanism(rng: Generator) -> tuple[BinMixture, Array, str]:
    """A pair, its means by hand and the name of its family; |m_i| / sigma from 0.02 up to what the oracle can do."""
    family = list(FAMILIES)[int(rng.choice(len(FAMILIES), p=list(FAMILIES.values())))]
    entries, bins = family(rng)
    means = means_of(entries, bins)
    most = ALONG_BINS if np.linalg.matrix_rank(means, tol=1e-6) <= 2 else ACROSS_BINS
    if bins == 4 and family is ring:
        most = 1.5
    signal = exp(rng.uniform(log(0.02), log(most)))
    sigma = float(np.linalg.norm(means, axis=0).max()) / signal
    return BinMixture(noise_multiplier=sigma, matrix=DenseMatrix(entries), bins=bins), means, family.__name__


def violations(profile: Callable[[float], float], side: Side, value: Array, error: Array, at: Array) -> list[str]:
    """The epsilons at which a bound is on the wrong side of the truth, beyond the oracle's error."""
    texts = []
    for epsilon, true, off in zip(at, value, error, strict=True):
        bound = profile(float(epsilon))
        if not (bound >= true - off if side is Side.UPPER else bound <= true + off):
            texts.append(f"{side} eps={epsilon:.6g}: {bound!r} against {true!r} +- {off:.2g}")
    return texts


def columns(exact: Truth) -> dict[Direction, tuple[Array, Array]]:
    """The truth of each direction and its error."""
    return {Direction.REMOVE: (exact.remove, exact.remove_error), Direction.ADD: (exact.add, exact.add_error)}


def all_violations(bound: Bound, exact: Truth, at: Array) -> list[str]:
    """Of each direction, and of the mechanism's own profile, which is their maximum."""
    texts = []
    for direction, profile in bound.profiles.items():
        texts += [f"{direction} {text}" for text in violations(profile, bound.side, *columns(exact)[direction], at)]
    largest, off = np.maximum(exact.remove, exact.add), np.maximum(exact.remove_error, exact.add_error)
    return texts + [f"both {text}" for text in violations(bound.delta, bound.side, largest, off, at)]


@pytest.mark.parametrize(
    "chunk", [*range(3), *(pytest.param(chunk, marks=pytest.mark.weekly) for chunk in range(3, CHUNKS))]
)
def test_the_truth_lies_between_polynomials(chunk: int) -> None:
    """The path that every bound takes, from Gram matrices on either side to proved polynomials, at one epsilon each."""
    rng = np.random.default_rng(6_000 + chunk)
    crossed: list[str] = []
    bounded = close = 0
    for number in range(MECHANISMS):
        pair, means, family = random_mechanism(rng)
        at = np.exp(rng.uniform(log(0.05), log(5.0), 1))
        exact = truth(means, pair.noise_multiplier, at)
        direction = list(Direction)[int(rng.integers(2))]
        largest = int(rng.choice([2, 4, 6, 8] if pair.bins < 4 else [2, 4]))
        ratios = []
        for side in Side:
            gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)
            degree = highest_order(gram, largest) // 2 * 2
            if degree < 2 or ring_cost(gram, degree) == inf:
                continue
            moments = without_common(ring_moments(gram, degree, deadline=Deadline()), gram)
            variance = float(Fraction(gram.scale) * Fraction(gram.common))
            floor = floor_of(gram) if number % 2 else 0.0
            profile = majorant_profile(moments, variance, direction, side, degrees=[degree], floor=floor)
            value, error = columns(exact)[direction]
            texts = violations(profile, side, value, error, at)
            crossed += [
                f"{number} {family} b={pair.bins} sigma={pair.noise_multiplier!r} {direction} {x}" for x in texts
            ]
            bounded += 1
            ratios.append(profile(float(at[0])) / max(float(value[0]), 1e-12))
        close += int(len(ratios) == 2 and ratios[0] < 1.1 and ratios[1] > 0.9)
    assert not crossed, "\n".join(crossed)
    assert bounded >= 1.5 * MECHANISMS
    assert close >= 0.15 * MECHANISMS  # these bounds are no trivial ones


def test_there_are_two_thousand_mechanisms() -> None:
    assert CHUNKS * MECHANISMS >= 2000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("chunk", [0, *(pytest.param(chunk, marks=pytest.mark.weekly) for chunk in (1, 2))])
def test_the_truth_lies_between_the_bounds_of_accountants(chunk: int, method: str) -> None:
    rng = np.random.default_rng(7_000 + chunk)
    crossed: list[str] = []
    seen: Counter[Side] = Counter()
    while min(seen[side] for side in Side) < ACCOUNTED:
        pair, means, family = random_mechanism(rng)
        at = np.sort(np.exp(rng.uniform(log(0.05), log(5.0), 2)))
        exact = truth(means, pair.noise_multiplier, at)
        target = float(np.clip(exact.remove[0], SMALLEST_TARGET, 0.3))
        settings = Settings(Resolution(68, target), effort=float(rng.choice([0.01, 1.0])))
        for side in Side:
            try:
                bound = accountant(method).bound(pair, side, settings)
            except UnsupportedError:
                continue
            seen[side] += 1
            label = f"{family} b={pair.bins} sigma={pair.noise_multiplier!r} {target:.3g} {settings.effort:g}: "
            crossed += [label + text for text in all_violations(bound, exact, at)]
    assert not crossed, "\n".join(crossed)


# C = I, where the law engine knows the truth.

DELTAS, IDENTITIES = (1e-3, 1e-10), ((5, 4, 3.0), (20, 1, 1.2), (100, 1, 2.0))
"""Every two of method, delta and run together are in the usual tests; all three weekly."""


@pytest.mark.parametrize(
    ("method", "delta", "bins", "epochs", "sigma"),
    [
        pytest.param(method, delta, *run, marks=() if sum(places) % 2 else pytest.mark.weekly)
        for places in product(range(2), range(2), range(3))
        for method, delta, run in [(METHODS[places[0]], DELTAS[places[1]], IDENTITIES[places[2]])]
    ],
)
def test_identity(method: str, delta: float, bins: int, epochs: int, sigma: float) -> None:
    pair = BinMixture(noise_multiplier=sigma, matrix=DenseMatrix(np.eye(bins * epochs)), bins=bins)
    allocation = AveragedSteps(noise_multiplier=sigma / sqrt(epochs), bins=bins)
    settings = Settings(Resolution(68, delta), effort=0.1)
    below, above = (direct.ACCOUNTANT.bound(allocation, side, settings) for side in (Side.LOWER, Side.UPPER))
    at = below.epsilon(delta)
    upper, lower = (accountant(method).bound(pair, side, settings) for side in (Side.UPPER, Side.LOWER))
    for direction in upper.profiles:
        assert upper.profiles[direction](at) >= below.profiles[direction](at)
    for direction in lower.profiles:
        assert lower.profiles[direction](at) <= above.profiles[direction](at)
    if method == METHODS[0]:
        assert upper.epsilon(delta) >= at
        assert lower.epsilon(delta) <= above.epsilon(delta)


# The oracle itself.


def by_explicit_crossing(means: Array, sigma: float, epsilon: float, direction: Direction) -> float:
    """Two bins, given the coordinate along m_1: the other one's crossing has a formula, no root is searched."""
    s11, s12, s22 = (means.T @ means / sigma**2)[[0, 0, 1], [0, 1, 1]]
    along, rest = s12 / sqrt(s11), sqrt(s22 - s12 * s12 / s11)
    adding = direction is Direction.ADD
    level = exp(-epsilon if adding else epsilon)
    z = np.linspace(-10.0, 10.0 + sqrt(s11) + along, 400_001)
    first = np.exp(sqrt(s11) * z - 0.5 * s11)
    left = 2.0 * level - first
    at = (np.log(np.maximum(left, 1e-300)) - along * z + 0.5 * s22) / rest
    shares = np.exp(along * z - 0.5 * s22 + 0.5 * rest**2)
    if adding:
        inner = norm.cdf(at) * (level - 0.5 * first) - 0.5 * shares * norm.cdf(at - rest)
        inner = np.where(left > 0.0, inner, 0.0) / level
    else:
        inner = norm.sf(at) * (0.5 * first - level) + 0.5 * shares * norm.sf(at - rest)
        inner = np.where(left > 0.0, inner, 0.5 * (first + shares) - level)
    return float(np.trapezoid(inner * norm.pdf(z), z))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("seed", range(6))
def test_oracle_against_an_explicit_crossing(seed: int, direction: Direction) -> None:
    rng = np.random.default_rng(seed)
    means, sigma, epsilon = rng.random((4, 2)), float(rng.uniform(0.2, 2.0)), float(rng.uniform(0.05, 3.0))
    exact = truth(means, sigma, np.array([epsilon]))
    value = (exact.remove if direction is Direction.REMOVE else exact.add)[0]
    assert value == pytest.approx(by_explicit_crossing(means, sigma, epsilon, direction), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("rows", "bins", "sigma", "epsilon"), [(4, 2, 1.0, 0.5), (6, 3, 2.0, 0.3), (4, 4, 1.0, 0.2)])
def test_oracle_against_samples(rows: int, bins: int, sigma: float, epsilon: float) -> None:
    """From the densities in the whole space; within five standard errors: fails with probability 4e-6."""
    rng = np.random.default_rng(rows)
    means = rng.random((rows, bins))
    exact = truth(means, sigma, np.array([epsilon]))
    noise = sigma * rng.standard_normal((400_000, rows))
    samples = noise + means.T[rng.integers(0, bins, len(noise))]

    def ratio(y: Array) -> Array:
        """P / Q."""
        ratios: Array = np.exp((y @ means - 0.5 * (means**2).sum(axis=0)) / sigma**2).mean(axis=1)
        return ratios

    gains = {"remove": 1.0 - exp(epsilon) / ratio(samples), "add": 1.0 - exp(epsilon) * ratio(noise)}
    for name, gain in gains.items():
        gain = np.maximum(gain, 0.0)
        assert abs(gain.mean() - getattr(exact, name)[0]) <= 5.0 * gain.std() / sqrt(gain.size)


@pytest.mark.parametrize("signal", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("bins", [2, 3, 7])
def test_oracle_equal_means_are_one_gaussian(bins: int, signal: float) -> None:
    at = np.array([0.0, 0.05, 0.5, 2.0, 5.0])
    exact = truth(np.outer([3.0, 4.0], np.ones(bins)), 5.0 / signal, at)
    expected = norm.cdf(0.5 * signal - at / signal) - np.exp(at) * norm.cdf(-0.5 * signal - at / signal)
    np.testing.assert_allclose(exact.remove, expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(exact.add, expected, rtol=1e-9, atol=1e-15)


def test_oracle_states_small_errors() -> None:
    """To 1e-8 of delta, or 1e-13, for nearly all; and the mechanisms have truths of all sizes."""
    rng = np.random.default_rng(0)
    sharp, values = [], []
    for _ in range(200):
        pair, means, _ = random_mechanism(rng)
        exact = truth(means, pair.noise_multiplier, np.array([0.1, 1.0]))
        sharp += list(exact.remove_error <= 1e-8 * exact.remove + 1e-13)
        sharp += list(exact.add_error <= 1e-8 * exact.add + 1e-13)
        values += list(exact.remove)
    assert np.mean(sharp) > 0.9
    assert {int(-np.log10(value)) for value in values if value > 1e-9} >= {0, 1, 2, 3, 4, 5, 6}


def test_oracle_means_are_sums_of_columns() -> None:
    np.testing.assert_array_equal(means_of(np.arange(16.0).reshape(4, 4), 2)[1], [4.0 + 6.0, 5.0 + 7.0])


@pytest.mark.parametrize("side", list(Side))
def test_a_bound_that_is_wrong_by_a_millionth_is_found(side: Side) -> None:
    means, at = np.array([[1.0, 0.2], [0.0, 0.7]]), np.array([0.0, 0.1, 1.0, 2.0])
    exact = truth(means, 0.8, at)
    factor = 1.0 - 1e-6 if side is Side.UPPER else 1.0 + 1e-6
    profiles = {
        direction: lambda epsilon, values=values: factor * float(values[list(at).index(epsilon)])
        for direction, values in ((Direction.REMOVE, exact.remove), (Direction.ADD, exact.add))
    }
    bound = Bound("planted", side, Kind.DETERMINISTIC, 1.0, "none", profiles)
    assert len(all_violations(bound, exact, at)) == 3 * at.size
