"""Sums over hidden chains against quadrature, the lattice against sums by hand, and the order of covariances."""

import numpy as np
import pytest
from scipy.special import ndtr

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_delta
from hockeystick.sequences import comparable_chain as module
from hockeystick.sequences import hidden_chain
from hockeystick.sequences.comparable_chain import (
    comparable_chain,
    opened_ring,
    scaled,
    semidefinite,
    sensitivity,
    shortfall,
)
from hockeystick.sequences.hidden_chain import LATTICE_ERROR, HiddenChain, hidden_chain_law, shifts_of, work_of
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 0.1, 0.4, 1.0, 1.8)
POINTS = np.linspace(-9.0, 11.0, 500)


def truth(covariance: Array, points: Array = POINTS) -> Array:
    """Both profiles of a few bins, shape (2, epsilons): one bin in closed form, the others by quadrature."""
    others = len(covariance) - 1
    factor = np.linalg.cholesky(covariance)
    weights = np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi) * (points[1] - points[0])
    grids = np.meshgrid(*[points] * others, indexing="ij")
    mass = np.prod(np.meshgrid(*[weights] * others, indexing="ij"), axis=0).ravel()
    e = np.stack([grid.ravel() for grid in grids])
    z = factor[:others, :others] @ e
    known = np.exp(z - 0.5 * covariance.diagonal()[:others, None]).sum(axis=0) / (others + 1)
    own = factor[others, others]
    mean = np.exp(factor[others, :others] @ e - 0.5 * (covariance[others, others] - own**2)) / (others + 1)
    found = []
    for epsilon in EPSILONS:
        rest = np.exp(epsilon) - known
        safe = np.maximum(rest, 1e-300)
        d = np.log(mean / safe) / own
        call = np.where(rest > 0.0, mean * ndtr(d + 0.5 * own) - safe * ndtr(d - 0.5 * own), mean - rest)
        rest = np.exp(-epsilon) - known
        safe = np.maximum(rest, 1e-300)
        d = np.log(mean / safe) / own
        put = np.where(rest > 0.0, safe * ndtr(0.5 * own - d) - mean * ndtr(-0.5 * own - d), 0.0)
        found.append([float(mass @ call), float(mass @ put) * np.exp(epsilon)])
    return np.array(found).T


def of_law(law: Law) -> Array:
    return np.array([[law_delta(law, epsilon, direction) for epsilon in EPSILONS] for direction in Direction])


def random_chain(rng: np.random.Generator) -> HiddenChain:
    """Two or three bins on a line of order one or two, or on a ring, with columns from short to long."""
    kind, bins = rng.integers(3), int(rng.integers(2, 4))
    now, white = rng.uniform(0.1, 1.2), rng.uniform(0.2, 0.8)
    gains = rng.uniform(0.5, 1.3, bins)
    if kind == 0:
        pole = rng.uniform(0.1, 0.6) * np.exp(1j * rng.uniform(0.2, 1.5))
        before = rng.uniform(-0.2, 0.5)
        return HiddenChain(2.0 * pole.real, -(abs(pole) ** 2), now, before, white + 0.2, gains)
    return HiddenChain(rng.uniform(0.0, 0.7), 0.0, now, 0.0, white, gains, ring=kind == 1)


