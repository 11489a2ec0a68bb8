"""Sides and directions that are given by their words mean the same as the enums, and other words are refused.

A word is equal to its enum but is not the same object, so a comparison by identity takes it for the other member: an
upper bound on the wrong side.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick import Direction, Side
from hockeystick.errors import InvalidInputError
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.grid import Resolution
from hockeystick.laws.lattice import lattice_law
from hockeystick.laws.law import Law, point_mass_at_one
from hockeystick.laws.mixtures import any_mixture_law, product_mixture_law
from hockeystick.laws.operations import power, thin
from hockeystick.laws.profile import law_delta, law_deltas, product_delta
from hockeystick.laws.randomisers import discrete_gaussian_law, finite_law, laplace_law, pure_law

COARSE = Resolution(8, 1e-6)
HALVES = np.array([0.5, 0.5])
LAWS: dict[str, Callable[[Any], Law]] = {
    "gaussian": lambda side: gaussian_law(0.7, 1.0, side, COARSE),
    "laplace": lambda side: laplace_law(2.0, side, COARSE),
    "discrete": lambda side: discrete_gaussian_law(1.5, side),
    "finite": lambda side: finite_law([3, 1, 1], [1, 3, 0], side),
    "pure": lambda side: pure_law(1.0, side),
    "point": point_mass_at_one,
    "lattice": lambda side: lattice_law(HALVES, 1.0, 1.0, side, COARSE),
    "any": lambda side: any_mixture_law(HALVES, np.array([0.3, 1.0]), 1.0, side, COARSE),
    "product": lambda side: product_mixture_law(HALVES, np.array([0.3, 1.0]), 1.0, side, COARSE),
}


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", LAWS)
def test_a_law_on_a_side_that_is_given_by_its_word(name: str, side: Side) -> None:
    law, same = LAWS[name](side.value), LAWS[name](side)
    assert law.side is side
    assert (law.p_inf, law.mass_error, law.place_error) == (same.p_inf, same.mass_error, same.place_error)
    assert np.array_equal(law.support, same.support)
    assert np.array_equal(law.mass, same.mass)
    with pytest.raises(InvalidInputError, match=r"^The 'side' argument must be one of upper, lower\. Got 'Upper' inst"):
        LAWS[name]("Upper")


def test_words_are_on_their_sides_of_the_closed_form() -> None:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), from scipy."""
    for epsilon in (0.5, 2.0):
        exact = norm.cdf(0.5 - epsilon) - np.exp(epsilon) * norm.cdf(-0.5 - epsilon)
        words: list[Any] = ["lower", "upper"]
        lower, upper = (law_delta(gaussian_law(1.0, 1.0, word, COARSE), epsilon, Direction.ADD) for word in words)
        assert lower < exact < upper
        lower, upper = (gaussian_delta(1.0, 1.0, epsilon, word) for word in words)
        assert lower < exact < upper


def test_a_direction_that_is_given_by_its_word() -> None:
    law = power(thin(gaussian_law(0.7, 1.0, Side.UPPER, COARSE), 0.3), 10, COARSE)
    asks: list[Callable[[Any], Any]] = [
        lambda direction: law_delta(law, 1.0, direction),
        lambda direction: law_deltas(law, [0.5, 1.0], direction),
        lambda direction: product_delta(law, law, 1.0, direction),
    ]
    for ask in asks:
        assert ask("remove") == ask(Direction.REMOVE) != ask("add") == ask(Direction.ADD)
        with pytest.raises(InvalidInputError, match=r"^The 'direction' argument must be one of remove, add\. Got None"):
            ask(None)


def test_an_attack_in_a_direction_that_nobody_knows_is_refused() -> None:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.3, steps=10), noise_multiplier=0.7)
    upper = hs.bound(run, "direct")
    words: list[Any] = ["remove", "add"]
    for word, direction in zip(words, Direction, strict=True):
        error = hs.attacks.type_two_error(upper, 0.05, direction=word)
        assert error == hs.attacks.type_two_error(upper, 0.05, direction=direction)
        assert error < 0.7
    unknown: Any = "Remove"
    with pytest.raises(InvalidInputError, match="'direction' argument must be one of remove, add"):
        hs.attacks.type_two_error(upper, 0.05, direction=unknown)  # it was 0.95, as if nothing could be told apart


def test_a_bound_whose_side_is_given_by_its_word() -> None:
    profiles = dict.fromkeys(Direction, lambda epsilon: 0.1)
    word: Any = "upper"
    bound = hs.Bound("own", word, hs.Kind.DETERMINISTIC, 1.0, "none", profiles)
    assert bound.side is Side.UPPER
