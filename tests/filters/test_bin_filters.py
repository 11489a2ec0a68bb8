"""The law of the sum over bins against an enumeration of all outcomes, and its bounds against the ratio itself."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from hockeystick.accountants.bin_filter import ACCOUNTANT
from hockeystick.accountants.low_noise_bins import FEWEST_BINS
from hockeystick.deadline import Deadline
from hockeystick.filters.bin_filter_kernels import Moves, Units, following
from hockeystick.filters.bin_filters import (
    GOLDEN,
    Lattice,
    Shifts,
    Summaries,
    fitted,
    ring_shifts,
    sum_laws,
    summaries_of,
    work_of,
)
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side

SETTINGS = Settings(Resolution(68, 1e-4), effort=0.1)


def units(ratio: float, fraction: float, size: int) -> int:
    """How many units are added for a ratio: exact up to 16, then numbers that grow by the factor exp(0.06)."""
    if ratio < 16.0:
        return min(int(np.floor(ratio + fraction)), size - 1)
    growth = 0.06 * (np.floor(np.log(ratio / 16.0) / 0.06 + fraction) + 0.5 - fraction)
    return int(min(16.0 * np.exp(growth) if ratio < size else size - 1, size - 1))


def alone(own: Array) -> Shifts:
    """Shifts of bins none of which wraps around."""
    return Shifts(own, np.full(len(own), -1), np.zeros((0, own.shape[1] - 1)))


def enumerated(shifts: Shifts, summaries: Summaries, lattice: Lattice) -> tuple[Array, Array]:
    """Masses of the sum by all sequences of cells, each with its chance without the example and with each bin."""
    bins, bands = shifts.own.shape
    means = np.zeros((bins, bins + bands))
    for i in range(bins):
        means[i, i : i + bands] = shifts.own[i]
    wrapped = [i for i in range(bins) if shifts.group[i] >= 0]
    for i in wrapped:
        means[i, : bands - 1] += shifts.again[shifts.group[i]]
    runs = {(): ((0,) * summaries.gained.shape[1], 0, 1.0, np.ones(bins))}
    for row in range(bins - 1, -1, -1):
        edges = lattice.edges[row]
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        middle = np.concatenate([edges[:1] - 0.3, 0.5 * (edges[1:] + edges[:-1]), edges[-1:] + 0.3])
        plain_chances = np.diff(norm.cdf(ends))
        with_bin = np.diff(norm.cdf(ends - means[:, row, None]), axis=1)
        with_it: dict[tuple[int, ...], Array] = {}
        without: dict[tuple[int, ...], float] = {}
        for point, _, plain, chances in runs.values():
            judged = [row, *wrapped] if row == 0 else [row]
            with_it[point] = with_it.get(point, 0.0) + chances[judged]
            without[point] = without.get(point, 0.0) + plain
        most = np.rint(1.5 * summaries.spread[row] / lattice.spacing)
        least = np.append(np.rint(-1.2 * summaries.spread[row, :1] / lattice.spacing), -most[1:])
        most[0] = np.inf
        after = {}
        for (read, (point, total, plain, chances)), cell in product(runs.items(), range(middle.size)):
            judged = [row, *wrapped] if row == 0 else [row]
            told = float(with_it[point] @ with_bin[judged, cell]) / without[point] / plain_chances[cell]
            added = units(told / lattice.unit, ((bins - row) * GOLDEN) % 1.0, lattice.size)
            exact = summaries.carried[row] @ np.array(point) + summaries.gained[row] * middle[cell] / lattice.spacing
            after[*read, cell] = (
                tuple(int(x) for x in np.clip(np.floor(exact + 0.5), least, most)),
                min(total + added, lattice.size - 1),
                plain * plain_chances[cell],
                chances * with_bin[:, cell],
            )
        runs = after
    without_it, taking_part = np.zeros(lattice.size), np.zeros(lattice.size)
    for _, total, plain, chances in runs.values():
        without_it[total] += plain
        taking_part[total] += chances.mean()
    return without_it, taking_part


@pytest.mark.parametrize(
    ("bands", "count", "unit"), [(1, 1, 0.31), (2, 1, 0.31), (3, 2, 0.31), (5, 3, 0.31), (3, 1, 0.02)]
)
def test_sums_have_the_laws_of_an_enumeration(bands: int, count: int, unit: float) -> None:
    """Five rows of four to six cells, with bands up to all rows; nothing is left out at such a delta.

    Small units make moves by more than 16 of them, and numbers that are not exact.
    """
    rng = np.random.default_rng(bands)
    shifts = rng.uniform(0.2, 1.5, (5, bands))
    for lag in range(bands):
        shifts[5 - lag :, lag] = 0.0
    summaries = summaries_of(alone(shifts), count)
    edges = [np.sort(rng.uniform(-1.0, 2.5, int(cells))) for cells in rng.integers(3, 6, 5)]
    lattice = Lattice(0.4, edges, unit, 40 if unit > 0.1 else 300)
    sums = sum_laws(alone(shifts), summaries, lattice, 1e-30, Deadline())
    for ours, theirs in zip(sums[:2], enumerated(alone(shifts), summaries, lattice), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-14)
        assert ours.sum() == pytest.approx(1.0, abs=1e-12)


def test_sums_of_bins_that_wrap_around_have_the_laws_of_an_enumeration() -> None:
    """Three of six bins shift the first rows again, two of them alike; at the first row all of them are judged."""
    rng = np.random.default_rng(8)
    own = rng.uniform(0.2, 1.2, (6, 4))
    for lag in range(4):
        own[6 - lag :, lag] = 0.0
    shifts = Shifts(own, np.array([-1, -1, -1, 1, 1, 0]), np.array([[0.9, 0.7, 0.4], [0.5, 0.0, 0.0]]))
    summaries = summaries_of(shifts, 2)
    lattice = Lattice(0.4, [np.sort(rng.uniform(-1.0, 2.5, 3)) for _ in range(6)], 0.31, 50)
    sums = sum_laws(shifts, summaries, lattice, 1e-30, Deadline())
    for ours, theirs in zip(sums[:2], enumerated(shifts, summaries, lattice), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-14)
        assert ours.sum() == pytest.approx(1.0, abs=1e-12)


def test_fine_cells_are_joined_to_few_moves() -> None:
    """Each cell of each summary is in one move, and there are fewer moves than cells."""
    middle = np.linspace(-2.0, 5.0, 300)
    after = np.array([[0.2], [1.7]])
    lowest, highest = np.array([-1.0]), np.array([9.0])
    told, share, rounded = np.array([[0.5, 2.0]]), np.exp(middle)[None], Units(0.3, 8.0, 0.12, 100)
    parts = following(after, 2.0 * middle[:, None], lowest, highest, told, share, rounded)
    moves = Moves(*parts)
    for u in range(2):
        mine = moves.sources == u
        covered = [c for start, end in zip(moves.first[mine], moves.end[mine], strict=True) for c in range(start, end)]
        assert covered == list(range(300))
    assert moves.sources.size < 120


def test_what_is_left_out_of_one_is_left_out_of_the_other() -> None:
    """Summaries that are rare with the example go, with at most their share of delta, and the law only loses."""
    shifts = alone(np.tile([1.2, 0.7, 0.4], (30, 1)))
    summaries, lattice = summaries_of(shifts, 2), Lattice(0.4, (np.linspace(-2.0, 4.0, 12),) * 30, 0.5, 60)
    whole = sum_laws(shifts, summaries, lattice, 1e-30, Deadline())
    part = sum_laws(shifts, summaries, lattice, 0.1, Deadline())
    lost = [float(all_of_it.sum() - ours.sum()) for all_of_it, ours in zip(whole[:2], part[:2], strict=True)]
    assert lost[0] > 1e-6
    assert 1e-6 < lost[1] <= 0.01 * 0.1 * (1.0 + 1e-9)
    for epsilon in (0.0, 0.3, 1.0):
        kept, all_of_it = (np.maximum(p - np.exp(epsilon) * q, 0.0).sum() for q, p, _ in (part, whole))
        assert kept <= all_of_it


def test_the_work_is_what_was_planned() -> None:
    """No summaries are chosen that the work does not allow; one function on the coarsest lattice takes 2.4e9."""
    shifts = alone(np.tile(0.9 / np.arange(1.0, 17.0) ** 0.5, (300, 1)))
    for work in (3e9, 3e10, 3e11):
        summaries, spacing = fitted(shifts, work, 300)
        assert work_of(shifts, summaries, spacing, 300) <= work


def random_pair(rng: np.random.Generator) -> BinMixture:
    return pair_of(rng, int(rng.integers(FEWEST_BINS, 25)), int(rng.integers(1, 6)), int(rng.integers(1, 4)))


def pair_of(rng: np.random.Generator, bins: int, bands: int, epochs: int) -> BinMixture:
    steps = bins * epochs
    band = rng.uniform(0.0, 1.0, (steps, bands)) * np.linspace(1.0, 0.3, bands)
    band[:, 0] = rng.uniform(0.5, 1.0, steps)
    for lag in range(bands):
        band[steps - lag :, lag] = 0.0
    return BinMixture(noise_multiplier=float(rng.uniform(0.6, 1.5)) * epochs**0.5, matrix=BandedMatrix(band), bins=bins)


@pytest.mark.parametrize(
    ("bins", "bands", "epochs"), [(23, 4, 1), (20, 1, 3), (23, 2, 3), (20, 3, 2), (18, 14, 3), (12, 12, 2)]
)
def test_rows_of_all_epochs_are_projected_on_one_direction(bins: int, bands: int, epochs: int) -> None:
    """No shift is above the mean along a unit vector, and own ones are at most the relative error below."""
    pair = pair_of(np.random.default_rng(bins + bands), bins, bands, epochs)
    shifts = ring_shifts(pair.means() / pair.noise_multiplier, bands, 1e-9)
    wraps = pair.matrix.steps > pair.bins and bands - 1 > 0.1 * pair.bins
    for i in range(pair.bins):
        assert (shifts.group[i] >= 0) == (wraps and i > pair.bins - bands)
        for row in range(pair.bins):
            rows = pair.means()[row :: pair.bins] / pair.noise_multiplier
            unit = rows.sum(axis=1) / np.linalg.norm(rows.sum(axis=1))
            along = float(unit @ rows[:, i])
            if 0 <= row - i < bands:
                assert along * (1.0 - 2e-9) <= shifts.own[i, row - i] <= along * (1.0 - 1e-10)
            if shifts.group[i] >= 0 and row < bands - 1:
                most = 0.0 if row >= i else along * (1.0 - 1e-10)
                assert 0.0 <= shifts.again[shifts.group[i], row] <= most
    if wraps:
        assert shifts.again[0, 0] > 0.0
        assert not shifts.own[pair.bins - 1, 1:].any()


def simulated(pair: BinMixture, rng: np.random.Generator) -> tuple[Array, Array]:
    """Ratios, and weights for means under Q, sampled from the mixture of both hypotheses."""
    covariance = pair.gram / pair.noise_multiplier**2
    factor = np.linalg.cholesky(covariance + 1e-12 * np.eye(pair.bins))
    count = 100_000
    shift = np.where((rng.random(count) < 0.5)[:, None], covariance[rng.integers(0, pair.bins, count)], 0.0)
    z = rng.standard_normal((count, pair.bins)) @ factor.T + shift
    x: Array = np.exp(z - 0.5 * covariance.diagonal()).mean(axis=1)
    return x, 2.0 / (1.0 + x)


def hockey_stick(x: Array, weights: Array, epsilon: float, direction: Direction) -> tuple[float, float]:
    """The estimate and five standard errors of it."""
    scale = np.exp(epsilon)
    payoff = weights * np.maximum(x - scale if direction is Direction.REMOVE else 1.0 - scale * x, 0.0)
    return float(payoff.mean()), 5.0 * float(payoff.std() / np.sqrt(x.size))


@pytest.mark.parametrize("seed", range(3))
def test_never_above_the_truth_and_not_far(seed: int) -> None:
    """Nine comparisons a seed with a simulation, at five standard errors: a false failure has a chance below 1e-5."""
    rng = np.random.default_rng(100 + seed)
    pair = random_pair(rng)
    bound = ACCOUNTANT.bound(pair, Side.LOWER, SETTINGS)
    samples = simulated(pair, rng)
    for direction in Direction:
        for epsilon in (0.1, 0.5, 1.0):
            value, error = hockey_stick(*samples, epsilon, direction)
            assert bound.profiles[direction](epsilon) <= value + error
            if direction is Direction.REMOVE:
                assert bound.profiles[direction](epsilon) >= 0.5 * (value - error)


def test_with_one_band_hardly_anything_is_lost() -> None:
    """Rows are independent and summaries are not needed; a false failure at five standard errors is below 1e-6."""
    pair = BinMixture(noise_multiplier=0.7, matrix=BandedMatrix(np.ones((40, 1))), bins=40)
    ours = ACCOUNTANT.bound(pair, Side.LOWER, SETTINGS).profiles[Direction.REMOVE](0.7)
    value, error = hockey_stick(*simulated(pair, np.random.default_rng(7)), 0.7, Direction.REMOVE)
    assert 0.9 * (value - error) <= ours <= value + error


def test_it_refuses_what_it_is_not_for() -> None:
    few = BinMixture(noise_multiplier=1.0, matrix=BandedMatrix(np.ones((FEWEST_BINS - 1, 1))), bins=FEWEST_BINS - 1)
    full = BinMixture(noise_multiplier=1.0, matrix=BandedMatrix(np.ones((40, 30))), bins=20)
    assert "bins" in str(ACCOUNTANT.why_not(few, Side.LOWER))
    assert "bands" in str(ACCOUNTANT.why_not(full, Side.LOWER))
    assert "upper" in str(ACCOUNTANT.why_not(full, Side.UPPER))
