"""Calibration by estimate-verify-release: less noise than without samples, and a delta that pays for the test.

Monte Carlo tests err with probability 1e-9 at most; seeds are fixed.
"""

from typing import ClassVar, cast

import pytest

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BinaryTree,
    BMinSep,
    Certificate,
    Deadline,
    Kind,
    Mechanism,
    MonteCarlo,
    MultiAttribution,
    Poisson,
    SearchPolicy,
    calibrate,
    certify,
)
from hockeystick.accountants.monte_carlo import known_upper
from hockeystick.bounds import Profile, Question
from hockeystick.calibration.estimate_verify_release import (
    AIM,
    STEP,
    TEST_SHARE,
    Release,
    _planned,
    _Trial,
    verified_release,
)
from hockeystick.calibration.search import SMALL_PART, calibrate_and_certify
from hockeystick.certification.verification import verify
from hockeystick.claim import Statement, release_delta
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.execution import executor
from hockeystick.monte_carlo.acceptance import CANDIDATE_SHARES, Acceptance
from hockeystick.monte_carlo.aims import Aim
from hockeystick.monte_carlo.statistics import failure_spent
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import MemoryLedger
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

CORRELATED = Mechanism(strategy=BandedSquareRoot(bands=3), sampler=BallsInBins(bins=8, epochs=2))
EPSILON, DELTA = 1.0, 1e-4


def test_the_released_mechanism_has_less_noise_and_a_certificate_that_verifies() -> None:
    without = calibrate(CORRELATED, epsilon=EPSILON, delta=DELTA, method="bin_renyi")
    found = calibrate_and_certify(
        CORRELATED, epsilon=EPSILON, delta=DELTA, method="gaussian", monte_carlo=MonteCarlo(seed=1), budget=300
    )
    claim = found.monte_carlo
    assert claim is not None
    assert claim.statement is Statement.ESTIMATE_VERIFY_RELEASE
    assert found.mechanism.sigma < 0.97 * without.sigma
    assert found.bounds.upper <= EPSILON
    assert found.method.lower == "monte_carlo"
    assert found.bounds.gap is not None
    assert found.bounds.gap < 0.05
    said = str(found)
    assert (
        "delta includes the probability 1e-09 that the random test errs; the lower bound fails with probability" in said
    )
    assert verify(found).bounds == found.bounds
    # What was verified, at a delta that is smaller by the failure probability of the test.
    (remove, *_) = [one.run for one in claim.runs]
    assert all(node.epsilon < EPSILON for node in remove.nodes)
    # Half of the failure probability is for tests, the other half for lower bounds; each candidate has a share of both.
    runs = [one.run for one in claim.runs]
    below = [run for run in runs if any(node.side is Side.LOWER for node in run.nodes)]
    assert below
    most = 0.5 * claim.failure_probability * max(CANDIDATE_SHARES) * (1.0 + 1e-12)
    assert failure_spent(below) <= most
    assert failure_spent([run for run in runs if run not in below]) <= most
    # An independent look at the same mechanism, with a failure probability of its own.
    look = certify(found.mechanism, epsilon=EPSILON, method="monte_carlo", monte_carlo=MonteCarlo(seed=2, ratio=0.04))
    assert look.bounds.lower is not None
    assert look.bounds.lower <= DELTA
    assert look.bounds.upper >= 0.9 * DELTA  # and not much noise was wasted


def test_what_cannot_be_sampled_is_calibrated_without() -> None:
    options = MonteCarlo(seed=1)
    plain = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=10))
    found = calibrate_and_certify(plain, epsilon=EPSILON, delta=DELTA, monte_carlo=options)
    assert found.kind is Kind.DETERMINISTIC
    assert found.bounds.upper <= EPSILON
    truncated = Mechanism(
        strategy=BandedSquareRoot(bands=2),
        sampler=Poisson(sampling_prob=0.05, steps=6, truncated_batch_size=30, num_examples=200),
    )
    assert calibrate_and_certify(truncated, epsilon=2.0, delta=1e-3, monte_carlo=options).kind is Kind.DETERMINISTIC
    tree = Mechanism(
        strategy=BinaryTree(),
        sampler=MultiAttribution(min_sep=2, sampling_prob=0.1, steps=8, examples_per_user=2),
    )
    released = calibrate_and_certify(tree, epsilon=EPSILON, delta=DELTA, monte_carlo=options)
    assert released.kind is Kind.DETERMINISTIC
    assert released.bounds.upper <= EPSILON


