"""Rings of independent sequences against products of all steps as matrices, and what their traces rest on."""

from functools import reduce

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import closed_sequences as module
from hockeystick.sequences import hidden_chain, repeated_steps
from hockeystick.sequences.closed_sequences import ClosedStates, Spectrum, closed_states
from hockeystick.sequences.comparable_chain import comparable_chain, opened_ring, sensitivity
from hockeystick.sequences.hidden_chain import LATTICE_ERROR, HiddenChain, hidden_chain_law
from hockeystick.sequences.hidden_chain_transform import chain_profiles
from hockeystick.sequences.independent_sequences import IndependentSequences
from hockeystick.types import Direction, Side
from tests.sequences.test_hidden_chain import EPSILONS, of_law

COMPLEX = np.complex128


def ring(bins: int = 24, white: float = 0.8) -> IndependentSequences:
    """Two sequences; the slow one forgets nearly all of itself around the ring."""
    return IndependentSequences(np.array([0.1, 0.4]), np.array([0.5, 0.6]), white, np.ones(bins), ring=True)


def factors(states: ClosedStates, frequency: float) -> np.ndarray:
    """As of bins without white noise, at three frequencies."""
    scale = np.exp(states.seen - 0.3) / states.bins
    return np.exp(-np.multiply.outer(0.5 - 1j * frequency * np.array([0.5, 1.0, 2.0]), scale))


def traced(states: ClosedStates, factor: np.ndarray) -> tuple[np.ndarray, Array]:
    steps = np.concatenate([factor.real, factor.imag]).T[None]
    return states.transforms(steps, np.zeros(states.bins, np.int64), lambda: None)


def matrix(states: ClosedStates) -> Array:
    """The mean over the next states in the basis in which the weighted norm is the plain one."""
    root = np.sqrt(states.start)
    found: Array = reduce(np.kron, states.kernels) * root[:, None] / root
    return found


def test_products_are_those_of_the_density_on_the_ring() -> None:
    """The inverse of the quadratic form, sequence by sequence."""
    chain = ring(7)
    expected = np.diag(chain.whites**2)
    for pole, amount in zip(chain.poles, chain.amounts, strict=True):
        step = np.eye(7) - pole * np.roll(np.eye(7), 1, axis=0)
        expected += amount**2 * np.linalg.inv(step.T @ step / (1.0 - pole**2))
    assert chain.products == pytest.approx(expected, rel=1e-12)
    assert chain.seen_variance == pytest.approx(expected[0, 0] - chain.white**2)


def test_spacings_serve_rings() -> None:
    """The quadratic form of all bins and sequences on a ring, in units of the lattices."""
    chain = IndependentSequences(np.array([0.3, 0.9]), np.array([0.7, 1.1]), 0.5, np.ones(40), ring=True)
    form = np.kron(np.outer(chain.amounts, chain.amounts) / chain.white**2, np.eye(40))
    for s, pole in enumerate(chain.poles):
        step = np.eye(40) - pole * np.roll(np.eye(40), 1, axis=0)
        form[s * 40 : s * 40 + 40, s * 40 : s * 40 + 40] += step.T @ step / (1.0 - pole**2)
    scale = np.repeat(chain.spacings, 40)
    share = np.exp(-2.0 * np.pi**2 / float(np.linalg.eigvalsh(scale[:, None] * form * scale)[-1]))
    assert (1.0 + 2.0 * share + 3.0 * share**4) ** 80 - 1.0 <= LATTICE_ERROR


@pytest.mark.parametrize("bins", [7, 24])
@pytest.mark.parametrize("frequency", [0.0, 3.0, 30.0, 300.0])
def test_traces_are_those_of_all_steps(bins: int, frequency: float) -> None:
    """A few hundred states: the product around the ring as a matrix."""
    states = closed_states(ring(bins), 1e-3)
    factor = factors(states, frequency)
    found, error = traced(states, factor)
    kernel = matrix(states)
    for row, value, bound in zip(factor, found, error, strict=True):
        expected = states.share * np.trace(np.linalg.matrix_power(row[:, None] * kernel, bins))
        assert abs(value - expected) <= bound
        assert bins == 7 or frequency > 3.0 or bound <= 1e-7


def test_errors_do_not_rest_on_a_first_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where once around the ring says nothing, less than that does, by the singular values of a step."""
    states = closed_states(ring(30), 1e-3)
    factor = factors(states, 300.0)
    kernel = matrix(states)
    expected = [states.share * np.trace(np.linalg.matrix_power(row[:, None] * kernel, 30)) for row in factor]
    bounds = []
    for enough in (0.0, np.inf):
        monkeypatch.setattr(module, "ENOUGH", enough)
        found, error = traced(states, factor)
        assert (np.abs(found - expected) <= error).all()
        bounds.append(error)
    assert (bounds[0] <= bounds[1]).all()


def test_bases_that_are_too_small_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three vectors instead of some 24."""
    monkeypatch.setattr(repeated_steps, "FEWEST", 3)
    monkeypatch.setattr(repeated_steps, "MOST", 3)
    states = closed_states(ring(), 1e-3)
    factor = factors(states, 10.0)
    found, error = traced(states, factor)
    kernel = matrix(states)
    for row, value, bound in zip(factor, found, error, strict=True):
        expected = states.share * np.trace(np.linalg.matrix_power(row[:, None] * kernel, 24))
        assert abs(value - expected) <= bound


