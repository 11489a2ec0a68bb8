"""Chains of counts for examples that wait: each weighs its counts no less than all their tuples of histories do."""

from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from history_oracle import chances_of, histories, limited, whole_of
from kept_whole import whole_excess, whole_waited
from wide_cases import CASES, above_of, columns, pair_of

from hockeystick.moments.copies.fields import split, waits_of
from hockeystick.monte_carlo.far import chains
from hockeystick.monte_carlo.far.chains import Chain, chain_of
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.kept_counts import draw_counts
from hockeystick.monte_carlo.far.limits import Limits
from hockeystick.monte_carlo.weighing import OTHER_SHARE, TILTED_SHARE
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.renewal_mixture import RenewalMixture


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(("cells", "min_sep"), [(cells, sep) for sep in (2, 3, 5, 9) for cells in range(1, sep + 1)])
def test_copies_are_free_when_their_histories_may_go_on(cells: int, min_sep: int, most: int) -> None:
    """Three copies take part as their distance allows; states never have fewer free ones than there are."""
    own = columns(pair_of(20, min_sep, 0.3, 2.0))
    free, within, shifted, bonus, freed = waits_of(min_sep, own.law.prob, 3, cells, most)
    assert (free >= 3 - most).all()
    size, rng, exact = bonus.size, np.random.default_rng(3), min_sep == cells
    assert size == min_sep // cells
    for _ in range(200):
        state, ready = 0, np.zeros(3, dtype=int)
        waited = 0.0  # opportunities for which a copy counts as free too early, by the state
        charged = 0.0
        for u in range(20):
            able = (ready <= u).sum()
            assert free[state] >= able
            taken = int(rng.integers(able + 1))
            waited += free[state] - able
            charged += (taken * log(bonus[u % size]) + log(freed[state, taken])) / -log(1.0 - own.law.prob)
            for copy in np.flatnonzero(ready <= u)[:taken]:
                ready[copy] = u + min_sep
            state = within[state, taken]
            if u % size == size - 1:
                state = shifted[state]
        beyond = sum(max(int(at) - 20, 0) for at in ready)  # what is charged for after the end
        assert waited <= charged + 1e-9
        if most == 3 or exact:
            assert charged <= waited + beyond + 1e-9


