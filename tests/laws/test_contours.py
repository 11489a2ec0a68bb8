"""Contour integrals for Poisson steps, against thirty-digit moments, a plain sum of the same integral and the laws."""

import tracemalloc
from math import exp, inf, log, log1p

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_oracles import contour_delta, exact_moment

from hockeystick.laws import answers, contours, poisson_moments
from hockeystick.laws.contours import Distant, Profiles
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import power, thin
from hockeystick.laws.poisson_moments import PoissonMoments
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

RUNS = [(0.01, 1.0, 2000), (0.1, 1.5, 100), (1e-3, 0.6, 20000), (0.3, 4.0, 60), (0.02, 25.0, 5000)]
"""Rate, noise multiplier, steps."""


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.2, 0.7), (1e-4, 2.0)])
@pytest.mark.parametrize("order", [4.0, 1.05, -3.0, -0.1])
def test_moments_are_as_near_as_they_say(rate: float, sigma: float, order: float) -> None:
    """At three frequencies of a line; the errors that are charged stay below 1e-11."""
    moments = PoissonMoments(rate, sigma)
    line = moments.line(order, 1.7, 40)
    with mp.workdps(30):
        exact = exact_moment(moments, order)
        assert abs(line.log_moment - mp.log(exact.real)) <= line.log_error
        assert abs(moments.log_moments(np.array([order]))[0] - mp.log(exact.real)) <= 1e-11
        for j in (0, 7, 39):
            ratio = exact_moment(moments, order + 1.7j * j) / exact
            assert abs(mp.mpc(line.ratios[j]) - ratio) <= line.errors[j]
    assert line.log_error < 1e-11
    assert line.errors.max() < 1e-11


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.5, 0.125), (0.5, 8.0), (0.3, 200.0), (1e-6, 30.0)])
@pytest.mark.parametrize("order", [-0.5, -40.0, -5000.0])
def test_densities_rise_below_the_lowest_node(rate: float, sigma: float, order: float) -> None:
    """Those of z and of L, at the rates that are charged: their slopes at places down to 60 below it."""
    moments = PoissonMoments(rate, sigma)
    z = moments.ends(order)[0] - np.linspace(0.0, 60.0, 500)
    odds = rate / (1.0 - rate) * np.exp(moments.mu * z - 0.5 * moments.mu**2)
    weights = odds / (1.0 + odds)
    assert (-z + order * moments.mu * weights >= poisson_moments.REACH).all()
    assert (-z - moments.mu + (order + 1.0) * moments.mu * weights >= poisson_moments.REACH - moments.mu).all()


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.4, 6.0)])
@pytest.mark.parametrize("order", [-30.0, -300.0])
def test_moments_of_far_orders_miss_nothing_of_the_density(rate: float, sigma: float, order: float) -> None:
    """Against nodes from -30 to 30, next to which there is nothing: the density is at most e^(300 * .51 - 450)."""
    moments = PoissonMoments(rate, sigma)
    z = np.linspace(-30.0, 30.0, 60_001)
    exponents = order * moments.log_ratios(z)[0] - 0.5 * z * z
    exact = exponents.max() + log(np.exp(exponents - exponents.max()).sum() * (z[1] - z[0]) / np.sqrt(2.0 * np.pi))
    assert moments.log_moments(np.array([order]))[0] == pytest.approx(exact, abs=1e-11 * abs(exact) + 1e-12)
    assert moments.line(order, 1.0, 2).log_moment == pytest.approx(exact, abs=1e-11 * abs(exact) + 1e-12)


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.01, 1.0, 20), (0.5, 1.0, 3), (1e-3, 0.5, 500)])
def test_add_is_0_where_no_product_of_ratios_is_as_small(rate: float, sigma: float, steps: int) -> None:
    """Beyond -n log(1 - q), and by moments neither; before it delta is above 0."""
    profiles, end = Profiles(PoissonMoments(rate, sigma), steps), -steps * log1p(-rate)
    for beyond in (1.0 + 1e-9, 2.0):
        assert profiles.sides(beyond * end, Direction.ADD) == (0.0, 0.0)
        assert profiles.by_moments(beyond * end, Direction.ADD) == 0.0
    assert profiles.by_moments(0.9 * end, Direction.ADD) > 0.0
    together = Profiles(PoissonMoments(rate, sigma), steps)
    together.foresee([0.5 * end, 2.0 * end], Direction.ADD)
    assert together.sides(0.5 * end, Direction.ADD) == profiles.sides(0.5 * end, Direction.ADD) != (0.0, 0.0)
    assert together.sides(2.0 * end, Direction.ADD) == (0.0, 0.0)


