"""An epsilon asks for close bounds near its delta alone: the same answer, without laws where none is near."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants import direct
from hockeystick.laws.answers import Sides
from hockeystick.laws.rare_steps import RareSteps
from hockeystick.samplers import Sampler
from hockeystick.types import Direction, Side

DELTA = 1e-5
RUNS = [
    (hs.Poisson(sampling_prob=1.27950e-4, steps=3504), 0.5161),
    (hs.Poisson(sampling_prob=5.815790623921942e-4, steps=2163), 0.6075),
    (hs.Poisson(sampling_prob=1.0370409686981138e-4, steps=29086), 0.4218),
    (hs.RandomAllocation(bins=395, epochs=2), 0.97772),
    (hs.RandomAllocation(bins=24, epochs=404), 72.4767),
    (hs.RandomAllocation(bins=2647, epochs=4), 0.8203),
]
"""Runs whose profile is known only by laws at some epsilons that a search for epsilon asks on its way."""


def no_law(*_: object) -> object:
    raise AssertionError("A law was made.")


@pytest.mark.parametrize(("sampler", "sigma"), RUNS)
@pytest.mark.parametrize("near", [None, 0.5, 3.0])
def test_epsilons_ask_for_no_law_and_fit_the_whole_profile(
    sampler: Sampler, sigma: float, near: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hs.Mechanism(sampler=sampler, noise_multiplier=sigma)
    whole = {side: hs.bound(run, "direct", side=side) for side in Side}
    with monkeypatch.context() as patched:
        for name in ("independent_steps_law", "averaged_steps_law"):
            patched.setattr(direct, name, no_law)
        patched.setattr(direct, "_steps_law", no_law)
        patched.setattr(direct, "_epochs_law", no_law)
        epsilon = {side: whole[side].epsilon(DELTA, near) for side in Side}
    assert epsilon[Side.LOWER] <= epsilon[Side.UPPER] <= 1.0005 * epsilon[Side.LOWER]
    assert (
        whole[Side.LOWER].delta(1.0005 * epsilon[Side.UPPER])
        <= DELTA
        <= whole[Side.UPPER].delta(0.9995 * epsilon[Side.LOWER])
    )


def test_what_is_compared_is_close_or_far_from_it() -> None:
    compared, close = (
        RareSteps(1.2795e-4, 0.5161, 3504, DELTA, compared=True),
        RareSteps(1.2795e-4, 0.5161, 3504, DELTA),
    )
    missed = 0
    for epsilon in np.linspace(0.3, 2.0, 18).tolist():
        sides, exact = (rare.sides(epsilon, Direction.REMOVE) for rare in (compared, close))
        if sides is None:
            assert exact is None
            continue
        missed += sides.miss(DELTA)
        assert sides.miss(DELTA) or sides == exact
        if exact is not None:
            assert sides.lower <= exact.upper
            assert exact.lower <= sides.upper
    assert missed >= 9


def test_sides_miss_a_delta_that_is_far_from_both() -> None:
    assert Sides(0.0, 0.9).miss(1.0)
    assert Sides(1.2, 9.0).miss(1.0)
    assert not Sides(0.0, 0.95).miss(1.0)
    assert not Sides(1.05, 9.0).miss(1.0)
    assert not Sides(0.5, 2.0).miss(1.0)
