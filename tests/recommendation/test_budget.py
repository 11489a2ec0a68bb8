"""The budget of a recommendation: kept on any machine, with something certified early and at every interruption."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.calibration.search import rough_certificate
from hockeystick.claim import release_delta
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.execution import executor
from hockeystick.execution.work import settle
from hockeystick.recommendation import calibrations as calibrations_module
from hockeystick.recommendation.calibrations import Calibration, calibrations
from hockeystick.recommendation.explain import explanation
from hockeystick.recommendation.open_plan import OpenPlan
from hockeystick.recommendation.search import Search, of_plan

DATA = {"num_examples": 2000, "batch_size": 100, "epochs": 4}
TARGET = {"epsilon": 4.0, "delta": 1e-5}
BINS = hs.Plan.parse({"data": DATA, "sampler": {"kind": "balls_in_bins"}, "target": TARGET})
LIMITS = hs.Limits(samplers=("poisson", "balls_in_bins"))


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of deadlines, and of the submission of calibrations."""
    clock = Clock()
    begin = hs.Deadline.__init__

    def begun(self, *arguments, **more):
        begin(self, *arguments, **more)
        self.started = clock.now

    monkeypatch.setattr("hockeystick.deadline.time", clock)
    monkeypatch.setattr(hs.Deadline, "__init__", begun)
    monkeypatch.setattr(calibrations_module, "time", clock.time)
    return clock


