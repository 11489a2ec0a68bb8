"""Shuffled batches: the threshold sets from below, the clones from above."""

from math import exp, log, sqrt, tanh

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import binom

from hockeystick.accountants import gaussian, shuffle_clones, shuffle_thresholds
from hockeystick.errors import UnsupportedError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


def quick(delta: float = 1e-9, nodes: int = 24) -> Settings:
    return Settings(resolution=Resolution(nodes_per_unit=nodes, smallest_delta=delta))


def pair(sigma: float, bins: int, epochs: int = 1, batch_size: int = 10) -> ShuffledBatches:
    return ShuffledBatches(noise_multiplier=sigma, bins=bins, epochs=epochs, batch_size=batch_size)


def lower(sigma: float, bins: int, epochs: int = 1):
    return shuffle_thresholds.ACCOUNTANT.bound(pair(sigma, bins, epochs), Side.LOWER, quick())


@pytest.mark.parametrize(
    ("sigma", "bins", "delta", "printed", "within"),
    [
        (0.5, 10_000, 1e-6, 10.994, 0.001),  # section 1.1
        (1.3, 10_000, 1e-6, 0.26, 0.01),
        (0.4, 100_000, 1e-6, 14.45, 0.01),  # appendix A
        (1.3, 100_000, 1e-6, 0.029, 0.001),
        (0.7, 1000, 1e-5, 6.528, 0.001),
        (1.3, 1000, 1e-5, 0.83, 0.01),
    ],
)
def test_printed_epsilons(sigma: float, bins: int, delta: float, printed: float, within: float) -> None:
    """chua-2024, lower bounds by eq. (3): reached, and not exceeded by more than the last printed digit."""
    assert printed < lower(sigma, bins).epsilon(delta) < printed + within


@pytest.mark.parametrize(
    ("sigma", "bins", "epsilon", "printed"),
    [
        (0.4, 10_000, 4.0, 0.226),
        (0.4, 10_000, 12.0, 7.473e-5),  # printed 7.5e-5, rounded up
        (0.8, 1000, 1.0, 0.017947),  # printed 0.018, rounded up
        (0.8, 1000, 4.0, 1.5958e-4),  # printed 1.6e-4, rounded up
        (1.0, 1000, 1.0, 9.987e-4),  # printed 0.004, which does not come out of eq. (3)
        (1.0, 1000, 4.0, 4.38e-7),
    ],
)
def test_printed_deltas(sigma: float, bins: int, epsilon: float, printed: float) -> None:
    assert printed <= lower(sigma, bins).delta(epsilon) < printed * 1.005


@pytest.mark.parametrize(("sigma", "bins", "epsilon"), [(0.8, 1000, 1.0), (0.4, 10_000, 12.0), (2.0, 3, 0.2)])
def test_threshold_is_the_best_of_a_dense_search(sigma: float, bins: int, epsilon: float) -> None:
    """Eq. (3) on 400,000 thresholds, and its complement for the add direction: at least as good, hardly better."""
    c = np.linspace(-10, 20, 400_001)
    log_with = (bins - 1) * log_ndtr(c / sigma) + log_ndtr((c - 2) / sigma)
    log_without = (bins - 1) * log_ndtr(c / sigma) + log_ndtr((c - 1) / sigma)
    remove = np.max(-np.expm1(log_with) + exp(epsilon) * np.expm1(log_without))
    add = np.max(np.exp(log_without) - exp(epsilon) * np.exp(log_with))
    assert shuffle_thresholds._best_threshold(pair(sigma, bins), epsilon, Direction.REMOVE) == pytest.approx(remove)
    threshold = shuffle_thresholds._best_threshold(pair(sigma, bins), epsilon, Direction.ADD)
    assert threshold == pytest.approx(add, rel=1e-6)


@pytest.mark.parametrize(("sigma", "z"), [(1.0, 3.0), (0.3, 0.5), (0.3, 9.0), (5.0, -2.0), (0.05, 45.0)])
def test_rounding_of_the_cdf(sigma: float, z: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    for shift in (1.0, 2.0):
        with mpmath.workdps(60):
            tails = [
                mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (mpmath.mpf(z), mpmath.mpf(z) - shift / mpmath.mpf(sigma))
            ]
            exact = 999 * mpmath.log1p(-tails[0]) + mpmath.log1p(-tails[1])
            got = shuffle_thresholds._log_cdf(np.array([z]), shift, pair(sigma, 1000))[0]
            relative = abs((mpmath.mpf(float(got)) - exact) / exact)
        assert relative <= shuffle_thresholds._rounding(np.array([z]), pair(sigma, 1000))[0]


def test_never_above_the_two_dimensional_truth() -> None:
    """T = 2: the pair (P_S, Q_S) integrated on a grid of 801 x 801 points; several epochs against Monte Carlo below."""
    for sigma in (0.5, 1.0, 2.0):
        axis = np.linspace(-9 * sigma, 2 + 9 * sigma, 801)
        x, y = np.meshgrid(axis, axis)
        cell = (axis[1] - axis[0]) ** 2 / (2 * np.pi * sigma**2)

        def density(shift: float) -> np.ndarray:
            at = [np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2)) for a, b in ((shift, 0), (0, shift))]  # noqa: B023
            return 0.5 * cell * (at[0] + at[1])  # noqa: B023

        with_example, without = density(2.0), density(1.0)
        bound = lower(sigma, 2)
        for epsilon in EPSILONS:
            truth = {
                Direction.REMOVE: np.maximum(with_example - exp(epsilon) * without, 0).sum(),
                Direction.ADD: np.maximum(without - exp(epsilon) * with_example, 0).sum(),
            }
            for direction in Direction:
                assert bound.profiles[direction](epsilon) <= truth[direction] * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize(("sigma", "bins", "epochs"), [(1.0, 3, 3), (2.0, 5, 8)])
