"""Composed claims: against independent convolutions, never on the wrong side, and refused where they make no sense."""

from pathlib import Path

import numpy as np
import pytest
from composition_oracles import (
    OneOutput,
    balls_in_bins_losses,
    composed_delta,
    poisson_losses,
    where,
)

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.composition.claims import shared_facts, unit_of
from hockeystick.composition.profile_law import law_from_profiles
from hockeystick.composition.runs import Route
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, VerificationError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import compose as compose_laws
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import Settings
from hockeystick.types import Adjacency, Direction, Side

DELTA = 1e-5
POISSON = {"sigma": 1.0, "rate": 0.05, "steps": 40}
BINS = {"sigma": 2.0, "bins": 10, "epochs": 2}


def poisson(sigma=1.0, rate=0.05, steps=40):
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=steps), noise_multiplier=sigma)


def balls_in_bins(sigma=2.0, bins=10, epochs=2):
    return hs.Mechanism(sampler=hs.BallsInBins(bins=bins, epochs=epochs), noise_multiplier=sigma)


def no_tick():
    return None


RELEASED = Path(__file__).parents[1] / "certification/certificates-0.1.0/released.json"


@pytest.fixture(scope="module")
def poisson_run():
    return hs.certify(poisson(), delta=DELTA)


@pytest.fixture(scope="module")
def bins_run():
    return hs.certify(balls_in_bins(), delta=DELTA)


@pytest.fixture(scope="module")
def both(poisson_run, bins_run):
    return hs.compose([poisson_run, bins_run], delta=DELTA)


def oracles(step):
    return poisson_losses(**POISSON, step=step), balls_in_bins_losses(**BINS, step=step, spacing=4e-3, largest=120.0)


# --- against independent convolutions ------------------------------------------------------------------------------


def test_the_oracle_agrees_with_single_runs(poisson_run, bins_run):
    """Each run alone, so that the oracle of the composition can be trusted."""
    for losses, certificate in zip(oracles(1e-3), (poisson_run, bins_run), strict=True):
        assert losses.epsilon(DELTA) == pytest.approx(certificate.epsilon.upper, rel=1e-3)


def test_a_poisson_run_and_a_balls_in_bins_run_are_within_0_2_percent_of_a_plain_convolution(both):
    first, second = oracles(1e-3)
    truth = first.then(second).epsilon(DELTA)
    assert truth * (1.0 - 2e-4) <= both.epsilon.upper <= truth * 1.002
    assert truth * 0.998 <= both.epsilon.lower <= truth * (1.0 + 2e-4)


def test_ten_runs_are_at_most_1_percent_above_a_plain_convolution(poisson_run, bins_run):
    first, second = oracles(4e-3)
    truth = first.then(second).times(5).epsilon(DELTA)
    ten = hs.compose([poisson_run, bins_run] * 5, delta=DELTA)
    assert truth * (1.0 - 5e-4) <= ten.epsilon.upper <= truth * 1.01
    assert truth * 0.99 <= ten.epsilon.lower <= truth * (1.0 + 5e-4)
    assert len(ten.certificates) == 2


def test_two_poisson_runs_agree_with_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    runs = [(1.0, 0.01, 300), (0.7, 0.002, 500)]
    peer = None
    for sigma, rate, steps in runs:
        step = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=1e-3)
        peer = step.self_compose(steps) if peer is None else peer.compose(step.self_compose(steps))
    epsilon = hs.compose([poisson(*run) for run in runs], delta=DELTA).epsilon
    theirs = peer.get_epsilon_for_delta(DELTA)
    assert epsilon.lower <= theirs * 1.0001
    assert epsilon.upper == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize("cap", [None, 80])
