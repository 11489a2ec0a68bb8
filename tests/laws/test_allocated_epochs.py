"""Random allocation by transforms, against inversions in sixty digits, convolutions, and the laws."""

import tracemalloc
from itertools import product
from math import exp, expm1, log, log1p, sqrt
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.laws import allocated_epochs as epochs_of
from hockeystick.laws import mean_of_ratios, tilted_powers
from hockeystick.laws.allocated_epochs import AllocatedEpochs, laws_of_one_epoch
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.lattice_laws import LatticeLaw, contraction, lattice_laws, spread
from hockeystick.laws.mean_of_ratios import LaplaceLine, MeanOfRatios
from hockeystick.laws.operations import average, power
from hockeystick.laws.profile import law_delta
from hockeystick.laws.tilted_powers import Copies, Powers
from hockeystick.types import Direction, Side


def exact_call(mu: mp.mpf, k: mp.mpf) -> mp.mpf:
    """E (Y - k)_+ of one log-normal ratio of mean 1."""
    if k <= 0:
        return 1 - k
    return mp.ncdf(mu / 2 - mp.log(k) / mu) - k * mp.ncdf(-mu / 2 - mp.log(k) / mu)


@settings(max_examples=12)
@given(
    sigma=st.floats(0.45, 6.0),
    bins=st.integers(4, 3000),
    epochs=st.integers(1, 60),
    share=st.floats(0.0, 4.0),
    direction=st.sampled_from(list(Direction)),
)
def test_the_laws_agree(sigma: float, bins: int, epochs: int, share: float, direction: Direction) -> None:
    epsilon = share * sqrt(epochs * log1p(expm1(sigma**-2) / bins))
    sides = AllocatedEpochs(sigma, bins, epochs, 1e-6).sides(epsilon, direction)
    if sides is None:
        return
    resolution = Resolution(8, 1e-6)
    lower, upper = (
        law_delta(
            power(average(gaussian_law(sigma, 1.0, side, resolution), bins, resolution), epochs, resolution),
            epsilon,
            direction,
        )
        for side in (Side.LOWER, Side.UPPER)
    )
    assert sides.lower <= upper
    assert sides.upper >= lower


def test_transforms_answer_common_runs() -> None:
    """Without this, the comparison with the laws could compare nothing."""
    for sigma, bins, epochs in [(1.0, 100, 20), (0.8, 100, 50), (2.0, 1000, 1000), (1.0, 10_000, 100), (0.7, 1000, 20)]:
        law = AllocatedEpochs(sigma, bins, epochs, 1e-5)
        deviation = sqrt(epochs * log1p(expm1(sigma**-2) / bins))
        for epsilon in (0.5 * deviation, 2.0 * deviation):
            for direction in Direction:
                sides = law.sides(epsilon, direction)
                assert sides is not None
                assert sides.upper - sides.lower <= 5e-3 * sides.upper


@pytest.mark.parametrize("sigma", [1e-3, 0.3, 1.0, 50.0, 1e6])
@pytest.mark.parametrize("bins", [2, 50, 10**6, 10**9])
@pytest.mark.parametrize("epochs", [1, 3, 10**6])
def test_any_size_ends_without_much_memory(sigma: float, bins: int, epochs: int) -> None:
    tracemalloc.start()
    law = AllocatedEpochs(sigma, bins, epochs, 1e-10)
    for epsilon in (0.0, 1e-6, 1.0, 30.0, 700.0):
        for direction in Direction:
            sides = law.sides(epsilon, direction)
            assert sides is None or 0.0 <= sides.lower <= sides.upper <= 1.0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e8


