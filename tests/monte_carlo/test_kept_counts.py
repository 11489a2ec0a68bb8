"""Counts of the chain that are given up before they are complete: the same as those that are weighed as a whole."""

from math import log

import numpy as np
import pytest
from kept_whole import starts_of, whole_excess, whole_waited

from hockeystick.monte_carlo.far.chains import Chain, chain_of, kept_shares
from hockeystick.monte_carlo.far.columns import Columns, columns_of
from hockeystick.monte_carlo.far.kept_counts import (
    PART,
    begin,
    draw_counts,
    draw_kept_counts,
    law_of,
    log_excess,
    log_waited,
)
from hockeystick.monte_carlo.far.limits import limits
from hockeystick.pairs.visits import Visits, coins, waits
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Side

STEPS = 5 * PART + 7
CASES: dict[str, tuple[Visits, float, int]] = {
    "Poisson": (coins(0.03), 5.2, 3),
    "users": (coins(0.02, 2), 4.9, 2),
    "wait": (waits(0.06, 5, True), 6.0, 3),
    "long wait": (waits(0.2, 40, False), 4.0, 2),
    "many wait": (waits(0.03, 5, True), 12.0, 8),
}
"""The law of one example or user, sigma, and the number of histories."""
DECAY = 0.9


def case(name: str) -> tuple[Columns, Chain, int]:
    law, sigma, order = CASES[name]
    own = columns_of(ToeplitzMatrix(0.85 ** np.arange(STEPS), STEPS), sigma, law, Side.UPPER)
    return own, chain_of(own, order, DECAY, limits(own, 1e-6)), order


@pytest.mark.parametrize("name", CASES)
def test_counts_are_given_up_as_if_they_were_weighed_as_a_whole(name: str) -> None:
    """The same random numbers, all opportunities drawn before anything is asked."""
    own, chain, order = case(name)
    tables = chain.tables
    assert tables is not None
    shares, law = kept_shares(own, order), law_of(STEPS, tables)
    starts = starts_of(own) if own.law.min_sep > 1 else np.empty(0)
    early, kept, counts, whole = 0, 0, np.empty(STEPS), np.empty(STEPS)
    for seed in range(3000):
        counts[-1] = -1.0
        is_kept = draw_kept_counts(
            np.random.default_rng(seed), tables, own.couplings, own.law.min_sep, starts, shares, law, counts
        )
        rng = np.random.default_rng(seed)
        allowed = -log(1.0 - rng.random())
        draw_counts(rng, tables, 0, STEPS, 0, 0, whole)
        excess = whole_excess(whole, own, chain)
        excess -= whole_waited(whole, own, chain) if own.law.min_sep > 1 else 0.0
        excess -= sum(log(shares[u, int(whole[u])]) for u in range(STEPS)) if shares.size else 0.0
        assert is_kept == (excess <= allowed)
        kept += is_kept
        early += counts[-1] == -1.0
        if is_kept:
            assert (counts == whole).all()
    assert kept > 50
    assert early > 500


@pytest.mark.parametrize("name", CASES)
def test_excess_only_grows_but_for_what_waiting_copies_give_back(name: str) -> None:
    own, chain, _ = case(name)
    tables = chain.tables
    assert tables is not None
    rng, counts, law = np.random.default_rng(3), np.empty(STEPS), law_of(STEPS, tables)
    copies, free, longest = int(tables.waits.free[0]), tables.waits.free, -own.law.min_sep * log(1.0 - own.law.prob)
    usual = log(tables.waits.bonus.max())
    for _ in range(200):
        draw_counts(rng, tables, 0, STEPS, 0, 0, counts)
        if own.law.min_sep > 1 and not np.isfinite(whole_waited(counts, own, chain)):
            continue
        begin(law)
        total, low, high, able, state, given = 0.0, 0, 0, copies, 0, 0.0
        least = np.empty(STEPS)  # what the sum has to exceed from here on
        for u in range(STEPS):
            more, low, high = log_excess(counts, own.couplings, tables, u, u + 1, low, high, law)
            assert more >= -1e-6
            total += more
            if own.law.min_sep > 1:
                less, able, state = log_waited(counts, tables, own.law.min_sep, starts_of(own), u, u + 1, able, state)
                given -= less
                least[u] = given - (free[state] - able) * longest - (copies - free[state]) * usual
                assert given >= least[: u + 1].max() - 1e-9
        assert total == pytest.approx(whole_excess(counts, own, chain), abs=1e-9)
        if own.law.min_sep > 1:
            assert given == pytest.approx(-whole_waited(counts, own, chain), abs=1e-9)


def test_one_cell_is_what_is_left_where_tables_are_small() -> None:
    own = columns_of(ToeplitzMatrix(0.85 ** np.arange(STEPS), STEPS), 6.0, waits(0.06, 17, False), Side.UPPER)
    chain = chain_of(own, 3, DECAY, limits(own, 1e-6), 100 * (STEPS + 1))
    assert chain.tables is not None
    assert chain.tables.waits.bonus.size == 17
    assert np.isfinite(chain.log_norm)
