"""``hockeystick show CERTIFICATE`` and ``hockeystick state CERTIFICATE``."""

import json
from pathlib import Path
from typing import Any

import pytest

from hockeystick import Certificate, Statements, state
from hockeystick.certificate import Interval, interval_text
from hockeystick.errors import InvalidInputError
from hockeystick.interop.deployments_registry import registry_yaml
from hockeystick.report.certificate import markdown, shown

FORMER = Path(__file__).parents[1] / "certification" / "certificates-0.1.0" / "shuffle.json"


@pytest.fixture
def issued(cli: Any) -> Any:
    """``cert.json``, of the plan."""
    assert cli("epsilon", "plan.toml", "--method", "gaussian", "--out", "cert.json").code == 0
    return cli


def test_show_prints_the_certificate_and_writes_nothing(issued: Any) -> None:
    certificate = Certificate.load("cert.json")
    for options, writer in (((), shown), (("--markdown",), markdown), (("--registry",), registry_yaml)):
        done = issued("show", "cert.json", *options)
        assert (done.code, done.err, done.created) == (0, "", set())
        assert done.out.rstrip("\n") == writer(certificate).rstrip("\n")


def test_show_reads_former_certificates(cli: Any) -> None:
    assert "(epsilon, delta) = (8.59587, 1e-05) is certified" in cli("show", str(FORMER)).out
    refused = cli("show", str(FORMER), "--registry")
    assert refused.code == 2
    assert "format 1" in refused.complaint
    assert cli("verify", str(FORMER)).code == 0


def test_show_tells_of_an_altered_certificate(issued: Any) -> None:
    text = Path("cert.json").read_text()
    Path("cert.json").write_text(text.replace("for one example", "for one person"))
    refused = issued("show", "cert.json")
    assert refused.code == 1
    assert "altered" in refused.complaint


def test_state_keeps_what_was_stated_before(issued: Any) -> None:
    first = issued("state", "cert.json", "--label", "run 7", "--num-examples", "6e3", "--clipping-norm", "1.5")
    assert first.code == 0
    assert first.created == set()
    second = issued("state", "cert.json", "--date", "2030-01-31", "--assert", "noise=the code", "--out", "more.json")
    assert second.created == {"more.json"}
    more, first_one = Certificate.load("more.json"), Certificate.load("cert.json")
    assert isinstance(more, Certificate)
    assert isinstance(first_one, Certificate)
    said = more.statements
    assert (said.label, said.num_examples, said.clipping_norm, said.date) == ("run 7", 6000, 1.5, "2030-01-31")
    assert said.asserted == {"noise": "the code"}
    assert first_one.statements.date is None
    assert "asserted   Clip the gradient" in second.out
    assert issued("verify", "more.json").code == 0


def test_state_prints_the_certificate_as_one_object(issued: Any) -> None:
    printed = issued("state", "cert.json", "--label", "run 7", "--out", "stated.json", "--json").json
    assert printed == {"kind": "certificate", "out": "stated.json", "certificate": printed["certificate"]}
    assert printed["certificate"] == json.loads(Path("stated.json").read_text())
    assert printed["certificate"] == issued("show", "stated.json", "--json").json["certificate"]
    assert printed["certificate"]["statements"]["label"] == "run 7"
    issued.refuses("state", "cert.json", "--date", "today", "--json", says=("'date' field",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--num-examples", "1.5"), "'--num-examples' option must be a whole number"),
        (("--num-examples", "inf"), "'--num-examples' option must be a whole number"),
        (("--num-examples", "0"), "'num_examples' field must be at least 1"),
        (("--clipping-norm", "small"), "'--clipping-norm' option must be a number"),
        (("--clipping-norm", "-1"), "'clipping_norm' field must be above 0"),
        (("--date", "today"), "'date' field must be a date as YYYY-MM-DD"),
        (("--label", "two\nlines"), "'label' field must be one line of visible characters"),
        (("--assert", "noise"), "'--assert' option must be NAME=EVIDENCE"),
        (("--assert", "luck=much"), "'asserted' field must name one of batches, noise, normaliser, secrecy"),
    ],
)
def test_state_refuses_what_cannot_be_said(issued: Any, options: tuple[str, str], says: str) -> None:
    before = Path("cert.json").read_bytes()
    refused = issued("state", "cert.json", *options)
    assert refused.code == 2
    assert says in refused.complaint
    assert Path("cert.json").read_bytes() == before


def test_state_says_that_there_is_nothing_to_state(issued: Any) -> None:
    issued.refuses("state", "cert.json", "--out", "other.json", says=("nothing to state", "--label"))
    certificate = Certificate.load("cert.json")
    for arguments, said in (
        ((certificate, "run 7"), r"'statements' argument must be a Statements, such as .* Got 'run 7' instead"),
        (("cert.json", Statements()), r"'certificate' argument must be a Certificate, .* Got 'cert\.json' instead"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            state(*arguments)


def test_state_refuses_a_former_certificate(cli: Any) -> None:
    refused = cli("state", str(FORMER), "--label", "x", "--out", "out.json")
    assert refused.code == 2
    assert "format 1" in refused.complaint
    assert refused.created == set()


def test_show_reads_what_compose_and_tune_wrote(issued: Any) -> None:
    assert issued("compose", "cert.json", "cert.json", "--out", "both.json").code == 0
    assert issued("tune", "cert.json", "--trials", "5", "--out", "best.json").code == 0
    for name, kind, says in (
        ("both.json", "composition", "2, on the same data"),
        ("best.json", "tuning claim", "best"),
    ):
        assert says in issued("show", name).out
        printed = issued("show", name, "--json").json
        assert printed["kind"] == kind
        assert printed["claim"]["digest"]
        assert f"a {kind}" in issued.refuses("show", name, "--markdown", says=("--markdown",))
    assert "tuning claim" in issued.refuses("tune", "best.json", "--trials", "5", says=("certificate of one run",))


def test_a_wide_gap_is_a_plain_number() -> None:
    for shown_gap, bounds in (
        ("242 percent", (1.0, 3.42)),
        ("24 percent", (1.0, 1.24)),
        ("0.028 percent", (1, 1.00028)),
    ):
        assert f"(gap {shown_gap})" in interval_text(Interval(lower=bounds[0], upper=bounds[1]))