def call_of(law: LatticeLaw, k: float) -> float:
    places = np.exp(law.offset + law.spacing * (law.first + np.arange(len(law.masses))))
    return float(law.masses @ np.maximum(places - k, 0.0)) + law.p_inf


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6])
def test_lattice_laws_are_a_spread_and_a_contraction(noise: float) -> None:
    """Of a log-normal ratio, whose bounds are as wide as ``noise`` and vary at random within it (seed 5)."""
    mu, spacing, first = mp.mpf("0.3"), 0.02, -80
    rng = np.random.default_rng(5)
    places = np.exp(spacing * np.arange(first, 100))
    exact = np.array([float(exact_call(mu, mp.mpf(k)) - max(1 - mp.mpf(k), 0)) for k in places])
    lower, upper = exact - noise * rng.random(exact.size), exact + noise * rng.random(exact.size)
    laws = lattice_laws(spacing, first + np.arange(exact.size), lower, upper)
    assert laws is not None
    contraction, spread = laws
    for k in [*np.exp(np.linspace(-1.7, 2.1, 301)), 1.0, 0.98, 1.02]:
        truth = float(exact_call(mu, mp.mpf(float(k))))
        assert call_of(contraction, float(k)) <= truth * (1 + 1e-13)
        assert call_of(spread, float(k)) >= truth * (1 - 1e-13)
    for law in laws:
        places_of_law = np.exp(spacing * (first + np.arange(len(law.masses))))
        assert law.masses.sum() + law.at_zero == pytest.approx(1.0, abs=1e-9)
        assert law.masses @ places_of_law + law.p_inf == pytest.approx(1.0, abs=1e-9)
    # Of the second order in the spacing, but for what the width of the bounds adds.
    gap = call_of(spread, 1.0) - call_of(contraction, 1.0)
    assert gap <= 0.5 * spacing**2 / 0.3 + 4.0 * noise


