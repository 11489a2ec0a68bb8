"""Truncated b-min-sep: the recursions and the counts by enumeration, and the pair against the mechanism itself."""

from collections import Counter
from itertools import product
from math import comb, exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.renewal.kernels import Recursion, workspace
from hockeystick.monte_carlo.renewal.truncated import FAMILY, NaiveTruncated
from hockeystick.monte_carlo.renewal.truncated_kernels import Truncation, draw_counts, log_mixture
from hockeystick.pairs.min_separated import from_b_min_sep
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.pairs.visits import first_available
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side

Participations = dict[tuple[int, ...], float]


def participations(steps: int, min_sep: int, prob: float, warm: bool) -> Participations:
    """Every vector of participations of one example, with its probability."""
    starts = {1: 1.0}
    if warm:
        norm = 1.0 + (min_sep - 1) * prob
        starts = {first: (1.0 if first == 1 else prob) / norm for first in range(1, min_sep + 1)}
    law: Participations = {}
    for vector in product((0, 1), repeat=steps):
        total = 0.0
        for first, chance in starts.items():
            available = first
            for step, taken in enumerate(vector, start=1):
                if step < available:
                    chance *= 1.0 - taken
                elif taken:
                    chance *= prob
                    available = step + min_sep
                else:
                    chance *= 1.0 - prob
            total += chance
        if total > 0.0:
            law[vector] = total
    return law


def shifts(law: Participations, counts: tuple[int, ...], cap: int, whole: float, cut: float) -> Participations:
    """Every vector of shifts with its probability: participations, then the survival of each that is in doubt."""
    outcomes: Counter[tuple[float, ...]] = Counter()
    for vector, chance in law.items():
        choices = []
        for taken, count in zip(vector, counts, strict=True):
            if not taken:
                choices.append([(0.0, 1.0)])
            elif count < cap:
                choices.append([(whole, 1.0)])
            else:
                choices.append([(cut, cap / (count + 1)), (0.0, 1.0 - cap / (count + 1))])
        for outcome in product(*choices):
            outcomes[tuple(shift for shift, _ in outcome)] += chance * float(np.prod([share for _, share in outcome]))
    return dict(outcomes)


def random_matrix(steps: int, bands: int, seed: int = 4) -> BandedMatrix:
    band = np.random.default_rng(seed).random((steps, bands)) + 0.1
    band[np.arange(steps)[:, None] + np.arange(bands)[None, :] >= steps] = 0.0
    return BandedMatrix(band)


def density_at(
    dense: Any, half: Any, cuts: tuple[int, float, bool, int], y: Any, counts: Any, whole: float, cut: float
) -> float:
    """log of a density at outputs y in units of the noise; of ``cuts`` separation, chance, warm start and cap."""
    min_sep, prob, warm, cap = cuts
    law = Recursion(
        taps=dense,
        half_squares=half,
        shifts=np.zeros(half.size),
        times=np.ones(1),
        log_weights=np.log([prob]),
        log_stay=float(np.log1p(-prob)) if prob < 1.0 else -np.inf,
        min_sep=min_sep,
        first=first_available(min_sep, prob, warm),
    )
    work = workspace(law)
    work.products[:] = dense.T @ y
    return float(log_mixture(Truncation(law, prob, warm, cap, 0), counts, whole, cut, work))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("steps", "min_sep", "bands", "prob"),
    [(6, 2, 2, 0.3), (6, 3, 2, 0.5), (5, 1, 1, 0.2), (3, 5, 3, 0.4), (6, 3, 3, 1.0)],
)
def test_recursion_is_the_sum_over_participations_and_survivals(
    steps: int, min_sep: int, bands: int, prob: float, warm: bool
) -> None:
    matrix = random_matrix(steps, bands)
    dense = matrix.materialize()
    rng = np.random.default_rng(8)
    half = 0.5 * np.square(dense).sum(axis=0)
    law = participations(steps, min_sep, prob, warm)
    for counts in rng.integers(0, 6, (10, steps)):
        y = rng.normal(0.0, 2.0, steps)
        for whole, cut in ((1.0, 2.0), (0.0, -1.0)):
            expected = 0.0
            for vector, chance in shifts(law, tuple(int(c) for c in counts), 3, whole, cut).items():
                mean = dense @ np.array(vector)
                expected += chance * exp(mean @ y - 0.5 * mean @ mean)
            density = density_at(dense, half, (min_sep, prob, warm, 3), y, counts, whole, cut)
            assert density == pytest.approx(log(expected), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("min_sep", "prob"), [(1, 0.4), (2, 0.3), (3, 0.5), (3, 1.0)])