@pytest.mark.parametrize("together", [1, 100, 10**6])
def test_moments_do_not_depend_on_how_many_nodes_are_in_memory(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the order of their sums, whose rounding is charged; the line has 1,400 nodes."""
    line = PoissonMoments(0.01, 1.0).line(4.0, 5.0, 100)
    monkeypatch.setattr(poisson_moments, "TOGETHER", together)
    other = PoissonMoments(0.01, 1.0).line(4.0, 5.0, 100)
    assert other.log_moment == line.log_moment
    assert (np.abs(other.ratios - line.ratios) <= 0.1 * line.errors).all()
    assert (other.errors == line.errors).all()


@pytest.mark.parametrize("farthest", [0.3, 7.0, 1e4, 1e9])
def test_searches_for_the_end_of_a_line_begin_where_lines_are_too_long(
    farthest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the least of the frequencies in a ratio of 1.4 from which on the next lower one is too long as well."""
    profiles = Profiles(PoissonMoments(0.01, 1.0), 2000)
    monkeypatch.setattr(profiles, "_is_short", lambda order, step, last: last <= farthest)
    begin = profiles._farthest(2.0, 0.5)
    assert 0.5 / poisson_moments.OCTAVE < begin <= contours.MOST_FREQUENCIES * 0.5
    assert begin / poisson_moments.OCTAVE <= max(farthest, 0.5)
    assert begin > farthest or begin == contours.MOST_FREQUENCIES * 0.5


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"), [*RUNS, (1e-4, 0.5, 100_000), (0.01, 1.0, 50_000), (0.05, 2.0, 12)]
)
@pytest.mark.parametrize("order", [6.0, 1.2, -2.0])
def test_beyond_the_settled_frequency_the_integrand_is_small(
    rate: float, sigma: float, steps: int, order: float
) -> None:
    """|M(c + it) / M(c)|^steps from that frequency to twenty times it, and not an eighth of it before."""
    moments = PoissonMoments(rate, sigma)
    settled = moments.settled_frequency(order, steps, -20.0)
    frequencies = settled * np.geomspace(1.0, 20.0, 40)
    z = np.linspace(*moments.ends(order), 100_001)
    logs = moments.log_ratios(z)[0]
    weights = np.exp(order * logs - 0.5 * z * z - (order * logs - 0.5 * z * z).max())
    weights /= weights.sum()
    sizes = np.array([abs(weights @ np.exp(1j * t * logs)) for t in frequencies])
    assert (steps * np.log(sizes) <= -20.0).all()
    assert steps * log(abs(weights @ np.exp(1j * (settled / 8.0) * logs))) > -20.0, "the bound is needlessly far out"


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (1e-4, 0.5), (0.3, 3.0)])
@pytest.mark.parametrize("order", [15.0, 1.2, -0.5, -3.0])
@pytest.mark.parametrize("steps", [10, 100_000])
def test_a_limit_leaves_an_end_as_it_is_or_out_if_it_is_beyond(
    rate: float, sigma: float, order: float, steps: int
) -> None:
    """But for the precision of a search, for few steps; far beyond it nothing is proved, and nothing is returned."""
    moments = PoissonMoments(rate, sigma)
    settled = moments.settled_frequency(order, steps, -22.0)
    assert settled <= moments.settled_frequency(order, steps, -22.0, 1.5 * settled) * 1.03 <= 1.06 * settled
    assert moments.settled_frequency(order, steps, -22.0, 0.9 * settled / poisson_moments.OCTAVE) == inf


