"""Sums over rows of a renewal process, modulo their size: against a sum over all participations and all cells."""

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from renewal_runs import runs
from scipy.stats import norm

from hockeystick.deadline import Deadline
from hockeystick.filters.renewal_filters import Frequencies, Sums, filter_for, frequencies_for, sum_laws
from hockeystick.filters.row_filters import Filter
from hockeystick.laws.law import UNIT_ROUNDOFF


def expected(table: Filter, rows: np.ndarray) -> np.ndarray:
    """The law of T when the rows have these means."""
    edges = np.concatenate([[-np.inf], table.edges, [np.inf]])
    chances = [np.diff(norm.cdf(edges, loc=mean)) for mean in rows]
    found = np.zeros(table.size)
    for cells in product(range(edges.size - 1), repeat=rows.size):
        summary, total, chance = table.first, 0, 1.0
        for row, cell in enumerate(cells):
            chance *= chances[row][cell]
            total += table.added[summary, cell]
            summary = table.following[summary, cell]
        found[total % table.size] += chance
    return found


def random_table(rng: np.random.Generator, size: int) -> Filter:
    edges = np.sort(rng.uniform(-1.0, 2.0, 2))
    following = rng.integers(0, 3, (3, 3))
    return Filter(edges, following, rng.integers(-9, 10, (3, 3)), int(rng.integers(0, 3)), 0, size)


@pytest.mark.parametrize("first", [(1.0,), (0.4, 0.3, 0.2, 0.1), (0.125,) * 8])
@pytest.mark.parametrize(
    ("column", "gap", "steps"), [((1.0,), 1, 5), ((1.2, 0.5), 2, 5), ((1.0, 0.3), 4, 6), ((0.8, 0.4, 0.2), 9, 6)]
)
def test_all_runs(column: tuple[float, ...], gap: int, steps: int, first: tuple[float, ...]) -> None:
    rng, prob = np.random.default_rng([7, gap, len(first)]), 0.3
    table, shifts = random_table(rng, 16), np.array(column)
    every = Frequencies(np.arange(9), 0.0)
    sums = sum_laws(table, shifts, prob, gap, steps, np.array(first), 0.0, every, Deadline())
    error = 1e-14 + sums.relative + sums.distance
    assert error < 1e-9
    assert np.linalg.norm(sums.without - expected(table, np.zeros(steps))) <= error
    truth = np.zeros(16)
    for start, chance in enumerate(first):
        for taken, weight in runs(start, steps, gap, prob):
            rows = np.zeros(steps)
            for step in taken:
                rows[step : step + shifts.size] += shifts[: steps - step]
            truth += chance * weight * expected(table, rows)
    assert np.linalg.norm(sums.present - truth) <= error


@pytest.mark.parametrize(("gap", "prob"), [(5, 0.2), (12, 0.05)])
def test_what_is_left_out_is_as_small_as_is_charged(gap: int, prob: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole transform is computed too, and at the frequencies that are skipped it is below their bound."""
    monkeypatch.setattr("hockeystick.filters.renewal_filters.SUMMARIES", 6)
    shifts, steps, first = np.array([0.8, 0.4]), 320, np.ones(1)
    table = filter_for(shifts, prob, gap, steps)
    assert table is not None
    some = frequencies_for(table, shifts.size, gap, steps, Deadline())
    every = Frequencies(np.arange(table.size // 2 + 1), 0.0)
    assert 3 * some.numbers.size < every.numbers.size
    assert 0.0 < some.left_out < 1e-15
    short = sum_laws(table, shifts, prob, gap, steps, first, 0.0, some, Deadline())
    whole = sum_laws(table, shifts, prob, gap, steps, first, 0.0, every, Deadline())
    for one, other in ((short.present, whole.present), (short.without, whole.without)):
        assert np.linalg.norm(one - other) <= 2e-14
        assert one.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("gap", [3, 9])
def test_stretches_bound_the_transform(gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, so that what is skipped could be seen: the transform itself against the bound, at all frequencies."""
    monkeypatch.setattr("hockeystick.filters.renewal_filters.SUMMARIES", 6)
    shifts, steps, prob = np.array([0.8, 0.4]), 40, 0.4
    table = filter_for(shifts, prob, gap, steps)
    assert table is not None
    every = np.arange(table.size // 2 + 1)
    sums = sum_laws(table, shifts, prob, gap, steps, np.ones(1), 0.0, Frequencies(every, 0.0), Deadline())
    some = frequencies_for(table, shifts.size, gap, steps, Deadline())
    skipped = np.setdiff1d(every, some.numbers)
    for law in (sums.present, sums.without):
        assert (np.abs(np.fft.rfft(law))[skipped] <= some.left_out + 1e-13).all()


def test_errors_of_masses_never_raise_a_bound() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        p, q = rng.dirichlet(np.full(12, 0.3), 2)
        relative, distance = 10.0 ** rng.uniform(-6, -1), 10.0 ** rng.uniform(-6, -1)
        wrong = rng.standard_normal((2, 12))
        wrong *= distance / np.linalg.norm(wrong, axis=1, keepdims=True)
        near = np.array([p, q]) / (1.0 + relative * rng.choice([-1.0, 1.0], (2, 12))) + wrong
        sums = Sums(near[1], near[0], relative, distance)
        for epsilon in (0.0, 0.5, 2.0):
            truth = float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())
            assert sums.delta(sums.present, sums.without, epsilon) <= truth + 1e-15
    exact = Sums(q, p, 0.0, 0.0)
    assert exact.delta(p, q, 0.5) == pytest.approx(float(np.maximum(p - np.exp(0.5) * q, 0.0).sum()), rel=1e-9)


def test_twiddle_factors_err_by_less_than_is_charged() -> None:
    size = 8192
    found = np.exp(-2j * np.pi / size * np.arange(size))
    with mp.workdps(30):
        for k in range(0, size, 61):
            exact = mp.expjpi(mp.mpf(-2 * k) / size)
            assert abs(mp.mpc(found[k].real, found[k].imag) - exact) < 32 * UNIT_ROUNDOFF
