"""Threads that ask the same profiles at once have the answers that each would have alone."""

from collections.abc import Sequence

import numpy as np
import pytest

from hockeystick.laws import answers, contours
from hockeystick.laws.contours import Profiles
from hockeystick.laws.mean_of_ratios import MeanOfRatios
from hockeystick.laws.poisson_moments import PoissonMoments
from hockeystick.types import Direction


@pytest.mark.parametrize("asked", [Profiles(PoissonMoments(0.01, 1.0), 100), MeanOfRatios(1.0, 100)])
def test_answers_are_not_forgotten_before_they_are_read(
    asked: Profiles | MeanOfRatios, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one is found, another thread asks for so many that it is forgotten."""
    monkeypatch.setattr(answers, "REMEMBERED", 2)
    alone = [asked.sides(epsilon, Direction.ADD) for epsilon in (0.1, 0.2)]
    real, forgotten = asked.foresee, 0

    def foresee(epsilons: Sequence[float], direction: Direction) -> object:
        nonlocal forgotten
        found = real(epsilons, direction)
        for others in ([0.3, 0.4, 0.5], [0.6]):
            real(others, Direction.ADD)
        forgotten += (epsilons[0], direction) not in asked._answers
        return found

    asked._answers = {}
    monkeypatch.setattr(asked, "foresee", foresee)
    assert [asked.sides(epsilon, Direction.ADD) for epsilon in (0.1, 0.2)] == alone
    assert forgotten == 2
    assert None not in alone


def test_orders_that_another_thread_takes_away_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knew fewer of them when it began to look for more."""
    usual = Profiles(PoissonMoments(0.01, 1.0), 2000)
    epsilons = np.geomspace(0.01, 4.0, 12).tolist()
    expected = [usual.sides(epsilon, Direction.REMOVE) for epsilon in epsilons]
    profiles = Profiles(PoissonMoments(0.01, 1.0), 2000)
    few = profiles._known(Direction.REMOVE, contours.NEAR_ORDERS)
    real, taken = Profiles._saddles, 0

    def saddles(self: Profiles, asked: Sequence[float], direction: Direction) -> list[tuple[float, int]]:
        nonlocal taken
        found = real(self, asked, direction)
        taken += found[0][1] < few.first
        self._orders[direction, contours.NEAR_ORDERS] = few
        return found

    monkeypatch.setattr(Profiles, "_saddles", saddles)
    assert [profiles.sides(epsilon, Direction.REMOVE) for epsilon in epsilons] == expected
    assert taken > 0
