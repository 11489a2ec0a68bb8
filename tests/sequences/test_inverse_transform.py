"""Profiles by transforms of a few atoms, whose profiles are known, and each inequality that they rest on."""

from dataclasses import replace

import numpy as np
import pytest

from hockeystick.laws.law import Array
from hockeystick.sequences.inverse_transform import BoundedTransform, Transform, TransformProfiles, frequencies
from hockeystick.types import Direction, Side


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


def profiles_of_atoms(atoms: Array, masses: Array, side: Side, delta: float, epsilon: float) -> TransformProfiles:
    """By transforms of a law with a few atoms, good near one epsilon."""

    def transformed(smoothing: float, largest: float) -> BoundedTransform:
        return BoundedTransform(exact_transform(atoms, masses, smoothing, largest), 0.0, 0.0, 0.0)

    spread = float(np.sqrt(masses @ (atoms - 1.0) ** 2))
    return TransformProfiles(transformed, spread, side, delta, epsilon, True)


def test_beyond_what_is_served_upper_bounds_are_constant_and_lower_ones_zero() -> None:
    atoms, masses = np.array([0.4, 0.9, 1.4, 3.0]), np.array([0.3, 0.4, 0.25, 0.05])
    upper, lower = (profiles_of_atoms(atoms, masses, side, 1e-3, 0.5) for side in Side)
    far = [upper.delta_at(epsilon, Direction.REMOVE) for epsilon in (5.0, 20.0, 600.0)]
    assert far[0] == far[1] == far[2] > 0.0
    assert upper.delta_at(1.0, Direction.REMOVE) >= far[0]
    assert lower.delta_at(600.0, Direction.REMOVE) == 0.0
    assert upper.delta_at(0.0, Direction.REMOVE) >= lower.delta_at(0.0, Direction.REMOVE) > 0.0


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_left_out_and_relative_errors_are_charged_to_both_sides(alone: bool) -> None:
    """Masses and places of the law that is transformed are off by what they may be, in either direction.

    A hundredth of the mass is left out of it as well.
    """
    atoms, masses = np.array([0.5, 0.9, 1.3, 2.5]), np.array([0.3, 0.4, 0.2, 0.1])
    atoms = atoms / (masses @ atoms)
    for by_mass, by_place in ((0.0, 0.0), (1e-2, 0.0), (-1e-2, 0.0), (0.0, 0.05), (0.0, -0.05)):

        def transformed(smoothing: float, largest: float, m: float = by_mass, p: float = by_place) -> BoundedTransform:
            kept = masses * np.array([1.0, 1.0, 1.0, 0.99])
            exact = exact_transform(atoms * (1.0 + p), kept * (1.0 + m), smoothing, largest)
            return BoundedTransform(exact, abs(m), abs(p), 1.01e-3 * float(atoms.max()))

        for side in Side:
            profiles = TransformProfiles(transformed, 0.6, side, 1e-3, 0.5, alone)
            for epsilon in (0.0, 0.3, 0.6):
                remove = float(masses @ np.maximum(atoms - np.exp(epsilon), 0.0))
                add = float(masses @ np.maximum(1.0 - np.exp(epsilon) * atoms, 0.0))
                for direction, exact_delta in ((Direction.REMOVE, remove), (Direction.ADD, add)):
                    bound = profiles.delta_at(epsilon, direction)
                    assert bound >= exact_delta if side is Side.UPPER else bound <= exact_delta


def test_small_thresholds_are_bounded_without_smoothing() -> None:
    """The add direction far below what smoothing resolves, where X of a few atoms is rarely small."""
    atoms, masses = np.array([0.02, 0.05, 0.6, 1.0, 9.0]), np.array([1e-7, 2e-6, 0.4, 0.5, 0.1])

    def transformed(smoothing: float, largest: float) -> BoundedTransform:
        return BoundedTransform(exact_transform(atoms, masses, smoothing, largest), 0.0, 0.0, 0.0)

    spread = 2.6
    profile = TransformProfiles(transformed, spread, Side.UPPER, 1e-5, 3.0, True).profiles()[Direction.ADD]
    for epsilon in (2.0, 2.5, 3.0, 3.5):
        exact = float(masses @ np.maximum(1.0 - np.exp(epsilon) * atoms, 0.0))
        assert exact <= profile(epsilon) <= 20.0 * exact + 2e-5
    assert profile(3.0) <= 1e-4
