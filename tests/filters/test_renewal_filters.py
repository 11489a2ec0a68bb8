"""Sums over rows of a renewal process, modulo their size: against a sum over all participations and all cells."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from renewal_runs import runs
from scipy.stats import norm

from hockeystick.deadline import Deadline
from hockeystick.filters.renewal_filters import Frequencies, Sums, filter_for, frequencies_for, plain_pieces, sum_laws
from hockeystick.filters.renewal_transforms import moves_of_two
from hockeystick.filters.row_filters import Filter
from hockeystick.laws.law import UNIT_ROUNDOFF


def expected(table: Filter, rows: np.ndarray) -> np.ndarray:
    """The law of T when the rows have these means."""
    edges = np.concatenate([[-np.inf], table.edges, [np.inf]])
    chances = [np.diff(norm.cdf(edges, loc=mean)) for mean in rows]
    law = np.zeros(table.size)
    for cells in product(range(edges.size - 1), repeat=rows.size):
        summary, total, chance = table.first, 0, 1.0
        for row, cell in enumerate(cells):
            chance *= chances[row][cell]
            total += table.added[summary, cell]
            summary = table.following[summary, cell]
        law[total % table.size] += chance
    return law


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
    sums = sum_laws(
        table, shifts, prob, gap, steps, first=np.array(first), rounding=0.0, frequencies=every, deadline=Deadline()
    )
    error = 1e-14 + sums.relative + sums.distance
    assert error < 1e-9
    assert np.linalg.norm(sums.without - expected(table, np.zeros(steps))) <= error
    truth = np.zeros(16)
    for start, chance in enumerate(first):
        for taken, weight in runs(start, steps, gap, prob):
            truth += chance * weight * expected(table, rows_of(taken, shifts, steps))
    assert np.linalg.norm(sums.present - truth) <= error


def rows_of(taken: Sequence[int], shifts: np.ndarray, steps: int) -> np.ndarray:
    """The means of the rows of one example."""
    rows = np.zeros(steps)
    for step in taken:
        rows[step : step + shifts.size] += shifts[: steps - step]
    return rows


@pytest.mark.parametrize("first", [(1.0,), (0.4, 0.6), (0.4, 0.3, 0.2, 0.1)])
@pytest.mark.parametrize(
    ("column", "gap", "steps"), [((1.0,), 1, 4), ((1.2, 0.5), 2, 5), ((1.0, 0.3), 4, 5), ((0.8, 0.4, 0.2), 9, 5)]
)
def test_all_runs_of_two(column: tuple[float, ...], gap: int, steps: int, first: tuple[float, ...]) -> None:
    """Two examples that wait independently: every row is shifted by the entries of two columns."""
    first = first if len(first) <= gap else (1.0,)
    rng, prob = np.random.default_rng([9, gap, len(first)]), 0.3
    table, shifts = random_table(rng, 16), np.array(column)
    every = Frequencies(np.arange(9), 0.0)
    sums = sum_laws(
        table,
        shifts,
        prob,
        gap,
        steps,
        first=np.array(first),
        rounding=0.0,
        frequencies=every,
        deadline=Deadline(),
        examples=2,
    )
    error = 1e-14 + sums.relative + sums.distance
    assert error < 1e-9
    assert np.linalg.norm(sums.without - expected(table, np.zeros(steps))) <= error
    single: Counter[tuple[float, ...]] = Counter()
    for start, chance in enumerate(first):
        for taken, weight in runs(start, steps, gap, prob):
            single[tuple(rows_of(taken, shifts, steps))] += chance * weight
    truth = np.zeros(16)
    for (sums_of_first, chance), (sums_of_second, weight) in product(single.items(), repeat=2):
        truth += chance * weight * expected(table, np.array(sums_of_first) + np.array(sums_of_second))
    assert np.linalg.norm(sums.present - truth) <= error


@pytest.mark.parametrize(("bands", "gap"), [(1, 1), (1, 4), (2, 2), (3, 5), (5, 5)])
def test_moves_of_two_are_whole(bands: int, gap: int) -> None:
    """From every pair of states the chances add up to 1, and no state is twice among those before a move."""
    total: Counter[int] = Counter()
    for each in moves_of_two(bands, gap, 0.3).values():
        assert np.unique(each.before).size == each.before.size
        for before, chance in zip(each.before, each.chances, strict=True):
            total[int(before)] += chance
    count = bands + gap - 1
    assert len(total) == count * (count + 1) // 2
    assert all(chance == pytest.approx(1.0, abs=1e-15) for chance in total.values())


@pytest.mark.parametrize(("gap", "prob", "steps", "examples"), [(5, 0.2, 320, 1), (12, 0.05, 320, 1), (9, 0.1, 240, 2)])
def test_what_is_left_out_is_as_small_as_is_charged(
    gap: int, prob: float, steps: int, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole transform is computed too, and at the frequencies that are skipped it is below their bound."""
    monkeypatch.setattr("hockeystick.filters.renewal_filters.SUMMARIES", {1: 6, 2: 6})
    shifts, first = np.array([0.8, 0.4]), np.ones(1)
    table = filter_for(shifts, prob, gap, steps, examples)
    assert table is not None
    some = frequencies_for(table, shifts.size, gap, steps, Deadline(), examples)
    every = Frequencies(np.arange(table.size // 2 + 1), 0.0)
    assert 3 * some.numbers.size < every.numbers.size
    assert 0.0 < some.left_out < 1e-15
    common = {"first": first, "rounding": 0.0, "deadline": Deadline(), "examples": examples}
    short, whole = (
        sum_laws(table, shifts, prob, gap, steps, frequencies=frequencies, **common) for frequencies in (some, every)
    )
    for fewer, every_frequency in ((short.present, whole.present), (short.without, whole.without)):
        assert np.linalg.norm(fewer - every_frequency) <= 2e-14
        assert fewer.sum() == pytest.approx(1.0, abs=1e-12)


def test_frequencies_are_all_there_unless_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law from a part of them would be no law: with room for all nothing is missing, and without it that shows."""
    monkeypatch.setattr("hockeystick.filters.renewal_filters.AT_ONCE", {1: 4, 2: 4})
    shifts, gap, steps = np.array([0.8, 0.4]), 5, 320
    table = filter_for(shifts, 0.2, gap, steps)
    assert table is not None
    every = frequencies_for(table, shifts.size, gap, steps, Deadline())
    room = float(every.numbers.size)
    assert room > 8.0, "several batches"
    same = frequencies_for(table, shifts.size, gap, steps, Deadline(), most=room)
    assert np.array_equal(same.numbers, every.numbers)
    assert same.left_out == every.left_out
    assert frequencies_for(table, shifts.size, gap, steps, Deadline(), most=room - 1.0).numbers.size > room - 1.0


@pytest.mark.parametrize(("gap", "examples"), [(3, 1), (9, 1), (9, 2)])
def test_stretches_bound_the_transform(gap: int, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, so that what is skipped could be seen: the transform itself against the bound, at all frequencies."""
    monkeypatch.setattr("hockeystick.filters.renewal_filters.SUMMARIES", {1: 6, 2: 6})
    shifts, steps, prob = np.array([0.8, 0.4]), 40, 0.4
    table = filter_for(shifts, prob, gap, steps, examples)
    assert table is not None
    every = np.arange(table.size // 2 + 1)
    whole = Frequencies(every, 0.0)
    sums = sum_laws(
        table,
        shifts,
        prob,
        gap,
        steps,
        first=np.ones(1),
        rounding=0.0,
        frequencies=whole,
        deadline=Deadline(),
        examples=examples,
    )
    some = frequencies_for(table, shifts.size, gap, steps, Deadline(), examples)
    skipped = np.setdiff1d(every, some.numbers)
    for law in (sums.present, sums.without):
        assert (np.abs(np.fft.rfft(law))[skipped] <= some.left_out + 1e-13).all()


@pytest.mark.parametrize("examples", [1, 2])
def test_there_are_as_many_pieces_of_plain_rows_as_is_said(examples: int) -> None:
    """Random participations, as often as the distance allows, for many shapes."""
    rng = np.random.default_rng([11, examples])
    met = 0
    for _ in range(2000):
        steps, gap = int(rng.integers(1, 120)), int(rng.integers(1, 30))
        bands, length = int(rng.integers(1, gap + 1)), int(2 ** rng.integers(0, 4))
        shifted = np.zeros(steps + bands, dtype=bool)
        for _ in range(examples):
            step = int(rng.integers(0, gap))
            while step < steps:
                shifted[step : step + bands] = True
                step += gap + int(rng.integers(0, 2))
        stretches = "".join(" " if shift else "x" for shift in shifted[:steps]).split()
        pieces = sum(len(stretch) // length for stretch in stretches)
        promised = plain_pieces(length, bands, gap, steps, examples)
        assert promised <= pieces
        met += promised > 0
    assert met > 200


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
    factors = np.exp(-2j * np.pi / size * np.arange(size))
    with mp.workdps(30):
        for k in range(0, size, 61):
            exact = mp.expjpi(mp.mpf(-2 * k) / size)
            assert abs(mp.mpc(factors[k].real, factors[k].imag) - exact) < 32 * UNIT_ROUNDOFF
