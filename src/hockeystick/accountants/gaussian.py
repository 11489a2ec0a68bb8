"""The unamplified Gaussian: whatever the batches, the noise alone gives this much privacy.

Revealing all batches only helps the adversary (joint convexity of the hockey-stick divergence, chua-2024,
Lemma B.1), and what remains is one Gaussian with the pair's full sensitivity. Costs nothing and is always valid, so
certify always has an answer. Exact when the batches are public anyway: then it is the lower bound too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import about_epsilon, gaussian_delta, gaussian_deltas
from hockeystick.laws.law import Law
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.occupancy import RevealedVisits
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side


def _sensitivity(pair: DominatingPair, side: Side) -> float:
    """The full sensitivity, rounded to the asked side."""
    error = pair.sensitivity_error if side is Side.UPPER else -pair.sensitivity_error
    return pair.full_sensitivity * (1.0 + error)


def at_sensitivity(noise_multiplier: float, sensitivity: float, side: Side) -> Profile:
    """The profile of ``N(sensitivity, sigma^2)`` against ``N(0, sigma^2)``, on a side; both directions are equal."""
    return _Profile(noise_multiplier, sensitivity, side)


def _analyse(pair: DominatingPair, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    return dict.fromkeys(Direction, at_sensitivity(pair.noise_multiplier, _sensitivity(pair, side), side))


@dataclass(frozen=True, eq=False)
class _Profile:
    """The closed form at one sensitivity."""

    noise_multiplier: float
    sensitivity: float
    side: Side

    def __call__(self, epsilon: float) -> float:
        return gaussian_delta(self.noise_multiplier, self.sensitivity, epsilon, self.side)

    def each(self, epsilons: Sequence[float]) -> list[float]:
        if self.sensitivity == 0.0:
            return [0.0] * len(epsilons)
        deltas = gaussian_deltas(self.sensitivity / self.noise_multiplier, np.array(epsilons), self.side)
        values: list[float] = deltas.tolist()
        return values


def _laws(pair: DominatingPair, side: Side, settings: Settings) -> Sequence[Law]:
    from hockeystick.laws.discretise import gaussian_law

    return [gaussian_law(pair.noise_multiplier, _sensitivity(pair, side), side, settings.resolution)]


def _revealed(pair: RevealedVisits, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """The mean over the sensitivities, which the adversary is told."""
    visits = list(zip(pair.probabilities, pair.sensitivities, strict=True))

    def profile(epsilon: float) -> float:
        deltas = (chance * gaussian_delta(pair.noise_multiplier, visit, epsilon, side) for chance, visit in visits)
        return sum(deltas) * (1.0 + pair.probability_error)

    return dict.fromkeys(Direction, profile)


ACCOUNTANT = Accountant(
    name="gaussian",
    summary="closed form without amplification; exact when the batches are public",
    sides=(Side.UPPER, Side.LOWER),
    errs="upward by revealing the batches; the closed form is rounded to the asked side",
    reference="Balle and Wang 2018, Theorem 8; chua-2024, Theorem 4.1",
    analyses={DominatingPair: _analyse, RevealedVisits: _revealed},
    laws={DominatingPair: _laws},
    refusal=lambda pair, side: (
        "it is a lower bound only when the batches are public"
        if side is Side.LOWER and not pair.batches_are_public
        else None
    ),
    cost=lambda pair: 1e-6,
    about=lambda pair, delta: about_epsilon(pair.full_sensitivity / pair.noise_multiplier, delta),
)
