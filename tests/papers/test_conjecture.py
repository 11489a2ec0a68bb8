"""chua-2024, Conjecture 3.2: the paper's pair by simulation, and queries that show more than it, by other means."""

import sys
from collections.abc import Callable
from math import exp, sqrt
from types import ModuleType

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import Output, figures_of, folder_of

SAMPLES = 400_000
SURE = 5.0
"""Standard errors: a true equality fails with probability below 1e-6."""
Answers = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From the first outputs to the second answers of the example and of the other record."""


@pytest.fixture(scope="module")
def conjecture() -> ModuleType:
    figures_of(folder_of("chua-2024"))
    return sys.modules["hockeystick_papers_chua_2024.conjecture"]


def simulated(sigma: float, epsilon: float, second: Answers, present: bool) -> tuple[float, float]:
    """``E_P (1 - e^eps Q/P)_+`` of two batches and its standard error; P has the example if ``present``.

    The first answers are 1 and -1. Outputs are drawn as by the mechanism: an order, then one output after the other.
    """
    rng = np.random.default_rng(20240610)
    first_batch = rng.random(SAMPLES) < 0.5
    own = 1.0 if present else 0.0
    y1 = np.where(first_batch, own, -1.0) + sigma * rng.standard_normal(SAMPLES)
    own_2, other_2 = second(y1)
    y2 = np.where(first_batch, other_2, own_2 * own) + sigma * rng.standard_normal(SAMPLES)

    def density(answer: float) -> np.ndarray:
        def normal(y: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
            return np.asarray(np.exp(-0.5 * ((y - mean) / sigma) ** 2))

        return 0.5 * (normal(y1, answer) * normal(y2, other_2) + normal(y1, -1.0) * normal(y2, own_2 * answer))

    ratio = density(1.0 - own) / density(own)
    values = np.maximum(1.0 - exp(epsilon) * ratio, 0.0)
    return float(values.mean()), float(values.std() / sqrt(SAMPLES))


def as_in_the_paper(y1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ones_like(y1), -np.ones_like(y1)


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.5, 2.0), (1.0, 0.5), (2.0, 0.5)])
def test_deltas_of_the_paper_are_those_of_a_simulation(conjecture: ModuleType, sigma: float, epsilon: float) -> None:
    for delta, present in zip(conjecture.paper_deltas(sigma, epsilon), (True, False), strict=True):
        mean, error = simulated(sigma, epsilon, as_in_the_paper, present)
        assert abs(delta - mean) < SURE * error


def test_an_adaptive_query_shows_more_than_the_papers(conjecture: ModuleType) -> None:
    """Once the first output says that the example was there, both second answers are -1: 5 percent more for remove."""

    def second(y1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(y1 < 2.5, 1.0, -1.0), -np.ones_like(y1)

    mean, error = simulated(2.0, 0.5, second, present=True)
    paper = conjecture.paper_deltas(2.0, 0.5)
    assert mean - SURE * error > 1.02 * max(paper)
    assert abs(conjecture.adaptive_deltas(2.0, 0.5)[0] - mean) < SURE * error + 1e-3 * mean


def test_answers_that_change_with_the_step_show_more_for_add(conjecture: ModuleType) -> None:
    """In closed form at sigma = 3, and by a simulation at sigma = 0.7."""
    assert conjecture.changing_delta(3.0, 1.0) > 3.0 * conjecture.paper_deltas(3.0, 1.0)[1]
    mean, error = simulated(0.7, 4.0, lambda y1: (-np.ones_like(y1), -np.ones_like(y1)), present=False)
    assert conjecture.changing_delta(0.7, 4.0) <= mean + SURE * error
    assert mean - SURE * error > 1.3 * conjecture.paper_deltas(0.7, 4.0)[1]


def test_the_same_answers_at_every_step_show_no_more(conjecture: ModuleType) -> None:
    """For two batches against the exact deltas, on a grid whose error is below the stated one."""
    fixed = conjecture.fixed_deltas(1.0, 0.5, batches=2, points=321)
    for place, delta in enumerate(conjecture.paper_deltas(1.0, 0.5)):
        assert fixed[1.0, -1.0][place] == pytest.approx(delta, rel=conjecture.GRID_ERROR)
        assert max(deltas[place] for deltas in fixed.values()) == fixed[1.0, -1.0][place]


def test_the_conjecture_is_refuted_and_says_where(conjecture: ModuleType, tmp_path: object) -> None:
    checks = conjecture.conjecture_checks(Output(tmp_path, Deadline()), conjecture.CASES[2:3])  # type: ignore[arg-type]
    assert ["refuted" in check.verdict for check in checks] == [True, True, False, False, True]
