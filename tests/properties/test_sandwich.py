"""Laws that bounds of whole mechanisms keep, over random mechanisms (derandomised Hypothesis)."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hockeystick as hs

QUICK = settings(max_examples=12, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NOISE = st.floats(0.4, 6.0)
DELTA = st.sampled_from([1e-10, 1e-7, 1e-5, 1e-3])
BINS = st.sampled_from([1, 2, 5, 17, 64, 300, 2000])
FEW = st.integers(1, 4)
LAW_RANGE = 150.0
"""Laws hold ratios up to 1e120 = e^276; an epsilon whose neighbourhood reaches beyond is infinite to them."""


@cache
def epsilon(mechanism: hs.Mechanism, method: str, delta: float, side: hs.Side = hs.Side.UPPER) -> float:
    grids = hs.Settings(resolution=hs.Resolution(nodes_per_unit=40, smallest_delta=delta))
    return hs.bound(mechanism, method, side=side, settings=grids).epsilon(delta)


def allocation(sigma: float, bins: int, participations: int = 1, epochs: int = 1) -> hs.Mechanism:
    sampler = hs.RandomAllocation(bins=bins, participations=min(participations, bins), epochs=epochs)
    return hs.Mechanism(sampler=sampler, noise_multiplier=sigma)


@QUICK
@given(sigma=NOISE, bins=BINS, participations=FEW, epochs=FEW, delta=DELTA)
def test_direct_lies_between_the_lower_bounds_and_every_published_bound(
    sigma: float, bins: int, participations: int, epochs: int, delta: float
) -> None:
    """lower <= direct <= min(analytic, decomposition, renyi), direct up to its own discretisation (1 percent here)."""
    mechanism = allocation(sigma, bins, participations, epochs)
    direct = epsilon(mechanism, "direct", delta)
    assert epsilon(mechanism, "direct", delta, hs.Side.LOWER) <= direct
    assert epsilon(mechanism, "projection", delta, hs.Side.LOWER) <= direct
    others = {name: epsilon(mechanism, name, delta) for name in ("analytic", "decomposition", "renyi", "gaussian")}
    best = min(others.values())
    assert direct <= best * 1.01 + 1e-4 or best > LAW_RANGE, others


@QUICK
@given(sigma=NOISE, steps=st.sampled_from([1, 10, 300, 5000]), rate=st.floats(1e-4, 1.0), delta=DELTA)
def test_poisson_direct_lies_below_renyi(sigma: float, steps: int, rate: float, delta: float) -> None:
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=steps), noise_multiplier=sigma)
    direct = epsilon(mechanism, "direct", delta)
    assert epsilon(mechanism, "direct", delta, hs.Side.LOWER) <= direct
    renyi = epsilon(mechanism, "renyi", delta)
    assert direct <= renyi * 1.01 + 1e-4 or renyi > LAW_RANGE


@QUICK
@given(
    sigma=st.floats(0.3, 20.0),
    batch=st.integers(1, 50),
    bins=st.integers(1, 10_000),
    epochs=st.integers(1, 20),
    delta=DELTA,
)
def test_shuffle_lower_is_below_every_shuffle_upper(
    sigma: float, batch: int, bins: int, epochs: int, delta: float
) -> None:
    sampler = hs.Shuffle(batch_size=batch, bins=bins, epochs=epochs)
    outcomes = hs.compare(hs.Mechanism(sampler=sampler, noise_multiplier=sigma), delta=delta)
    lower = max(outcome.value for outcome in outcomes if outcome.side is hs.Side.LOWER and outcome.value is not None)
    uppers = [outcome.value for outcome in outcomes if outcome.side is hs.Side.UPPER and outcome.value is not None]
    assert uppers
    assert lower <= min(uppers)


def no_harder(easier: hs.Mechanism, harder: hs.Mechanism, delta: float) -> bool:
    """Whether the brackets allow that ``easier`` has at most the epsilon of ``harder``; false is a contradiction."""
    return epsilon(easier, "direct", delta, hs.Side.LOWER) <= epsilon(harder, "direct", delta)


@pytest.mark.weekly
@QUICK
@given(sigma=NOISE, factor=st.floats(1.01, 3.0), bins=BINS, epochs=FEW, delta=DELTA)
def test_allocation_is_monotone_in_noise_bins_epochs_and_delta(
    sigma: float, factor: float, bins: int, epochs: int, delta: float
) -> None:
    base = allocation(sigma, bins, 1, epochs)
    assert no_harder(base.with_noise(sigma * factor), base, delta)
    assert no_harder(allocation(sigma, 2 * bins, 1, epochs), base, delta)
    assert no_harder(base, allocation(sigma, bins, 1, epochs + 1), delta)
    assert no_harder(base, allocation(sigma, bins, 2, epochs), delta)
    assert epsilon(base, "direct", 2 * delta, hs.Side.LOWER) <= epsilon(base, "direct", delta)


@QUICK
@given(sigma=NOISE, rate=st.floats(1e-3, 0.5), steps=st.integers(1, 500), delta=DELTA)
def test_poisson_is_monotone_in_noise_rate_and_steps(sigma: float, rate: float, steps: int, delta: float) -> None:
    def run(noise: float, q: float, count: int) -> hs.Mechanism:
        return hs.Mechanism(sampler=hs.Poisson(sampling_prob=q, steps=count), noise_multiplier=noise)

    base = run(sigma, rate, steps)
    assert no_harder(run(1.1 * sigma, rate, steps), base, delta)
    assert no_harder(base, run(sigma, 1.5 * rate, steps), delta)
    assert no_harder(base, run(sigma, rate, steps + 1 + steps // 10), delta)
    # The assertion can fail: far apart, the other way round is a contradiction.
    assert not no_harder(run(sigma, 2.0 * rate, 4 * steps), run(4.0 * sigma, rate, steps), delta) or delta > 1e-6
