"""Sums over the participations of a renewal process against all of its runs."""

from collections.abc import Iterator

import numpy as np
import pytest

from hockeystick.windows.renewal_sums import renewal_sum


def runs(step: int, counts: tuple[int, ...], chances: tuple[float, ...], gap: int) -> Iterator[tuple[int, float]]:
    if step >= len(counts):
        yield 0, 1.0
        return
    for value, chance in enumerate(chances):
        later = step + (gap if value else 1)
        for total, weight in runs(later, counts, chances, gap):
            yield total + value * counts[step], weight * chance


@pytest.mark.parametrize("gap", [1, 2, 4, 9])
@pytest.mark.parametrize("chances", [(0.7, 0.3), (0.5, 0.3, 0.2)])
@pytest.mark.parametrize("first", [(1.0,), (0.4, 0.3, 0.2, 0.1), (0.1,) * 10])
def test_all_runs(gap: int, chances: tuple[float, ...], first: tuple[float, ...]) -> None:
    counts = (3, 0, 2, 5, 1, 1, 4)
    expected: dict[int, float] = {}
    for start, chance in enumerate(first):
        for total, weight in runs(start, counts, chances, gap):
            expected[total] = expected.get(total, 0.0) + chance * weight
    masses, error = renewal_sum(np.array(counts), np.array(chances), gap, np.array(first))
    assert error < 1e-12
    np.testing.assert_allclose(masses, [expected.get(k, 0.0) for k in range(masses.size)], rtol=1e-13)
    assert max(expected) == masses.size - 1


def test_waits_beyond_the_end_take_no_memory() -> None:
    counts, chances, first = np.array([3, 0, 2]), np.array([0.7, 0.3]), np.array([0.5, 0.25, 0.25])
    found, expected = (renewal_sum(counts, chances, gap, first)[0] for gap in (10**15, 3))
    np.testing.assert_array_equal(found, expected)
