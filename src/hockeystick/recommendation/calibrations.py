"""Calibrations of candidates, by workers or here, and kept in a file of results to go on from."""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from math import inf
from pathlib import Path
from time import time

from hockeystick.calibration.search import (
    refined_certificate,
    rough_certificate,
    whole_certificate,
)
from hockeystick.certificate import Certificate
from hockeystick.deadline import Deadline
from hockeystick.errors import VerificationError, shortened
from hockeystick.execution.base import ChunkExecutor
from hockeystick.execution.registry import executor
from hockeystick.execution.work import one_blas_thread, settle
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.recommendation.candidates import Candidate
from hockeystick.recommendation.search import Asked
from hockeystick.settings import MonteCarlo
from hockeystick.sweep import CERTIFIED, Record, Results, locked

GRACE = 0.05
"""Share of the budget that is left to a calibration, once its deadline has passed, for handing over what it has."""
Calibrated = tuple[Certificate, float, bool]
"""A certificate, the seconds that its calibration took, and whether no deadline cut it."""
Key = tuple[Plan, bool]
"""A candidate's plan, and whether its calibration is a rough one."""


@dataclass(frozen=True)
class Calibration:
    """One calibration, on one thread, so that it ends with the same digits wherever it runs, unless time is over.

    Attributes:
        seconds: allowed, from the submission on, which may be long before a busy worker has started.
        submitted: when that was, by the clock of the calendar, which is the same in all processes.
        near: for a rough calibration, about where the noise multiplier is.
        rough: from which a whole calibration goes on.
    """

    mechanism: Mechanism
    epsilon: float
    delta: float
    monte_carlo: MonteCarlo | None
    seconds: float = inf
    near: float | None = None
    rough: Certificate | None = None
    submitted: float = field(default_factory=time)

    def __call__(self) -> Calibrated:
        """The certificate of the smallest noise multiplier, or of the smallest that was certified in time."""
        deadline = Deadline(self.seconds - max(time() - self.submitted, 0.0))
        with one_blas_thread():
            certificate = self._certificate(deadline)
        return certificate, round(deadline.elapsed(), 4), deadline.remaining() > 0.0

    def _certificate(self, deadline: Deadline) -> Certificate:
        epsilon, delta = self.epsilon, self.delta
        if self.near is not None:
            return rough_certificate(self.mechanism, epsilon=epsilon, delta=delta, near=self.near, deadline=deadline)
        if self.rough is not None:
            return refined_certificate(self.rough, epsilon=epsilon, delta=delta, deadline=deadline)
        return whole_certificate(
            self.mechanism, epsilon=epsilon, delta=delta, deadline=deadline, monte_carlo=self.monte_carlo
        )


