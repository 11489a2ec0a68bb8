"""How ``direct`` bounds Poisson batches that are cut to a largest size (docs/theory/truncated-steps.md).

From above, up to three laws: it is released which steps are crowded, or, for one example, which are tight and who is in
their batches, or only which set of others is. The last is the closest near the cut of large batches; where batches are
hardly ever cut all are alike, to a millionth. From below, the others have no gradients; or all of them one, where it
can matter that the example pushes others out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import pi

import numpy as np

from hockeystick.accountants.step_laws import step_law
from hockeystick.bounds import Profile
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.laws.operations import mix, power
from hockeystick.laws.profile import law_profiles, smallest_epsilon
from hockeystick.pairs.binomial_steps import binomial_step
from hockeystick.pairs.truncated_steps import TruncatedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

ANGLES = (0.0, 0.25 * pi, 0.4 * pi, 0.43 * pi, 0.45 * pi)
"""Of the example's gradient to what the others' is not, in datasets whose batches are cut."""
NOISE_OF_RAYS = 50.0
"""Under more noise nobody sees by how much a batch is cut."""


def profiles(pair: TruncatedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Of all laws: the smallest at every epsilon from above, the largest from below."""
    if side is Side.LOWER:
        return law_profiles(*_from_below(pair, settings))
    return law_profiles(*_from_above(pair, settings), choose=min)


def laws(pair: TruncatedSteps, side: Side, settings: Settings) -> Sequence[Law]:
    """From above the law of the smaller epsilon, at the smallest delta that matters; from below all."""
    if side is Side.LOWER:
        return _from_below(pair, settings)
    delta = settings.resolution.smallest_delta

    def epsilon(law: Law) -> float:
        directions = law_profiles(law).values()
        return max(smallest_epsilon(profile, delta, Side.UPPER) for profile in directions)

    return [min(_from_above(pair, settings), key=epsilon)]


def _from_above(pair: TruncatedSteps, settings: Settings) -> list[Law]:
    """Which steps are crowded is released; for one example, or which are tight, or the set of others alone."""
    from hockeystick.laws.displacement import tight_step
    from hockeystick.laws.hidden_cuts import FEWEST
    from hockeystick.laws.opposed import opposed_law

    resolution, tick, crowding, noise = (
        settings.resolution,
        settings.deadline.tick,
        pair.crowding,
        pair.noise_multiplier,
    )
    roomy = step_law(binomial_step(pair.examples, pair.sampling_prob, 1.0, 1), noise, Side.UPPER, resolution)
    counts, weights = np.arange(len(crowding.survivors), dtype=np.float64), np.array(crowding.survivors)
    crowded = opposed_law(weights, 2.0 * counts, counts, noise, resolution, error=crowding.error)
    steps = [mix([roomy, crowded], [crowding.roomy, crowding.crowded], resolution)]
    if pair.examples == 1 and crowding.crowded:
        last = pair.displacement
        chances = [last.loose, last.empty + last.taken + last.placed]
        steps.append(mix([roomy, tight_step(last, noise, resolution)], chances, resolution))
        if pair.truncated_batch_size >= FEWEST and last.counts.size > 1 and _matters(pair, resolution):
            steps.append(_hidden(pair, roomy, settings))
    charged = [replace(step, mass_error=step.mass_error + 4.0 * crowding.error) for step in steps]
    return [power(step, pair.steps, resolution, tick=tick) for step in charged]


def _hidden(pair: TruncatedSteps, roomy: Law, settings: Settings) -> Law:
    """One step; it stays hidden how many places are empty where there are few."""
    from hockeystick.laws.hidden_cuts import NEGLIGIBLE, end_step, hiding

    last, noise, resolution = pair.displacement, pair.noise_multiplier, settings.resolution
    labels = hiding(last, noise)
    others = (pair.truncated_batch_size - 1, pair.num_examples - 1)
    least = NEGLIGIBLE * resolution.smallest_delta / pair.steps
    end = end_step(last, labels.places, others, noise, least, resolution, settings.deadline.tick)
    near = step_law(binomial_step(1, labels.near_rate, 1.0, 1), noise, Side.UPPER, resolution)
    return mix([roomy, near, end], [labels.loose, labels.near, labels.end], resolution)


def _matters(pair: TruncatedSteps, resolution: Resolution) -> bool:
    """Whether an example is likely enough to push another out of a batch."""
    crowding = pair.crowding
    return pair.steps * crowding.crowded * crowding.survivors[1] > resolution.smallest_delta


def _from_below(pair: TruncatedSteps, settings: Settings) -> list[Law]:
    """The others without gradients, and with one."""
    from hockeystick.laws.displacement import ray_step

    crowding, resolution = pair.crowding, settings.resolution
    steps = [step_law(crowding.attained, pair.noise_multiplier, Side.LOWER, resolution)]
    if pair.examples == 1 and _matters(pair, resolution) and pair.noise_multiplier <= NOISE_OF_RAYS:
        steps += [ray_step(pair.displacement, pair.noise_multiplier, angle, resolution) for angle in ANGLES]
    return [power(step, pair.steps, resolution, tick=settings.deadline.tick) for step in steps]