def test_contours_say_what_laws_say(monkeypatch, cap):
    """Poisson runs of several kinds, one of them twice; where batches are cut, the slack of every copy is charged."""
    options = {} if cap is None else {"truncated_batch_size": cap, "num_examples": 1000}
    sampler = hs.Poisson(sampling_prob=0.03, steps=20, **options)
    runs = [hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=sigma), delta=DELTA) for sigma in (0.9, 1.3)]
    runs = [runs[0], runs[1], runs[0]]
    epsilon = hs.compose(runs, delta=DELTA).epsilon
    monkeypatch.setattr("hockeystick.composition.compose._contours", lambda runs: None)
    laws = hs.compose(runs, delta=DELTA).epsilon
    assert laws.lower <= epsilon.lower <= epsilon.upper <= laws.upper
    assert cap is not None or epsilon.upper - epsilon.lower <= 0.02 * (laws.upper - laws.lower)


def test_a_thousand_phases_need_no_law(monkeypatch, poisson_run):
    """Their laws would take minutes; contours of a hundred different steps have as many moments for each frequency."""

    def law(*arguments):
        raise AssertionError("a law was made")

    monkeypatch.setattr("hockeystick.composition.compose.composed_powers", law)
    runs = [
        poisson_run.model_copy(update={"mechanism": poisson_run.mechanism.with_noise(sigma)}).sealed()
        for sigma in np.geomspace(3.0, 6.0, 100).tolist()
    ]
    claim = hs.compose(runs * 10, delta=DELTA)
    assert claim.epsilon.upper - claim.epsilon.lower <= 1e-5 * claim.epsilon.upper
    assert len(claim.runs) == 1000
    # Poisson steps are at least as private with more noise: all at the least and at the most noise are on either side
    least, most = (hs.compose([run] * 1000, delta=DELTA).epsilon for run in (runs[0], runs[-1]))
    assert most.upper < claim.epsilon.lower < claim.epsilon.upper < least.lower


def random_run(rng):
    """A run of one or two outputs, whose ratio a grid can hold: kind, parameters, mechanism."""
    kind = ["poisson", "allocation", "one"][rng.integers(3)]
    parameters = {"sigma": float(rng.uniform(0.6, 3.0)), "rate": float(rng.uniform(0.02, 1.0))}
    sampler = {
        "poisson": hs.Poisson(sampling_prob=parameters["rate"], steps=2),
        "allocation": hs.BallsInBins(bins=2, epochs=1),
        "one": hs.Poisson(sampling_prob=parameters["rate"], steps=1),
    }[kind]
    return kind, parameters, hs.Mechanism(sampler=sampler, noise_multiplier=parameters["sigma"])


def law_of(mechanism, side, delta):
    settings = Settings(Resolution(68, delta))
    (law,) = ACCOUNTANTS["direct"].laws_of(dominating_pair(mechanism), side, settings)
    return law


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.weekly) for seed in range(20, 100))]
)
def test_random_pairs_are_never_on_the_wrong_side_of_the_truth(seed):
    """By laws from both sides, and by a law made of the profile from above; the truth by quadrature."""
    rng = np.random.default_rng(seed)
    kind, parameters, mechanism = random_run(rng)
    rate, sigma = float(rng.uniform(0.05, 1.0)), float(rng.uniform(0.6, 3.0))
    second = hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=1), noise_multiplier=sigma)
    resolution = Resolution(68, 1e-6)
    upper, lower = (
        compose_laws(law_of(mechanism, side, 1e-6), law_of(second, side, 1e-6), resolution) for side in Side
    )
    profiles = hs.bound(mechanism, "direct").profiles
    by_profile = compose_laws(
        law_from_profiles(profiles, 1e-6, tick=no_tick), law_of(second, Side.UPPER, 1e-6), resolution
    )
    for way in Direction:
        for epsilon in (0.05, 0.5, 1.5, 3.0):
            truth, error = composed_delta(kind, parameters, OneOutput(rate, 1.0 / sigma), epsilon, way)
            assert law_delta(upper, epsilon, way) >= truth - error
            assert law_delta(by_profile, epsilon, way) >= truth - error
            assert law_delta(lower, epsilon, way) <= truth + error
            if truth > 1e-6:
                assert law_delta(upper, epsilon, way) <= truth * 1.02
                assert law_delta(lower, epsilon, way) >= truth * 0.98


