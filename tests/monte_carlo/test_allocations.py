"""Random allocation with independent noise: the kernels against enumeration, and bounds against the truth."""

import pickle
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb, exp, fsum, log, sqrt

import numpy as np
import pytest
from history_oracle import assert_same, interval
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from numba import njit

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.moments.copies.allocations import copies_of, joined_weights
from hockeystick.monte_carlo.allocations.family import (
    FAMILY,
    LEAST_JOINED,
    TILTED_SHARE,
    CopiedAllocation,
    MeanAllocation,
    NaiveAllocation,
    joinable,
)
from hockeystick.monte_carlo.allocations.kernels import add_copies, chance, log_ratio
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.types import Direction, Side


def pair(bins: int, visits: int, sigma: float, epochs: int = 1) -> AveragedSteps:
    return AveragedSteps(noise_multiplier=sigma, bins=bins, participations=visits, epochs=epochs)


def copied(averaged: AveragedSteps, order: int) -> CopiedAllocation:
    return CopiedAllocation(direction=Direction.REMOVE, pair=averaged, order=order)


@given(
    y=st.lists(st.floats(-6.0, 6.0), min_size=2, max_size=8),
    part=st.floats(0.0, 1.0),
    sigma=st.floats(0.3, 20.0),
)
def test_the_ratio_is_the_mean_over_all_sets_of_visits(y: list[float], part: float, sigma: float) -> None:
    """Against sums of exponentials in 30 digits, within the error that is charged."""
    visits = 1 + round(part * (len(y) - 2))
    with mp.workdps(30):
        logs = [(mpf(output) - mpf("0.5")) / mpf(sigma) ** 2 for output in y]
        sets = list(combinations(logs, visits))
        exact = mp.log(sum(mp.exp(sum(visited)) for visited in sets) / len(sets))
        logarithm = log_ratio(np.array(y), visits, sigma, np.empty(visits + 1))
        assert abs(logarithm - exact) <= NaiveAllocation(
            direction=Direction.REMOVE, pair=pair(len(y), visits, sigma)
        ).rounding(1.0)


@pytest.mark.parametrize("far", [0.0, 12.0, -12.0])
def test_the_ratio_keeps_its_digits_in_long_runs(far: float) -> None:
    """Outputs that take two values only: a sum over how many visits met each, in 40 digits."""
    bins, visits, sigma, many = 3000, 40, 0.7, 25
    y = np.full(bins, -0.3)
    y[:many] += far
    with mp.workdps(40):
        low, high = (mp.exp((mpf(float(v)) - mpf("0.5")) / mpf(sigma) ** 2) for v in (y[-1], y[0]))
        total = sum(
            comb(many, j) * comb(bins - many, visits - j) * high**j * low ** (visits - j) for j in range(many + 1)
        )
        exact = mp.log(total / comb(bins, visits))
        logarithm = log_ratio(y, visits, sigma, np.empty(visits + 1))
        assert abs(logarithm - exact) <= copied(pair(bins, visits, sigma), 2).rounding(1.0)
    assert copied(pair(bins, visits, sigma), 2).rounding(1.0) < 1e-6


@pytest.mark.parametrize(("sigma", "order"), [(0.15, 5), (0.4, 12), (1.0, 12), (7.0, 12), (1000.0, 12)])
def test_weights_of_joined_copies_add_up_to_what_copies_have_in_common(sigma: float, order: int) -> None:
    joined = joined_weights(order, sigma)
    assert joined[:2] == [1.0, 0.0]
    assert min(joined[2:]) > 0.0
    for copies in range(order + 1):
        total = fsum(comb(copies, size) * joined[size] for size in range(copies + 1))
        pairs = 0.5 * copies * (copies - 1)
        error = (8.0 * copies**2 + 5.0 * pairs / sigma**2 + 2.0) * 2.0**-53
        assert total == pytest.approx(exp(pairs / sigma**2), rel=error + pairs / sigma**2 * 2.0**-52)


@pytest.mark.parametrize("sigma", [0.5, 30.0])
def test_weights_of_joined_copies_are_those_of_graphs_without_isolated_vertices(sigma: float) -> None:
    """Where they are small, they are no difference of large numbers: against all graphs, exactly."""
    edge = Fraction(float(np.expm1(1.0 / sigma**2)))
    for size, weight in enumerate(joined_weights(4, sigma)):
        pairs = list(combinations(range(size), 2))
        total = Fraction(0)
        for chosen in product((False, True), repeat=len(pairs)):
            ends = {end for joined, taken in zip(pairs, chosen, strict=True) if taken for end in joined}
            if len(ends) == size:
                total += edge ** sum(chosen)
        assert weight == pytest.approx(float(total), rel=1e-13)


