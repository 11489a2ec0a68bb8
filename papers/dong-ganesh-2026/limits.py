"""Section 4: where b-min-sep subsampling is a scheme with exact accounting, sampling has to agree with it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hockeystick as hs
from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import Check

from .learning import FAR, LENGTH, STEPS
from .runs import FAILURE, interval, strategy

WIDTH = 0.1
"""Of the sampled intervals, relative."""
ALMOST = 1.0 - 1e-9
"""Of the largest rate: at the largest itself the library refers to balls-in-bins."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A case of b-min-sep and the mechanism that it should equal."""

    what: str
    sampler: hs.BMinSep
    same: hs.BallsInBins | hs.Poisson | hs.Deterministic
    noise_multiplier: float
    epsilon: float
    room: float = 0.0
    """How far the two can be apart in delta by ALMOST."""


def _switched(min_sep: int, steps: int) -> float:
    """At most the chance that an example ever does otherwise than at the largest rate, over all its steps."""
    return 2.0 * steps * min_sep * (1.0 - ALMOST)


LIMITS = (
    Limit(
        what="b = 1 is Poisson",
        sampler=hs.BMinSep(min_sep=1, sampling_prob=0.05, steps=128),
        same=hs.Poisson(sampling_prob=0.05, steps=128),
        noise_multiplier=0.9,
        epsilon=2.0,
    ),
    Limit(
        what="b = 1 is Poisson, cold",
        sampler=hs.BMinSep(min_sep=1, sampling_prob=0.01, steps=256, warm_start=False),
        same=hs.Poisson(sampling_prob=0.01, steps=256),
        noise_multiplier=0.7,
        epsilon=1.0,
    ),
    Limit(
        what="q = 1, warm, is balls-in-bins",
        sampler=hs.BMinSep(min_sep=16, sampling_prob=ALMOST / 16, steps=64),
        same=hs.BallsInBins(bins=16, epochs=4),
        noise_multiplier=1.5,
        epsilon=2.0,
        room=_switched(16, 64),
    ),
    Limit(
        what="q = 1, cold, has no amplification",
        sampler=hs.BMinSep(min_sep=16, sampling_prob=ALMOST / 16, steps=64, warm_start=False),
        same=hs.Deterministic(bins=16, epochs=4),
        noise_multiplier=0.8,
        epsilon=4.0,
        room=_switched(16, 64),
    ),
)


def exact(limit: Limit) -> tuple[float, float]:
    """Deterministic bounds on delta of the mechanism that this should equal."""
    mechanism = hs.Mechanism(sampler=limit.same, noise_multiplier=limit.noise_multiplier)
    bounds = hs.certify(mechanism, epsilon=limit.epsilon).bounds
    return bounds.lower or 0.0, bounds.upper


def limit_checks(limits: Sequence[Limit], deadline: Deadline) -> list[Check]:
    """Whether the exact delta is inside the sampled interval; shown is where it is: 0 at the lower end, 1 at the upper.

    An interval misses with probability FAILURE. A check that holds says that the two may be equal, to the width of
    the interval, which is shown.
    """
    checks = []
    for limit in limits:
        mechanism = hs.Mechanism(sampler=limit.sampler, noise_multiplier=limit.noise_multiplier)
        lower, upper = interval(mechanism, limit.epsilon, deadline, ratio=WIDTH)
        low, high = exact(limit)
        inside = lower - limit.room <= high and low <= upper + limit.room
        note = (
            f"sampled [{lower:.4g}, {upper:.4g}], failing with probability {FAILURE:g}; exact [{low:.4g}, {high:.4g}]"
        )
        checks.append(Check(limit.what + ": exact delta", "~", 0.5 * (lower + upper), high, inside, note))
    return checks


# --- small and large noise --------------------------------------------------------------------------------------------


def count_variance(min_sep: int, rate: float, steps: int) -> float:
    """Variance of the number of participations of warm b-min-sep subsampling: exact, by the law of the state.

    In the stationary state ``E x_s x_t`` is ``rate`` times the chance to take part again t - s steps later.
    """
    prob = rate / (1.0 - rate * (min_sep - 1))
    again = np.zeros(steps)
    for gap in range(min_sep, steps):
        # Available at this distance: never taken since, or taken min_sep before it.
        again[gap] = prob if gap == min_sep else (1.0 - prob) * again[gap - 1] + prob * again[gap - min_sep]
    pairs = rate * float(np.arange(steps - 1, 0, -1) @ again[1:])
    return rate * steps + 2.0 * pairs - (rate * steps) ** 2


def variance_checks() -> list[Check]:
    """The limit of small noise: the number of participations varies less than under cyclic Poisson sampling."""
    checks = []
    for min_sep, length in ((8, 128), (32, 128), (100, 128)):
        rate, steps = 1.0 / length, 1 << 15
        cyclic = steps * rate * (1.0 - min_sep * rate)
        printed = 1.0 - rate * (min_sep - 1)
        ratio = count_variance(min_sep, rate, steps) / cyclic
        what = f"variance of the participations over that of cyclic Poisson, b = {min_sep}, |D|/B = {length}"
        checks.append(Check(what, "~", printed, ratio, abs(ratio / printed - 1.0) < 0.02, f"at n = {steps}"))
    printed = STEPS * (1.0 / LENGTH) * (1.0 - FAR / LENGTH) * (1.0 - (FAR - 1.0) / LENGTH)
    variance = count_variance(FAR, 1.0 / LENGTH, STEPS)
    where = f"n = {STEPS}, b = {FAR}, |D|/B = {LENGTH}"
    what = f"variance of the participations at the paper's {where}, by section 4's formula"
    note = "the formula is that of long runs; this one has some five participations"
    return [*checks, Check(what, "~", printed, variance, abs(variance / printed - 1.0) < 0.02, note)]


def first_order_checks(bands: Sequence[int] = (2, 8, 32), steps: int = 1024) -> list[Check]:
    """The limit of large noise: whether the mean shifts of the two schemes have the same length.

    To first order in 1 / sigma the privacy loss is that of a Gaussian with the mean shift C E[x]. Cyclic Poisson
    sampling as it is accounted for, with the example in a group that is known, shifts the columns of its group by
    b p0; a secret, uniformly random group would have the mean p0 everywhere, as b-min-sep has.
    """
    checks = []
    for count in bands:
        matrix = strategy(count).matrix(steps)
        ours = float(np.linalg.norm(matrix.dot(np.ones(steps))))
        group = np.zeros(steps)
        group[::count] = float(count)
        known = float(np.linalg.norm(matrix.dot(group)))
        what = f"first-order shift of b-min-sep over cyclic Poisson with a known group, b = p = {count}"
        note = "the same only if the group is secret and random; b-min-sep is better"
        ratio = ours / known
        checks.append(Check(what, "~", 1.0, ratio, abs(ratio - 1.0) < 1e-3, "" if abs(ratio - 1.0) < 1e-3 else note))
    return checks
