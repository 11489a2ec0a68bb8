"""Answers while a slider moves: certified upper bounds from coarse laws, within a fraction of a second.

What is shown is a bound of accountants that ``certify`` runs too, at coarser grids, moved up by ``ROOM``. It is
therefore never below the upper bound of ``certify`` for the same plan: ``certify`` either runs the same accountants,
more finely, or stops early where its upper bound is within ``SearchPolicy.gap_goal`` = 0.1 percent of a lower one, and
so of every valid bound. It may leave out those that are heavy for the pair at hand, so those are not asked here. Where
the deadline comes first, the unamplified Gaussian remains.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.bracketing import smallest_passing
from hockeystick.certification.issue import prepared
from hockeystick.certification.schedule import Outcome, best, refuse_without_bound, run_named
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.recommendation.workload import Workload
from hockeystick.settings import SearchPolicy, Settings
from hockeystick.spec import SMALLEST_NOISE
from hockeystick.types import Side

UPPER = ("gaussian", "direct", "comparison", "separated_windows", "shuffle_thresholds", "moment_majorant")
LOWER = ("gaussian", "direct", "comparison", "projection", "linear_statistic", "shuffle_thresholds")
"""Accountants that are quick on coarse grids, all of them among those that ``certify`` runs."""
LIGHT = 0.5
"""Standard seconds of accountants whose first answer may take longer where the machine is busy."""
LONGER, LONGEST = 6.0, 10.0
"""By what factor, and up to how many seconds: the Gaussian without amplification would say far too much."""
NODES = 16
"""Nodes per unit of score: a few tenths of a percent coarser than those of ``certify``."""
ROOM = 2e-3
"""What an upper bound is moved up by, as a part of it: twice the gap at which ``certify`` may end its search."""
EFFORT = 0.1
WIDTH = 5e-3
"""Relative width of the last bracket around a noise multiplier."""
STEEP = 1.5
"""Minus the slope of epsilon over the noise multiplier, both as logarithms, that a search begins with."""
FLATTEST, STEEPEST, LINES = 0.3, 30.0, 6
"""Slopes that a search believes, and after how many steps it halves its bracket where there is one."""
SMALLEST_PART = 1e-6
"""Share of a target: no search needs to know how far below it an epsilon is."""
POINTS = 33
"""Points of a curve."""
SMALLEST_SHOWN = 1e-12
"""Curves end where delta falls below this."""
MOST_STEPS = 20_000
"""In longer runs the error of the prefix sums takes longer than a quick answer may."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A quick answer.

    Attributes:
        noise_multiplier: as given, or enough for the target.
        upper: certified bound on epsilon at ``delta``; at most the target where the noise was asked for.
        lower: of epsilon; None where there was no cheap one.
        methods: the accountants of both ends.
        complete: False if the deadline cut something off, so that more time may give a better answer.
    """

    noise_multiplier: float
    delta: float
    upper: float
    lower: float | None
    methods: tuple[str, str | None]
    complete: bool


def quick_epsilon(mechanism: Mechanism, delta: float, deadline: Deadline) -> Answer:
    """Bounds on epsilon at ``delta`` for a mechanism with its noise multiplier.

    The upper bound is never below that of ``certify`` at its defaults.

    Raises: BudgetExceededError when there is no bound before the deadline; UnsupportedError, CannotCertifyError and
        InvalidInputError as ``certify`` does.
    """
    look = _Look(mechanism, delta, deadline)
    noise = mechanism.sigma
    uppers = look.outcomes(noise, UPPER, Side.UPPER)
    upper = best(uppers, Side.UPPER)
    if upper is not None:
        return look.answer(noise, upper)
    if look.complete:
        refuse_without_bound(uppers, f" at noise_multiplier = {noise:g}")
    raise BudgetExceededError("There is no finite bound that is quick enough to find; ask for a certificate.")


def quick_noise(
    mechanism: Mechanism, epsilon: float, delta: float, deadline: Deadline, near: float | None = None
) -> Answer:
    """A noise multiplier that is enough for (epsilon, delta), and the bounds on epsilon at it.

    ``certify`` at its defaults certifies it for at most the target. Raises as :func:`quick_epsilon` does.

    Args:
        near: a noise multiplier that the caller expects, as a slider has moved a little; affects speed only.
    """
    look = _Look(mechanism, delta, deadline)
    passing: list[tuple[float, Outcome]] = []

    @cache
    def upper(name: str, noise: float) -> float:
        outcome = look.outcome(noise, name, Side.UPPER)
        if outcome is None or outcome.value is None:
            return float("inf")
        value = max(outcome.value * (1.0 + ROOM), SMALLEST_PART * epsilon)
        if value <= epsilon and (not passing or noise <= passing[-1][0]):
            passing.append((noise, outcome))
            look.useful = look.useful or name != "gaussian"
        return value

    smallest_passing(lambda noise: upper("gaussian", noise), epsilon, 1.0, WIDTH)
    begin = _likely(mechanism, epsilon, delta, passing[-1][0]) if near is None else near
    try:
        for name in look.applicable(passing[-1][0], UPPER, Side.UPPER):
            most = passing[-1][0]
            if name != "gaussian":
                _lower_noise(partial(upper, name), epsilon, most, min(begin, most))
                begin = passing[-1][0]
    except BudgetExceededError:
        look.complete = False  # the best so far remains
    return look.answer(*passing[-1])


def _lower_noise(upper: Callable[[float], float], target: float, most: float, start: float) -> None:
    """Ask for epsilon at smaller and smaller noise multipliers that pass, from ``start``, or from ``most`` at worst.

    It follows the line through the last two points, logarithm over logarithm, to an epsilon just below the target, so
    that nearly every step passes, and one that is cut off has an answer.
    """
    aim, slope, noise = target * (1.0 - 0.5 * WIDTH), STEEP, start
    fails, passes = 0.0, math.inf
    before: tuple[float, float] | None = None
    for step in count():
        value = upper(noise)
        if value > target and noise >= most:
            return
        fails, passes = (noise, passes) if value > target else (fails, noise)
        if target >= value >= target * (1.0 - WIDTH) or passes <= max(fails * (1.0 + WIDTH), SMALLEST_NOISE):
            return
        if before is not None and math.isfinite(value + before[1]) and noise != before[0] and value > 0.0 < before[1]:
            secant = math.log(value / before[1]) / math.log(before[0] / noise)
            slope = min(max(secant, FLATTEST), STEEPEST)
        before = (noise, value)
        guess = noise * min(max(value / aim, 0.01), 100.0) ** (1.0 / slope)
        if 0.0 < fails < passes < math.inf and (step >= LINES or not fails < guess < passes):
            guess = math.sqrt(fails * passes)
        noise = min(max(guess, SMALLEST_NOISE), most)


def _likely(mechanism: Mechanism, epsilon: float, delta: float, most: float) -> float:
    """Where a search without a better idea begins: about the noise of as many independent steps, at most ``most``.

    Many steps at this rate are about as private as one Gaussian mechanism with sensitivity over noise
    ``mu = rate sqrt(steps (exp(1 / sigma^2) - 1))`` (Bu, Dong, Long and Su 2020). This affects speed only.
    """
    sampler = mechanism.sampler
    tail = math.sqrt(2.0 * math.log(1.0 / delta))
    mu = math.sqrt(tail**2 + 2.0 * epsilon) - tail  # epsilon = mu^2 / 2 + mu tail
    return min(1.0 / math.sqrt(math.log1p((mu / sampler.rate) ** 2 / sampler.steps)), most)


def quick_profile(mechanism: Mechanism, method: str, delta: float, deadline: Deadline) -> dict[str, Any]:
    """Upper bounds on delta by one accountant, at epsilons up to some three times the one at ``delta``.

    Raises: BudgetExceededError when the deadline passes; UnsupportedError where the method does not apply.
    """
    look = _Look(mechanism, delta, deadline)
    bound = ACCOUNTANTS[method].bound(dominating_pair(mechanism), Side.UPPER, look.settings)
    farthest = min(max(2.5 * bound.epsilon(delta), 0.1), MAX_EPSILON)
    epsilons: list[float] = []
    deltas: list[float] = []
    for epsilon in np.linspace(0.0, farthest, POINTS):
        deadline.tick()
        value = min(bound.delta(float(epsilon)) * (1.0 + ROOM), *deltas[-1:], 1.0)  # delta falls with epsilon
        epsilons.append(float(epsilon))
        deltas.append(value)
        if value < SMALLEST_SHOWN:
            break
    return {"epsilon": epsilons, "delta": deltas}


def prefix_error(mechanism: Mechanism) -> float | None:
    """Root mean squared noise in the sums of all gradients so far, in clipping norms; None where it takes too long.

    It measures usefulness and is no bound.
    """
    matrix = mechanism.matrix
    if matrix.steps > MOST_STEPS or (matrix.toeplitz_column is None and matrix.steps > MOST_STEPS // 10):
        return None
    return mechanism.sigma * Workload().unit_error(matrix)


class _Look:
    """Coarse bounds for one mechanism and delta, with whatever noise multiplier.

    Attributes:
        complete: whether nothing was cut off so far.
        useful: whether there is an answer by something better than the Gaussian.
    """

    def __init__(self, mechanism: Mechanism, delta: float, deadline: Deadline) -> None:
        self.mechanism, self.question, self.deadline = prepared(mechanism, deadline), Question(delta=delta), deadline
        self.settings = Settings(Resolution(NODES, delta), deadline, self.question, effort=EFFORT)
        self.complete, self.useful = True, False
        self.patience = deadline.seconds

    def applicable(self, noise: float, methods: Sequence[str], side: Side) -> list[str]:
        """Those of the accountants that bound the pair on a side, the cheapest first.

        From above only those that ``certify`` does not call heavy: others it skips at gaps of up to ``heavy_goal``, or
        where their seconds are more than is left of its work.
        """
        pair = self.pair(noise)
        names = [name for name in methods if ACCOUNTANTS[name].why_not(pair, side) is None]
        if side is Side.UPPER:
            names = [name for name in names if ACCOUNTANTS[name].seconds(pair) <= SearchPolicy().heavy]
        return sorted(names, key=lambda name: ACCOUNTANTS[name].seconds(pair))

    def pair(self, noise: float) -> DominatingPair:
        """The dominating pair at a noise multiplier."""
        return dominating_pair(self.mechanism.with_noise(noise))

    def outcome(self, noise: float, name: str, side: Side) -> Outcome | None:
        """What one accountant says; None where it does not apply at this noise multiplier.

        Raises: BudgetExceededError when the deadline cuts it off.
        """
        pair, accountant = self.pair(noise), ACCOUNTANTS[name]
        if accountant.why_not(pair, side) is not None:
            return None
        light = not self.useful and accountant.seconds(pair) <= LIGHT
        longer = min(LONGER * self.patience, LONGEST) if light else 0.0
        self.deadline.seconds = max(self.patience, longer)
        (outcome,) = run_named(accountant, pair, (side,), self.settings, self.question.answer)
        if outcome.needs is not None:
            raise BudgetExceededError(f"The method {name!r} takes longer than a quick answer may.")
        return replace(outcome, bound=None)  # many are kept

    def outcomes(self, noise: float, methods: Sequence[str], side: Side) -> list[Outcome]:
        """What these accountants say on a side until the deadline passes."""
        outcomes = []
        try:
            for name in self.applicable(noise, methods, side):
                outcome = self.outcome(noise, name, side)
                outcomes += [] if outcome is None else [outcome]
                self.useful = self.useful or (outcome is not None and name != "gaussian")
        except BudgetExceededError:
            self.complete = False
        return outcomes

    def answer(self, noise: float, upper: Outcome) -> Answer:
        """The answer at a noise multiplier, with the lower bounds for which there is still time."""
        assert upper.value is not None
        self.useful = True  # the lower bound is not worth waiting for
        lower = best(self.outcomes(noise, LOWER, Side.LOWER), Side.LOWER)
        return Answer(
            noise_multiplier=noise,
            delta=self.settings.resolution.smallest_delta,
            upper=upper.value * (1.0 + ROOM),
            lower=None if lower is None else lower.value,
            methods=(upper.method, None if lower is None else lower.method),
            complete=self.complete,
        )
