"""Windows of Poisson sampling against sums over all outputs, exact sums of laws, and the order of matrices."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law
from hockeystick.laws.operations import power
from hockeystick.laws.profile import law_delta
from hockeystick.strategies.matrix.tree import TreeMatrix
from hockeystick.types import Direction
from hockeystick.windows.chains import LATTICE_ERROR
from hockeystick.windows.chains import window_law as window_of_one
from hockeystick.windows.dominating_windows import dominating_windows
from hockeystick.windows.participation_chains import Points, large_together, longest_window, window_laws

EPSILONS = (0.0, 0.02, 0.1, 0.3, 0.7, 1.5)
FINE, COARSE = Resolution(72, 1e-5), Resolution(20, 1e-5)


Case = tuple[Array, float, float]


def truth(scales: Array, correlation: float, prob: float) -> Array:
    """(remove, add) at EPSILONS for columns with a chain's inner products, by sums over a grid of all outputs."""
    places = np.arange(scales.size)
    products = np.outer(scales, scales) * correlation ** np.abs(np.subtract.outer(places, places))
    columns = np.linalg.cholesky(products).T
    axis = np.linspace(-7.0, 7.0 + scales.sum(), {1: 4001, 2: 501, 3: 161}[scales.size])
    grids = np.meshgrid(*[axis] * scales.size, indexing="ij", sparse=True)
    ratio, masses = np.zeros((1,) * scales.size), np.ones((1,) * scales.size)
    for grid in grids:
        masses = masses * np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi) * (axis[1] - axis[0])
    for taken in product((0.0, 1.0), repeat=scales.size):
        mean = columns @ np.array(taken)
        exponent = sum(m * grid for m, grid in zip(mean, grids, strict=True)) - 0.5 * float(mean @ mean)
        chance = np.prod(np.where(np.array(taken) > 0.0, prob, 1.0 - prob))
        ratio = ratio + chance * np.exp(exponent)
    assert float((ratio * masses).sum()) == pytest.approx(1.0, abs=1e-6)
    remove = [float((np.maximum(ratio - np.exp(eps), 0.0) * masses).sum()) for eps in EPSILONS]
    add = [float((np.maximum(1.0 - np.exp(eps) * ratio, 0.0) * masses).sum()) for eps in EPSILONS]
    return np.array([remove, add])


def window_law(scales: Array, correlation: float, prob: float, resolution: Resolution, deadline: Deadline) -> Law:
    """The law of a whole window."""
    return window_laws(scales, correlation, prob, {scales.size}, resolution, deadline)[scales.size]


def of_law(law: Law) -> Array:
    return np.array([[law_delta(law, eps, direction) for eps in EPSILONS] for direction in Direction])


CASES = [
    (np.array([1.0]), 0.0, 0.2),
    (np.array([2.5]), 0.0, 0.02),
    (np.array([1.0, 1.0]), 0.0, 0.3),
    (np.array([0.4, 0.9]), 0.6, 0.5),
    (np.array([1.5, 0.5]), 0.9, 0.1),
    (np.array([0.8, 0.7, 0.9]), 0.4, 0.25),
    (np.array([0.3, 0.3, 1.5]), 0.7, 0.05),
    (np.array([0.6, 0.5, 0.55]), 0.95, 0.6),
]


@pytest.mark.parametrize("case", CASES)
def test_a_window_is_above_all_outputs_and_close(case: Case) -> None:
    """Each sum over outputs is right to 1e-5 or better; lattice and grids add variance of about a percent."""
    exact = truth(*case)
    computed = of_law(window_law(*case, FINE, Deadline()))
    assert (computed >= exact - 2e-5).all()
    assert (computed <= 1.02 * exact + 2e-3 * exact[:, :1] + 2e-5).all()
    assert (of_law(window_law(*case, COARSE, Deadline())) >= exact - 2e-5).all()


@pytest.mark.parametrize("case", [case for case in CASES if case[0].size > 1])
def test_shorter_windows_on_the_way_are_above_all_outputs_and_close(case: Case) -> None:
    scales, correlation, prob = case
    sizes = range(1, scales.size + 1)
    laws = window_laws(scales, correlation, prob, sizes, FINE, Deadline())
    assert list(laws) == list(sizes)
    for size, law in laws.items():
        exact = truth(scales[:size], correlation, prob)
        assert (of_law(law) >= exact - 2e-5).all()
        assert (of_law(law) <= 1.02 * exact + 3e-3 * exact[:, :1] + 3e-5).all()


@pytest.mark.parametrize("case", CASES)
def test_no_mass_is_lost_and_little_is_added(case: Case) -> None:
    for resolution in (Resolution(20, 1e-2), FINE):
        law = window_law(*case, resolution, Deadline())
        assert -1e-9 <= law.mean() - 1.0 <= 1e-3 * resolution.smallest_delta + 1e-9
        assert -1e-9 <= float(law.mass.sum()) - 1.0 <= 1e-3 * resolution.smallest_delta + 1e-9


