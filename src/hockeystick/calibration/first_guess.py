"""About how much noise a mechanism needs, by closed forms alone, so that the search for it starts nearby.

A guess proves nothing, and decides about nothing but the number of evaluations.
"""

from dataclasses import dataclass
from math import log, sqrt

from hockeystick.laws.hidden_visits import HiddenVisits
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.renewal_mixture import RenewalMixture

HALVINGS = 40
"""Of the octaves between the smallest guess and the largest, until a guess is known to a billionth."""
LEAST_NOISE = 0.05
"""Guesses are not below this share of a visit's sensitivity, where exponentials of variances would overflow."""
NUDGE = 1.02
"""Ratio of the two targets whose guesses tell how steep epsilon is."""

SLOPE = 0.6
"""About how many percent of noise go with one percent of epsilon; a guess from which brackets start."""
ROOM = 1.8
"""Times what a closed form that leaves out overlaps of columns says of half an epsilon."""


@dataclass(frozen=True)
class Guess:
    """A noise multiplier, and about by how many percent epsilon falls where the noise grows by one."""

    noise: float
    slope: float


def unamplified_guess(pair: DominatingPair, epsilon: float, delta: float) -> float:
    """About the noise multiplier that a Gaussian mechanism of the pair's full sensitivity needs; rather too much.

    From zero-concentrated differential privacy (Bun and Steinke 2016, Proposition 1.3).
    """
    far = -log(delta)
    difference = sqrt(2.0 * (far + epsilon)) - sqrt(2.0 * far)
    return pair.full_sensitivity / max(difference, 1e-16)  # it rounds to 0 where epsilon is tiny


def first_guess(pair: DominatingPair, epsilon: float, delta: float) -> Guess | None:
    """About the noise multiplier at which a pair meets the target; None where no closed form is near the truth.

    Rather too little, as :meth:`.HiddenVisits.delta` is.

    Args:
        pair: its own noise multiplier does not matter.
    """
    visits = _hidden_visits(pair)
    if visits is None:
        return None
    most = unamplified_guess(pair, epsilon, delta)
    noise, beyond = (_solved(*visits, target, delta, most) for target in (epsilon, NUDGE * epsilon))
    return Guess(noise, log(NUDGE) / log(noise / beyond)) if beyond < noise < most else None


def rough_guess(pair: DominatingPair, epsilon: float, delta: float) -> Guess | None:
    """A noise multiplier at which quick methods come to about half the target or to all of it; None for most pairs.

    For b-min-sep subsampling: as if columns did not overlap, and for half the epsilon, with ``ROOM``. What is closed
    knows nothing of what overlaps tell, nor of what methods give away, so its slope is averaged with the usual one.

    Args:
        pair: its own noise multiplier does not matter.
    """
    if not isinstance(pair, RenewalMixture):
        return None
    rate = pair.hit_prob / (1.0 + (pair.min_sep - 1.0) * pair.hit_prob)
    visits = rate, float(pair.matrix.steps), pair.matrix.max_column_norm
    most = unamplified_guess(pair, epsilon, delta)
    noise, beyond = (_solved(*visits, 0.5 * target, delta, most) for target in (epsilon, NUDGE * epsilon))
    if not beyond < noise < most / ROOM:
        return None
    return Guess(ROOM * noise, sqrt(log(NUDGE) / log(noise / beyond) / SLOPE))


def _hidden_visits(pair: DominatingPair) -> tuple[float, float, float] | None:
    """The chance of a visit at a step, the steps, and the sensitivity of a visit; None for other pairs."""
    if pair.batches_are_public:
        return None
    if isinstance(pair, IndependentSteps):
        return pair.sampling_prob, float(pair.steps), 1.0
    if isinstance(pair, AveragedSteps):
        return pair.participations / pair.bins, float(pair.bins * pair.epochs), sqrt(pair.replays)
    return None


def _solved(rate: float, steps: float, sensitivity: float, epsilon: float, delta: float, most: float) -> float:
    """The noise multiplier up to ``most`` at which about this delta is left."""
    least = LEAST_NOISE * sensitivity
    for _ in range(HALVINGS):
        noise = sqrt(least * most)
        if HiddenVisits(rate, steps, sensitivity / noise).delta(epsilon) <= delta:
            most = noise
        else:
            least = noise
    return most
