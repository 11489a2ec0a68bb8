"""Sums over the participations of a renewal process against all of its runs."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from hockeystick.filters.renewal_sums import renewal_sum


def runs(step: int, counts: tuple[int, ...], chances: list[Fraction], gap: int) -> Iterator[tuple[int, Fraction]]:
    if step >= len(counts):
        yield 0, Fraction(1)
        return
    for value, chance in enumerate(chances):
        later = step + (gap if value else 1)
        for total, weight in runs(later, counts, chances, gap):
            yield total + value * counts[step], weight * chance


@pytest.mark.parametrize("gap", [1, 2, 4, 9])
@pytest.mark.parametrize("chances", [(0.7, 0.3), (0.5, 0.3, 0.2)])
@pytest.mark.parametrize("first", [(1.0,), (0.4, 0.3, 0.2, 0.1), (0.1,) * 10])
def test_all_runs(gap: int, chances: tuple[float, ...], first: tuple[float, ...]) -> None:
    """In exact fractions of the given doubles: the stated error is one, and not far above the largest that occurs."""
    counts = (3, 0, 2, 5, 1, 1, 4)
    exact: dict[int, Fraction] = {}
    for start, chance in enumerate(first):
        for total, weight in runs(start, counts, [Fraction(chance) for chance in chances], gap):
            exact[total] = exact.get(total, Fraction(0)) + Fraction(chance) * weight
    masses, error = renewal_sum(np.array(counts), np.array(chances), gap, np.array(first))
    assert error < 1e-12
    assert [k for k, mass in enumerate(masses) if mass > 0.0] == sorted(exact)
    worst = max(abs(Fraction(float(masses[k])) / mass - 1) for k, mass in exact.items())
    assert 0 < worst <= error


def test_waits_beyond_the_end_take_no_memory() -> None:
    counts, chances, first = np.array([3, 0, 2]), np.array([0.7, 0.3]), np.array([0.5, 0.25, 0.25])
    masses, expected = (renewal_sum(counts, chances, gap, first)[0] for gap in (10**15, 3))
    np.testing.assert_array_equal(masses, expected)
