"""Sums over moving averages against quadrature, each inequality that they rest on, and the order of covariances."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf, quad
from numba import njit
from numba.core.errors import TypingError

from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.law import Array
from hockeystick.sequences import banded_fits, moving_averages
from hockeystick.sequences import moving_averages_transform as module
from hockeystick.sequences.banded_fits import fits
from hockeystick.sequences.comparable_covariances import semidefinite, sensitivity, shortfall
from hockeystick.sequences.complex_dot import LANES, complex_dot
from hockeystick.sequences.moving_averages import LATTICE_ERROR, MovingAverages, windows_of
from hockeystick.sequences.moving_averages_kernels import place_table
from hockeystick.sequences.moving_averages_steps import stationary
from hockeystick.sequences.moving_averages_transform import averages_profiles, prepared
from hockeystick.sequences.white_noise import Noise, noise_table
from hockeystick.types import Direction, Side
from tests.sequences.sequences_oracle import EPSILONS, covariance_of, truth


def random_averages(rng: np.random.Generator, bins: int) -> MovingAverages:
    """Short and long periods, bins alike and bins that differ."""
    period, depth = int(rng.integers(1, 3)), int(rng.integers(2, 4))
    weights = rng.integers(0, 20, (bins, depth))
    weights[:, 0] *= rng.random(bins) < 0.8
    weights[:, 1:] *= rng.choice([-1, 1, 1], (bins, depth - 1))
    whites = rng.uniform(0.4, 0.9, bins)
    if rng.random() < 0.5:
        weights[:], whites[:] = weights[0], whites[0]
    return MovingAverages(period, weights, rng.uniform(0.006, 0.036), whites)


def profiles(chain: MovingAverages, side: Side, delta: float, epsilon: float) -> Array:
    by_direction = averages_profiles(chain, side, delta, epsilon, True, Deadline()).profiles()
    return np.array([[by_direction[direction](at) for at in EPSILONS] for direction in Direction])


def test_random_averages_against_quadrature() -> None:
    """Both sides, both directions, two and three bins; wide smoothing, as only the side matters."""
    rng = np.random.default_rng(1)
    for number in range(6):
        chain = random_averages(rng, 2 + number % 2)
        exact = truth(chain.products)
        upper, lower = (profiles(chain, side, 1e-4, 0.8) for side in Side)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
        assert (upper >= exact - error).all()
        assert (lower <= exact + error).all()
        assert (upper[0, 2:4] <= exact[0, 2:4] * 1.03 + 4e-4).all()
        assert (lower[0, 2:4] >= exact[0, 2:4] * 0.97 - 8e-4).all()


@pytest.mark.parametrize("share", [1e4, 1e3, 10.0])
def test_windows_that_are_left_out_are_charged(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more is left out than is reasonable: bounds are loose, and on their side."""
    monkeypatch.setattr(module, "LOST_SHARE", share)
    chain = MovingAverages(1, np.array([[40, 30], [50, 20], [40, 0]]), 0.015, np.array([0.5, 0.6, 0.5]))
    given = prepared(chain, 1e-5, Deadline())
    assert given.total < 1.0 - 1e-7
    exact = truth(chain.products)
    assert (profiles(chain, Side.UPPER, 1e-5, 0.8) >= exact * (1.0 - 3e-5)).all()
    assert (profiles(chain, Side.LOWER, 1e-5, 0.8) <= exact * (1.0 + 3e-5)).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_lattice_changes_the_density_by_less_than_it_says(seed: int) -> None:
    """The density of z at random places by a sum over all innovations on the lattice, against the normal density.

    At half of what the tolerance allows for the spacing that is used, a coarser lattice is off by more.
    """
    rng = np.random.default_rng(seed)
    chain = MovingAverages(1, rng.integers(20, 60, (2, 2)), 0.012, rng.uniform(0.15, 0.4, 2))

    def worst(h: float) -> float:
        line = h * np.arange(-int(9.0 / h), int(9.0 / h) + 1)
        x = np.stack([grid.ravel() for grid in np.meshgrid(*[line] * 3, indexing="ij")])
        weight = np.prod(h / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * x**2), axis=0)
        seen = chain.loadings @ x
        errors = []
        for z in np.random.default_rng(0).standard_normal((40, 2)) @ np.linalg.cholesky(chain.products).T:
            by_lattice = weight @ np.exp(-0.5 * (((z[:, None] - seen) / chain.whites[:, None]) ** 2).sum(axis=0))
            by_lattice /= 2.0 * np.pi * chain.whites.prod()
            exact = np.exp(-0.5 * z @ np.linalg.solve(chain.products, z))
            exact /= 2.0 * np.pi * np.sqrt(np.linalg.det(chain.products))
            errors.append(abs(by_lattice / exact - 1.0))
        return max(errors)

    assert worst(chain.spacing) <= LATTICE_ERROR
    if chain.spacing < moving_averages.LARGEST_SPACING:
        assert worst(1.5 * chain.spacing) > LATTICE_ERROR