def tuples(bins: int, visits: int, order: int) -> Iterator[np.ndarray]:
    """Counts of the visits of every tuple of sets; shape (bins,)."""
    for sets in product(combinations(range(bins), visits), repeat=order):
        counts = np.zeros(bins, np.int64)
        for visited in sets:
            counts[list(visited)] += 1
        yield counts


def kept_chances(averaged: AveragedSteps, order: int) -> dict[tuple[int, ...], float]:
    """By counts, the chance with which tuples are to be kept."""
    zeta = exp(copies_of(order, averaged.participations / averaged.bins, averaged.noise_multiplier).log_zeta)
    chances: dict[tuple[int, ...], float] = {}
    for counts in tuples(averaged.bins, averaged.participations, order):
        weight = exp(float((counts * (counts - 1)).sum()) / (2.0 * averaged.noise_multiplier**2))
        key = tuple(int(count) for count in counts)
        chance_of_it = weight / comb(averaged.bins, averaged.participations) ** order / zeta**averaged.bins
        chances[key] = chances.get(key, 0.0) + chance_of_it
    return chances


@njit
def draw_many(rng, visits, order, more, kept, bins, drawn):
    work = (
        np.zeros(bins, np.int64),
        np.empty(order * visits, np.int64),
        np.empty(order * visits, np.int64),
        np.empty(order, np.int64),
    )
    tag = 0
    for sample in range(drawn.shape[0]):
        drawn[sample] = 0
        if not add_copies(rng, visits, order, more, kept, tag, work, drawn[sample]):
            drawn[sample] = -1
        tag += order


SMALL = [(pair(4, 2, 1.3), 3), (pair(5, 1, 0.9), 3), (pair(4, 3, 2.0), 3), (pair(3, 2, 1.5), 3), (pair(5, 2, 1.5), 2)]


@pytest.mark.parametrize(("one", "order"), SMALL)
def test_copies_are_kept_with_their_weight(one: AveragedSteps, order: int) -> None:
    """Each of at most 120 cells within 6.2 standard errors: failure probability below 1e-7."""
    bins, visits, drawn = one.bins, one.participations, 400_000
    exact = kept_chances(one, order)
    falling = [(visits - m) / (bins - m) * bins / visits for m in range(visits)]
    kept = np.cumprod([1.0, *falling])
    counts = np.empty((drawn, bins), np.int64)
    more = copies_of(order, visits / bins, one.noise_multiplier).more
    draw_many(np.random.default_rng(5), visits, order, more, kept, bins, counts)
    picked: dict[tuple[int, ...], int] = {}
    for row, times in zip(*np.unique(counts, axis=0, return_counts=True), strict=True):
        picked[tuple(int(count) for count in row)] = int(times)
    given_up = picked.pop((-1,) * bins, 0)
    assert set(picked) <= set(exact)
    kept_chance = sum(exact.values())
    assert 0.02 < kept_chance < 0.98
    assert abs((drawn - given_up) / drawn - kept_chance) <= 6.2 * sqrt(kept_chance / drawn)
    for key, expected in exact.items():
        assert abs(picked.get(key, 0) / drawn - expected) <= 6.2 * sqrt(expected / drawn) + 4.0 / drawn


def test_small_chances_are_met() -> None:
    """3 of 2^23, in 2^25 draws: 12 on the average, and from 1 to 40 with a failure probability below 1e-5."""

    @njit
    def hits(rng, prob, draws):
        count = 0
        for _ in range(draws):
            count += chance(rng, prob)
        return count

    rng = np.random.default_rng(2)
    assert 1 <= hits(rng, 3.0 * 2.0**-23, 1 << 25) <= 40
    assert abs(hits(rng, 0.3, 1 << 20) - 0.3 * (1 << 20)) <= 6.2 * sqrt(0.21 * (1 << 20))
    assert hits(rng, 0.0, 1 << 20) == 0