@pytest.fixture
def slow(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every whole calibration takes 70 seconds by the clock, every rough one 20; the seconds that each was allowed.

    They certify the unamplified Gaussian, which takes no time.
    """
    allowed: list[float] = []

    def taking(seconds: float):
        def calibrate(start, *, epsilon, delta, deadline, **more):
            allowed.append(deadline.remaining())
            clock.now += min(seconds, deadline.remaining())
            mechanism = start.mechanism if isinstance(start, hs.Certificate) else start
            return rough_certificate(mechanism, epsilon=epsilon, delta=delta, near=1.0, deadline=hs.Deadline(0.0))

        return calibrate

    for name, seconds in (("whole_certificate", 70.0), ("refined_certificate", 70.0), ("rough_certificate", 20.0)):
        monkeypatch.setattr(calibrations_module, name, taking(seconds))
    return allowed


def test_the_budget_is_kept_however_long_calibrations_take(clock: Clock, slow: list[float]) -> None:
    start = clock.now
    answers: list[hs.Recommendation] = []
    recommendation = hs.recommend(BINS, limits=LIMITS, budget=60.0, on_answer=answers.append)
    assert clock.now - start <= 66.0
    assert all(seconds <= 60.0 for seconds in slow)
    assert len(slow) >= 3
    assert recommendation.best.certified
    certificate = recommendation.best.certificate
    assert certificate is not None
    assert certificate.bounds.upper <= TARGET["epsilon"]
    assert certificate.mechanism.sigma == recommendation.plan.noise_multiplier
    assert recommendation.seconds[1] == clock.now - start


def test_the_first_certified_answer_comes_before_any_long_calibration(clock: Clock, slow: list[float]) -> None:
    answers: list[hs.Recommendation] = []
    hs.recommend(BINS, limits=LIMITS, budget=60.0, on_answer=answers.append)
    first = next(answer for answer in answers if answer.best.certified)
    assert first.best.estimate.how.startswith("moments")
    assert len([choice for choice in first.choices if choice.certified]) == 1
    assert first.seconds[1] == 20.0


def test_the_first_answer_waits_for_no_engine() -> None:
    """Imports of engines and accountants take longer than all estimates of the first answer."""
    code = (
        "import sys, hockeystick as hs;"
        "plan = hs.Plan.load(sys.argv[1]);"
        "stop = lambda found: sys.exit(' '.join([found.best.candidate.name, *sys.modules]));"
        "hs.recommend(plan, budget=9.0, on_answer=stop)"
    )
    path = Path(__file__).parents[2] / "examples" / "plans" / "mnist-poisson.toml"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    name, *modules = done.stderr.split()
    assert name.startswith("banded_"), done.stderr
    heavy = ("hockeystick.accountants", "hockeystick.certification", "hockeystick.moments", "numba", "scipy")
    assert [module for module in modules if module.startswith(heavy)] == []


def test_with_samples_too_the_first_certified_plan_takes_none(slow: list[float]) -> None:
    """Its bound is certified for what the samples of the others leave of delta."""
    target = hs.MonteCarlo(failure_probability=1e-6)
    answers: list[hs.Recommendation] = []

    def stop(answer: hs.Recommendation) -> None:
        answers.append(answer)
        if answer.best.certified:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hs.recommend(BINS, limits=LIMITS, budget=60.0, monte_carlo=target, on_answer=stop)
    certificate = answers[-1].best.certificate
    assert certificate is not None
    assert certificate.monte_carlo is None
    epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
    assert epsilon <= 4.0
    assert release_delta(delta, 1e-6) <= 1e-5


def test_no_matrix_is_optimised_where_there_is_no_time_for_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, slow: list[float]
) -> None:
    """Where the first plan took more than a third of the budget, what remains is for calibrations."""
    limits = hs.Limits(samplers=("cyclic_poisson",))
    for budget, wanted in ((50.0, set()), (100.0, {"banded_toeplitz"})):
        recommendation = hs.recommend(BINS, limits=limits, budget=budget)
        kinds = {choice.candidate.plan.strategy.kind for choice in recommendation.choices}
        assert kinds & {"banded_toeplitz"} == wanted


def test_what_would_take_longer_than_the_budget_is_left_out_of_the_reasons(slow: list[float]) -> None:
    search = Search(of_plan(BINS, limits=hs.Limits(samplers=("cyclic_poisson",))))
    search.draft()
    ranked = [choice for choice in search.ranked() if choice.candidate.optimised]
    assert any("Twice as many steps" in reason for reason in explanation(search, ranked))
    assert not any("Twice as many steps" in reason for reason in explanation(search, ranked, hurried=True))


def test_a_single_worker_reports_every_calibration_before_the_next(slow: list[float]) -> None:
    begun: list[int] = []
    hs.recommend(BINS, limits=LIMITS, budget=600.0, on_answer=lambda answer: begun.append(len(slow)))
    assert begun[-1] > 2
    assert all(later - earlier <= 1 for earlier, later in pairwise(begun))


class Beside:
    """Two workers whose calibrations are done at once."""

    workers = 2

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def submit(self, call: Callable[[], object]) -> "Future[object]":
        self.events.append("calibration")
        job: Future[object] = Future()
        settle(job, call)
        return job

    def abandon(self) -> None:
        """There is nothing to end."""


def test_workers_begin_before_matrices_are_optimised(slow: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    draft = Search.draft

    def drafted(self: Search) -> None:
        events.append("draft")
        draft(self)

    monkeypatch.setattr(Search, "draft", drafted)
    recommendation = hs.recommend(BINS, limits=LIMITS, budget=600.0, executor=lambda: Beside(events))  # type: ignore[arg-type,return-value]
    assert events[0] == "calibration"
    assert "draft" in events
    assert recommendation.best.certified


def test_an_interruption_leaves_the_best_so_far(slow: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hears the answers has a certified one when a later calibration is stopped."""
    answers: list[hs.Recommendation] = []

    def stopped(mechanism, **more):
        if answers and answers[-1].best.certified:
            raise KeyboardInterrupt
        return rough_certificate(mechanism, **more)

    monkeypatch.setattr(calibrations_module, "rough_certificate", stopped)
    with pytest.raises(KeyboardInterrupt):
        hs.recommend(BINS, limits=LIMITS, budget=60.0, on_answer=answers.append)
    assert answers[-1].best.certified
    assert answers[-1].plan.noise_multiplier == answers[-1].best.noise_multiplier


def test_a_calibration_that_does_not_look_at_its_deadline_is_given_up(clock: Clock) -> None:
    """Its worker hangs: nothing is waited for after the grace, and what is certified stays."""

    class Hanging(type(executor(workers=1))):  # type: ignore[misc]
        def submit(self, call):
            return Future()

    asked, deadline = of_plan(BINS, limits=LIMITS), hs.Deadline(60.0)
    search = Search(asked)
    search.draft()
    with calibrations(asked, spread=Hanging(2, None), deadline=deadline) as calibrating:
        real, waits = calibrating.wait, []

        def wait() -> None:
            waits.append(clock.now)
            clock.now += 59.0 if len(waits) == 1 else 2.0
            assert len(waits) < 10
            if calibrating.late:
                real()

        calibrating.wait = wait  # type: ignore[method-assign]
        taken = list(search.refine(calibrating, deadline=deadline))
    assert [outcome.certified for outcome in taken] == [True]
    assert waits


def test_time_that_a_worker_takes_to_start_counts(clock: Clock) -> None:
    mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=20, epochs=4), strategy=hs.BandedSquareRoot(bands=4))
    call = Calibration(mechanism, 4.0, 1e-5, None, seconds=10.0, near=2.0, submitted=clock.now)
    clock.now += 11.0
    certificate, _, whole = call()
    assert not whole
    assert certificate.bounds.upper <= 4.0


