"""hockeystick report: one file about a certificate, an addendum, a sweep or a comparison."""

import json
from html import unescape
from pathlib import Path

import pytest

import hockeystick as hs


@pytest.fixture
def certificate(cli):
    """A certificate file in the directory of the test."""
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    hs.certify(run, delta=1e-5).save("a.certificate.json")
    return "a.certificate.json"


def test_a_certificate_becomes_one_file(cli, certificate):
    done = cli("report", certificate)
    assert done.code == 0, done.err
    assert done.created == {"a.certificate.html"}
    assert "report written to a.certificate.html" in done.out
    page = Path("a.certificate.html").read_text()
    assert "Verified: the claim was derived again" in page
    assert all(title in page for title in ("delta by epsilon", "trade-off curve", "noise multiplier by epsilon"))


def test_verdicts_of_an_audit_come_with_the_certificate_or_alone(cli, certificate):
    audit = ("--part", "noise", "--seed", "1", "--out", "addendum.json")
    assert cli("audit", "--certificate", certificate, *audit).code == 0
    for arguments in (("addendum.json",), (certificate, "--addendum", "addendum.json")):
        done = cli("report", *arguments, "--out", "a.html", "--json")
        assert done.json["verified"] is True
        assert done.json["refuted"] is False
        assert "passed (noise)" in Path("a.html").read_text()


def test_an_addendum_of_another_certificate_is_refused(cli, certificate):
    cli("audit", "--certificate", certificate, "--part", "noise", "--seed", "1", "--out", "addendum.json")
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=3.0)
    hs.certify(run, delta=1e-5).save("b.json")
    cli.refuses("report", "b.json", "--addendum", "addendum.json", says=("'addendum.json'", "another certificate"))


def test_an_altered_certificate_gets_no_report(cli, certificate):
    text = Path(certificate).read_text()
    Path(certificate).write_text(text.replace("All 10", "All 9"))
    cli.refuses("report", certificate, code=1, says=("altered",))


def test_a_comparison_and_a_sweep_become_files(cli):
    cli.write_plan({"sampler.kind": '"deterministic"', "data.num_examples": "200"})
    Path("compared.json").write_text(cli("compare", "plan.toml", "--json").out)
    assert cli("report", "compared.json", "--json").json == {"report": "compared.html", "kind": "comparison"}
    Path("sweep.toml").write_text(Path("plan.toml").read_text() + "[grid]\nmechanism.noise_multiplier = [1.0, 2.0]\n")
    Path("swept.json").write_text(cli("sweep", "sweep.toml", "--delta", "1e-5", "--out", "lines.jsonl", "--json").out)
    for name in ("swept.json", "lines.jsonl"):
        assert cli("report", name, "--out", "s.html").code == 0
        page = Path("s.html").read_text()
        assert "2 of 2 cells are certified" in page
    data = json.loads(page.split('id="plots">')[1].split("</script>")[0])
    assert data[0]["spec"]["series"][0]["x"] == [1.0, 2.0]


@pytest.mark.parametrize("content", ["{}", '{"bounds": 3}', '{"results": []}', "[]", "data = 1", '{"format": "x/1"}'])
def test_other_files_are_refused(cli, content):
    Path("other.json").write_text(content)
    cli.refuses("report", "other.json")


def test_options_of_certificates_are_refused_for_other_files(cli):
    Path("other.json").write_text('{"bounds": []}')
    cli.refuses("report", "other.json", "--public", says=("--public", "certificates"))
    cli.refuses("report", "missing.json", says=("missing.json",))
    cli.refuses("report", "other.json", "--budget", "-1", says=("budget",))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (("compose", "a.certificate.json", "a.certificate.json"), "All 2 runs together, on the same data, are ("),
        (("tune", "a.certificate.json", "--trials", "3"), "The best of a geometric number of trials of mean 3 is ("),
    ],
)
def test_claims_about_several_runs_become_files(cli, certificate, made, says):
    assert cli(*made, "--delta", "1e-4", "--out", "claim.json").code == 0
    done = cli("report", "claim.json", "--json")
    assert (done.json["verified"], done.json["left_out"]) == (True, [])
    page = Path("claim.html").read_text()
    assert says in page
    assert "Verified: the claim was derived again" in page
    assert "epsilon by delta" in page
    for option in (("--matrix", "m.npy"), ("--public",)):
        cli.refuses("report", "claim.json", *option, says=(option[0], "one run"))
    text = Path("claim.json").read_text()
    Path("claim.json").write_text(text.replace('"digest": "', '"digest": "0', 1))
    cli.refuses("report", "claim.json", code=1, says=("altered",))


def test_a_certificate_of_0_1_0_becomes_a_file(cli):
    old = Path(__file__).parents[1] / "certification" / "certificates-0.1.0"
    done = cli("report", str(old / "poisson.json"), "--out", "old.html", "--budget", "5", "--json")
    assert done.json["verified"] is True
    page = unescape(Path("old.html").read_text())
    assert all(text in page for text in json.loads((old / "poisson.json").read_text())["requirements"])
    unverified = cli("report", str(old / "monte-carlo.json"), "--out", "sampled.html", "--budget", "0.1", "--json").json
    assert unverified["verified"] is False
    assert "random samples" in unverified["left_out"][0]
    assert unverified["left_out"][0].split(".")[0] in unescape(Path("sampled.html").read_text())