def truth(averaged: AveragedSteps, epsilon: float, direction: Direction) -> float:
    """The profile, by a midpoint rule over up to three steps in all; good to one in a thousand."""
    points, reach, sigma = 200, 7.5, averaged.noise_multiplier
    steps = averaged.bins * averaged.epochs
    axis = (np.arange(points) + 0.5) / points * 2.0 * reach * sigma - reach * sigma + 0.5
    grids = np.meshgrid(*[axis] * steps, indexing="ij", sparse=True)
    density, ratio = 1.0, 1.0
    for epoch in range(averaged.epochs):
        own = grids[epoch * averaged.bins : (epoch + 1) * averaged.bins]
        sets = list(combinations(range(averaged.bins), averaged.participations))
        ratio = ratio * sum(np.exp(sum((own[i] - 0.5) / sigma**2 for i in chosen)) for chosen in sets) / len(sets)
    for grid in grids:
        density = density * np.exp(-0.5 * (grid / sigma) ** 2) / (sigma * sqrt(2.0 * np.pi)) * (axis[1] - axis[0])
    if direction is Direction.REMOVE:
        return float((density * np.maximum(ratio - exp(epsilon), 0.0)).sum())
    return float((density * np.maximum(1.0 - exp(epsilon) * ratio, 0.0)).sum())


@pytest.mark.parametrize("epsilon", [0.4, 1.2])
@pytest.mark.parametrize("one", [pair(2, 1, 1.1), pair(3, 1, 0.9), pair(3, 2, 1.5)])
@pytest.mark.parametrize("direction", Direction)
def test_samples_average_to_the_profile(one: AveragedSteps, epsilon: float, direction: Direction) -> None:
    """Every proposal; betting bounds that fail with probability 1e-9 each."""
    exact = truth(one, epsilon, direction)
    for seed, proposal in enumerate(FAMILY.propose(one, direction, epsilon)):
        lower, upper = interval(proposal, epsilon, 100_000, seed)
        assert lower <= 1.001 * exact
        assert upper >= 0.999 * exact
        assert upper <= 1.25 * lower


def test_epochs_are_independent() -> None:
    """Two epochs of one visit to two steps, whose law is known."""
    averaged = pair(2, 1, 2.2, epochs=2)
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=2, epochs=2), noise_multiplier=2.2)
    epsilon = 0.5
    for direction in Direction:
        low, high = (
            hs.bound(run, "direct", side=side).profiles[direction](epsilon) for side in (Side.LOWER, Side.UPPER)
        )
        for seed, proposal in enumerate(FAMILY.propose(averaged, direction, epsilon)):
            lower, upper = interval(proposal, epsilon, 100_000, seed)
            assert lower <= high
            assert upper >= low
            assert upper <= 1.25 * lower


@pytest.mark.parametrize(
    ("one", "epsilon"), [(pair(200, 1, 0.6), 1.5), (pair(60, 6, 1.4), 2.5), (pair(30, 2, 1.5, 4), 1.5)]
)
def test_the_proposal_reaches_small_deltas(one: AveragedSteps, epsilon: float) -> None:
    """Within the blocks from above and sums over the steps from below, where a sample of P shows next to nothing."""
    sampler = hs.RandomAllocation(bins=one.bins, participations=one.participations, epochs=one.epochs)
    run = hs.Mechanism(sampler=sampler, noise_multiplier=one.noise_multiplier)
    highest = hs.bound(run, "direct", side=Side.UPPER).profiles[Direction.REMOVE](epsilon)
    below = "direct" if one.participations == 1 else "projection"
    lowest = hs.bound(run, below, side=Side.LOWER).profiles[Direction.REMOVE](epsilon)
    assert 1e-7 < lowest < 1e-3
    proposal = FAMILY.propose(one, Direction.REMOVE, epsilon)[0]
    assert isinstance(proposal, CopiedAllocation)
    lower, upper = interval(proposal, epsilon, 100_000, 3)
    assert lower <= highest
    assert upper >= lowest
    assert upper <= 1.3 * lower


def test_copies_are_given_up_as_often_as_their_weights_say() -> None:
    averaged, order = SMALL[0]
    chance_of_it = TILTED_SHARE * (1.0 - sum(kept_chances(averaged, order).values()))
    log_weights, losses = np.empty(100_000), np.empty(100_000)
    copied(averaged, order).draw(np.random.default_rng(4), log_weights, losses)
    given_up = (losses == -ENDLESS).mean()
    assert abs(given_up - chance_of_it) <= 6.2 * sqrt(chance_of_it / losses.size)


