"""Windows that are linked: against enumerated outcomes, and every rounding against exact fractions."""

from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from hockeystick.deadline import Deadline
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Array, Law
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side
from hockeystick.windows.linked_kernels import States, _joined, spread_pairs
from hockeystick.windows.linked_windows import (
    Detail,
    Grid,
    Laws,
    Run,
    _before,
    _shared,
    balanced,
    convex_above,
    linked_law,
    mixtures_above,
    owners_of,
)
from hockeystick.windows.participation_groups import added, coarser, cuts, lattice, whole

EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0)
COARSE = Resolution(24, 1e-4)


def exact(values: Array) -> list[Fraction]:
    return [Fraction(float(value)) for value in np.ravel(values)]


def contracted(scale: float, cells: int) -> tuple[Array, Array]:
    """A lognormal of mean 1, each of equally likely cells replaced by its mean: never above in convex order."""
    edges = ndtri(np.linspace(0.0, 1.0, cells + 1))
    return np.diff(ndtr(edges - scale)) * cells, np.full(cells, 1.0 / cells)


def run_below(scales: Array, steps: int, prob: float, warm: bool, cells: int) -> tuple[Array, Array]:
    """The ratio of a run of independent steps, whose ratios are contracted; all outcomes, with their chances.

    ``f_t = (1-q) f_(t+1) + q L_t f_(t+b)``, and the first step of availability mixes them.
    """
    size = scales.size
    laws = [contracted(float(scales[t % size - steps % size]), cells) for t in range(steps)]
    values = np.meshgrid(*[law[0] for law in laws], indexing="ij", sparse=True)
    chances = np.ones((1,) * steps)
    for which, law in enumerate(laws):
        chances = chances * law[1].reshape([-1 if axis == which else 1 for axis in range(steps)])
    later = [np.ones((1,) * steps)] * (size + 1)
    ratios = []
    for t in range(steps - 1, -1, -1):
        later = [(1.0 - prob) * later[0] + prob * values[t] * later[size - 1], *later[:-1]]
        ratios.append(later[0])
    ratios.reverse()
    if not warm:
        return np.broadcast_to(ratios[0], chances.shape), chances
    every = 1.0 + (size - 1) * prob
    whole_run = ratios[0] / every
    for late in range(1, size):
        whole_run = whole_run + prob / every * (ratios[late] if late < steps else 1.0)
    return np.broadcast_to(whole_run, chances.shape), chances


def deltas(ratios: Array, chances: Array) -> Array:
    remove = [float((np.maximum(ratios - exp(eps), 0.0) * chances).sum()) for eps in EPSILONS]
    return np.array([remove, [float((np.maximum(1.0 - exp(eps) * ratios, 0.0) * chances).sum()) for eps in EPSILONS]])


def of_law(law: Law) -> Array:
    return np.array([[law_delta(law, eps, direction) for eps in EPSILONS] for direction in Direction])


