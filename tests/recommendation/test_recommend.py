"""Recommendations: what wins, within which limits, and that what is called certified is."""

from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.claim import release_delta
from hockeystick.errors import CannotCertifyError, InvalidInputError, VerificationError
from hockeystick.recommendation.calibrations import calibrations
from hockeystick.recommendation.candidates import every
from hockeystick.recommendation.estimate import estimate
from hockeystick.recommendation.explain import explanation
from hockeystick.recommendation.open_plan import OpenPlan
from hockeystick.recommendation.recommend import shared
from hockeystick.recommendation.search import Search, of_plan

POISSON = {"kind": "poisson"}
SAMPLED = Path(__file__).parents[1] / "certification" / "certificates-0.1.0" / "monte-carlo.json"


def plan(epochs=4, epsilon=4.0, sampler=POISSON, examples=2000, batch=100, delta=1e-5, **more) -> hs.Plan:
    return hs.Plan.parse(
        {
            "data": {"num_examples": examples, "batch_size": batch, "epochs": epochs},
            "sampler": sampler,
            "target": {"epsilon": epsilon, "delta": delta},
            **more,
        }
    )


@pytest.fixture(scope="module")
def first() -> hs.Recommendation:
    """The first answer, without limits."""
    return hs.recommend(plan(), budget=0.0)


def draft(plan: hs.Plan, **limits) -> Search:
    search = Search(of_plan(plan, limits=hs.Limits(**limits)))
    search.draft()
    return search


@pytest.mark.parametrize(
    ("epochs", "epsilon", "winner"), [(1, 8.0, "bins"), (1, 0.5, "bins"), (8, 8.0, "turns"), (8, 0.5, "turns")]
)
def test_bins_win_in_one_epoch_and_turns_in_several(epochs, epsilon, winner) -> None:
    """Dong and Ganesh (2026), Figures 2 and 3, for n = 1024, delta = 1e-3 and Toeplitz matrices of 8 and 32 bands.

    Balls-in-bins is the best in one epoch, as its ratio to b-min-sep is 1 there. Replayed bins lose in several: cyclic
    Poisson sampling is ahead of them, and is the best where epsilon and the epoch are both small.
    """
    bins = 1024 // epochs
    errors = {}
    for bands in (8, 32):
        turns = hs.CyclicPoisson(groups=bands, sampling_prob=bands / bins, steps=1024)
        for name, sampler in (("turns", turns), ("bins", hs.BallsInBins(bins=bins, epochs=epochs))):
            mechanism = hs.Mechanism(strategy=hs.BandedToeplitz(bands=bands), sampler=sampler)
            unit = hs.Workload().unit_errors(mechanism.matrix).mean() ** 0.5
            errors[name, bands] = estimate(mechanism, epsilon, 1e-3).noise_multiplier * unit
    assert min(errors, key=lambda scheme: errors[scheme])[0] == winner


def test_the_error_is_per_example_of_the_batch() -> None:
    """With gradients divided by the batch, the error is sigma times the root mean square of the rows over the batch."""
    search = draft(plan(), samplers=("poisson",))
    choice = search.ranked()[0]
    steps = 80
    assert choice.error == pytest.approx(choice.noise_multiplier * ((steps + 1) / 2.0) ** 0.5 / 100.0)
    largest = Search(of_plan(plan(), workload=hs.Workload(measure="max"), limits=hs.Limits(samplers=("poisson",))))
    largest.draft()
    assert largest.ranked()[0].error == pytest.approx(choice.noise_multiplier * steps**0.5 / 100.0)


def test_rows_of_noise_fit_in_the_memory(first: hs.Recommendation) -> None:
    free = first.best
    assert free.rows > 4
    tight = draft(plan(), memory=4 * 4 * 1000.0, parameters=1000)
    assert max(choice.rows for choice in tight.ranked()) <= 4
    assert tight.ranked()[0].error >= free.error
    none = draft(plan(), memory=0.0, parameters=1000)
    assert {choice.candidate.plan.strategy.kind for choice in none.ranked()} == {"identity"}


def test_the_loader_is_respected_but_for_the_own_plan() -> None:
    search = draft(plan(), samplers=("deterministic",))
    kinds = {choice.candidate.plan.sampler.kind for choice in search.ranked() if not choice.candidate.own}
    assert kinds == {"deterministic"}
    assert [choice.candidate.own for choice in search.ranked()].count(True) == 1


