"""The Laplace transform of a sum over a hidden chain, from which its profile follows.

Given the states the bins add independent terms, so the transform of their sum at one frequency is found backwards with
one complex number for each state; :mod:`hockeystick.sequences.inverse_transform` does the rest.

Proof: docs/theory/hidden-chains.md, section 5. Cost: O(frequencies bins edges).
"""

from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.sequences.closed_sequences import ClosedStates, closed_states
from hockeystick.sequences.coordinate_chain import COARSE_ERROR, Chain, CoordinateChain, CoordinateStates
from hockeystick.sequences.hidden_chain import (
    LATTICE_ERROR,
    LOST_SHARE,
    WHITE_NODES,
    HiddenChain,
    States,
    size_of,
    states_of,
)
from hockeystick.sequences.hidden_chain_kernels import step_transforms
from hockeystick.sequences.independent_sequences import IndependentSequences, ProductStates, steps_of
from hockeystick.sequences.inverse_transform import (
    AT_ONCE,
    Found,
    Transform,
    TransformProfiles,
    frequencies,
    scale_of,
    shares_of_delta,
    spread_of,
)
from hockeystick.sequences.repeated_steps import SMALL
from hockeystick.sequences.white_noise import Noise
from hockeystick.types import Side

SCALES = 160.0
"""Levels of what is seen of the states in upper transforms, at noise as large as that."""
ERROR_SHARE, MOST_SMALL = 1e-3, 1e-4
"""Of delta: about what runs of equal bins may change; and most at one frequency."""
ALIKE = 1e-6
"""Relative difference of scales below which there is nothing to place levels between."""
EDGE_PACE, ATOM_PACE, ATOMS = 4.5e-10, 4e-9, 130.0
"""Seconds for each edge, and for each atom of the white noise, at one frequency; about how many atoms there are."""
COARSER, USED = 1.4, 0.8
"""How much more is added to X where states are many, and the share of the frequencies that is used there."""
DRAW_PACE, BASIS_PACE = 3e-9, 1e-7
"""Seconds for each edge of a draw, and for each state beside, at one frequency."""
PRODUCT_PACE, BASIS_TERMS = 3.5e-10, 100.0
"""Seconds for each term of a state of independent sequences at one frequency; terms that a basis is worth."""
AROUND, EACH = 1.5, 1e-3
"""How many times as long a ring of them takes; seconds for each frequency however few the states are."""


def transform_work(chain: Chain, side: Side, delta: float, epsilon: float) -> float:
    """Rough seconds of the transform that serves this epsilon."""
    count = frequencies(*scale_of(epsilon, spread_of(chain.products)))[2]
    if isinstance(chain, CoordinateChain):
        return float(
            USED
            / COARSER
            * count
            * chain.volume
            * (DRAW_PACE * chain.edges + BASIS_PACE)
            * steps_of(chain.gains, chain.whites)
        )
    if isinstance(chain, IndependentSequences):
        sizes = 2.0 * chain.sides(LOST_SHARE * delta) + 1.0
        around = AROUND if chain.ring else 1.0
        steps = steps_of(chain.gains, chain.whites)
        terms = float(steps * sizes.prod() * (sizes.sum() + BASIS_TERMS))
        return count * around * (PRODUCT_PACE * terms + EACH)
    states, edges = size_of(chain, delta)
    kinds = int(np.unique(np.stack([chain.gains, chain.whites]), axis=1).shape[1])
    scales = min(states, SCALES * sqrt(chain.seen_variance) / chain.white) if side is Side.UPPER else states
    return float(count * (EDGE_PACE * chain.bins * states * edges + ATOM_PACE * ATOMS * kinds * scales))


