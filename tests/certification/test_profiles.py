"""Whole profiles from both sides: never worse than their accountants, in order, and sound between the knots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.certification.chords import extended_chords
from hockeystick.certification.profiles import _Envelope
from hockeystick.curve import POINT_TOLERANCE, curve
from hockeystick.errors import InvalidInputError
from hockeystick.laws.chords import upper_curve
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Side

EPSILONS = np.array([0.0, 0.003, 0.05, 0.3, 0.777, 1.5, 3.0, 6.0])
RUNS = {
    "deterministic": hs.Mechanism(sampler=hs.Deterministic(bins=4, epochs=2), noise_multiplier=2.0),
    "poisson": hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=50), noise_multiplier=1.0),
    "shuffle": hs.Mechanism(sampler=hs.Shuffle(batch_size=10, bins=20), noise_multiplier=1.0),
    "truncated": hs.Mechanism(
        sampler=hs.Poisson(sampling_prob=0.01, steps=20, truncated_batch_size=60, num_examples=1000),
        noise_multiplier=1.0,
    ),
}
CORRELATED = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=hs.BallsInBins(bins=8), noise_multiplier=2.0)


@pytest.mark.parametrize("name", list(RUNS))
def test_profiles_are_in_order_and_fall(name: str) -> None:
    both = hs.profile(RUNS[name], smallest_delta=1e-6)
    upper, lower = both[Side.UPPER], both[Side.LOWER]
    assert (upper.side, lower.side) == (Side.UPPER, Side.LOWER)
    assert np.all(lower.delta(EPSILONS) <= upper.delta(EPSILONS))
    assert np.all(np.diff(upper.delta(EPSILONS)) <= 0.0)
    assert "gaussian" in upper.method
    assert 0.0 < lower.epsilon(1e-4) <= upper.epsilon(1e-4)
    assert all(hasattr(profile, "each") for bound in both.values() for profile in bound.profiles.values())


def test_accountants_that_are_slow_for_each_epsilon_are_tabulated() -> None:
    """The envelope is between the certified ends where it was tabulated and where it was not."""
    both = hs.profile(CORRELATED, smallest_delta=1e-3)
    assert "moment_majorant" in both[Side.UPPER].method
    assert np.all(both[Side.LOWER].delta(EPSILONS) <= both[Side.UPPER].delta(EPSILONS))
    for epsilon in (0.2, 0.45):
        certified = hs.certify(CORRELATED, epsilon=epsilon).delta
        assert isinstance(certified, hs.Interval)
        assert both[Side.LOWER].delta(epsilon) <= certified.upper
        assert both[Side.UPPER].delta(epsilon) >= (certified.lower or 0.0)
        assert both[Side.UPPER].delta(epsilon) <= 1.05 * certified.upper


@pytest.mark.parametrize("name", ["deterministic", "poisson", "truncated"])
def test_profiles_are_as_good_as_certify(name: str) -> None:
    """The same accountants, on grids that differ: within a percent in epsilon."""
    both = hs.profile(RUNS[name], smallest_delta=1e-6)
    certified = hs.certify(RUNS[name], delta=1e-4).epsilon
    assert isinstance(certified, hs.Interval)
    assert both[Side.UPPER].epsilon(1e-4) <= 1.01 * certified.upper
    assert both[Side.LOWER].epsilon(1e-4) >= 0.99 * certified.lower
    assert both[Side.LOWER].epsilon(1e-4) <= certified.upper
    assert both[Side.UPPER].epsilon(1e-4) >= certified.lower


def test_a_users_profile_leaves_out_no_accountant_that_certify_uses() -> None:
    """What is at least as tight for one example need not be for several: split_noise beats direct here."""
    unit = hs.Unit(kind="user", examples_per_user=8)
    run = hs.Mechanism(sampler=hs.BMinSep(min_sep=2, sampling_prob=0.01, steps=30), noise_multiplier=2.0, unit=unit)
    certified = hs.certify(run, delta=1e-5)
    assert certified.method.upper == "split_noise"
    assert hs.profile(run)[Side.UPPER].epsilon(1e-5) <= 1.002 * certified.bounds.upper


def test_an_envelope_of_nothing_claims_nothing() -> None:
    pair = dominating_pair(RUNS["poisson"])
    assert _Envelope(Side.UPPER, pair).bound().delta(1.0) == 1.0
    assert _Envelope(Side.LOWER, pair).bound().delta(1.0) == 0.0


@pytest.mark.parametrize("side", list(Side))
def test_an_envelope_is_the_tightest_of_its_bounds_at_every_epsilon_and_direction(side: Side) -> None:
    """Two bounds that cross, and that differ by direction."""
    envelope = _Envelope(side, dominating_pair(RUNS["poisson"]))
    pairs = [(lambda epsilon: 0.4 - 0.1 * epsilon, lambda epsilon: 0.05), (lambda epsilon: 0.2, lambda epsilon: 0.1)]
    for remove, add in pairs:
        profiles = {hs.Direction.REMOVE: remove, hs.Direction.ADD: add}
        envelope.bounds.append(hs.Bound("test", side, hs.Kind.DETERMINISTIC, 1.0, "none", profiles))
    tightest = (0.2, 0.1) if side is Side.UPPER else (0.4, 0.2)
    assert envelope.bound().delta([0.0, 3.0]) == pytest.approx(tightest)
    assert envelope.bound().profiles[hs.Direction.ADD](0.0) == (0.05 if side is Side.UPPER else 0.1)


def test_a_fixed_schedule_has_the_profile_of_one_gaussian() -> None:
    both = hs.profile(RUNS["deterministic"])
    upper, lower = both[Side.UPPER].delta(EPSILONS), both[Side.LOWER].delta(EPSILONS)
    assert np.all(upper <= lower * (1.0 + 1e-8))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=6),
    st.lists(st.floats(0.0, 4.0), min_size=2, max_size=9, unique=True),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=20),
    st.floats(0.0, 0.3),
)
def test_interpolation_stays_on_its_side_of_any_profile(masses, places, epsilons, loose) -> None:
    """Profiles of pairs on a few points, which have corners, from values that are off by any factor."""
    p, q = (np.array(column, dtype=float) / sum(column) for column in zip(*masses, strict=True))

    def truth(epsilon: float) -> float:
        return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())

    knots = sorted({0.0, *(round(place, 3) for place in places)})
    if len(knots) < 2:
        knots = [0.0, 1.0]
    exact = [truth(knot) for knot in knots]
    above, below = [(1.0 + loose) * value for value in exact], [(1.0 - loose) * value for value in exact]
    upper, lower = upper_curve(knots, above), extended_chords(knots, below, above)
    for epsilon in (*epsilons, *knots):
        assert lower(epsilon) <= truth(epsilon) + 1e-15
        assert upper(epsilon) >= truth(epsilon) - 1e-15


def test_extended_chords_are_closer_than_steps() -> None:
    """With exact values on a smooth profile, the loss between knots is of second order."""
    bound = hs.bound(RUNS["deterministic"], "gaussian")
    losses = []
    for count in (17, 33):
        knots = np.linspace(0.0, 2.0, count).tolist()
        values = [bound.delta(knot) for knot in knots]
        lower = extended_chords(knots, values, values)
        middle = 0.5 * (knots[4 * (count // 16)] + knots[4 * (count // 16) + 1])
        losses.append(bound.delta(middle) - lower(middle))
    assert losses[0] > 3.0 * losses[1] > 0.0


def test_curves_agree_with_closed_forms() -> None:
    one = curve(RUNS["deterministic"], delta=1e-5, points=9)
    mu = np.sqrt(2.0) / 2.0
    assert one.profile.x.shape == one.trade_off.lower.shape == (9,)
    for name in ("profile", "trade_off"):
        sandwich = getattr(one, name)
        assert np.all(sandwich.lower <= sandwich.upper)
    assert np.all(np.diff(one.profile.upper) <= 0.0)
    assert np.all(one.trade_off.upper - one.trade_off.lower <= 1.1 * POINT_TOLERANCE)
    low, high = one.numbers["mu"]
    assert mu * (1.0 - 1e-6) <= low <= mu <= high <= mu * (1.0 + 1e-6)
    assert all(low <= high for low, high in one.numbers.values())
    assert one.as_json()["numbers"]["mu"] == {"lower": low, "upper": high}


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="smallest_delta"):
        hs.profile(RUNS["poisson"], smallest_delta=0.7)
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        hs.profile(hs.Mechanism(sampler=hs.Deterministic(bins=2)))
    with pytest.raises(InvalidInputError, match="points"):
        curve(RUNS["poisson"], points=1)
    with pytest.raises(InvalidInputError, match="delta"):
        curve(RUNS["poisson"], delta=1.0)