def test_windows_lead_to_states_that_agree() -> None:
    """State by state: the innovations that both have are the same, and chances are those of normal variables."""
    chain = MovingAverages(1, np.tile([60, 40, 20], (12, 1)), 0.012, np.full(12, 0.5))
    windows = windows_of(chain, 1e-3, Deadline())
    assert windows.counts.sum() > 1000
    for s in range(0, windows.counts.size, 7):
        for j in range(windows.counts[s]):
            later = windows.places[windows.begins[s] + j]
            assert later.tolist() == [windows.newest[s] + j, *windows.places[s][:-1]]
    places = windows.spacing * windows.places
    density = windows.spacing / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * places**2)
    assert windows.chances == pytest.approx(density[:, 0], rel=1e-12)
    assert windows.start == pytest.approx(density.prod(axis=1), rel=1e-12)


def test_windows_are_not_looked_for_beyond_the_deadline() -> None:
    """High variances and weights for every bin: it would take minutes."""
    weights = np.random.default_rng(1).integers(300, 900, (400, 4))
    with pytest.raises(BudgetExceededError):
        windows_of(MovingAverages(1, weights, 0.003, np.full(400, 0.5)), 1e-8, Deadline(0.01))


@pytest.mark.parametrize("deviation", [0.2, 0.7, 2.0])
def test_white_noise_has_its_transform(deviation: float) -> None:
    """Against mpmath's quadrature on a line that is moved as far as it may be, at small and at large places."""
    noise = Noise.of(deviation)
    scales, damping, pace = np.array([1e-4, 0.03, 1.0, 40.0]), 0.7, 3.0
    table = noise_table(scales, noise.nodes, noise.weights, damping, np.array([0.0, pace, 5.0]))
    with mp.workdps(18):
        for f, k in product((0, 4), range(scales.size)):
            z, turn = mp.mpc(damping, -f * pace) * mpf(float(scales[k])), mp.pi / (4 * max(deviation, 0.4))

            def term(e: mpf, z: mp.mpc = z, turn: mpf = turn) -> mp.mpc:
                place = mp.mpc(e, turn)
                return mp.exp(-z * mp.exp(deviation * place - mpf(deviation) ** 2 / 2) - place**2 / 2)

            exact = complex(quad(term, [-10, -3, 3, 10]) / mp.sqrt(2 * mp.pi))
            assert abs(complex(*table[f, :, k]) - exact) <= noise.error + 1e-14


def test_sizes_of_the_transform_of_white_noise_fall() -> None:
    """Thorin's theorem, on the line that is used: what frequencies that are left out are bounded by."""
    for deviation in (0.1, 0.5, 1.5):
        noise = Noise.of(deviation)
        table = noise_table(np.array([0.05, 1.0]), noise.nodes, noise.weights, 0.5, np.array([0.0, 0.4, 200.0]))
        sizes = np.hypot(table[:, 0], table[:, 1])
        assert (np.diff(sizes, axis=0) <= 2.0 * noise.error).all()


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-10])
def test_powers_stand_for_steps_within_their_error(tolerance: float) -> None:
    """Complex operators on 30 states whose sizes keep a stationary law, against all the steps, by the norm."""
    rng = np.random.default_rng(5)
    for length in (2, 17, 300):
        chances = rng.dirichlet(np.ones(30), 30)
        weights = np.linalg.matrix_power(chances, 400)[0]
        phases = np.exp(2.0j * rng.random((30, 30))) * rng.uniform(0.9, 1.0, (30, 30))
        operator = chances * phases

        def step(values: Array, operator: Array = operator) -> Array:
            after = operator @ (values[0] + 1j * values[1])
            return np.vstack([after.real, after.imag])

        start = np.vstack([np.ones(30), np.zeros(30)])
        powered, error = stationary(step, start, weights, length, tolerance)
        exact = np.linalg.matrix_power(operator, length) @ np.ones(30)
        assert error <= tolerance
        assert np.sqrt(weights @ np.abs(powered[0] + 1j * powered[1] - exact) ** 2) <= error + 1e-13


