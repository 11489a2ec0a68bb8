"""Batches of exactly one size, drawn afresh, whose example is replaced: the worst dataset at every ratio, backwards.

No fixed dataset is the worst one: an adversary that may react turns the others round once the ratio of the two runs is
beyond ``e^epsilon``. Its best choice with t steps to go is found from that with t - 1, on a lattice of ratios.

* From above all that others may do is covered, by cells whose corners are compared with that choice.
* From below it is the run of one such adversary.

Proof: docs/theory/fixed-size.md, "The run backwards". Errs to the asked side.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile, when_asked
from hockeystick.laws.grid import Resolution
from hockeystick.pairs.fixed_size import FixedSizeSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.laws.backward_induction import Run

USUAL_DELTA = 1e-7
"""The smallest delta that matters, where seconds are planned."""
SECONDS, MOST_TIMES, PER_PLACE = 4.0, 5.0, 2e-7
"""Standard seconds for the cells of other triples where opposite gradients are one standard deviation apart, which the
squared distance multiplies by at most so much; and seconds for one place in one step."""


def _why_not(pair: FixedSizeSteps, side: Side) -> str | None:
    if not pair.replaced:
        return "it bounds examples that are replaced"
    if pair.cohort_steps > 1 or pair.sampling_prob == 1.0:
        return "it bounds batches that are drawn afresh in every step"
    if _planned(pair, Resolution(smallest_delta=USUAL_DELTA)) is None:
        return "its lattice of ratios would be too long or too fine"
    return None


def _distance(pair: FixedSizeSteps) -> float:
    """Of opposite gradients, in standard deviations of the noise."""
    return 2.0 / pair.noise_multiplier


def _planned(pair: FixedSizeSteps, resolution: Resolution) -> "Run | None":
    from hockeystick.laws.backward_induction import planned

    nodes = resolution.nodes_per_unit
    return planned(pair.sampling_prob, _distance(pair), pair.steps, resolution.smallest_delta, nodes)


def _analyse(pair: FixedSizeSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Both directions are alike, as either dataset may be the one with the example."""

    def delta() -> Profile:
        from hockeystick.laws.backward_induction import profile

        run = _planned(pair, settings.resolution)
        if run is None:
            return lambda epsilon: 1.0 if side is Side.UPPER else 0.0
        return profile(run, side, settings.deadline.tick)

    return dict.fromkeys(Direction, when_asked(delta))


def _cost(pair: FixedSizeSteps) -> float:
    run = _planned(pair, Resolution(smallest_delta=USUAL_DELTA))
    if run is None:
        return 0.0
    return SECONDS * min(max(run.distance**2, 1.0), MOST_TIMES) + PER_PLACE * run.steps * run.lattice.places


def _example() -> FixedSizeSteps:
    return FixedSizeSteps(noise_multiplier=2.0, sampling_prob=0.5, steps=2, replaced=True)


ACCOUNTANT = Accountant(
    name="backward_induction",
    summary="batches of exactly one size, whose example is replaced: the worst dataset at every ratio so far",
    sides=(Side.UPPER, Side.LOWER),
    errs=(
        "to the asked side: what the other examples may do is covered by cells, ratios are spread or "
        "contracted to a lattice, and the lower bound is of one adversary"
    ),
    reference="docs/theory/fixed-size.md, The run backwards",
    analyses={FixedSizeSteps: _analyse},
    refusal=_why_not,
    cost=_cost,
    example=_example,
)