def test_lines_that_take_less_work_are_asked_before_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the saddle has 12,000 frequencies here, as the next order is far away, and its neighbour 43."""
    moments, epsilon = PoissonMoments(0.01, 3.302), 0.1
    profiles = Profiles(moments, 100)
    sides = profiles.sides(epsilon, Direction.REMOVE)
    (line,) = profiles._contours.values()
    assert line.frequencies.size < 200
    monkeypatch.setattr(contours, "WORK", (0.0, contours.WORK[-1]))
    long = Profiles(moments, 100)
    other = long.sides(epsilon, Direction.REMOVE)
    (longer,) = long._contours.values()
    assert longer.frequencies.size > 20 * line.frequencies.size
    assert sides is not None
    assert other is not None
    assert max(sides.lower, other.lower) <= min(sides.upper, other.upper)
    monkeypatch.setattr(contours, "WORK", (0.0, 1.0, contours.WORK[-1]))
    assert Profiles(moments, 100).sides(epsilon, Direction.REMOVE) == other


@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
def test_orders_that_are_not_asked_for_would_change_nothing(rate: float, sigma: float, steps: int) -> None:
    """The same answers and moment bounds, to the last bit, as with the moments of all orders."""
    whole = Profiles(PoissonMoments(rate, sigma), steps)
    for direction in Direction:
        for reach in (contours.NEAR_ORDERS, contours.FAR_ORDERS):
            while whole._known(direction, reach).nearer:
                whole._extended(direction, reach)
            assert whole._known(direction, reach).orders.size == contours.ORDERS
    lazy, few = Profiles(PoissonMoments(rate, sigma), steps), 0
    for epsilon in (0.01, 0.3, 1.0, 3.0, 10.0, 60.0):
        for direction in Direction:
            x = epsilon if direction is Direction.REMOVE else -epsilon
            fresh, bounds = (Profiles(PoissonMoments(rate, sigma), steps) for _ in range(2))
            assert fresh.sides(epsilon, direction) == lazy.sides(epsilon, direction) == whole.sides(epsilon, direction)
            least = bounds._least_bound(x, direction, contours.NEAR_ORDERS)
            assert least == whole._least_bound(x, direction, contours.NEAR_ORDERS)
            few += any(known.nearer for known in fresh._orders.values())
    assert few > 0
    assert whole.at_most(0.3, Direction.REMOVE) == lazy.at_most(0.3, Direction.REMOVE)


@pytest.mark.parametrize("negligible", [1e-4, 1e-7])
@pytest.mark.parametrize("order", [9.0, -2.0])
def test_nodes_that_are_left_out_are_charged(negligible: float, order: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many more of them than there are, against a line that has nearly all."""
    moments = PoissonMoments(0.05, 0.8)
    whole = moments.line(order, 2.0, 50)
    monkeypatch.setattr(poisson_moments, "NEGLIGIBLE", negligible)
    line = moments.line(order, 2.0, 50)
    distances = np.abs(line.ratios - whole.ratios)
    assert 1e-9 < distances.max() < 0.1
    assert (distances <= line.errors).all()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 32, 49, 1000])
def test_sums_over_nodes_are_those_of_every_rotation(count: int) -> None:
    """One exponential for each node and frequency; every count of frequencies, within a block of them or at its end."""
    rng = np.random.default_rng(1)
    masses, angles = rng.random(1500), rng.uniform(-0.2, 1.0, 1500)
    exact = np.exp(1j * np.multiply.outer(np.arange(count), angles)) @ masses
    assert np.abs(PoissonMoments._sums(masses, angles, count) - exact).max() <= 1e-12 * masses.sum()


