"""Profiles by transforms against quadrature, against laws on grids, and each inequality that they rest on."""

from dataclasses import replace

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.laws.profile import law_delta
from hockeystick.sequences.hidden_chain import HiddenChain, hidden_chain_law
from hockeystick.sequences.hidden_chain_transform import chain_profiles
from hockeystick.sequences.inverse_transform import Found, Transform, TransformProfiles, frequencies
from hockeystick.types import Direction, Side
from tests.sequences.test_hidden_chain import EPSILONS, random_chain, truth


def of_transforms(chain: HiddenChain, side: Side, epsilon: float, alone: bool) -> Array:
    found = chain_profiles(chain, side, 1e-4, epsilon, alone, Deadline()).profiles()
    return np.array([[found[direction](at) for at in EPSILONS] for direction in Direction])


@pytest.mark.parametrize("part", range(3))
def test_random_chains_against_quadrature(part: int) -> None:
    """Lines of order one and two and rings, both sides, both directions; the profile near 0.8, or all of it."""
    rng = np.random.default_rng(100 + part)
    for number in range(4 if part else 1):
        chain = random_chain(rng)
        exact = truth(chain.products)
        upper, lower = (of_transforms(chain, side, 0.8, number % 2 == 0) for side in Side)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
        assert (upper >= exact - error).all()
        assert (lower <= exact + error).all()
        # the remove direction within what smoothing adds, but for thresholds that are not served
        assert (upper[0, :4] <= exact[0, :4] * 1.02 + 2e-4).all()
        assert (lower[0, :4] >= exact[0, :4] * 0.98 - 4e-4).all()


@pytest.mark.parametrize("side", list(Side))
def test_transforms_and_laws_agree_on_more_bins(side: Side) -> None:
    """12 bins with two gains: laws on grids share no step with transforms but the lattice of states."""
    gains = np.full(12, 1.2)
    gains[-4:] = 1.1
    chain = HiddenChain(0.4, 0.0, 0.8, 0.0, 0.7, gains)
    law = hidden_chain_law(chain, side, 1e-5, 100.0, Deadline())
    found = chain_profiles(chain, side, 1e-5, 1.5, False, Deadline()).profiles()
    for epsilon in (0.3, 1.0, 1.5, 1.8):
        by_law = law_delta(law, epsilon, Direction.REMOVE)
        assert found[Direction.REMOVE](epsilon) == pytest.approx(by_law, rel=0.03)


def exact_transform(atoms: Array, masses: Array, smoothing: float, largest: float) -> Transform:
    """Of a law with a few atoms."""
    damping, pace, count = frequencies(smoothing, largest)
    z = damping - 1j * pace * np.arange(count)
    return Transform(
        values=np.exp(-np.multiply.outer(z, atoms)) @ masses,
        damping=damping,
        pace=pace,
        smoothing=smoothing,
        largest=largest,
        total=float(masses.sum()),
        mean=float(masses @ atoms),
        error=1e-14,
        sum_error=1e-15,
    )


