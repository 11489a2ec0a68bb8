"""Pilots: small discarded samples that choose what a run does. Nothing here can make a bound wrong.

Each pilot draws from a generator of its own, which follows from the seed and its purpose. What was drawn before,
stored, or cut off by a deadline changes none of them: a resumed estimation makes the same choices.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf, log

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.confidence import samples_needed
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import generator
from hockeystick.pairs.base import DominatingPair
from hockeystick.types import Side

PILOT_SECONDS = 0.3
"""Seconds of one pilot, by the proposal's own rough cost."""
PILOT_SAMPLES = (512, 16384)
CANDIDATES = 7
"""At most this many proposals are compared; the naive one comes last."""
SETTLED = 0.02
"""The search for an epsilon ends when it moves by less than this, relatively."""
SEARCH_STEPS = 14
"""The most pilots that such a search draws."""
SEEN = 30.0
"""Effective number of samples above which a pilot's own profile is trusted away from where it was tilted."""
DISAGREEMENT = 0.5
"""A pilot whose mean is below this fraction of another's has missed a part that matters."""


Propose = Callable[[float], Proposal]
"""The most promising proposal of a family for one direction, at an epsilon."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Weighted samples of one proposal."""

    proposal: Proposal
    log_weights: Array
    losses: Array
    _sums: dict[float, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    """Sums of the values at an epsilon and of their squares, as plans ask for them again and again."""

    def values(self, epsilon: float) -> Array:
        """Y(epsilon) of every sample, shape (samples,)."""
        excess = np.minimum(epsilon - self.losses, 0.0)
        return -np.exp(self.log_weights) * np.expm1(excess)

    def mean(self, epsilon: float) -> float:
        """Estimate of delta(epsilon)."""
        return self.sums(epsilon)[0] / self.losses.size

    def sums(self, epsilon: float) -> tuple[float, float]:
        """The sum of all values at epsilon, and of their squares."""
        if epsilon not in self._sums:
            values = self.values(epsilon)
            self._sums[epsilon] = float(values.sum()), float(values @ values)
        return self._sums[epsilon]

    def effective(self, epsilon: float) -> float:
        """The effective number of samples: as many equal values would have the same relative error."""
        total, squares = self.sums(epsilon)
        return total**2 / squares if squares > 0.0 else 0.0

    def relative_variance(self, epsilon: float) -> float:
        """``E Y^2 / (E Y)^2``, at least 1; infinite when no sample counts."""
        effective = self.effective(epsilon)
        return self.losses.size / effective if effective > 0.0 else inf

    def missed(self, epsilon: float, others: Sequence["Pilot"]) -> bool:
        """Whether another pilot has certainly seen a part that matters and is not in this one."""
        best = max((other.mean(epsilon) for other in others if other.effective(epsilon) >= SEEN), default=0.0)
        return self.mean(epsilon) < DISAGREEMENT * best


@dataclass(frozen=True)
class Choice:
    """A proposal, its pilot and the work that it would take."""

    pilot: Pilot
    samples: float
    """Planned number of samples for the requested width."""

    @property
    def proposal(self) -> Proposal:
        """The proposal that would be sampled."""
        return self.pilot.proposal

    @property
    def work(self) -> float:
        """Rough seconds on one core."""
        return self.samples * self.proposal.cost


@dataclass(frozen=True)
class Pilots:
    """Draws pilots.

    Attributes:
        seed: of the runs that the pilots are for.
        deadline: ticks after each pilot.
        threads: how many pilots are drawn at a time, which changes none of them.
    """

    seed: int
    deadline: Deadline
    threads: int = 1

    def draw(self, proposal: Proposal, purpose: str, times: int = 1) -> Pilot:
        """A pilot of so many times the size that PILOT_SECONDS allow."""
        pilot = self._drawn(proposal, purpose, times)
        self.deadline.tick()
        return pilot

    def draw_each(self, wanted: Sequence[tuple[Proposal, str]]) -> list[Pilot]:
        """The pilot of each proposal and purpose."""
        if self.threads == 1:
            return [self.draw(proposal, purpose) for proposal, purpose in wanted]
        pool, drawn = ThreadPoolExecutor(self.threads), []
        try:
            for pilot in pool.map(lambda proposal_and_purpose: self._drawn(*proposal_and_purpose), wanted):
                self.deadline.tick()
                drawn.append(pilot)
        finally:
            pool.shutdown(cancel_futures=True)
        return drawn

    def _drawn(self, proposal: Proposal, purpose: str, times: int = 1) -> Pilot:
        fewest, most = PILOT_SAMPLES
        size = times * int(min(max(PILOT_SECONDS / proposal.cost, fewest), most))
        log_weights, losses = np.empty(size), np.empty(size)
        rng = generator(self.seed, f"pilot {proposal.direction.value} {purpose}")
        proposal.draw(rng, log_weights, losses)
        lost = np.isnan(log_weights) | np.isnan(losses)
        return Pilot(proposal, np.where(lost, -inf, log_weights), np.where(lost, -inf, losses))


def unamplified_epsilon(pair: DominatingPair, delta: float) -> float:
    """An epsilon that is certainly enough: that of the Gaussian with known batches."""
    sensitivity = pair.full_sensitivity * (1.0 + pair.sensitivity_error)

    def at(epsilon: float) -> float:
        return gaussian_delta(pair.noise_multiplier, sensitivity, epsilon, Side.UPPER)

    return min(smallest_epsilon(at, delta, Side.UPPER), 700.0)


def search_epsilon(propose: Propose, delta: float, highest: float, pilots: Pilots) -> float:
    """Roughly the epsilon at which the sampled direction has this delta; 0 if it has less everywhere."""
    low, high = 0.0, highest
    guess = 0.5 * highest
    for step in range(SEARCH_STEPS):
        pilot = pilots.draw(propose(guess), f"search {step}")
        if pilot.mean(guess) > delta:
            low = guess
        else:
            high = guess
        root = smallest_epsilon(pilot.mean, delta, Side.UPPER, tolerance=1e-4)
        trusted = pilot.effective(root) > SEEN and root <= highest
        if trusted and abs(root - guess) <= SETTLED * max(guess, 1e-3):
            return root
        following = root if trusted else 0.5 * (low + high)
        if high - low <= SETTLED * high:
            return following
        guess = following
    return guess


def rank(proposals: Sequence[Proposal], epsilon: float, width: float, failure: float, pilots: Pilots) -> list[Choice]:
    """The proposals, the least work first; those whose pilots missed what another one saw come last."""
    candidates = list(proposals[:CANDIDATES])
    if proposals[-1] not in candidates:
        candidates.append(proposals[-1])
    wanted = [
        (proposal, f"rank {place}") for place, proposal in enumerate(candidates) if proposal.weight_bound(epsilon) < inf
    ]
    drawn = pilots.draw_each(wanted)
    best = max((pilot.mean(epsilon) for pilot in drawn if pilot.effective(epsilon) >= SEEN), default=0.0)
    choices = []
    for pilot in drawn:
        mean = max(pilot.mean(epsilon), best)
        variance = pilot.relative_variance(epsilon)
        if mean <= 0.0 or variance == inf or pilot.missed(epsilon, drawn):
            choices.append(Choice(pilot, inf))
            continue
        over = max(pilot.proposal.weight_bound(epsilon) / mean, 1.0)  # a pilot may overshoot
        if Side.UPPER not in pilot.proposal.sides:  # M does not matter
            over = 1.0
        choices.append(Choice(pilot, float(samples_needed(variance, over, width, failure))))
    return sorted(choices, key=lambda choice: choice.work)


def steepness(pilot: Pilot, epsilon: float) -> float:
    """``-d log delta / d epsilon`` near epsilon, by the pilot; at least 0.1."""
    step = max(0.01 * epsilon, 1e-3)
    near, far = pilot.mean(epsilon), pilot.mean(epsilon + step)
    if near <= 0.0 or far <= 0.0:
        return 1.0
    return max(log(near / far) / step, 0.1)