@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
def test_both_sides_hold_another_sum_between_them(rate: float, sigma: float, steps: int) -> None:
    """The same integral with four times the nodes and frequencies, and no bound on what is left out."""
    profiles = Profiles(PoissonMoments(rate, sigma), steps)
    middle = profiles_epsilon(profiles, 1e-6)
    for epsilon in (0.5 * middle, middle):
        for direction in Direction:
            sides = profiles.sides(epsilon, direction)
            assert sides is not None
            exact = slow_delta(rate, sigma, steps, epsilon, direction)
            assert sides.lower <= exact <= sides.upper
            if sides.lower > 0.0:
                assert sides.lower >= exact * (1 - 1e-5)
                assert sides.upper <= exact * (1 + 1e-5)
            else:  # the other direction decides
                assert sides.upper <= 1e-6 * slow_delta(rate, sigma, steps, epsilon, Direction.REMOVE)


def profiles_epsilon(profiles: Profiles, delta: float) -> float:
    """About the epsilon of this delta, by bisection."""
    low, high = 0.0, 50.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        sides = profiles.sides(middle, Direction.REMOVE)  # None where delta is smaller than any line can tell
        low, high = (middle, high) if sides is not None and sides.upper > delta else (low, middle)
    return high


def slow_delta(rate: float, sigma: float, steps: int, epsilon: float, direction: Direction) -> float:
    """The profile by a plain sum, dense and far beyond where it matters, with moments on 12,000 nodes."""
    mu = 1.0 / sigma
    z = np.linspace(-15.0, 45.0, 12_001)
    logs = np.log1p(rate * np.expm1(np.minimum(mu * z - 0.5 * mu * mu, 500.0)))
    best = None
    for distance in np.geomspace(0.02, 40.0, 60):
        order = 1.0 + distance if direction is Direction.REMOVE else -distance
        exponents = order * logs - 0.5 * z * z
        log_moment = float(exponents.max() + log(np.exp(exponents - exponents.max()).sum()))
        log_moment += log(1.0 / 200.0 / np.sqrt(2.0 * np.pi))
        x = epsilon if direction is Direction.REMOVE else -epsilon
        height = steps * log_moment - order * x - log(abs(order * (order - 1.0)))
        if best is None or height < best[0]:
            best = (height, order, log_moment, x)
    assert best is not None
    _, order, log_moment, x = best
    weights = np.exp(order * logs - 0.5 * z * z - (order * logs - 0.5 * z * z).max())
    weights /= weights.sum()
    mean = float(weights @ logs)
    spread = float(weights @ (logs - mean) ** 2) ** 0.5 * steps**0.5
    pace = 2.0 * np.pi / (40.0 * max(spread, 1.0 / abs(order - (direction is Direction.REMOVE))) + 10.0)
    total = 0.0
    for k in range(400_000):
        t = k * pace
        s = complex(order, t)
        ratio = complex(weights @ np.exp(1j * t * logs))
        total += (0.5 if k == 0 else 1.0) * (ratio**steps * np.exp(-1j * t * x) / (s * (s - 1.0))).real
        if abs(ratio) ** steps < 1e-17 and k > 20:
            break
    factor = steps * log_moment - order * x + (epsilon if direction is Direction.REMOVE else 0.0)
    return total * pace / np.pi * exp(factor)