def test_batches_of_a_fixed_size_are_for_those_who_name_them() -> None:
    """They need more noise than Poisson batches, and their claim covers less: only a loader's limits speak for them."""
    kinds = {candidate.plan.sampler.kind for candidate in every(plan(), hs.Limits(monte_carlo=True))}
    assert "fixed_size" not in kinds
    search = draft(plan(batch=30), samplers=("poisson", "fixed_size"))  # 30 does not divide 2,000
    noise = {choice.candidate.plan.sampler.kind: choice.noise_multiplier for choice in search.ranked()}
    assert set(noise) == {"poisson", "fixed_size"}
    assert noise["fixed_size"] > noise["poisson"]


@pytest.mark.parametrize("neighbours", ["zero_out", "replace"])
def test_a_loader_of_fixed_sizes_is_told_what_is_claimed(neighbours: str) -> None:
    """The relation of the plan is what is certified; a reason says where batches of another kind cover one more."""
    said = {"zero_out": "does not cover adding or removing one; the claim for identity, poisson does."}.get(neighbours)
    asked, limits = plan(unit={"neighbours": neighbours}), hs.Limits(samplers=("fixed_size",))
    open_plan = OpenPlan(data=asked.data, unit=asked.unit, target=asked.target)
    (best,) = (found := hs.recommend(open_plan, limits=limits, budget=60.0, calibrations=1)).choices
    assert best.plan.sampler.kind == "fixed_size"
    assert best.certificate is not None
    assert best.certificate.adjacency == neighbours
    assert hs.certify(best.plan.mechanism(), delta=1e-5).bounds.upper <= 4.0
    assert any("does not cover adding or removing one." in reason for reason in found.reasons) == (said is not None)
    search = draft(asked, samplers=("fixed_size",))
    own = next(choice for choice in search.ranked() if choice.candidate.own)
    reasons = " ".join(explanation(search, [best, own], hurried=True))
    assert "adding or removing" not in reasons if said is None else said in reasons


def test_a_part_of_an_epoch_is_allocated_in_visits() -> None:
    """2.5 epochs are 50 steps: no whole number of epochs, but about 2 or 3 visits of each example."""
    search = draft(plan(epochs=2.45, batch=100), samplers=("random_allocation",))
    visits = [choice for choice in search.ranked() if not choice.candidate.own]
    assert not visits  # 2 or 3 visits would change the batch by more than a tenth
    search = draft(plan(epochs=2.9, batch=100), samplers=("random_allocation",))
    (choice,) = [choice for choice in search.ranked() if not choice.candidate.own]
    sampler = choice.candidate.plan.mechanism().sampler
    assert (sampler.bins, sampler.participations, sampler.epochs) == (58, 3, 1)
    assert choice.expected_batch == pytest.approx(2000 * 3 / 58)


def test_what_is_certified_is_what_certify_says(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    limits = hs.Limits(samplers=("poisson", "cyclic_poisson"))
    answers: list[hs.Recommendation] = []
    recommendation = hs.recommend(
        plan(), limits=limits, budget=60.0, calibrations=2, results=file, on_answer=answers.append
    )
    assert not answers[0].best.certified
    assert "noise_multiplier" not in answers[0].plan.file_text()
    assert recommendation.best.certified
    certificate = hs.certify(recommendation.plan.mechanism(), delta=1e-5)
    assert certificate.bounds.upper <= 4.0
    assert recommendation.best.noise_multiplier == recommendation.plan.mechanism().sigma
    assert recommendation.best.error <= min(choice.error for choice in recommendation.choices if choice.certified)
    kept = file.read_bytes()
    again = hs.recommend(plan(), limits=limits, budget=60.0, calibrations=2, results=file)
    assert file.read_bytes() == kept
    assert again.plan == recommendation.plan
    tighter = hs.recommend(plan(epsilon=3.0), limits=limits, budget=60.0, calibrations=1, results=file)
    assert hs.certify(tighter.plan.mechanism(), delta=1e-5).bounds.upper <= 3.0
    assert file.read_bytes().startswith(kept)


def test_results_for_a_matrix_in_a_file_are_not_used_once_the_file_has_changed(tmp_path: Path) -> None:
    file, results = tmp_path / "matrix.npy", tmp_path / "results.jsonl"
    np.save(file, np.eye(80))
    asked = of_plan(plan(strategy={"kind": "custom", "path": str(file)}), limits=hs.Limits(samplers=("poisson",)))
    own = next(every(asked.plan, asked.limits))
    certificate = hs.certify(own.plan.mechanism(10.0), delta=1e-5)
    with calibrations(asked, results=results) as calibrating:
        calibrating.keep(own, certificate, 1.0)
    with calibrations(asked, results=results) as calibrating:
        assert calibrating.kept(own) == certificate
        np.save(file, 2.0 * np.eye(80))
        assert calibrating.kept(own) is None


def test_all_candidates_together_fail_with_what_was_allowed() -> None:
    """The samples decide which candidate is recommended, so that a wrong one of any of them may be released."""
    asked = of_plan(plan(), limits=hs.Limits(monte_carlo=True))
    total = 4e-6
    each, delta = shared(hs.MonteCarlo(failure_probability=total), asked)
    candidates = len(list(every(asked.plan, asked.limits)))
    assert candidates > 50
    assert candidates * each.failure_probability <= total * (1.0 + 1e-12)
    assert release_delta(delta, total) <= asked.delta
    with pytest.raises(InvalidInputError, match="'failure_probability' field must be below delta"):
        hs.recommend(plan(), monte_carlo=hs.MonteCarlo(failure_probability=1e-5))


@pytest.mark.parametrize(("steps", "noise", "delta"), [(40, 1e4, 1e-5), (80, 2.0, 1e-5), (80, 1e4, 1e-4)])
def test_kept_certificates_are_of_the_candidate_and_its_target(steps, noise, delta, tmp_path: Path) -> None:
    """Digests have no key: whoever edits a file of results can make one that matches."""
    path, asked = tmp_path / "results.jsonl", of_plan(plan(), limits=hs.Limits(samplers=("poisson",)))
    (candidate,) = every(asked.plan, asked.limits)
    other = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=steps), noise_multiplier=noise)
    certificate = hs.certify(other, delta=delta, method="gaussian")
    with calibrations(asked, results=path) as calibrating:
        calibrating.keep(candidate, certificate, 1.0)
    with (
        calibrations(asked, results=path) as calibrating,
        pytest.raises(VerificationError, match="is not of this candidate and target"),
    ):
        calibrating.certificate(candidate)


