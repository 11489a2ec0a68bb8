"""A run whose adversary chooses the worst triple at every ratio, against triples and games in numbers."""

import itertools
import math
from functools import cache
from math import exp, pi

import numpy as np
import pytest
from mpmath import mp, mpf, workdps
from scipy.special import ndtr

from hockeystick.laws import backward_induction, charges
from hockeystick.laws.backward_induction import Correlation, Lattice, Run, lower_values, planned, profile, upper_values
from hockeystick.laws.charges import Charges
from hockeystick.laws.gaussian import gaussian_deltas
from hockeystick.laws.triples import log_places, opposite
from hockeystick.types import Side
from tests.laws.triples_oracle import boxes, triple, truth

SETTINGS = {
    "some jumps": Run(0.05, 1.5, 1, Lattice(0.01, 300, 2.0), 1e-3),
    "often": Run(0.4, 0.8, 1, Lattice(0.02, 200, 2.0), 1e-3),
    "large cells": Run(0.05, 0.7, 1, Lattice(0.004, 300, 2.0), 0.1),
    "far apart": Run(0.7, 2.9, 1, Lattice(0.05, 120, 2.0), 2e-3),
    "much noise": Run(0.02, 0.3, 1, Lattice(0.0002, 1300, 2.0), 1e-3),
    "places far apart": Run(0.01, 0.4, 1, Lattice(0.03, 100, 2.0), 1e-3),
}


def nothing() -> None:
    """Nobody is told of progress."""


@cache
def bound_of(name: str) -> Charges:
    rate, distance, _, (spacing, places, _), share = SETTINGS[name]
    return charges.charges(rate, distance, spacing, places, share, nothing)


@pytest.mark.parametrize("name", SETTINGS)
def test_no_triple_has_more_than_the_opposite_one_and_its_charges(name: str) -> None:
    """Sums over intervals around all ratios, of random triples and of those in the proof.

    Far apart, an equilateral triangle has more than the opposite triple, however long the interval is.
    """
    run = SETTINGS[name]
    spacing, places, _ = run.lattice
    base, charged, far, less, most = bound_of(name)
    logs = log_places(spacing, -places, places)
    weights, reach = np.exp(-0.5 * logs), charged.shape[0]
    rng = np.random.default_rng(48)
    right = pi * np.array([[0.0, 1.0, 1.0], [0.5, 0.0, 1.0], [2.0 / 3.0, 0.0, 4.0 / 3.0], [0.6, 0.0, 1.0]])
    named = [0.5 * run.distance * np.array([np.cos(angles), np.sin(angles)]).T for angles in right]
    for points in [*named, *(triple(rng, run.distance) for _ in range(60))]:
        found = truth(points, run.rate, logs)
        assert np.all(found <= most[: logs.size] * (1.0 + 1e-9) + 1e-15)
        beyond = np.append(0.0, np.cumsum(weights * (found - base[: logs.size])))
        for away in (0, 1, 3, 10, 40):
            for r in (0, 1, 2, 5, 10, 20, 50, 100, places):
                first, last = places + away - r, min(places + away + r, 2 * places)
                allowed = 0.0
                if r >= away:
                    allowed = far - (less[r - away] if r - away < less.size else 0.0)
                    allowed += charged[away, r] if r < reach else 0.0
                assert beyond[last + 1] - beyond[first] <= allowed + 1e-13


