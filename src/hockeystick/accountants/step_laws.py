"""The law of a step whose sensitivities are drawn, from a pair's description of it."""

import numpy as np

from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law
from hockeystick.pairs.mixture_steps import MixtureStep
from hockeystick.types import Side


def step_law(step: MixtureStep, noise_multiplier: float, side: Side, resolution: Resolution) -> Law:
    """Of the side that is asked; the error of the chances is charged."""
    from hockeystick.laws.mixtures import any_mixture_law

    return any_mixture_law(
        np.array(step.probabilities),
        np.array(step.sensitivities),
        noise_multiplier,
        side,
        resolution,
        probability_error=step.probability_error,
    )