def linked(
    scales: Array, steps: int, prob: float, warm: bool, detail: Detail, resolution: Resolution, correlation: float = 0.0
) -> Law:
    size = scales.size
    windows = -(-steps // size) - 1
    run = Run(steps - windows * size, windows, size if warm else None)
    places, masses = np.array([1e-2, 0.8, 1.0, 1.5, 60.0]), np.array([0.01, 0.3, 0.4, 0.28, 0.01])
    wide = Law(places, masses, 0.0, Side.UPPER, 0.0, 0.0)  # says only where nodes are
    return linked_law(scales, correlation, prob, run, wide, detail, resolution, Deadline())


@pytest.mark.parametrize("seed", range(24))
def test_never_below_a_contraction_of_the_truth(seed: int) -> None:
    """Up to six independent steps; a contraction is below the truth at every epsilon, so no tolerance is needed."""
    rng = np.random.default_rng([61, seed])
    size, steps = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    scales = np.full(size, rng.uniform(0.3, 1.5)) if seed % 2 else rng.uniform(0.2, 1.5, size)
    prob, warm = float(rng.uniform(0.03, 0.8)), bool(seed % 3)
    if steps < size:
        steps = size
    detail = Detail(int(rng.integers(1, 5)), ((0.0, 1.0), (0.0, 0.5, 1.0), (0.0, 0.3, 0.6, 1.0))[seed % 3])
    below = deltas(*run_below(scales, steps, prob, warm, 12 if steps < 5 else 7))
    computed = of_law(linked(scales, steps, prob, warm, detail, COARSE))
    assert (computed >= below - 1e-12).all()
    assert (computed <= 3.0 * below + 0.1).all()  # few cells: the contraction is rough


@pytest.mark.parametrize("warm", [True, False])
def test_little_is_lost_when_all_is_kept(warm: bool) -> None:
    """Two windows, a group for each step, and many shares: what is left is that j is revealed after a window."""
    scales, prob = np.full(2, 0.8), 0.3
    detail = Detail(2, tuple(np.linspace(0.0, 1.0, 11)))
    below = deltas(*run_below(scales, 4, prob, warm, 24))
    computed = of_law(linked(scales, 4, prob, warm, detail, Resolution(68, 1e-4)))
    assert (computed >= below).all()
    assert (computed <= 1.03 * below + 9e-3).all()  # equally likely cells are rough in the upper tail


def test_one_window_is_exact_from_a_warm_start() -> None:
    """A run of b steps takes part with the same chance at each: nothing is revealed, and only laws are rounded."""
    scales, prob = np.array([0.5, 1.0, 0.7]), 0.4
    below = deltas(*run_below(scales, 3, prob, True, 60))
    computed = of_law(linked(scales, 3, prob, True, Detail(3, (0.0, 1.0)), Resolution(68, 1e-4)))
    assert (computed >= below).all()
    assert (computed <= 1.02 * below + 4e-3).all()  # as above


def test_a_chain_never_falls_below_its_windows() -> None:
    """Correlated steps: two windows of two steps by a sum over all states, in both directions."""
    axis = np.linspace(-6.0, 7.5, 46)
    weight = np.exp(-0.5 * axis**2) / sqrt(2.0 * np.pi) * (axis[1] - axis[0])
    scales, rho, prob = np.array([1.1, 0.8]), 0.6, 0.35
    first = np.exp(scales[0] * axis - 0.5 * scales[0] ** 2)[:, None]
    state = rho * axis[:, None] + sqrt(1.0 - rho**2) * axis[None, :]
    second, both = np.exp(scales[1] * state - 0.5 * scales[1] ** 2), weight[:, None] * weight[None, :]
    first_ratio, second_ratio, many = np.broadcast_to(first, state.shape).ravel(), second.ravel(), both.ravel()
    inner = [
        (1.0 - prob) ** 2 + prob * first_ratio + prob * (1.0 - prob) * second_ratio,
        (1.0 - prob) + prob * second_ratio,
    ]
    ratios = (1.0 - prob) ** 2 * inner[0][None, :] + prob * first_ratio[:, None] * inner[0][None, :]
    ratios += prob * (1.0 - prob) * second_ratio[:, None] * inner[1][None, :]
    truth = deltas(ratios, many[:, None] * many[None, :])
    computed = of_law(linked(scales, 4, prob, False, Detail(2, (0.0, 0.5, 1.0)), COARSE, rho))
    assert (computed >= truth - 1e-4).all()  # of the sum over the grid
    assert (computed <= 1.15 * truth + 5e-3).all()


# Roundings


def test_terms_are_added_with_the_mean_of_every_group() -> None:
    """All terms of a sum are scaled alike, so the mean of each group's terms stays; checked in fractions."""
    rng = np.random.default_rng(7)
    grid, laws = np.array([0.0, 0.1, 0.25, 0.5, 2.0]), rng.uniform(0.0, 1.0, (3, 5, 2))
    laws[:, 3:] = 0.0
    terms = np.array([0.01, 0.3, 5.0])
    owners = np.array([0.25, 0.75])
    split, excess = added(grid, laws, terms, owners)
    for s in range(3):
        total = sum(exact(laws[s]))
        for g in range(2):
            before = sum(x * m for x, m in zip(exact(grid), exact(laws[s, :, g]), strict=True))
            after = sum(x * m for x, m in zip(exact(grid), exact(split[s, :, g]), strict=True))
            before += Fraction(float(owners[g])) * Fraction(float(terms[s])) * total
            if s < 2:
                assert after == pytest.approx(before, rel=1e-14)
                assert excess[s] == 0.0
        assert float(split[s].sum()) == pytest.approx(float(total), rel=1e-14)
        whole_mean = sum(x * sum(exact(split[s, i])) for i, x in enumerate(exact(grid))) + Fraction(float(excess[s]))
        values = [x + Fraction(float(terms[s])) for x in exact(grid)]
        assert float(whole_mean) == pytest.approx(
            float(sum(v * sum(exact(laws[s, i])) for i, v in enumerate(values))), rel=1e-14
        )


def test_pairs_are_split_in_the_shares_of_their_terms() -> None:
    rng = np.random.default_rng(8)
    nodes, target = np.array([0.0, 0.2, 0.7]), np.array([0.0, 0.3, 0.45, 0.6])
    first, second = rng.uniform(0.0, 1.0, (3, 3, 2)), np.zeros((3, 3, 2))
    second[:, :, 1] = first.sum(axis=2)  # what is before belongs to two groups, what is after to the second
    share, scale = 0.4, 1.3
    split, excess = spread_pairs(nodes, first, second, share, scale, target)
    mass, mean, over = Fraction(0), Fraction(0), Fraction(0)
    own = Fraction(0)
    for i, x in enumerate(exact(share * nodes)):
        for j, y in enumerate(exact(scale * nodes)):
            m = sum(exact(first[i, j]))
            mass, mean = mass + m, mean + m * (x + y)
            if x + y > Fraction(float(target[-1])):
                over += m * (x + y - Fraction(float(target[-1])))
            if 0 < x + y <= Fraction(float(target[-1])):
                own += exact(first[i, j])[0] * x
            elif x + y > 0:
                own += exact(first[i, j])[0] * x * Fraction(float(target[-1])) / (x + y)
    assert split.sum() == pytest.approx(float(mass), rel=1e-14)
    assert excess == pytest.approx(float(over), rel=1e-13)
    assert split.sum(axis=1) @ target + excess == pytest.approx(float(mean), rel=1e-13)
    assert split[:, 0] @ target == pytest.approx(float(own), rel=1e-13)


def test_coarser_nodes_keep_means() -> None:
    grid, laws = np.array([0.0, 0.1, 0.3, 0.4, 1.0]), np.random.default_rng(9).uniform(0.0, 1.0, (2, 5, 3))
    split = coarser(grid, laws, grid[[0, 2, 4]])
    np.testing.assert_allclose(split.sum(axis=1), laws.sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(np.einsum("smg,m->sg", split, grid[[0, 2, 4]]), np.einsum("sng,n->sg", laws, grid))


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.9])
def test_a_lattice_has_the_exponential_moments_of_a_chain(correlation: float) -> None:
    chain, a = lattice(correlation, 1.0, 6.0, 1e-13), 0.8
    ratios = np.exp(a * chain.states - 0.5 * a**2 * chain.variance)
    assert chain.start @ ratios == pytest.approx(1.0, abs=1e-7)
    both = chain.leaving @ (chain.entering @ ratios)
    if correlation:
        noise = chain.variance * (1.0 - correlation**2)
        middle = np.abs(chain.states) < 4.0
        exact_means = np.exp(a * correlation * chain.states + 0.5 * a**2 * (noise - chain.variance))
        np.testing.assert_allclose(both[middle], exact_means[middle], rtol=1e-7)
    else:
        np.testing.assert_allclose(both, 1.0, atol=1e-7)


