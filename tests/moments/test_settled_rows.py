"""docs/theory/monte-carlo/subsets.md, "Rows that have settled": the statement, with an eta large enough to be seen."""

from itertools import product

import numpy as np
import pytest

from hockeystick.moments.copies.counts import count_table, log_sum

OPPORTUNITIES, COUNTS = 7, 3
COUPLINGS = np.tile(np.array([0.8, 0.3, 0.1]), (OPPORTUNITIES, 1))
CHANCES = np.log(np.array([0.7, 0.2, 0.1]))


def exponent(state: int, count: int) -> float:
    """phi: the chance of a count and its attraction to itself and the two before, from the definition."""
    newest, oldest = state % COUNTS, state // COUNTS
    pull = 0.3 * newest + 0.1 * oldest
    return float(CHANCES[count] + count * pull + 0.8 * count * (count - 1) / 2)


@pytest.mark.parametrize("settled", [2, 3, 4, 6])
def test_settled_rows_cost_at_most_eta_each(settled: int) -> None:
    """Every draw: its chance by the cut table is g / Z' times ``exp(-sum (D_m(s_k) - d))``, within (n - m) eta."""
    full = count_table(COUPLINGS, CHANCES, 100)
    table = full[: settled + 1]
    change = table[settled] - table[settled - 1]
    off = change - change[0]
    eta = np.abs(off).max()
    assert eta > 1e-3 or settled == 6  # or nothing is tested
    log_norm, total = log_sum(table, OPPORTUNITIES), 0.0
    assert abs(log_norm - full[OPPORTUNITIES, 0]) <= (OPPORTUNITIES - settled) * eta + 1e-12
    for draw in product(range(COUNTS), repeat=OPPORTUNITIES):
        state, log_weight, log_chance, moved = 0, 0.0, 0.0, 0.0
        for place, count in enumerate(draw):
            row = min(OPPORTUNITIES - place, settled)
            moved += off[state] if row == settled else 0.0  # nothing at the first one, whose state is 0
            following = (state * COUNTS + count) % COUNTS**2
            step = exponent(state, count)
            log_weight += step
            log_chance += step + table[row - 1, following] - table[row, state]
            state = following
        total += np.exp(log_chance)
        assert log_chance == pytest.approx(log_weight - log_norm - moved, abs=1e-11)
        assert abs(moved) <= (OPPORTUNITIES - settled) * eta + 1e-12
    assert total == pytest.approx(1.0, abs=1e-12)
