"""Estimate, verify, release: the scan, the arithmetic, and how often it releases what it should not."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from toy_gaussian import exact_delta

from hockeystick.accountants.monte_carlo.confidence import chernoff_upper
from hockeystick.accountants.monte_carlo.release import release_delta, scan, verification_target
from hockeystick.errors import InvalidInputError

unit = st.floats(min_value=0.0, max_value=1.0)


@given(st.lists(st.booleans(), max_size=12))
def test_scan_finds_the_end_of_what_was_accepted_from_the_top(verdicts: list[bool]) -> None:
    asked: list[int] = []

    def accepts(candidate: int) -> bool:
        asked.append(candidate)
        return verdicts[candidate]

    chosen = scan(len(verdicts) + 1, accepts)
    expected = min(i for i in range(len(verdicts) + 1) if all(verdicts[i:]))
    assert chosen == expected
    assert asked == list(range(len(verdicts) - 1, max(chosen - 1, 0) - 1, -1))[: len(asked)]
    assert len(asked) == len(set(asked))


def test_the_last_candidate_is_not_tested() -> None:
    def fails(_: int) -> bool:
        raise AssertionError

    assert scan(1, fails) == 0
    with pytest.raises(InvalidInputError, match="candidates"):
        scan(0, fails)


@given(unit, unit)
def test_release_delta_is_the_exact_sum_or_a_little_more(delta_prime: float, q: float) -> None:
    exact = Fraction(delta_prime) + Fraction(q) * (1 - Fraction(delta_prime))
    found = release_delta(delta_prime, q)
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**48))


@given(st.floats(min_value=1e-300, max_value=1.0), st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_verification_target_inverts_it(delta: float, share: float) -> None:
    q = delta * share
    if q >= delta:
        return
    target = verification_target(delta, q)
    assert release_delta(target, q) <= delta
    exact = (Fraction(delta) - Fraction(q)) / (1 - Fraction(q))
    assert Fraction(target) <= exact
    assert exact - Fraction(target) <= Fraction(delta) / 2**47


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


SHIFTS = np.array([1.6, 1.4, 1.25, 1.1, 1.0, 0.9, 0.8, 0.6])  # sensitivity over noise: noise increases
EPSILON, SAMPLES, RUNS, Q = 1.0, 150, 4000, 0.05


def accepted(rng: np.random.Generator, target: float, *, shared: bool, level: float) -> list[int]:
    """The choices of many verifications by naive samples; ``shared`` reuses the same normals for all candidates."""
    chosen = []
    for _ in range(RUNS):
        base = rng.standard_normal(SAMPLES)

        def accepts(candidate: int, base: np.ndarray = base) -> bool:
            shift = SHIFTS[candidate]
            normals = base if shared else rng.standard_normal(SAMPLES)
            losses = shift * (normals + shift) - shift**2 / 2
            return chernoff_upper(float(np.maximum(1 - np.exp(EPSILON - losses), 0).mean()), SAMPLES, level) <= target

        chosen.append(scan(len(SHIFTS), accepts))
    return chosen


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("worst", [1, 3, 5])
def test_what_violates_the_target_is_released_with_probability_at_most_q(worst: int, shared: bool) -> None:
    """Candidates up to ``worst`` violate the target, the last of them by a hair, and the test shares its samples."""
    target = exact_delta(float(SHIFTS[worst]), EPSILON) * (1 - 1e-9)
    chosen = accepted(np.random.default_rng(7), target, shared=shared, level=Q)
    violations = sum(exact_delta(float(SHIFTS[candidate]), EPSILON) > target for candidate in chosen)
    assert violations <= binom.isf(1e-6, RUNS, Q)


def test_verifying_the_estimate_alone_is_refused_by_the_same_test() -> None:
    target = exact_delta(float(SHIFTS[3]), EPSILON) * (1 - 1e-9)
    chosen = accepted(np.random.default_rng(7), target, shared=True, level=1 - 1e-9)
    violations = sum(exact_delta(float(SHIFTS[candidate]), EPSILON) > target for candidate in chosen)
    assert violations > binom.isf(1e-6, RUNS, Q)


def test_drawing_again_after_a_refusal_is_refused_by_the_same_test() -> None:
    """The best of forty verifications of the same candidates."""
    target = exact_delta(float(SHIFTS[3]), EPSILON) * (1 - 1e-9)
    chosen = accepted(np.random.default_rng(7), target, shared=True, level=Q)
    violating = np.array([exact_delta(float(SHIFTS[candidate]), EPSILON) > target for candidate in chosen])
    again = violating.reshape(-1, 40).any(axis=1)
    assert again.sum() > binom.isf(1e-6, again.size, Q)
