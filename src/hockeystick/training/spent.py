"""What a run has spent so far: a certified epsilon of the steps that it has taken, quick enough for every step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hockeystick.accountants.registry import ACCOUNTANTS, accountant
from hockeystick.bounds import Bound, Profile
from hockeystick.certificate import Certificate
from hockeystick.certification.schedule import EPSILON_NODES
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import ORDINARY, Law
from hockeystick.laws.operations import compose
from hockeystick.laws.profile import law_profiles, product_delta
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import Settings
from hockeystick.training.progress import certify_shown
from hockeystick.training.run import Run
from hockeystick.types import Direction, Side

REPEATED: dict[type[DominatingPair], str] = {IndependentSteps: "steps", AveragedSteps: "epochs"}
"""Pairs that are independent copies of a smaller one, and the field that counts them."""
DIGITS = 8
"""Binary digits to which a number of copies is rounded up: to at most 0.8 percent more than there are."""
LAW_DIGITS = 4
"""Numbers with more binary digits have no law of their own: their first digits and their last ones have."""
PARTS = 8
QUICK = 1.0
"""Standard seconds: where the method of a plan's certificate takes no longer, its eighths are certified as well."""


@dataclass(frozen=True)
class Spent:
    """What was spent.

    Attributes:
        epsilon: a certified upper bound at the delta that was asked for.
        steps: of the mechanism that has this epsilon; at least those that were taken.
        whose: the same in words.
    """

    epsilon: float
    steps: int
    whose: str