def test_counts_have_the_law_of_independent_chains(min_sep: int, prob: float, warm: bool) -> None:
    """Three others over four steps; a chi-square test that fails by chance with probability 1e-9 in each case."""
    steps, others, samples = 4, 3, 20_000
    law: Counter[tuple[int, ...]] = Counter({(0,) * steps: 1.0})  # type: ignore[dict-item]
    single = participations(steps, min_sep, prob, warm)
    for _ in range(others):
        grown: Counter[tuple[int, ...]] = Counter()
        for (total, chance), (vector, more) in product(law.items(), single.items()):
            grown[tuple(a + b for a, b in zip(total, vector, strict=True))] += chance * more  # type: ignore[assignment]
        law = grown
    rng = np.random.Generator(np.random.SFC64(5))
    seen: Counter[tuple[int, ...]] = Counter()
    counts = np.empty(steps, dtype=np.int64)
    for _ in range(samples):
        draw_counts(rng, min_sep, prob, warm, others, counts)
        seen[tuple(int(c) for c in counts)] += 1
    assert set(seen) <= set(law)
    assert sum(law.values()) == pytest.approx(1.0, rel=1e-12)
    frequent = [key for key, chance in law.items() if chance * samples >= 10.0]
    observed = np.array([seen[key] for key in frequent] + [samples - sum(seen[key] for key in frequent)])
    expected = samples * np.array([law[key] for key in frequent] + [1.0 - sum(law[key] for key in frequent)])
    kept = expected > 1e-6
    statistic = float((np.square(observed - expected)[kept] / expected[kept]).sum())
    assert statistic <= chi2.isf(1e-9, max(int(kept.sum()) - 1, 1))


@pytest.mark.parametrize(("others", "prob"), [(100_000, 0.01), (5_000, 0.4), (2_000_000, 0.002)])
def test_counts_of_many_are_binomial(others: int, prob: float) -> None:
    """The first two counts of a cold start, b = 2: Binomial(m, q), then Binomial(m - r_1, q).

    Chi-square in 40 cells of equal probability; each test fails by chance with probability 1e-9.
    """
    samples, cells = 20_000, 40
    rng = np.random.Generator(np.random.SFC64(6))
    counts = np.empty(2, dtype=np.int64)
    drawn = np.empty((samples, 2), dtype=np.int64)
    for row in drawn:
        draw_counts(rng, 2, prob, False, others, counts)
        row[:] = counts
    jitter = np.random.default_rng(7).random((samples, 2))
    for step, trials in enumerate((np.full(samples, others), others - drawn[:, 0])):
        below, at = binom.cdf(drawn[:, step] - 1, trials, prob), binom.pmf(drawn[:, step], trials, prob)
        level = below + jitter[:, step] * at  # uniform if and only if the counts are binomial
        seen = np.bincount(np.minimum((level * cells).astype(int), cells - 1), minlength=cells)
        statistic = float(np.square(seen - samples / cells).sum() / (samples / cells))
        assert statistic <= chi2.isf(1e-9, cells - 1)


GRID = np.linspace(-11.0, 13.0, 301)
Y = np.stack(np.meshgrid(GRID, GRID, indexing="ij"))


def density(means: dict[tuple[float, ...], float], dense: np.ndarray, sigma: float) -> np.ndarray:
    """Of a mixture of ``N(C v, sigma^2 I)`` in the plane, on the grid in units of sigma."""
    total = np.zeros(Y.shape[1:])
    for vector, chance in means.items():
        mean = dense @ np.array(vector) / sigma
        total += chance * np.exp(-0.5 * ((Y[0] - mean[0]) ** 2 + (Y[1] - mean[1]) ** 2)) / (2.0 * np.pi)
    return total


def divergence(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - exp(epsilon) * q, 0.0).sum() * (GRID[1] - GRID[0]) ** 2)


def pair_deltas(pair: TruncatedRenewal, epsilon: float) -> dict[Direction, float]:
    """Both profiles for two steps: counts by enumeration, the plane by quadrature."""
    single = participations(2, pair.min_sep, pair.participation_prob, pair.warm_start)
    dense, cap = pair.matrix.materialize(), pair.truncated_batch_size
    law: Counter[tuple[int, int]] = Counter()
    for others in product(single.items(), repeat=pair.num_examples - 1):
        counts = (sum(v[0] for v, _ in others), sum(v[1] for v, _ in others))
        law[counts] += float(np.prod([chance for _, chance in others]))  # type: ignore[assignment]
    deltas = dict.fromkeys(Direction, 0.0)
    for counts, chance in law.items():
        p = density(shifts(single, counts, cap, 1.0, 2.0), dense, pair.noise_multiplier)
        q = density(shifts(single, counts, cap, 0.0, -1.0), dense, pair.noise_multiplier)
        deltas[Direction.REMOVE] += chance * divergence(p, q, epsilon)
        deltas[Direction.ADD] += chance * divergence(q, p, epsilon)
    return deltas