def small_states() -> tuple[States, Array, Array]:
    scales, prob, size = np.array([0.7, 0.9, 0.8]), 0.2, 3
    chain = lattice(0.5, 0.9, 6.0, 1e-12)
    ratios = np.exp(np.multiply.outer(scales, chain.states) - 0.5 * chain.variance * scales[:, None] ** 2)
    sums = np.concatenate([np.linspace(0.0, 1.0, 60), np.geomspace(1.05, 500.0, 60)])
    owners = np.array([[1.0, 0.0], [0.4, 0.6], [0.0, 1.0]])
    states = States(prob, size, sums, owners, np.array([0.0, 0.4, 1.0]), 0.05, np.arange(-20, 60))
    kernels = states.kernels(cuts(chain, sums, (prob * 0.8 ** np.arange(3.0))[:, None] * ratios, owners, Deadline()))
    law, _ = whole(chain, sums, (prob * 0.8 ** np.arange(3.0))[:, None] * ratios, owners, Deadline())
    assert law.sum() == pytest.approx(1.0, abs=1e-6)
    return states, kernels.masses, kernels.infinite + 0.0 * kernels.lost


def test_a_window_has_mean_one_in_every_state() -> None:
    states, masses, infinite = small_states()
    assert masses.shape[:2] == (2 * 2 + 1, 2 * 2 + 1)
    np.testing.assert_allclose(masses.sum(axis=(1, 2)), 1.0, atol=1e-6)
    means = masses.sum(axis=1) @ np.exp(states.spacing * states.shifts) + infinite
    np.testing.assert_allclose(means, 1.0, atol=1e-6)