def chain_that_remembers(
    monkeypatch: pytest.MonkeyPatch, own: Columns, order: int, decay: float, limit: Limits, most: int
) -> Chain:
    """The chain in which at most so many copies wait."""
    monkeypatch.setattr(chains, "_most_waiting", lambda own, copies: min(most, copies))
    return chain_of.__wrapped__(own, order, decay, limit)


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(("order", "decay"), [(2, 0.5), (2, 0.9), (3, 0.8)])
@pytest.mark.parametrize(("block", "limit"), [(2, 1), (16, 2), (16, 4)])
@pytest.mark.parametrize("pair", [CASES[0], CASES[1], pair_of(5, 3, 0.3, 1.2), pair_of(5, 4, 0.3, 1.2)])
def test_the_chain_dominates_the_weights_of_tuples(
    order: int, decay: float, block: int, limit: int, pair: RenewalMixture, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain is followed through all its states and nodes; counts are those of all tuples of histories."""
    own = columns(pair)
    chain = chain_that_remembers(monkeypatch, own, order, decay, Limits(block, limit), most)
    assert chain.tables is not None
    _, pulls, squares, (chances,), nodes, pulled, _, _, (free, within, shifted, bonus, freed) = chain.tables
    gram, steps = whole_of(own).T @ whole_of(own), own.steps
    few = limited(own, block, limit)
    weights = chances_of(own, few)
    few, weights = few[weights > 0.0], weights[weights > 0.0]
    wanted: dict[tuple[int, ...], float] = {}
    for picked in product(range(len(few)), repeat=order):
        counts = tuple(int(count) for count in few[list(picked)].sum(axis=0))
        wanted[counts] = wanted.get(counts, 0.0) + float(weights[list(picked)].prod())
    starts = exp(chain.log_norm - float(np.log(chain.tables.norms).sum()))
    total = 0.0
    for counts in product(range(order + 1), repeat=steps):
        state, own_weight, places, possible = 0, starts, {0: starts}, True
        for u, count in enumerate(counts):
            if count > free[state]:
                possible = False
                break
            taken = chances[free[state], count] * freed[state, count] * bonus[u % bonus.size] ** count
            own_weight *= taken
            following: dict[int, float] = {}
            for place, weight in places.items():
                factor = weight * taken * exp(squares[u] * count * (count - 1) / 2) * pulled[place] ** count
                below, share = split(decay * (nodes[place] + pulls[u] * count), nodes)
                following[below] = following.get(below, 0.0) + factor * (1.0 - share)
                following[below + 1] = following.get(below + 1, 0.0) + factor * share
            places = following
            state = within[state, count]
            if u % bonus.size == bonus.size - 1:
                state = shifted[state]
        if not possible:
            assert counts not in wanted
            continue
        j = np.array(counts, dtype=float)
        exponent = 0.5 * (j @ gram @ j - np.diag(gram) @ j)
        assert sum(places.values()) >= wanted.get(counts, 0.0) * exp(exponent) * (1.0 - 1e-12)
        excess = whole_excess(j, own, chain)
        assert excess == pytest.approx(log(sum(places.values()) / (own_weight * exp(exponent))), abs=1e-7)
        total += sum(places.values())
    assert exp(chain.log_norm) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("most", [1, 2])
def test_the_chain_draws_counts_with_its_chances(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = columns(pair_of(3, 2, 0.3, 1.0))
    chain = chain_that_remembers(monkeypatch, own, 2, 0.9, Limits(16, 2), most)
    assert chain.tables is not None
    _, pulls, squares, (chances,), nodes, pulled, _, norms, (free, within, shifted, bonus, freed) = chain.tables
    wanted: dict[tuple[int, ...], float] = {}
    for counts in product(range(3), repeat=3):
        state, places = 0, {0: 1.0}
        for u, count in enumerate(counts):
            if count > free[state]:
                places = {}
                break
            taken = chances[free[state], count] * freed[state, count] * bonus[u % bonus.size] ** count
            following: dict[int, float] = {}
            for place, weight in places.items():
                factor = weight * taken * exp(squares[u] * count * (count - 1) / 2) * pulled[place] ** count
                below, share = split(0.9 * (nodes[place] + pulls[u] * count), nodes)
                following[below] = following.get(below, 0.0) + factor * (1.0 - share)
                following[below + 1] = following.get(below + 1, 0.0) + factor * share
            places, state = following, within[state, count]
            if u % bonus.size == bonus.size - 1:
                state = shifted[state]
        wanted[counts] = sum(places.values())
    rng, counts, drawn, picked = np.random.default_rng(9), np.empty(3), 20000, dict.fromkeys(wanted, 0)
    for _ in range(drawn):
        draw_counts(rng, chain.tables, 0, 3, 0, 0, counts)
        picked[tuple(int(count) for count in counts)] += 1
    for key, weight in wanted.items():
        chance = weight / float(np.prod(norms))
        assert abs(picked[key] / drawn - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / drawn) + 1e-9


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("pair", [CASES[0], CASES[1], pair_of(6, 3, 0.3, 1.2)])
def test_kept_counts_have_the_chances_of_tuples(
    pair: RenewalMixture, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given up leaves exactly the sum over tuples of histories, where all of them are limited."""
    own = columns(pair)
    chain = chain_that_remembers(monkeypatch, own, 2, 0.9, Limits(16, 6), most)
    assert chain.tables is not None
    (chances,), (free, within, shifted, bonus, freed) = chain.tables.chances, chain.tables.waits
    total = float(own.law.start @ (1.0 - own.law.prob) ** -np.arange(own.law.start.size)) ** 2
    chosen = histories(own)
    weights = chances_of(own, chosen)
    chosen, weights = chosen[weights > 0.0], weights[weights > 0.0]
    wanted: dict[tuple[float, ...], float] = {}
    for first, other in product(range(len(chosen)), repeat=2):
        counts = tuple(chosen[first] + chosen[other])
        wanted[counts] = wanted.get(counts, 0.0) + float(weights[first] * weights[other])
    for counts in product(range(3), repeat=own.steps):
        state, relaxed = 0, total
        for u, count in enumerate(counts):
            if count > free[state]:
                relaxed = 0.0
                break
            relaxed *= chances[free[state], count] * freed[state, count] * bonus[u % bonus.size] ** count
            state = within[state, count]
            if u % bonus.size == bonus.size - 1:
                state = shifted[state]
        if relaxed > 0.0:
            waited = whole_waited(np.array(counts, dtype=float), own, chain)
            assert waited <= 1e-12
            assert relaxed * exp(waited) == pytest.approx(wanted.get(tuple(map(float, counts)), 0.0), rel=1e-9)


@pytest.mark.parametrize(
    "pair", [pair_of(12, 5, 0.2, 3.0), pair_of(8, 3, 0.2, 4.0, warm=False), pair_of(8, 3, 0.2, 4.0)]
)
def test_counts_are_given_up_as_often_as_the_chain_weighs_too_much(pair: RenewalMixture) -> None:
    """What is kept has the mass of the power of X'_A over Z: no less, or the mean of the samples would be too small."""
    own, order = columns(pair), 2
    above = above_of(pair, order=order)
    limits = Limits(above.block, above.limit)
    few = limited(own, above.block, above.limit)
    chances = chances_of(own, few)
    few, chances = few[chances > 0.0], chances[chances > 0.0]
    gram = whole_of(own).T @ whole_of(own)
    mass = 0.0
    for first, other in product(range(len(few)), repeat=2):
        both = few[first] + few[other]
        mass += chances[first] * chances[other] * exp(0.5 * float(both @ gram @ both - np.diag(gram) @ both))
    kept = mass / exp(chain_of(own, order, above.decay, limits).log_norm)
    assert kept > 0.05
    log_weights, losses = np.empty(40000), np.empty(40000)
    above.draw(np.random.default_rng(12), log_weights, losses)
    given_up, chance = (losses == -ENDLESS).mean(), TILTED_SHARE * (1.0 - OTHER_SHARE) * (1.0 - kept)
    assert abs(given_up - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / losses.size)
