"""Hints say what to change and by how much, and nothing where nothing can be gained."""

import re

import pytest

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BMinSep,
    Deterministic,
    FixedSize,
    Mechanism,
    Poisson,
    RandomAllocation,
    Shuffle,
    Unit,
    certify,
)
from hockeystick.calibration.hints import Asked, hints
from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.certificate import Certificate, Statements
from hockeystick.certification.description import state
from hockeystick.samplers import Sampler
from hockeystick.strategies import Strategy

DELTA = 1e-5


def only_hint(certificate: Certificate, asked: Asked = Asked()) -> str:  # noqa: B008
    found = hints(certificate, asked)
    assert len(found) == 1, found
    assert "\n" not in found[0]
    assert found[0].endswith(".")
    return found[0]


def number_in(hint: str, before: str) -> float:
    found = re.search(rf"{before} (?:about )?([0-9.e+-]*[0-9])", hint)
    assert found is not None, hint
    return float(found[1])


@pytest.mark.parametrize(
    "sampler",
    [
        Shuffle(batch_size=5, bins=50, epochs=3, remainder="drop", num_examples=252),
        Deterministic(bins=50, epochs=3),
        BallsInBins(bins=50, epochs=3),
    ],
    ids=lambda one: one.kind,
)
def test_batches_drawn_afresh_are_amplified(sampler: Sampler) -> None:
    """Against the same question about random allocation, asked directly."""
    drawn = Mechanism(sampler=RandomAllocation(bins=50, epochs=3))
    hint = only_hint(certify(Mechanism(sampler=sampler, noise_multiplier=1.5), delta=DELTA))
    assert "sampler.kind = 'random_allocation'" in hint
    assert "is certified for this noise." in hint
    true = certify(drawn.with_noise(1.5), delta=DELTA).bounds
    assert true.upper * (1.0 - 1e-3) <= number_in(hint, "epsilon") <= true.upper * (1.0 + 1e-5)


@pytest.mark.parametrize("unit", [Unit(neighbours="replace"), Unit(kind="user", examples_per_user=2)], ids=str)
@pytest.mark.parametrize(
    ("sampler", "other"),
    [
        (Shuffle(batch_size=5, bins=50), RandomAllocation(bins=50)),
        (FixedSize(batch_size=5, num_examples=250, steps=50), Poisson(sampling_prob=0.02, steps=50)),
    ],
    ids=lambda one: one.kind,
)
def test_a_hint_is_about_the_unit_of_the_plan(sampler: Sampler, other: Sampler, unit: Unit) -> None:
    """Not about one example that is zeroed out, of which less is certified."""
    hint = only_hint(certify(Mechanism(sampler=sampler, noise_multiplier=1.5, unit=unit), delta=DELTA))
    asked = certify(Mechanism(sampler=other, noise_multiplier=1.5, unit=unit), delta=DELTA).bounds
    said = number_in(hint, "epsilon")
    assert asked.lower is not None
    assert asked.lower <= said <= asked.upper * (1.0 + 1e-3)
    assert said > 1.2 * certify(Mechanism(sampler=other, noise_multiplier=1.5), delta=DELTA).bounds.upper


def test_batches_of_one_size_cost_noise() -> None:
    """Less is certified for Poisson batches, but for cohorts, which they do not have, and batches of all examples."""
    fixed = FixedSize(batch_size=5, num_examples=250, steps=50)
    hint = only_hint(certify(Mechanism(sampler=fixed, noise_multiplier=1.5), delta=DELTA))
    true = certify(Mechanism(sampler=Poisson(sampling_prob=0.02, steps=50), noise_multiplier=1.5), delta=DELTA).bounds
    assert true.upper * (1.0 - 1e-3) <= number_in(hint, "epsilon") <= true.upper * (1.0 + 1e-5)
    for left in (FixedSize(batch_size=250, num_examples=250, steps=50), fixed.model_copy(update={"cohort_steps": 10})):
        assert hints(certify(Mechanism(sampler=left, noise_multiplier=1.5), delta=DELTA), Asked()) == []


def test_batches_that_are_cut_near_their_mean_cost_noise() -> None:
    """As much as the hint says; far above the mean nothing is said."""
    whole = Poisson(sampling_prob=0.1, steps=50)

    def cut(size: int) -> Mechanism:
        sampler = whole.model_copy(update={"truncated_batch_size": size, "num_examples": 250})
        return Mechanism(sampler=sampler, noise_multiplier=1.5)

    hint = only_hint(certify(cut(25), delta=DELTA))
    assert "Batches that are cut to 25 examples cost noise" in hint
    true = certify(Mechanism(sampler=whole, noise_multiplier=1.5), delta=DELTA).bounds
    assert true.upper * (1.0 - 1e-3) <= number_in(hint, "epsilon") <= true.upper * (1.0 + 1e-5)
    assert hints(certify(cut(80), delta=DELTA), Asked()) == []


