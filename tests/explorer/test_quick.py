"""Quick answers are upper bounds, never below what ``certify`` says, and keep to their deadline."""

import math
import time

import pytest

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError
from hockeystick.explorer.quick import (
    LOWER,
    UPPER,
    _likely,
    _Look,
    prefix_error,
    quick_epsilon,
    quick_noise,
    quick_profile,
)
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.settings import SearchPolicy
from hockeystick.types import Kind, Side

POISSON = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=300), noise_multiplier=1.0)
ALLOCATION = hs.Mechanism(sampler=hs.RandomAllocation(bins=50, epochs=4), noise_multiplier=0.8)
PUBLIC = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
USERS = hs.Mechanism(
    sampler=hs.Poisson(sampling_prob=0.01, steps=100),
    noise_multiplier=2.0,
    unit=hs.Unit(kind="user", examples_per_user=2),
)
CYCLIC = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4),
    sampler=hs.CyclicPoisson(groups=4, sampling_prob=0.04, steps=200),
    noise_multiplier=2.0,
)
CHEAP = [POISSON, ALLOCATION, PUBLIC, USERS, CYCLIC]


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("mechanism", CHEAP, ids=lambda mechanism: mechanism.sampler.kind)
def test_a_quick_epsilon_is_never_below_certify(mechanism, delta):
    answer, certified = quick_epsilon(mechanism, delta, Deadline()), hs.certify(mechanism, delta=delta).epsilon
    assert answer.complete
    assert answer.methods[0] != "gaussian" or mechanism is PUBLIC
    assert certified.upper <= answer.upper <= 1.05 * certified.upper
    assert answer.lower is None or answer.lower <= certified.upper


@pytest.mark.parametrize("near", [None, 0.5])
@pytest.mark.parametrize("mechanism", [POISSON, PUBLIC], ids=lambda mechanism: mechanism.sampler.kind)
def test_a_quick_noise_is_certified_for_its_target(mechanism, near):
    """Wherever the search begins."""
    answer = quick_noise(mechanism, 1.5, 1e-5, Deadline(), near)
    calibrated = mechanism.with_noise(answer.noise_multiplier)
    assert hs.certify(calibrated, delta=1e-5).epsilon.upper <= answer.upper <= 1.5
    assert answer.noise_multiplier <= 1.02 * hs.calibrate(mechanism, epsilon=1.5, delta=1e-5).sigma


def test_without_time_the_gaussian_remains():
    """Its noise is that of the unamplified Gaussian: 300 steps in which the example may always take part."""
    answer = quick_noise(POISSON, 2.0, 1e-5, Deadline(0.0))
    assert not answer.complete
    assert answer.methods == ("gaussian", None)
    assert gaussian_delta(answer.noise_multiplier, math.sqrt(300), 2.0, Side.UPPER) <= 1e-5
    hopeless = POISSON.with_noise(0.05)  # an epsilon above 700 without amplification
    with pytest.raises(BudgetExceededError):
        quick_epsilon(hopeless, 1e-5, Deadline(0.0))


def test_a_dense_matrix_is_optimised_within_the_deadline_or_not_at_all():
    small = hs.Mechanism(strategy=hs.Dense(epochs=2), sampler=hs.BallsInBins(bins=10, epochs=2), noise_multiplier=4.0)
    answer = quick_epsilon(small, 1e-5, Deadline())
    assert answer.upper >= hs.certify(small, delta=1e-5).epsilon.upper
    large = hs.Mechanism(strategy=hs.Dense(epochs=8), sampler=hs.BallsInBins(bins=32, epochs=8), noise_multiplier=4.0)
    began = time.process_time()
    with pytest.raises(BudgetExceededError):
        quick_epsilon(large, 1e-5, Deadline(0.1))
    assert time.process_time() - began < 2.0  # to the end it takes more than ten seconds


def test_a_search_without_a_better_idea_begins_near_its_end():
    for mechanism in (POISSON, ALLOCATION):
        noise = quick_noise(mechanism, 2.0, 1e-5, Deadline()).noise_multiplier
        begin = _likely(mechanism, 2.0, 1e-5, 1e6)
        assert 0.8 * noise < begin < 1.5 * noise


def test_no_finite_bound_is_said():
    with pytest.raises(CannotCertifyError):
        quick_epsilon(hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=0.02), 1e-6, Deadline())


def test_a_curve_is_above_certify():
    points = quick_profile(POISSON, "direct", 1e-5, Deadline())
    assert points["delta"] == sorted(points["delta"], reverse=True)
    for epsilon, delta in list(zip(points["epsilon"], points["delta"], strict=True))[2:12:5]:
        assert delta >= hs.certify(POISSON, epsilon=epsilon).delta.upper


def test_what_certify_may_leave_out_is_not_asked():
    """certify skips a heavy accountant where a lighter one is within 0.5 percent, more than quick answers give away."""
    heavy = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=hs.BallsInBins(bins=1100))
    light = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=hs.BallsInBins(bins=100))
    for mechanism, asked in ((heavy, set()), (light, {"moment_majorant"})):
        names = set(_Look(mechanism, 1e-5, Deadline()).applicable(1.0, UPPER, Side.UPPER))
        assert names == {"gaussian", "comparison"} | asked


def test_certify_runs_the_same_accountants():
    """This, and that heavy ones are not asked, is why a quick answer is never below that of certify."""
    assert set(UPPER) <= set(DEFAULT)
    assert all(ACCOUNTANTS[name].kind is Kind.DETERMINISTIC for name in (*UPPER, *LOWER))
    assert SearchPolicy().gap_goal <= 1e-3


def test_the_error_of_prefix_sums():
    """Independent noise: the sum of t steps has variance t, so (n + 1) / 2 on average."""
    assert prefix_error(PUBLIC) == pytest.approx(2.0 * math.sqrt(5.5))
    long = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=50_000), noise_multiplier=1.0)
    assert prefix_error(long) is None
