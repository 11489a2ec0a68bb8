"""DpEvents: the same meaning in both languages, or a refusal that names the part."""

import sys

import pytest

pytest.importorskip("dp_accounting")

from dp_accounting import dp_event

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.interop.dp_events import (
    from_dp_event,
    phases_from_dp_event,
    phases_to_dp_event,
    to_dp_event,
)

GAUSSIAN = dp_event.GaussianDpEvent(1.5)
SAMPLED = dp_event.PoissonSampledDpEvent(0.01, GAUSSIAN)
TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.5)
NOTHING = dp_event.NoOpDpEvent()


def repeated(event: object, count: int) -> object:
    return dp_event.SelfComposedDpEvent(event, count)


MEANINGS = [
    (GAUSSIAN, hs.Deterministic(bins=1)),
    (repeated(GAUSSIAN, 7), hs.Deterministic(bins=1, epochs=7)),
    (SAMPLED, hs.Poisson(sampling_prob=0.01, steps=1)),
    (repeated(SAMPLED, 100), hs.Poisson(sampling_prob=0.01, steps=100)),
    (TRUNCATED, hs.Poisson(sampling_prob=0.01, steps=1, truncated_batch_size=20, num_examples=1000)),
    (repeated(TRUNCATED, 5), hs.Poisson(sampling_prob=0.01, steps=5, truncated_batch_size=20, num_examples=1000)),
]


@pytest.mark.parametrize(("event", "sampler"), MEANINGS)
def test_round_trips(event: object, sampler: object) -> None:
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=1.5)
    assert from_dp_event(event) == mechanism
    assert to_dp_event(mechanism) == event


@pytest.mark.parametrize("sampler", [hs.Poisson(sampling_prob=0.01, steps=3), hs.Deterministic(bins=2)])
@pytest.mark.parametrize("unit", [{"kind": "user", "examples_per_user": 4}, {"neighbours": "replace"}])
def test_units_that_events_cannot_say_are_refused(sampler, unit) -> None:
    run = hs.Mechanism(sampler=sampler, noise_multiplier=1.5, unit=hs.Unit(**unit))
    with pytest.raises(UnsupportedError, match="unit"):
        to_dp_event(run)
    with pytest.raises(UnsupportedError, match="unit"):
        phases_to_dp_event([run.model_copy(update={"unit": hs.Unit()}), run])


WRONG = [None, True, "1.0", 1j, [1.0], float("nan"), float("inf"), -1.0, 0.0]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize(
    "made",
    [
        dp_event.GaussianDpEvent,
        lambda wrong: dp_event.PoissonSampledDpEvent(wrong, GAUSSIAN),
        lambda wrong: dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(wrong)),
        lambda wrong: dp_event.TruncatedSubsampledGaussianDpEvent(1000, wrong, 20, 1.5),
        lambda wrong: dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, wrong),
        lambda wrong: dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(wrong)),
    ],
)
def test_what_is_no_number_in_an_event_is_refused(made, wrong) -> None:
    with pytest.raises(InvalidInputError, match=r"^The '\w+' field .* Got [^\n]* instead\.$"):
        from_dp_event(repeated(made(wrong), 2))


