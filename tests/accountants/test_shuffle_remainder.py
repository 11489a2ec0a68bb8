"""Shuffled batches with a remainder: both sides against runs of a few examples, summed over all permutations.

The oracle integrates ``(p - e^eps q)_+`` on a grid of outputs, with an error that falls as the square of the step; a
test halves the step. A lower bound of another quantity is off by far more.
"""

from collections import Counter
from functools import lru_cache
from itertools import permutations, product
from math import exp

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants.shuffle_thresholds import WITH, WITHOUT, _log_cdf
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import Shuffle
from hockeystick.types import Direction, Side

QUADRATURE = 5e-4
"""Relative error of the oracle; more than what halving its step to the one that is used changes."""
EPSILONS = (0.0, 0.3, 1.0, 2.5)
Means = Counter[tuple[float, ...]]


def outputs(sampler: Shuffle, gradients: tuple[float, ...]) -> Means:
    """How often each vector of batch sums comes out of an epoch."""
    size = sampler.batch_size
    return Counter(
        tuple(sum(gradients[example] for example in order[b * size : (b + 1) * size]) for b in range(sampler.bins))
        for order in permutations(range(len(gradients)))
    )


@lru_cache(maxsize=16)
def density(sampler: Shuffle, gradients: tuple[float, ...], sigma: float, reach: float, width: float) -> np.ndarray:
    """The density of all outputs on a grid of each, by products over the epochs."""
    means, grid = outputs(sampler, gradients), np.arange(-reach, reach, width)
    whole: dict[tuple[float, ...], float] = {}
    for parts in product(means.items(), repeat=sampler.epochs):
        mean = sum((part[0] for part in parts), ())
        whole[mean] = whole.get(mean, 0.0) + float(np.prod([part[1] for part in parts]))
    total = sum(whole.values())
    density = np.zeros((grid.size,) * len(next(iter(whole))))
    for mean, weight in whole.items():
        component = np.array(weight / total)
        for coordinate in mean:
            component = np.multiply.outer(
                component, np.exp(-0.5 * ((grid - coordinate) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
            )
        density += component
    return density


@lru_cache
def true_deltas(
    sampler: Shuffle, sigma: float, own: float, others: tuple[float, ...], direction: Direction, step: float = 0.02
) -> tuple[float, ...]:
    """delta at EPSILONS for one pair of datasets, the example's gradient against a ghost's."""
    reach = 8.0 * sigma + len(others) + 1.0
    first, second = (density(sampler, (gradient, *others), sigma, reach, step * sigma) for gradient in (own, 0.0))
    if direction is Direction.ADD:
        first, second = second, first
    cell = (step * sigma) ** first.ndim
    return tuple(float(np.maximum(first - exp(epsilon) * second, 0.0).sum() * cell) for epsilon in EPSILONS)


RUNS = [
    Shuffle(batch_size=2, bins=1, remainder="drop", num_examples=3),
    Shuffle(batch_size=2, bins=1, remainder="drop", num_examples=3, epochs=2),
    Shuffle(batch_size=2, bins=2, remainder="drop", num_examples=5),
    Shuffle(batch_size=1, bins=2, remainder="drop", num_examples=4),
    Shuffle(batch_size=2, bins=2, remainder="short", num_examples=3),
    Shuffle(batch_size=4, bins=2, remainder="short", num_examples=5),
]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("sigma", [0.4, 1.5])
@pytest.mark.parametrize("sampler", RUNS, ids=repr)
def test_lower_bounds_are_below_the_datasets_that_they_are_about(
    sampler: Shuffle, sigma: float, direction: Direction
) -> None:
    assert sampler.num_examples is not None
    true = true_deltas(sampler, sigma, 1.0, (-1.0,) * (sampler.num_examples - 1), direction)
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=sigma)
    profile = hs.bound(mechanism, "shuffle_thresholds", side=Side.LOWER).profiles[direction]
    deltas = [profile(epsilon) for epsilon in EPSILONS]
    assert all(bound <= delta * (1.0 + QUADRATURE) + 1e-12 for bound, delta in zip(deltas, true, strict=True))
    assert deltas[0] >= 0.5 * true[0], "it is of some use"


@pytest.mark.parametrize("sampler", RUNS, ids=repr)
@pytest.mark.parametrize("own", [1.0, -1.0])
@pytest.mark.parametrize("others", [(-1.0, -1.0), (1.0, -1.0), (0.0, 0.0), (0.3, 1.0)])
def test_upper_bounds_are_above_every_dataset(sampler: Shuffle, own: float, others: tuple[float, float]) -> None:
    assert sampler.num_examples is not None
    rest = (others * sampler.num_examples)[: sampler.num_examples - 1]
    bound = hs.bound(hs.Mechanism(sampler=sampler, noise_multiplier=0.7), "gaussian")
    for direction in Direction:
        true = true_deltas(sampler, 0.7, own, rest, direction)
        assert all(
            bound.delta(epsilon) >= delta * (1.0 - QUADRATURE) for epsilon, delta in zip(EPSILONS, true, strict=True)
        )


def test_the_step_of_the_oracle_is_fine_enough() -> None:
    for sampler in RUNS:
        coarse, fine = (
            true_deltas(sampler, 0.7, 1.0, (-1.0,) * (sampler.num_examples - 1), Direction.REMOVE, step)
            for step in (0.04, 0.02)
        )
        assert coarse == pytest.approx(fine, rel=QUADRATURE, abs=1e-12)


def test_the_lower_bound_without_a_remainder_would_be_wrong() -> None:
    """An example that is dropped at times is harder to recognise; so the tests above can fail."""
    dropped = RUNS[0]
    true = true_deltas(dropped, 0.4, 1.0, (-1.0, -1.0), Direction.REMOVE)
    whole = hs.bound(
        hs.Mechanism(sampler=Shuffle(batch_size=2, bins=1), noise_multiplier=0.4), "shuffle_thresholds", side=Side.LOWER
    )
    assert whole.delta(1.0) > 1.2 * true[2]


@pytest.mark.parametrize("rest", [1, 96, 29_999])
def test_the_cdf_keeps_its_digits_at_both_ends(rest: int) -> None:
    """Against 60 digits; the stated rounding is some 1e-13."""
    from mpmath import log, mp, mpf, ncdf

    size = (60_000 - rest) // 2
    sampler = Shuffle(batch_size=size, bins=2, remainder="drop", num_examples=2 * size + rest)
    pair = dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=0.8))
    z = np.array([-30.0, -8.0, -1.0, 0.0, 0.7, 3.0, 6.0, 9.0, 20.0])
    with mp.workdps(250):
        rho = mpf(rest) / (2 * size + rest)
        for shift in (WITH, WITHOUT):
            logs = _log_cdf(z, shift, pair)
            for place, value in zip(z, logs, strict=True):
                exact = log(
                    (1 - rho) * ncdf(mpf(place)) * ncdf(mpf(place) - mpf(shift) / mpf(0.8))
                    + rho * ncdf(mpf(place)) ** 2
                )
                assert value == pytest.approx(float(exact), rel=1e-12)


def test_the_tree_over_uneven_batches_is_refused() -> None:
    mechanism = hs.Mechanism(strategy=hs.BinaryTree(), sampler=RUNS[2], noise_multiplier=2.0)
    with pytest.raises(UnsupportedError, match=r"has not been analysed; a batch size that divides num_examples = 5"):
        hs.certify(mechanism, delta=1e-5)


@pytest.mark.parametrize("remainder", ["drop", "short"])
@pytest.mark.parametrize("strategy", [hs.Identity(), hs.BandedSquareRoot(bands=2)])
def test_fixed_batches_cost_what_their_worst_example_does(remainder: str, strategy: hs.BandedSquareRoot) -> None:
    """An example of a whole batch takes part in every epoch, whatever becomes of the rest."""
    bins = 3 + (remainder == "short")
    uneven = hs.Deterministic(bins=bins, epochs=2, batch_size=3, remainder=remainder, num_examples=10)
    even = hs.Deterministic(bins=bins, epochs=2)
    of_uneven, of_even = (
        hs.certify(hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0), delta=1e-5).bounds
        for sampler in (uneven, even)
    )
    assert of_uneven == of_even
