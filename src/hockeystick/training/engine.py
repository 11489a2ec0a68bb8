"""What the engines of all frameworks share: a plan, its run, and the certificate of what was run."""

from typing import Any

from hockeystick.certificate import Certificate
from hockeystick.certification.issue import certify
from hockeystick.errors import InvalidInputError, ViolationError
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.training.record import RunRecord
from hockeystick.training.run import Run


class Engine:
    """A plan or a mechanism with a noise multiplier, and the one run of it that an engine makes.

    Attributes:
        mechanism: what is run.
        delta: the plan's target; None of a mechanism.

    Raises: InvalidInputError for what is neither a Plan nor a Mechanism, and for one without noise multiplier.
    """

    def __init__(self, plan: Plan | Mechanism) -> None:
        if not isinstance(plan, Plan | Mechanism):
            raise InvalidInputError(
                f"The 'plan' argument must be a Plan or a Mechanism. Got an object of type {type(plan).__name__!r}."
            )
        self.mechanism = plan.mechanism() if isinstance(plan, Plan) else plan
        _ = self.mechanism.sigma  # a plan without noise is refused here
        self.delta = plan.target.delta if isinstance(plan, Plan) else None
        self._num_examples: int | None = (
            plan.data.num_examples if isinstance(plan, Plan) else getattr(self.mechanism.sampler, "num_examples", None)
        )
        self._run: Run | None = None
        self._certificates: dict[tuple[Mechanism, float], Certificate] = {}

    @property
    def also_checked(self) -> tuple[str, ...]:
        """Promises that the framework's part checks, which a run alone takes on trust."""
        return ()

    @property
    def run(self) -> Run:
        """The run; raises InvalidInputError before ``make_private``."""
        if self._run is None:
            raise InvalidInputError("There is no run yet; call make_private first.")
        return self._run

    def certificate(self, delta: float | None = None, *, executed: bool = False, **options: Any) -> Certificate:
        """The certificate of the run, as :func:`hockeystick.certify` gives it for the plan's mechanism.

        It covers the whole plan, and every early stop that is decided from what was released. Computed once per delta.

        Args:
            delta: the plan's target by default.
            executed: certify the executed steps alone, where they are a mechanism by themselves: only for a number of
                steps that depends on nothing private, and has not been chosen by looking at the training.
            options: of :func:`hockeystick.certify`.

        Raises: InvalidInputError without a delta, and where the executed steps are not a mechanism by themselves;
        ViolationError after a broken promise.
        """
        chosen = self.delta if delta is None else delta
        if chosen is None:
            raise InvalidInputError("The 'delta' argument has to be given, as the plan has no target delta.")
        if self._run is not None and self._run.record().violations:
            raise ViolationError(
                f"The run broke the promise {self._run.record().violations[0]!r}, so no certificate covers it."
            )
        mechanism = self.run.executed() if executed else self.mechanism
        if mechanism is None:
            raise InvalidInputError(
                "The executed steps are not a mechanism by themselves; leave out executed=True for the plan's "
                "certificate, which covers them."
            )
        if options:
            return certify(mechanism, delta=chosen, **options)
        if (mechanism, chosen) not in self._certificates:
            self._certificates[mechanism, chosen] = certify(mechanism, delta=chosen)
        return self._certificates[mechanism, chosen]

    def record(self, certificate: Certificate | None = None, *, stopped_without_looking: bool = False) -> RunRecord:
        """The record of the run; see :meth:`hockeystick.training.Run.record`."""
        return self.run.record(
            certificate, stopped_without_looking=stopped_without_looking, also_checked=self.also_checked
        )