@pytest.mark.parametrize(
    ("event", "steps"),
    [
        (dp_event.ComposedDpEvent([SAMPLED, SAMPLED, SAMPLED]), 3),
        (dp_event.ComposedDpEvent([repeated(SAMPLED, 4), NOTHING, SAMPLED]), 5),
        (repeated(dp_event.ComposedDpEvent([SAMPLED, repeated(SAMPLED, 2)]), 10), 30),
    ],
)
def test_nested_compositions_of_one_event_are_counted(event: object, steps: int) -> None:
    assert from_dp_event(event).sampler == hs.Poisson(sampling_prob=0.01, steps=steps)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (NOTHING, "NoOpDpEvent"),
        (repeated(SAMPLED, 0), "does nothing"),
        (dp_event.LaplaceDpEvent(1.0), "LaplaceDpEvent"),
        (dp_event.NonPrivateDpEvent(), "NonPrivateDpEvent"),
        (
            dp_event.SampledWithoutReplacementDpEvent(100, 10, repeated(GAUSSIAN, 2)),
            "without replacement only",
        ),
        (
            dp_event.ComposedDpEvent([SAMPLED, dp_event.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN)]),
            "noise 3 in batches of 10 out of 100",
        ),
        (dp_event.SingleEpochTreeAggregationDpEvent(1.0, 8), "SingleEpochTreeAggregationDpEvent"),
        (dp_event.PoissonSampledDpEvent(0.1, repeated(GAUSSIAN, 2)), "SelfComposedDpEvent"),
        (dp_event.ComposedDpEvent([SAMPLED, GAUSSIAN]), "rate 0.01 and a Gaussian with noise 1.5"),
        (dp_event.ComposedDpEvent([GAUSSIAN, dp_event.GaussianDpEvent(2.0)]), "noise 1.5 and a Gaussian with noise 2"),
        ("a string", "a string"),
    ],
)
def test_what_has_no_exact_meaning_is_refused_by_name(event: object, named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        from_dp_event(event)


def test_sampling_without_replacement_is_for_replaced_examples() -> None:
    """Whose noise is counted in two clipping norms there."""
    event = repeated(dp_event.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN), 5)
    mechanism = from_dp_event(event)
    assert mechanism.sampler == hs.FixedSize(batch_size=10, num_examples=100, steps=5)
    assert mechanism.sigma == 3.0
    assert mechanism.unit.neighbours == "replace"
    assert to_dp_event(mechanism) == event
    with pytest.raises(UnsupportedError, match=r"unit\.neighbours = 'replace'"):
        to_dp_event(mechanism.model_copy(update={"unit": hs.Unit()}))
    cohorts = mechanism.sampler.model_copy(update={"cohort_steps": 5})
    with pytest.raises(UnsupportedError, match="'cohort_steps' field must be 1"):
        to_dp_event(mechanism.model_copy(update={"sampler": cohorts}))


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_counts_are_whole_numbers(count: object) -> None:
    with pytest.raises(InvalidInputError, match="count"):
        from_dp_event(dp_event.SelfComposedDpEvent(GAUSSIAN, count))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (dp_event.SampledWithoutReplacementDpEvent(1000, 10.7, GAUSSIAN), "sample_size"),
        (dp_event.SampledWithoutReplacementDpEvent(1000.5, 10, GAUSSIAN), "source_dataset_size"),
        (dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20.9, 1.5), "truncated_batch_size"),
        (dp_event.TruncatedSubsampledGaussianDpEvent(1000.9, 0.01, 20, 1.5), "dataset_size"),
    ],
)
def test_sizes_are_whole_numbers(event: object, field: str) -> None:
    """A batch of 10.7 examples was one of 10."""
    with pytest.raises(InvalidInputError, match=f"'{field}' field must be a whole number"):
        from_dp_event(event)


def test_values_that_no_mechanism_has_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        from_dp_event(dp_event.GaussianDpEvent(0.0))
    with pytest.raises(InvalidInputError, match="sampling_prob"):
        from_dp_event(dp_event.PoissonSampledDpEvent(0.0, GAUSSIAN))


@pytest.mark.parametrize(
    "sampler",
    [hs.Shuffle(batch_size=10, bins=10), hs.RandomAllocation(bins=10), hs.BallsInBins(bins=10)],
)
def test_samplers_without_an_event_are_refused_by_name(sampler: hs.Shuffle) -> None:
    with pytest.raises(UnsupportedError, match=sampler.kind):
        to_dp_event(hs.Mechanism(sampler=sampler, noise_multiplier=1.0))


def test_disjoint_fixed_batches_are_one_gaussian_for_each_epoch() -> None:
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=8, epochs=3), noise_multiplier=1.5)
    assert to_dp_event(mechanism) == repeated(GAUSSIAN, 3)


def test_noise_is_needed() -> None:
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        to_dp_event(hs.Mechanism(sampler=hs.Deterministic(bins=1)))


def test_phases_round_trip() -> None:
    phases = tuple(hs.Mechanism(sampler=sampler, noise_multiplier=1.5) for _, sampler in MEANINGS[1::2])
    assert phases_from_dp_event(phases_to_dp_event(phases)) == phases
    assert phases_to_dp_event(phases[:1]) == to_dp_event(phases[0])
    with pytest.raises(InvalidInputError, match="mechanisms"):
        phases_to_dp_event([])


def test_equal_steps_anywhere_in_the_tree_are_one_phase() -> None:
    part = dp_event.ComposedDpEvent([SAMPLED, NOTHING, repeated(GAUSSIAN, 2)])
    event = dp_event.ComposedDpEvent([repeated(part, 3), repeated(SAMPLED, 4), dp_event.GaussianDpEvent(2.0)])
    phases = phases_from_dp_event(event)
    assert [(phase.sampler, phase.sigma) for phase in phases] == [
        (hs.Poisson(sampling_prob=0.01, steps=7), 1.5),
        (hs.Deterministic(bins=1, epochs=6), 1.5),
        (hs.Deterministic(bins=1, epochs=1), 2.0),
    ]


def test_missing_library_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.dp_event", None)
    with pytest.raises(UnsupportedError, match=r"dp_accounting.*pip install"):
        from_dp_event(GAUSSIAN)
