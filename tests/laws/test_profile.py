"""Reading a law: the safe side of the profile and of its inverse; and that the checks here can fail."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from law_oracles import assert_bracketed, enumerated_delta, gaussian_delta, hand_built

from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.gaussian import gaussian_delta as closed_form
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import FAR, Law, in_units, point_mass_at_one
from hockeystick.laws.operations import average, power, thin
from hockeystick.laws.profile import MAX_EPSILON, law_delta, law_deltas, product_delta, smallest_epsilon
from hockeystick.types import Direction, Side

MEDIUM = Resolution(nodes_per_unit=32)
EPSILONS = (0.0, 0.3, 1.0, 2.0, 4.0)


def gaussian_bounds() -> tuple[Law, Law]:
    return gaussian_law(1.0, 1.0, Side.UPPER, MEDIUM), gaussian_law(1.0, 1.0, Side.LOWER, MEDIUM)


def check(upper: Law, lower: Law) -> None:
    assert_bracketed(upper, lower, lambda e, _: gaussian_delta(1.0, e), EPSILONS, gap=0.01)


# --- Planted faults: the checks must reject each of them -----------------------------------------------------------


def rounded(law: Law, nodes: int) -> Law:
    """Every ratio moved by whole nodes, as an accountant that rounds losses down (or up) would do."""
    return replace(law, support=np.roll(law.support, nodes)[1:-1], mass=law.mass[1:-1])


def test_the_check_accepts_the_real_laws() -> None:
    check(*gaussian_bounds())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda u, lo: (rounded(u, 1), lo), id="upper-rounded-down-a-node"),
        pytest.param(lambda u, lo: (rounded(u, -1), lo), id="upper-rounded-up-a-node"),
        pytest.param(lambda u, lo: (u, rounded(lo, 1)), id="lower-rounded-down-a-node"),
        pytest.param(lambda u, lo: (u, rounded(lo, -1)), id="lower-rounded-up-a-node"),
        pytest.param(lambda u, lo: (replace(lo, side=Side.UPPER), lo), id="contraction-called-upper"),
        pytest.param(lambda u, lo: (u, replace(u, side=Side.LOWER)), id="spread-called-lower"),
        pytest.param(lambda u, lo: (replace(u, mass=u.mass * (1 - 1e-2)), lo), id="mass-lost"),
        pytest.param(lambda u, lo: (replace(u, mass=u.mass * (u.support > 0.02)), lo), id="left-tail-dropped"),
        pytest.param(
            lambda u, lo: (replace(u, mass=u.mass * (u.support < 50.0), p_inf=0.0), lo), id="right-tail-dropped"
        ),
        pytest.param(lambda u, lo: (u, replace(lo, mass=lo.mass * (1 + 1e-2))), id="mass-added-to-lower"),
        pytest.param(lambda u, lo: (u, replace(lo, p_inf=1e-3)), id="lower-with-mass-at-infinity"),
    ],
)
def test_the_check_rejects(fault) -> None:
    with pytest.raises(AssertionError, match=r"The (upper|lower) bound is"):
        check(*fault(*gaussian_bounds()))


# --- law_delta -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place_error", [0.0, 1e-12, 1e-7, 1e-3, 0.3])
@pytest.mark.parametrize("mass_error", [0.0, 1e-12, 1e-3, 0.3])
def test_stated_errors_are_charged_on_the_safe_side(place_error: float, mass_error: float) -> None:
    """A law moved and scaled by just what it says it may be off by still gives a bound of the true pair."""
    atoms = [(mp.mpf(1) / 4, mp.mpf(1) / 2), (mp.mpf(1), mp.mpf(1) / 4), (mp.mpf(5) / 2, mp.mpf(1) / 4)]
    support, mass = ([float(v) for v in column] for column in zip(*atoms, strict=True))
    for sign in (-1.0, 1.0):
        for side in Side:
            scale = 1.0 - mass_error if side is Side.UPPER else 1.0 + mass_error
            law = Law(
                np.array(support) * (1.0 + sign * place_error),
                np.array(mass) * scale,
                0.0,
                side,
                mass_error + 4e-16,
                place_error + 4e-16,
            )
            for direction in Direction:
                for epsilon in (0.0, 0.1, 0.5, 0.9, 1.3, 1.386, 2.0):
                    c = mp.exp(mp.mpf(epsilon))
                    truth = mp.fsum(
                        max(x - c if direction is Direction.REMOVE else 1 - c * x, mp.mpf(0)) * q for x, q in atoms
                    )
                    bound = law_delta(law, epsilon, direction)
                    assert bound >= truth if side is Side.UPPER else bound <= truth
                    if place_error <= 1e-7 and mass_error <= 1e-12:
                        assert bound == pytest.approx(float(truth), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("error", [0.999, 1.0, 1.5, 1e3, float("inf"), float("nan")])
@pytest.mark.parametrize("field", ["mass_error", "place_error"])
def test_errors_beyond_one_leave_only_the_trivial_bound(error: float, field: str) -> None:
    truth = gaussian_delta(1.0, 1.0)
    upper, lower = (replace(law, **{field: error}) for law in gaussian_bounds())
    for direction in Direction:
        assert law_delta(upper, 1.0, direction) >= truth
        assert law_delta(lower, 1.0, direction) <= truth
        assert law_delta(upper, 1.0, direction) == 1.0
        assert law_delta(lower, 1.0, direction) <= 1e-2


def test_epsilons_beyond_the_range_of_doubles() -> None:
    atoms = ((mp.mpf(0), mp.mpf(1) / 2), (mp.mpf(2), mp.mpf(1) / 2))
    for side in Side:
        law = hand_built([float(x) for x, _ in atoms], [float(q) for _, q in atoms], 0.0, side)
        for epsilon in (MAX_EPSILON, 701.0, 1e4):
            value = law_delta(law, epsilon, Direction.ADD)  # exactly 1/2 at every epsilon
            assert value >= 0.5 if side is Side.UPPER else value <= 0.5
            assert law_delta(law, epsilon, Direction.REMOVE) <= 1e-12


def test_discrete_laws_are_read_exactly() -> None:
    atoms = ((Fraction(0), Fraction(1, 4)), (Fraction(1), Fraction(1, 2)), (Fraction(2), Fraction(1, 4)))
    upper, lower = (hand_built([0.0, 1.0, 2.0], [0.25, 0.5, 0.25], 0.0, side) for side in (Side.UPPER, Side.LOWER))
    assert_bracketed(
        upper,
        lower,
        lambda e, d: enumerated_delta(atoms, 1, lambda r: r[0], e, d),
        (0.0, 0.2, 0.5, 0.69),
        gap=1e-12,
    )


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("place_error", [0.0, 1e-3])
def test_many_epsilons_are_read_together_as_each_is_alone(place_error: float, direction: Direction) -> None:
    """At least the rational sum over the nodes, and near the other reading.

    They differ by the rounding of all additions, relatively; and by that of a threshold, by which delta moves no more
    than the threshold does.
    """
    rng = np.random.default_rng(5)
    support = np.concatenate([[0.0], np.sort(np.exp(rng.normal(0.0, 4.0, 60)))])
    mass = np.exp(-rng.exponential(12.0, 61))
    mass /= mass.sum()
    law = replace(hand_built(support.tolist(), mass.tolist(), 1e-7, Side.UPPER), place_error=place_error)
    at_nodes = np.log(support[support > 1.0])
    epsilons = [*EPSILONS, *at_nodes, *np.nextafter(at_nodes, 0.0), 30.0, 700.0]
    read = law_deltas(law, epsilons, direction)
    for epsilon, delta in zip(epsilons, read, strict=True):
        ratio = Fraction(float(np.exp(epsilon)))
        nodes = [(Fraction(float(x)), Fraction(float(m))) for x, m in zip(support, mass, strict=True)]
        if direction is Direction.REMOVE:
            exact = sum(m * max(x - ratio, 0) for x, m in nodes) + Fraction(1e-7)
        else:
            exact = sum(m * max(1 - ratio * x, 0) for x, m in nodes)
        assert delta >= min(exact, 1)
        assert delta == pytest.approx(law_delta(law, epsilon, direction), rel=1e-13, abs=2.0**-50)
    assert law_deltas(replace(law, mass_error=1.0), epsilons, direction) == [1.0] * len(epsilons)


@pytest.mark.parametrize("direction", Direction)
def test_many_epsilons_of_a_law_in_far_units_are_read_without_an_overflow(direction: Direction) -> None:
    logs = np.linspace(-700.0, 708.0, 90)
    mass = np.exp(600.0 * np.log(2.0) - 5.0 - np.maximum(1.01 * logs, 0.0))  # a P-mass of less than 1
    law = in_units(hand_built([0.5, 1.0], [0.5, 0.5], 1e-9, Side.UPPER), FAR)
    law = replace(law, support=np.exp(logs), mass=mass)
    epsilons = [0.0, 1.0, 300.0, 690.0]
    read = law_deltas(law, epsilons, direction)
    assert read == pytest.approx([law_delta(law, epsilon, direction) for epsilon in epsilons], rel=1e-12)


def test_nothing_is_told_by_the_point_mass() -> None:
    for direction in Direction:
        for epsilon in (0.0, 1e-6, 1.0, 50.0):
            assert law_delta(point_mass_at_one(Side.LOWER), epsilon, direction) == 0.0
            assert 0.0 <= law_delta(point_mass_at_one(Side.UPPER), epsilon, direction) <= 1e-14


# --- smallest_epsilon ----------------------------------------------------------------------------------------------

LAWS = {
    "gaussian": lambda side: gaussian_law(1.0, 1.0, side, MEDIUM),
    "poisson": lambda side: power(thin(gaussian_law(1.0, 1.0, side, MEDIUM), 0.01), 100, MEDIUM),
    "allocation": lambda side: average(gaussian_law(1.0, 1.0, side, MEDIUM), 50, MEDIUM),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("direction", list(Direction))
def test_the_inverse_stays_on_the_safe_end(name: str, direction: Direction) -> None:
    upper, lower = (partial(law_delta, LAWS[name](side), direction=direction) for side in (Side.UPPER, Side.LOWER))
    for delta in (0.9, 0.3, 0.1, 1e-2, 1e-5, 1e-9, 1e-20, 1e-28):
        above = smallest_epsilon(upper, delta, Side.UPPER)
        below = smallest_epsilon(lower, delta, Side.LOWER)
        assert upper(above) <= delta
        assert above == 0.0 or upper(above * (1 - 1e-8)) > delta
        assert below == 0.0 or lower(below) > delta
        assert below == 0.0 or lower(below * (1 + 1e-8)) <= delta
        assert below <= above


def test_the_inverse_of_a_closed_form() -> None:
    """mu = 1, delta = Phi(1/2 - 2) - e^2 Phi(-1/2 - 2): epsilon is 2, from both sides."""
    delta = float(gaussian_delta(1.0, 2.0))
    upper, lower = gaussian_bounds()
    above = smallest_epsilon(partial(law_delta, upper, direction=Direction.REMOVE), delta, Side.UPPER)
    below = smallest_epsilon(partial(law_delta, lower, direction=Direction.REMOVE), delta, Side.LOWER)
    assert 2.0 - 2e-3 < below < 2.0 < above < 2.0 + 2e-3


def test_the_inverse_near_the_largest_epsilon() -> None:
    def step_at(place: float):
        return lambda epsilon: 1.0 if epsilon < place else 0.0

    for place in (1e-12, 1e-3, 262.0, 263.0, 500.0, 699.0):
        assert place <= smallest_epsilon(step_at(place), 0.5, Side.UPPER) <= place * (1 + 1e-8)
        assert place * (1 - 1e-8) <= smallest_epsilon(step_at(place), 0.5, Side.LOWER) < place
    assert smallest_epsilon(step_at(1e4), 0.5, Side.UPPER) == float("inf")
    assert smallest_epsilon(step_at(1e4), 0.5, Side.LOWER) == MAX_EPSILON
    assert smallest_epsilon(step_at(0.0), 0.5, Side.UPPER) == 0.0
    assert smallest_epsilon(step_at(0.0), 0.5, Side.LOWER) == 0.0


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numbers_of_numpy_are_numbers(kind: type) -> None:
    law = gaussian_law(1.0, 1.0, Side.UPPER, Resolution(16, 1e-6))
    for direction in Direction:
        assert law_delta(law, kind(2), direction) == law_delta(law, 2.0, direction)
    for side in Side:
        assert closed_form(1.0, 1.0, kind(2), side) == closed_form(1.0, 1.0, 2.0, side)
    at = partial(law_delta, law, direction=Direction.ADD)
    assert smallest_epsilon(at, kind(2) / 4096, Side.UPPER) == smallest_epsilon(at, 2.0 / 4096, Side.UPPER)


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("field", ["mass", "support"])
def test_what_is_no_number_proves_nothing(side: Side, field: str) -> None:
    """An overflow somewhere must not be read as a delta below every target, which would make epsilon zero."""
    law = gaussian_law(1.0, 1.0, side, MEDIUM)
    broken = replace(law, **{field: np.where(np.arange(law.size) == law.size // 2, np.nan, getattr(law, field))})
    for direction in Direction:
        assert law_delta(broken, 0.0, direction) == (1.0 if side is Side.UPPER else 0.0)
    if side is Side.UPPER:
        assert smallest_epsilon(partial(law_delta, broken, direction=Direction.REMOVE), 1e-5, side) == float("inf")


# --- Two laws without a law of both --------------------------------------------------------------------------------


def pairs_exactly(first: Law, second: Law, epsilon: float, direction: Direction) -> float:
    """The profile of the product of two laws, pair by pair in 50 digits, their errors left out."""
    with mp.workdps(50):
        c, total = mp.exp(mp.mpf(epsilon)), mp.mpf(0)
        for x, p in zip(first.support.tolist(), first.mass.tolist(), strict=True):
            for y, q in zip(second.support.tolist(), second.mass.tolist(), strict=True):
                product = mp.mpf(x) * y
                value = product - c if direction is Direction.REMOVE else 1 - c * product
                total += max(value, mp.mpf(0)) * p * q
        means = [
            mp.fdot(zip(one.support.tolist(), one.mass.tolist(), strict=True)) + one.p_inf for one in (first, second)
        ]
        if direction is Direction.REMOVE:
            total += means[0] * means[1] - (means[0] - first.p_inf) * (means[1] - second.p_inf)
        return float(total)


FIRST = hand_built((0.0, 0.4, 0.9, 1.5, 6.0), (0.08, 0.3, 0.3, 0.3, 0.02), 0.04, Side.UPPER)
SECOND = hand_built((0.5, 1.0, 1.25, 40.0), (0.189, 0.5105, 0.3, 0.0005), 0.0, Side.UPPER)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("laws", [(FIRST, SECOND), (SECOND, FIRST), (FIRST, FIRST), (SECOND, SECOND)])
def test_a_product_of_two_laws_counts_every_pair(laws: tuple[Law, Law], direction: Direction) -> None:
    """From above, to the rounding that is charged; also at the products of nodes, where a pair enters or leaves."""
    places = np.unique(np.multiply.outer(laws[0].support, laws[1].support))
    logs = np.log(places[places > 0.0])
    signed = logs if direction is Direction.REMOVE else -logs
    for epsilon in (*EPSILONS, 5.5, *signed[signed > 0.0]):
        exact, found = pairs_exactly(*laws, float(epsilon), direction), product_delta(*laws, float(epsilon), direction)
        assert found >= exact
        escaped = laws[0].p_inf * laws[1].p_inf if direction is Direction.REMOVE else 0.0
        assert found <= exact + escaped + 1e-13


@pytest.mark.parametrize("direction", list(Direction))
def test_a_product_of_two_laws_is_between_the_truth_and_the_law_of_both(direction: Direction) -> None:
    """Steps of Gaussians: the truth is that of sqrt(5) times the shift."""
    step = gaussian_law(2.0, 1.0, Side.UPPER, MEDIUM)
    first, both = power(step, 4, MEDIUM), power(step, 5, MEDIUM)
    for epsilon in EPSILONS:
        found = product_delta(first, step, epsilon, direction)
        assert gaussian_delta(np.sqrt(1.25), epsilon) <= found <= law_delta(both, epsilon, direction) * (1.0 + 1e-9)


def test_a_product_of_two_laws_charges_the_errors_of_both() -> None:
    for direction in Direction:
        plain = product_delta(FIRST, SECOND, 0.3, direction)
        for place in ("mass_error", "place_error"):
            for worse in ((replace(FIRST, **{place: 1e-3}), SECOND), (FIRST, replace(SECOND, **{place: 1e-3}))):
                assert product_delta(*worse, 0.3, direction) >= plain * (1.0 + 9e-4)
        assert product_delta(replace(FIRST, mass_error=1.0), SECOND, 0.3, direction) == 1.0
