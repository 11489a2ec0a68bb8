"""recommend: which strategy, sampler and bands give the least error for a plan's target."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hockeystick.calls import called, made_by
from hockeystick.claim import verification_target
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, shortened
from hockeystick.plan import Plan
from hockeystick.recommendation.candidates import Limits, every
from hockeystick.recommendation.explain import explanation
from hockeystick.recommendation.search import CALIBRATIONS, Asked, Choice, Search, of_plan
from hockeystick.recommendation.workload import Workload
from hockeystick.settings import MonteCarlo
from hockeystick.spec import expect_kind, real_number

if TYPE_CHECKING:
    from hockeystick.execution.base import ChunkExecutor

BUDGET = 300.0
"""Seconds in all, by default."""
EARLY_SECONDS = 1.0
"""Where the estimates take longer than this, those that are there are a first answer."""


@made_by("hs.recommend(plan, epsilon=2.0, delta=1e-5)")
@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The choices for a plan, the least error first, and why.

    Attributes:
        asked: plan, target, workload and limits.
        choices: candidates with their noise and error. Those that were calibrated come first: the error of the others
            is estimated.
        reasons: sentences that explain the first choice.
        seconds: time taken, of the first answer and in all.
    """

    asked: Asked
    choices: tuple[Choice, ...]
    reasons: tuple[str, ...]
    seconds: tuple[float, float]

    @property
    def best(self) -> Choice:
        """The recommended choice."""
        return self.choices[0]

    @property
    def plan(self) -> Plan:
        """The recommended plan; with its noise multiplier where that was calibrated."""
        return self.best.plan

    @property
    def own(self) -> Choice | None:
        """The choice that the user's plan names; None where it cannot be run."""
        return next((choice for choice in self.choices if choice.candidate.own), None)


