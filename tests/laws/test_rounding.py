"""The charge for rounding, against exact fractions: inputs on which the arithmetic of doubles errs to the wrong side.

The laws here have two atoms, 0 and one ratio, so their powers have two as well and lose nothing to a grid. Every
squaring doubles the relative error of a mass and of a place; after ``COUNT`` runs it is far above what reading a law
allows for, so that a bound without the charge of the operations passes the truth for some of the inputs.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from hockeystick.laws import operations
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law, merge_equal, point_mass_at_one
from hockeystick.laws.mixtures import coarsen, sum_masses
from hockeystick.laws.operations import affine, average, compose, mix, power, thin, unthin, weighted
from hockeystick.laws.profile import law_delta
from hockeystick.types import Direction, Side

COUNT = 256
FINE = Resolution()
LARGEST_RATIO = Fraction(3, 2)
"""Of e^epsilon, as a fraction: the logarithm of it, rounded to the outside, is what the laws are asked."""
ABOVE, BELOW = np.nextafter(np.log(1.5), 1.0), np.nextafter(np.log(1.5), 0.0)


def two_atoms(mass: float, ratio: float, side: Side) -> Law:
    """Exact: the mass and its complement are doubles, and so is the ratio."""
    assert Fraction(1.0 - mass) == 1 - Fraction(mass)
    return Law(np.array([0.0, ratio]), np.array([1.0 - mass, mass]), 0.0, side, 0.0, 0.0)


def exact_delta(atoms: list[tuple[Fraction, Fraction]], direction: Direction) -> Fraction:
    """The profile of (ratio, mass) atoms at e^epsilon = 3/2."""
    if direction is Direction.REMOVE:
        return sum((q * max(x - LARGEST_RATIO, Fraction(0)) for x, q in atoms), Fraction(0))
    return sum((q * max(1 - LARGEST_RATIO * x, Fraction(0)) for x, q in atoms), Fraction(0))


def assert_on_its_side(law: Law, atoms: list[tuple[Fraction, Fraction]], direction: Direction) -> Fraction:
    """The bound is on its side of the truth; returns by how much, relatively.

    log(3/2) is rounded so that the laws are asked for what is harder: an upper law at a larger epsilon.
    """
    truth = exact_delta(atoms, direction)
    upper = law.side is Side.UPPER
    bound = Fraction(law_delta(law, float(ABOVE if upper else BELOW), direction))
    assert bound >= truth if upper else bound <= truth
    return abs(bound / truth - 1)


def draw(seed: int, low: float, high: float) -> list[float]:
    """Multiples of 2^-53, so that their complements are doubles too."""
    return (np.round(np.random.default_rng(seed).uniform(low, high, 60) * 2.0**53) / 2.0**53).tolist()


MASSES = [(mass, 2.0) for mass in draw(1, 0.48, 0.5)]
"""Powers of 2 are exact, so only masses are rounded; the P-mass that is missing does not matter here."""
PLACES = [(0.5, ratio) for ratio in draw(2, 1.95, 2.0)]
"""Powers of 1/2 are exact, so only places are rounded."""


@pytest.mark.parametrize("cases", [MASSES, PLACES], ids=["masses", "places"])
@pytest.mark.parametrize("side", Side)
def test_powers_charge_for_the_rounding_of_every_product(cases: list[tuple[float, float]], side: Side) -> None:
    loosest = Fraction(0)
    for mass, ratio in cases:
        law = power(two_atoms(mass, ratio, side), COUNT, FINE)
        whole = Fraction(mass) ** COUNT
        atoms = [(Fraction(0), 1 - whole), (Fraction(ratio) ** COUNT, whole)]
        loosest = max(loosest, assert_on_its_side(law, atoms, Direction.REMOVE))
        assert abs(Fraction(float(law.mass[-1])) / whole - 1) <= law.mass_error
        assert abs(Fraction(float(law.support[-1])) / Fraction(ratio) ** COUNT - 1) <= law.place_error
    assert loosest < 1e-10  # the charge is some thousands of roundings, not a margin that would cover a fault


@pytest.mark.parametrize("side", Side)
def test_a_chain_of_compositions_charges_both_factors(side: Side) -> None:
    """One run at a time: the errors of the first factor add up, those of the second are charged every time."""
    for mass, ratio in [*MASSES[:6], *PLACES[:6]]:
        factor = two_atoms(mass, ratio, side)
        rounded = power(factor, 64, FINE)
        law = rounded
        for _ in range(3):
            law = compose(rounded, law, FINE)
        whole = Fraction(mass) ** COUNT
        atoms = [(Fraction(0), 1 - whole), (Fraction(ratio) ** COUNT, whole)]
        assert_on_its_side(law, atoms, Direction.REMOVE)
        assert law.mass_error >= 3.9 * rounded.mass_error
        assert law.place_error >= 3.9 * rounded.place_error


@pytest.mark.parametrize("side", Side)
def test_a_composition_charges_for_the_barycentres_of_its_cells(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell for 2,000 nodes, any grid being valid: each small mass is lost in the sum of Q and rounded up in P's."""
    monkeypatch.setattr(operations, "nodes_for_pairs", lambda *_: np.array([0.0, 1.0]))
    support = np.concatenate([[0.5], 0.95 + 1e-6 * np.arange(2000)])
    mass = np.concatenate([[0.5], np.full(2000, 0.9 * 2.0**-54)])
    law = compose(point_mass_at_one(side), Law(support, mass, 0.0, side, 0.0, 0.0), FINE)
    q = sum(map(Fraction, mass.tolist()))
    barycentre = sum(Fraction(x) * Fraction(m) for x, m in zip(support.tolist(), mass.tolist(), strict=True)) / q
    masses = [Fraction(float(mass)) for mass in law.mass]
    landed = masses[1] / (masses[0] + masses[1]) if side is Side.UPPER else Fraction(float(law.support[0]))
    assert 1000 * 2.0**-53 < landed / barycentre - 1 <= law.place_error