@pytest.mark.parametrize(
    "part", [0, 2, 8, *(pytest.param(one, marks=pytest.mark.weekly) for one in (1, 3, 4, 5, 6, 7, 9))]
)
def test_random_chains_against_quadrature(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """303 chains, few of them in the first part and most of them weekly, both sides and both directions at five
    epsilons; grids are coarse, as only their side matters, but not so coarse that the bounds would be far."""
    monkeypatch.setattr(hidden_chain, "LEAST_CORE", 60)
    monkeypatch.setattr(hidden_chain, "TAIL", 0.05)
    rng = np.random.default_rng(part)
    for _ in range(33 if part else 6):
        chain = random_chain(rng)
        exact = truth(chain.products)
        upper, lower = (of_law(hidden_chain_law(chain, side, 1e-4, 80.0, Deadline())) for side in Side)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule, against three times as many points
        assert (upper >= exact - error).all()
        assert (lower <= exact + error).all()
        assert (upper[:, 0] <= exact[:, 0] * 1.05 + 1e-3).all()
        assert (lower[:, 0] >= exact[:, 0] * 0.95 - 1e-3).all()


def test_finer_grids_close_the_gap() -> None:
    """At the resolution that is used the two sides are within a percent of each other."""
    chain = HiddenChain(0.6, -0.2, 0.7, 0.2, 0.5, np.array([1.0, 1.1, 0.9]))
    upper, lower = (of_law(hidden_chain_law(chain, side, 1e-6, 100.0, Deadline())) for side in Side)
    exact = truth(chain.products)
    assert (lower <= exact * (1.0 + 3e-5)).all()
    assert (upper >= exact * (1.0 - 3e-5)).all()
    assert (upper <= lower * 1.015 + 1e-6).all()


@pytest.mark.parametrize("chain", [random_chain(np.random.default_rng(seed)) for seed in (1, 2, 3, 5, 8, 13)])
def test_the_lattice_changes_the_density_by_less_than_it_says(chain: HiddenChain) -> None:
    """The density of z at random places by a sum over the lattice of all states, against the normal density."""
    chain = HiddenChain(chain.first, chain.second, chain.now, chain.before, chain.white, np.ones(2), chain.ring)
    h, before = chain.spacing, chain.second != 0.0
    line = h * np.arange(-int(9.0 / h), int(9.0 / h) + 1)
    n = 3 if before else 2
    x = np.stack([grid.ravel() for grid in np.meshgrid(*[line] * n, indexing="ij")])
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    if chain.ring:
        a = chain.first
        covariance = (a**lags + a ** (2 - lags)) / (1.0 - a**2)
    else:
        covariance = chain.state_products(3)[lags]
    weight = h**n * np.exp(-0.5 * (x * np.linalg.solve(covariance, x)).sum(axis=0))
    weight /= np.sqrt((2.0 * np.pi) ** n * np.linalg.det(covariance))
    seen = chain.now * x[n - 2 :] + (chain.before * x[n - 3 : n - 1] if before else 0.0)
    rng = np.random.default_rng(0)
    for z in rng.standard_normal((6, 2)) @ np.linalg.cholesky(chain.products).T * 1.5:
        by_lattice = weight @ np.exp(-0.5 * (((z[:, None] - seen) / chain.white) ** 2).sum(axis=0))
        by_lattice /= 2.0 * np.pi * chain.white**2
        exact = np.exp(-0.5 * z @ np.linalg.solve(chain.products, z))
        exact /= 2.0 * np.pi * np.sqrt(np.linalg.det(chain.products))
        assert by_lattice == pytest.approx(exact, rel=LATTICE_ERROR)


@pytest.mark.parametrize("side", list(Side))
def test_what_a_bin_adds_keeps_its_mean_beyond_the_range_of_integers(side: Side) -> None:
    """Likelihood ratios have mean one; what lower laws leave out at the end of the white noise is far below delta."""
    scales, step = np.array([0.5, 1e6, 1e16, 3e19, 1e25]), 1.0 / 400
    shifts = shifts_of(scales, 2.0, step, side, 1e-9)
    places = shifts.counts * step if side is Side.UPPER else shifts.means
    found = np.add.reduceat(shifts.chances * places, shifts.starts[:-1]) + shifts.rest
    assert found == pytest.approx(scales, rel=1e-9)
    assert (shifts.counts >= 0).all()
    own = np.repeat(scales, np.diff(shifts.starts))
    assert (shifts.counts[(own > 1e24) & (shifts.means > 1e24)] > 1e17).all()


def covariance_of(columns: Array, bins: int) -> Array:
    """Of bins whose columns are cut off at the end."""
    c = np.zeros((bins, bins))
    for place in range(bins):
        few = min(columns.size, bins - place)
        c[place : place + few, place] = columns[:few]
    return c.T @ c


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("columns", [[1.0, 0.5, 0.375], [0.9, 0.3], [1.2, 0.4, 0.2, 0.1]])
def test_chains_are_comparable(columns: list[float], side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference is two semidefinite matrices and one without negative entries, by eigenvalues."""
    looked: dict[bytes, Array] = {}

    def recorded(products: Array, covariance: Array, error: float, side: Side, shared: Array | float = 0.0) -> Array:
        looked[products.tobytes()] = shared + np.zeros_like(products)
        return shortfall(products, covariance, error, side, shared)

    monkeypatch.setattr(module, "shortfall", recorded)
    covariance = covariance_of(np.array(columns), 40)
    found = sensitivity(covariance, 1e-4, Deadline())
    chain = comparable_chain(
        covariance, 1e-12, side, found.weights, lambda one: work_of(one, 1e-4, 50.0) < 5.0, np.inf, Deadline()
    )
    assert chain is not None
    shared = looked[chain.products.tobytes()]
    assert np.linalg.eigvalsh(shared).min() >= -1e-13
    difference = (chain.products - covariance if side is Side.UPPER else covariance - chain.products) - shared
    beside = np.where(np.eye(40, dtype=bool), 0.0, np.maximum(difference, 0.0))
    assert np.linalg.eigvalsh(difference - beside).min() >= -1e-13
    assert chain.white > 0.0
    assert chain.products.diagonal() == pytest.approx(
        chain.gains**2 * (chain.seen_variance + chain.whites**2), rel=1e-12
    )


@pytest.mark.parametrize("ring", [False, True])
def test_a_shared_part_is_semidefinite(ring: bool) -> None:
    """Random entries, most of them with a negative symbol before; no more is added to the first than is needed."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        shared = rng.standard_normal(int(rng.integers(1, 12)))
        found = semidefinite(shared)
        assert (found[1:] == shared[1:]).all()
        matrix = scaled(found, rng.uniform(0.2, 1.5, 60), ring)
        assert np.linalg.eigvalsh(matrix).min() >= -1e-13
        symbol = found[0] + 2.0 * np.cos(np.outer(np.linspace(0.0, np.pi, 5000), np.arange(1, found.size))) @ found[1:]
        assert symbol.min() >= 0.0
        assert found[0] == shared[0] or symbol.min() <= 0.01


def test_bins_follow_overlaps_that_differ() -> None:
    """Overlaps that drift from bin to bin: gains follow them, white noise fills the diagonal, and all is proved."""
    levels = np.linspace(0.6, 0.9, 16)
    covariance = np.eye(16) + np.diag(0.5 * levels[1:], 1) + np.diag(0.5 * levels[1:], -1)
    weights = sensitivity(covariance, 1e-4, Deadline()).weights
    chain = comparable_chain(
        covariance, 1e-12, Side.UPPER, weights, lambda one: work_of(one, 1e-4, 50.0) < 0.5, np.inf, Deadline()
    )
    assert chain is not None
    assert chain.gains[2] < chain.gains[-2]
    assert chain.whites[2] > chain.whites[-2]
    assert np.diagonal(chain.products).max() < 1.1


def test_an_opened_ring_is_above_every_rotation() -> None:
    """Bins in a row, wherever the row begins, have covariances that are nowhere larger; its ends do not touch."""
    rng = np.random.default_rng(3)
    for bins, bands in ((24, 3), (37, 4), (16, 2)):
        column = np.concatenate([[1.0], 0.5 * rng.random(bands - 1)])
        circulant = sum(weight * np.roll(np.eye(bins), lag, axis=0) for lag, weight in enumerate(column))
        covariance = (circulant * (1.0 + 0.1 * rng.random(bins))).T @ (circulant * (1.0 + 0.1 * rng.random(bins)))
        covariance = 0.5 * (covariance + covariance.T)
        opened = opened_ring(covariance)
        assert opened is not None
        left = len(opened)
        assert left == bins - (bands - 1)
        assert opened[0, -1] == 0.0
        for first in range(bins):
            places = np.arange(first, first + left) % bins
            assert (opened >= covariance[np.ix_(places, places)]).all()
        assert (
            opened == np.max([np.roll(covariance, (s, s), (0, 1)) for s in range(bins)], axis=0)[:left, :left]
        ).all()
    assert opened_ring(np.eye(12)) is None
    assert opened_ring(np.ones((12, 12))) is None


def test_a_few_bins_that_overlap_more_get_larger_variances() -> None:
    """The last columns of a single epoch: the chain follows the others, and still reveals more."""
    covariance = covariance_of(np.array([1.0, 0.5, 0.375]), 40)
    covariance[-2:, :] *= 1.1
    covariance[:, -2:] *= 1.1
    weights = sensitivity(covariance, 1e-4, Deadline()).weights
    chain = comparable_chain(
        covariance, 1e-12, Side.UPPER, weights, lambda one: work_of(one, 1e-4, 50.0) < 0.5, np.inf, Deadline()
    )
    assert chain is not None
    assert chain.products.diagonal()[:30].max() < 0.95 * chain.products.diagonal()[-3:].max()


def test_what_is_not_comparable_has_a_shortfall() -> None:
    covariance = covariance_of(np.array([1.0, 0.5]), 6)
    for side, factor in ((Side.UPPER, 0.999), (Side.LOWER, 1.001)):
        assert shortfall(covariance * factor, covariance, 0.0, side).max() > 0.0
        assert shortfall(covariance * (2.0 - factor), covariance, 1e-9, side).max() <= 0.0
        assert shortfall(covariance * (1.0 + (1.0 - factor) / 2.0), covariance, 1e-3, side).max() > 0.0
    raised = 0.9999 * covariance
    raised[0, 5] = raised[5, 0] = 1e-3  # where the columns do not overlap
    assert shortfall(raised, covariance, 0.0, Side.LOWER).max() > 0.0


def test_hopeless_changes_do_not_overflow() -> None:
    typical, weights = np.array([1.0, 0.9, 0.0, 0.0]), np.array([1.0, 0.5, 0.2, 0.0])
    fitted = module._fitted(typical, 5000.0, weights, (0.9 + 0j,), Side.UPPER, False, True)
    assert fitted is not None
    assert np.isfinite(fitted[0])