def test_compose_itself_brackets_quadrature():
    """From the front door, on mechanisms that are small enough for the quadrature."""
    mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=2, epochs=1), noise_multiplier=1.2)
    second = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.3, steps=1), noise_multiplier=0.9)
    both_runs = hs.compose([mechanism, second], delta=1e-4)

    def exact(epsilon, way):
        value, error = composed_delta("allocation", {"sigma": 1.2}, OneOutput(0.3, 1 / 0.9), epsilon, way)
        assert error < 1e-5 * value + 1e-9
        return value

    truth = max(where(lambda at, w=way: exact(at, w), 1e-4) for way in Direction)
    assert both_runs.epsilon.lower <= truth <= both_runs.epsilon.upper
    assert both_runs.epsilon.upper <= truth * 1.002
    at = hs.compose([mechanism, second], epsilon=2.0)
    there = max(exact(2.0, way) for way in Direction)
    assert at.delta.lower <= there <= at.delta.upper <= there * 1.01


def test_public_batches_compose_to_one_gaussian():
    """Closed form: two deterministic runs of k visits at sigma are one Gaussian of sensitivity sqrt(2 k)."""
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=2), noise_multiplier=2.0)
    four = hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=4), noise_multiplier=2.0)
    exact = hs.bound(four, "gaussian", side=Side.LOWER).epsilon(DELTA)
    epsilon = hs.compose([run, run], delta=DELTA).epsilon
    assert epsilon.lower <= exact <= epsilon.upper <= exact * 1.002


# --- runs without laws ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def correlated():
    strategy = hs.BandedSquareRoot(bands=2)
    run = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=4), noise_multiplier=4.0)
    return hs.certify(run, delta=DELTA, method="moment_majorant")


def test_a_run_without_a_law_enters_through_its_profile(poisson_run, correlated):
    composed = hs.compose([poisson_run, correlated], delta=DELTA)
    routes = [methods.route for methods in composed.methods]
    assert routes == [Route.LAW, Route.PROFILE]
    singles = [poisson_run.epsilon, correlated.epsilon]
    assert (
        max(epsilon.upper for epsilon in singles) < composed.epsilon.upper < sum(epsilon.upper for epsilon in singles)
    )
    assert composed.epsilon.lower >= max(epsilon.lower for epsilon in singles) * (1.0 - 1e-6)


def test_a_profile_is_used_as_well_as_a_law(poisson_run, bins_run):
    """The same two runs by laws, and with the first one's law made of its profile alone."""
    exact = hs.compose([poisson_run, bins_run], delta=DELTA).epsilon.upper
    profiles = hs.bound(poisson_run.mechanism, "direct", settings=Settings(Resolution(68, DELTA))).profiles
    law = law_from_profiles(profiles, DELTA, tick=no_tick)
    together = compose_laws(law, law_of(bins_run.mechanism, Side.UPPER, DELTA), Resolution(68, DELTA))
    epsilon = max(
        smallest_epsilon(lambda at, d=way: law_delta(together, at, d), DELTA, Side.UPPER) for way in Direction
    )
    assert epsilon == pytest.approx(exact, rel=1e-3)


def monte_carlo_certificate():
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=4),
        sampler=hs.BMinSep(min_sep=4, sampling_prob=0.2, steps=16),
        noise_multiplier=3.0,
    )
    options = hs.MonteCarlo(failure_probability=1e-6, seed=5, ratio=1.0)
    return hs.certify(run, delta=1e-3, method="monte_carlo", monte_carlo=options)


@pytest.fixture(scope="module")
def sampled():
    return monte_carlo_certificate()