def test_powers_change_no_bound_by_more_than_their_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 bins that are alike: with and without powers."""
    chain = MovingAverages(1, np.tile([60, 40, 20], (60, 1)), 0.012, np.full(60, 0.8))
    by_powers = averages_profiles(chain, Side.UPPER, 1e-4, 0.8, True, Deadline()).profiles()
    monkeypatch.setattr(module, "LEAST_ERROR", 0.0)
    monkeypatch.setattr(module, "ERROR_SHARE", 0.0)
    plain = averages_profiles(chain, Side.UPPER, 1e-4, 0.8, True, Deadline()).profiles()
    for epsilon in (0.4, 0.8):
        assert by_powers[Direction.REMOVE](epsilon) == pytest.approx(plain[Direction.REMOVE](epsilon), rel=5e-3)


def test_rounding_of_powers_is_charged() -> None:
    """Each factor of a table is off by some roundings, which powers between frequencies multiply."""
    chain = MovingAverages(1, np.array([[40, 30], [50, 20], [40, 0]]), 0.015, np.array([0.5, 0.6, 0.5]))
    given = prepared(chain, 1e-4, Deadline())
    transform = module.transform_of(given, 1e-4, 0.2, 3.0, Deadline()).transform
    assert np.min(transform.error) >= chain.bins * 8.0 * module.TOGETHER * 2.0**-52


def test_rounding_of_places_between_nodes_is_charged() -> None:
    """Little white noise: the transform is steep between nodes whose logarithms are off by some roundings."""
    chain = MovingAverages(1, np.array([[40, 30], [50, 20], [40, 0]]), 0.015, np.array([0.02, 0.02, 0.02]))
    given = prepared(chain, 1e-4, Deadline())
    transform = module.transform_of(given, 1e-4, 0.2, 3.0, Deadline()).transform
    farthest = float(np.log(chain.bins * given.nodes[0].scales).max())
    assert np.min(transform.error) >= chain.bins * 2.0**-53 * (2000.0 + 16.0 * farthest / 0.02)


def test_tables_of_many_frequencies_are_not_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on memory changes no transform."""
    weights = np.column_stack([np.arange(30, 36), np.arange(20, 14, -1)])
    given = prepared(MovingAverages(1, weights, 0.02, np.full(6, 0.9)), 1e-3, Deadline())
    (nodes,) = given.nodes
    transforms = []
    for most in (module.TOGETHER, 2):
        monkeypatch.setattr(module, "MOST_HELD", most * 2 * nodes.scales.size)
        transforms.append(module.transform_of(given, 1e-3, 0.2, 3.0, Deadline()).transform)
    assert np.abs(transforms[0].values - transforms[1].values).max() <= 1e-11


@pytest.mark.parametrize("weights", [[60, 40, 20], [7, 5, -3], [0, 4, 9], [1, 0, 0]])
@pytest.mark.parametrize("unit", [0.004, 0.1])
def test_tables_between_nodes_are_within_their_error(weights: list[int], unit: float) -> None:
    """Every entry of a bin's table against the quadrature at its own place: fine units and coarse ones."""
    chain = MovingAverages(1, np.tile(weights, (4, 1)), unit, np.full(4, 0.4))
    given = prepared(chain, 1e-2, Deadline())
    (nodes,), (kind,) = given.nodes, given.kinds
    paces = np.array([0.0, 40.0, 3.0])
    coarse = noise_table(nodes.scales, nodes.noise.nodes, nodes.noise.weights, 0.3, paces)
    exact = noise_table(given.scales[0], nodes.noise.nodes, nodes.noise.weights, 0.3, paces)
    table, factors = np.empty((2, given.scales.shape[1])), np.abs(kind.factors).sum(axis=1).max()
    windows, first = given.windows, given.groups[0].first[0]
    used = np.unique(np.concatenate([first, first + np.maximum(windows.counts - 1, 0)]))
    for f in range(3):
        natural = np.empty((3, given.places))
        place_table(coarse[f], nodes.stride, kind.starts, kind.factors, kind.newest, kind.columns, natural, table)
        error = nodes.error + factors * (nodes.noise.error + 2e-14) + nodes.noise.error
        assert np.hypot(*(table - exact[f])[:, used]).max() <= error


