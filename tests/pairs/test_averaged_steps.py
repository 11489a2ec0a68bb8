"""Random allocation, and bins that are replayed: what the replays change."""

from math import sqrt

import pytest

import hockeystick as hs
from hockeystick.accountants.registry import every_accountant
from hockeystick.laws.grid import Resolution
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.runs import fingerprint
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

WORK = Settings(resolution=Resolution(24, 1e-5), effort=0.5)


def test_replays_are_epochs_of_balls_in_bins() -> None:
    mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=12, epochs=9), noise_multiplier=3.0)
    pair = dominating_pair(mechanism)
    assert pair == AveragedSteps(noise_multiplier=3.0, bins=12, replays=9)
    assert pair.visit_noise == 1.0
    assert pair.full_sensitivity == 3.0


def test_visits_of_all_kinds_count_in_the_sensitivity() -> None:
    pair = AveragedSteps(noise_multiplier=2.0, bins=5, participations=2, epochs=3, replays=4)
    assert pair.full_sensitivity == pytest.approx(sqrt(24.0), rel=1e-15)


def test_replays_are_less_noise_for_every_accountant() -> None:
    replayed, once = (
        AveragedSteps(noise_multiplier=2.0, bins=6, replays=4),
        AveragedSteps(noise_multiplier=1.0, bins=6),
    )
    for method in every_accountant().values():
        for side in method.sides:
            if method.kind is Kind.MONTE_CARLO or method.why_not(once, side) is not None:
                continue
            ours, theirs = method.bound(replayed, side, WORK), method.bound(once, side, WORK)
            for direction in Direction:
                for epsilon in (0.0, 0.5, 2.0):
                    expected = theirs.profiles[direction](epsilon)
                    assert ours.profiles[direction](epsilon) == pytest.approx(expected, rel=1e-9)
    assert {method.name for method in every_accountant().values() if method.why_not(once, Side.UPPER) is None} >= {
        "direct",
        "renyi",
    }


def test_samples_of_other_replays_are_not_shared() -> None:
    pairs = [AveragedSteps(noise_multiplier=2.0, bins=6, replays=replays) for replays in (1, 2, 3)]
    assert len({fingerprint(family_of(pair), pair) for pair in pairs}) == 3