def test_a_hint_answers_the_question_that_was_asked() -> None:
    drawn = Mechanism(sampler=RandomAllocation(bins=20), noise_multiplier=1.5)
    hint = only_hint(certify(Mechanism(sampler=Deterministic(bins=20), noise_multiplier=1.5), epsilon=0.5))
    assert number_in(hint, "delta") <= certify(drawn, epsilon=0.5).bounds.upper * (1.0 + 1e-2)


def test_the_noise_in_a_hint_is_enough() -> None:
    last = calibrate_and_certify(Mechanism(sampler=Shuffle(batch_size=5, bins=50)), epsilon=2.0, delta=DELTA)
    hint = only_hint(last, Asked(epsilon=2.0))
    noise = number_in(hint, "noise multiplier of")
    assert noise < 0.5 * last.mechanism.sigma
    drawn = Mechanism(sampler=RandomAllocation(bins=50), noise_multiplier=noise)
    assert certify(drawn, delta=DELTA, method="direct").bounds.upper <= 2.0


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(sampler=Poisson(sampling_prob=0.01, steps=50), noise_multiplier=1.0),
        Mechanism(sampler=RandomAllocation(bins=20, epochs=2), noise_multiplier=1.0),
        Mechanism(sampler=BallsInBins(bins=20), noise_multiplier=1.0),
        Mechanism(sampler=Deterministic(bins=1, epochs=2), noise_multiplier=1.0),
        Mechanism(sampler=Shuffle(batch_size=4, bins=1), noise_multiplier=1.0),
    ],
    ids=lambda one: one.sampler.kind,
)
def test_nothing_is_said_where_nothing_can_be_gained(mechanism: Mechanism) -> None:
    assert hints(certify(mechanism, delta=DELTA), Asked()) == []


def test_fixed_batches_of_correlated_noise_could_be_drawn_once() -> None:
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=2), sampler=Deterministic(bins=5, epochs=2), noise_multiplier=2.0
    )
    assert only_hint(certify(mechanism, delta=DELTA)).endswith(
        "sampler.kind = 'balls_in_bins' draws the batches at random, once, and is amplified."
    )


CORRELATED: tuple[Strategy, Sampler] = (BandedSquareRoot(bands=3), BallsInBins(bins=8, epochs=2))


def test_a_gap_that_sampling_would_close_is_named_and_bounded() -> None:
    mechanism = Mechanism(strategy=CORRELATED[0], sampler=CORRELATED[1], noise_multiplier=3.0)
    certificate = certify(mechanism, delta=1e-4, method="bin_renyi")
    gap = certificate.bounds.gap
    assert gap is not None
    assert gap > 0.01
    hint = only_hint(certificate)
    assert hint.startswith("--allow monte-carlo may lower epsilon further, by")
    least = certificate.bounds.upper * (1.0 - number_in(hint, "by") / 100.0)
    assert certificate.bounds.lower is not None
    assert 0.0 <= certificate.bounds.lower - least <= 1e-3 * certificate.bounds.upper
    assert hints(certificate, Asked(sampling=True)) == []
    assert hints(certificate, Asked(method="bin_renyi")) == []


def test_b_min_sep_is_told_how_much_sampling_may_gain() -> None:
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=2),
        sampler=BMinSep(min_sep=4, sampling_prob=0.02, steps=40),
        noise_multiplier=3.0,
    )
    found = certify(mechanism, delta=DELTA)
    assert found.method.upper == "separated_windows"
    assert only_hint(found).startswith("--allow monte-carlo may lower epsilon further, by ")


def test_a_budget_that_was_too_small_is_named() -> None:
    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=8), sampler=BallsInBins(bins=40, epochs=3), noise_multiplier=3.0
    )
    certificate = certify(mechanism, delta=DELTA, budget=0.01)
    assert certificate.cut_off
    (hint,) = [one for one in hints(certificate, Asked(sampling=True, budget=0.01)) if "--budget" in one]
    needs = sum(one.seconds for one in certificate.cut_off)
    assert needs + 0.01 <= number_in(hint, "--budget") <= needs + 1.01
    assert certificate.cut_off[0].method in hint


@pytest.mark.parametrize(("examples", "said"), [(99_000, False), (100_000, False), (101_000, True), (None, False)])
def test_a_delta_above_one_over_the_examples_is_pointed_out(examples: int | None, said: bool) -> None:
    run = Mechanism(sampler=Poisson(sampling_prob=0.01, steps=10), noise_multiplier=1.0)
    certificate = state(certify(run, delta=DELTA), Statements(num_examples=examples))
    found = hints(certificate, Asked())
    assert len(found) == said
    if said:
        assert found[0].startswith("delta = 1e-05 is above 1/101000, which allows")
        assert found[0].count(".") == 1
    assert not hints(state(certify(run, epsilon=1.0), Statements(num_examples=examples)), Asked())