class Calibrations:
    """The calibrations of one search; see :func:`calibrations`."""

    def __init__(
        self,
        asked: Asked,
        delta: float,
        monte_carlo: MonteCarlo | None,
        spread: ChunkExecutor,
        path: str | Path | None,
        deadline: Deadline,
    ) -> None:
        self.asked, self.delta, self.monte_carlo, self.deadline = asked, delta, monte_carlo, deadline
        self._spread = spread
        self._name = shortened(str(path))
        self._file = None if path is None else Results(path, None)
        self._begun: dict[Key, Future[Calibrated]] = {}
        self._running: dict[tuple[Candidate, bool], Future[Calibrated]] = {}

    @property
    def full(self) -> bool:
        """Whether all workers have something to do."""
        return len(self._running) >= self._spread.workers

    @property
    def beside(self) -> bool:
        """Whether there are workers beside this process; a single one makes its calibrations here."""
        return self._spread.workers > 1

    @property
    def late(self) -> bool:
        """Whether the budget is over, so that no calibration is waited for any more."""
        return self.deadline.remaining() <= 0.0

    @property
    def roughly(self) -> bool:
        """Whether rough calibrations are of use: those with samples are whole at once."""
        return self.monte_carlo is None

    def begun(self, candidate: Candidate, rough: bool = False) -> bool:
        """Whether a calibration runs or is done."""
        return (candidate.plan, rough) in self._begun

    def done(self, candidate: Candidate, rough: bool = False) -> bool:
        """Whether :meth:`result` returns at once."""
        return self.begun(candidate, rough) and self._begun[candidate.plan, rough].done()

    @property
    def running(self) -> bool:
        """Whether some calibration runs."""
        return bool(self._running)

    def begin(self, candidate: Candidate, near: float | None = None, rough: Certificate | None = None) -> None:
        """Start a calibration, unless it has begun or the file has it. With a single worker, it is done on return.

        Args:
            near: for a rough calibration, about where the noise multiplier is.
            rough: the certificate from which a whole calibration goes on.
        """
        key = (candidate.plan, near is not None)
        if key in self._begun or self._is_kept(candidate, key):
            return
        self._begun[key] = self._running[candidate, near is not None] = self._spread.submit(
            self._call(candidate, near, rough)
        )
        self._keep_finished()

    def calibrate_here(self, candidate: Candidate, near: float) -> None:
        """Make a rough calibration in this process: for a quick one, while workers would only be starting."""
        key = (candidate.plan, True)
        if key not in self._begun:
            self._begun[key] = Future()
            settle(self._begun[key], self._call(candidate, near, None))

    def _call(self, candidate: Candidate, near: float | None, rough: Certificate | None) -> Calibration:
        """The calibration, which ends a little before the budget does."""
        seconds = max((1.0 - GRACE) * self.deadline.seconds - self.deadline.elapsed(), 0.0)
        mechanism = candidate.plan.mechanism()
        return Calibration(mechanism, self.asked.epsilon, self.delta, self.monte_carlo, seconds, near, rough)

    def _is_kept(self, candidate: Candidate, key: Key) -> bool:
        """Take the result from the file, if it has one."""
        certificate = self.kept(candidate)
        if certificate is None:
            return False
        self._begun[key] = Future()
        self._begun[key].set_result((certificate, 0.0, True))
        return True

    def wait(self) -> None:
        """Return when a calibration that runs is done and kept, or when it is late."""
        left = self.deadline.remaining()
        wait(self._running.values(), None if left == inf else left, return_when=FIRST_COMPLETED)
        self._keep_finished()

    def result(self, candidate: Candidate, rough: bool = False) -> tuple[Certificate, bool]:
        """The certificate, and whether no deadline cut the calibration; raises what the calibration raised."""
        certificate, _, whole = self._begun[candidate.plan, rough].result()
        return certificate, whole

    def certificate(self, candidate: Candidate) -> Certificate:
        """The certificate of a whole calibration, waited for; raises what the calibration raised."""
        self.begin(candidate)
        while not self.done(candidate):
            self.wait()
        return self.result(candidate)[0]

    def _keep_finished(self) -> None:
        for (candidate, rough), job in list(self._running.items()):
            if not job.done():
                continue
            del self._running[candidate, rough]
            if job.exception() is None and not rough:
                certificate, seconds, whole = job.result()
                if whole:
                    self.keep(candidate, certificate, seconds)

    def keep(self, candidate: Candidate, certificate: Certificate, seconds: float) -> None:
        """Add a certificate to the file; it is on the disk when this returns."""
        if self._file is None:
            return
        self._file.add(
            Record(
                cell=self._digest(candidate),
                fields={"candidate": candidate.name},
                status=CERTIFIED,
                seconds=seconds,
                certificate=certificate,
            )
        )

    def kept(self, candidate: Candidate) -> Certificate | None:
        """The certificate that the file has for a candidate and the target.

        Raises: VerificationError for one that is about something else.
        """
        record = None if self._file is None else self._file.records.get(self._digest(candidate))
        if record is None or not isinstance(record.certificate, Certificate):
            return None
        if not self._answers(record.certificate, candidate):
            raise VerificationError(
                f"The results {self._name} were altered: the certificate of {candidate.name} is not of this candidate "
                f"and target."
            )
        return record.certificate

    def _answers(self, certificate: Certificate, candidate: Candidate) -> bool:
        """Whether a certificate is about this candidate, for at most the target, and fails no oftener than allowed."""
        mechanism = candidate.plan.mechanism().pinned().with_noise(certificate.mechanism.sigma)
        epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
        allowed = 0.0 if self.monte_carlo is None else self.monte_carlo.failure_probability
        failure = 0.0 if certificate.monte_carlo is None else certificate.monte_carlo.failure_probability
        same = certificate.mechanism == mechanism
        return same and epsilon <= self.asked.epsilon and delta <= self.delta and failure <= allowed

    def _digest(self, candidate: Candidate) -> str:
        plan = candidate.plan.model_copy(update={"strategy": candidate.plan.strategy.pinned()})
        content = plan.model_dump(mode="json", exclude={"target"})
        failure = None if self.monte_carlo is None else self.monte_carlo.failure_probability
        text = dumps([content, self.asked.epsilon, self.asked.delta, failure], sort_keys=True)
        return sha256(text.encode()).hexdigest()


@contextmanager
def calibrations(
    asked: Asked,
    *,
    delta: float | None = None,
    monte_carlo: MonteCarlo | None = None,
    spread: ChunkExecutor | None = None,
    results: str | Path | None = None,
    deadline: Deadline | None = None,
) -> Iterator[Calibrations]:
    """The calibrations for a question; those that are not done when the block ends are given up.

    Args:
        delta: what each calibration has to meet; the target's by default.
        monte_carlo: of each calibration.
        spread: the workers; one after the other in this process by default, and with Monte Carlo bounds, whose samples
            are spread instead.
        results: a file that may have results for other questions too.
        deadline: when calibrations end with what they have certified.

    Raises: as :class:`~hockeystick.sweep.Results`.
    """
    spread = executor(workers=1) if spread is None or monte_carlo is not None else spread
    with nullcontext() if results is None else locked(results):
        try:
            at = asked.delta if delta is None else delta
            yield Calibrations(asked, at, monte_carlo, spread, results, deadline or Deadline())
        finally:
            spread.abandon()
