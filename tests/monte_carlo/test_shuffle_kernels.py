"""Shuffled batches by sampling: the proposals against quadrature and against the threshold sets."""

import pickle
from math import exp, log, sqrt

import numpy as np
import pytest

from hockeystick.accountants import shuffle_thresholds
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.shuffles.family import FAMILY, FartherShuffle, LowerShuffle, NaiveShuffle
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.types import Direction, Side

FAILURE = 1e-9
"""Of each interval; there are some thirty of them."""


def pair(sigma: float, bins: int, epochs: int = 1) -> ShuffledBatches:
    return ShuffledBatches(noise_multiplier=sigma, batch_size=5, bins=bins, epochs=epochs)


def interval(proposal: Proposal, epsilon: float, samples: int, seed: int = 1) -> tuple[float, float, float]:
    """Mean of Y, half the width of an empirical Bernstein interval (Maurer and Pontil) and the largest Y / M."""
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(seed)), log_weights, losses)
    values = np.exp(log_weights) * np.maximum(-np.expm1(epsilon - losses), 0.0)
    largest = proposal.weight_bound(epsilon)
    spread = sqrt(2.0 * values.var(ddof=1) * log(4.0 / FAILURE) / samples)
    width = spread + 7.0 * largest * log(4.0 / FAILURE) / (3.0 * (samples - 1))
    return float(values.mean()), width, float(values.max()) / largest


def two_bins(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Masses of P_S and Q_S for two batches on a fine grid of the plane, by their densities, flattened."""
    axis = np.linspace(-9.0 * sigma, 2.0 + 9.0 * sigma, 801)
    y0, y1 = np.meshgrid(axis, axis, indexing="ij")

    def mixture(shift: float) -> np.ndarray:
        first = np.exp(-((y0 - shift) ** 2 + y1**2) / (2.0 * sigma**2))
        second = np.exp(-(y0**2 + (y1 - shift) ** 2) / (2.0 * sigma**2))
        return ((first + second) / (4.0 * np.pi * sigma**2) * (axis[1] - axis[0]) ** 2).ravel()

    return mixture(2.0), mixture(1.0)


def truth(sigma: float, epochs: int, epsilon: float, direction: Direction) -> float:
    """The profile for two batches and one or two epochs; cells of equal loss are merged before epochs are joined."""
    p, q = two_bins(sigma)
    if epochs == 2:
        cells = np.floor(np.log(p / q) * 100.0).astype(int)
        cells -= cells.min()
        p, q = np.bincount(cells, p), np.bincount(cells, q)
        p, q = np.outer(p, p).ravel(), np.outer(q, q).ravel()
    first, second = (p, q) if direction is Direction.REMOVE else (q, p)
    return float(np.maximum(first - exp(epsilon) * second, 0.0).sum())


@pytest.mark.parametrize(("epochs", "epsilon"), [(1, 0.3), (1, 1.5), (2, 0.5)])
@pytest.mark.parametrize("direction", list(Direction))
def test_samples_average_to_the_profile(epochs: int, epsilon: float, direction: Direction) -> None:
    shuffled = pair(1.2, 2, epochs)
    proposals: list[Proposal] = [NaiveShuffle(direction=direction, pair=shuffled)]
    if direction is Direction.REMOVE:
        shares = (1.0, 0.5)
        proposals += [FartherShuffle(direction=direction, pair=shuffled, beta=1.0, share=share) for share in shares]
    else:
        proposals += [LowerShuffle(direction=direction, pair=shuffled, beta=beta) for beta in (0.5, 1.5)]
    expected = truth(1.2, epochs, epsilon, direction)
    for proposal in proposals:
        mean, width, worst = interval(proposal, epsilon, 100_000)
        assert abs(mean - expected) <= width + 2e-3 * expected
        assert width < 0.25 * expected
        assert worst <= 1.0 + 1e-9


@pytest.mark.parametrize(("sigma", "bins", "epsilon"), [(0.8, 1000, 6.0), (0.5, 300, 12.0), (1.5, 100, 2.5)])
def test_one_epoch_reaches_small_deltas(sigma: float, bins: int, epsilon: float) -> None:
    """delta from 1e-6 down to some 1e-8. The threshold sets are below the profile of the pair, and close to it."""
    shuffled = pair(sigma, bins)
    tilted, _ = FAMILY.propose(shuffled, Direction.REMOVE, epsilon)
    below = shuffle_thresholds.ACCOUNTANT.bound(shuffled, Side.LOWER).profiles[Direction.REMOVE](epsilon)
    log_weights, losses = np.empty(5000), np.empty(5000)
    tilted.draw(np.random.Generator(np.random.SFC64(1)), log_weights, losses)
    values = np.exp(log_weights) * np.maximum(-np.expm1(epsilon - losses), 0.0)
    error = float(values.std()) / sqrt(values.size)
    assert 1e-8 < below < 2e-6
    assert below - 6.0 * error <= values.mean() <= 1.3 * below + 6.0 * error
    assert error < 0.1 * below
    assert values.max() <= tilted.weight_bound(epsilon) * (1.0 + 1e-9)


def test_many_epochs_are_tilted_one_at_a_time() -> None:
    """The weights are at most (3/4)^-4 = 3.16 with mean 1, so six standard errors of their mean are below 0.03."""
    shuffled = pair(1.2, 10, epochs=4)
    tilted, naive = FAMILY.propose(shuffled, Direction.REMOVE, 3.0)
    assert tilted.parameters["share"] == 1.0 / 4.0
    log_weights, losses = np.empty(100_000), np.empty(100_000)
    tilted.draw(np.random.Generator(np.random.SFC64(4)), log_weights, losses)
    assert log_weights.max() <= -4.0 * log(3.0 / 4.0) + 1e-9
    assert float(np.exp(log_weights).mean()) == pytest.approx(1.0, abs=0.03)
    mean, width, worst = interval(tilted, 3.0, 200_000)
    expected, error, _ = interval(naive, 3.0, 200_000)
    assert abs(mean - expected) <= width + error
    assert width < 0.5 * expected
    assert worst <= 1.0 + 1e-9


def test_lower_bounds_alone() -> None:
    shuffled = pair(1.0, 10)
    for direction in Direction:
        for proposal in FAMILY.propose(shuffled, direction, 1.0):
            assert proposal.sides == (Side.LOWER,)
    assert FAMILY.refusal(shuffled, Side.LOWER) is None
    assert "from below only" in str(FAMILY.refusal(shuffled, Side.UPPER))


@pytest.mark.parametrize("direction", list(Direction))
def test_proposals_are_built_again_from_their_parameters(direction: Direction) -> None:
    shuffled = pair(2.0, 10, epochs=2)
    for proposal in FAMILY.propose(shuffled, direction, 2.0):
        results = np.empty((3, 2, 100))
        copies = (
            proposal,
            FAMILY.build(shuffled, direction, proposal.name, proposal.parameters),
            pickle.loads(pickle.dumps(proposal)),
        )
        for copy, drawn in zip(copies, results, strict=True):
            copy.draw(np.random.Generator(np.random.SFC64(3)), drawn[0], drawn[1])
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])
        assert 0.0 < proposal.weight_bound(2.0) < np.inf


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (Direction.ADD, "farther", {"beta": 1.0, "share": 1.0}),
        (Direction.REMOVE, "farther", {"beta": 1.0, "share": 0.0}),
        (Direction.REMOVE, "lower", {"beta": 1.0}),
        (Direction.ADD, "lower", {}),
        (Direction.ADD, "naive", {"beta": 1.0}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be 'naive' with nothing or"):
        FAMILY.build(pair(1.0, 10), direction, name, parameters)
