"""Poisson batches that are cut to a largest size: what an example adds, and what it pushes out."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.mechanism import Mechanism
from hockeystick.pairs import independent_steps
from hockeystick.pairs.base import DominatingPair, require
from hockeystick.pairs.binomial_steps import binomial_step, unimodal
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.mixture_steps import MixtureStep
from hockeystick.samplers import Poisson

if TYPE_CHECKING:
    from hockeystick.laws.displacement import Displacement

RAREST = 1e-200
"""A chance of a crowded step below this may have lost digits to the range of the binomial law."""


@dataclass(frozen=True, kw_only=True)
class Crowding:
    """How often the others leave too little room, and what happens to the examples at stake then.

    Attributes:
        roomy, crowded: the chances of the two kinds of step, of sum 1.
        survivors: ``survivors[j]`` is the chance that j of the examples at stake are in the batch of a crowded step, or
            of a law that is stochastically larger; sum 1.
        error: proved bound on the relative error of each of these numbers.
        attained: a step against ``N(0, sigma^2)`` that the run is no better than where nobody else has a gradient.
    """

    roomy: float
    crowded: float
    survivors: tuple[float, ...]
    error: float
    attained: MixtureStep


@dataclass(frozen=True, kw_only=True)
class TruncatedSteps(DominatingPair):
    """Independent steps of Poisson sampling whose batches are cut to ``truncated_batch_size`` examples.

    One example: a step is *tight* when the others that are drawn leave one place or none. Whether it is tight is
    revealed, and which others have the first places; who has the last one is not (:attr:`displacement`). Or less is:
    nobody's place, only a set of others (:mod:`hockeystick.laws.hidden_cuts`).

    Several: a step is *crowded* when the others that are drawn could be too many together with the k at stake. Whether
    it is crowded is revealed. If not, it is ``N(J, sigma^2)`` against ``N(0, sigma^2)`` with J of law Binomial(k, q);
    if so, ``N(2 J, sigma^2)`` against ``N(-J, sigma^2)`` with J the number that survive: J came into the batch and
    pushed up to J others out. Every component is mixed over J on both sides.

    Dominates DP-SGD with these batches, for adaptive gradients, when the k examples are zeroed out. It is not attained;
    lower bounds are those of datasets in which the others have no gradients, or all the same
    (docs/theory/truncated-steps.md).

    Attributes:
        sampling_prob: q in (0, 1].
        steps: number of steps, at least 1.
        truncated_batch_size: B, the largest batch that is passed on, below ``num_examples``.
        num_examples: N, all examples, those at stake included.
        examples: k, those at stake.
    """

    sampling_prob: float
    steps: int
    truncated_batch_size: int
    num_examples: int
    examples: int = 1

    @property
    def full_sensitivity(self) -> float:
        """``k sqrt(steps)``: with the batches known, what the others contribute is the same in both runs."""
        return self.examples * sqrt(self.steps)

    @property
    def sensitivity_error(self) -> float:
        """The rounding of a product and of a root."""
        return 4.0 * UNIT_ROUNDOFF

    @cached_property
    def crowding(self) -> Crowding:
        """The law of a step; sums of positive terms only, so that every number has a proved relative error."""
        q, cap, k = self.sampling_prob, self.truncated_batch_size, self.examples
        others, chances, error = self._others
        tight = others > cap - k
        roomy, crowded = float(chances[~tight].sum()), float(chances[tight].sum())
        coins = binomial_step(k, q, 1.0, 1)
        error += coins.probability_error + (2.0 * others.size + 32.0) * UNIT_ROUNDOFF
        if k == 1:
            # Of r + 1 > B that were drawn, B survive.
            kept = float(chances[tight] @ (q * cap / (others[tight] + 1.0)))
            cut = float(chances[tight] @ ((others[tight] + 1.0 - cap + (1.0 - q) * cap) / (others[tight] + 1.0)))
            survivors: tuple[float, ...] = (cut / crowded, kept / crowded) if crowded else (1.0, 0.0)
            attained = _normalised((roomy * (1.0 - q) + cut, roomy * q + kept), error)
        else:
            survivors = _dense(coins)
            # In a crowded step at least nobody survives.
            attained = _normalised(
                (roomy * survivors[0] + crowded, *(roomy * chance for chance in survivors[1:])), error
            )
        return Crowding(roomy=roomy, crowded=crowded, survivors=survivors, error=2.0 * error, attained=attained)

    @cached_property
    def _others(self) -> tuple[Array, Array, float]:
        """How many of the others are drawn, with which chances, and the relative error of these."""
        return _binomial(self.num_examples - self.examples, self.sampling_prob)

    @cached_property
    def displacement(self) -> "Displacement":
        """Who has the last place in a step, for one example at stake; from sums of positive terms."""
        from hockeystick.laws.displacement import Displacement

        q, cap, crowding = self.sampling_prob, self.truncated_batch_size, self.crowding
        others, chances, _ = self._others
        one_left = float(chances[others == cap - 1].sum())
        taken, pushed = (crowding.crowded * chance for chance in crowding.survivors)
        return Displacement(
            loose=float(chances[others < cap - 1].sum()),
            empty=one_left * (1.0 - q),
            taken=taken,
            placed=one_left * q + pushed,
            pushed=pushed,
            counts=chances[others < cap][::-1],
            rate=q,
            error=2.0 * crowding.error,
        )


def _binomial(size: int, probability: float) -> tuple[Array, Array, float]:
    """Values and chances of a binomial number, and their proved relative error."""
    if size == 0 or probability == 1.0:
        return np.array([float(size)]), np.array([1.0]), 0.0
    odds = probability / (1.0 - probability)
    return unimodal(size * probability, size, lambda j: (size - j) / (j + 1.0) * odds)


def _dense(step: MixtureStep) -> tuple[float, ...]:
    """The chances of the sensitivities 0, 1, 2, ..."""
    chances = dict(zip(step.sensitivities, step.probabilities, strict=True))
    return tuple(chances.get(float(count), 0.0) for count in range(int(max(step.sensitivities)) + 1))


def _normalised(weights: tuple[float, ...], error: float) -> MixtureStep:
    return MixtureStep(weights, tuple(float(count) for count in range(len(weights))), 1, 2.0 * error)


def truncated(mechanism: Mechanism, examples: int) -> TruncatedSteps | None:
    """The steps for so many examples at stake, or None where no batch can be cut or nearly all coins show 1."""
    sampler = require(mechanism.sampler, Poisson)
    cap, size, q = sampler.truncated_batch_size, sampler.num_examples, sampler.sampling_prob
    if cap is None or size is None or cap >= size or examples > size:
        return None
    if examples > 1:
        from hockeystick.laws.opposed import LEAST_AT_REST

        if (1.0 - q) ** examples < LEAST_AT_REST:
            return None
    return TruncatedSteps(
        noise_multiplier=mechanism.sigma,
        sampling_prob=q,
        steps=sampler.steps,
        truncated_batch_size=cap,
        num_examples=size,
        examples=examples,
    )


def from_poisson(mechanism: Mechanism) -> IndependentSteps | TruncatedSteps:
    """Poisson batches without correlated noise, cut or not; a cut that never happens costs its tiny distance."""
    cut = truncated(mechanism, 1)
    if cut is None or cut.crowding.crowded < RAREST:
        return independent_steps.from_poisson(mechanism)
    return cut