def test_failure_probabilities_of_monte_carlo_certificates_add_up(poisson_run, sampled):
    assert sampled.kind is hs.Kind.MONTE_CARLO
    composed = hs.compose([poisson_run, sampled, sampled], delta=2e-3)
    assert composed.kind is hs.Kind.MONTE_CARLO
    assert composed.failure_probability == pytest.approx(1e-6, rel=1e-9)  # one certificate, one chance to fail
    assert composed.failure_probability >= 1e-6
    assert composed.confidence == 1.0 - composed.failure_probability
    assert composed.methods[1].route is Route.CLAIM
    alone = hs.compose([sampled], delta=1e-3)
    assert alone.epsilon.upper == pytest.approx(sampled.epsilon.upper, rel=1e-6)
    assert alone.epsilon.lower == pytest.approx(sampled.epsilon.lower, rel=1e-6)
    assert "fails with probability at most 1e-06" in str(alone)


def test_a_claimed_point_composes_no_better_than_its_epsilon_says(sampled):
    """Two runs of an (eps, delta) are at most (2 eps, 2 delta) and more than (eps, delta)."""
    two = hs.compose([sampled, sampled], delta=2e-3)
    assert sampled.epsilon.upper < two.epsilon.upper <= 2.0 * sampled.epsilon.upper * (1.0 + 1e-6)


def test_a_sampled_lower_end_of_a_released_run_may_fail_too():
    """What the test of the release spends is part of delta; what bounds the lower end by samples is not."""
    released = hs.Certificate.load(RELEASED)
    assert released.monte_carlo is not None
    assert released.method.lower != released.method.upper
    assert shared_facts((released,))["failure_probability"] is None
    method = released.method.model_copy(update={"lower": released.method.upper})
    facts = shared_facts((released.model_copy(update={"method": method}),))
    assert facts["failure_probability"] >= released.monte_carlo.failure_probability
    assert facts["confidence"] == 1.0 - facts["failure_probability"]


# --- users -----------------------------------------------------------------------------------------------------------


def test_two_halves_of_a_run_of_users_are_the_run():
    """Poisson steps are independent, so both intervals hold the same truth; the law of the copies is near exact."""
    unit = hs.Unit(kind="user", examples_per_user=2)

    def run(steps):
        return hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=steps), noise_multiplier=2.0, unit=unit)

    halves, whole = hs.compose([run(6), run(6)], delta=1e-4), hs.certify(run(12), delta=1e-4)
    assert halves.methods[0].route is Route.LAW
    assert halves.methods[0].lower is not None
    assert whole.bounds.lower <= halves.bounds.upper <= whole.bounds.upper * 1.01
    assert whole.bounds.lower * 0.99 <= halves.bounds.lower <= whole.bounds.upper


def test_users_whose_examples_are_replaced_have_no_law_of_copies():
    """The copies are about ghosts, from which replacement is two links away: no upper law of theirs may be used."""
    sampler = hs.Poisson(sampling_prob=0.05, steps=20)
    for neighbours, laws in (("zero_out", 1), ("replace", 0)):
        unit = hs.Unit(kind="user", examples_per_user=2, neighbours=neighbours)
        pair = dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=2.0, unit=unit))
        assert len(ACCOUNTANTS["direct"].laws_of(pair, Side.UPPER, Settings(Resolution(24, 1e-4)))) == laws


# --- which runs share examples -------------------------------------------------------------------------------------


def test_disjoint_parts_are_as_private_as_the_worst_run(poisson_run, bins_run):
    composed = hs.compose([poisson_run, bins_run, poisson_run], delta=DELTA, data="disjoint")
    worst = max(poisson_run.epsilon.upper, bins_run.epsilon.upper)
    assert composed.epsilon.upper == pytest.approx(worst, rel=1e-5)
    assert composed.epsilon.lower <= worst
    assert composed.relation == "disjoint parts"
    assert hs.compose([poisson_run, bins_run], delta=DELTA, data=[[1], [2]]).epsilon == composed.epsilon


