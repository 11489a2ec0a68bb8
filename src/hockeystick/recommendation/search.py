"""The search for the least error: estimates on coarse grids first, then calibrations of what may be the best."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Protocol

from hockeystick.bounds import Question, check_target
from hockeystick.deadline import Deadline
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    InvalidInputError,
    OptimisationError,
    UnsupportedError,
    shortened,
)
from hockeystick.plan import Plan, Target, instead_of
from hockeystick.recommendation.candidates import Candidate, Family, Limits, families, normalised, singles
from hockeystick.recommendation.estimate import Estimate, estimate
from hockeystick.recommendation.open_plan import OpenPlan
from hockeystick.recommendation.sketches import sketch
from hockeystick.recommendation.workload import Workload
from hockeystick.strategies import BandedToeplitz

if TYPE_CHECKING:
    from hockeystick.certificate import Certificate

CALIBRATIONS = 8
"""Candidates that are calibrated at most, by default."""
LEARNED = 0.25
"""What is left of the room of an estimate once another candidate of its kind was calibrated."""
EXACT = 0.1
"""Room of the estimates of laws and closed forms; calibrations of such candidates take a second or so."""
ROUGH = 0.01
"""How much a whole calibration may take off the noise of a rough one, relative to it."""
_OF_A_CANDIDATE = (CannotCertifyError, InvalidInputError, OptimisationError, UnsupportedError)
"""Errors that refuse one candidate, while the search goes on."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A candidate with the noise it needs and the error that follows.

    Attributes:
        candidate: strategy, sampler and data, as a plan.
        estimate: the estimated noise multiplier.
        unit_error: error at noise multiplier 1 and a batch of 1.
        expected_batch: of the run.
        rows: rows of noise kept between steps.
        certificate: of the calibrated noise multiplier; None where it is only estimated.
        rough: whether the certified noise multiplier may be larger than that of a whole calibration.
    """

    candidate: Candidate
    estimate: Estimate
    unit_error: float
    expected_batch: float
    rows: int
    certificate: "Certificate | None" = None
    rough: bool = False

    @property
    def certified(self) -> bool:
        """Whether the noise multiplier comes from a calibration."""
        return self.certificate is not None

    @property
    def noise_multiplier(self) -> float:
        """The calibrated noise multiplier, or the estimate."""
        return self.estimate.noise_multiplier if self.certificate is None else self.certificate.mechanism.sigma

    @property
    def error(self) -> float:
        """The predicted error of a coordinate of the weights, in learning rates times clipping norms."""
        return self.unit_error * self.noise_multiplier / self.expected_batch

    @property
    def estimated_error(self) -> float:
        """The same for the estimated noise multiplier."""
        return self.unit_error * self.estimate.noise_multiplier / self.expected_batch

    @property
    def plan(self) -> Plan:
        """The plan; with the noise multiplier where it is certified."""
        if self.certificate is None:
            return self.candidate.plan
        return self.candidate.plan.model_copy(update={"noise_multiplier": self.certificate.mechanism.sigma})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for.

    Attributes:
        plan: the user's plan.
        epsilon, delta: the target.
        workload: whose error is predicted.
        limits: what the run can afford.
        own: whether the plan names a sampler, and so is a candidate itself.
    """

    plan: Plan
    epsilon: float
    delta: float
    workload: Workload
    limits: Limits
    own: bool = True

    def __post_init__(self) -> None:
        check_target(self.epsilon)
        Question(delta=self.delta)


class Calibrating(Protocol):
    """Calibrations that run side by side. A candidate has a rough one, a whole one, or one after the other."""

    @property
    def full(self) -> bool:
        """Whether all workers have something to do."""

    @property
    def beside(self) -> bool:
        """Whether calibrations run beside this process, so that it can go on meanwhile."""

    @property
    def running(self) -> bool:
        """Whether some calibration runs."""

    @property
    def late(self) -> bool:
        """Whether nothing is waited for any more."""

    @property
    def roughly(self) -> bool:
        """Whether rough calibrations are of use."""

    def begun(self, candidate: Candidate, rough: bool) -> bool:
        """Whether a calibration runs or is done."""

    def done(self, candidate: Candidate, rough: bool) -> bool:
        """Whether the result is there."""

    def begin(self, candidate: Candidate, near: float | None, rough: "Certificate | None") -> None:
        """Start a calibration, unless it has begun: a rough one if ``near`` is given."""

    def calibrate_here(self, candidate: Candidate, near: float) -> None:
        """Make a rough calibration before this returns."""

    def kept(self, candidate: Candidate) -> "Certificate | None":
        """What an earlier search has found for a candidate."""

    def wait(self) -> None:
        """Return when a calibration that runs is done, or late."""

    def result(self, candidate: Candidate, rough: bool) -> "tuple[Certificate, bool]":
        """The certificate, and whether no deadline cut the calibration; raises what the calibration raised."""


