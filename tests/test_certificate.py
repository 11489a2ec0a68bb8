"""Bounds and certificates: sides, text that never rounds a claim the wrong way, JSON in and out."""

import json
from importlib.resources import files
from math import exp
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick import (
    Adjacency,
    BallsInBins,
    Bound,
    Certificate,
    Deterministic,
    Direction,
    Interval,
    Kind,
    Mechanism,
    Poisson,
    Shuffle,
    Side,
    certify,
)
from hockeystick.bounds import SMALLEST_UPPER
from hockeystick.certificate import exact, json_schema, number
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.samples import Run


def bound(side: Side, slack: float = 0.0) -> Bound:
    """delta = exp(-epsilon) / 2 in both directions."""
    profiles = dict.fromkeys(Direction, lambda epsilon: 0.5 * exp(-epsilon))
    return Bound("test", side, Kind.DETERMINISTIC, 1.0, "none", profiles, slack)


def test_slack_is_paid_on_either_side() -> None:
    for epsilon in (0.0, 0.7, 3.0):
        plain = 0.5 * exp(-epsilon)
        cost = (1.0 + exp(epsilon)) * 1e-3
        assert bound(Side.UPPER, 1e-3).delta(epsilon) == pytest.approx(min(plain + cost, 1.0), rel=1e-12)
        assert bound(Side.LOWER, 1e-3).delta(epsilon) == pytest.approx(max(plain - cost, 0.0), rel=1e-12)


@settings(derandomize=True)
@given(st.floats(1e-12, 0.999))
def test_epsilon_is_on_the_side_of_the_bound(delta: float) -> None:
    upper, lower = bound(Side.UPPER).epsilon(delta), bound(Side.LOWER).epsilon(delta)
    assert bound(Side.UPPER).delta(upper) <= delta
    assert lower == 0.0 or bound(Side.LOWER).delta(lower) > delta
    assert lower <= upper <= lower * (1 + 1e-8) + 1e-12


def test_a_slack_that_is_too_large_leaves_no_epsilon() -> None:
    assert bound(Side.UPPER, 1e-3).epsilon(1e-4) == float("inf")
    assert bound(Side.LOWER, 1e-3).epsilon(1e-4) < bound(Side.LOWER).epsilon(1e-4)


def test_no_upper_bound_is_zero() -> None:
    nothing = dict.fromkeys(Direction, lambda epsilon: 0.0)
    assert Bound("t", Side.UPPER, Kind.DETERMINISTIC, 1.0, "", nothing).delta(1.0) == SMALLEST_UPPER
    assert Bound("t", Side.LOWER, Kind.DETERMINISTIC, 1.0, "", nothing).delta(1.0) == 0.0
    certificate = certify(Mechanism(sampler=Deterministic(bins=1), noise_multiplier=1e6), epsilon=500.0)
    assert certificate.bounds.upper > 0.0


def test_an_upper_bound_needs_both_directions() -> None:
    removal = {Direction.REMOVE: lambda epsilon: 0.1}
    Bound("t", Side.LOWER, Kind.DETERMINISTIC, 1.0, "", removal)
    with pytest.raises(InvalidInputError, match="both directions"):
        Bound("t", Side.UPPER, Kind.DETERMINISTIC, 1.0, "", removal)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 701.0])
def test_bounds_refuse_an_epsilon_out_of_range(value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"'epsilon' field must be .* Got {value!r}"):
        bound(Side.UPPER).delta(value)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 0.0, 1.0])
def test_bounds_refuse_a_delta_out_of_range(value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"'delta' field must be .* Got {value!r}"):
        bound(Side.UPPER).epsilon(value)


@settings(derandomize=True)
@given(st.floats(1e-300, 1e300))
def test_printed_bounds_are_rounded_to_their_side(value: float) -> None:
    assert value <= float(number(value)) <= value * (1 + 1.1e-5)
    assert value * (1 - 1.1e-5) <= float(number(value, up=False)) <= value


@settings(derandomize=True)
@given(st.floats(1e-300, 1e300))
def test_given_numbers_are_printed_with_all_their_digits(value: float) -> None:
    assert float(exact(value)) == value


def test_intervals_are_ordered() -> None:
    assert Interval(lower=1.0, upper=1.5).gap == pytest.approx(0.5)
    assert Interval(lower=None, upper=1.5).gap is None
    assert Interval(lower=0.0, upper=1.5).gap is None
    assert f"{Interval(lower=1.0, upper=1.5)}" == "lower=1.0 upper=1.5"
    for one_number in (float, "{:.2f}".format):
        with pytest.raises(InvalidInputError, match=r"take its \.upper, which is the guarantee, or its \.lower\.$"):
            one_number(Interval(lower=1.0, upper=1.5))
    with pytest.raises(InvalidInputError, match="'lower' field must be at most upper"):
        Interval(lower=2.0, upper=1.0)