@pytest.mark.parametrize("allowed", [None, hs.MonteCarlo(failure_probability=1e-7)], ids=["deterministic", "sampled"])
def test_kernels_are_not_compiled_outside_the_budget(
    allowed: hs.MonteCarlo | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(*arguments) -> None:
        raise AssertionError("Everything would be compiled, whatever the deadline.")

    monkeypatch.setattr("hockeystick.certification.schedule.warm_up", compiled)
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=20))
    certificate, _, _ = Calibration(mechanism, 4.0, 1e-5, allowed, seconds=60.0)()
    assert certificate.bounds.upper <= 4.0


def test_what_a_deadline_cut_is_not_kept_for_later(slow: list[float], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    hs.recommend(BINS, limits=LIMITS, budget=60.0, results=path)
    assert len(path.read_text().splitlines()) == 1


def test_the_time_of_a_strategy_that_is_not_ready_is_over_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def over(mechanism, **more):
        raise BudgetExceededError("The budget is over before the strategy is optimised.")

    for name in ("whole_certificate", "refined_certificate", "rough_certificate"):
        monkeypatch.setattr(calibrations_module, name, over)
    assert not hs.recommend(BINS, limits=LIMITS, budget=60.0).best.certified


def test_no_sampler_is_needed() -> None:
    """The answer is that for an ordinary plan, but that no candidate is the user's own."""
    open_plan = OpenPlan.parse({"data": DATA, "target": TARGET})
    recommendation = hs.recommend(open_plan, limits=LIMITS, budget=0.0)
    assert recommendation.own is None
    named = hs.recommend(BINS, limits=LIMITS, budget=0.0)
    assert named.own is not None
    assert recommendation.best.candidate.plan == named.best.candidate.plan
    assert type(recommendation.plan) is hs.Plan
    only = hs.recommend(open_plan, limits=hs.Limits(samplers=("random_allocation",)), budget=0.0)
    assert {choice.candidate.plan.sampler.kind for choice in only.choices} == {"random_allocation"}


def test_a_mechanism_is_no_plan() -> None:
    with pytest.raises(InvalidInputError, match=r"The 'plan' argument must be a Plan\. Got Mechanism\(.* instead\."):
        hs.recommend(BINS.mechanism(), limits=LIMITS, budget=0.0)


def test_a_strategy_needs_a_sampler() -> None:
    with pytest.raises(InvalidInputError, match="'sampler' field is missing; a plan that names a strategy"):
        OpenPlan.parse({"data": DATA, "target": TARGET, "strategy": {"kind": "identity"}})


def test_all_estimates_that_take_long_are_preceded_by_the_first_of_them(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = Search.error

    def late(self, candidate):
        clock.now += 0.4
        return estimate(self, candidate)

    monkeypatch.setattr(Search, "error", late)
    answers: list[hs.Recommendation] = []
    hs.recommend(BINS, limits=LIMITS, budget=0.0, on_answer=answers.append)
    assert [bool(answer.reasons) for answer in answers] == [False, False, True]
    assert answers[0].seconds[1] <= 1.5
    assert 0 < len(answers[0].choices) < len(answers[1].choices) < len(answers[2].choices)
