"""Hulls of bounds on calls and puts, point by point, against rational numbers."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hockeystick.laws import lattice_laws
from hockeystick.laws.lattice_laws import _hull
from hockeystick.laws.law import Array


def exact_masses(places: Array, values: Array) -> list[Fraction]:
    """Changes of slope of the largest convex function below the points, of a put up to 1 and of a call beyond."""
    x = [Fraction(float(place)) for place in places]
    put = [Fraction(float(value)) + max(at - 1, Fraction(0)) for at, value in zip(x, values, strict=True)]
    corners: list[int] = []
    for k in range(len(x)):
        while len(corners) > 1:
            i, j = corners[-2:]
            if (put[j] - put[i]) * (x[k] - x[j]) < (put[k] - put[j]) * (x[j] - x[i]):
                break
            corners.pop()
        corners.append(k)
    slopes = [(put[j] - put[i]) / (x[j] - x[i]) for i, j in pairwise(corners)]
    masses = [Fraction(0)] * len(x)
    for corner, left, right in zip(corners, [Fraction(0), *slopes], [*slopes, Fraction(1)], strict=True):
        masses[corner] = right - left
    return masses


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dents", [0, 3, 200])
def test_hulls_are_those_of_exact_arithmetic(seed: int, dents: int) -> None:
    """Of a convex function with some points that are lower, whose long edges swallow others, and of noise."""
    numbers = np.random.default_rng(seed)
    logs = 0.01 * np.arange(-150, 250)
    places = np.exp(logs)
    values = 0.2 * np.exp(-3.0 * np.abs(logs))
    lower = numbers.choice(np.arange(1, 399), dents, replace=False)
    values[lower] *= numbers.uniform(0.7, 1.0, dents)
    values[[0, -1]] = 0.0 if seed % 2 else values[[0, -1]]
    masses = _hull(places, values, logs <= 0.0)
    assert masses is not None
    exact = np.array([float(mass) for mass in exact_masses(places, values)])
    assert np.abs(masses - np.maximum(exact, 0.0)).max() <= 1e-11
    assert (exact[1:-1] >= 0.0).all()


def test_a_long_edge_takes_no_round_for_each_of_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """One low point next to 1, from which an edge reaches far down, is found with a few looks at all points."""
    looks: list[int] = []
    masses = lattice_laws._masses

    def watched(*arguments: Any) -> Array:
        looks.append(len(arguments[0]))
        return masses(*arguments)

    monkeypatch.setattr(lattice_laws, "_masses", watched)
    logs = 0.01 * np.arange(-500, 500)
    values = 0.2 * np.exp(-2.0 * np.abs(logs))
    values[480] *= 0.5
    assert _hull(np.exp(logs), values, logs <= 0.0) is not None
    assert len(looks) <= 4