class Spending:
    """The epsilons of a run at one delta, after any number of its steps.

    Guarantee: an upper bound on epsilon of what was released so far, for a number of steps that was chosen without
    looking at the data or at anything that was trained on them. It is that of the executed steps where these are a
    mechanism by themselves (their number is rounded up by at most 0.8 percent), of whole epochs where a sampler plans
    those, and of the whole plan elsewhere; a longer run of the same mechanism has the shorter one as its first steps.

    The first answer takes as long as a certificate of the plan, where the run has an end. Later ones rarely take a
    convolution of laws, for independent steps, and none elsewhere.

    Args:
        run: which has the steps.
        delta: in (0, 1).
        has_end: whether the run's number of steps is planned.
        certified: the certificate of a mechanism at a delta, for the steps that are named in words; by default it is
            computed, and long work is shown on stderr.
    """

    def __init__(
        self,
        run: Run,
        delta: float,
        *,
        has_end: bool,
        certified: Callable[[Mechanism, float, str], Certificate] | None = None,
    ) -> None:
        self.delta = delta
        self.certified = _certified if certified is None else certified
        self.known: dict[int, float] = {}
        self.powers = Powers(delta)
        self.first = _unit(run)
        if has_end and self.know(run, run.mechanism) <= QUICK and self.first is None:
            self._know_parts(run)

    def know(self, run: Run, mechanism: Mechanism) -> float:
        """Certify this mechanism, whose first steps are those of the run; returns what its method costs."""
        certificate = self.certified(mechanism, self.delta, whose(run, mechanism.sampler.steps))
        self.known[mechanism.sampler.steps] = certificate.bounds.upper
        return accountant(certificate.method.upper).seconds(dominating_pair(mechanism))

    def _know_parts(self, run: Run) -> None:
        epoch = run.steps_per_epoch
        for part in range(1, PARTS):
            shorter = run.first(-(-part * run.steps // PARTS // epoch) * epoch)
            if shorter is not None and shorter.sampler.steps not in self.known:
                self.know(run, shorter)

    def after(self, run: Run) -> Spent:
        """What the steps so far have spent."""
        if not run.step:
            return Spent(0.0, 0, "no step")
        candidates = [(epsilon, steps) for steps, epsilon in self.known.items() if steps >= run.step]
        if self.first is not None:
            pair, length = self.first
            copies = rounded_up(-(-run.step // length))
            candidates.append((self._of_copies(pair, run, copies, length), copies * length))
        epsilon, steps = min(candidates)
        return Spent(epsilon, steps, whose(run, steps))

    def _of_copies(self, pair: DominatingPair, run: Run, copies: int, length: int) -> float:
        field = REPEATED[type(pair)]
        slack = pair.slack
        if slack:  # of batches that are cut, which grows with the steps
            longer = run.first(min(copies * length, run.steps))
            slack = dominating_pair(run.mechanism if longer is None else longer).slack
        return self.powers.epsilon(replace(pair, **{field: 1}), copies, slack)


def whose(run: Run, steps: int) -> str:
    """So many first steps of a run, in words."""
    if steps == run.step:
        return "the executed steps"
    if steps == run.steps:
        return f"all {steps} planned steps"
    return f"the first {steps} steps"


def _certified(mechanism: Mechanism, delta: float, whose: str) -> Certificate:
    return certify_shown(mechanism, whose, delta=delta)


class Powers:
    """Laws of many independent copies of one pair, from those of powers of two, kept for later numbers.

    A number of few digits is built from the largest power of two in it downwards, so that the next number finds its
    first terms. For others the profile is read off two of those laws, which takes no convolution.
    """

    def __init__(self, delta: float) -> None:
        self.delta = delta
        self.settings = Settings(Resolution(EPSILON_NODES, delta))
        self.laws: dict[int, Law] = {}
        self.epsilons: dict[tuple[int, float], float] = {}
        self.near: float | None = None

    def epsilon(self, unit: DominatingPair, copies: int, slack: float) -> float:
        """A certified epsilon of so many copies of this pair, always the same one, and a slack for all of them."""
        if (copies, slack) not in self.epsilons:
            bound = Bound(
                method="direct",
                side=Side.UPPER,
                kind=ACCOUNTANTS["direct"].kind,
                confidence=1.0,
                reference=ACCOUNTANTS["direct"].reference,
                profiles=self._profiles(unit, copies),
                slack=slack,
            )
            self.near = self.epsilons[copies, slack] = bound.epsilon(self.delta, self.near)
        return self.epsilons[copies, slack]

    def _profiles(self, unit: DominatingPair, copies: int) -> dict[Direction, Profile]:
        rest = copies % (1 << max(copies.bit_length() - LAW_DIGITS, 0))
        if not rest:
            return law_profiles(self._law(unit, copies))
        first, last = self._law(unit, copies - rest), self._law(unit, rest)
        if not first.units == last.units == ORDINARY:
            return law_profiles(compose(first, last, self.settings.resolution))
        return {direction: partial(product_delta, first, last, direction=direction) for direction in Direction}

    def _law(self, unit: DominatingPair, copies: int) -> Law:
        if copies not in self.laws:
            if copies == 1:
                law = ACCOUNTANTS["direct"].laws_of(unit, Side.UPPER, self.settings)[0]
            else:
                last = copies & -copies  # the smallest power of two in it, or half of one
                last = last // 2 if last == copies else last
                law = compose(self._law(unit, copies - last), self._law(unit, last), self.settings.resolution)
            self.laws[copies] = law
        return self.laws[copies]


def rounded_up(copies: int) -> int:
    """The next number with at most ``DIGITS`` binary digits before its zeros.

    >>> rounded_up(200), rounded_up(1001)
    (200, 1004)
    """
    unit = 1 << max(copies.bit_length() - DIGITS, 0)
    return -(-copies // unit) * unit


def _unit(run: Run) -> tuple[Any, int] | None:
    """The pair of one copy and the steps of one, where the run is independent copies of it; None elsewhere."""
    copy = run.first(1) or run.first(run.steps_per_epoch)
    if copy is None:
        return None
    whole, pair = dominating_pair(run.mechanism), dominating_pair(copy)
    field = REPEATED.get(type(whole))
    if field is None or type(pair) is not type(whole):
        return None
    count = getattr(whole, field)
    alike = replace(whole, **{field: 1}, slack=0.0) == replace(pair, **{field: 1}, slack=0.0)
    length, rest = divmod(run.steps, count)
    return (whole, length) if alike and not rest and length == copy.sampler.steps else None