def test_errors_of_vectors_reach_the_quotient() -> None:
    """Each of the two vectors, moved by a thousandth in the direction that matters most."""
    states = closed_states(ring(), 1e-3)
    factor = factors(states, 3.0)
    kernel = matrix(states)
    traces = [np.trace(np.linalg.matrix_power(row[:, None] * kernel, 24)) for row in factor]
    once = seen = factor
    for n in range(24):
        once = factor * (once @ reduce(np.kron, states.kernels).T)
        if n == 22:
            seen = once @ reduce(np.kron, states.kernels).T
    exact, moved = np.zeros(3), np.full(3, 1e-3)
    left_out = Spectrum.of(states).exterior(24, np.ones(3))
    for turn in np.exp(0.25j * np.pi * np.arange(8)):
        for first, second in ((moved, exact), (exact, moved)):
            parts = (once + turn * first[:, None], first), (seen + turn * second[:, None], second)
            found, error = states._quotient(factor, parts[0], parts[1], left_out)
            assert (np.abs(found - traces) <= error).all()


@pytest.mark.parametrize("frequency", [3.0, 300.0])
def test_norms_are_bounds(frequency: float) -> None:
    """Singular values of a step, and of its second exterior power to the power k, as matrices."""
    states = closed_states(ring(), 1e-3)
    spectrum = Spectrum.of(states)
    kernel = matrix(states)
    assert spectrum.values == pytest.approx(np.linalg.eigvalsh(kernel)[::-1], abs=1e-12)
    values, functions = np.linalg.eigh(0.5 * (kernel + kernel.T))
    half = functions * np.sqrt(np.maximum(values, 0.0)) @ functions.T
    factor = factors(states, frequency)
    for row, first, second in zip(factor, *spectrum.singular_values(factor), strict=True):
        single = np.linalg.svd(half * row @ half, compute_uv=False)
        largest = float(first * second)
        assert single[0] <= first <= 1.5 * single[0]
        assert single[1] <= second <= 1.5 * single[1]
        for count in (2, 3, 8, 24):
            size = abs(np.trace(np.linalg.matrix_power(row[:, None] * kernel, count)))
            assert size <= float(spectrum.trace(count, np.array([first]))[0])
            several = np.linalg.svd(np.linalg.matrix_power(row[:, None] * kernel, count), compute_uv=False)
            exact = 0.5 * (several.sum() ** 2 - (several**2).sum())
            for product in (1.0, largest):
                assert exact <= float(np.ravel(spectrum.exterior(count, np.array([product])))[0]) + 1e-12


def test_mass_and_mean_are_those_of_the_ring() -> None:
    """Next to nothing is left out, and the mean of each bin is 1."""
    states = closed_states(ring(), 1e-9)
    chain = ring()
    total, mean = states.moments(1.0, 1.0, np.exp(states.seen - 0.5 * chain.seen_variance) / chain.bins)
    assert total == pytest.approx(1.0, abs=1e-8)
    assert mean == pytest.approx(1.0, abs=1e-8)
    small = closed_states(ring(7), 1e-9)
    assert small.share * np.trace(np.linalg.matrix_power(matrix(small), 7)) == pytest.approx(1.0, abs=1e-8)
    assert small.moments(1.0, 1.0, small.seen)[0] == pytest.approx(1.0, abs=1e-8)
    assert states.moments(0.5, 0.5, np.ones(states.seen.size))[0] == pytest.approx(0.5**24 * total)


def test_one_sequence_is_a_closed_chain_of_order_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the law bin by bin that keeps the first state beside the last; both sides of both."""
    monkeypatch.setattr(hidden_chain, "LEAST_CORE", 60)
    monkeypatch.setattr(hidden_chain, "TAIL", 0.05)
    single = HiddenChain(0.15, 0.0, 0.6, 0.0, 0.9, np.ones(12), ring=True)
    same = IndependentSequences(np.array([0.15]), np.array([0.6]), 0.9, np.ones(12), ring=True)
    assert same.products == pytest.approx(single.products, rel=1e-12)
    at = EPSILONS[2]
    found = []
    for side in Side:
        profiles = chain_profiles(same, side, 1e-4, at, True, Deadline()).profiles()
        law = of_law(hidden_chain_law(single, side, 1e-4, 80.0, Deadline()))[:, 2]
        found.append(np.array([[profiles[direction](at) for direction in Direction], law]))
    upper, lower = found
    assert (lower.max(axis=0) <= upper.min(axis=0)).all()
    assert (upper.max(axis=0) <= 1.1 * lower.min(axis=0) + 1e-4).all()


def test_bins_have_to_be_alike() -> None:
    states = closed_states(ring(), 1e-3)
    with pytest.raises(ValueError, match="must all be alike"):
        states.transforms(np.ones((2, states.seen.size, 6)), np.array([0, 1] * 12), lambda: None)


def test_overlaps_on_a_ring_have_a_closed_chain() -> None:
    """Twelve bands on 150 bins: too many to open the ring without loss; every entry is proved, wrapped ones too."""
    band = np.zeros(150)
    band[:12] = np.cumprod(np.concatenate([[1.0], (np.arange(1, 12) - 0.5) / np.arange(1, 12)]))
    overlaps = np.array([float(band @ np.roll(band, lag)) for lag in range(150)])
    covariance = 0.8 * overlaps[np.abs(np.subtract.outer(np.arange(150), np.arange(150)))]
    closed = opened_ring(covariance, closed=True)
    assert closed is not None
    weights = sensitivity(covariance, 1e-5, Deadline()).weights
    found = comparable_chain(closed, 1e-12, Side.UPPER, weights, lambda _: True, np.inf, Deadline(), True)
    assert isinstance(found, IndependentSequences)
    assert found.ring
    assert len(np.unique(found.gains)) == len(np.unique(found.whites)) == 1
    assert (found.poles**150 <= 1e-9).all()
    # of all convex functions the square is the one that needs no sampling
    more, exact = (float(np.exp(one).mean()) for one in (found.products, covariance))
    assert exact <= more <= 1.1 * exact