def test_never_above_monte_carlo_of_several_epochs(sigma: float, bins: int, epochs: int) -> None:
    """The ratio of (P_S, Q_S) over the epochs under Q_S: 300,000 draws, 5 standard errors."""
    rng = np.random.default_rng(11)
    ratio = np.ones(300_000)
    for _ in range(epochs):
        w = rng.normal(0.0, sigma, (ratio.size, bins))
        w[:, 0] += 1.0
        top = np.exp((2 * w - 2) / sigma**2).mean(axis=1)
        ratio *= top / np.exp((w - 0.5) / sigma**2).mean(axis=1)
    bound = lower(sigma, bins, epochs)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        remove = 1.0 - exp(epsilon) + np.maximum(exp(epsilon) - ratio, 0.0)
        add = np.maximum(1.0 - exp(epsilon) * ratio, 0.0)
        for direction, values in ((Direction.REMOVE, remove), (Direction.ADD, add)):
            error = 5.0 * float(values.std()) / sqrt(values.size)
            assert bound.profiles[direction](epsilon) <= values.mean() + error


@given(sigma=st.floats(0.02, 30.0), bins=st.integers(1, 10**6), epochs=st.integers(1, 60))
@example(sigma=0.070559627035509, bins=3000, epochs=1)  # at eps = 699 a cdf underflows that e^eps makes count
@settings(max_examples=25, derandomize=True)
def test_never_above_the_deterministic_bound(sigma: float, bins: int, epochs: int) -> None:
    """chua-2024, Theorem 4.1: shuffling is no worse than fixed batches."""
    below = lower(sigma, bins, epochs)
    above = gaussian.ACCOUNTANT.bound(pair(sigma, bins, epochs), Side.UPPER)
    for direction in Direction:
        for epsilon in (*EPSILONS, 50.0, 699.0):
            assert below.profiles[direction](epsilon) <= above.profiles[direction](epsilon)


@pytest.mark.parametrize(("sigma", "bins"), [(0.5, 1000), (1.0, 1), (3.0, 20)])
def test_epoch_law_is_below_the_thresholds_and_close(sigma: float, bins: int) -> None:
    law = shuffle_thresholds.epoch_law(pair(sigma, bins))
    assert law is not None
    assert law.mass.sum() <= 1 + 1e-9
    assert law.mean() <= 1 + 1e-9
    for epsilon in (0.1, 0.5, 1.0):
        best = shuffle_thresholds._best_threshold(pair(sigma, bins), epsilon, Direction.REMOVE)
        assert 0.99 * best <= law_delta(law, epsilon, Direction.REMOVE) <= best * (1 + 1e-6)


def test_more_epochs_reveal_more() -> None:
    values = [lower(1.0, 1000, epochs).epsilon(1e-6) for epochs in (1, 2, 5, 10)]
    assert np.all(np.diff(values) > 0)
    assert lower(0.01, 50, 3).delta(100.0) > 0.99  # P_S and Q_S hardly overlap: no law, one epoch says it all


# ---- clones


def test_refuses_where_the_theorem_says_nothing() -> None:
    for refused in (pair(1.0, 1000, batch_size=1), pair(5.0, 100, batch_size=1), pair(20.0, 10**6, batch_size=100)):
        with pytest.raises(UnsupportedError, match=r"whole batches are shuffled.*sensitivity 2 \* batch_size"):
            shuffle_clones.ACCOUNTANT.bound(refused, Side.UPPER)
    with pytest.raises(UnsupportedError, match="no lower bounds"):
        shuffle_clones.ACCOUNTANT.bound(pair(5.0, 10**5, batch_size=1), Side.LOWER)


@pytest.mark.parametrize(
    ("sigma", "bins", "epochs", "batch_size", "gain"),
    [(5.0, 10_000, 1, 1, 3.0), (20.0, 10**6, 3, 4, 10.0), (3.0, 10**8, 1, 1, 50.0)],
)
def test_beats_the_gaussian_for_tiny_batches_and_large_noise(
    sigma: float, bins: int, epochs: int, batch_size: int, gain: float
) -> None:
    tiny = pair(sigma, bins, epochs, batch_size)
    clones = shuffle_clones.ACCOUNTANT.bound(tiny, Side.UPPER)
    known = gaussian.ACCOUNTANT.bound(tiny, Side.UPPER)
    below = shuffle_thresholds.ACCOUNTANT.bound(tiny, Side.LOWER, quick())
    assert below.epsilon(1e-6) < clones.epsilon(1e-6) < known.epsilon(1e-6) / gain
    for epsilon in (0.0, 1e-3, 0.01, 0.1, 1.0, 10.0):
        assert below.delta(epsilon) <= clones.delta(epsilon) <= 1.0