def test_cells_that_are_left_when_all_are_looked_at_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the allowance of their size, which is large."""
    rate, distance, _, (spacing, places, _), share = SETTINGS["often"]
    all_cells = bound_of("often")
    monkeypatch.setattr(charges, "MOST_CELLS", (40, 40))
    few = charges.charges(rate, distance, spacing, places, share, nothing)
    assert few.far > all_cells.far + 0.02 * float(few.base.sum())
    assert np.all(few.far + few.charged >= all_cells.far + all_cells.charged)


def test_the_base_is_the_opposite_triple_with_bins_for_places() -> None:
    """Its sums, against the integral over outputs of the f with the second derivative ``x^(-3/2)`` on all bins."""
    rate, distance, spacing, places = 0.02, 0.3, 0.0002, 900
    base = charges.charges(rate, distance, spacing, places, 0.1, nothing).base
    weighed = np.exp(-0.5 * log_places(spacing, -places, places)) * base[: 2 * places + 1]
    y = np.linspace(-9.0, 9.0 + distance, 400_001)
    density = np.exp(-0.5 * y * y) / math.sqrt(2.0 * pi)
    beyond = rate * np.expm1(distance * y - 0.5 * distance**2)  # X - 1
    log_ratios = np.log1p(beyond)
    for r in (0, 1, 5, 40, 200, 880):
        inside = np.clip(log_ratios, -(r + 0.5) * spacing, (r + 0.5) * spacing)
        slopes = -2.0 * np.expm1(-0.5 * inside)
        f = 2.0 * np.expm1(0.5 * inside) ** 2 + slopes * (beyond - np.expm1(inside))
        # What calls at the ratios of the lower half of the bin at 1 have more than puts: 1 - x, weighed.
        calls = 2.0 * math.expm1(0.25 * spacing) + 2.0 * math.expm1(-0.25 * spacing)
        whole = (float(f @ density) * (y[1] - y[0]) + calls) / (4.0 * math.sinh(0.25 * spacing))
        found = float(weighed[places - r : places + r + 1].sum())
        assert whole * (1.0 - 1e-7) <= found <= whole * (1.0 + 2e-4)


def test_the_opposite_triple_is_known_in_closed_form() -> None:
    logs = log_places(0.05, -60, 60)
    points = 0.75 * np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    found = truth(points, 0.3, logs)
    upper, lower = (opposite(0.3, 1.5, logs, side) for side in (Side.UPPER, Side.LOWER))
    assert np.all(lower <= upper)
    assert np.all(upper - lower <= 1e-10 * upper + 1e-12)
    assert np.all(found <= upper + 1e-15)
    assert np.all(found >= 0.98 * lower - 1e-6)  # boxes of a twentieth of a standard deviation


def test_what_triples_add_is_charged_at_all_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """At short intervals, and however far: in the second step, as the first is known, but for its places."""
    run, x = Run(0.3, 1.0, 2, Lattice(0.01, 200, 2.0), 0.1), np.exp(log_places(0.01, -200, 0))
    base = opposite(0.3, 1.0, log_places(0.01, -200, 400), Side.UPPER)
    short = np.triu(np.random.default_rng(4).uniform(1e-3, 2e-3, (20, 20)))
    short[0, 0] = 0.0  # or the first step would have it
    far, less = 1.5e-3, np.array([1.5e-3, 1e-3, 2e-4])

    def values(short: np.ndarray, far: float, less: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(backward_induction, "charges", lambda *given: Charges(base, short, far, less, base))
        return upper_values(run, nothing)[::-1]

    first = one_step(np.exp(log_places(0.01, -201, 1)), 0.3, 1.0)
    slopes = np.diff(first) / np.diff(np.exp(log_places(0.01, -201, 1)))
    least = np.minimum.accumulate((np.diff(slopes) * np.sqrt(x))[::-1])
    steps, roots = least - np.append(least[1:], 0.0), np.sqrt(x[::-1])
    alone = values(0.0 * short, 0.0, np.zeros(0))
    added = values(0.0 * short, far, less) - alone
    expected = far * least - np.array([steps[n : n + 3] @ less[: 201 - n] for n in range(201)])
    assert np.allclose(added[:-4], (roots * expected)[:-4], rtol=1e-3, atol=1e-12)
    assert np.all(expected[1:100] < 0.99 * far * least[1:100])
    added = values(short, 0.0, np.zeros(0)) - alone
    assert np.allclose(added[:20], roots[:20] * (short @ steps[:20]), rtol=2e-3, atol=1e-12)
    assert np.all(added[20:] == 0.0)


def one_step(x: np.ndarray, rate: float, distance: float) -> np.ndarray:
    """V_1 exactly: ``x q G(1 + (1/x - 1) / q)`` up to 1, the rest by symmetry."""
    low = np.minimum(x, 1.0 / x)
    a = 1.0 + (1.0 / low - 1.0) / rate
    gaussian = ndtr(0.5 * distance - np.log(a) / distance) - a * ndtr(-0.5 * distance - np.log(a) / distance)
    value = low * rate * gaussian
    return np.where(x <= 1.0, value, x - 1.0 + x * value)


@pytest.mark.parametrize(
    ("rate", "distance", "spacing"), [(0.2, 1.0, 0.004), (0.6, 1.6, 0.004), (0.05, 2.5, 0.004), (0.02, 0.3, 0.0002)]
)
def test_two_steps_are_the_game_of_two_steps(rate: float, distance: float, spacing: float) -> None:
    """The second step is known exactly. Whatever the first one is, the run has at most the upper bound; and the lower
    bound is of a run that begins with the opposite triple, but for a place's length.
    """
    run = Run(rate, distance, 2, Lattice(spacing, 800, 2.0), 1e-3)
    upper, lower = upper_values(run, nothing), lower_values(run, nothing)
    x = np.exp(log_places(spacing, -800, 0))
    rng, some = np.random.default_rng(5), np.arange(300, 801, 50)
    opposed = 0.5 * distance * np.array([[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    for points in [opposed, *(triple(rng, distance) for _ in range(25))]:
        p, q = boxes(points, rate, 300)
        least = np.array([float(q @ one_step(at * p / q, rate, distance)) for at in x[some]])
        assert np.all(least <= upper[some] * (1.0 + 1e-9))
        if points is opposed:
            assert np.all(lower[some] <= least * 1.002)
            assert np.all(lower[some] >= least * 0.97 - 1e-9)


def test_one_step_is_exact_but_for_what_is_left_of_cells() -> None:
    run = Run(0.3, 1.2, 1, Lattice(0.005, 600, 2.0), 1e-3)
    x = np.exp(log_places(0.005, -600, 0))
    exact = one_step(x, 0.3, 1.2)
    assert np.all(exact <= upper_values(run, nothing))
    assert np.all(upper_values(run, nothing) <= exact * 1.001 + 1e-12)
    lower = lower_values(run, nothing)
    assert np.all(lower <= exact * (1.0 + 1e-12))
    assert np.all(lower[100:] >= exact[100:] * 0.99)


@pytest.mark.parametrize("side", Side)
def test_sums_by_transforms_err_to_the_asked_side(side: Side) -> None:
    rng, places = np.random.default_rng(1), 40
    lattice = Lattice(0.1, places, 1.5)
    kernels = rng.exponential(size=3 * places + 1), rng.exponential(size=2 * places + 1)
    values = [rng.exponential(size=2 * places + 1) for _ in kernels]
    found = Correlation(lattice, *kernels).of(side, *values)
    for i in range(-places, 1):
        exact = 0.0
        for kernel, value in zip(kernels, values, strict=True):
            for j in range(-places, places + 1):
                if -places <= j - i < kernel.size - places:
                    exact += value[j + places] * kernel[j - i + places]
        sign = 1.0 if side is Side.UPPER else -1.0
        assert sign * (found[i + places] - exact) + 1e-13 * exact >= 0.0
        assert found[i + places] == pytest.approx(exact, rel=1e-7)


def test_profiles_are_read_between_places_to_the_asked_side() -> None:
    """delta is convex in ``e^epsilon``; below 0 the two runs change places."""
    run = Run(0.3, 1.2, 1, Lattice(0.05, 80, 2.0), 0.05)
    upper, lower = (profile(run, side, nothing) for side in (Side.UPPER, Side.LOWER))
    for epsilon in (0.0, 0.013, 0.05, 0.72, 1.5, 2.349):
        exact = float(one_step(np.array([exp(-epsilon)]), 0.3, 1.2)[0]) * exp(epsilon)
        assert lower(epsilon) <= exact <= upper(epsilon)
        at = int(epsilon / 0.05 + 1e-9)
        ends = [0.05 * at, 0.05 * (at + 1)]
        chord = np.interp(exp(epsilon), np.exp(ends), [upper(end) for end in ends])
        assert upper(epsilon) == pytest.approx(float(chord), rel=1e-6)
        swapped = 1.0 - exp(-epsilon) + exp(-epsilon) * exact
        assert lower(-epsilon) <= swapped * (1.0 + 1e-12)
        assert upper(-epsilon) >= swapped * (1.0 - 1e-12)
    assert upper(100.0) >= 0.0
    assert lower(100.0) == 0.0


def test_lattices_that_would_be_too_long_are_not_planned() -> None:
    assert planned(0.0025, 2.0 / 1.2573, 10**9, 1e-7, 68) is None
    assert planned(0.0025, 2.0 / 0.4, 1500, 1e-7, 68) is None


@pytest.mark.parametrize("noise", [1.2573, 8.0, 1e3, 1e6])
def test_lattices_reach_a_little_farther_than_epsilon(noise: float) -> None:
    """Moments of high orders say how far that is where there is much noise; a Gaussian is near the truth there."""
    run = planned(0.0025, 2.0 / noise, 1500, 1e-7, 68)
    assert run is not None
    end = run.lattice.spacing * run.lattice.places
    root = 0.0025 * math.sqrt(math.expm1(4.0 / noise**2) * 1500.0)
    assert 5.0 * root < end < (8.0 if noise > 2.0 else 30.0) * root


def test_lattices_with_little_noise_end_near_epsilon() -> None:
    """Moments of orders below 2 say how far that is where rare ratios are large; whole orders said 219 here."""
    run = planned(0.01, 2.0 / 0.6, 100, 1e-5, 68)
    assert run is not None
    end = run.lattice.spacing * run.lattice.places
    lower = profile(run, Side.LOWER, nothing)
    assert lower(0.6 * end) > 1e-5
    assert lower(0.8 * end) < 1e-5


@pytest.mark.parametrize(("rate", "noise", "delta"), [(1.8e-4, 1.546, 1e-8), (1e-4, 1.0, 1e-8), (1e-4, 2.0, 1e-6)])
def test_lattices_of_rare_steps_end_near_epsilon(rate: float, noise: float, delta: float) -> None:
    """Of one step, known exactly. By moments they would be 3 to 60 times as long, with too many places."""
    run = planned(rate, 2.0 / noise, 1, delta, 68)
    assert run is not None
    end = run.lattice.spacing * run.lattice.places
    at = np.array([0.15, 0.8]) * end
    near, far = one_step(np.exp(-at), rate, 2.0 / noise) * np.exp(at)
    assert far < delta < near


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 4.0, 20_000), (0.01, 100.0, 100_000), (0.7, 900.0, 50_000)]
)
def test_lattices_of_long_runs_end_as_those_of_a_gaussian(rate: float, noise: float, steps: int) -> None:
    """They have many places though no ratio is rare; a lattice that ends early has no delta below that of its end."""
    delta = 1e-10
    run = planned(rate, 2.0 / noise, steps, delta, 68)
    assert run is not None
    root = rate * math.sqrt(math.expm1(4.0 / noise**2) * steps)
    end = run.lattice.spacing * run.lattice.places
    assert gaussian_deltas(root, np.array([end]), Side.LOWER)[0] < delta
    assert end < 0.5 * root**2 + 10.0 * root


def test_lattices_with_next_to_no_noise_are_refused() -> None:
    """Moments of orders below 2 come from scores far out; summed without these, they made lattices look short."""
    for noise in (0.02, 0.025, 0.03, 0.035):
        for rate in (0.1, 1e-3, 1e-8):
            assert planned(rate, 2.0 / noise, 1, 1e-10, 68) is None


def test_deltas_next_to_nothing_do_not_overflow() -> None:
    run = planned(0.3, 0.8, 2, 1e-300, 68)
    assert run is not None
    one = float(one_step(np.array([math.exp(-1.0)]), 0.3, 0.8)[0]) * math.e  # two steps have more
    assert one < profile(run, Side.LOWER, nothing)(1.0) <= profile(run, Side.UPPER, nothing)(1.0) < 1.0


@pytest.mark.parametrize(("rate", "noise", "epsilon"), [(1e-3, 0.5, 9.6), (1e-3, 0.5, 1.0), (5e-4, 0.6, 5.0)])
def test_one_rare_step_is_known_from_below(rate: float, noise: float, epsilon: float) -> None:
    """A lattice as from above, some places for each standard deviation, would have none between 1 and 1 - rate."""
    run = planned(rate, 2.0 / noise, 1, 1e-5, 68)
    assert run is not None
    assert run.lattice.spacing > rate
    exact = float(one_step(np.array([math.exp(-epsilon)]), rate, 2.0 / noise)[0]) * math.exp(epsilon)
    assert 0.99 * exact <= profile(run, Side.LOWER, nothing)(epsilon) <= exact


@pytest.mark.parametrize(("rate", "distance", "spacing"), [(0.01, 2.0, 0.003), (0.1, 1.0, 0.005), (0.01, 0.5, 0.001)])
def test_long_intervals_are_charged_as_those_of_all_places(rate: float, distance: float, spacing: float) -> None:
    """What opposite gradients add at large ratios makes up for what others add below 1, however rare they are."""
    corners = charges._Corners(rate, distance, spacing, 6000)
    angles = [(0.25 * pi, 0.25 * pi), (1.1, 1.1), (0.3, 1.5)]
    found = [corners.at(one).far for one in angles]
    corners.reach = corners.near
    corners.seen.clear()
    whole = [corners.at(one).far for one in angles]
    assert np.all(np.less_equal(found, np.add(whole, 1e-4 * corners.total)))


@pytest.mark.parametrize(
    ("rate", "distance", "lattice"),
    [
        (0.3, 3.3, Lattice(0.02, 2500, 1.6)),
        (0.05, 4.0, Lattice(0.02, 3000, 1.5)),
        (7e-4, 2.1, Lattice(1.2e-4, 50_000, 6.0)),
    ],
)
def test_long_lattices_hold_two_opposite_steps(
    monkeypatch: pytest.MonkeyPatch, rate: float, distance: float, lattice: Lattice
) -> None:
    """With little noise, over up to 60 units of epsilon; and at a small rate, from below alone, as cells take long.

    The second step is known exactly, and its mean is summed over nodes that are 4.2e-5 standard deviations apart.
    """
    monkeypatch.setattr(charges, "MOST_CELLS", (100, 200))  # looser, and still an upper bound
    run, places = Run(rate, distance, 2, lattice, 1.0), lattice.places
    some = np.append(np.arange(0, places, places // 10), np.arange(places - 60, places + 1, 20))
    x = np.exp(log_places(lattice.spacing, -places, 0))[some]
    y, width = np.linspace(-12.0, 30.0, 1_000_001, retstep=True)
    density = width / math.sqrt(2.0 * pi) * np.exp(-0.5 * y**2)
    ratios = 1.0 - rate + rate * np.exp(distance * y - 0.5 * distance**2)
    exact = np.array([float(density @ one_step(at * ratios, rate, distance)) for at in x])
    lower = lower_values(run, nothing)[some]
    assert np.all(lower <= exact * (1.0 + 1e-8))
    assert np.all(lower[1:] >= 0.8 * exact[1:])  # the first one may be the last place of the lattice
    if places < 10_000:
        upper = upper_values(run, nothing)[some] * (1.0 + 1e-8)
        assert np.all(exact <= upper)
        assert np.all(upper <= 1.05 * exact)


def test_slopes_are_charged_for_the_rounding_of_far_places() -> None:
    """Of straight lines with one bend each; near it they are off by most, and at it by what a step makes up for."""
    spacing, places = 0.019, 4000
    logs = log_places(spacing, -places, 0)
    with workdps(40):
        x = [mp.exp(mpf(int(i)) * mpf(spacing)) for i in range(-places, 1)]
    for bend in range(0, places, 100):
        values = np.array([float(max(at - x[bend], 0)) for at in x])
        with workdps(40):
            exact = [mpf(value) for value in values]
            slopes = [(b - a) / (y - z) for a, b, z, y in zip(exact, exact[1:], x, x[1:], strict=False)]
            changes = np.array([float(b - a) for a, b in itertools.pairwise([exact[0] / x[0], *slopes])])
        found = backward_induction._curvature(values, np.exp(logs), spacing)[:-1]
        assert np.all(found * (1.0 + backward_induction.ROUNDING) >= changes)


def test_rare_steps_are_tilted_until_they_hardly_fall() -> None:
    """The order of moments would be 10 here, by which delta at the end, 1e-11 of that at 1, drowns in their error."""
    run = planned(2.017e-5, 2.0 / 1.867, 4022, 4.2e-10, 68)
    assert run is not None
    spacing, places, order = run.lattice
    x = log_places(spacing, 0, 2 * places)
    tilted = opposite(run.rate, run.distance, x, Side.UPPER) * np.exp((order - 0.5) * x)
    assert tilted.max() <= 1.1 * tilted[0]
    assert (order - 0.5) * spacing * places > 10.0


def test_values_near_one_do_not_drown_where_small_deltas_matter() -> None:
    """V falls by more than ten orders along these places; what transforms are off by is small beside each value."""
    run = planned(0.9999, 1.0, 2, 1e-12, 24)
    assert run is not None
    upper, lower = upper_values(run, nothing), lower_values(run, nothing)
    assert np.all(upper[1000:] <= lower[1000:] * 1.01)


def test_a_lattice_that_ends_early_says_no_less() -> None:
    """Below its first place V is straight; what is known of a longer lattice is a lower bound there."""
    short, long = (Run(0.3, 1.5, 3, Lattice(0.02, places, 1.5), 0.01) for places in (40, 300))
    upper, lower = upper_values(short, nothing), lower_values(long, nothing)[-41:]
    assert np.all(upper >= lower)
    assert np.all(upper <= np.exp(log_places(0.02, -40, 0)))
