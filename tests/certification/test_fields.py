"""Every field of a certificate is derived again: whoever changes one and seals it again is found out.

All leaves of all claims are changed, one at a time. What the user states and how the certificate was made are the two
parts that nobody derives; they only have to suit the mechanism.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BandedToeplitz,
    BinaryTree,
    Certificate,
    Custom,
    Deterministic,
    Mechanism,
    MonteCarlo,
    MultiAttribution,
    Poisson,
    Shuffle,
    Statements,
    certify,
    state,
    verify,
)
from hockeystick.certificate import NOT_RECOMPUTED, AttackNumbers, Status
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.report.certificate import OF_CLAIM, shown

SAID = Statements(
    label="run 7",
    date="2030-01-31",
    num_examples=100,
    clipping_norm=1.5,
    normaliser=20.0,
    tuning="clipping norm, 3 runs",
    other_releases="the mean age",
    asserted={"secrecy": "the code of the run"},
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """Certificates that have every field somewhere, and verify in moments."""
    path = tmp_path_factory.mktemp("matrix") / "matrix.npy"
    np.save(path, np.eye(4))
    bins, custom = BallsInBins(bins=3, epochs=2), Custom(path=str(path))
    sampled = Mechanism(strategy=BandedSquareRoot(bands=2), sampler=bins, noise_multiplier=1.5)
    tree = Mechanism(strategy=BinaryTree(), sampler=Shuffle(batch_size=4, bins=16), noise_multiplier=20.0)
    optimum = Mechanism(strategy=BandedToeplitz(bands=3), sampler=bins, noise_multiplier=2.0)
    file = Mechanism(strategy=custom, sampler=Deterministic(bins=4), noise_multiplier=2.0)
    user = Mechanism(
        sampler=MultiAttribution(min_sep=2, sampling_prob=0.2, steps=4, examples_per_user=2), noise_multiplier=1.0
    )
    poisson = Mechanism(sampler=Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
    return {
        "deterministic": certify(Mechanism(sampler=Deterministic(bins=4), noise_multiplier=2.0), delta=1e-5),
        "stated": state(certify(poisson, epsilon=0.5), SAID),
        "sampled": certify(sampled, delta=1e-3, method="monte_carlo", monte_carlo=MonteCarlo(seed=1, ratio=0.5)),
        "assuming": certify(tree, delta=1e-6, method="shuffled_tree"),
        "optimum": certify(optimum, delta=1e-5, method="gaussian"),
        "file": certify(file, delta=1e-5),
        "user": certify(user, delta=1e-5, method="gaussian"),
    }


TRIED: dict[str, tuple[str, ...]] = {
    "deterministic": (),
    "stated": ("epsilon", "delta", "gap", "without_amplification", "numbers", "rates", "noise", "keep_private"),
    "sampled": ("monte_carlo", "kind", "confidence", "sentence", "caveats"),
    "assuming": (
        *("epsilon", "gap", "without_amplification", "actors"),
        *("rates", "sensitivity", "method", "references", "assumptions"),
    ),
    "optimum": ("strategy_digest", "sensitivity"),
    "file": (),
    "user": (),
}
"""The fields whose leaves are changed in each of them; all where none are named. Those with names take longer, and what
they leave out says the same in the others, or follows from the same numbers."""

ONE_VALUE = [name for name, fields in TRIED.items() if len(fields) > 2]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values that are no containers, and of all containers that are empty."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    if not inside:
        yield path
    for name, item in inside:
        yield from leaves(item, (*path, name))


def others(value: Any) -> list[Any]:
    """Other values for a leaf, a little different where that is possible."""
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [value + 1, None]
    if isinstance(value, float):
        return [value * (1.0 + 1e-6), value * (1.0 - 1e-6), None]
    if isinstance(value, str):
        return [f"{value} ", value[:-1], None]
    if value is None:
        return [0.5, "words"]
    return [["words"]] if isinstance(value, list) else [{"words": "words"}]


def changed(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy = deepcopy(content)
    inside: Any = copy
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    return copy


def weaker(path: tuple[Any, ...], value: Any, other: Any) -> bool:
    """Whether a change only makes the interval wider or an attacker's gain larger, which are true claims too.

    The regret says how well mu describes the profile, and is stated with 1e-5 to spare.
    """
    if path[0] == "numbers" and value is not None and other is not None:
        return other > value or (path[-1] == "gdp_regret" and other > value - 1e-6)
    if path[0] not in ("epsilon", "delta") or value is None or other is None:
        return False
    return (path[-1] == "upper" and other > value) or (path[-1] == "lower" and other < value)


def claims(certificate: Certificate, fields: tuple[str, ...] = (), *, all_values: bool) -> Iterator[dict[str, Any]]:
    """The content with one leaf of one claim changed, or one item of a list struck out or said twice.

    A leaf that is words gets one of its other values, by turns, or each of them with ``all_values``.
    """
    content = certificate.content()
    claimed = {name: content[name] for name in fields or content if name not in NOT_RECOMPUTED}
    for turn, path in enumerate(leaves(claimed)):
        value: Any = content
        for name in path:
            value = value[name]
        false = [other for other in others(value) if not weaker(path, value, other)]
        by_turns = isinstance(value, str) and not all_values
        for other in [false[turn % len(false)]] if by_turns else false:
            yield changed(content, path, other)
    for name, value in claimed.items():
        if isinstance(value, list) and value:
            yield content | {name: value[:-1]}
            yield content | {name: [*value, value[-1]]}


@pytest.mark.parametrize("name", TRIED)
def test_it_verifies_as_it_stands(certificates: dict[str, Certificate], name: str) -> None:
    certificate = certificates[name]
    assert verify(Certificate.parse_json(json.dumps(certificate.content())).sealed()) == certificate


@pytest.mark.parametrize("name", TRIED)
def test_no_field_can_be_changed(certificates: dict[str, Certificate], name: str) -> None:
    """One that is sealed again does not verify, and the digest tells of one that is not.

    Where many fields are named, words get one of their other values, and weekly all of them.
    """
    tried = refused(claims(certificates[name], TRIED[name], all_values=name not in ONE_VALUE))
    assert tried > (4 if TRIED[name] else 60)


@pytest.mark.weekly
@pytest.mark.parametrize("name", ONE_VALUE)
def test_no_field_can_be_changed_to_any_value(certificates: dict[str, Certificate], name: str) -> None:
    assert refused(claims(certificates[name], TRIED[name], all_values=True)) > 4


def refused(contents: Iterator[dict[str, Any]]) -> int:
    """How many contents there were; each has to be refused when it is sealed again."""
    tried = 0
    for content in contents:
        tried += 1
        with pytest.raises((InvalidInputError, VerificationError)):
            verify(Certificate.parse_json(json.dumps(content)).sealed())
    return tried


def test_a_sampled_certificate_is_a_few_kilobytes(certificates: dict[str, Certificate]) -> None:
    sampled = certificates["sampled"]
    assert sampled.monte_carlo is not None
    assert sum(len(attempt.run.nodes) for attempt in sampled.monte_carlo.runs) > 20
    assert len(json.dumps(sampled.content())) < 10_000


def test_every_field_has_a_value_somewhere(certificates: dict[str, Certificate]) -> None:
    """Else its change above would be no test of it."""
    contents = [certificate.content() for certificate in certificates.values()]
    for name in set(contents[0]) - {"also_holds_for"}:
        assert any(content[name] not in (None, [], {}) for content in contents), name
    statuses = {entry.status for certificate in certificates.values() for entry in certificate.assumptions}
    assert statuses == set(Status)


@pytest.mark.parametrize("field", [*sorted(set(AttackNumbers.model_fields) - {"basis"}), "without_amplification"])
def test_numbers_beside_the_bounds_are_upper_bounds_too(certificates: dict[str, Certificate], field: str) -> None:
    """The other last digits of another machine verify; what is below the bound, by however little, does not.

    Attackers may be said to gain more than they do: that is a bound too.
    """
    certificate, attacks = certificates["deterministic"], field in AttackNumbers.model_fields

    def moved(by: float) -> Certificate:
        content = certificate.content()
        inside = content["numbers"] if attacks else content
        inside[field] = inside[field] - 1.01e-6 if field == "gdp_regret" and by < -1e-7 else inside[field] * (1.0 + by)
        return Certificate.parse_json(json.dumps(content)).sealed()

    for small in (-3e-8, 3e-8):
        verify(moved(small))
    for large in (-1.01e-7,) if attacks else (-1.01e-7, 1e-6):
        with pytest.raises(VerificationError, match="numbers" if attacks else field):
            verify(moved(large))


def test_the_numbers_say_what_they_are_computed_from(certificates: dict[str, Certificate]) -> None:
    """No curve is covered by the failure probability of a sampled certificate; one that says so is refused.

    The numbers of the whole profile do not follow from epsilon and delta.
    """
    assert certificates["sampled"].numbers.basis == "claim"
    assert certificates["stated"].numbers.basis == "profile"
    for name in ("sampled", "stated"):
        assert (OF_CLAIM in " ".join(shown(certificates[name]).split())) == (name == "sampled")
    for name, other, says in (("sampled", "profile", r"numbers\.basis"), ("stated", "claim", "'numbers' field claims")):
        content = certificates[name].content()
        content["numbers"]["basis"] = other
        with pytest.raises(VerificationError, match=says):
            verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_a_larger_mu_needs_the_regret_of_that_mu(certificates: dict[str, Certificate]) -> None:
    """Else a mu that describes the run badly could pass for one that describes it well."""
    content = certificates["deterministic"].content()
    content["numbers"]["gdp_mu"] *= 2.0
    with pytest.raises(VerificationError, match="numbers"):
        verify(Certificate.parse_json(json.dumps(content)).sealed())
    content["numbers"]["gdp_regret"] = 1.0
    verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_no_mu_is_a_claim_that_says_nothing(certificates: dict[str, Certificate]) -> None:
    content = certificates["deterministic"].content()
    content["numbers"] |= {"gdp_mu": None, "gdp_regret": None}
    verify(Certificate.parse_json(json.dumps(content)).sealed())
    content["numbers"]["gdp_regret"] = 0.5
    with pytest.raises(VerificationError, match="numbers"):
        verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_numbers_beside_the_bounds_are_issued_with_room_for_the_rounding_of_another_machine(
    certificates: dict[str, Certificate],
) -> None:
    """Half of what they are moved by is above their closed form, which verification allows another machine to miss."""
    numbers = certificates["deterministic"].numbers
    advantage = float(norm.cdf(0.25) - norm.cdf(-0.25))  # of one Gaussian with a sensitivity of half its deviation
    for issued, exact in ((numbers.advantage, advantage), (numbers.bayes_success, 0.5 + 0.5 * advantage)):
        assert exact * (1.0 + 5e-8) < issued < exact * (1.0 + 2e-7)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_examples": 99}, "rates"),
        ({"clipping_norm": 2.0}, "noise"),
        ({"normaliser": 21.0}, "noise"),
        ({"tuning": None}, "not_covered"),
        ({"asserted": {}}, "assumptions"),
        ({"asserted": {"nothing": "words"}}, "'asserted' field must name one of batches, noise"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_a_statement_has_to_agree_with_what_follows_from_it(
    certificates: dict[str, Certificate], changes: dict[str, Any], says: str
) -> None:
    content = certificates["stated"].content()
    content["statements"] |= changes
    with pytest.raises(VerificationError, match=says):
        verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_free_words_are_the_users(certificates: dict[str, Certificate]) -> None:
    content = certificates["stated"].content()
    content["statements"] |= {"label": "run 8", "date": "2030-02-01"}
    verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_a_data_set_that_the_sampler_does_not_take_cannot_be_stated() -> None:
    certificate = certify(Mechanism(sampler=Shuffle(batch_size=4, bins=5), noise_multiplier=1.0), delta=1e-5)
    assert state(certificate, Statements(num_examples=20)).rates.expected_batch_size == pytest.approx(4.0)
    with pytest.raises(InvalidInputError, match="batch_size"):
        state(certificate, Statements(num_examples=21))


LINES = ("a\nb", "a\rb", "a\u2028b", "a\u202eb", "\u200b", "\x1b[2J", "", "a" * 301)


@pytest.mark.parametrize("text", LINES, ids=range(len(LINES)))
def test_what_the_user_says_is_one_visible_line(text: str) -> None:
    """Else it could print lines that look like claims of the certificate."""
    for said in ({"label": text}, {"tuning": text}, {"other_releases": text}, {"asserted": {"noise": text}}):
        with pytest.raises(InvalidInputError, match=next(iter(said))):
            Statements(**said)


@pytest.mark.parametrize("date", ["yesterday", "2030-02-30", "20300131", "2030-01-31T00:00", "2030-1-31"])
def test_a_date_is_a_date(date: str) -> None:
    with pytest.raises(InvalidInputError, match="'date' field"):
        Statements(date=date)


def test_the_same_request_gives_the_same_certificate() -> None:
    """There is no clock in it."""
    run = Mechanism(sampler=Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
    first, second = certify(run, delta=1e-5), certify(run, delta=1e-5)
    assert first == second
    assert first.statements.date is None
