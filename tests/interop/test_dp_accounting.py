"""Privacy loss distributions: both conversions stay on the safe side, and dp_accounting agrees with us."""

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from hockeystick.accountants.direct import independent_steps_law
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.interop.dp_accounting import from_pld, to_pld
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law, point_mass_at_one
from hockeystick.laws.operations import average, power, thin
from hockeystick.laws.profile import law_delta
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

RESOLUTION = Resolution(nodes_per_unit=24)
EPSILONS = np.concatenate([np.linspace(0.0, 3.0, 61), np.linspace(3.0, 40.0, 38), np.arange(1, 20) * 1e-2])


def gaussian(noise_multiplier: float, side: Side = Side.UPPER) -> Law:
    return gaussian_law(noise_multiplier, 1.0, side, RESOLUTION)


LAWS = {
    "gaussian": lambda: gaussian(1.0),
    "little noise": lambda: gaussian(0.3),
    "thinned": lambda: thin(gaussian(0.7), 0.01),
    "poisson": lambda: power(thin(gaussian(1.0), 0.01), 100, RESOLUTION),
    "allocation": lambda: average(gaussian(0.5), 300, RESOLUTION),
    "nothing": lambda: point_mass_at_one(Side.UPPER),
    "disclosure": lambda: Law(
        np.array([0.0, 0.5, 0.96]), np.array([0.1, 0.04, 0.86]), 1.0 - 0.02 - 0.86 * 0.96, Side.UPPER, 0.0, 0.0
    ),
    "rough": lambda: Law(np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, Side.UPPER, 1e-3, 1e-3),
}


def pmf_of(pld: privacy_loss_distribution.PrivacyLossDistribution, direction: Direction) -> pld_pmf.PLDPmf:
    return pld._pmf_remove if direction is Direction.REMOVE else pld._pmf_add


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("interval", [1e-3, 1e-2, 0.5])
@pytest.mark.parametrize("name", list(LAWS))
def test_pld_of_an_upper_law_is_never_below_it(name: str, interval: float, direction: Direction) -> None:
    law = LAWS[name]()
    pmf = pmf_of(to_pld(law, value_discretization_interval=interval), direction)
    for epsilon in EPSILONS:
        delta = law_delta(law, float(epsilon), direction)
        theirs = float(pmf.get_delta_for_epsilon(float(epsilon)))
        assert theirs >= delta or delta == 1.0
        if interval == 1e-3 and delta > 1e-30 and name != "nothing":
            assert theirs <= 1.02 * delta


def test_excess_of_the_pld_is_of_second_order_in_the_interval() -> None:
    law = LAWS["poisson"]()
    exact = law_delta(law, 0.505, Direction.REMOVE)
    excess = [
        pmf_of(to_pld(law, value_discretization_interval=h), Direction.REMOVE).get_delta_for_epsilon(0.505) / exact - 1
        for h in (0.2, 0.05)
    ]
    assert excess[0] > 8.0 * excess[1] > 0.0


@pytest.mark.parametrize("direction", list(Direction))
def test_pld_composes_to_an_upper_bound(direction: Direction) -> None:
    """Our law composed by us lies below its PLD composed by dp_accounting, and within a percent of it."""
    steps = 64
    step = thin(gaussian(0.8), 0.02)
    theirs = pmf_of(to_pld(step).self_compose(steps), direction)
    lower_step = thin(gaussian(0.8, Side.LOWER), 0.02)
    lower = power(lower_step, steps, RESOLUTION)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        bound = law_delta(lower, epsilon, direction)
        delta = float(theirs.get_delta_for_epsilon(epsilon))
        assert bound <= delta
        assert delta <= bound * 1.01 + 1e-9


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("name", ["gaussian", "thinned", "poisson", "allocation", "disclosure", "nothing"])
def test_round_trip_law_pld_law(name: str, direction: Direction) -> None:
    law = LAWS[name]()
    back = from_pld(to_pld(law, value_discretization_interval=1e-3))[direction]
    assert back.mass.sum() == pytest.approx(1.0, abs=1e-9)
    assert back.mean() == pytest.approx(1.0, abs=1e-9)
    for epsilon in EPSILONS:
        delta = law_delta(law, float(epsilon), direction)
        again = law_delta(back, float(epsilon), direction)
        assert again >= delta
        # What the other side of rounding leaves: mass that is missing from 1 in doubles goes to infinity.
        assert again <= 1.02 * delta + 1e-12


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("connect_dots", [True, False])
@pytest.mark.parametrize(("noise_multiplier", "rate"), [(1.0, 1.0), (1.0, 0.01), (0.5, 0.1), (5.0, 0.01)])
def test_law_of_a_pessimistic_pld(
    noise_multiplier: float, rate: float, connect_dots: bool, direction: Direction
) -> None:
    """It reads the same deltas as the PLD, and its powers agree with the PLD's."""
    steps = 50
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, use_connect_dots=connect_dots, value_discretization_interval=1e-3
    )
    law = from_pld(pld)[direction]
    composed = power(from_pld(pld, resolution=Resolution(72))[direction], steps, Resolution(72))
    pmf, composed_pmf = pmf_of(pld, direction), pmf_of(pld.self_compose(steps), direction)
    for epsilon in (0.0, 0.05, 0.2, 1.0, 2.0, 5.0):
        theirs = float(pmf.get_delta_for_epsilon(epsilon))
        assert law_delta(law, epsilon, direction) >= theirs * (1.0 - 1e-12)
        assert law_delta(law, epsilon, direction) <= theirs * (1.0 + 1e-6) + 1e-12
        theirs = min(float(composed_pmf.get_delta_for_epsilon(epsilon)), 1.0)
        ours = law_delta(composed, epsilon, direction)
        # dp_accounting's FFT noise and its excess mass, either way; our projections upwards only. Privacy buckets
        # leave an atom at infinity beside a hard edge of the losses, near which our grids may be loose.
        assert ours >= theirs * (1.0 - 1e-4) - 1e-9
        assert ours <= theirs * 1.01 + (1e-9 if connect_dots else 5e-5)


