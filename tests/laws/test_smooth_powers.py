"""Few frequencies of smooth sums, against binomial laws in closed form and against whole transforms."""

from math import exp

import mpmath as mp
import numpy as np
import pytest

from hockeystick.laws import smooth_powers, tilted_powers
from hockeystick.laws.lattice_laws import LatticeLaw
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.smooth_powers import SMALLEST_POWER, Part, Spectrum, Waves, spectrum
from hockeystick.laws.tilted_powers import Copies, Masses, Powers
from hockeystick.types import Direction, Side

LENGTH, COUNT, CHANCE = 4096, 9000, 0.07
MEAN = round(COUNT * CHANCE)


def coins(count: int = COUNT, chance: float = CHANCE) -> Part:
    """Counted from the likelier side."""
    return Part(np.array([0, 1]), np.array([1.0 - chance, chance]), float(count), 0.0)


def binomial(count: int, chance: float, places: np.ndarray) -> np.ndarray:
    p = mp.mpf(chance)
    return np.array([float(mp.binomial(count, k) * p**k * (1 - p) ** (count - k)) for k in places.tolist()])


def known(parts: list[Part], length: int = LENGTH) -> Spectrum:
    found = spectrum(parts, length)
    assert found is not None
    return found


def masses_of(found: Spectrum, length: int = LENGTH) -> np.ndarray:
    product = np.zeros(length // 2 + 1, dtype=np.complex128)
    product[found.frequencies] = found.powers
    return np.asarray(np.fft.irfft(product, length))


def test_a_binomial_law_has_the_masses_of_its_frequencies() -> None:
    found = known([coins()])
    assert found.frequencies.size < 400
    places = np.arange(MEAN - 250, MEAN + 250)
    off = np.abs(masses_of(found)[places] - binomial(COUNT, CHANCE, places))
    assert off.max() <= found.error + 1e-16
    assert found.error <= 1e-9


def test_factors_multiply() -> None:
    """Coins in two parts are as many coins; a part of another law is one more factor."""
    once, twice = known([coins()]), known([coins(4000), coins(5000)])
    assert np.abs(masses_of(once) - masses_of(twice)).max() <= once.error + twice.error
    die = Part(np.array([0, 2, -1]), np.array([0.5, 0.3, 0.2]), 1.0, 0.0)
    both, alone = known([coins(), die]), masses_of(once)
    turned = 0.5 * alone + 0.3 * np.roll(alone, 2) + 0.2 * np.roll(alone, -1)
    assert np.abs(masses_of(both) - turned).max() <= both.error + once.error


def test_weights_may_be_as_wrong_as_they_say() -> None:
    """Off by a millionth each, to either side; the charge is that of all copies."""
    part = coins()
    wrong = part._replace(weights=part.weights * (1.0 + 1e-6 * np.array([1.0, -1.0])), error=1e-6)
    found = known([wrong])
    off = np.abs(masses_of(found) - masses_of(known([part])))
    assert off.max() <= found.error <= 1e3 * off.max()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_out_is_negligible(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of transforms that rise and fall between the few coarse frequencies, too."""
    monkeypatch.setattr(smooth_powers, "BEND", 0.9)
    monkeypatch.setattr(smooth_powers, "FEWEST", 8)
    for most in ("MOST_CELLS", "MOST_FREQUENCIES"):
        monkeypatch.setattr(smooth_powers, most, 10_000)
    rng = np.random.default_rng(seed)
    offsets = np.unique(rng.integers(-20, 20, 5))
    part = Part(offsets, rng.dirichlet(np.ones(offsets.size)), float(rng.integers(150, 3000)), 0.0)
    found = known([part])
    transform = np.fft.rfft(np.bincount(part.offsets % LENGTH, part.weights, LENGTH))
    logs = part.copies * np.log(np.maximum(np.abs(transform), 1e-300))
    left_out = np.delete(logs, found.frequencies)
    assert left_out.size > 0
    assert left_out.max() < SMALLEST_POWER


def test_what_is_left_out_is_negligible_for_all_weights_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are off by as much as they say make coins less likely, and their transforms larger."""
    for most in ("MOST_CELLS", "MOST_FREQUENCIES"):
        monkeypatch.setattr(smooth_powers, most, LENGTH)
    angles, error = 2.0 * np.pi * np.arange(LENGTH // 2 + 1) / LENGTH, 0.1
    for count in range(6000, 8000, 100):
        frequencies = smooth_powers._frequencies([coins(count)._replace(error=error)], LENGTH)
        assert frequencies is not None
        chance = CHANCE * (1.0 - error)
        sizes = np.abs(1.0 - chance + chance * np.exp(1j * angles))
        left_out = np.delete(count * np.log(sizes), frequencies)
        assert left_out.max() < SMALLEST_POWER


@pytest.mark.parametrize("order", [3.0, -2.0])
@pytest.mark.parametrize("power", [0.0, 1.0])
@pytest.mark.parametrize("start", [-LENGTH // 2, MEAN - LENGTH // 2, 5 * LENGTH + MEAN - LENGTH // 3])
def test_series_are_sums_over_places(order: float, power: float, start: int) -> None:
    spacing = 0.004
    found = known([coins()])
    waves = Waves(found, LENGTH, start, spacing, order)
    places = spacing * (start + np.arange(LENGTH, dtype=np.float64))
    masses = np.roll(masses_of(found), -start)
    direct, place = Masses(masses, places, order), 0 if power == 1.0 else 1
    for count in (0, 1, 2, 900, LENGTH // 2, LENGTH // 2 + 77, LENGTH - 1, LENGTH):
        (value, sizes), (exact, _) = ([float(part[place]) for part in sums(count)] for sums in (waves, direct))
        farthest = 0.5 * LENGTH * spacing
        units = waves.rounding + 8.0 * abs(order) * farthest + 2400.0
        others = np.abs(masses) * np.exp((power - order) * (places - places[LENGTH // 2]))
        counted = others[LENGTH - count :] if order > 1.0 else others[:count]
        rounding = UNIT_ROUNDOFF * (units * sizes + 4.0 * LENGTH * counted.sum())
        of_places = np.exp((power - order) * (places - places[LENGTH // 2]))
        exponentials = (of_places[LENGTH - count :] if order > 1.0 else of_places[:count]).sum()
        assert abs(value - exact) <= rounding + 2e-16 * exponentials  # the transform back has an error, too
        assert sizes >= abs(value)


def two_places(side: Side) -> LatticeLaw:
    """A ratio that is a little above 1 or a little below, of mean 1."""
    spacing = 0.01
    low, high = exp(-2.0 * spacing), exp(spacing)
    chance = (1.0 - low) / (high - low)
    return LatticeLaw(side, spacing, -2, np.array([1.0 - chance, 0.0, 0.0, chance]), 0.0, 0.0)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("side", list(Side))
def test_smooth_sums_say_what_all_places_say(side: Side, direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """And both are beside the binomial law."""
    count, law = 9000, two_places(side)
    chance = law.masses[-1]
    heads = np.arange(count + 1)
    logs = law.spacing * (3.0 * heads - 2.0 * count)
    pmf = binomial(count, chance, heads)
    values = {}
    for long in (1, 1 << 30):
        monkeypatch.setattr(tilted_powers, "LONG", long)
        powers = Powers(Copies(law, count))
        for epsilon in (0.1, 1.0, 4.0):
            value = powers.delta(epsilon, direction)
            assert value is not None
            values[long, epsilon] = value
            kinds = {type(tilted.sums) for tilted in powers._known.values() if tilted is not None}
            assert kinds == {Waves if long == 1 else Masses}
    for epsilon in (0.1, 1.0, 4.0):
        gains = np.exp(logs) - exp(epsilon) if direction is Direction.REMOVE else 1.0 - np.exp(epsilon + logs)
        exact = float(pmf @ np.maximum(gains, 0.0))
        smooth, whole = values[1, epsilon], values[1 << 30, epsilon]
        assert smooth == pytest.approx(whole, rel=2e-7)
        if side is Side.UPPER:
            assert exact * (1.0 - 1e-11) <= smooth <= exact * (1.0 + 2e-7)
        else:
            assert exact * (1.0 - 2e-7) <= smooth <= exact * (1.0 + 1e-11)


def test_sums_that_are_not_smooth_have_no_few_frequencies() -> None:
    """Of few factors, of a factor that is nearly always the same, and in a window that is short."""
    assert spectrum([coins(3)], LENGTH) is None
    assert spectrum([coins(1000, 1e-4)], LENGTH) is None
    assert spectrum([coins()], 64) is None


def test_sums_that_leave_places_out_have_more_frequencies_than_the_first_ones() -> None:
    even = known([Part(np.array([0, 8]), np.array([0.5, 0.5]), 9000.0, 0.0)])
    assert np.isin(LENGTH // 8 * np.arange(5), even.frequencies).all()
    assert not np.isin(LENGTH // 16 * np.array([1, 3, 5, 7]), even.frequencies).any()