def mechanism_density(pair: TruncatedRenewal, gradients: tuple[float, ...]) -> np.ndarray:
    """Of two steps with constant scalar gradients: all draws of all examples, all subsets that are kept."""
    single = participations(2, pair.min_sep, pair.participation_prob, pair.warm_start)
    cap = pair.truncated_batch_size
    sums: Counter[tuple[float, float]] = Counter()
    for draws in product(single.items(), repeat=len(gradients)):
        chance = float(np.prod([weight for _, weight in draws]))
        kept: list[list[tuple[float, float]]] = []
        for step in range(2):
            batch = [gradient for gradient, (vector, _) in zip(gradients, draws, strict=True) if vector[step]]
            choices = [tuple(batch)] if len(batch) <= cap else _subsets_of(batch, cap)
            kept.append([(sum(choice), 1.0 / len(choices)) for choice in choices])
        for (first, a), (second, b) in product(*kept):
            sums[first, second] += chance * a * b  # type: ignore[assignment]
    return density(dict(sums), pair.matrix.materialize(), pair.noise_multiplier)


def _subsets_of(batch: list[float], size: int) -> list[tuple[float, ...]]:
    picked = [mask for mask in product((0, 1), repeat=len(batch)) if sum(mask) == size]
    assert len(picked) == comb(len(batch), size)
    return [tuple(g for g, taken in zip(batch, mask, strict=True) if taken) for mask in picked]


@pytest.mark.parametrize(
    ("min_sep", "cap", "warm", "prob"), [(1, 1, False, 0.6), (2, 1, True, 0.4), (2, 2, False, 0.7), (1, 2, True, 0.8)]
)
def test_the_pair_dominates_the_mechanism(min_sep: int, cap: int, warm: bool, prob: float) -> None:
    """Three examples, two steps, constant gradients; the first example against a zero in its place."""
    matrix = (
        BandedMatrix(np.array([[1.0, 0.5], [0.7, 0.0]])) if min_sep == 2 else BandedMatrix(np.array([[1.0], [0.7]]))
    )
    pair = TruncatedRenewal(
        noise_multiplier=0.8,
        matrix=matrix,
        min_sep=min_sep,
        participation_prob=prob,
        warm_start=warm,
        truncated_batch_size=cap,
        num_examples=3,
    )
    worst = dict.fromkeys(product(Direction, (0.0, 1.0, 2.5)), 0.0)
    for others in ((-1.0, -1.0), (1.0, 1.0), (1.0, -1.0), (0.0, -1.0)):
        p, q = mechanism_density(pair, (1.0, *others)), mechanism_density(pair, (0.0, *others))
        for direction, epsilon in worst:
            first, second = (p, q) if direction is Direction.REMOVE else (q, p)
            worst[direction, epsilon] = max(worst[direction, epsilon], divergence(first, second, epsilon))
    for epsilon in (0.0, 1.0, 2.5):
        bound = pair_deltas(pair, epsilon)
        for direction in Direction:
            assert worst[direction, epsilon] <= bound[direction] * (1.0 + 1e-3) + 1e-9


def test_shift_one_against_zero_would_not_dominate() -> None:
    """One step, three examples, batches of one: pushing out an example of the opposite sign moves the output by 2.

    The tempting pair keeps the survivors apart from what they push out. The mechanism exceeds its profile.
    """
    pair = TruncatedRenewal(
        noise_multiplier=0.5,
        matrix=BandedMatrix(np.array([[1.0, 0.0], [1.0, 0.0]])),
        min_sep=2,
        participation_prob=1.0,
        warm_start=False,
        truncated_batch_size=1,
        num_examples=3,
    )
    dense = pair.matrix.materialize()
    tempting = density(shifts({(1, 0): 1.0}, (2, 0), 1, 1.0, 1.0), dense, 0.5)
    nothing = density({(0.0, 0.0): 1.0}, dense, 0.5)
    p, q = mechanism_density(pair, (1.0, -1.0, -1.0)), mechanism_density(pair, (0.0, -1.0, -1.0))
    assert divergence(p, q, 1.0) > 1.02 * divergence(tempting, nothing, 1.0)
    assert divergence(p, q, 1.0) <= pair_deltas(pair, 1.0)[Direction.REMOVE]


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("warm", [False, True])
def test_samples_average_to_the_profile(direction: Direction, warm: bool) -> None:
    """Hoeffding's interval for values in [0, 1], failing by chance with probability 1e-9."""
    pair = TruncatedRenewal(
        noise_multiplier=1.0,
        matrix=BandedMatrix(np.array([[1.0, 0.5], [0.7, 0.0]])),
        min_sep=2,
        participation_prob=0.5,
        warm_start=warm,
        truncated_batch_size=1,
        num_examples=4,
    )
    (proposal,) = FAMILY.propose(pair, direction, 0.5)
    samples = 200_000
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(2)), log_weights, losses)
    assert not log_weights.any()
    width = sqrt(log(2.0 / 1e-9) / (2.0 * samples))
    for epsilon in (0.0, 0.5, 1.5):
        truth = pair_deltas(pair, epsilon)[direction]
        assert abs(float(np.maximum(-np.expm1(epsilon - losses), 0.0).mean()) - truth) <= width + 1e-4
    assert width < 0.2 * pair_deltas(pair, 0.5)[direction]


