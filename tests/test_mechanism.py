"""Mechanisms and the base of all descriptions: frozen, validated once, in and out of JSON."""

import re

import pytest
from samplers import DECLARED

from hockeystick import (
    BallsInBins,
    BandedToeplitz,
    Deterministic,
    Identity,
    Mechanism,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from hockeystick.errors import InvalidInputError
from hockeystick.samplers import SAMPLERS, Sampler
from hockeystick.strategies.optimised import Held

EXAMPLES: tuple[Sampler, ...] = (
    Deterministic(bins=4, epochs=2),
    Shuffle(batch_size=3, bins=4),
    Poisson(sampling_prob=0.25, steps=7),
    Poisson(sampling_prob=0.25, steps=7, truncated_batch_size=3, num_examples=9),
    RandomAllocation(bins=5, participations=2, epochs=3),
    BallsInBins(bins=5),
)


@pytest.mark.parametrize("sampler", EXAMPLES)
def test_json_round_trip(sampler: Sampler) -> None:
    mechanism = Mechanism(sampler=sampler, noise_multiplier=0.1 + 0.2)
    again = Mechanism.parse_json(mechanism.model_dump_json())
    assert again == mechanism
    assert type(again.sampler) is type(sampler)
    assert Mechanism.parse(mechanism.model_dump()) == mechanism


def test_the_strategy_is_the_identity_unless_said_otherwise() -> None:
    assert Mechanism(sampler=EXAMPLES[0]).strategy == Identity()
    assert Mechanism(sampler=EXAMPLES[0]).matrix.max_column_norm == 1.0


def test_sigma_has_to_be_there_when_it_is_asked_for() -> None:
    mechanism = Mechanism(sampler=EXAMPLES[0])
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        _ = mechanism.sigma
    assert mechanism.with_noise(2.0).sigma == 2.0
    assert mechanism.noise_multiplier is None


def test_descriptions_are_frozen_and_hashable() -> None:
    mechanism = Mechanism(sampler=EXAMPLES[0], noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match=r"^The 'noise_multiplier' field of this Mechanism cannot be changed"):
        mechanism.noise_multiplier = 2.0  # type: ignore[misc]
    assert hash(mechanism) == hash(Mechanism(sampler=EXAMPLES[0], noise_multiplier=1.0))


@pytest.mark.parametrize("noise", [0.0, -1.0, 1e-3, 1e7, float("nan"), float("inf"), "1", True])
def test_noise_is_a_number_in_range(noise: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'noise_multiplier' field must be .* Got .* instead\.$"):
        Mechanism(sampler=EXAMPLES[0], noise_multiplier=noise)  # type: ignore[arg-type]


def test_errors_of_nested_data_name_the_field() -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'sampler.bins' field must be at least 1. Got 0 instead\.$"):
        Mechanism.parse({"sampler": {"kind": "balls_in_bins", "bins": 0}})
    with pytest.raises(InvalidInputError, match=r"^The 'sampler.kind' field must be one of .* Got 'foo' instead\.$"):
        Mechanism.parse({"sampler": {"kind": "foo"}})
    with pytest.raises(InvalidInputError, match=r"^The 'bins' field is missing and has to be given\.$"):
        BallsInBins()  # type: ignore[call-arg]
    with pytest.raises(
        InvalidInputError, match=r"^The 'sampler.participations' field must be at most bins = 2\. Got 3 instead\.$"
    ):
        Mechanism.parse({"sampler": {"kind": "random_allocation", "bins": 2, "participations": 3}})
    with pytest.raises(InvalidInputError, match=r"^The input must be a table of fields\. Got 3 instead\.$"):
        Mechanism.parse(3)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_unknown_fields_are_named_without_the_kind(kind: str) -> None:
    known = DECLARED[kind].cases[0][0].model_dump(exclude_defaults=True)
    for unknown in ("foo", kind):
        with pytest.raises(InvalidInputError, match=rf"^The 'sampler\.{unknown}' field is not known here"):
            Mechanism.parse({"sampler": {"kind": kind, unknown: 1} | known})


@pytest.mark.parametrize("field", ["sampler", "strategy"])
@pytest.mark.parametrize("given", ["poisson", 3, Poisson, None, Mechanism.parse])
def test_what_is_no_description_is_refused_with_an_example(field: str, given: object) -> None:
    fields = {"sampler": Poisson(sampling_prob=0.1, steps=3)} | {field: given}
    example = {"sampler": "a sampler, such as hs.Poisson(", "strategy": "a strategy, such as hs.BandedSquareRoot("}
    with pytest.raises(InvalidInputError, match=rf"^The '{field}' field must be {re.escape(example[field])}"):
        Mechanism(**fields)


def test_a_scheme_of_the_other_kind_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidInputError, match=r"must be a sampler, such as hs\.Poisson\(.* Got Identity\("):
        Mechanism(sampler=Identity())


def test_schema() -> None:
    schema = Mechanism.model_json_schema()
    assert set(schema["properties"]["sampler"]["discriminator"]["mapping"]) == set(SAMPLERS)
    assert schema["additionalProperties"] is False


def test_a_billion_steps_take_no_memory_without_correlation() -> None:
    """The sensitivity that a certificate prints is a number of C, not of an array with a number for every step."""
    sampler = Poisson(sampling_prob=1e-6, steps=10**9)
    assert Mechanism(sampler=sampler, noise_multiplier=1.0).matrix.max_column_norm == 1.0


def test_a_plan_with_numbers_is_about_them() -> None:
    """A plan that leaves the matrix to an optimiser is that of any optimum; one that holds a matrix, of this alone."""
    sampler = Deterministic(bins=4)
    planned = Mechanism(strategy=BandedToeplitz(bands=2), sampler=sampler, noise_multiplier=1.0)
    held, other = (
        planned.model_copy(
            update={"strategy": BandedToeplitz(bands=2, held=Held(coefficients=numbers))},
        )
        for numbers in ((0.9, 0.3), (0.9, 0.31))
    )
    assert planned.pinned().is_of(planned)
    assert held.is_of(planned)
    assert held.is_of(held)
    assert not held.is_of(other)
    assert not planned.is_of(held)
    assert not held.is_of(planned.with_noise(2.0))
    assert planned.with_held_state(other.held_state()) == other
    assert held.with_held_state(other.held_state()) == held
    assert other.strategy.unheld() == planned.strategy