def test_overlapping_parts_are_as_private_as_the_worst_set(poisson_run, bins_run, both):
    composed = hs.compose([poisson_run, bins_run, poisson_run], delta=DELTA, data=[[1, 2], [3]])
    assert composed.epsilon == both.epsilon
    assert composed.relation == "overlapping parts"
    assert "1+2, 3" in str(composed)
    twice = hs.compose([poisson_run, poisson_run], delta=DELTA)
    every = hs.compose([poisson_run, bins_run, poisson_run], delta=DELTA, data=[[1, 2], [1, 3], [2, 3]])
    assert every.epsilon.upper == max(twice.epsilon.upper, both.epsilon.upper)


def test_disjoint_parts_of_users_ask_for_whole_users():
    """Users with examples in both parts would take part in two runs, at more than the larger epsilon of the two."""
    unit = hs.Unit(kind="user", examples_per_user=2)
    runs = [
        hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=epochs), noise_multiplier=4.0, unit=unit)
        for epochs in (1, 2)
    ]
    apart, together = (hs.compose(runs, delta=DELTA, data=data) for data in ("disjoint", "same"))
    assert apart.epsilon.upper < together.epsilon.upper
    assert "all examples of a user be in one part" in " ".join(apart.requirements)
    assert "all examples of a user be in one part" not in " ".join(together.requirements)


def test_the_order_of_runs_does_not_matter(poisson_run, bins_run, both):
    assert hs.compose([bins_run, poisson_run], delta=DELTA).epsilon.upper == pytest.approx(both.epsilon.upper, rel=1e-5)


def test_one_run_alone_is_its_certificate(poisson_run):
    alone = hs.compose([poisson_run], delta=DELTA)
    assert alone.epsilon.upper == pytest.approx(poisson_run.epsilon.upper, rel=1e-6)
    assert alone.epsilon.lower == pytest.approx(poisson_run.epsilon.lower, rel=1e-6)


def test_mechanisms_are_certified_first(both):
    assert hs.compose([poisson(), balls_in_bins()], delta=DELTA).digest == both.digest


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([[1]], "Run 2 is in none"),
        ([[1, 3], [2]], r"Got \[1, 3\]"),
        ([[0, 1, 2]], r"Got \[0, 1, 2\]"),
        ([[1, 1], [2]], r"Got \[1, 1\]"),
        ([[], [1, 2]], r"Got \[\]"),
        ("parts", "'parts'"),
        ([1, 2], "lists of numbers"),
        (3, "'data'"),
    ],
)
def test_relations_that_are_none(poisson_run, bins_run, data, named):
    with pytest.raises(InvalidInputError, match=named):
        hs.compose([poisson_run, bins_run], delta=DELTA, data=data)


@pytest.mark.parametrize("runs", [[], "certificate.json", None, 3])
def test_no_runs(runs):
    with pytest.raises(InvalidInputError, match="'runs'"):
        hs.compose(runs, delta=DELTA)


def test_what_is_no_run(poisson_run):
    with pytest.raises(InvalidInputError, match=r"^Run 2 of the 'runs' argument must be .* Got 3\.0 instead\.$"):
        hs.compose((poisson_run, 3.0), delta=DELTA)


def test_other_neighbours_are_refused(poisson_run, bins_run):
    changed = bins_run.model_copy(update={"adjacency": Adjacency.ADD_REMOVE}).sealed()
    with pytest.raises(InvalidInputError, match="adjacency: number 1 is about 'zero_out', number 2 about 'add_remove'"):
        hs.compose([poisson_run, changed], delta=DELTA)


