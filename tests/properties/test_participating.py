"""Exclusion by participating examples after a warm-up: when the cold start covers it, and when it does not.

True profiles of tiny runs, in which all coins of all steps are listed.
"""

import numpy as np
import pytest
from monte_carlo_oracle import absent, truth, user_participations

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Direction, Side

COLUMNS = {"short": (1.0, 0.0, 0.0), "falling": (1.0, 0.6, 0.3), "growing": (0.2, 0.5, 1.0)}
"""Of Toeplitz matrices; with more bands than min_sep too, and with steps that matter the more the later they are."""


def attributed(warm_up: int, steps: int, prob: float, min_sep: int, examples: int) -> hs.MultiAttribution:
    return hs.MultiAttribution(
        min_sep=min_sep,
        sampling_prob=prob,
        steps=steps,
        examples_per_user=examples,
        warm_up_steps=warm_up,
        exclusion="participating",
    )


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize(("steps", "prob", "min_sep", "examples"), [(2, 0.9, 2, 1), (2, 0.4, 2, 2), (3, 0.8, 3, 1)])
def test_equal_columns_are_covered_by_the_cold_start(
    column: str, steps: int, prob: float, min_sep: int, examples: int
) -> None:
    entries = np.array([[COLUMNS[column][i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
    laws = [user_participations(attributed(warm_up, steps, prob, min_sep, examples), examples) for warm_up in (0, 1, 2)]
    for direction in Direction:
        for epsilon in (0.1, 0.7):
            cold, *warm = (truth(entries, 0.8, law, absent(law), direction, epsilon) for law in laws)
            assert all(delta.value - delta.error <= cold.value + cold.error for delta in warm)


def test_columns_that_differ_are_not_and_get_no_amplification(tmp_path_factory: pytest.TempPathFactory) -> None:
    """diag(0.001, 1): from a cold start the second step is rarely taken, after a warm-up nearly always."""
    entries, path = np.diag([0.001, 1.0]), tmp_path_factory.mktemp("matrix") / "columns.npy"
    np.save(path, entries)
    warm, cold = (attributed(warm_up, 2, 0.9, 2, 1) for warm_up in (1, 0))
    laws = [user_participations(sampler, 1) for sampler in (warm, cold)]
    assert [law[0.0, 1.0] for law in laws] == pytest.approx([0.819, 0.09])
    mechanism = hs.Mechanism(strategy=hs.Custom(path=str(path)), sampler=warm, noise_multiplier=1.0)
    pair = dominating_pair(mechanism)
    assert type(pair) is RevealedBatches
    upper = ACCOUNTANTS["gaussian"].bound(pair, Side.UPPER, hs.Settings())
    for direction in Direction:
        after, before = (truth(entries, 1.0, law, absent(law), direction, 0.5) for law in laws)
        assert after.value > 5.0 * before.value
        assert upper.profiles[direction](0.5) >= after.value - after.error