@pytest.mark.parametrize("direction", Direction)
def test_proposals_are_built_again_from_their_parameters(direction: Direction) -> None:
    averaged = pair(40, 3, 1.5, epochs=2)
    for proposal in FAMILY.propose(averaged, direction, 1.0):
        again = FAMILY.build(averaged, direction, proposal.name, proposal.parameters)
        for copy in (again, pickle.loads(pickle.dumps(proposal))):
            assert_same(proposal, copy)


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (Direction.REMOVE, "copies", {"order": 1.0}),
        (Direction.REMOVE, "copies", {"order": 65.0}),
        (Direction.REMOVE, "copies", {"order": 2.5}),
        (Direction.REMOVE, "mean", {"beta": 1.0}),
        (Direction.ADD, "copies", {"order": 3.0}),
        (Direction.ADD, "mean", {"beta": 0.0}),
        (Direction.ADD, "mean", {"beta": 1e300}),
    ],
)
def test_proposals_that_are_never_proposed_are_refused(
    direction: Direction, name: str, parameters: dict[str, float]
) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be 'naive' with nothing or"):
        FAMILY.build(pair(40, 3, 1.5), direction, name, parameters)


def test_orders_whose_weights_leave_the_range_of_doubles_or_of_random_numbers_are_not_proved() -> None:
    assert copied(pair(20, 2, 1.0), 5).proved
    assert not copied(pair(20, 2, 0.2), 20).proved
    assert copied(pair(20, 2, 0.2), 20).weight_bound(1.0) == np.inf
    assert joinable(pair(100_000, 1, 0.6), 10) is None  # that no sixth copy joins five is as good as never met
    rare = pair(10_000, 1, 5.0)
    assert joinable(rare, 2) is None
    least = copies_of(2, 1e-4, 5.0).more[0]
    assert least < LEAST_JOINED
    assert not copied(rare, 2).proved


def test_what_cannot_be_sampled_is_refused() -> None:
    everywhere, quiet, large = pair(4, 4, 1.0), pair(4, 2, 0.04), pair(20_000, 10_000, 80.0)
    for averaged, word in ((everywhere, "every batch"), (quiet, "more noise"), (large, "too long")):
        for side in Side:
            reason = FAMILY.refusal(averaged, side)
            assert reason is not None
            assert word in reason
    assert FAMILY.refusal(pair(4, 2, 0.1), Side.UPPER) is None
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=4, participations=4), noise_multiplier=1.0)
    with pytest.raises(UnsupportedError, match="every batch"):
        hs.bound(run, "monte_carlo", side=Side.UPPER, settings=hs.Settings(monte_carlo=hs.MonteCarlo(seed=1)))


def test_beta_is_the_best_of_those_that_are_tried() -> None:
    averaged = pair(4, 2, 3.0)
    proposal = FAMILY.propose(averaged, Direction.ADD, 1.0)[0]
    assert isinstance(proposal, MeanAllocation)
    for factor in (0.8, 1.25):
        other = MeanAllocation(direction=Direction.ADD, pair=averaged, beta=factor * proposal.beta)
        assert proposal.weight_bound(1.0) < other.weight_bound(1.0)
    drift, square = 2.0 / 9.0, 2.0 * 2.0 / 4.0 / 9.0
    beta = proposal.beta
    expected = -beta * (1.0 - 0.5 * drift) + 0.5 * beta**2 * square + beta * log(beta) - (beta + 1.0) * log(beta + 1.0)
    assert log(proposal.weight_bound(1.0)) == pytest.approx(expected, rel=1e-9)


def test_a_certificate_that_rests_on_copies_can_be_verified() -> None:
    """Several visits in an epoch: tighter than the blocks from above and than sums over the steps from below."""
    sampler = hs.RandomAllocation(bins=60, participations=6)
    run = hs.Mechanism(sampler=sampler, noise_multiplier=1.2)
    plain = hs.certify(run, delta=1e-4)
    certificate = hs.certify(run, delta=1e-4, monte_carlo=hs.MonteCarlo(seed=1, failure_probability=1e-6))
    assert certificate.method.upper == certificate.method.lower == "monte_carlo"
    assert certificate.monte_carlo is not None
    assert {claimed.run.proposal for claimed in certificate.monte_carlo.runs} == {"copies"}
    assert plain.bounds.lower is not None
    assert certificate.bounds.lower is not None
    assert plain.bounds.lower < certificate.bounds.lower <= certificate.bounds.upper < plain.bounds.upper
    hs.verify(certificate)