def test_windows_are_multiplied_upwards_at_both_ends() -> None:
    """Calls and puts are at least those of all pairs, for shifts that leave the grid on either side."""
    rng = np.random.default_rng(11)
    grid, shifts = Grid(0.1, 6, 7), np.array([-9, -4, -1, 0, 2, 5, 11])
    masses = rng.uniform(0.0, 1.0, (2, 3, shifts.size)) / 20.0
    laws = Laws(rng.uniform(0.0, 1.0, (3, 15)) / 15.0, np.array([0.01, 0.0, 0.02]))
    product = _before(_joined([(kernel, 0.003, 0.002) for kernel in masses]), laws, grid, shifts, 0.0)
    support = np.concatenate([[0.0], grid.nodes])
    places = np.exp(0.1 * shifts)
    for state in range(2):
        for c in np.linspace(0.01, 6.0, 60):
            calls = puts = 0.0
            for source in range(3):
                values = np.multiply.outer(places, support)
                weights = np.multiply.outer(masses[state, source], laws.masses[source])
                calls += float((weights * np.maximum(values - c, 0.0)).sum())
                calls += float(masses[state, source] @ places) * float(laws.infinite[source])
                puts += float((weights * np.maximum(c - values, 0.0)).sum())
            own = product.masses[state] @ np.maximum(support - c, 0.0) + product.infinite[state]
            assert own >= (calls + 0.003) * (1.0 - 1e-12)
            assert product.masses[state] @ np.maximum(c - support, 0.0) >= (puts + 0.002 * c) * (1.0 - 1e-12)


@pytest.mark.parametrize("theta", [0.0, 0.45, 1.0])
def test_mixtures_are_above_every_step_also_where_means_are_off(theta: float) -> None:
    """Masses and means of the members differ, in both directions, as roundings of a lattice make them."""
    rng = np.random.default_rng(12)
    grid = Grid(0.1, 30, 30)
    support = np.concatenate([[0.0], grid.nodes])
    masses = np.zeros((7, support.size))
    for which, row in enumerate(masses):  # two shares below 1, steps 2 to 4, and what is all available
        places = np.sort(rng.choice(np.arange(5, 55), 6, replace=False))
        row[places] = rng.uniform(0.5, 1.0, 6)
        row /= row.sum()
        other = places[0] if row @ support > 1.0 else places[-1]
        row[other] += abs(float(row @ (support - 1.0))) / abs(float(support[other]) - 1.0)
        row *= 1.0 + 1e-5 * rng.uniform(-1.0, 1.0)
        row[31] += 1e-5
        row[40 if which % 2 else 20] += 1e-3
    laws = Laws(masses, 1e-6 * rng.uniform(size=7))
    owners = np.array([[1.0, 0.0], [1.0, 0.0], [theta, 1.0 - theta], [0.0, 1.0]])
    shared = _shared(laws, owners, grid)
    assert shared.masses.shape[0] == 5
    for share in range(2):
        for step, weights in enumerate(owners):
            member = 3 * share + step - 1 if step else 6
            own = weights @ shared.masses[2 * share : 2 * share + 2]
            far = float(weights @ shared.infinite[2 * share : 2 * share + 2])
            for c in np.concatenate([support, support + 0.013]):
                calls = float(masses[member] @ np.maximum(support - c, 0.0)) + laws.infinite[member]
                puts = float(masses[member] @ np.maximum(c - support, 0.0))
                assert float(own @ np.maximum(support - c, 0.0)) + far >= calls * (1.0 - 1e-12)
                assert float(own @ np.maximum(c - support, 0.0)) >= puts * (1.0 - 1e-12)
            assert own.sum() >= masses[member].sum()