@pytest.mark.parametrize("deviation", [0.2, 0.7])
def test_functions_between_nodes_are_within_their_error(deviation: float) -> None:
    """Waves, blurred by the white noise: bounded functions of all frequencies, with nodes four times as far apart."""
    nodes = module.Nodes.of(deviation, 0.04 * deviation, -1.0, 1.0, 1)
    far = 4.0 * nodes.distance
    wide = module.Nodes(nodes.noise, deviation, nodes.wide, nodes.stride, -100, far, nodes.scales)
    _, factors = wide.between(0.3)
    at = 0.3 / nodes.wide + np.arange(nodes.wide) / nodes.wide
    places = np.floor(at)[:, None] + np.arange(module.NODES) - (module.NODES // 2 - 1)
    worst = 0.0
    for pace in np.linspace(0.0, 8.0, 60) / deviation:
        size = np.exp(-0.5 * (pace * deviation) ** 2)
        between = size * (factors * np.exp(1j * pace * far * places)).sum(axis=1)
        worst = max(worst, float(np.abs(between - size * np.exp(1j * pace * far * at)).max()))
    assert 0.01 * wide.error < worst <= wide.error


def test_frequencies_that_are_left_out_are_within_their_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more is left out than is reasonable: each value is still as near as its error says."""
    chain = MovingAverages(1, np.tile([40, 30], (20, 1)), 0.015, np.full(20, 0.5))
    given = prepared(chain, 1e-4, Deadline())
    transforms = []
    for share in (1e7, 0.0):
        monkeypatch.setattr(module, "CUT_SHARE", share)
        transforms.append(module.transform_of(given, 1e-4, 0.1, 3.0, Deadline()).transform)
    out = transforms[0].values == 0.0
    assert out.sum() > out.size // 2
    assert np.abs(transforms[1].values[out]).max() > 1e-6
    assert (np.abs(transforms[0].values - transforms[1].values) <= transforms[0].error + transforms[1].error).all()


def test_inner_products_of_rows() -> None:
    """Rows shorter and longer than a vector, at any place, against numpy; what is beyond a row does not count."""

    def called(x: Array, y: Array, u: Array, v: Array, at: int, place: int, count: int) -> tuple[float, float]:
        return complex_dot(x, y, u, v, at, place, count)

    dot: Callable[..., tuple[float, float]] = njit(called)
    rng = np.random.default_rng(4)
    x, y, u, v = rng.standard_normal((4, 60))
    for count in range(45):
        at, place = rng.integers(0, 60 - LANES - count, 2)
        exact = (x + 1j * y)[at : at + count] @ (u + 1j * v)[place : place + count]
        assert complex(*dot(x, y, u, v, at, place, count)) == pytest.approx(exact, abs=1e-13)
    for other in (np.ones(60)[::2], np.ones(60, np.float32)):  # would be read as if it were contiguous, of float64
        with pytest.raises(TypingError, match="contiguous"):
            dot(other, y, u, v, 0, 0, 9)


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("columns", [[1.0, 0.5, 0.375], [1.0, 0.9], [1.0, 0.5, 0.375, 0.3125]])
def test_fits_are_comparable(columns: list[float], side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference is two semidefinite matrices and one without negative entries, by eigenvalues."""
    looked: dict[bytes, Array] = {}

    def recorded(products: Array, covariance: Array, error: float, side: Side, shared: Array | float = 0.0) -> Array:
        looked[products.tobytes()] = shared + np.zeros_like(products)
        return shortfall(products, covariance, error, side, shared)

    monkeypatch.setattr(banded_fits, "shortfall", recorded)
    rng = np.random.default_rng(2)
    for spread in (0.0, 0.05):
        factors = 1.0 + spread * rng.random(40)
        covariance = np.multiply.outer(factors, factors) * covariance_of(np.array(columns), 40)[::-1, ::-1]
        weights = sensitivity(covariance, 1e-4, Deadline()).weights
        chains = list(fits(covariance, 1e-12, side, weights, Deadline()))
        assert chains
        for chain in chains:
            shared = looked[chain.products.tobytes()]
            assert np.linalg.eigvalsh(shared).min() >= -1e-12
            products = chain.products
            difference = (products - covariance if side is Side.UPPER else covariance - products) - shared
            beside = np.where(np.eye(40, dtype=bool), 0.0, np.maximum(difference, 0.0))
            assert np.linalg.eigvalsh(difference - beside).min() >= -1e-12
            assert chain.whites.min() > 0.0
        if spread == 0.0 and columns[1] == 0.5:  # whole weights, and where bins stop to have weights of their own
            assert min(np.abs(chain.products - covariance).max() for chain in chains) < 0.02


def test_what_bins_share_is_semidefinite() -> None:
    """Where little white noise is there, a linear programme makes more: its semidefinite part is checked as such."""
    fit = banded_fits.fitted(np.array([1.81, 0.9]), 0.2, np.array([1.0, 0.5]), Side.UPPER)
    assert fit is not None
    white, left, shared = fit
    entries = left + np.array([white, 0.0]) - np.array([1.81, 0.9])
    assert (entries[1:] >= shared[1:] - 1e-9).all()
    assert semidefinite(shared)[0] == shared[0]
