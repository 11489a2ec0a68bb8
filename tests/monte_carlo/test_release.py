"""Estimate, verify, release: the arithmetic, and how often what should be refused is released."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hockeystick.claim import release_delta, verification_target
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.acceptance import CANDIDATE_SHARES

unit = st.floats(min_value=0.0, max_value=1.0)


@given(unit, unit)
def test_release_delta_is_the_exact_sum_or_a_little_more(delta_prime: float, q: float) -> None:
    exact = Fraction(delta_prime) + Fraction(q) * (1 - Fraction(delta_prime))
    delta = release_delta(delta_prime, q)
    assert exact <= Fraction(delta) <= exact * (1 + Fraction(1, 2**48))


@given(st.floats(min_value=1e-300, max_value=1.0), st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_verification_target_inverts_it(delta: float, share: float) -> None:
    q = delta * share
    if q >= delta:
        return
    target = verification_target(delta, q)
    assert release_delta(target, q) <= delta
    exact = (Fraction(delta) - Fraction(q)) / (1 - Fraction(q))
    assert Fraction(target) <= exact
    assert exact - Fraction(target) <= Fraction(delta) / (1 - Fraction(q)) / 2**47


@pytest.mark.parametrize(
    "call",
    [
        lambda: verification_target(1e-6, 1e-6),
        lambda: verification_target(1.5, 1e-6),
        lambda: verification_target(1e-6, -1e-9),
        lambda: release_delta(float("nan"), 0.1),
        lambda: release_delta(0.1, 1.1),
    ],
)
def test_refuses(call: Callable[[], float]) -> None:
    with pytest.raises(InvalidInputError, match="must be"):
        call()


# Simulations: a candidate is its delta, a sample tells it with that probability, and the exact binomial test at its
# share of Q accepts one whose delta is a hair above the target with a probability just below that.

TARGET, SAMPLES, RUNS, Q = 0.1, 1000, 40_000, 0.05
HAIR = TARGET * (1 + 1e-6)
VIOLATING = {"first": [HAIR, 0.06, 0.03], "two": [HAIR, HAIR, 0.03], "all": [HAIR] * 3, "spread": [0.13, 0.11, HAIR]}


def most(probability: float) -> int:
    """The most hits that are accepted: no more have at most this probability at the target."""
    return int(binom.ppf(probability, SAMPLES, TARGET)) - 1


def released(deltas: list[float], limits: list[int], *, shared: bool) -> np.ndarray:
    """The delta of the first candidate that is accepted in each of many verifications; 0 where none is."""
    rng = np.random.default_rng(7)
    if shared:  # all of them read the same samples
        samples = rng.random((RUNS, SAMPLES))
        hits = np.stack([(samples < delta).sum(axis=1) for delta in deltas], axis=1)
    else:
        hits = rng.binomial(SAMPLES, deltas, (RUNS, len(deltas)))
    accepted = np.concatenate([hits <= limits, np.ones((RUNS, 1), dtype=bool)], axis=1)
    return np.append(deltas, 0.0)[accepted.argmax(axis=1)]


def allowed() -> int:
    """What a frequency of Q at most exceeds once in a million."""
    return int(binom.isf(1e-6, RUNS, Q))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("case", VIOLATING)
def test_what_violates_the_target_is_released_with_probability_at_most_q(case: str, shared: bool) -> None:
    limits = [most(Q * share) for share in CANDIDATE_SHARES]
    releases = (released(VIOLATING[case], limits, shared=shared) > TARGET).sum()
    assert releases <= allowed()
    if case == "all":  # the simulation comes close to the limit
        assert releases > 0.5 * Q * RUNS


@pytest.mark.parametrize("limit", [TARGET * SAMPLES, most(Q)])
def test_the_estimate_alone_or_the_whole_of_q_for_each_test_is_refused_by_the_same_test(limit: float) -> None:
    deltas = released(VIOLATING["all"], [int(limit)] * 3, shared=False)
    assert (deltas > TARGET).sum() > allowed()


def test_all_tests_together_have_all_of_q() -> None:
    assert sum(CANDIDATE_SHARES) <= 1.0
