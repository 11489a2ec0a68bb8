"""Calibrations of candidates, by workers or here, and kept in a file of results to go on from."""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from time import monotonic

from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.certificate import Certificate
from hockeystick.errors import VerificationError, shortened
from hockeystick.execution.base import ChunkExecutor
from hockeystick.execution.registry import executor
from hockeystick.execution.work import one_blas_thread
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.recommendation.candidates import Candidate
from hockeystick.recommendation.search import Asked
from hockeystick.settings import MonteCarlo
from hockeystick.sweep import CERTIFIED, Record, Results, locked

Calibrated = tuple[Certificate, float]
"""A certificate, and the seconds that its calibration took."""


@dataclass(frozen=True)
class Calibration:
    """One calibration, on one thread, so that it ends with the same digits wherever it runs. No deadline cuts it."""

    mechanism: Mechanism
    epsilon: float
    delta: float
    monte_carlo: MonteCarlo | None

    def __call__(self) -> Calibrated:
        """The certificate of the smallest noise multiplier."""
        start = monotonic()
        with one_blas_thread():
            certificate = calibrate_and_certify(
                self.mechanism, epsilon=self.epsilon, delta=self.delta, monte_carlo=self.monte_carlo
            )
        return certificate, round(monotonic() - start, 4)


class Calibrations:
    """The calibrations of one search; see :func:`calibrations`."""

    def __init__(
        self, asked: Asked, delta: float, monte_carlo: MonteCarlo | None, spread: ChunkExecutor, path: str | Path | None
    ) -> None:
        self.asked, self.delta, self.monte_carlo = asked, delta, monte_carlo
        self._spread = spread
        self._name = shortened(str(path))
        self._file = None if path is None else Results(path, None)
        self._begun: dict[Plan, Future[Calibrated]] = {}
        self._running: dict[Candidate, Future[Calibrated]] = {}

    @property
    def full(self) -> bool:
        """Whether all workers have something to do."""
        return len(self._running) >= self._spread.workers

    def begun(self, candidate: Candidate) -> bool:
        """Whether a calibration runs or is done."""
        return candidate.plan in self._begun

    def done(self, candidate: Candidate) -> bool:
        """Whether :meth:`result` returns at once."""
        return self.begun(candidate) and self._begun[candidate.plan].done()

    def begin(self, candidate: Candidate) -> None:
        """Start a calibration, unless it has begun or the file has it. With a single worker, it is done on return."""
        if self.begun(candidate):
            return
        found = self.kept(candidate)
        if found is not None:
            self._begun[candidate.plan] = Future()
            self._begun[candidate.plan].set_result((found, 0.0))
            return
        call = Calibration(candidate.plan.mechanism(), self.asked.epsilon, self.delta, self.monte_carlo)
        self._begun[candidate.plan] = self._running[candidate] = self._spread.submit(call)
        self._keep_finished()

    def wait(self) -> None:
        """Return when a calibration that runs is done and kept."""
        wait(self._running.values(), return_when=FIRST_COMPLETED)
        self._keep_finished()

    def result(self, candidate: Candidate) -> Certificate:
        """The certificate, waited for; raises what the calibration raised."""
        self.begin(candidate)
        while not self.done(candidate):
            self.wait()
        return self._begun[candidate.plan].result()[0]

    def _keep_finished(self) -> None:
        for candidate, job in list(self._running.items()):
            if job.done():
                del self._running[candidate]
                if job.exception() is None:
                    self.keep(candidate, *job.result())

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
) -> Iterator[Calibrations]:
    """The calibrations for a question; those that are not done when the block ends are given up.

    Args:
        delta: what each calibration has to meet; the target's by default.
        monte_carlo: of each calibration.
        spread: the workers; one after the other in this process by default, and with Monte Carlo bounds, whose samples
            are spread instead.
        results: a file that may have results for other questions too.

    Raises: as :class:`~hockeystick.sweep.Results`.
    """
    spread = executor(workers=1) if spread is None or monte_carlo is not None else spread
    with nullcontext() if results is None else locked(results):
        try:
            yield Calibrations(asked, asked.delta if delta is None else delta, monte_carlo, spread, results)
        finally:
            spread.abandon()
