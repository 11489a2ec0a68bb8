"""The audits of other libraries find what the page says, wherever the library is installed."""

import json
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import audit_peers
from benchmarks.audited import BSR, SIGMA, Case, Outcome, column, of_noise, of_steps

MODULES = {"opacus": "opacus", "jax_privacy": "jax_privacy", "opake": "opake"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", MODULES)
def test_the_known_deviations_are_found_and_no_others(library):
    """Seeds are fixed; each audit of correct code fails falsely with probability at most 1e-6."""
    pytest.importorskip(MODULES[library])
    answers = audit_peers.run(library, None, {})
    assert answers
    assert {answer.name: answer.found for answer in answers} == {answer.name: answer.known for answer in answers}, (
        answers
    )
    text = audit_peers.PAGE.read_text()
    assert all(f"| `{answer.name}` | {answer.about} |" in text for answer in answers)
    assert all(bool(answer.means) == answer.found for answer in answers)


@pytest.mark.filterwarnings("ignore")
def test_a_shuffle_that_is_accounted_as_poisson_is_less_private_than_reported():
    pytest.importorskip("opacus")
    (answer,) = audit_peers.run("opacus", "opacus-shuffle", {})
    assert answer.found
    outcome = import_module("benchmarks.audited.opacus").CASES["opacus-shuffle"].run()
    assert float(outcome.figures["reported"]) < float(outcome.figures["lower"]) < float(outcome.figures["upper"])


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """A library of two cases, one of which deviates as is known."""
    runs = []

    def quiet():
        runs.append("quiet")
        return Outcome(False, "nothing in 5 batches")

    cases = {
        "opacus-quiet": Case("code", "claim", quiet),
        "opacus-loud": Case("code", "claim", lambda: Outcome(True, "seen", {"x": "3"}), True, "It is {x}."),
    }
    monkeypatch.setattr(audit_peers, "cases", lambda library: ("1.0", cases))
    monkeypatch.setattr(audit_peers, "LIBRARIES", {"opacus": "Opacus"})
    monkeypatch.setattr(audit_peers, "PAGE", tmp_path / "peers.md")
    return SimpleNamespace(runs=runs, cases=cases, file=tmp_path / "outcomes.json", page=tmp_path / "peers.md")


def test_outcomes_are_kept_and_the_page_is_written_from_them(pretended, capsys):
    for _ in range(2):
        assert audit_peers.main(["--json", str(pretended.file), "--update"]) == 0
    assert pretended.runs == ["quiet"]
    assert {record["name"] for record in json.loads(pretended.file.read_text())} == set(pretended.cases)
    text = pretended.page.read_text()
    assert "| `opacus-quiet` | code | claim | nothing in 5 batches |" in text
    assert "`opacus-loud`: It is 3." in text
    assert "opacus-loud (Opacus 1.0): seen\n  It is 3." in capsys.readouterr().out


@pytest.mark.parametrize(("name", "known"), [("opacus-quiet", True), ("opacus-loud", False)])
def test_an_outcome_that_is_not_the_known_one_ends_with_1(pretended, name, known):
    case = pretended.cases[name]
    pretended.cases[name] = Case(case.about, case.claim, case.run, known, case.means)
    assert audit_peers.main([name]) == 1


def test_a_name_that_is_not_known_ends_with_2(pretended, monkeypatch, capsys):
    assert audit_peers.main(["opacus-none"]) == 2
    assert audit_peers.main(["nothing"]) == 2

    def missing(library):
        raise ImportError("No module named 'opacus'")

    monkeypatch.setattr(audit_peers, "cases", missing)
    assert audit_peers.main([]) == 2
    assert "Opacus is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        audit_peers.main(["--update"])
    assert "--json FILE" in capsys.readouterr().err


def test_the_audits_of_noise_are_those_of_the_claim():
    """C of BSR is passed to other libraries as its column, and noise of another scale is found."""
    mechanism = of_steps(BSR)
    assert column(mechanism).size == 8
    assert column(mechanism)[:3] == pytest.approx([1.0, 0.5, 0.375])
    rows = iter(SIGMA * 0.9 * np.random.default_rng(0).standard_normal((100, 100)))
    assert of_noise(rows, of_steps()).found