@pytest.mark.parametrize("share", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
def test_poor_lines_are_still_bounds(
    rate: float, sigma: float, steps: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines so short and so coarse that truncation and distant values matter; each must be charged in full."""
    good = Profiles(PoissonMoments(rate, sigma), steps)
    epsilons = np.linspace(0.3, 1.5, 9) * profiles_epsilon(good, 1e-5)
    exact = {(at, direction): good.sides(at, direction) for at in epsilons for direction in Direction}
    monkeypatch.setattr(contours, "SHARE", share)
    monkeypatch.setattr(contours, "USEFUL", 1.0)
    poor = Profiles(PoissonMoments(rate, sigma), steps)
    for (epsilon, direction), fine in exact.items():
        rough = poor.sides(epsilon, direction)
        if fine is not None and rough is not None:
            assert rough.lower <= fine.upper
            assert rough.upper >= fine.lower


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "epsilon"),
    [(0.002, 1.0, 1000, 0.5), (0.002, 1.0, 2000, 1.0), (2.9e-4, 0.625, 209, 0.178)],
)
def test_a_line_nearer_to_the_pole_answers_where_that_of_the_saddle_is_too_long(
    rate: float, sigma: float, steps: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rare batches; against the laws of both sides, on grids twice as fine as usual."""
    sides = Profiles(PoissonMoments(rate, sigma), steps).sides(epsilon, Direction.REMOVE)
    resolution = Resolution(136, 1e-9)
    laws = [
        power(thin(gaussian_law(sigma, 1.0, side, resolution), rate), steps, resolution)
        for side in (Side.LOWER, Side.UPPER)
    ]
    lower, upper = (law_delta(law, epsilon, Direction.REMOVE) for law in laws)
    assert sides is not None
    assert sides.lower <= upper
    assert lower <= sides.upper
    monkeypatch.setattr(contours, "RETREATS", 0)
    assert Profiles(PoissonMoments(rate, sigma), steps).sides(epsilon, Direction.REMOVE) is None


def test_what_no_line_answers_is_at_most_what_any_of_them_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments alone say 3e-17 where delta is 1e-19 or less; and poor lines, which say too much, are above good ones."""
    rare = Profiles(PoissonMoments(7.5e-4, 3.6), 5272)
    assert rare.sides(0.2, Direction.REMOVE) is None
    assert rare.at_most(0.2, Direction.REMOVE) < 1e-18 < 1e-17 < rare.by_moments(0.2, Direction.REMOVE) < 1e-16
    exact = rare.sides(0.07, Direction.REMOVE)
    assert exact is not None
    monkeypatch.setattr(contours, "SHARE", 0.3)
    monkeypatch.setattr(contours, "USEFUL", 1e-9)
    poor = Profiles(PoissonMoments(7.5e-4, 3.6), 5272)
    assert poor.sides(0.07, Direction.REMOVE) is None
    assert exact.upper <= poor.at_most(0.07, Direction.REMOVE) <= poor.by_moments(0.07, Direction.REMOVE)


def test_lines_of_far_orders_are_close_to_each_other() -> None:
    """The best order, for a delta of 1e-10, is just below those at which the moment explodes."""
    profiles = Profiles(PoissonMoments(1e-3, 1.5), 10_000)
    sides = profiles.sides(0.43655, Direction.REMOVE)
    assert [reach for _, reach in profiles._orders] == [contours.NEAR_ORDERS, contours.FAR_ORDERS]
    assert sides is not None
    assert 0.99e-10 < sides.lower <= sides.upper < (1.0 + 5e-5) * sides.lower


@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
def test_moments_are_above_what_lines_find_from_below(rate: float, sigma: float, steps: int) -> None:
    """A search for epsilon takes them alone where they are small, so far orders count as well as near ones."""
    profiles, compared = Profiles(PoissonMoments(rate, sigma), steps), 0
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        for direction in Direction:
            sides = profiles.sides(epsilon, direction)
            if sides is not None:
                assert sides.lower <= profiles.by_moments(epsilon, direction) <= 1.0
                compared += sides.lower > 0.0
    assert compared >= 3


@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
def test_what_is_cut_off_the_line_is_charged(
    rate: float, sigma: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that end where the integrand is just as small as it has to be; windows are too wide for distant values."""

    def barely(moments: PoissonMoments, order: float, steps: float, log_size: float, at_most: float) -> float:
        z = np.linspace(*moments.ends(order), 4001)
        logs = moments.log_ratios(z)[0]
        weights = np.exp(order * logs - 0.5 * z * z - (order * logs - 0.5 * z * z).max())
        low, high = 1e-3, 1e6
        for _ in range(60):
            middle = (low * high) ** 0.5
            size = abs(weights @ np.exp(1j * middle * logs)) / weights.sum()
            low, high = (middle, high) if steps * log(max(size, 1e-300)) > log_size else (low, middle)
        return high

    def wide(self: Profiles, *arguments: object) -> object:
        *_, window = distant_values(self, *arguments)
        return Distant(0.0, 1.0), Distant(0.0, 1.0), 4.0 * window

    good, distant_values = Profiles(PoissonMoments(rate, sigma), steps), Profiles._distant_values
    epsilons = np.linspace(0.5, 1.2, 15) * profiles_epsilon(good, 1e-5)
    exact = {at: good.sides(at, Direction.REMOVE) for at in epsilons}
    monkeypatch.setattr(contours, "SHARE", 0.5)
    monkeypatch.setattr(contours, "USEFUL", 1.0)
    monkeypatch.setattr(Distant, "total", lambda bound, x, window: 0.0)
    monkeypatch.setattr(Profiles, "_distant_values", wide)
    monkeypatch.setattr(PoissonMoments, "settled_frequency", barely)
    poor = Profiles(PoissonMoments(rate, sigma), steps)
    for epsilon, fine in exact.items():
        rough = poor.sides(epsilon, Direction.REMOVE)
        if fine is not None and rough is not None:
            assert rough.lower <= fine.upper
            assert rough.upper >= fine.lower


@settings(max_examples=25, derandomize=True)
@given(
    rate=st.floats(-4.0, -0.7).map(lambda power: 10.0**power),
    steps=st.floats(1.0, 5.0).map(lambda power: int(10.0**power)),
    sigma=st.floats(0.5, 20.0),
    epsilon=st.floats(0.05, 8.0),
)
@pytest.mark.slow
def test_the_laws_are_around_the_contours(rate: float, steps: int, sigma: float, epsilon: float) -> None:
    resolution = Resolution(24, 1e-12)
    profiles = Profiles(PoissonMoments(rate, sigma), steps)
    laws = {side: power(thin(gaussian_law(sigma, 1.0, side, resolution), rate), steps, resolution) for side in Side}
    for direction in Direction:
        sides = profiles.sides(epsilon, direction)
        if sides is None:
            continue
        assert law_delta(laws[Side.LOWER], epsilon, direction) <= sides.upper
        assert law_delta(laws[Side.UPPER], epsilon, direction) >= sides.lower


@pytest.mark.parametrize("epsilon", [300.0, 550.0, 690.0])
def test_far_epsilons(epsilon: float) -> None:
    sides = Profiles(PoissonMoments(0.5, 0.25), 100).sides(epsilon, Direction.REMOVE)
    exact = contour_delta(0.5, 100, 0.25, epsilon)
    assert sides is not None
    assert exact * (1 - 1e-6) <= sides.upper
    assert sides.lower <= exact * (1 + 1e-6)


@pytest.mark.parametrize("sigma", [1e-9, 1e-3, 0.125, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("rate", [1e-12, 0.5, 0.999])
def test_no_noise_takes_much_memory(sigma: float, rate: float) -> None:
    tracemalloc.start()
    profiles = Profiles(PoissonMoments(rate, sigma), 10)
    for direction in Direction:
        profiles.sides(1.0, direction)
        profiles.by_moments(1.0, direction)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5e8


@pytest.mark.parametrize(("rate", "sigma", "steps"), RUNS)
@pytest.mark.parametrize("direction", list(Direction))
def test_epsilons_together_have_the_answers_that_they_have_alone(
    rate: float, sigma: float, steps: int, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, however few of them are in memory at a time, and where no line answers too."""
    epsilons = [0.0, *np.geomspace(0.03, 30.0, 40).tolist()]
    alone, together, in_parts = (Profiles(PoissonMoments(rate, sigma), steps) for _ in range(3))
    answers = [alone.sides(epsilon, direction) for epsilon in epsilons]
    together.foresee(epsilons, direction)
    assert [together.sides(epsilon, direction) for epsilon in epsilons] == answers
    monkeypatch.setattr(contours, "MOST_TOGETHER", 1)
    in_parts.foresee(epsilons[::-1], direction)
    assert [in_parts.sides(epsilon, direction) for epsilon in epsilons] == answers
    assert any(answers)


def test_answers_are_forgotten_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "REMEMBERED", 10)
    profiles = Profiles(PoissonMoments(0.01, 1.0), 2000)
    epsilons = np.linspace(0.5, 3.0, 50).tolist()
    sides = [profiles.sides(epsilon, Direction.ADD) for epsilon in epsilons]
    assert len(profiles._answers) <= 12
    assert sides[0] == profiles.sides(epsilons[0], Direction.ADD)


def test_runs_that_are_nearly_always_without_the_example_are_left_to_the_laws() -> None:
    assert Profiles(PoissonMoments(1e-4, 0.5), 10).sides(1.0, Direction.REMOVE) is None


@pytest.mark.parametrize(("rate", "sigma"), [(0.51, 1.0), (0.9999, 1.0), (0.01, 0.12), (1e-13, 1.0)])
def test_what_doubles_cannot_hold_is_left_to_the_laws(rate: float, sigma: float) -> None:
    assert Profiles(PoissonMoments(rate, sigma), 1000).sides(1.0, Direction.REMOVE) is None


@pytest.mark.parametrize("rate", [0.5, 0.3, 1e-3])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 30.0])
def test_logarithms_of_ratios_err_by_less_than_they_say(rate: float, sigma: float) -> None:
    z = np.concatenate([np.linspace(-30.0, 30.0, 400), np.geomspace(1e-9, 1.0, 50)])
    logs, slopes, errors = PoissonMoments(rate, sigma).log_ratios(z)
    with mp.workdps(40):
        mu = 1 / mp.mpf(sigma)
        for place, log_ratio, slope, error in zip(z.tolist(), logs, slopes, errors, strict=True):
            grown = mp.mpf(rate) * mp.exp(mu * place - mu * mu / 2)
            ratio = 1 - mp.mpf(rate) + grown
            assert abs(mp.mpf(float(log_ratio)) - mp.log(ratio)) <= float(error)
            assert abs(float(slope) - grown / ratio) <= 1e-9 * grown / ratio


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    """Else a certificate would not have the same bytes in every process."""
    epsilons = np.linspace(0.2, 4.0, 30).tolist()
    alone = [Profiles(PoissonMoments(0.01, 1.0), 2000).sides(epsilon, Direction.REMOVE) for epsilon in epsilons]
    profiles = Profiles(PoissonMoments(0.01, 1.0), 2000)
    assert [profiles.sides(epsilon, Direction.REMOVE) for epsilon in reversed(epsilons)] == alone[::-1]
    assert len(profiles._contours) < 15


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("direction", list(Direction))
def test_an_interruption_leaves_no_other_answers(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, profiles, whole = [0.0, 0.3, 1.0], *(Profiles(PoissonMoments(0.01, 1.0), 500) for _ in range(2))
    if direction is Direction.ADD:  # which asks for the other one first
        profiles.foresee(asked, Direction.REMOVE)
    with monkeypatch.context() as context:
        context.setattr(profiles, "_line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profiles.foresee(asked, direction)
    for epsilon in asked:
        assert whole.sides(epsilon, direction) is not None
        assert profiles.sides(epsilon, direction) == whole.sides(epsilon, direction)
