"""Any sampler with any strategy: what is left of it when only the number of batches of an example is looked at."""

from dataclasses import dataclass
from math import sqrt

from hockeystick.mechanism import Mechanism
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.mixture_steps import MixtureStep, MixtureSteps
from hockeystick.types import Adjacency

CHANCE_ERROR = 1e-12
"""Relative error that a sampler's ``participation_chances`` may have."""
ROUNDING = 1e-14
"""Relative rounding of the products below."""


@dataclass(frozen=True, kw_only=True)
class CountedVisits(MixtureSteps):
    """``sum_k p_k N(s_k, sigma^2)`` against ``N(0, sigma^2)``: p_k the chance to be in k batches, ``s_k >= |C 1_S|``
    for every set S of k steps.

    It dominates the mechanism where the steps of an example are independent of all other examples, for adaptively
    chosen gradients too (docs/theory/samplers.md).

    Attributes:
        attained: whether an example is in no batch or in all of them, when constant gradients attain it.
        error: bounds how far s_k is above ``|C 1_S|`` by rounding, relatively, where that is all steps.
    """

    attained: bool
    error: float

    @property
    def why_not_from_below(self) -> str | None:
        """Why lower bounds on the pair are none on the mechanism, or None."""
        return None if self.attained else "it tells no steps apart, and an example may be in some of the batches"

    @property
    def excess(self) -> float:
        """The rounding of the sensitivities, which is upward."""
        return self.error

    @property
    def sensitivity_error(self) -> float:
        """That of a sum of squares, and of each sensitivity."""
        return super().sensitivity_error + self.error

    @property
    def batches_are_public(self) -> bool:
        """Whether there is nothing random about an example."""
        return self.attained and super().batches_are_public


def from_any(mechanism: Mechanism) -> CountedVisits | RevealedBatches:
    """The pair of a sampler without a line of its own.

    It follows from the chances of each number of batches, if the sampler states them and its examples are independent
    of each other. Otherwise the batches are revealed, of which an example is in ``most_participations`` at most.
    """
    sampler, sigma = mechanism.sampler, mechanism.sigma
    chances = sampler.participation_chances
    if chances is None or Adjacency.ADD_REMOVE not in sampler.holds_for:
        return RevealedBatches(
            noise_multiplier=sigma, sensitivity=largest_move(mechanism, sampler.most_participations), error=ROUNDING
        )
    step = MixtureStep(
        probabilities=tuple(chances.values()),
        sensitivities=tuple(largest_move(mechanism, visits) for visits in chances),
        probability_error=CHANCE_ERROR,
    )
    possible = {visits for visits, chance in chances.items() if chance > 0.0}
    return CountedVisits(
        noise_multiplier=sigma,
        steps=(step,),
        attained=possible <= {0, sampler.steps},
        error=8.0 * mechanism.matrix.rounding,
    )


def largest_move(mechanism: Mechanism, visits: int) -> float:
    """At least ``max |C 1_S|`` over the sets S of so many steps; but for rounding, exact for none and for all of them.

    Columns with an entry in one row are less than ``bands`` steps apart: a row has at most that many entries of S. By
    Cauchy and Schwarz the square of their sum is at most so many times the sum of their squares, which sum to squared
    norms of columns. As C has no negative entries, no sum is longer than that of all columns.
    """
    from hockeystick.strategies.sensitivity import fixed_epochs, single

    matrix = mechanism.matrix
    entries_in_a_row = min(visits, matrix.bands)
    return min(single(matrix).value * sqrt(visits * entries_in_a_row), fixed_epochs(matrix, 1).value)