@pytest.mark.parametrize("noise_multiplier", [0.6, 1.0, 2.0])
def test_dp_accounting_and_the_direct_accountant_agree_on_poisson(noise_multiplier: float) -> None:
    """Our lower bound is below their pessimistic delta, which is within their discretisation of our upper bound."""
    rate, steps = 0.01, 200
    pld = privacy_loss_distribution.from_gaussian_mechanism(noise_multiplier, sampling_prob=rate).self_compose(steps)
    pair = IndependentSteps(noise_multiplier=noise_multiplier, sampling_prob=rate, steps=steps)
    settings = Settings(Resolution(72, 1e-8))
    lower, upper = (independent_steps_law(pair, side, settings) for side in (Side.LOWER, Side.UPPER))
    for direction in Direction:
        for epsilon in (0.1, 0.3, 0.6, 1.0):
            theirs = float(pmf_of(pld, direction).get_delta_for_epsilon(epsilon))
            if theirs < 1e-7:
                continue
            assert law_delta(lower, epsilon, direction) <= theirs * (1.0 + 1e-6)
            assert law_delta(upper, epsilon, direction) >= theirs * (1.0 - 1e-3)
            assert law_delta(upper, epsilon, direction) <= theirs * (1.0 + 1e-2)


def test_law_of_a_composed_pld_with_noise_in_its_masses_is_a_law() -> None:
    pld = privacy_loss_distribution.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3).self_compose(30)
    assert (pld._pmf_remove._probs < 0.0).any()  # the noise that the conversion has to deal with
    for direction, law in from_pld(pld).items():
        assert np.all(law.mass >= 0.0)
        assert law.mass.sum() == pytest.approx(1.0, abs=1e-9)
        assert law.mean() == pytest.approx(1.0, abs=1e-9)
        for epsilon in (1.0, 10.0, 30.0):
            theirs = min(float(pmf_of(pld, direction).get_delta_for_epsilon(epsilon)), 1.0)
            assert law_delta(law, epsilon, direction) == pytest.approx(theirs, rel=1e-5, abs=1e-10)


def test_privacy_parameters_become_atoms_and_infinity() -> None:
    parameters = privacy_loss_distribution.common.DifferentialPrivacyParameters(1.0, 1e-3)
    laws = from_pld(privacy_loss_distribution.from_privacy_parameters(parameters))
    for direction, law in laws.items():
        assert law_delta(law, 1.0001, direction) == pytest.approx(1e-3, rel=1e-9)


def test_lower_laws_and_optimistic_plds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="lower law"):
        to_pld(gaussian(1.0, Side.LOWER))
    pld = privacy_loss_distribution.from_gaussian_mechanism(1.0, pessimistic_estimate=False)
    with pytest.raises(UnsupportedError, match="pessimistic_estimate=True"):
        from_pld(pld)


def test_ranges_that_do_not_fit_in_memory_are_refused_with_an_interval_that_does() -> None:
    law = gaussian(0.3)
    with pytest.raises(InvalidInputError, match="must be at least") as caught:
        to_pld(law, value_discretization_interval=1e-6)
    interval = float(str(caught.value).split("at least ")[1].split(" ")[0])
    to_pld(law, value_discretization_interval=1.01 * interval)
    with pytest.raises(InvalidInputError, match="value_discretization_interval"):
        to_pld(law, value_discretization_interval=float("nan"))


@pytest.mark.parametrize(
    ("masses", "infinity"), [({0: 0.5}, 0.1), ({0: 1.5}, 0.0), ({0: float("nan")}, 0.0), ({-5: 1.0}, 0.0)]
)
def test_masses_that_are_no_pld_are_refused(masses: dict[int, float], infinity: float) -> None:
    pmf = pld_pmf.SparsePLDPmf(masses, 0.1, infinity, True)
    with pytest.raises(InvalidInputError, match="PrivacyLossDistribution"):
        from_pld(privacy_loss_distribution.PrivacyLossDistribution(pmf))
