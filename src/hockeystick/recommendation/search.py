"""The search for the least error: estimates on coarse grids first, then calibrations of what may be the best."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from hockeystick.bounds import Question
from hockeystick.calibration.search import check_target
from hockeystick.certificate import Certificate
from hockeystick.deadline import Deadline
from hockeystick.errors import CannotCertifyError, InvalidInputError, OptimisationError, UnsupportedError
from hockeystick.plan import Plan, Target
from hockeystick.recommendation.candidates import Candidate, Family, Limits, families, normalised, singles
from hockeystick.recommendation.estimate import Estimate, estimate
from hockeystick.recommendation.workload import Workload
from hockeystick.strategies import BandedToeplitz

CALIBRATIONS = 8
"""Candidates that are calibrated at most, by default."""
LEARNED = 0.25
"""What is left of the room of an estimate once another candidate of its kind was calibrated."""
_OF_A_CANDIDATE = (CannotCertifyError, InvalidInputError, OptimisationError, UnsupportedError)


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
    """

    candidate: Candidate
    estimate: Estimate
    unit_error: float
    expected_batch: float
    rows: int
    certificate: Certificate | None = None

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
    """

    plan: Plan
    epsilon: float
    delta: float
    workload: Workload
    limits: Limits

    def __post_init__(self) -> None:
        check_target(self.epsilon)
        Question(delta=self.delta)


class Calibrating(Protocol):
    """Calibrations that run side by side."""

    @property
    def full(self) -> bool:
        """Whether all workers have something to do."""

    def begun(self, candidate: Candidate) -> bool:
        """Whether a calibration runs or is done."""

    def done(self, candidate: Candidate) -> bool:
        """Whether the result is there."""

    def begin(self, candidate: Candidate) -> None:
        """Start a calibration, unless it has begun."""

    def wait(self) -> None:
        """Return when a calibration that runs is done."""

    def result(self, candidate: Candidate) -> Certificate:
        """The certificate; raises what the calibration raised."""


class Search:
    """Everything that is known so far; :meth:`draft` gives the first answer, :meth:`refine` improves it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.choices: dict[Plan, Choice] = {}
        self.refused: dict[Plan, str] = {}
        self._ends: list[tuple[Family, tuple[int, ...]]] = []

    def ranked(self) -> list[Choice]:
        """All choices, the least error first."""
        return sorted(self.choices.values(), key=lambda one: one.error)

    def draft(self) -> None:
        """Estimates on the coarse grids: seconds."""
        for one in singles(self.asked.plan, self.asked.limits):
            self.error(one)
        for family in families(self.asked.plan, self.asked.limits):
            end = self._climb(family, family.start, 2)
            if end is not None:
                self._ends.append((family, end))
        if not self.choices:
            reason = next(iter(self.refused.values()), "no sampler suits the data")
            raise CannotCertifyError(f"There is no mechanism to recommend within these limits: {reason}")

    def refine(self, calibrating: "Calibrating", *, deadline: Deadline, most: int = CALIBRATIONS) -> Iterator[Choice]:
        """Look around the best estimates, then calibrate what may be the best; yields every calibrated choice.

        Choices are made as if one calibration followed the other, whatever the number of workers; free workers begin
        what would be chosen if those that run came out as expected. The deadline decides whether another calibration
        begins.

        Args:
            most: candidates that are calibrated at most.
        """
        for family, end in self._ends:
            self._climb(family, end, 1)
        best = self.ranked()[0]
        if isinstance(best.candidate.plan.strategy, BandedToeplitz):
            one = normalised(self.asked.plan, self.asked.limits, best.candidate.plan.strategy.bands)
            if one is not None:
                self.error(one)
        for left in range(most, 0, -1):
            chosen = self._next()
            if chosen is None:
                return
            while not calibrating.done(chosen.candidate):
                if deadline.elapsed() < deadline.seconds:
                    self._begin(calibrating, left)
                elif not calibrating.begun(chosen.candidate):
                    return
                if not calibrating.done(chosen.candidate):
                    calibrating.wait()
            try:
                certificate = calibrating.result(chosen.candidate)
            except _OF_A_CANDIDATE as error:
                self.refused[chosen.candidate.plan] = str(error)
                del self.choices[chosen.candidate.plan]
                continue
            self.choices[chosen.candidate.plan] = replace(chosen, certificate=certificate)
            yield self.choices[chosen.candidate.plan]

    def _begin(self, calibrating: "Calibrating", left: int) -> None:
        """Begin the next calibration, and as many of those after it as there are free workers."""
        assumed: dict[Plan, float] = {}
        while len(assumed) < left and not (assumed and calibrating.full):
            one = self._next(assumed)
            if one is None:
                return
            calibrating.begin(one.candidate)
            ratios = self._ratios(one, assumed) or [1.0]
            assumed[one.candidate.plan] = one.estimate.noise_multiplier * sum(ratios) / len(ratios)

    def error(self, candidate: Candidate) -> float:
        """The estimated error of a candidate, which becomes a choice; infinite where it cannot be run."""
        plan = candidate.plan
        if plan in self.choices:
            return self.choices[plan].error
        if plan in self.refused:
            return inf
        try:
            if not candidate.fits(self.asked.limits):
                raise InvalidInputError("The rows of noise do not fit in the memory.")
            mechanism = plan.mechanism()
            found = estimate(mechanism, self.asked.epsilon, self.asked.delta)
            unit_error = self.asked.workload.unit_error(mechanism.matrix)
        except _OF_A_CANDIDATE as problem:
            self.refused[plan] = str(problem)
            return inf
        choice = Choice(
            candidate=candidate,
            estimate=found,
            unit_error=unit_error,
            expected_batch=plan.numbers().expected_batch,
            rows=candidate.rows(),
        )
        self.choices[plan] = choice
        return choice.error

    def _climb(self, family: Family, start: tuple[int, ...], step: int) -> tuple[int, ...] | None:
        """The best point that neighbours lead to; None where no point can be run."""
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
        one = family.at(point)
        return inf if one is None else self.error(one)

    def _next(self, assumed: Mapping[Plan, float] | None = None) -> Choice | None:
        """The choice to calibrate next: the least estimate that may still be the best; None when none may be.

        Args:
            assumed: noise multipliers of plans that are taken to be calibrated too.
        """
        assumed = assumed or {}
        known = [one.unit_error * noise / one.expected_batch for one, noise in self._known(assumed)]
        best = min(known, default=inf)

        def hoped(one: Choice) -> tuple[float, float]:
            """Its error as learned from those of its kind, and the least that it may be."""
            ratios = self._ratios(one, assumed)
            likely = one.error * (sum(ratios) / len(ratios) if ratios else 1.0)
            return likely, likely * (1.0 - one.estimate.room * (LEARNED if ratios else 1.0))

        left = [one for one in self.choices.values() if not one.certified and one.candidate.plan not in assumed]
        return min((one for one in left if hoped(one)[1] < best), key=lambda one: hoped(one)[0], default=None)

    def _known(self, assumed: Mapping[Plan, float]) -> list[tuple[Choice, float]]:
        """The choices that are calibrated, or taken to be, with their noise multipliers."""
        certified = [(one, one.noise_multiplier) for one in self.choices.values() if one.certified]
        return certified + [(self.choices[plan], noise) for plan, noise in assumed.items()]

    def _ratios(self, choice: Choice, assumed: Mapping[Plan, float]) -> list[float]:
        """Noise over its estimate, for the known choices that were estimated in the same way."""
        how = choice.estimate.how
        known = [(one.estimate, noise) for one, noise in self._known(assumed) if one.estimate.how == how]
        return [noise / found.noise_multiplier for found, noise in known]


def of_plan(
    plan: Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    workload: Workload | None = None,
    limits: Limits | None = None,
) -> Asked:
    """The question about a plan, with its own target where none is given; recommended plans have the target asked for.

    Raises: InvalidInputError where there is none.
    """
    values = {
        "epsilon": plan.target.epsilon if epsilon is None else epsilon,
        "delta": plan.target.delta if delta is None else delta,
    }
    for name, value in values.items():
        if value is None:
            raise InvalidInputError(f"The 'target.{name}' field is missing; give it in the plan or with --{name}.")
    return Asked(
        plan=plan.model_copy(update={"target": Target(**values)}),
        epsilon=float(values["epsilon"] or 0.0),
        delta=float(values["delta"] or 0.0),
        workload=workload or Workload(),
        limits=limits or Limits(),
    )
