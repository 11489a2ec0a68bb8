"""recommend: which strategy, sampler and bands give the least error for a plan's target."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from time import monotonic

from hockeystick.bounds import Question
from hockeystick.certificate import Certificate
from hockeystick.deadline import Deadline
from hockeystick.plan import Plan
from hockeystick.recommendation.candidates import Candidate, Limits, every
from hockeystick.recommendation.explain import explanation
from hockeystick.recommendation.search import CALIBRATIONS, Asked, Choice, Keep, Search, of_plan
from hockeystick.recommendation.workload import Workload
from hockeystick.settings import MonteCarlo
from hockeystick.sweep import CERTIFIED, Cell, Record, Results, locked

REFINE_SECONDS = 300.0
"""Seconds for the refinement, by default."""


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
        return next((one for one in self.choices if one.candidate.own), None)


def recommend(
    plan: Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    workload: Workload | None = None,
    limits: Limits | None = None,
    budget: float = REFINE_SECONDS,
    calibrations: int = CALIBRATIONS,
    monte_carlo: MonteCarlo | None = None,
    results: str | Path | None = None,
    on_answer: Callable[[Recommendation], None] | None = None,
) -> Recommendation:
    """Which strategy, sampler and bands give the least predicted error for a plan's target.

    The first answer consists of estimates, which promise no side. The refinement calibrates what may be the best:
    every noise multiplier with a certificate is certified.

    Args:
        plan: data and target; its strategy and sampler are one candidate.
        epsilon, delta: the target, in place of the plan's.
        workload: the optimiser whose error counts; by default the mean error of prefix sums.
        limits: memory of the noise, and what the loader can do.
        budget: seconds for the refinement; 0 for the first answer alone.
        calibrations: candidates that are calibrated at most.
        monte_carlo: allows Monte Carlo bounds, and b-min-sep sampling.
        results: file that keeps certificates, to go on from.
        on_answer: called with the first answer, and after every calibration.

    Raises: InvalidInputError for a plan without a target; CannotCertifyError where nothing can be run.

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
    started = monotonic()
    limits = limits or Limits(monte_carlo=monte_carlo is not None)
    asked = of_plan(plan, epsilon=epsilon, delta=delta, workload=workload, limits=limits)
    search = Search(asked)
    search.draft()
    first = monotonic() - started

    def answer() -> Recommendation:
        ranked = sorted(search.ranked(), key=lambda one: not one.certified)
        return Recommendation(
            asked=asked,
            choices=tuple(ranked),
            reasons=tuple(explanation(search, ranked)),
            seconds=(first, monotonic() - started),
        )

    found = answer()
    if on_answer is not None:
        on_answer(found)
    if budget <= 0.0:
        return found
    deadline = Deadline(budget)
    with kept(results, asked, monte_carlo) as keep:
        for _ in search.refine(deadline=deadline, keep=keep, monte_carlo=monte_carlo, calibrations=calibrations):
            found = answer()
            if on_answer is not None:
                on_answer(found)
    return answer()


@contextmanager
def kept(path: str | Path | None, asked: Asked, monte_carlo: MonteCarlo | None = None) -> Iterator[Keep]:
    """Keeps the certificates of candidates in a file of results, as a sweep does; what a deadline cut is not kept."""
    if path is None:
        yield lambda candidate, compute: compute()
        return
    failure = None if monte_carlo is None else monte_carlo.failure_probability
    cells = {one.plan: _cell(one, asked, failure) for one in every(asked.plan, asked.limits)}
    with locked(path):
        file = Results(path, list(cells.values()))

        def keep(candidate: Candidate, compute: Callable[[], Certificate]) -> Certificate:
            cell = cells[candidate.plan]
            record = file.records.get(cell.digest)
            if record is not None and isinstance(record.certificate, Certificate):
                return record.certificate
            start = monotonic()
            certificate = compute()
            if not certificate.cut_off:
                file.add(
                    Record(
                        cell=cell.digest,
                        fields=dict(cell.fields),
                        status=CERTIFIED,
                        seconds=round(monotonic() - start, 4),
                        certificate=certificate,
                    )
                )
            return certificate

        yield keep


def _cell(candidate: Candidate, asked: Asked, failure: float | None) -> Cell:
    plan = candidate.plan.model_copy(update={"strategy": candidate.plan.strategy.pinned()})
    content = plan.model_dump(mode="json", exclude={"target"})
    text = dumps([content, asked.epsilon, asked.delta, failure], sort_keys=True)
    return Cell(
        fields={"candidate": candidate.name},
        plan=candidate.plan,
        question=Question(delta=asked.delta),
        digest=sha256(text.encode()).hexdigest(),
    )