class Search:
    """Everything that is known so far; :meth:`draft` gives the first answer, :meth:`refine` improves it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.choices: dict[Plan, Choice] = {}
        self.refused: dict[Plan, str] = {}
        self._ends: dict[Family, tuple[int, ...] | None] = {}
        """Where the climb in each family ended on its coarse grid; None where no point can be run."""
        self._each: Callable[[], None] = lambda: None
        self._most = CALIBRATIONS
        self._tried: set[Plan] = set()
        """Plans that were chosen for calibration, which count against the most that are."""
        self._taken: set[tuple[Plan, bool]] = set()
        """Calibrations whose results were taken: of which plan, and whether a rough one."""
        self._over = False
        """Whether the deadline has cut a calibration."""

    def ranked(self) -> list[Choice]:
        """All choices, the least error first."""
        return sorted(self.choices.values(), key=lambda choice: choice.error)

    @cached_property
    def without_memory_limit(self) -> Choice:
        """What would be estimated to be the best if the rows of noise could take any memory."""
        limits = replace(self.asked.limits, memory=None, parameters=None)
        wider = Search(replace(self.asked, limits=limits))
        wider.draft()
        return wider.ranked()[0]

    @cached_property
    def _families(self) -> list[Family]:
        """The families of candidates that the plan and the limits allow."""
        return families(self.asked.plan, self.asked.limits)

    def begin(self, each: Callable[[], None] = lambda: None) -> None:
        """Estimates of what needs no optimiser, on coarse grids: less than a second.

        Args:
            each: called after every estimate.
        """
        self._each = each
        self._estimate(optimised=False)

    def draft(self, each: Callable[[], None] = lambda: None) -> None:
        """The same, and estimates of optimised strategies: seconds.

        Args:
            each: as for :meth:`begin`.

        Raises: CannotCertifyError where nothing can be run; BudgetExceededError when the covering deadline passes.
        """
        self._each = each
        for optimised in (False, True):
            self._estimate(optimised=optimised)
        if not self.choices:
            reason = next(iter(self.refused.values()), "no sampler suits the data")
            raise CannotCertifyError(f"There is no mechanism to recommend within these limits: {reason}")

    def _estimate(self, *, optimised: bool) -> None:
        """Estimate the candidates that an optimiser has to make, or the others, where that was not done before."""
        for candidate in singles(self.asked.plan, self.asked.limits, self.asked.own):
            if candidate.optimised == optimised:
                self.error(candidate)
        for family in self._families:
            if family in self._ends or family.optimised != optimised:
                continue
            guide = self._ends.get(family.guide) if family.guide is not None else None
            self._ends[family] = self._climb(family, family.start if guide is None else family.coarse(guide), 2)

    def refine(self, calibrating: Calibrating, *, deadline: Deadline, most: int = CALIBRATIONS) -> Iterator[Choice]:
        """Calibrate what may be the best, and look around the best estimates; yields every calibrated choice.

        The best of those with a quick calibration comes first. Where calibrations are long, a rough one decides
        whether a candidate may be the best, and only then a whole one follows.

        Choices are made as if one calibration followed the other, whatever the number of workers; free workers begin
        what would be chosen if those that run came out as expected. When the deadline passes, calibrations end with
        what they have certified, and no other begins.

        Args:
            most: candidates that are calibrated at most, not counting the quick one.
        """
        self._most = most
        if deadline.remaining() > 0.0:
            yield from self.quick(calibrating)
        with suppress(BudgetExceededError), deadline.covering():
            self._look_around(deadline)
        while (chosen := self._next() or self._last_resort(deadline)) is not None:
            job = chosen.candidate, self._is_rough(chosen, calibrating)
            while not calibrating.done(*job):
                if deadline.remaining() <= 0.0:
                    yield from self._last(calibrating)
                    return
                self._begin(calibrating)
                if not calibrating.done(*job):
                    calibrating.wait()
            self._tried.add(chosen.candidate.plan)
            yield from self._take(calibrating, *job)
            if self._over:
                yield from self._last(calibrating)
                return

    def begin_beside(self, calibrating: Calibrating, deadline: Deadline) -> None:
        """Begin calibrations on workers, of what is the best so far, while this process goes on to estimate."""
        if calibrating.beside and deadline.remaining() > 0.0:
            with suppress(BudgetExceededError), deadline.covering():
                self._look_around(deadline)
            self._begin(calibrating)

    def _look_around(self, deadline: Deadline) -> None:
        """Estimates on the fine grids; raises when time is over."""
        for family, end in self._ends.items():
            deadline.tick()
            if end is not None:
                self._climb(family, end, 1)

    def _last_resort(self, deadline: Deadline) -> Choice | None:
        """What to calibrate where no other choice may be the best: a matrix that takes seconds to optimise."""
        best = min(self.choices.values(), key=lambda choice: choice.error)
        if not isinstance(best.candidate.plan.strategy, BandedToeplitz):
            return None
        candidate = normalised(self.asked.plan, self.asked.limits, best.candidate.plan.strategy.bands)
        if candidate is None or candidate.plan in self.choices:
            return None
        with suppress(BudgetExceededError), deadline.covering():
            self.error(candidate)
        return self._next()

    def quick(self, calibrating: Calibrating) -> Iterator[Choice]:
        """A rough calibration, without samples, of the best of the candidates for which it takes about a second."""
        quick = [choice for choice in self.choices.values() if choice.estimate.room <= EXACT]
        if quick:
            choice = min(quick, key=lambda choice: choice.estimated_error)
            if (choice.candidate.plan, True) in self._taken:
                return
            calibrating.calibrate_here(choice.candidate, choice.estimate.noise_multiplier)
            yield from self._take(calibrating, choice.candidate, True)

    def _last(self, calibrating: Calibrating) -> Iterator[Choice]:
        """What the calibrations that run when the deadline passes have certified."""
        while calibrating.running and not calibrating.late:
            calibrating.wait()
        for plan, choice in list(self.choices.items()):
            if choice.certified and not choice.rough:
                continue
            for rough in (True, False):
                new = plan in self.choices and (plan, rough) not in self._taken
                if new and calibrating.done(choice.candidate, rough):
                    yield from self._take(calibrating, choice.candidate, rough)

    def _take(self, calibrating: Calibrating, candidate: Candidate, rough: bool) -> Iterator[Choice]:
        """The choice with the result of a calibration; nothing where there is none, or one with less noise before."""
        plan = candidate.plan
        self._taken.add((plan, rough))
        try:
            certificate, whole = calibrating.result(candidate, rough)
        except BudgetExceededError:
            self._over = True
            return
        except _OF_A_CANDIDATE as error:
            self.refused[plan] = str(error)
            del self.choices[plan]
            return
        self._over |= not whole
        before = self.choices[plan]
        if not (before.certified and before.noise_multiplier < certificate.mechanism.sigma):
            before = replace(before, certificate=certificate)
        self.choices[plan] = replace(before, rough=rough or not whole)
        yield self.choices[plan]

    def _is_rough(self, choice: Choice, calibrating: Calibrating) -> bool:
        """Whether the next calibration of a choice is a rough one."""
        if choice.certified or choice.estimate.room <= EXACT or not calibrating.roughly:
            return False
        return calibrating.kept(choice.candidate) is None

    def _begin(self, calibrating: Calibrating) -> None:
        """Begin the next calibration, and as many of those after it as there are free workers beside this process."""
        assumed: dict[Plan, float] = {}
        while not assumed or (calibrating.beside and not calibrating.full):
            choice = self._next(assumed)
            if choice is None:
                return
            near = choice.estimate.noise_multiplier if self._is_rough(choice, calibrating) else None
            calibrating.begin(choice.candidate, near, choice.certificate if choice.estimate.room > EXACT else None)
            ratios = self._ratios(choice, assumed) or [1.0]
            assumed[choice.candidate.plan] = choice.estimate.noise_multiplier * sum(ratios) / len(ratios)

    def error(self, candidate: Candidate) -> float:
        """The estimated error of a candidate, which becomes a choice; infinite where it cannot be run."""
        plan = candidate.plan
        if plan in self.choices:
            return self.choices[plan].estimated_error
        if plan in self.refused:
            return inf
        try:
            if not candidate.fits(self.asked.limits):
                raise InvalidInputError("The rows of noise do not fit in the memory.")
            mechanism = plan.mechanism()
            estimated = estimate(mechanism, self.asked.epsilon, self.asked.delta)
            unit_error = self.asked.workload.unit_error(sketch(mechanism))
        except _OF_A_CANDIDATE as problem:
            self.refused[plan] = str(problem)
            return inf
        choice = Choice(
            candidate=candidate,
            estimate=estimated,
            unit_error=unit_error,
            expected_batch=plan.numbers().expected_batch,
            rows=candidate.rows(),
        )
        self.choices[plan] = choice
        self._each()
        return choice.error

    def _climb(self, family: Family, start: tuple[int, ...], step: int) -> tuple[int, ...] | None:
        """The best point that neighbours lead to; None where no point can be run.

        Args:
            step: the distance of neighbours: 2 on the coarse grid, 1 on the fine one.
        """
        here, best = start, self._at(family, start)
        while best == inf and any(here):  # towards fewer bands, which need less memory
            here = tuple(max(value - 2, 0) for value in here)
            best = self._at(family, here)
        while True:
            neighbours = [
                tuple(value + move * (axis == other) for other, value in enumerate(here))
                for axis in range(len(here))
                for move in (step, -step)
            ]
            errors = {point: self._at(family, point) for point in neighbours}
            following = min(errors, key=lambda point: errors[point])
            if errors[following] >= best:
                return None if best == inf else here
            here, best = following, errors[following]

    def _at(self, family: Family, point: tuple[int, ...]) -> float:
        """The error at a point of a family's grid; infinite where there is no candidate, or none that can be run."""
        candidate = family.at(point)
        return inf if candidate is None else self.error(candidate)

    def _next(self, assumed: Mapping[Plan, float] | None = None) -> Choice | None:
        """The choice to calibrate next: the least estimate that may still be the best; None when none may be.

        Args:
            assumed: noise multipliers of plans that are taken to be calibrated too.
        """
        assumed = assumed or {}
        known = [choice.unit_error * noise / choice.expected_batch for choice, noise in self._known(assumed)]
        best = min(known, default=inf)

        def hoped(choice: Choice) -> tuple[float, float]:
            """Its error as learned from those of its kind, and the least that it may be."""
            if choice.certified:
                return choice.error, choice.error * (1.0 - ROUGH)
            ratios = self._ratios(choice, assumed)
            likely = choice.error * (sum(ratios) / len(ratios) if ratios else 1.0)
            return likely, likely * (1.0 - choice.estimate.room * (LEARNED if ratios else 1.0))

        tried = self._tried | set(assumed)
        left = [
            choice
            for plan, choice in self.choices.items()
            if (choice.rough or not choice.certified)
            and plan not in assumed
            and (plan in tried or len(tried) < self._most)
        ]
        promising = [choice for choice in left if hoped(choice)[1] < best]
        return min(promising, key=lambda choice: hoped(choice)[0], default=None)

    def _known(self, assumed: Mapping[Plan, float]) -> list[tuple[Choice, float]]:
        """The choices that are calibrated, or taken to be, with their noise multipliers."""
        certified = [(choice, choice.noise_multiplier) for choice in self.choices.values() if choice.certified]
        return certified + [(self.choices[plan], noise) for plan, noise in assumed.items()]

    def _ratios(self, choice: Choice, assumed: Mapping[Plan, float]) -> list[float]:
        """Noise over its estimate, for the known choices that were estimated in the same way."""
        how = choice.estimate.how
        known = [(choice.estimate, noise) for choice, noise in self._known(assumed) if choice.estimate.how == how]
        return [noise / estimated.noise_multiplier for estimated, noise in known]


def of_plan(
    plan: Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    workload: Workload | None = None,
    limits: Limits | None = None,
) -> Asked:
    """The question about a plan, with its own target where none is given; recommended plans have the target asked for.

    Raises: InvalidInputError where there is none, and for anything but a plan.
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"The 'plan' argument must be a Plan. Got {shortened(plan)} instead{instead_of(plan)}.")
    values = {
        "epsilon": plan.target.epsilon if epsilon is None else epsilon,
        "delta": plan.target.delta if delta is None else delta,
    }
    for name, value in values.items():
        if value is None:
            raise InvalidInputError(f"The 'target.{name}' field is missing; give it in the plan, or give {name}= here.")
    own = not isinstance(plan, OpenPlan) or plan.names_sampler
    closed = plan.closed() if isinstance(plan, OpenPlan) else plan
    return Asked(
        plan=closed.model_copy(update={"target": Target(**values)}),
        epsilon=float(values["epsilon"] or 0.0),
        delta=float(values["delta"] or 0.0),
        workload=workload or Workload(),
        limits=limits or Limits(),
        own=own,
    )
