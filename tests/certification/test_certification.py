"""certify, compare, bound and verify."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BandedToeplitz,
    Certificate,
    Custom,
    Deadline,
    Deterministic,
    Interval,
    Mechanism,
    MonteCarlo,
    MultiAttribution,
    Poisson,
    Question,
    RandomAllocation,
    Resolution,
    SearchPolicy,
    Settings,
    Shuffle,
    Side,
    Statements,
    bound,
    calibrate,
    certify,
    compare,
    state,
    verify,
)
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.bounds import Bound
from hockeystick.certification.issue import PORTABLE, certificate_of
from hockeystick.certification.schedule import Outcome, best, run_accountants, run_named, settings_for
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    InvalidInputError,
    UnsupportedError,
    VerificationError,
)
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import Sampler
from hockeystick.settings import DEFAULT_EFFORT
from hockeystick.types import Direction

SAMPLERS: tuple[Sampler, ...] = (
    Deterministic(bins=5, epochs=3),
    Shuffle(batch_size=4, bins=10, epochs=2),
    Poisson(sampling_prob=0.05, steps=40),
    RandomAllocation(bins=10, participations=3),
    RandomAllocation(bins=20, epochs=2),
    BallsInBins(bins=20, epochs=4),
)


def mechanism(sampler: Sampler, noise_multiplier: float = 1.0) -> Mechanism:
    return Mechanism(sampler=sampler, noise_multiplier=noise_multiplier)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_both_sides_and_monotone_in_delta(sampler: Sampler) -> None:
    found = [certify(mechanism(sampler), delta=delta).bounds for delta in (1e-9, 1e-5, 1e-2)]
    for interval in found:
        assert interval.lower is None or interval.lower <= interval.upper
    uppers = [interval.upper for interval in found]
    assert uppers == sorted(uppers, reverse=True)
    assert found[1].upper <= bound(mechanism(sampler), "gaussian").epsilon(1e-5) * (1 + PORTABLE)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_epsilon_and_delta_are_two_views_of_one_profile(sampler: Sampler) -> None:
    there = certify(mechanism(sampler), delta=1e-5)
    back = certify(mechanism(sampler), epsilon=there.bounds.upper)
    assert (back.bounds.lower or 0.0) <= 1e-5 * (1 + 1e-6)
    forth = certify(mechanism(sampler), epsilon=0.5)
    assert forth.bounds.upper == pytest.approx(bound(mechanism(sampler), forth.method.upper).delta(0.5), rel=0.1)


def test_deterministic_batches_have_a_closed_form() -> None:
    certificate = certify(mechanism(Deterministic(bins=5, epochs=4), 2.0), epsilon=1.0)
    assert certificate.method.upper == certificate.method.lower == "gaussian"
    exact = gaussian_delta(2.0, 2.0, 1.0, Side.UPPER)
    assert certificate.bounds.upper == pytest.approx(exact, rel=2 * PORTABLE)
    assert certificate.bounds.upper > exact
    assert certificate.bounds.lower == pytest.approx(exact, rel=2 * PORTABLE)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_no_time_there_is_still_the_gaussian(sampler: Sampler) -> None:
    certificate = certify(mechanism(sampler), delta=1e-5, budget=1e-9)
    assert certificate.bounds.upper <= bound(mechanism(sampler), "gaussian").epsilon(1e-5) * (1 + PORTABLE)
    assert certify(mechanism(sampler), epsilon=1.0, budget=1e-9).bounds.upper < 1.0


def test_a_method_that_the_deadline_cuts_off_is_named() -> None:
    certificate = certify(mechanism(SAMPLERS[2]), delta=1e-5, method="direct", deadline=Deadline(0.0))
    assert certificate.method.upper == "gaussian"
    cut = {(one.method, one.side) for one in certificate.cut_off}
    assert ("direct", Side.UPPER) in cut
    assert all(one.seconds > 0.0 for one in certificate.cut_off)
    assert "no time for       direct (upper, about " in str(certificate)
    assert verify(certificate) == certificate
    assert certify(mechanism(SAMPLERS[2]), delta=1e-5).cut_off == ()


def test_what_costs_more_than_the_planned_work_is_left_out_whatever_the_clock_says() -> None:
    pair = dominating_pair(mechanism(SAMPLERS[2]))
    question = Question(delta=1e-5)
    settings = settings_for(question, pair, Deadline())
    outcomes = run_accountants(pair, question, settings, policy=SearchPolicy(work=1e-3), methods=["direct"])
    direct = next(one for one in outcomes if one.method == "direct" and one.side is Side.UPPER)
    assert direct.value is None
    assert direct.needs == pytest.approx(ACCOUNTANTS["direct"].cost(pair))
    assert "more than is left of the planned work" in direct.status


@pytest.mark.parametrize(
    ("noise_multiplier", "delta", "says"),
    [(0.2, 1e-5, "here: the noise is too low"), (2.0, 1e-9, "here: this method is for deltas of at least 1e-07")],
    ids=["low noise", "small delta"],
)
def test_a_method_that_turns_out_not_to_apply_says_so(noise_multiplier: float, delta: float, says: str) -> None:
    """The Gaussian stands in for it only where the deadline cut it off."""
    strategy = BandedSquareRoot(bands=2)
    run = Mechanism(sampler=BallsInBins(bins=50), strategy=strategy, noise_multiplier=noise_multiplier)
    with pytest.raises(UnsupportedError, match=says):
        certify(run, delta=delta, method="moving_average")


def test_a_side_is_sought_where_the_same_method_found_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Side, float | None]] = []
    epsilon = Bound.epsilon

    def watched(bound: Bound, delta: float, near: float | None = None) -> Any:
        asked.append((bound.method, bound.side, near))
        return epsilon(bound, delta, near)

    monkeypatch.setattr(Bound, "epsilon", watched)
    question, pair = Question(delta=1e-5), dominating_pair(mechanism(Poisson(sampling_prob=0.05, steps=40)))
    settings = settings_for(question, pair, Deadline(float("inf")))
    outcomes = run_accountants(pair, question, settings, policy=SearchPolicy())
    upper = best(outcomes, Side.UPPER)
    assert upper is not None
    assert upper.method == "direct"
    assert asked[-2:] == [("direct", Side.UPPER, None), ("direct", Side.LOWER, upper.value)]


def test_larger_budgets_than_the_usual_one_let_each_method_work_longer() -> None:
    efforts = [SearchPolicy(work=work).effort(5.0) for work in (6.0, 30.0, 60.0, 100.0, 300.0)]
    assert efforts == [1.2, 6.0, 10.0, 20.0, 60.0]


def test_light_methods_come_first_and_of_heavy_ones_alike_those_with_both_sides() -> None:
    """Nearly everything is left out as there is no work for it; what would have run when is told all the same."""
    run = Mechanism(sampler=BallsInBins(bins=100), strategy=BandedSquareRoot(bands=16), noise_multiplier=1.0)
    pair, question = dominating_pair(run), Question(delta=1e-5)
    policy = SearchPolicy(work=1e-3)
    outcomes = run_accountants(pair, question, Settings(question=question), policy=policy)
    names = list(dict.fromkeys(outcome.method for outcome in outcomes if outcome.needs or outcome.value is not None))
    heavy = [ACCOUNTANTS[name].seconds(pair) > policy.heavy for name in names]
    assert heavy == sorted(heavy)
    order = ["comparison", "conditional_composition", "bin_filter", "moment_majorant_cells"]
    assert [name for name in names if name in order] == order


def test_a_method_without_a_bound_says_so() -> None:
    with pytest.raises(CannotCertifyError, match="more noise"):
        certify(mechanism(Deterministic(bins=1, epochs=10_000), 0.1), delta=1e-5)


def truncated(cap: int) -> Mechanism:
    """One band is no correlation, but the pair of correlated noise, which pays for truncation by its distance."""
    sampler = Poisson(sampling_prob=0.05, steps=40, truncated_batch_size=cap, num_examples=500)
    return Mechanism(strategy=BandedSquareRoot(bands=1), sampler=sampler, noise_multiplier=1.0)


@pytest.mark.parametrize("side", list(Side))
def test_truncation_pays_its_slack(side: Side) -> None:
    """1 + e^epsilon times 8.6e-9, beside a delta of 5e-3: seen as a difference, to 2e-6 of the slack itself."""
    epsilon, slack = 1.0, 40 * binom.sf(60, 500, 0.05)
    plain, cut = (bound(truncated(cap), "direct", side=side).delta(epsilon) for cap in (499, 60))
    paid = (cut - plain if side is Side.UPPER else plain - cut) / ((1 + exp(epsilon)) * slack)
    assert 1.0 <= paid <= 1.0 + 2e-6


def test_truncation_shows_in_certificates() -> None:
    assert certify(truncated(60), delta=1e-2).bounds.upper > certify(mechanism(SAMPLERS[2]), delta=1e-2).bounds.upper
    with pytest.raises(CannotCertifyError):
        certify(truncated(20), delta=1e-5)


def test_compare_runs_everything_that_applies() -> None:
    outcomes = compare(mechanism(SAMPLERS[2]), delta=1e-5)
    assert {(one.method, one.side) for one in outcomes} == {
        (one.name, side) for one in every_accountant().values() for side in one.sides if one.covers(IndependentSteps)
    }
    for outcome in outcomes:
        assert (outcome.value is None) == (outcome.status != "ok")
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    assert upper is not None
    assert lower is not None
    assert upper.value is not None
    assert upper.value <= (lower.value or 0.0) * (1 + 10 * SearchPolicy().gap_goal)


def test_questions_are_one_and_in_range() -> None:
    for wrong in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(InvalidInputError, match="Exactly one"):
            certify(mechanism(SAMPLERS[0]), **wrong)
    for delta in (0.0, 1.0, -1e-5, float("nan"), 1e-31):
        with pytest.raises(InvalidInputError, match=f"'delta' .* Got {delta!r}"):
            certify(mechanism(SAMPLERS[0]), delta=delta)
    for epsilon in (-1.0, 701.0, float("nan")):
        with pytest.raises(InvalidInputError, match=f"'epsilon' .* Got {epsilon!r}"):
            certify(mechanism(SAMPLERS[0]), epsilon=epsilon)
    for budget in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match=f"'budget' .* Got {budget!r}"):
            certify(mechanism(SAMPLERS[0]), delta=1e-5, budget=budget)


def test_methods_are_known_and_apply() -> None:
    with pytest.raises(InvalidInputError, match="'method' field must be the name of an accountant, as "):
        certify(mechanism(SAMPLERS[0]), delta=1e-5, method="foo")
    with pytest.raises(UnsupportedError, match="'direct' does not apply"):
        certify(mechanism(SAMPLERS[1]), delta=1e-5, method="direct")
    with pytest.raises(UnsupportedError, match="'gaussian' does not apply"):
        bound(mechanism(SAMPLERS[2]), "gaussian", side=Side.LOWER)


def test_a_method_that_does_not_apply_is_refused_before_any_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hockeystick.certification.schedule._run", lambda *given: pytest.fail("a method ran"))
    with pytest.raises(UnsupportedError, match="'direct' does not apply"):
        certify(mechanism(SAMPLERS[1]), epsilon=1.0, method="direct")


def test_memory_that_is_too_small_leaves_the_other_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("hockeystick.laws.discretise.gaussian_law", too_large)
    run = mechanism(RandomAllocation(bins=20, participations=2)).with_noise(1.0371)  # no other test has made its law
    assert certify(run, delta=1e-5).method.upper != "direct"


def test_an_interruption_passes_through() -> None:
    def interrupt(ticks: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(mechanism(SAMPLERS[2]), delta=1e-5, method="direct", deadline=Deadline(on_tick=interrupt))


# Verification


def test_only_optimised_matrices_have_a_digest() -> None:
    run = Mechanism(strategy=BandedToeplitz(bands=3), sampler=BallsInBins(bins=5), noise_multiplier=2.0)
    certificate = certify(run, delta=1e-5, method="gaussian")
    assert certificate.strategy_digest == run.matrix.digest
    assert verify(certificate) == certificate
    closed_form = Mechanism(strategy=BandedSquareRoot(bands=3), sampler=BallsInBins(bins=5), noise_multiplier=2.0)
    assert certify(closed_form, delta=1e-5, method="gaussian").strategy_digest is None


def test_a_matrix_without_its_digest_does_not_verify(tmp_path: Path) -> None:
    """Else the certificate would be about whatever the file holds on the day."""
    np.save(tmp_path / "matrix.npy", np.eye(5))
    custom = Custom(path=str(tmp_path / "matrix.npy"))
    run = Mechanism(strategy=custom, sampler=BallsInBins(bins=5), noise_multiplier=2.0)
    certificate = certify(run, delta=1e-5, method="gaussian")
    assert certificate.mechanism.strategy == custom.pinned()
    assert verify(certificate) == certificate
    loose = altered(certificate, lambda c: c["mechanism"]["strategy"].update(sha256=None)).sealed()
    with pytest.raises(VerificationError, match="field does not say the digest of the file"):
        verify(loose)


@cache
def certificates() -> list[Certificate]:
    """One of every sampler, which many tests look at."""
    return [certify(mechanism(sampler), delta=1e-5) for sampler in SAMPLERS]


@pytest.mark.parametrize("place", range(len(SAMPLERS)), ids=[sampler.kind for sampler in SAMPLERS])
def test_its_own_certificates_verify(place: int) -> None:
    certificate = certificates()[place]
    again = verify(Certificate.parse_json(certificate.model_dump_json()))
    assert again.bounds == certificate.bounds
    assert again == certificate


def test_certificates_for_delta_verify() -> None:
    certificate = certify(mechanism(SAMPLERS[5]), epsilon=0.7)
    assert verify(certificate) == certificate


@pytest.mark.parametrize("delta", [0.0, 1e-31, 1.0])
def test_a_delta_that_nobody_is_answered_about_does_not_verify(delta: float) -> None:
    certificate = certify(Mechanism(sampler=Deterministic(bins=2), noise_multiplier=2.0), delta=1e-5)
    with pytest.raises(VerificationError, match=r"'delta' field must be from 1e-30 to below 1\. Got"):
        verify(certificate.model_copy(update={"delta": delta}).sealed())


def test_a_weaker_claim_verifies() -> None:
    interval = certificates()[2].bounds
    upper = Interval(lower=interval.lower, upper=interval.upper * 1.1)
    weaker = state(certificates()[2].model_copy(update={"epsilon": upper}), Statements())
    assert verify(weaker) == weaker


@pytest.mark.parametrize("side", list(Side))
def test_a_claim_that_is_stronger_by_a_millionth_fails_though_it_is_sealed_again(side: Side) -> None:
    run = mechanism(RandomAllocation(bins=20, participations=2))  # with a gap of more than a millionth
    for certificate in (certify(run, delta=1e-5), certify(run, epsilon=0.7)):
        what, interval = ("epsilon" if certificate.delta == 1e-5 else "delta"), certificate.bounds
        assert interval.lower is not None
        stronger = interval.upper * (1 - 1e-6) if side is Side.UPPER else interval.lower * (1 + 1e-6)
        claim = {"upper": interval.upper, "lower": interval.lower, side.value: stronger}
        forged = altered(certificate, lambda c, what=what, claim=claim: c.update({what: claim})).sealed()  # type: ignore[misc]
        with pytest.raises(VerificationError, match=rf"'{what}.{side.value}' field claims"):
            verify(forged)


def test_bounds_are_issued_with_room_for_the_rounding_of_another_machine() -> None:
    """A mathematical library whose deltas differ by a relative 1e-9 still confirms the claim."""
    for sampler, certificate in zip(SAMPLERS, certificates(), strict=True):
        upper = bound(mechanism(sampler), certificate.method.upper, settings=Settings(Resolution(68, 1e-5)))
        assert upper.delta(certificate.bounds.upper) * (1 + 1e-9) <= 1e-5


def altered(certificate: Certificate, change: Callable[[dict[str, Any]], object]) -> Certificate:
    """The certificate with something changed and its old digest."""
    content = json.loads(certificate.model_dump_json())
    change(content)
    return Certificate.parse_json(json.dumps(content))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "smaller upper bound": (lambda c: c["epsilon"].update(upper=0.99 * c["epsilon"]["upper"], lower=None), "upper"),
    "larger lower bound": (lambda c: c["epsilon"].update(lower=c["epsilon"]["upper"]), "lower"),
    "smaller delta": (lambda c: c.update(delta=5e-6), "upper"),
    "less noise": (lambda c: c["mechanism"].update(noise_multiplier=0.9), "upper"),
    "more noise": (lambda c: c["mechanism"].update(noise_multiplier=1.1), "lower"),
    "more steps": (lambda c: c["mechanism"]["sampler"].update(steps=50), "upper"),
    "larger rate": (lambda c: c["mechanism"]["sampler"].update(sampling_prob=0.06), "upper"),
    "another requirement": (lambda c: c["assumptions"].pop(), "assumptions"),
    "another kind": (lambda c: c.update(kind="monte_carlo"), "kind"),
    "less confidence": (lambda c: c.update(confidence=0.9), "confidence"),
    "another adjacency": (lambda c: c.update(adjacency="add_remove"), "adjacency"),
    "more adjacencies": (lambda c: c.update(also_holds_for=["add_remove", "zero_out"]), "also_holds_for"),
    "another sensitivity": (lambda c: c.update(sensitivity=0.5), "sensitivity"),
    "another reference": (lambda c: c.update(references=["none"]), "references"),
    "another method": (lambda c: c["method"].update(upper="gaussian"), "upper"),
    "an unknown method": (lambda c: c["method"].update(upper="foo"), "'method.upper' field names a method"),
    "an unknown lower method": (lambda c: c["method"].update(lower="foo"), "'method.lower' field names a method"),
    "a method without that side": (lambda c: c["method"].update(lower="gaussian"), "'method.lower' field names"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_altered_certificates_do_not_verify(change: str) -> None:
    alter, says = CHANGES[change]
    changed = altered(certificates()[2], alter)
    with pytest.raises(VerificationError, match="digest"):
        verify(changed)
    with pytest.raises(VerificationError, match=says):
        verify(changed.sealed())


def test_verification_without_time_is_no_verdict() -> None:
    with pytest.raises(BudgetExceededError, match="time budget"):
        verify(certificates()[2], deadline=Deadline(seconds=1e-9))


def test_best_of_nothing_is_nothing() -> None:
    assert best([], Side.UPPER) is None
    outcome = Outcome("m", Side.UPPER, certificates()[0].kind, 1.0, None, 0.0, "no finite bound")
    assert best([outcome], Side.UPPER) is None


def test_a_side_by_its_name_is_that_side() -> None:
    run = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=10), noise_multiplier=1.0)
    for side in Side:
        named = bound(run, "direct", side=side.value)  # type: ignore[arg-type]
        assert named.side is side
        assert named.delta(1.0) == bound(run, "direct", side=side).delta(1.0)
    with pytest.raises(UnsupportedError):
        bound(run, "gaussian", side="lower")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'side' argument must be one of upper, lower"):
        bound(run, "gaussian", side="below")  # type: ignore[arg-type]


# Scheduling


def test_a_sampler_of_one_side_runs_once_and_after_what_is_cheaper() -> None:
    """Users with more bands than min_sep: Monte Carlo bounds only from above, and says so for the other side."""
    run = Mechanism(
        strategy=BandedSquareRoot(bands=3),
        sampler=MultiAttribution(min_sep=2, sampling_prob=0.05, steps=6, examples_per_user=2),
        noise_multiplier=1.0,
    )
    outcomes = compare(run, delta=1e-3, monte_carlo=MonteCarlo(seed=1, ratio=1.0))
    found = [(one.side, one.status) for one in outcomes if one.method == "monte_carlo"]
    assert sorted(side for side, _ in found) == [Side.LOWER, Side.UPPER]
    assert dict(found)[Side.UPPER] == "ok"
    assert dict(found)[Side.LOWER] == "not applicable: the pair bounds the run only from above"
    order = [one.method for one in outcomes if one.side is Side.UPPER]
    assert order.index("gaussian") < order.index("monte_carlo")


def test_users_with_several_examples_may_say_how_many_examples_there_are() -> None:
    """Which examples are whose matters for batches, not for what a certificate says."""
    sampler = MultiAttribution(min_sep=4, sampling_prob=0.01, steps=20, examples_per_user=2, exclusion="example")
    certificate = certify(Mechanism(sampler=sampler, noise_multiplier=2.0), delta=1e-5)
    stated = state(certificate, Statements(num_examples=1000))
    assert stated.rates.expected_batch_size == pytest.approx(1000 * sampler.rate)
    with pytest.raises(InvalidInputError, match="'num_examples'"):
        sampler.check_num_examples(0)


def test_where_samples_are_allowed_the_others_leave_them_their_time() -> None:
    """Fixed batches are not sampled, so there the others work as long as without samples."""
    question, policy = Question(delta=1e-5), SearchPolicy(work=300.0)
    sampled, none = dominating_pair(mechanism(SAMPLERS[5])), dominating_pair(mechanism(SAMPLERS[0]))
    plain, allowed = (
        settings_for(question, sampled, Deadline(), samples, policy).effort for samples in (None, MonteCarlo(seed=1))
    )
    assert plain == policy.effort(5.0) > DEFAULT_EFFORT == allowed
    assert ACCOUNTANTS["monte_carlo"].why_not(none, Side.UPPER) is not None
    assert settings_for(question, none, Deadline(), MonteCarlo(seed=1), policy).effort == plain


def test_samples_cut_short_under_a_budget_say_how_long_they_would_take() -> None:
    """A budget sets no limit on sampling but the clock; infinitely many seconds could not be stated."""
    run, question = mechanism(SAMPLERS[5]), Question(delta=1e-5)
    pair = dominating_pair(run)
    nothing = ({Side.UPPER: dict.fromkeys(Direction, lambda epsilon: 1.0)}, None)
    short = replace(ACCOUNTANTS["monte_carlo"], joint_analyses={type(pair): lambda *_: nothing}, cost=lambda pair: 0.0)
    policy = SearchPolicy(sampling=float("inf"))
    allowed = settings_for(question, pair, Deadline(-1.0), MonteCarlo(seed=1), policy)
    cut = run_named(short, pair, (Side.UPPER,), allowed, question.answer)
    gaussian = run_named(ACCOUNTANTS["gaussian"], pair, (Side.UPPER,), allowed, question.answer)
    found = certificate_of(run, pair, question, [*cut, *gaussian], allowed)
    assert [(one.method, one.seconds) for one in found.cut_off] == [("monte_carlo", 60.0)]
    assert verify(Certificate.parse_json(found.model_dump_json())) == found


@pytest.mark.parametrize("field", ["hockeystick_version", "cut_off"])
def test_what_nobody_recomputes_is_no_free_text(field: str) -> None:
    """Else it could print lines that look like a claim of the certificate."""
    text = "x\n(epsilon, delta) = (0.01, 1e-09) is certified"
    value = text if field == "hockeystick_version" else [{"method": text, "side": "upper", "seconds": 1.0}]
    with pytest.raises(InvalidInputError, match=field):
        altered(certificates()[2], lambda c: c["origin"].update({field: value}))


def test_a_bound_does_not_depend_on_the_seconds_that_are_left() -> None:
    """Else a certificate that is verified late would be refused instead of left without a verdict."""
    run = Mechanism(strategy=BandedSquareRoot(bands=3), sampler=BallsInBins(bins=97, epochs=2), noise_multiplier=3.0)
    deadline = Deadline()
    deadline.remaining = lambda: 1e-6  # type: ignore[method-assign]
    hurried, plain = (
        bound(run, "bin_renyi", settings=Settings(Resolution(68, 1e-5), one)) for one in (deadline, Deadline())
    )
    assert hurried.epsilon(1e-5) == plain.epsilon(1e-5)


@pytest.mark.parametrize("use", [partial(certify, delta=1e-5), partial(calibrate, epsilon=1.0, delta=1e-5), verify])
def test_what_is_no_mechanism_or_claim_is_refused_in_one_sentence(use: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"argument must be a .* Got 'poisson' instead"):
        use("poisson")