def test_a_convex_function_is_above_given_values() -> None:
    rng = np.random.default_rng(13)
    for _ in range(20):
        widths, values = rng.uniform(0.1, 1.0, 6), rng.uniform(0.0, 1.0, 7) * (rng.random(7) < 0.6)
        masses = convex_above(widths, values)
        places = np.concatenate([[0.0], np.cumsum(widths)])
        assert (masses >= 0.0).all()
        calls = np.maximum(places[None, 1:-1] - places[:, None], 0.0) @ masses[1:-1]
        calls += masses[-1]
        # The first mass is at the left end of the first cell; the i-th raises the slope of cells before place i.
        slopes = np.cumsum(masses[:-1][::-1])[::-1]
        heights = np.append(np.cumsum((slopes * widths)[::-1])[::-1], 0.0) + masses[-1]
        assert (heights >= values - 1e-12).all()
        assert (np.diff(slopes) <= 1e-15).all()
    exact = np.array([3.0, 1.5, 0.5, 0.25])
    masses = convex_above(np.ones(3), exact)
    np.testing.assert_allclose(np.cumsum(np.cumsum(masses[:-1][::-1]))[::-1] + masses[-1], exact[:-1])


@pytest.mark.parametrize(("size", "count"), [(1, 4), (2, 3), (3, 1), (9, 4), (40, 2)])
def test_steps_belong_to_knots_around_them(size: int, count: int) -> None:
    owners = owners_of(np.linspace(0.5, 1.0, size), 0.4, 0.05, count)
    np.testing.assert_allclose(owners.sum(axis=1), 1.0)
    assert ((owners > 0.0).sum(axis=1) <= 2).all()
    assert owners[0, 0] == owners[-1, -1] == 1.0
    assert owners.shape[1] <= max(count, 2)


def test_mixtures_are_above_every_step_of_any_chain() -> None:
    """Scales follow no formula, so the variance of what steps add may rise from one to the next, and fall again."""
    rng = np.random.default_rng(14)
    grid = Grid(0.2, 12, 12)
    support = np.concatenate([[0.0], grid.nodes])
    strikes = np.maximum(support[:, None] - support[13:], 0.0), np.maximum(support[:13] - support[:, None], 0.0)
    for _ in range(100):
        size = int(rng.integers(4, 20))
        owners = owners_of(np.exp(rng.normal(0.0, 0.4, size)), rng.uniform(0.0, 0.8), rng.uniform(0.02, 0.5), 5)
        masses, _, _ = balanced(support, rng.dirichlet(np.full(support.size, 0.1), size), np.zeros(size))
        infinite = 1e-6 * rng.random(size)
        raised, far = mixtures_above(support, masses, infinite, owners)
        mixed = owners @ raised
        assert (mixed @ strikes[0] + (owners @ far)[:, None] >= masses @ strikes[0] + infinite[:, None] - 1e-12).all()
        assert (mixed @ strikes[1] >= masses @ strikes[1] - 1e-12).all()
        assert (mixed.sum(axis=1) >= masses.sum(axis=1) - 1e-12).all()


def test_owners_are_numbers_where_steps_hardly_differ() -> None:
    assert np.isfinite(owners_of(np.ones(16), 0.0, 0.9, 6)).all()


def test_a_member_with_too_large_a_mean_is_below_its_group_at_every_place() -> None:
    """A narrow law whose mean exceeds its mass, beside a wide one that decides all calls above 1 and puts below."""
    grid = Grid(0.1, 30, 30)
    support = np.concatenate([[0.0], grid.nodes])
    narrow, wide = np.zeros((2, support.size))
    narrow[31], narrow[33] = 1.0, 1e-3
    wide[21], wide[41] = support[41] - 1.0, 1.0 - support[21]
    wide /= wide.sum()
    owners = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    shared = _shared(Laws(np.array([narrow, wide, wide]), np.zeros(3)), owners, grid)
    for c in np.concatenate([support, support + 0.013]):
        for pay in (np.maximum(support - c, 0.0), np.maximum(c - support, 0.0)):
            for member in (narrow, wide):
                assert shared.masses[1] @ pay + shared.infinite[1] >= (member @ pay) * (1.0 - 1e-12)