@pytest.mark.parametrize(("sampled", "share"), [(True, 1.0), (False, 0.5)])
def test_kept_certificates_promise_what_the_calibrations_have_to(sampled: bool, share: float, tmp_path: Path) -> None:
    """A sampled one does not answer where sampling is not allowed, nor one for a delta above the candidate's part."""
    path, asked = tmp_path / "results.jsonl", of_plan(plan(), limits=hs.Limits(samplers=("poisson",)))
    (candidate,) = every(asked.plan, asked.limits)
    certificate = hs.certify(candidate.plan.mechanism().with_noise(1e4), delta=asked.delta, method="gaussian")
    if sampled:
        samples = hs.Certificate.load(SAMPLED).monte_carlo
        certificate = certificate.model_copy(update={"monte_carlo": samples}).sealed()
    with calibrations(asked, results=path) as calibrating:
        calibrating.keep(candidate, certificate, 1.0)
    with (
        calibrations(asked, delta=share * asked.delta, results=path) as calibrating,
        pytest.raises(VerificationError, match="is not of this candidate and target"),
    ):
        calibrating.kept(candidate)


def test_reasons_name_the_own_plan_memory_and_length(first: hs.Recommendation) -> None:
    text = " ".join(first.reasons)
    for part in ("than independent noise", "The plan as it is", "rows of noise", "Twice as many steps", "(estimated)"):
        assert part in text
    assert first.own is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": 1.0}, "'parameters' field is missing"),
        ({"parameters": 1}, "'memory' field is missing"),
        ({"memory": -1.0, "parameters": 1}, "'memory' field must be at least 0 bytes. Got -1.0"),
        ({"samplers": ("shuffle",)}, "'samplers' field must name some of poisson"),
        ({"samplers": ("fixedsize",)}, r"Got 'fixedsize' instead \(did you mean 'fixed_size'\?\)\.$"),
        ({"samplers": ()}, "'samplers' field must name some of poisson"),
        ({"dtype": "bfloat16"}, "'dtype' field must be one of float32, float64. Got 'bfloat16'"),
        ({"memory": 1.0, "parameters": 0}, "'parameters' field must be at least 1. Got 0"),
    ],
)
def test_wrong_limits_are_named(fields, message) -> None:
    with pytest.raises(InvalidInputError, match=message):
        hs.Limits(**fields)


def test_a_plan_without_a_target_or_a_mechanism_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'target.epsilon' field is missing; .* give epsilon= here"):
        hs.recommend(plan(target={}))
    shuffled = plan(sampler={"kind": "shuffle"}, strategy={"kind": "square_root"})
    with pytest.raises(CannotCertifyError, match="no mechanism to recommend within these limits"):
        hs.recommend(shuffled.model_copy(update={"data": shuffled.data}), limits=hs.Limits(samplers=("b_min_sep",)))