def test_too_little_time_falls_back_to_the_deterministic_candidate() -> None:
    found = calibrate_and_certify(CORRELATED, epsilon=EPSILON, delta=DELTA, monte_carlo=MonteCarlo(seed=1), budget=4)
    assert found.bounds.upper <= EPSILON


@pytest.mark.parametrize("failure", [1e-4, 0.5])
def test_the_test_must_err_less_than_delta(failure: float) -> None:
    with pytest.raises(InvalidInputError, match="'failure_probability' field must be below delta"):
        calibrate(CORRELATED, epsilon=EPSILON, delta=DELTA, monte_carlo=MonteCarlo(failure_probability=failure))


def test_release_adds_up() -> None:
    """delta' + q (1 - delta'), against the complement of both going well."""
    assert release_delta(0.25, 0.5) == pytest.approx(1.0 - 0.75 * 0.5, rel=1e-12)


@pytest.mark.parametrize("tested", [True, False])
def test_what_is_released_without_a_test_pays_for_those_that_were_made(
    tested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for delta itself would leave out what the tests may err, and is right where there is none."""

    def looked_at(
        last: Certificate,
        epsilon: float,
        delta: float,
        options: MonteCarlo,
        deadline: Deadline,
        policy: SearchPolicy,
        methods: list[str],
        start: float,
    ) -> Release:
        assert start <= last.mechanism.sigma
        return Release(tested=tested)

    monkeypatch.setattr("hockeystick.calibration.search.verified_release", looked_at)
    options = MonteCarlo(failure_probability=0.5 * DELTA)
    target = {"epsilon": EPSILON, "delta": DELTA, "method": "gaussian"}
    found = calibrate_and_certify(CORRELATED, **target, monte_carlo=options)
    without = calibrate_and_certify(CORRELATED, **target)
    assert found.delta == DELTA
    if not tested:
        assert found.mechanism == without.mechanism
        return
    bound = certify(found.mechanism, epsilon=EPSILON, method="gaussian").bounds.upper
    assert release_delta(bound, options.failure_probability) <= DELTA * (1.0 + 1e-6)
    assert found.mechanism.sigma > without.mechanism.sigma


@pytest.mark.parametrize(("part", "kept"), [(SMALL_PART, True), (0.5, False)])
def test_the_noise_is_that_without_samples_where_its_bound_leaves_room_for_what_the_tests_may_err(
    part: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search ends below its target, by more than a thousandth of delta costs and by less than half of it does."""
    monkeypatch.setattr("hockeystick.calibration.search.verified_release", lambda *others: Release(tested=True))
    monkeypatch.setattr("hockeystick.calibration.search.SMALL_PART", 1.0)
    options = MonteCarlo(failure_probability=part * DELTA)
    without = calibrate(CORRELATED, epsilon=EPSILON, delta=DELTA, method="gaussian")
    found = calibrate(CORRELATED, epsilon=EPSILON, delta=DELTA, method="gaussian", monte_carlo=options)
    assert (found == without) is kept
    bound = certify(found, epsilon=EPSILON, method="gaussian").bounds.upper
    assert release_delta(bound, options.failure_probability) <= DELTA * (1.0 + 1e-6)


class Scripted:
    """A test that is not drawn: one member accepts, all others do not get done in time or refuse."""

    made: ClassVar[list["Scripted"]] = []
    answers: ClassVar[list[bool | None]] = []
    needed: ClassVar[float] = 1.0
    options: ClassVar[MonteCarlo] = MonteCarlo()
    known_upper: ClassVar[dict[Direction, Profile]] = {}

    def __init__(self, pair: DominatingPair, *others: object, goal: float, share: float = 1.0, **more: object) -> None:
        self.pair, self.goal, self.share, self.spent = pair, goal, share, 0.0
        self.asked = False
        self.answer = self.answers[len(self.made) % len(self.answers)]
        self.made.append(self)
        falling = (2.0 / pair.noise_multiplier) ** 10  # half of the goal at 2.14
        self.directions = [Aim(Direction.REMOVE, EPSILON, goal * falling, 6.0, [], goal, effective=1e12)]

    def estimate(self) -> float:
        return self.directions[0].delta

    def seconds(self, times: float) -> float:
        return self.needed

    def look_longer(self) -> None:
        pass

    def accepts(self) -> bool:
        self.asked = True
        if self.answer is None:
            raise BudgetExceededError("The time budget is over.")
        return self.answer


TWO_MEMBERS = Mechanism(sampler=MultiAttribution(min_sep=2, sampling_prob=0.1, steps=6, examples_per_user=2))


def scripted(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool | None], needed: float, policy: SearchPolicy | None = None
) -> tuple[Release, Certificate]:
    """A release by scripted tests, and the certificate of what is known without them."""
    module = "hockeystick.calibration.estimate_verify_release"
    last = certify(TWO_MEMBERS.with_noise(3.0), delta=DELTA, method="gaussian")
    monkeypatch.setattr("hockeystick.monte_carlo.acceptance.Acceptance", Scripted)
    monkeypatch.setattr(f"{module}._released", lambda *others: Release(certificate=last, tested=True))
    monkeypatch.setattr(Scripted, "made", [])
    monkeypatch.setattr(Scripted, "answers", answers)
    monkeypatch.setattr(Scripted, "needed", needed)
    options = MonteCarlo(failure_probability=0.5 * DELTA)
    return verified_release(last, EPSILON, DELTA, options, Deadline(), policy or SearchPolicy()), last