def loose(side: Side) -> Law:
    """A law that is known to a part in 10^3 (masses) and 10^4 (places)."""
    return Law(np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, side, 1e-3, 1e-4)


OPERATIONS: dict[str, tuple[Callable[[Law], Law], float, float]] = {
    "affine": (lambda law: affine(law, 0.25, 0.75), 1.0, 1.0),
    "thin": (lambda law: thin(law, 0.25), 1.0, 1.0),
    "power": (lambda law: power(law, 3, FINE), 3.0, 3.0),
    "compose": (lambda law: compose(law, power(law, 2, FINE), FINE), 3.0, 3.0),
    "average": (lambda law: average(law, 3, FINE), 3.0, 1.0),
    "weighted": (lambda law: weighted(law, 1, average(law, 2, FINE), 5, FINE), 3.0, 1.0),
    "mix": (lambda law: mix([law, thin(law, 0.5)], [0.5, 0.5], FINE), 1.0, 1.0),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("side", Side)
def test_errors_of_the_factors_are_carried_along(name: str, side: Side) -> None:
    """Masses of independent factors multiply, so their errors add; so do those of places, but in an average."""
    operation, masses, places = OPERATIONS[name]
    law = operation(loose(side))
    assert masses * 1e-3 <= law.mass_error < masses * 1e-3 * 1.01
    assert places * 1e-4 <= law.place_error < places * 1e-4 * 1.01


def test_unthin_divides_the_error_of_places() -> None:
    law = unthin(thin(loose(Side.UPPER), 0.25), 0.25)
    assert law.mass_error >= 1e-3
    assert law.place_error >= 1e-4 * (1.0 + 0.75 / 0.25)


@pytest.mark.parametrize("direction", Direction)
def test_a_profile_is_read_with_both_errors(direction: Direction) -> None:
    """The truth may have its masses larger and its places further out by the stated errors: an adversary's choice."""
    up, down = 1 + Fraction(1, 1000), 1 - Fraction(1, 1000)
    out, back = 1 + Fraction(1, 10_000), 1 - Fraction(1, 10_000)
    half = Fraction(1, 2)
    worst = [(half * back if direction is Direction.ADD else half * out, half * up)]
    worst.append((Fraction(3, 2) * 2 * out if direction is Direction.REMOVE else Fraction(3, 2) * 2 * back, half * up))
    best = [(half * out if direction is Direction.ADD else half * back, half * down)]
    best.append((Fraction(3, 2) * 2 * back if direction is Direction.REMOVE else Fraction(3, 2) * 2 * out, half * down))
    for side, atoms in ((Side.UPPER, worst), (Side.LOWER, best)):
        law = Law(np.array([0.5, 3.0]), np.array([0.5, 0.5]), 0.0, side, 1e-3, 1e-4)
        assert assert_on_its_side(law, atoms, direction) < 0.01


@pytest.mark.parametrize("side", Side)
def test_sums_of_sensitivities_charge_for_their_rounding(side: Side) -> None:
    """Binomial masses of many summands: within the stated error of the exact ones, and not far below."""
    n = 400
    worst = Fraction(0)
    for prob in (0.3, 0.7, 0.9):
        sums = sum_masses(np.full(n, prob), np.ones(n), 1.0, side)
        p = Fraction(prob)
        for k in range(int(n * prob) - 40, int(n * prob) + 40):
            exact = p**k * (1 - p) ** (n - k) * _choose(n, k)
            worst = max(worst, abs(Fraction(float(sums.masses[k])) / exact - 1) / Fraction(sums.error))
        coarser = coarsen(sums, 4, side)
        assert coarser.error > sums.error
    assert Fraction(1, 50) < worst <= 1


def _choose(n: int, k: int) -> int:
    result = 1
    for i in range(k):
        result = result * (n - i) // (i + 1)
    return result


def test_nodes_that_rounding_has_made_equal_keep_their_mass() -> None:
    support, mass = merge_equal(np.array([0.0, 1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert support.tolist() == [0.0, 1.0, 2.0]
    assert mass.tolist() == [1.0, 5.0, 9.0]
