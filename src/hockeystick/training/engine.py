"""What the engines of all frameworks share: a plan, its noise, its run, and the certificate of what was run."""

import warnings
from typing import Any, ClassVar

from hockeystick.bounds import Question
from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.calls import called, outside
from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError, ViolationError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan, Target, instead_of
from hockeystick.training.progress import Progress, certify_shown
from hockeystick.training.record import RunRecord
from hockeystick.training.run import Run
from hockeystick.training.spent import Spending, Spent, rounded_up, whose


class Engine:
    """A plan or a mechanism, and the one run of it that an engine makes.

    Args:
        plan: with a noise multiplier, or a plan with a target, for which it is calibrated when the run is made; None
            where what the run is made of says the plan.

    Attributes:
        delta: of the target; None where there is none.
        has_end: whether the number of steps is planned; without an end, certificates are about the executed steps.

    Raises: InvalidInputError for what is neither a Plan nor a Mechanism.
    """

    BEGINS: ClassVar[str] = "make_private"

    def __init__(self, plan: Plan | Mechanism | None) -> None:
        if plan is not None and not isinstance(plan, Plan | Mechanism):
            raise InvalidInputError(
                f"The 'plan' argument must be a Plan or a Mechanism. Got {shortened(plan)} instead{instead_of(plan)}."
            )
        self._plan = plan
        self._mechanism: Mechanism | None = None
        self._target = Target()
        self._num_examples: int | None = None
        self._epochs: float | None = None
        self._batch_size: float | None = None
        if plan is not None:
            self._adopt(plan)
        self.has_end = True
        self._run: Run | None = None
        self._certificates: dict[tuple[Mechanism, float], Certificate] = {}
        self._spending: dict[float, Spending] = {}
        self._leads = True  # of several processes, the one that calibrates and shows progress

    def _adopt(self, plan: Plan | Mechanism) -> None:
        """Take what a plan says."""
        if isinstance(plan, Mechanism):
            self._mechanism = plan
            self._num_examples = getattr(plan.sampler, "num_examples", None)
            return
        self._mechanism, self._target = plan.mechanism(), plan.target
        self._num_examples, self._epochs = plan.data.num_examples, plan.data.epochs
        self._batch_size = plan.data.expected_batch

    @property
    def mechanism(self) -> Mechanism:
        """What is run; raises InvalidInputError without a plan, before ``make_private``."""
        if self._mechanism is None:
            raise InvalidInputError("There is no plan yet; call make_private first, which makes it from the loader.")
        return self._mechanism

    @property
    def delta(self) -> float | None:
        """The target's; None where there is none."""
        return self._target.delta

    @property
    def also_checked(self) -> tuple[str, ...]:
        """Promises that the framework's part checks, which a run alone takes on trust."""
        return ()

    @property
    def also_asserted(self) -> tuple[str, ...]:
        """Promises that runs of this framework need beside those of every run."""
        return ()

    @property
    def rho(self) -> float | None:
        """How much of the clipping norm other examples' whole numbers may change by; None where nothing was stated."""
        return None

    @property
    def run(self) -> Run:
        """The run; raises InvalidInputError before ``make_private``, or what else begins it."""
        if self._run is None:
            raise InvalidInputError(f"There is no run yet; call {self.BEGINS} first.")
        return self._run

    def _settle(self, noise_multiplier: float | None = None, target: Target | None = None) -> None:
        """Give the mechanism its noise: its own, the one that is given, or the smallest that is certified for a target.

        Raises: InvalidInputError where two of these disagree, or there is none of them.
        """
        given = self.mechanism.noise_multiplier
        if target is not None:
            for name in ("epsilon", "delta"):
                planned, asked = getattr(self._target, name), getattr(target, name)
                if planned not in (None, asked):
                    raise InvalidInputError(
                        f"The 'target_{name}' argument must be the plan's, {planned!r}. Got {asked!r} instead."
                    )
            if given is not None:
                raise InvalidInputError(
                    f"The plan has noise_multiplier = {given!r} already, and a target epsilon needs a noise of its "
                    "own; leave it out of the plan, or call make_private."
                )
            self._target = target
        if noise_multiplier is not None and given is None:
            if self._target.epsilon is not None:
                raise InvalidInputError(
                    "The 'noise_multiplier' argument must be left out, as it follows from the target epsilon = "
                    f"{self._target.epsilon!r}. Got {noise_multiplier!r} instead."
                )
            self._mechanism = self.mechanism.with_noise(noise_multiplier)
        elif noise_multiplier is not None and noise_multiplier != given:
            raise InvalidInputError(
                f"The 'noise_multiplier' argument must be the plan's, {given!r}, or be left out. "
                f"Got {noise_multiplier!r} instead."
            )
        epsilon, delta = self._target.epsilon, self._target.delta
        if self.mechanism.noise_multiplier is None and epsilon is not None and delta is not None:
            certificate = self._calibrated(epsilon, delta)
            self._mechanism = certificate.mechanism
            self._certificates[certificate.mechanism, delta] = certificate
        _ = self.mechanism.sigma  # a plan without noise is refused here

    def _calibrated(self, epsilon: float, delta: float) -> Certificate:
        """For at most the target, of the mechanism with the smallest noise; says how it goes on, on stderr."""
        with Progress(f"calibrating the noise for epsilon = {epsilon!r} at delta = {delta!r}") as progress:
            progress.begin()
            certificate = calibrate_and_certify(
                self.mechanism, epsilon=epsilon, delta=delta, deadline=progress.deadline
            )
            progress.done(f"noise_multiplier = {certificate.mechanism.sigma!r}")
        return certificate

    def certificate(self, delta: float | None = None, *, executed: bool = False, **options: Any) -> Certificate:
        """The certificate of the plan's mechanism, from its calibration or from :func:`hockeystick.certify`.

        It covers the whole plan, and every early stop that is decided from what was released. A run without an end has
        that of the executed steps. Computed once per delta; progress is shown on stderr where that takes long.

        Args:
            delta: the target's by default.
            executed: certify the executed steps alone, where they are a mechanism by themselves: only for a number of
                steps that depends on nothing private, and has not been chosen by looking at the training.
            options: of :func:`hockeystick.certify`.

        Raises: InvalidInputError without a delta, and where the executed steps are not a mechanism by themselves;
        ViolationError after a broken promise.
        """
        chosen = self.delta if delta is None else delta
        if chosen is None:
            raise InvalidInputError("The 'delta' argument has to be given, as the plan has no target delta.")
        self._refuse_after_violation()
        mechanism = self.run.executed() if executed or not self.has_end else self.mechanism
        if mechanism is None:
            raise InvalidInputError(
                "The executed steps are not a mechanism by themselves; leave out executed=True for the plan's "
                "certificate, which covers them."
                if self.has_end
                else "There is no certificate before the first step, as nothing was released."
            )
        steps = whose(self.run, mechanism.sampler.steps)
        if options:
            return certify_shown(mechanism, steps, shown=self._leads, delta=chosen, **options)
        return self._certified(mechanism, chosen, steps)

    def _certified(self, mechanism: Mechanism, delta: float, steps: str) -> Certificate:
        """What is certified at one delta, once."""
        if (mechanism, delta) not in self._certificates:
            self._certificates[mechanism, delta] = certify_shown(mechanism, steps, shown=self._leads, delta=delta)
        return self._certificates[mechanism, delta]

    def _refuse_after_violation(self) -> None:
        if self._run is not None and self._run.violations:
            raise ViolationError(f"The run broke the promise {self._run.violations[0]!r}, so no certificate covers it.")

    def spent(self, delta: float | None = None) -> Spent:
        """The epsilon of the steps so far, and whose it is; quick after the first call, so that every step can log it.

        As with ``certificate(executed=True)`` it holds for a number of steps that was not chosen by looking at the
        training. ``hockeystick.training.spent.Spending`` says how. A first call that takes long shows its progress on
        stderr, and whose epsilon it certifies.

        Args:
            delta: the target's by default.

        Raises: InvalidInputError without a delta or a run, ViolationError after a broken promise.
        """
        chosen = self.delta if delta is None else delta
        if chosen is None:
            raise InvalidInputError("The 'delta' argument has to be given, as the plan has no target delta.")
        self._refuse_after_violation()
        Question(delta=chosen)  # refuses what is no delta
        if chosen not in self._spending:
            self._spending[chosen] = Spending(self.run, chosen, has_end=self.has_end, certified=self._certified)
        return self._spending[chosen].after(self.run)

    @called("engine.get_epsilon(1e-5)")
    def get_epsilon(self, delta: float) -> float:
        """The epsilon of :meth:`spent`; warns once where that is the epsilon of more steps than were taken."""
        spent = self.spent(delta)
        if spent.steps > rounded_up(self.run.step) and not self._warned:
            self._warned = True
            warnings.warn(
                f"get_epsilon returns the epsilon of {spent.whose}, which cover the {self.run.step} so far: those "
                "have none of their own, or one that takes long to certify.",
                stacklevel=outside(),
            )
        return spent.epsilon

    _warned = False

    def record(self, certificate: Certificate | None = None, *, stopped_without_looking: bool = False) -> RunRecord:
        """The record of the run; see :meth:`hockeystick.training.Run.record`."""
        return self.run.record(
            certificate,
            stopped_without_looking=stopped_without_looking,
            also_checked=self.also_checked,
            also_asserted=self.also_asserted,
            rho=self.rho,
        )
