"""Any dataset size, batch and length make a sampler, or one sentence with a proposal that works when followed."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hockeystick import Plan
from hockeystick.certificate import CertificateOfFormat1
from hockeystick.errors import InvalidInputError
from hockeystick.samplers import (
    SAMPLER_OPTIONS,
    BallsInBins,
    BatchSampler,
    Data,
    Deterministic,
    DeterministicOptions,
    Poisson,
    Shuffle,
    ShuffleOptions,
)

# Following a proposal ------------------------------------------------------------------------------------------------

PROPOSAL = re.compile(r"(data|sampler)\.(\w+) = ((?:\S+? or )*\S+?)(?: in place of data\.(\w+))?(?:,| would do)")


def proposals(values: dict[str, Any], message: str) -> Iterator[dict[str, Any]]:
    """The plans that a refusal proposes, one for each value of each field."""
    found = PROPOSAL.findall(message.split("; ", 1)[1])
    assert found, message
    for table, field, options, replaced in found:
        for option in options.split(" or "):
            followed = deepcopy(values)
            followed["data"].pop(replaced, None)
            followed[table][field] = option.strip("'") if "'" in option else json.loads(option)
            yield followed


def leads_to_a_mechanism(values: dict[str, Any], problems: int = 6) -> bool:
    """Whether a plan has a mechanism, or every proposal of its refusal does; each one removes a problem."""
    try:
        return 1 <= Plan.parse(values).mechanism().sampler.steps <= 10**9
    except InvalidInputError as error:
        message = str(error)
    return problems > 0 and all(leads_to_a_mechanism(one, problems - 1) for one in proposals(values, message))


counts = st.integers(1, 300) | st.integers(1, 10**9)
examples = counts | st.integers(1, 10**11)
sizes = st.integers(1, 400) | st.floats(1e-9, 1e9) | st.integers(1, 10**9) | st.floats(0.01, 50.0)
rates = st.one_of(
    st.fixed_dictionaries({"batch_size": sizes}),
    st.fixed_dictionaries({"batches_per_epoch": counts}),
    st.fixed_dictionaries({"sampling_prob": st.floats(1e-18, 1.0) | st.floats(1e-4, 1.0)}),
)
lengths = st.one_of(
    st.fixed_dictionaries({"epochs": sizes}),
    st.fixed_dictionaries({"steps": counts}),
    st.fixed_dictionaries({"epochs": sizes, "steps": counts}),
)
NEEDED = {"min_sep": counts, "examples_per_user": st.just(1), "groups": counts, "participations": counts}


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(SAMPLER_OPTIONS)))
    fields = SAMPLER_OPTIONS[kind].model_fields
    options = {name: draw(values) for name, values in NEEDED.items() if name in fields}
    if "remainder" in fields and draw(st.booleans()):
        options["remainder"] = draw(st.sampled_from(["drop", "short"]))
    data = {"num_examples": draw(examples)} | draw(rates) | draw(lengths)
    return {"data": data, "sampler": {"kind": kind} | options}


@settings(max_examples=200)
@given(plans())
@example({"data": {"num_examples": 11, "batches_per_epoch": 6, "epochs": 1}, "sampler": {"kind": "shuffle"}})
@example({"data": {"num_examples": 9, "batch_size": 0.25, "epochs": 0.5}, "sampler": {"kind": "shuffle"}})
@example({"data": {"num_examples": 10**9, "batch_size": 1e-9, "epochs": 1}, "sampler": {"kind": "balls_in_bins"}})
@example({"data": {"num_examples": 9, "sampling_prob": 1e-18, "steps": 7}, "sampler": {"kind": "balls_in_bins"}})
@example(
    {"data": {"num_examples": 7, "batch_size": 7, "epochs": 0.1}, "sampler": {"kind": "cyclic_poisson", "groups": 9}}
)
def test_every_refusal_proposes_what_works(values: dict[str, Any]) -> None:
    assert leads_to_a_mechanism(values)


# What follows from the data -------------------------------------------------------------------------------------------


@given(st.integers(1, 10**11), st.floats(1e-3, 1e9), st.integers(1, 10**6))
def test_the_rate_is_the_nearest_double_and_bins_the_nearest_number(count: int, size: float, steps: int) -> None:
    if size > count:
        size = float(count)
    data = Data(num_examples=count, batch_size=size, steps=steps)
    exact = Fraction(size) / count
    assert Plan.parse({"data": data, "sampler": {"kind": "poisson"}}).mechanism().sampler == Poisson(
        sampling_prob=float(exact), steps=steps
    )
    if 1 / exact <= 10**9:
        assert abs(data.bins("balls_in_bins") - 1 / exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("data", "sampler"),
    [
        ({"batches_per_epoch": 235, "epochs": 15}, Poisson(sampling_prob=1 / 235, steps=3525)),
        ({"batch_size": 256, "epochs": 15}, Poisson(sampling_prob=256 / 60_000, steps=3516)),
        ({"batch_size": 255.5, "epochs": 0.1}, Poisson(sampling_prob=255.5 / 60_000, steps=23)),
        ({"sampling_prob": 0.004, "steps": 77}, Poisson(sampling_prob=0.004, steps=77)),
        ({"sampling_prob": 0.004, "epochs": 0.5}, Poisson(sampling_prob=0.004, steps=125)),
    ],
)
def test_poisson_plans_by_rate_and_length(data: dict[str, Any], sampler: Poisson) -> None:
    plan = Plan.parse({"data": {"num_examples": 60_000} | data, "sampler": {"kind": "poisson"}})
    assert plan.mechanism().sampler == sampler


def test_federated_rounds_of_less_than_one_pass() -> None:
    """340 million clients, 6,500 of them in each of 2,000 rounds: a client takes part 0.038 times on average."""
    data = {"num_examples": 340_000_000, "batch_size": 6500, "steps": 2000}
    assert Plan.parse({"data": data, "sampler": {"kind": "poisson"}}).mechanism().sampler.steps == 2000


def test_bins_take_the_nearest_number_and_say_so() -> None:
    data = {"num_examples": 180_000, "batch_size": 2048, "epochs": 3}
    assert Plan.parse({"data": data, "sampler": {"kind": "balls_in_bins"}}).mechanism().sampler == BallsInBins(
        bins=88, epochs=3
    )


# Remainders -----------------------------------------------------------------------------------------------------------

MNIST = Data(num_examples=60_000, batch_size=256, epochs=2)


@pytest.mark.parametrize(
    ("remainder", "bins", "rest"),
    [("drop", 234, 96), ("short", 235, 96)],
)
def test_what_becomes_of_the_rest(remainder: str, bins: int, rest: int) -> None:
    shuffle = ShuffleOptions(remainder=remainder).sampler(MNIST)
    fixed = DeterministicOptions(remainder=remainder).sampler(MNIST)
    assert shuffle == Shuffle(batch_size=256, bins=bins, epochs=2, remainder=remainder, num_examples=60_000)
    assert fixed == Deterministic(batch_size=256, bins=bins, epochs=2, remainder=remainder, num_examples=60_000)
    assert shuffle.rest == fixed.rest == rest
    assert f"{rest}" in shuffle.requirement
    assert f"{rest}" in fixed.requirement


@pytest.mark.parametrize("options", [ShuffleOptions, DeterministicOptions])
@pytest.mark.parametrize("remainder", ["drop", "short"])
def test_a_size_that_divides_has_no_remainder(
    options: type[ShuffleOptions | DeterministicOptions], remainder: str
) -> None:
    even = Data(num_examples=60_000, batch_size=250, epochs=2)
    assert options(remainder=remainder).sampler(even) == options().sampler(even)


@given(st.integers(2, 60), st.integers(1, 60), st.sampled_from(["drop", "short"]), st.integers(1, 3), st.booleans())
def test_batches_with_a_remainder(count: int, size: int, remainder: str, epochs: int, shuffled: bool) -> None:
    """Whole batches first, no example twice in an epoch; fixed batches are the same in every epoch."""
    data = Data(num_examples=count, batch_size=min(size, count), epochs=epochs)
    sampler: Any = (ShuffleOptions if shuffled else DeterministicOptions)(remainder=remainder).sampler(data)
    batches = [batch.tolist() for batch in sampler.batches(count, np.random.default_rng(count))]
    whole, rest = divmod(count, data.batch_size)
    last = [rest] if remainder == "short" and rest else []
    assert [len(batch) for batch in batches] == ([data.batch_size] * whole + last) * epochs
    for epoch in range(epochs):
        seen = sorted(one for batch in batches[epoch * sampler.bins : (epoch + 1) * sampler.bins] for one in batch)
        assert len(set(seen)) == len(seen) == count - (rest if remainder == "drop" else 0)
        if not shuffled:
            assert seen == list(range(len(seen)))


def test_a_given_number_of_batches_keeps_it() -> None:
    data = Data(num_examples=60_000, batches_per_epoch=235, epochs=1)
    dropped, short = (ShuffleOptions(remainder=one).sampler(data) for one in ("drop", "short"))
    assert (dropped.bins, dropped.batch_size, dropped.rest) == (235, 255, 75)
    assert (short.bins, short.batch_size, short.rest) == (235, 256, 96)


DROPPED = {"batch_size": 4, "bins": 2, "remainder": "drop", "num_examples": 10}


@pytest.mark.parametrize(
    ("spec", "changed", "message"),
    [
        (Shuffle, {"num_examples": 8}, r"must be above the 8 examples of the whole batches\. Got 8 instead\.$"),
        (Shuffle, {"num_examples": None}, r"'num_examples' field has to be given with 'remainder'\.$"),
        (Shuffle, {"remainder": None}, r"'num_examples' field must be left out without 'remainder'\.$"),
        (Shuffle, {"remainder": "short"}, r"above the 4 .* less than batch_size \* bins = 8\. Got 10 instead\.$"),
        (Shuffle, {"remainder": "short", "bins": 1}, r"'bins' field must be at least 2 .* Got 1 instead\.$"),
        (Shuffle, {"remainder": "keep"}, r"'remainder' field must be 'drop' or 'short'\. Got 'keep' instead\.$"),
        (Deterministic, {"batch_size": None}, r"'batch_size' field has to be given with 'remainder'\.$"),
        (Deterministic, {"remainder": None, "num_examples": None}, r"'batch_size' field must be left out without"),
    ],
)
def test_remainders_that_do_not_fit_are_refused(
    spec: type[BatchSampler], changed: dict[str, Any], message: str
) -> None:
    assert spec(**DROPPED).steps == 2
    with pytest.raises(InvalidInputError, match=message):
        spec(**DROPPED | changed)


@pytest.mark.parametrize("spec", [Shuffle, Deterministic])
def test_another_number_of_examples_is_refused(spec: type[BatchSampler]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be the sampler's num_examples = 10\. Got 11 instead\.$"):
        spec(**DROPPED).batches(11, np.random.default_rng(0))


# What was stored before these fields existed -------------------------------------------------------------------------

STORED = {
    "requirements": [
        "Clip the gradient of every example to a fixed norm, sum over the batch, and add fresh Gaussian noise of "
        "standard deviation 2.0 times that norm to every step's sum, also for empty batches.",
        "Divide by a number fixed beforehand, such as the expected batch size, not by the size of the batch drawn.",
        "Keep the draws of batches and noise secret, and use them for this run only.",
    ],
}
"""Certificates that version 0.1.0 issued at its first tag, with the digests that it gave them."""


@pytest.mark.parametrize(
    ("sampler", "requirement", "rest", "digest"),
    [
        (
            {"kind": "shuffle", "bins": 3, "epochs": 2, "batch_size": 2},
            "Permute the examples uniformly at random, afresh in every one of 2 epoch(s), and cut each permutation in "
            "3 consecutive batches of exactly 2 examples.",
            {
                "epsilon": {"lower": 2.542065960839575, "upper": 2.9432255345848053},
                "method": {"upper": "gaussian", "lower": "shuffle_thresholds"},
                "references": [
                    "Balle and Wang 2018, Theorem 8; chua-2024, Theorem 4.1",
                    "chua-2024, eq. (1) to (3)",
                ],
            },
            "0ec08c1ab84f39f2c90881c15e2ff9422406985ffddfc9ab17566256ea2b7790",
        ),
        (
            {"kind": "deterministic", "bins": 3, "epochs": 2},
            "Cut the examples, in an order that does not depend on their content, in 3 disjoint batches of equal size, "
            "and visit these same batches in the same order in every one of 2 epoch(s).",
            {
                "epsilon": {"lower": 2.9432249454775365, "upper": 2.9432255345848053},
                "method": {"upper": "gaussian", "lower": "gaussian"},
                "references": ["Balle and Wang 2018, Theorem 8; chua-2024, Theorem 4.1"],
            },
            "13c3e6f687f6c9d5a40a0cfded234ad32e7bc76c31bc846ccb313cfc86de6abc",
        ),
    ],
)
def test_certificates_from_before_remainders_keep_their_digest(
    sampler: dict[str, Any], requirement: str, rest: dict[str, Any], digest: str
) -> None:
    stored = {
        "hockeystick_version": "0.1.0",
        "mechanism": {"strategy": {"kind": "identity"}, "sampler": sampler, "noise_multiplier": 2.0},
        "adjacency": "zero_out",
        "also_holds_for": [],
        "delta": 1e-5,
        "kind": "deterministic",
        "confidence": 1.0,
        "sensitivity": 1.0,
        "requirements": [requirement, *STORED["requirements"]],
        "accuracy": {"nodes_per_unit": 68, "smallest_delta": 1e-5},
        "digest": digest,
    }
    certificate = CertificateOfFormat1.parse_json(json.dumps(stored | rest))
    assert certificate.content_digest() == digest
    assert certificate.mechanism.sampler.requirement == requirement


def test_plans_are_serialised_as_before_where_they_say_nothing_new() -> None:
    """Sweeps resume by the digests of their plans."""
    data = {"num_examples": 6000, "batch_size": 20, "epochs": 3, "steps": None}
    plan = Plan.parse({"data": data, "sampler": {"kind": "shuffle"}})
    assert plan.model_dump(mode="json")["data"] == data
    assert plan.model_dump(mode="json")["sampler"] == {"kind": "shuffle"}
    assert '"batch_size":20,"epochs":3' in plan.model_dump_json()
    with_rest = Plan.parse({"data": data, "sampler": {"kind": "shuffle", "remainder": "drop"}})
    assert Plan.parse_json(with_rest.model_dump_json(by_alias=True)) == with_rest