MECHANISMS = (
    Mechanism(sampler=Deterministic(bins=3, epochs=4), noise_multiplier=1.2345678901234567),
    Mechanism(sampler=Shuffle(batch_size=2, bins=5), noise_multiplier=0.7),
    Mechanism(sampler=Poisson(sampling_prob=0.1, steps=10), noise_multiplier=0.9),
    Mechanism(
        sampler=Poisson(sampling_prob=0.1, steps=10, truncated_batch_size=60, num_examples=100), noise_multiplier=0.9
    ),
)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("question", [{"delta": 1.23456789e-5}, {"epsilon": 1.23456789}])
def test_certificates_survive_json(tmp_path: Path, mechanism: Mechanism, question: dict[str, float]) -> None:
    certificate = certify(mechanism, **question)
    certificate.save(tmp_path / "cert.json")
    loaded = Certificate.load(tmp_path / "cert.json")
    assert loaded == certificate
    assert loaded.digest == loaded.content_digest()
    assert str(loaded) == str(certificate)
    content = json.loads((tmp_path / "cert.json").read_text())
    assert content["format"] == "hockeystick-certificate/3"
    assert Certificate.parse_json(json.dumps(content)) == certificate


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_text_says_what_the_claim_rests_on(mechanism: Mechanism) -> None:
    certificate = certify(mechanism, delta=1.23456789e-5)
    text = str(certificate)
    assert f"(epsilon, delta) = ({number(certificate.bounds.upper)}, 1.23456789e-05) is certified" in text
    for part in (repr(mechanism.sigma), certificate.method.upper, "deterministic", "zero_out", "sensitivity 1"):
        assert part in text
    for requirement in certificate.requirements:
        assert requirement in text
    assert mechanism.sampler.requirement in certificate.requirements
    assert ("also add_remove" in text) == (Adjacency.ADD_REMOVE in mechanism.sampler.holds_for)


def test_the_text_of_a_certificate_for_delta() -> None:
    certificate = certify(Mechanism(sampler=BallsInBins(bins=4), noise_multiplier=1.0), epsilon=0.3)
    assert f"(epsilon, delta) = (0.3, {number(certificate.bounds.upper)}) is certified" in str(certificate)


def test_loading_checks_the_digest(tmp_path: Path) -> None:
    certify(MECHANISMS[0], delta=1e-5).save(tmp_path / "cert.json")
    text = (tmp_path / "cert.json").read_text()
    (tmp_path / "cert.json").write_text(text.replace('"bins": 3', '"bins": 4'))
    with pytest.raises(VerificationError, match="altered"):
        Certificate.load(tmp_path / "cert.json")


def test_one_of_epsilon_and_delta_is_an_interval() -> None:
    values = json.loads(certify(MECHANISMS[0], delta=1e-5).model_dump_json())
    for change in ({"epsilon": 1.0}, {"delta": {"lower": 0.0, "upper": 1e-5}}):
        with pytest.raises(InvalidInputError, match="one number and one interval"):
            Certificate.parse_json(json.dumps(values | change))


def test_schema() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert schema["properties"]["format"]["enum"] == ["hockeystick-certificate/2", "hockeystick-certificate/3"]
    assert schema["$id"] == "urn:hockeystick:hockeystick-certificate:3"  # another format is another document
    assert {"mechanism", "epsilon", "delta", "method", "assumptions", "adjacency", "kind"} <= set(schema["required"])
    given = certify(MECHANISMS[0], delta=1e-5, generator="torch-cuda-float32").content()
    assert [*given, "digest"] == [name for name in schema["properties"] if name != "bits"]
    exact = certify(MECHANISMS[0].model_copy(update={"exact": True}), delta=1e-5).content()
    assert [*exact, "digest"] == [name for name in schema["properties"] if name != "generator"]
    assert schema["then"] == {"properties": {"numbers": {"required": ["basis"]}}}
    checked = {name for name, field in schema["properties"].items() if field["x-checked"] == "recomputed by verify"}
    assert set(schema["properties"]) - checked == {"statements", "origin"}
    assert set(schema["$defs"]["Kind"]["enum"]) == set(Kind)
    assert set(schema["$defs"]["Adjacency"]["enum"]) == set(Adjacency)


def test_the_schema_in_the_package_is_that_of_the_code() -> None:
    """``python docs/make_reference.py`` writes it; without a change of the format it has to stay as it is."""
    packed = files("hockeystick.certificate").joinpath("certificate.schema.json").read_text()
    assert json.loads(packed) == json_schema()


def test_a_list_that_is_too_short_is_named_in_our_words() -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'nodes' field must be a list of at least 1 item\(s\)\. Got"):
        Run(subject="", direction=Direction.REMOVE, proposal="naive", parameters={}, nodes=(), chunk_size=1, seed=0)