@dataclass(frozen=True)
class Levels:
    """Scales of which those of the states are means.

    Attributes:
        places: the scales.
        before, share: shape (S,), the scale below that of each state, and how much of the one above it there is; every
            state has its own scale where they are None.
    """

    places: Array
    before: NDArray[np.int64] | None = None
    share: Array | None = None

    @classmethod
    def upper(cls, scales: Array, width: float) -> "Levels":
        """Two scales for each, a spread, if fewer than half as many scales this far apart on a log scale suffice."""
        low, high = float(scales.min()), float(scales.max())
        if not (low > 0.0 and high > low * (1.0 + ALIKE)):
            return cls(scales)
        count = ceil((log(high) - log(low)) / width) + 2 if width > 0.0 else scales.size
        if 2 * count > scales.size:
            return cls(scales)
        places = np.geomspace(low, high, count)
        before = np.clip(np.searchsorted(places, scales, side="right") - 1, 0, count - 2)
        share = np.clip((scales - places[before]) / (places[before + 1] - places[before]), 0.0, 1.0)
        return cls(places, before, share[:, None])

    def between(self, found: Array) -> Array:
        """Of the states, given those of the levels."""
        if self.before is None or self.share is None:
            return found
        return found[self.before] * (1.0 - self.share) + found[self.before + 1] * self.share


def _transform(
    chain: Chain,
    states: States | ProductStates,
    side: Side,
    delta: float,
    smoothing: float,
    largest: float,
    deadline: Deadline,
) -> Found:
    exact = isinstance(states, CoordinateStates)
    if exact:
        smoothing *= COARSER
    damping, pace, count = frequencies(smoothing, largest)
    if exact:
        count = AT_ONCE * ceil(USED * count / AT_ONCE)
    different, kinds = np.unique(np.stack([chain.gains, chain.whites]), axis=1, return_inverse=True)
    kinds = kinds.ravel().astype(np.int64)
    noises = [_white(float(gain * white), side, delta, exact) for gain, white in different.T]
    scales = [np.exp(gain * states.seen - 0.5 * gain**2 * chain.seen_variance) / chain.bins for gain in different[0]]
    if side is Side.UPPER:
        widths = different[0] * different[1] / WHITE_NODES
        levels = [Levels.upper(scale, float(width)) for scale, width in zip(scales, widths, strict=True)]
    else:
        levels = [Levels(scale) for scale in scales]
    theta: Array = pace * np.arange(count, dtype=np.float64)
    errors, values = np.zeros(count), np.zeros(count, dtype=np.complex128)
    use = shares_of_delta(damping, pace, count, smoothing, largest)
    small = np.clip(ERROR_SHARE * delta / (count * use), SMALL, MOST_SMALL)
    for first in range(0, count, AT_ONCE):
        own = slice(first, first + AT_ONCE)
        steps = []
        for noise, scale in zip(noises, levels, strict=True):
            deadline.tick()
            steps.append(scale.between(noise.at(scale.places, damping, pace, first, AT_ONCE)))
        if isinstance(states, CoordinateStates):
            values[own], errors[own] = states.transforms(np.array(steps), kinds, deadline.tick, float(small[first]))
        else:
            values[own], errors[own] = states.transforms(np.array(steps), kinds, deadline.tick)
    total, mean = _moments(states, noises, scales, kinds)
    each = 2.0 * states.terms + 2.0 * max(noise.terms for noise in noises) + 4.0 * AT_ONCE + 64.0
    sum_error = 2.0 * UNIT_ROUNDOFF * (chain.bins * each + states.end.size)
    error = (
        errors
        + chain.bins * np.max([noise.error(theta, damping) + 0.0 * theta for noise in noises], axis=0)
        + sum_error * float(values[0].real)
        + total * (16.0 * UNIT_ROUNDOFF * count * pace / damping + 1e-26 * chain.bins)
    )
    exponent = float(np.max(np.abs(states.seen))) * float(chain.gains.max()) + chain.seen_variance + 64.0
    mass_error = (COARSE_ERROR if exact else LATTICE_ERROR) + chain.bins * (
        max(noise.law.mass_error for noise in noises) + 64.0 * exponent * UNIT_ROUNDOFF
    )
    place_error = max(noise.law.place_error for noise in noises) + 16.0 * exponent * UNIT_ROUNDOFF
    transform = Transform(
        values=values,
        damping=damping,
        pace=pace,
        smoothing=smoothing,
        largest=largest,
        total=total,
        mean=mean,
        error=error,
        sum_error=sum_error,
    )
    return Found(transform, mass_error, place_error, states.lost)