@pytest.mark.parametrize(("answers", "released"), [([True, True], True), ([True, False], False), ([True, None], False)])
def test_every_member_has_to_accept_in_time_and_to_pay_for_what_the_test_may_err(
    answers: list[bool | None], released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = scripted(monkeypatch, answers, 1.0)
    assert (found.certificate is not None) is released
    assert found.tested
    assert all(release_delta(test.goal, 0.5 * DELTA) <= DELTA for test in Scripted.made)


def test_candidates_that_are_tested_share_the_failure_probability_and_have_more_and_more_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted(monkeypatch, [False, False], 1.0)
    shares = {test.pair.noise_multiplier: test.share for test in Scripted.made if test.asked}
    assert len(shares) == len(CANDIDATE_SHARES)
    assert sum(shares.values()) <= 1.0
    assert list(shares) == sorted(shares)


def test_where_no_test_fits_into_the_planned_work_none_is_made_and_the_answer_says_what_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And with that budget one is made."""
    found, _ = scripted(monkeypatch, [True, True], 600.0)
    assert found.certificate is None
    assert not found.tested
    assert not any(test.asked for test in Scripted.made)
    assert found.budget == pytest.approx(2.0 * 600.0 / AIM / TEST_SHARE)  # two members
    again, _ = scripted(
        monkeypatch, [True, True], 600.0, SearchPolicy(work=1.001 * found.budget, sampling=float("inf"))
    )
    assert again.certificate is not None


def test_what_would_not_lower_the_noise_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    last = certify(TWO_MEMBERS.with_noise(2.0), delta=DELTA, method="gaussian")
    monkeypatch.setattr("hockeystick.monte_carlo.acceptance.Acceptance", Scripted)
    monkeypatch.setattr(Scripted, "made", [])
    monkeypatch.setattr(Scripted, "answers", [True])
    options = MonteCarlo(failure_probability=0.5 * DELTA)
    assert verified_release(last, EPSILON, DELTA, options, Deadline(), SearchPolicy()) == Release()
    assert not any(test.asked for test in Scripted.made)


def _look(noise: float, part: float, needed: float) -> _Trial:
    """What pilots say about one noise multiplier."""
    test = cast(Acceptance, Scripted(dominating_pair(TWO_MEMBERS.with_noise(noise)), goal=1e-4))
    test.directions = [Aim(Direction.REMOVE, EPSILON, 1e-4 * part, 6.0, [], 1e-4, effective=1e4)]
    test.seconds = lambda times=1.0: needed  # type: ignore[method-assign]
    return _Trial(noise, 20.0, [test])


def test_pilots_that_see_no_test_that_fits_go_on_near_by_and_keep_what_they_have_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However far the noise is that is certified without samples: far above the answer pilots see nothing."""
    monkeypatch.setattr(Scripted, "made", [])
    monkeypatch.setattr(Scripted, "answers", [True])
    looked: list[float] = []

    def trial(noise: float) -> _Trial:
        looked.append(noise)
        return _look(noise, 0.6 if noise < 1.05 else 0.1 if noise < 1.2 else 0.0, 99.0 if noise < 1.05 else 1.0)

    first, _ = _planned(trial, 1.0, most=50.0, work=30.0)
    assert first is not None
    assert looked[:2] == [1.0, pytest.approx(STEP)]
    blind, _ = _planned(lambda noise: _look(noise, 0.6 if noise > 1.0 else 0.0, 1.0), 1.01, most=50.0, work=30.0)
    assert blind is not None


def test_threads_change_no_certificate() -> None:
    """Pilots and the comparison with deterministic bounds, one after the other and side by side."""
    target = {"epsilon": EPSILON, "delta": DELTA, "method": "gaussian"}
    alone = calibrate_and_certify(CORRELATED, **target, monte_carlo=MonteCarlo(seed=3))
    with executor(workers=2) as threads:
        options = MonteCarlo(seed=3, executor=threads)
        assert options.threads == 2
        assert calibrate_and_certify(CORRELATED, **target, monte_carlo=options) == alone


def test_bounds_that_come_after_the_pilots_spare_the_same_directions() -> None:
    pair = dominating_pair(Mechanism(sampler=BMinSep(min_sep=4, sampling_prob=0.1, steps=20), noise_multiplier=2.0))
    known = known_upper(pair, Settings())
    for goal, spared in ((0.5, True), (1e-9, False)):
        before = Acceptance(
            pair, Question(epsilon=EPSILON), MonteCarlo(seed=1), Deadline(), known_upper=known, goal=goal
        )
        after = Acceptance(pair, Question(epsilon=EPSILON), MonteCarlo(seed=1), Deadline(), goal=goal)
        _ = after.directions
        after.spare(known)
        assert [aim.direction for aim in after.directions] == [aim.direction for aim in before.directions]
        assert (Direction.ADD not in [aim.direction for aim in after.directions]) is spared


class _Ticks(Deadline):
    """A deadline that passes after a number of ticks, those of its parts included."""

    def __init__(self, most: float, used: list[int] | None = None) -> None:
        super().__init__()
        self.most, self.used = most, [0] if used is None else used

    def remaining(self) -> float:
        return max(self.most - self.used[0], 0.0)

    def part(self, fraction: float) -> Deadline:
        return _Ticks(self.used[0] + fraction * self.remaining(), self.used)

    def tick(self) -> None:
        self.used[0] += 1
        if self.used[0] > self.most:
            raise BudgetExceededError("The ticks are used up.")


def _released(ledger: MemoryLedger, deadline: Deadline | None = None) -> Certificate:
    options = MonteCarlo(seed=None, ledger=ledger)
    return calibrate_and_certify(
        CORRELATED, epsilon=EPSILON, delta=DELTA, method="gaussian", monte_carlo=options, deadline=deadline
    )


def test_a_calibration_cut_off_anywhere_has_a_certificate_and_is_resumed_to_the_same_end() -> None:
    whole, ticks = MemoryLedger(), _Ticks(1e9)
    whole.seed(1)
    expected = _released(whole, ticks)
    assert expected.kind is Kind.MONTE_CARLO
    for share in (0.0, 0.5, 0.95):
        most = share * ticks.used[0]
        ledger = MemoryLedger()
        ledger.seed(whole.seed())
        found = _released(ledger, _Ticks(most))
        assert found.bounds.upper <= 1.0
        assert verify(found, evidence=ledger) == found
        again = _released(ledger)
        assert again == expected


def test_time_that_ends_with_an_accepted_test_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate costs nothing more; only its lower bound may be cut off."""
    deadline, ledger = Deadline(), MemoryLedger()
    ledger.seed(1)
    accepts = Acceptance.accepts

    def in_the_end(test: Acceptance) -> bool:
        found = accepts(test)
        if found:
            deadline.seconds = test.deadline.seconds = -1.0
        return found

    monkeypatch.setattr(Acceptance, "accepts", in_the_end)
    found = _released(ledger, deadline)
    assert found.method.upper == "monte_carlo"
    assert found.bounds.upper <= 1.0