@pytest.mark.parametrize("coarsest", [0.025, 3.0])
@pytest.mark.parametrize(("sigma", "bins"), [(0.5, 300), (0.42, 1000), (1.0, 20)])
def test_laws_of_one_epoch_are_a_spread_and_a_contraction_far_out(
    sigma: float, bins: int, coarsest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With places that become rare there, by lines that are short there, and by one large ratio."""
    monkeypatch.setattr(epochs_of, "COARSEST", coarsest)
    laws = laws_of_one_epoch(MeanOfRatios(sigma, bins, several=True), 0.005, 1e-13)
    assert laws is not None
    if sigma < 1.0:
        assert np.any(np.diff(laws[1].first + np.flatnonzero(laws[1].masses)) == (2 if coarsest < 1.0 else 8))
    whole = MeanOfRatios(sigma, bins)
    for k in np.geomspace(0.6, 5000.0, 80).tolist():
        line = whole.far if k > 200.0 else whole.line(k)
        assert line is not None
        low, high = (float(side[0]) for side in line.out_of_the_money(np.array([k])))
        inside, outside = (call_of(law, k) - max(1.0 - k, 0.0) for law in laws)
        assert inside <= high + 1e-15
        assert outside >= low - 1e-15
        if coarsest < 1.0 and 0.8 < k < 1000.0 and low > 1e-7:
            assert outside <= 1.003 * inside


@pytest.mark.parametrize("offset", [-0.019, -0.01, 0.004, 0.0199])
def test_places_may_lie_on_both_sides_of_one_without_it(offset: float) -> None:
    """Then the kink of 1 belongs to its neighbours, to each as much as the other is near."""
    mu, spacing, first = mp.mpf("0.3"), 0.02, -80
    places = np.exp(offset + spacing * np.arange(first, 100))
    exact = np.array([float(exact_call(mu, mp.mpf(k)) - max(1 - mp.mpf(k), 0)) for k in places])
    indices = first + np.arange(exact.size)
    laws = contraction(spacing, indices, exact, exact, offset), spread(spacing, indices, exact, exact, offset)
    for law, sign in zip(laws, (1.0, -1.0), strict=True):
        assert law is not None
        for k in [*np.exp(np.linspace(-1.7, 2.1, 301)), 1.0, float(places[79]), float(places[80]), float(places[81])]:
            assert sign * (call_of(law, float(k)) - float(exact_call(mu, mp.mpf(float(k))))) <= 1e-13
        assert law.masses.sum() + law.at_zero == pytest.approx(1.0, abs=1e-9)
        assert law.masses @ places + law.p_inf == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, -0.013])
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("count", [1, 2, 7])
def test_powers_of_a_small_law_are_its_convolutions(
    side: Side, direction: Direction, count: int, offset: float
) -> None:
    spacing, first = 0.05, -30
    places = np.exp(offset + spacing * np.arange(first, first + 70))
    masses = np.random.default_rng(7).random(70) * np.exp(-0.5 * (np.arange(70) - 28.0) ** 2 / 90.0)
    masses /= float(masses @ places)
    law = LatticeLaw(side, spacing, first, masses, 0.0, 0.0, offset)
    whole = np.array([1.0])
    for _ in range(count):
        whole = np.convolve(whole, masses)
    sums = np.exp(count * offset + spacing * (count * first + np.arange(len(whole))))
    for epsilon in [0.0, 0.1, 0.25, 0.6]:
        ratio = exp(epsilon)
        gains = np.maximum(sums - ratio, 0.0) if direction is Direction.REMOVE else np.maximum(1.0 - ratio * sums, 0.0)
        exact, value = float(whole @ gains), Powers(Copies(law, count)).delta(epsilon, direction)
        assert value is not None
        if side is Side.UPPER:
            assert exact * (1 - 1e-12) <= value <= exact * (1 + 1e-7)
        else:
            assert exact * (1 - 1e-7) <= value <= exact * (1 + 1e-12)


@pytest.mark.parametrize("outside", [0.2, 1e-2])
@pytest.mark.parametrize("direction", list(Direction))
def test_short_windows_are_charged(direction: Direction, outside: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes around from beyond a window, and what it is missed for, with laws of a Gaussian's shape."""
    monkeypatch.setattr(tilted_powers, "OUTSIDE", outside)
    remove, apart, above_or_below = direction is Direction.REMOVE, 0.0, 0
    for mu in (1.0, 2.0, 4.0):
        for places in np.linspace(15.0, 60.0, 20):
            spacing = mu / float(places)
            first, last = int((-mu * mu / 2 - 9 * mu) / spacing), int((mu * mu / 2 + 9 * mu) / spacing)
            logs = spacing * np.arange(first, last)
            masses = np.exp(-0.5 * ((logs + mu * mu / 2) / mu) ** 2)
            masses /= masses.sum()
            for epsilon in (0.0, 0.3, 1.0):
                gains = np.exp(logs) - exp(epsilon) if remove else 1.0 - np.exp(epsilon + logs)
                exact = float(masses @ np.maximum(gains, 0.0))
                lower, upper = (
                    Powers(Copies(LatticeLaw(side, spacing, first, masses, 0.0, 0.0), 1)).delta(epsilon, direction)
                    for side in (Side.LOWER, Side.UPPER)
                )
                if lower is not None and upper is not None:
                    assert lower <= exact * (1 + 1e-12)
                    assert upper >= exact * (1 - 1e-12)
                    apart, above_or_below = max(apart, upper - exact), above_or_below + 1
    assert above_or_below > 30
    assert apart > 1e-4


@pytest.mark.parametrize(("name", "value"), [("SMALLEST_POWER", -1.0), ("SPARED", 1e9), ("SPARED", 0.0)])
@pytest.mark.parametrize("direction", list(Direction))
def test_powers_that_leave_out_more_frequencies_or_have_other_orders_hold_the_truth(
    direction: Direction, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some laws in a product, so that what one of them drops grows by the next."""
    spacing, indices, apart = 0.02, np.arange(-60, 61), 0.0
    laws = [np.exp(-0.5 * (indices / width + 0.5 * width * spacing) ** 2) for width in (9.0, 12.0)]
    monkeypatch.setattr(tilted_powers, name, value)
    whole = np.array([1.0])
    for masses, count in zip(laws, (7, 4), strict=True):
        masses /= masses.sum()
        for _ in range(count):
            whole = np.convolve(whole, masses)
    sums = np.exp(spacing * (11 * indices[0] + np.arange(len(whole))))
    for epsilon in np.linspace(0.0, 2.5, 26):
        gains = np.maximum(sums - exp(epsilon), 0.0) if direction is Direction.REMOVE else 1.0 - exp(epsilon) * sums
        exact = float(whole @ np.maximum(gains, 0.0))
        lower, upper = (
            Powers(
                *(
                    Copies(LatticeLaw(side, spacing, -60, masses, 0.0, 0.0), count)
                    for masses, count in zip(laws, (7, 4), strict=True)
                ),
                smallest_delta=1e-6,
            ).delta(float(epsilon), direction)
            for side in (Side.LOWER, Side.UPPER)
        )
        assert lower is not None
        assert upper is not None
        assert lower <= exact * (1 + 1e-12)
        assert upper >= exact * (1 - 1e-12)
        apart = max(apart, upper - lower)
    assert apart > (1e-3 if name == "SMALLEST_POWER" else 0.0)


def test_places_at_the_threshold_take_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much mass a little below the threshold, and little above it, on either side of the rounding of places.

    What is charged for the outside of the window would hide it.
    """
    monkeypatch.setattr(tilted_powers, "OUTSIDE", 1e-15)
    spacing, at, beyond = 0.01, 300, 320
    masses = np.zeros(2 * at + 31)
    masses[0], masses[2 * at], masses[at + beyond] = 0.999, 0.9 * exp(-3.0), 1e-5 * exp(-3.2)
    for epsilon in (3.0 - 4e-12, 3.0, 3.0 + 1.5e-12, 3.0 + 4e-12):
        gain = masses[at + beyond] * (exp(3.2) - exp(epsilon)) + masses[2 * at] * max(exp(3.0) - exp(epsilon), 0.0)
        lower, upper = (
            Powers(Copies(LatticeLaw(side, spacing, -at, masses, 0.0, 0.0), 1)).delta(epsilon, Direction.REMOVE)
            for side in (Side.LOWER, Side.UPPER)
        )
        assert lower is not None
        assert upper is not None
        assert lower <= gain * (1 + 1e-12)
        assert upper >= gain * (1 - 1e-12)


@settings(max_examples=150)
@given(seed=st.integers(0, 10**6), spacing=st.floats(0.004, 0.2), width=st.sampled_from([0.0, 1e-9, 1e-3]))
def test_lattice_laws_of_a_few_atoms(seed: int, spacing: float, width: float) -> None:
    """Kinks between two places, places where nothing is out of the money, and places that are missing."""
    rng = np.random.default_rng(seed)
    below, above = int(rng.integers(5, 40)), int(rng.integers(5, 40))
    indices = np.arange(-below, above)
    near = (np.abs(indices) < 4) | (rng.random(indices.size) < rng.uniform(0.3, 1.0))
    indices = indices[near | (indices == indices[0]) | (indices == indices[-1])]
    logs = spacing * indices
    atoms = np.exp(rng.uniform(0.9 * logs[0], 0.9 * logs[-1], int(rng.integers(2, 8))))
    shares = rng.dirichlet(np.ones(atoms.size))
    atoms /= float(shares @ atoms)
    places = np.exp(logs)
    if not places[0] <= atoms.min() <= atoms.max() <= places[-1]:
        return

    def out_of_the_money(at: np.ndarray) -> np.ndarray:
        puts, calls = np.maximum(at[:, None] - atoms, 0.0) @ shares, np.maximum(atoms - at[:, None], 0.0) @ shares
        return np.where(at < 1.0, puts, calls)

    exact = out_of_the_money(places)
    laws = lattice_laws(spacing, indices, exact * (1.0 - width), exact * (1.0 + width))
    if laws is None:
        return
    at = np.exp(np.linspace(logs[0], logs[-1], 500))
    truth = out_of_the_money(at)
    for law in laws:
        ends = law.side is Side.UPPER
        places = np.exp(spacing * (law.first + np.arange(len(law.masses))))
        puts = np.maximum(at[:, None] - places, 0.0) @ law.masses + law.at_zero * at
        calls = np.maximum(places - at[:, None], 0.0) @ law.masses + law.p_inf
        values = np.where(at < 1.0, puts, calls)
        assert np.all(values >= truth - 1e-12) if ends else np.all(values <= truth + 1e-12)


def test_what_has_no_ratio_is_charged_in_every_epoch() -> None:
    law = LatticeLaw(Side.UPPER, 0.25, -1, np.array([0.5, 0.1, 0.4]), 1e-3, 2e-3)
    plain = LatticeLaw(Side.UPPER, 0.25, -1, np.array([0.5, 0.1, 0.4]), 0.0, 0.0)
    for direction, charge in ((Direction.REMOVE, 2e-3), (Direction.ADD, 1e-3)):
        with_it, without = (Powers(Copies(either, 5)).delta(0.3, direction) for either in (law, plain))
        assert with_it is not None
        assert without is not None
        assert with_it - without >= 5 * charge


def test_answers_depend_on_the_question_alone() -> None:
    asked = [0.0, 0.3, 1.7, 0.9]
    together = AllocatedEpochs(1.0, 100, 20, 1e-5)
    in_turn = [together.sides(epsilon, Direction.REMOVE) for epsilon in asked]
    assert in_turn == [AllocatedEpochs(1.0, 100, 20, 1e-5).sides(epsilon, Direction.REMOVE) for epsilon in asked]


def test_an_interruption_leaves_no_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    asked, epoch, whole = [0.0, 0.3, 1.7], *(MeanOfRatios(1.0, 100) for _ in range(2))
    with monkeypatch.context() as context:
        context.setattr(epoch, "line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            epoch.foresee(asked, Direction.REMOVE)
    epoch.foresee(asked, Direction.REMOVE)
    whole.foresee(asked, Direction.REMOVE)
    for epsilon in asked:
        assert whole.sides(epsilon, Direction.REMOVE) is not None
        assert epoch.sides(epsilon, Direction.REMOVE) == whole.sides(epsilon, Direction.REMOVE)


def test_epochs_that_share_lines_have_the_answers_that_they_have_alone() -> None:
    """As the cells of a sweep do, in whatever order: other numbers of epochs, noise, bins and smallest deltas."""
    cells = [(0.9, 100, 1, 1e-5), (0.9, 100, 5, 1e-5), (0.9, 100, 20, 1e-6), (1.0, 100, 5, 1e-5), (0.9, 60, 5, 1e-5)]
    for cell in cells:
        alone = AllocatedEpochs(*cell)
        for epsilon, direction in product((0.0, 0.6, 1.9), Direction):
            assert epochs_of.allocated_epochs(*cell).sides(epsilon, direction) == alone.sides(epsilon, direction)


def test_what_epochs_have_in_common_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines serve all numbers of epochs but 1, whose lines may be narrow; powers serve comparisons and values."""
    made: list[str] = []
    line, power_of = MeanOfRatios._line, Powers._power

    def line_that_counts(*args: Any) -> LaplaceLine | None:
        made.append("line")
        return line(*args)

    def power_that_counts(*args: Any) -> Any:
        made.append("power")
        return power_of(*args)

    monkeypatch.setattr(MeanOfRatios, "_line", line_that_counts)
    monkeypatch.setattr(Powers, "_power", power_that_counts)

    def count(epochs: int, *, compared: bool) -> tuple[int, int]:
        made.clear()
        epochs_of.allocated_epochs(0.7431, 80, epochs, 1e-5).sides(1.2, Direction.REMOVE, compared=compared)
        return made.count("line"), made.count("power")

    lines, powers = count(5, compared=True)
    assert lines >= 1
    assert powers >= 2
    assert count(5, compared=False) == (0, 0)
    assert count(7, compared=False)[0] == 0
    assert count(7, compared=True) == (0, 0)
    assert count(1, compared=False) == (1, 0)


@pytest.mark.parametrize("direction", list(Direction))
def test_epsilons_of_one_epoch_together_have_nearly_the_answers_that_they_have_alone(
    direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over many places may round in another order, which both sides allow for."""
    monkeypatch.setattr(mean_of_ratios, "PLACES_TOGETHER", 7)
    epsilons = [0.0, *np.geomspace(0.01, 12.0, 40).tolist()]
    together = AllocatedEpochs(0.9, 300, 1, 1e-5)
    together.foresee(epsilons, direction)
    answered = 0
    for epsilon in epsilons:
        alone = MeanOfRatios(0.9, 300).sides(epsilon, direction)
        sides = together.single.sides(epsilon, direction)
        assert (alone is None) == (sides is None)
        if alone is not None and sides is not None:
            answered += 1
            assert sides.upper == pytest.approx(alone.upper, rel=1e-9, abs=1e-12)
            assert sides.lower == pytest.approx(alone.lower, rel=1e-9, abs=1e-12)
    assert answered > 20


def test_a_finer_lattice_is_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = []
    for cells in (20.0, 80.0):
        monkeypatch.setattr(epochs_of, "CELLS", cells)
        sides = AllocatedEpochs(1.0, 100, 20, 1e-5)._sides(2.0, Direction.REMOVE)
        assert sides is not None
        gaps.append(log(sides.upper / sides.lower))
    assert gaps[1] <= gaps[0] / 6.0


@pytest.mark.parametrize("copies", [1, 3, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.75, 2.4, 30.0])
def test_the_moment_bound_of_a_power_is_above_every_product(copies: int, epsilon: float) -> None:
    """Three places, some mass at 0 and at infinity; beyond all products only these are left, n times as large."""
    places, at_zero, p_inf = np.exp(-0.3 + 0.3 * np.arange(3.0)), 1e-6, 2e-6
    # Of mass 1 and mean 1, with what is at 0 and at infinity.
    masses = np.linalg.solve([places, np.ones(3), [0.0, 0.0, 1.0]], [1.0 - p_inf, 1.0 - at_zero, 0.2])
    assert masses.min() > 0.0
    powers = Powers(Copies(LatticeLaw(Side.UPPER, 0.3, 0, masses, at_zero, p_inf, -0.3), copies))
    ratios, chances = np.ones(1), np.ones(1)
    for _ in range(copies):
        ratios, chances = np.multiply.outer(ratios, places).ravel(), np.multiply.outer(chances, masses).ravel()
    exact = {
        Direction.REMOVE: chances @ np.maximum(ratios - exp(epsilon), 0.0) + 1.0 - (1.0 - p_inf) ** copies,
        Direction.ADD: chances @ np.maximum(1.0 - exp(epsilon) * ratios, 0.0) + 1.0 - (1.0 - at_zero) ** copies,
    }
    for direction, delta in exact.items():
        assert delta <= powers.most(epsilon, direction) * (1.0 + 1e-12)
        assert powers.most(epsilon, direction) <= 20.0 * delta


def test_what_is_below_all_products_needs_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 1 no product of two epochs is below e^-1, and windows for that may be too long."""
    monkeypatch.setattr(tilted_powers, "LONGEST", 32)
    epochs = AllocatedEpochs(0.97772, 395, 2, 1e-5)
    assert epochs._powers is not None
    assert [power.delta(1.0, Direction.ADD) for power in epochs._powers] == [None, None]
    sides = epochs.sides(1.0, Direction.ADD)
    assert sides is not None
    assert sides.lower == 0.0
    assert sides.upper < 1e-10


@pytest.mark.parametrize(("sigma", "bins", "epochs"), [(72.4, 24, 404), (150.0, 10, 1000)])
def test_much_noise_is_between_the_laws(sigma: float, bins: int, epochs: int) -> None:
    resolution = Resolution(24, 1e-6)
    laws = [
        power(average(gaussian_law(sigma, 1.0, side, resolution), bins, resolution), epochs, resolution)
        for side in (Side.LOWER, Side.UPPER)
    ]
    for direction in Direction:
        sides = AllocatedEpochs(sigma, bins, epochs, 1e-6).sides(0.2, direction)
        lower, upper = (law_delta(law, 0.2, direction) for law in laws)
        assert sides is not None
        assert lower <= sides.upper <= upper
        assert lower <= sides.lower <= upper


@pytest.mark.parametrize("epsilon", [0.1, 0.8])
@pytest.mark.parametrize("direction", Direction)
def test_few_bins_are_as_close_as_their_laws(epsilon: float, direction: Direction) -> None:
    """Lines of three bins end before what is far away is small, and what is left there would count as infinite."""
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=3, epochs=3), noise_multiplier=1.2)
    lower, upper = (
        hs.bound(run, "direct", side=side).profiles[direction](epsilon) for side in (Side.LOWER, Side.UPPER)
    )
    assert lower <= upper <= 1.0004 * lower