@pytest.mark.parametrize("warm", [False, True])
def test_without_truncation_it_is_the_plain_pair(warm: bool) -> None:
    """A cap that no batch can exceed: x is the participations, and the other distribution is a single Gaussian."""
    matrix, steps, prob = random_matrix(6, 2), 6, 0.4
    dense = matrix.materialize()
    half = 0.5 * np.square(dense).sum(axis=0)
    law = participations(steps, 2, prob, warm)
    rng = np.random.default_rng(3)
    for _ in range(5):
        y, counts = rng.normal(0.0, 2.0, steps), rng.integers(0, 10, steps)
        plain = sum(
            w * exp((dense @ np.array(v)) @ y - 0.5 * float(np.square(dense @ np.array(v)).sum()))
            for v, w in law.items()
        )
        never = (2, prob, warm, 10)
        assert density_at(dense, half, never, y, counts, 1.0, 2.0) == pytest.approx(log(plain), rel=1e-11)
        assert density_at(dense, half, never, y, counts, 0.0, -1.0) == pytest.approx(0.0, abs=1e-13)


def mechanism(bands: int = 3, **sampler: object) -> hs.Mechanism:
    chosen = hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=20, **sampler)  # type: ignore[arg-type]
    return hs.Mechanism(strategy=hs.BandedSquareRoot(bands=bands), sampler=chosen, noise_multiplier=1.5)


def test_pair_of_a_mechanism() -> None:
    pair = from_b_min_sep(mechanism(truncated_batch_size=7, num_examples=100))
    dense = pair.matrix.materialize()
    spaced = max(float(np.linalg.norm(dense[:, first::4].sum(axis=1))) for first in range(4))
    assert pair.full_sensitivity == pytest.approx(spaced, rel=1e-10)
    assert pair.participation_prob == pytest.approx(0.05 / (1.0 - 0.15), rel=1e-14)
    assert (pair.truncated_batch_size, pair.num_examples, pair.min_sep, pair.warm_start) == (7, 100, 4, True)
    assert not pair.batches_are_public


def test_what_cannot_be_sampled_is_refused() -> None:
    pair = from_b_min_sep(mechanism(truncated_batch_size=7, num_examples=100))
    assert FAMILY.refusal(pair, Side.UPPER) is None
    assert "from above only" in str(FAMILY.refusal(pair, Side.LOWER))
    wide = from_b_min_sep(mechanism(bands=5, truncated_batch_size=7, num_examples=100))
    assert "at most min_sep = 4 bands, not 5" in str(FAMILY.refusal(wide, Side.UPPER))
    assert isinstance(FAMILY.build(pair, Direction.ADD, "naive", {}), NaiveTruncated)
    with pytest.raises(InvalidInputError, match="'proposal' field must be 'naive' with nothing or 'renewal_mean'"):
        FAMILY.build(pair, Direction.ADD, "mean", {"beta": 1.0})


def test_same_seed_same_samples_and_large_sizes() -> None:
    pair = TruncatedRenewal(
        noise_multiplier=0.5,
        matrix=ToeplitzMatrix(np.array([1.0, 0.5, 0.25]), 300),
        min_sep=16,
        participation_prob=0.01,
        warm_start=True,
        truncated_batch_size=900,
        num_examples=100_000,
    )
    proposal = NaiveTruncated(direction=Direction.REMOVE, pair=pair)
    drawn = np.empty((2, 2, 50))
    for sample in drawn:
        proposal.draw(np.random.Generator(np.random.SFC64(9)), sample[0], sample[1])
    assert np.array_equal(drawn[0], drawn[1])
    assert np.isfinite(drawn).all()
    assert proposal.weight_bound(3.0) == 1.0