@dataclass(frozen=True)
class White:
    """The law that stands for ``exp(deviation e - deviation^2 / 2)``, e standard normal.

    Attributes:
        law: from above a spread of it, from below a contraction; or
        line: its transform, to rounding.
        places: how many times the roundings of an exponent a place has.
    """

    law: Law
    line: Noise | None
    places: float

    @property
    def terms(self) -> int:
        """How many terms its transform has."""
        return self.law.size if self.line is None else int(self.line.nodes.size)

    @property
    def total(self) -> float:
        """The mass."""
        return float(self.law.mass.sum()) if self.line is None else 1.0

    @property
    def mean(self) -> float:
        """The mean, what is at infinity included."""
        return self.law.mean() if self.line is None else 1.0

    def at(self, scales: Array, damping: float, pace: float, first: int, count: int) -> Array:
        """As :func:`..hidden_chain_kernels.step_transforms`."""
        if self.line is not None:
            return self.line.at(scales, damping, pace, first, count)
        return step_transforms(scales, self.law.support, self.law.mass, damping, pace, first, count)

    def error(self, theta: Array, damping: float) -> Array | float:
        """Of the transform, at each frequency, but for what is counted with the terms of a sum."""
        if self.line is None:
            return 0.0
        return self.line.error + 2.0 * UNIT_ROUNDOFF * (8.0 * AT_ONCE + self.places * (1.0 + theta / damping))


def _moments(
    states: States | ProductStates, noises: list[White], scales: list[Array], kinds: NDArray[np.int64]
) -> tuple[float, float]:
    """The mass of X, and its mean with what is at infinity."""
    if isinstance(states, ClosedStates):
        return states.moments(noises[0].total, noises[0].mean, scales[0])
    totals, means = states.end.copy(), np.zeros(states.end.size)
    for place in range(kinds.size - 1, -1, -1):
        if place < kinds.size - 1:
            totals, means = states.averaged(totals), states.averaged(means)
        noise, scale = noises[kinds[place]], scales[kinds[place]]
        means = means * noise.total + totals * scale * noise.mean
        totals = totals * noise.total
    return float(states.start @ totals), float(states.start @ means)


def _white(deviation: float, side: Side, delta: float, exact: bool) -> White:
    if deviation == 0.0:
        return White(Law(np.array([1.0]), np.array([1.0]), 0.0, side, 0.0, 0.0), None, 0.0)
    if exact:
        return White(
            Law(np.array([1.0]), np.array([1.0]), 0.0, side, 0.0, 0.0), Noise.of(deviation), 16.0 + deviation**2
        )
    return White(gaussian_law(1.0 / deviation, 1.0, side, Resolution(WHITE_NODES, delta * 1e9)), None, 0.0)


def chain_profiles(
    chain: Chain, side: Side, delta: float, epsilon: float, alone: bool, deadline: Deadline
) -> TransformProfiles:
    """The profiles of a chain; arguments as in :class:`..inverse_transform.TransformProfiles`."""
    lost = LOST_SHARE * delta
    states: States | ProductStates
    if isinstance(chain, HiddenChain):
        states = states_of(chain, lost)
    elif isinstance(chain, IndependentSequences) and chain.ring:
        states = closed_states(chain, lost)
    else:
        states = chain.states(lost)

    def transformed(smoothing: float, largest: float) -> Found:
        return _transform(chain, states, side, delta, smoothing, largest, deadline)

    return TransformProfiles(transformed, spread_of(chain.products), side, delta, epsilon, alone)