def test_other_units_are_refused(poisson_run):
    users = hs.MultiAttribution(min_sep=4, sampling_prob=0.1, steps=8, examples_per_user=2)
    user = poisson_run.model_copy(update={"mechanism": hs.Mechanism(sampler=users, noise_multiplier=3.0)}).sealed()
    assert (unit_of(poisson_run), unit_of(user)) == ("example", "user with at most 2 example(s)")
    with pytest.raises(InvalidInputError, match="unit: number 1 is about 'example', number 2 about 'user with"):
        hs.compose([poisson_run, user], delta=DELTA)


def test_altered_certificates_are_refused(poisson_run):
    altered = poisson_run.model_copy(update={"confidence": 0.5})
    with pytest.raises(VerificationError, match="certificate 2 was altered"):
        hs.compose([poisson_run, altered], delta=DELTA)


def test_a_notion_of_neighbours_holds_only_if_it_holds_for_all(poisson_run):
    public = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=3.0)
    assert Adjacency.ADD_REMOVE in hs.compose([poisson_run], delta=DELTA).also_holds_for
    assert hs.compose([poisson_run, public], delta=DELTA).also_holds_for == ()


def test_a_deadline_stops_it(poisson_run, bins_run):
    with pytest.raises(BudgetExceededError, match="budget"):
        hs.compose([poisson_run, bins_run], delta=DELTA, deadline=Deadline(0.0))


# --- files and verification ----------------------------------------------------------------------------------------


def test_a_claim_survives_its_file_and_verifies(both, tmp_path):
    both.save(tmp_path / "both.json")
    again = hs.Composition.load(tmp_path / "both.json")
    assert again == both
    assert hs.verify(again) is again


def altered(claim, **changes):
    return claim.model_copy(update=changes).sealed()


def test_claims_that_are_too_strong_do_not_verify(both):
    for end, factor in (("upper", 1.0 - 1e-6), ("lower", 1.0 + 1e-6)):
        stronger = both.epsilon.model_copy(update={end: getattr(both.epsilon, end) * factor})
        with pytest.raises(VerificationError, match=f"epsilon.{end}"):
            hs.verify(altered(both, epsilon=stronger))


def test_claims_about_less_than_the_runs_do_not_verify(both):
    cases = {
        "together": ((1,), (2,)),  # disjoint parts would have smaller numbers, but also another requirement
        "requirements": both.requirements[:1],
        "also_holds_for": (),
        "kind": hs.Kind.MONTE_CARLO,
    }
    for name, value in cases.items():
        with pytest.raises(VerificationError):
            hs.verify(altered(both, **{name: value}))


def test_a_certificate_inside_has_to_verify_too(both):
    certificate = both.certificates[0]
    stronger = certificate.epsilon.model_copy(
        update={"upper": certificate.epsilon.upper * 0.9, "lower": certificate.epsilon.lower * 0.8}
    )
    forged = certificate.model_copy(update={"epsilon": stronger}).sealed()
    with pytest.raises(VerificationError, match=r"certificates\.0"):
        hs.verify(altered(both, certificates=(forged, both.certificates[1])))


def test_edits_are_noticed(both):
    with pytest.raises(VerificationError, match="digest"):
        hs.verify(both.model_copy(update={"delta": 1e-4}))
    inside = both.certificates[0].model_copy(update={"confidence": 0.5})
    with pytest.raises(VerificationError, match=r"certificates\.0"):
        hs.verify(both.model_copy(update={"certificates": (inside, both.certificates[1])}).sealed())


def test_the_text_says_the_claim_the_runs_and_what_to_do(both):
    text = str(both)
    assert text.startswith("(epsilon, delta) = (")
    assert "2, on the same data" in text
    assert "identity with poisson, 40 steps, noise multiplier 1" in text
    step = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=1), noise_multiplier=2.0)
    assert "identity with poisson, 1 step, noise multiplier 2" in str(hs.compose([step], delta=DELTA))
    assert "Draw the batches and the noise of every run afresh" in text


def test_the_question_is_kept(both):
    assert both.question == Question(delta=DELTA)