@called("hs.recommend(plan, epsilon=2.0, delta=1e-5)")
def recommend(
    plan: Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    workload: Workload | None = None,
    limits: Limits | None = None,
    budget: float = BUDGET,
    calibrations: int = CALIBRATIONS,
    monte_carlo: MonteCarlo | None = None,
    executor: "ChunkExecutor | Callable[[], ChunkExecutor] | None" = None,
    results: str | Path | None = None,
    on_answer: Callable[[Recommendation], None] | None = None,
) -> Recommendation:
    """Which strategy, sampler and bands give the least predicted error for a plan's target.

    The first answer consists of estimates, which promise no side. The refinement calibrates what may be the best:
    every noise multiplier with a certificate is certified.

    Args:
        plan: data and target; its strategy and sampler are one candidate, unless an OpenPlan leaves the sampler open.
        epsilon, delta: the target, in place of the plan's.
        workload: the optimiser whose error counts; by default the mean error of prefix sums.
        limits: memory of the noise, and what the loader can do.
        budget: seconds in all, kept to a tenth; 0 for the estimates alone, which take seconds.
        calibrations: candidates that are calibrated at most, not counting a quick one for the first certified answer.
        monte_carlo: allows Monte Carlo bounds, and b-min-sep sampling. Its failure probability, a part of delta, is
            that of all candidates together, as what the samples say decides which one is recommended.
        executor: workers that calibrate candidates side by side (``hockeystick.execution.executor``); by default, and
            with ``monte_carlo``, whose samples are spread instead, one candidate follows the other. May be a function
            that makes them, which is called after the first answer. The number of workers has no influence on the
            answer, except where the budget ends the refinement.
        results: file that keeps certificates, to go on from; it may have those of other targets and limits too.
        on_answer: called with the estimates, and after every calibration. Before all estimates are there, it is called
            with the first of them, and answers have no reasons.

    Raises: InvalidInputError for arguments of other types, for a plan without a target, or a failure probability that
        is not below delta; CannotCertifyError where nothing can be run; VerificationError for altered results.

    >>> import hockeystick as hs
    >>> plan = hs.Plan.parse({
    ...     "data": {"num_examples": 1000, "batch_size": 100, "epochs": 2},
    ...     "sampler": {"kind": "poisson"},
    ...     "target": {"epsilon": 4.0, "delta": 1e-5},
    ... })
    >>> limits = hs.Limits(samplers=("poisson", "random_allocation"))
    >>> hs.recommend(plan, limits=limits, budget=0).best.candidate.name
    'identity, random_allocation'
    """
    for name, given, kind, wanted in (
        ("workload", workload, Workload, "a Workload, such as hs.Workload(momentum=0.9)"),
        ("limits", limits, Limits, "Limits, such as hs.Limits(samplers=('poisson',))"),
        ("monte_carlo", monte_carlo, MonteCarlo, "an hs.MonteCarlo, such as hs.MonteCarlo(), or None"),
    ):
        expect_kind(name, given, kind, wanted)
    if on_answer is not None and not callable(on_answer):
        raise InvalidInputError(
            f"The 'on_answer' argument must be a function of a Recommendation. Got {shortened(on_answer)} instead."
        )
    budget = real_number("budget", budget)
    deadline = Deadline(budget)
    limits = limits or Limits(monte_carlo=monte_carlo is not None)
    asked = of_plan(plan, epsilon=epsilon, delta=delta, workload=workload, limits=limits)
    sampled, delta = (None, asked.delta) if monte_carlo is None else shared(monte_carlo, asked)
    search, first, answers = Search(asked), [0.0], []

    def answer(*, whole: bool = True) -> Recommendation:
        ranked = sorted(search.ranked(), key=lambda choice: not choice.certified)
        recommendation = Recommendation(
            asked=asked,
            choices=tuple(ranked),
            reasons=tuple(explanation(search, ranked, hurried=0.0 < budget < deadline.elapsed())) if whole else (),
            seconds=(first[0] or deadline.elapsed(), deadline.elapsed()),
        )
        answers.append(recommendation)
        if on_answer is not None:
            on_answer(recommendation)
        return recommendation

    def early() -> None:
        if not answers and deadline.elapsed() > EARLY_SECONDS:
            answer(whole=False)

    search.begin(early)
    if search.choices and (budget <= 0.0 or deadline.remaining() > 0.0):
        answer(whole=False)
    if budget <= 0.0:
        search.draft()
        first[0] = deadline.elapsed()
        return answer()
    # From here on, kernels are needed: their imports alone take longer than all that was done so far.
    from hockeystick.execution.base import ChunkExecutor
    from hockeystick.recommendation.calibrations import calibrations as calibrations_of

    workers = executor if executor is None or isinstance(executor, ChunkExecutor) else executor()
    with calibrations_of(
        asked,
        delta=delta,
        monte_carlo=sampled,
        spread=workers,
        results=results,
        deadline=deadline,
    ) as calibrating:
        if search.choices and deadline.remaining() > 0.0:
            for _ in search.quick(calibrating):
                answer(whole=False)
        search.begin_beside(calibrating, deadline)
        # Optimisers and their imports take about as long as all of this did, and longer beside workers.
        if deadline.remaining() > 2.0 * deadline.elapsed() or not search.choices:
            with suppress(BudgetExceededError), deadline.covering():
                search.draft()
        first[0] = deadline.elapsed()
        recommendation = answer()
        for _ in search.refine(calibrating, deadline=deadline, most=calibrations):
            recommendation = answer()
    return replace(recommendation, seconds=(first[0], deadline.elapsed()))


def shared(monte_carlo: MonteCarlo, asked: Asked) -> tuple[MonteCarlo, float]:
    """The failure probability and the delta of each candidate, so that the choice of the best one meets the target.

    All candidates together fail with at most the probability q that was given, and each is verified for at most the
    delta' of ``release_delta(delta', q)`` = delta; the bound on q is a sum over candidates.

    Raises: InvalidInputError when that is not below delta, of which it is a part.
    """
    monte_carlo.check_part_of(asked.delta)
    total = monte_carlo.failure_probability
    each = replace(monte_carlo, failure_probability=total / sum(1 for _ in every(asked.plan, asked.limits)))
    return each, verification_target(asked.delta, total)