@pytest.mark.parametrize("case", CASES[:7])
def test_states_that_are_left_out_are_charged(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tails of some percent no mass is missing, much is added, and the bound is one."""
    monkeypatch.setattr("hockeystick.windows.participation_chains.TAIL_SHARE", 5.0)
    scales, correlation, prob = case
    law = window_law(scales[::-1], correlation, prob, Resolution(40, 1e-2), Deadline())
    assert law.mean() - 1.0 > 1e-2
    assert float(law.mass.sum()) - 1.0 > 1e-2
    assert (of_law(law) >= truth(*case) - 2e-5).all()


@settings(max_examples=10)
@given(st.floats(0.01, 0.3), st.floats(0.2, 1.2), st.floats(0.0, 0.9), st.integers(1, 6))
def test_it_grows_with_chances_lengths_and_correlation(prob: float, scale: float, correlation: float, w: int) -> None:
    """What reveals more is never charged less, but for the lattice and grids, which change with it."""
    scales = np.full(w, scale)
    smaller = of_law(window_law(scales, correlation, prob, COARSE, Deadline()))
    others: list[Case] = [
        (scales, correlation, 1.3 * prob),
        (1.2 * scales, correlation, prob),
        (scales, 0.5 + 0.5 * correlation, prob),
        (np.append(scales, scale), correlation, prob),
    ]
    for other in others:
        assert (smaller <= 1.03 * of_law(window_law(*other, COARSE, Deadline())) + 3e-4).all()


def test_a_window_of_one_step_is_that_of_one_participation() -> None:
    """The two engines meet where no second participation is possible."""
    for scale, prob in ((0.7, 0.1), (2.0, 0.3)):
        ours = of_law(window_law(np.array([scale]), 0.0, prob, FINE, Deadline()))
        other = of_law(window_of_one(np.array([scale]), 0.0, prob, FINE, Deadline()))
        np.testing.assert_allclose(ours, other, rtol=2e-2, atol=1e-6)


def test_without_correlation_windows_are_independent_steps() -> None:
    step = window_law(np.array([0.9]), 0.0, 0.1, FINE, Deadline())
    steps = of_law(power(step, 5, FINE))
    window = of_law(window_law(np.full(5, 0.9), 0.0, 0.1, FINE, Deadline()))
    assert (window >= steps * (1.0 - 1e-2) - 1e-6).all()
    assert (window <= steps * 1.03 + 1e-4).all()


def together(
    grid: list[Fraction], first: list[Fraction], second: list[Fraction]
) -> dict[tuple[Fraction, Fraction], Fraction]:
    """Masses of the pairs of two laws that are increasing functions of one uniform number, in rational arithmetic."""
    ends = sorted({sum(masses[:k], Fraction(0)) for masses in (first, second) for k in range(len(masses) + 1)})

    def at(masses: list[Fraction], place: Fraction) -> Fraction:
        return next(grid[k] for k in range(len(grid)) if place < sum(masses[: k + 1], Fraction(0)))

    joint: dict[tuple[Fraction, Fraction], Fraction] = {}
    for low, high in pairwise(ends):
        pair = (at(first, low), at(second, low))
        joint[pair] = joint.get(pair, Fraction(0)) + high - low
    return joint


@settings(max_examples=60)
@given(st.data())
def test_sums_are_those_of_exact_arithmetic(data: st.DataObject) -> None:
    """Every convex function's mean is at least the exact one, and means are kept; values above the grid too."""
    places = sorted(data.draw(st.sets(st.integers(1, 60), min_size=2, max_size=6)) | {0})
    parts = st.lists(st.integers(0, 8), min_size=len(places), max_size=len(places)).filter(any)
    first, second = data.draw(parts), data.draw(parts)
    scale, ratio, shift = (Fraction(data.draw(st.integers(1, 12)), 8) for _ in range(3))
    grid = [Fraction(place) for place in places]
    exact_first = [Fraction(part, sum(first)) for part in first]
    exact_second = [Fraction(part, sum(second)) for part in second]
    joint = together(grid, exact_first, exact_second)
    scaled = [(a * scale + (b + shift) * ratio, mass) for (a, b), mass in joint.items()]
    split, excess = large_together(
        np.array(places, dtype=float),
        np.array([[float(mass) for mass in exact_first]]),
        np.array([[float(mass) for mass in exact_second]]),
        float(scale),
        np.array([float(ratio)]),
        float(shift),
    )
    mean = float(sum(value * mass for value, mass in scaled))
    assert float(split[0] @ places) + excess[0] == pytest.approx(mean, rel=1e-12)
    assert split.sum() == pytest.approx(1.0, rel=1e-12)
    for level in np.linspace(0.0, 1.5 * float(max(scaled)[0]), 13):
        exact = float(sum(max(value - Fraction(level), Fraction(0)) * mass for value, mass in scaled))
        ours = float(split[0] @ np.maximum(np.array(places) - level, 0.0)) + excess[0]
        assert ours >= exact * (1.0 - 1e-12) - 1e-12


@pytest.mark.parametrize("seed", range(12))
def test_windows_dominate_the_columns(seed: int) -> None:
    """K - G has no negative eigenvalue, computed another way, for banded and full matrices and short last windows.

    Of several shapes the first has the smallest second moment, and each has shorter columns than those before it.
    """
    rng = np.random.default_rng([53, seed])
    n, size = int(rng.integers(1, 30)), int(rng.integers(1, 9))
    matrix = np.tril(rng.uniform(0.0, 1.0, (n, n)), 0)
    if seed % 2:
        matrix = np.triu(matrix, -3)
    matrix += np.eye(n) / 4
    gram = matrix.T @ matrix
    given_gram = csr_matrix(gram) if seed % 3 else gram
    sigma = float(rng.uniform(0.5, 4.0))
    shapes = dominating_windows(given_gram, size, sigma, 0.1, 1e-14, Deadline())
    for dominating in shapes:
        whole = np.zeros((n, n))
        products = dominating.chain.products
        for k, start in enumerate(range(0, n, dominating.size)):
            stop = min(start + dominating.size, n)
            whole[start:stop, start:stop] = dominating.levels[k] * products[: stop - start, : stop - start]
        smallest = float(np.linalg.eigvalsh(whole - gram)[0])
        assert smallest >= 0.0
        assert float(np.sqrt(whole.diagonal().max())) <= dominating.longest * (1.0 + 1e-12)
        relative = np.linalg.eigvals(np.linalg.solve(whole, gram)).real.max()
        assert 0.98 < relative <= 1.0
    for first, second in pairwise(shapes):
        assert second.longest < first.longest
        assert second.second_moment(sigma, 0.1) > first.second_moment(sigma, 0.1) * (1.0 - 1e-3)


def test_the_same_windows_come_out_each_time() -> None:
    """Else a certificate does not verify: who begins the search for an eigenvector at one draws the next at random."""
    matrix = TreeMatrix(32, 24).materialize()
    windows = set[tuple[bytes, ...]]()
    for _ in range(6):
        shapes = dominating_windows(matrix.T @ matrix, 16, 4.0, 0.1, 1e-14, Deadline())
        windows.add(tuple(each.levels.tobytes() + each.chain.products.tobytes() for each in shapes))
    assert len(windows) == 1


def test_longest_windows_and_deadlines() -> None:
    for prob in (1e-6, 0.01, 0.5, 0.99):
        assert (1.0 - prob) ** longest_window(prob) >= 2.4e-3
    deadline = Deadline(1e-9)
    with pytest.raises(BudgetExceededError):
        window_law(np.ones(20), 0.5, 0.1, COARSE, deadline)


@pytest.mark.parametrize("correlation", [0.8, 0.9])
def test_ratios_beyond_the_range_of_doubles_are_refused_before_they_are_no_numbers(correlation: float) -> None:
    """Means would weigh what is infinite with a chance that has underflowed to 0."""
    with np.errstate(all="raise", under="ignore"), pytest.raises(UnsupportedError, match="range of doubles"):
        window_law(np.full(40, 5.9), correlation, 1e-4, Resolution(4, 1e-8), Deadline())


@pytest.mark.parametrize(("correlation", "shift"), [(0.0, 0.0), (0.3, 2.0), (0.44, 0.5), (0.9, 6.0), (0.99, 1.0)])
def test_points_give_every_state_its_chance_from_every_centre(correlation: float, shift: float) -> None:
    """Against the normal density around the centre, wherever doubles hold it: at the ends of both too."""
    variance = (1.0 - correlation) * (1.0 + correlation)
    spacing = 0.1 * np.sqrt(variance)
    states: Array = spacing * np.arange(-85.0 / spacing // 10.0, (85.0 / spacing + 10.0 * shift / spacing) // 10.0)
    centres = np.concatenate([correlation * states, correlation * (states - shift)])
    points = Points.between((float(centres.min()), float(centres.max())), states, variance)
    chances = points.leaving(centres) @ points.entering(states, spacing)
    exponent = 0.5 * (states[None, :] - centres[:, None]) ** 2 / variance
    density = spacing / np.sqrt(2.0 * np.pi * variance) * np.exp(-exponent)
    held = exponent < 600.0
    error = np.abs(chances[held] / density[held] - 1.0)
    assert 1e-9 < np.max(error) <= LATTICE_ERROR + 1e-12
    assert points.places.size < 0.7 * states.size