def test_puts_and_calls_of_atoms_are_bounded_from_both_sides() -> None:
    """Atoms at 0, at the threshold, around it and many periods above it; smoothing from coarse to fine."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        atoms = np.concatenate([[0.0, 1.0], rng.gamma(0.5, 2.0, 5), [50.0 * rng.random()]])
        masses = rng.dirichlet(np.full(atoms.size, 0.4))
        smoothing = float(rng.choice([0.02, 0.1, 0.5]))
        transform = exact_transform(atoms, masses, smoothing, 3.0)
        for threshold in (0.05, 0.6, 1.0, 1.7, 3.0):
            put = float(masses @ np.maximum(threshold - atoms, 0.0))
            call = float(masses @ np.maximum(atoms - threshold, 0.0))
            assert transform.put(threshold, Side.LOWER) <= put <= transform.put(threshold, Side.UPPER)
            assert transform.call(threshold, Side.LOWER) <= call <= transform.call(threshold, Side.UPPER)
            # a normal variable adds at most 0.4 of its standard deviation to a put; from below that much is taken twice
            assert transform.put(threshold, Side.UPPER) <= put + 0.4 * smoothing + 1e-9
            assert transform.put(threshold, Side.LOWER) >= put - 0.41 * smoothing - 2e-5


def test_a_mean_that_is_only_bounded_from_below_raises_no_lower_bound() -> None:
    """As rings know their mean: what other periods add is taken off for the largest mean that there may be."""
    atoms, masses = np.array([0.2, 0.9, 40.0]), np.array([0.6, 0.389, 0.011])
    known = exact_transform(atoms, masses, 0.02, 3.0)
    for mean in (0.0, 0.5, 0.999 * known.mean):
        bounded = replace(known, mean=mean)
        for threshold in (0.5, 1.7, 2.5):
            put = float(masses @ np.maximum(threshold - atoms, 0.0))
            call = float(masses @ np.maximum(atoms - threshold, 0.0))
            assert bounded.put(threshold, Side.LOWER) <= known.put(threshold, Side.LOWER) <= put
            assert bounded.call(threshold, Side.LOWER) <= call


def test_errors_of_values_are_charged_to_both_sides() -> None:
    """Values that are off by what they may be, in the worst direction at every frequency, stay within the bounds."""
    atoms, masses = np.array([0.4, 0.9, 1.3, 2.5]), np.array([0.3, 0.4, 0.2, 0.1])
    plain = exact_transform(atoms, masses, 0.05, 3.0)
    for error in (1e-6, 1e-4):
        for threshold in (0.7, 1.6):
            put = float(masses @ np.maximum(threshold - atoms, 0.0))
            z = plain.damping - 1j * plain.pace * np.arange(plain.values.size)
            peak = 9.0 * plain.smoothing
            tested = (
                np.exp(-z * peak) * (np.sinh(0.5 * z * (threshold + peak)) / z) ** 2 * np.exp(0.5 * (z * 0.05) ** 2)
            )
            worst = error * np.conj(tested) / np.abs(tested)
            for sign in (-1.0, 1.0):
                off = replace(plain, values=plain.values + sign * worst, error=error + 1e-14)
                assert off.put(threshold, Side.LOWER) <= put <= off.put(threshold, Side.UPPER)


def test_beyond_what_is_served_upper_bounds_are_constant_and_lower_ones_zero() -> None:
    chain = HiddenChain(0.4, 0.0, 0.7, 0.0, 0.5, np.full(12, 1.0))
    upper, lower = (chain_profiles(chain, side, 1e-3, 0.5, True, Deadline()) for side in Side)
    far = [upper.delta_at(epsilon, Direction.REMOVE) for epsilon in (5.0, 20.0, 600.0)]
    assert far[0] == far[1] == far[2] > 0.0
    assert upper.delta_at(1.0, Direction.REMOVE) >= far[0]
    assert lower.delta_at(600.0, Direction.REMOVE) == 0.0
    assert upper.delta_at(0.0, Direction.REMOVE) >= lower.delta_at(0.0, Direction.REMOVE) > 0.0


@pytest.mark.parametrize("now", [0.0, 1e-17, 1e-9])
def test_bins_without_a_visible_state_are_bounded_too(now: float) -> None:
    """All scales are one, or differ by roundings: there is nothing to place levels between."""
    chain = HiddenChain(0.0, 0.0, now, 0.0, 0.8, np.full(3, 1.0))
    exact = truth(chain.products)[:, 2]
    assert EPSILONS[2] == 0.4
    for side, sign in ((Side.UPPER, 1.0), (Side.LOWER, -1.0)):
        found = chain_profiles(chain, side, 1e-4, 0.4, True, Deadline()).profiles()
        values = np.array([found[direction](0.4) for direction in Direction])
        assert (sign * (values - exact) >= -1e-9 - 3e-5 * exact).all()
        assert values == pytest.approx(exact, rel=0.2)


def test_small_thresholds_are_bounded_without_smoothing() -> None:
    """The add direction far below what smoothing resolves, where X of a few atoms is rarely small."""
    atoms, masses = np.array([0.02, 0.05, 0.6, 1.0, 9.0]), np.array([1e-7, 2e-6, 0.4, 0.5, 0.1])

    def transformed(smoothing: float, largest: float) -> Found:
        return Found(exact_transform(atoms, masses, smoothing, largest), 0.0, 0.0, 0.0)

    spread = 2.6
    found = TransformProfiles(transformed, spread, Side.UPPER, 1e-5, 3.0, True).profiles()[Direction.ADD]
    for epsilon in (2.0, 2.5, 3.0, 3.5):
        exact = float(masses @ np.maximum(1.0 - np.exp(epsilon) * atoms, 0.0))
        assert exact <= found(epsilon) <= 20.0 * exact + 2e-5
    assert found(3.0) <= 1e-4