@given(sigma=st.floats(2.0, 50.0), log_bins=st.floats(3.0, 18.0), epochs=st.integers(1, 5))
@settings(max_examples=15, derandomize=True)
def test_clones_never_below_the_thresholds(sigma: float, log_bins: float, epochs: int) -> None:
    tiny = pair(sigma, int(exp(log_bins)), epochs, 1)
    if shuffle_clones.ACCOUNTANT.why_not(tiny, Side.UPPER):
        return
    above = shuffle_clones.ACCOUNTANT.bound(tiny, Side.UPPER)
    below = shuffle_thresholds.ACCOUNTANT.bound(tiny, Side.LOWER, quick())
    for direction in Direction:
        for epsilon in (0.0, 1e-3, 0.01, 0.1, 0.5, 1.0):
            assert above.profiles[direction](epsilon) >= below.profiles[direction](epsilon)


def exact_clone_divergence(bins: int, epsilon0: float, epsilon1: float, epsilon: float) -> float:
    """H at e^eps of the counts of step 2 (Feldman, McMillan and Talwar 2021, Theorem 3.2), summed exactly."""
    own = exp(epsilon1) / (1.0 + exp(epsilon1))
    total = 0.0
    for count in range(bins):
        weight = binom.pmf(count, bins - 1, exp(-epsilon0))
        if weight > 1e-14:
            first = binom.pmf(np.arange(-1, count + 1), count, 0.5)  # A + 1 = 0 .. count + 1
            second = binom.pmf(np.arange(0, count + 2), count, 0.5)  # A
            p = own * first + (1 - own) * second
            q = (1 - own) * first + own * second
            total += weight * np.maximum(p - exp(epsilon) * q, 0.0).sum()
    return total


@pytest.mark.parametrize(("bins", "epsilon0", "epsilon1"), [(400, 0.5, 0.5), (1000, 1.0, 0.5), (2000, 2.0, 2.0)])
def test_counting_bound_is_above_the_exact_divergence(bins: int, epsilon0: float, epsilon1: float) -> None:
    for epsilon in (0.05, 0.1, 0.2, 0.4, 0.8):
        eta = tanh(0.5 * epsilon1)
        exponent = shuffle_clones.counting_exponent(
            np.array([(bins - 1) * exp(-epsilon0)]), np.array([np.expm1(epsilon) / eta])
        )[0]
        bound = 2.0 * eta * exp(-exponent) if exponent > 0 else 1.0
        assert bound >= exact_clone_divergence(bins, epsilon0, epsilon1, epsilon)


def printed_epsilon(epsilon0: float, bins: int, delta: float) -> float:
    """epsilon of Feldman, McMillan and Talwar 2021, Theorem 3.1; infinite where the theorem does not apply."""
    if epsilon0 > log(bins / (16.0 * log(2.0 / delta))):
        return float("inf")
    spread = 8.0 * sqrt(exp(epsilon0) * log(4.0 / delta) / bins) + 8.0 * exp(epsilon0) / bins
    return log(1.0 + tanh(0.5 * epsilon0) * spread)


@pytest.mark.parametrize("bins", [100, 10_000, 10**7])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-8])
def test_counting_bound_is_at_most_the_printed_one(bins: int, delta: float) -> None:
    for epsilon0 in np.linspace(0.05, 12.0, 40):
        printed = printed_epsilon(epsilon0, bins, delta)
        if printed < float("inf"):
            spread = np.array([np.expm1(printed) / tanh(0.5 * epsilon0)])
            exponent = shuffle_clones.counting_exponent(np.array([(bins - 1) * exp(-epsilon0)]), spread)[0]
            assert 2.0 * exp(-exponent) <= delta
    assert printed_epsilon(log(bins), bins, delta) == float("inf")


def test_planted_fault_sensitivity_of_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sensitivity 1, as if other batches were alike, large batches would seem to hide the example."""
    large = pair(3.0, 2000, 1, 1000)
    monkeypatch.setattr(shuffle_clones, "sensitivity_to_others", lambda pair: 1.0)
    faulty = shuffle_clones.ACCOUNTANT.bound(large, Side.UPPER).epsilon(1e-3)
    monkeypatch.undo()
    assert faulty < gaussian.ACCOUNTANT.bound(large, Side.UPPER).epsilon(1e-3)
    with pytest.raises(UnsupportedError):
        shuffle_clones.ACCOUNTANT.bound(large, Side.UPPER)


def test_one_batch_is_the_gaussian() -> None:
    for direction in Direction:
        value = lower(1.5, 1).profiles[direction](0.7)
        assert value == pytest.approx(gaussian_delta(1.5, 1.0, 0.7, Side.LOWER), rel=1e-9)
