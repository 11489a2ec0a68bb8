"""Chains of counts for Poisson sampling with many bands: each weighs its counts no less than all their tuples do."""

from itertools import product
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from history_oracle import among, chances_of, limited, whole_of
from kept_whole import whole_excess
from many_bands_cases import above_of, pair_of

from hockeystick.moments.copies.fields import Waits, chain_table, split
from hockeystick.monte_carlo.far import chains
from hockeystick.monte_carlo.far.chains import chain_of
from hockeystick.monte_carlo.far.kept_counts import draw_counts
from hockeystick.monte_carlo.far.limits import Limits, greatest_field
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.monte_carlo.weighing import OTHER_SHARE, TILTED_SHARE
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.types import Side


@pytest.mark.parametrize("least_gain", [inf, -inf])
@pytest.mark.parametrize(("order", "decay"), [(2, 0.5), (2, 0.9), (3, 0.8)])
@pytest.mark.parametrize(("block", "limit"), [(2, 1), (16, 1), (16, 2), (16, 4)])
@pytest.mark.parametrize(("steps", "coins"), [(4, 1), (3, 2)])
def test_the_chain_of_counts_dominates_the_weights_of_limited_counts(
    order: int,
    decay: float,
    block: int,
    limit: int,
    steps: int,
    coins: int,
    least_gain: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chain is followed through its states and nodes; counts are those of all tuples of histories."""
    own = columns_for(pair_of(steps, 0.2, 1.2, coins=coins), Side.UPPER)
    monkeypatch.setattr(chains, "LEAST_GAIN", least_gain)  # whether blocks are counted
    chain = chain_of.__wrapped__(own, order, decay, Limits(block, limit))
    assert (chain.tables.waits.free.size > 1) == (least_gain < 0.0)
    _, pulls, squares, (chances,), nodes, pulled, _, _, (free, within, shifted, bonus, freed) = chain.tables
    assert (free == order * coins).all()
    gram = whole_of(own).T @ whole_of(own)
    for u, v in product(range(steps), repeat=2):
        assert u >= v or pulls[u] * decay ** (v - u) >= gram[u, v]
    wanted: dict[tuple[int, ...], float] = {}
    few = limited(own, block, limit)
    for picked in product(range(len(few)), repeat=order):
        tuples = few[list(picked)]
        counts = tuple(int(count) for count in tuples.sum(axis=0))
        wanted[counts] = wanted.get(counts, 0.0) + float(chances_of(own, tuples).prod())
    total = 0.0
    for counts in product(range(order * coins + 1), repeat=steps):
        j = np.array(counts)
        exponent = 0.5 * (j @ gram @ j - np.diag(gram) @ j)
        state, places = 0, {0: 1.0}  # the weight of each field so far
        for u, count in enumerate(counts):
            following: dict[int, float] = {}
            allowed = freed[state, count]
            state = within[state, count]
            if u % bonus.size == bonus.size - 1:
                state = shifted[state]
            for place, weight in places.items():
                factor = weight * allowed * chances[-1][count] * pulled[place] ** count
                factor *= exp(squares[u] * count * (count - 1) / 2)
                below, share = split(decay * (nodes[place] + pulls[u] * count), nodes)
                following[below] = following.get(below, 0.0) + factor * (1.0 - share)
                following[below + 1] = following.get(below + 1, 0.0) + factor * share
            places = following
        assert sum(places.values()) >= wanted.get(counts, 0.0) * exp(exponent) * (1.0 - 1e-12)
        if sum(places.values()) == 0.0:
            continue
        own_weight = exp(exponent) * float(chances[-1][j].prod())
        excess = whole_excess(j.astype(float), own, chain)
        assert excess == pytest.approx(log(sum(places.values()) / own_weight), abs=1e-7)  # squares are raised by 1e-9
        total += sum(places.values())
    assert exp(chain.log_norm) == pytest.approx(total, rel=1e-10)


def test_the_chain_draws_counts_with_its_chances() -> None:
    own = columns_for(pair_of(2, 0.3, 1.0), Side.UPPER)
    chain = chain_of(own, 2, 0.9, Limits(16, 4))
    _, pulls, squares, (chances,), nodes, pulled = chain.tables[:6]
    assert chain.tables.waits.free.size == 1  # nothing is counted, as that gains nothing here
    rng, picked = np.random.default_rng(9), np.zeros((3, 3))
    counts = np.empty(2)
    drawn = 20000
    for _ in range(drawn):
        draw_counts(rng, chain.tables, 0, 2, 0, 0, counts)
        picked[int(counts[0]), int(counts[1])] += 1.0
    for first, second in product(range(3), repeat=2):
        weight = 0.0
        below, share = split(0.9 * pulls[0] * first, nodes)
        for place, part in ((below, 1.0 - share), (below + 1, share)):
            weight += (
                part
                * chances[-1][first]
                * exp(squares[0] * first * (first - 1) / 2)
                * (chances[-1][second] * exp(squares[1] * second * (second - 1) / 2) * pulled[place] ** second)
            )
        chance = weight / exp(chain.log_norm)
        assert abs(picked[first, second] / drawn - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / drawn) + 1e-9


def test_a_chain_that_keeps_the_limit_of_blocks_has_no_more_counts_and_a_smaller_norm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, limit = columns_for(pair_of(40, 0.1, 5.0, slowness=0.2), Side.UPPER), Limits(16, 3)
    chain = chain_of(own, 3, 0.97, limit)
    assert chain.tables.waits.free.size == 3 * limit.most + 1
    monkeypatch.setattr(chains, "LEAST_GAIN", inf)
    assert chain.log_norm < chain_of.__wrapped__(own, 3, 0.97, limit).log_norm - 100.0
    rng, counts, most = np.random.default_rng(2), np.empty(40), 0.0
    for _ in range(200):
        draw_counts(rng, chain.tables, 0, 40, 0, 0, counts)
        most = max(most, *(counts[first : first + 16].sum() for first in (0, 16, 32)))
    assert most == 3 * limit.most


@pytest.mark.parametrize(("coins", "order"), [(2, 2), (3, 2), (2, 3)])
def test_counts_are_given_up_as_often_as_the_chain_weighs_too_much(coins: int, order: int) -> None:
    """What is kept has the mass of the power of X'_A over Z: no less, or the mean of the samples would be too small."""
    pair = pair_of(3, 0.2, 4.0, coins=coins)
    own, above = columns_for(pair, Side.UPPER), above_of(pair, order=order)
    limit = Limits(above.block, above.limit)
    few = limited(own, above.block, above.limit)
    chances, gram = chances_of(own, few), whole_of(own).T @ whole_of(own)
    mass = 0.0
    for picked in product(range(len(few)), repeat=order):
        tuples = few[list(picked)]
        both = tuples.sum(axis=0)
        exponent = 0.5 * float(both @ gram @ both - np.diag(gram) @ both) - among(own, tuples).sum()
        mass += float(chances[list(picked)].prod()) * exp(exponent)
    kept = mass / exp(chain_of(own, order, above.decay, limit).log_norm)
    assert kept > 0.05
    log_weights, losses = np.empty(40000), np.empty(40000)
    above.draw(np.random.default_rng(12), log_weights, losses)
    given_up, chance = (losses == -ENDLESS).mean(), TILTED_SHARE * (1.0 - OTHER_SHARE) * (1.0 - kept)
    assert abs(given_up - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / losses.size)


def test_a_cap_leaves_the_field_its_mean() -> None:
    """Jensen's inequality asks for the mean of what is used; rounding moves single fields beyond the cap."""
    own = columns_for(pair_of(60, 0.02, 3.0, slowness=0.3), Side.UPPER)
    limit = Limits(16, 2)
    order, decay = 2, 0.97
    chain = chain_of(own, order, decay, limit)
    pulls, nodes, pulled = chain.tables.pulls, chain.tables.nodes, chain.tables.pulled
    used, worst = np.log(pulled), greatest_field(own, limit) * order
    fullest = np.zeros(60)
    fullest[14:18] = fullest[46:50] = order
    law = np.zeros(nodes.size)
    law[0] = 1.0
    gram = whole_of(own).T @ whole_of(own)
    for u in range(60):
        exact = float(fullest[:u] @ gram[:u, u])
        assert exact <= worst
        assert law @ used >= exact
        moved = np.zeros(nodes.size)
        for place in np.flatnonzero(law):
            below, share = split(decay * (nodes[place] + pulls[u] * fullest[u]), nodes)
            moved[below] += law[place] * (1.0 - share)
            moved[below + 1] += law[place] * share
        law = moved
    assert used.max() < nodes[-1]  # the cap matters in this case


def test_a_table_that_leaves_doubles_proves_nothing() -> None:
    huge = np.full(3, 200.0)
    nodes = 800.0 * np.linspace(0.0, 1.0, 8) ** 2
    chances = np.array([[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.5, 0.25, 0.25]])
    none = np.zeros(1, dtype=np.int64)
    waits = Waits(np.array([2]), np.zeros((1, 3), dtype=np.int64), none, np.ones(1), np.ones((1, 3)))
    table, logs = chain_table(huge, huge, chances[None], waits, 0.9, nodes, 800.0, 0.0)
    assert not (np.isfinite(table).all() and np.isfinite(logs).all())
