"""The record of a run through show, verify and report: what the run checked is said beside the certificate."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.interop.deployments_registry import registry_yaml
from hockeystick.training import Run, RunRecord

MECHANISM = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=6), noise_multiplier=2.0)


@pytest.fixture(scope="module")
def certificate() -> hs.Certificate:
    return hs.certify(MECHANISM, delta=1e-5)


def record_of(certificate, *also_checked: str) -> RunRecord:
    run = Run(MECHANISM, num_examples=50, shape=2, rng=np.random.default_rng(0))
    for batch in itertools.islice(run.batches(), 4):
        run.noise(batch)
    return run.record(certificate, also_checked=also_checked)


WHOLE = ("noise_is_added", "clipping", "norms", "clipping_norm", "finite_gradients")


def test_what_the_run_checked_is_shown_in_place_of_unchecked(cli, certificate) -> None:
    record = record_of(certificate, *WHOLE)
    record.save("run.json")
    shown = cli("show", "run.json").out
    assert shown.startswith("All 6 training steps together are (")
    assert "unchecked" not in shown
    assert shown.count("checked by the run") == 2  # batches, noise
    assert shown.count("  on trust  ") == 2  # normaliser, secrecy
    assert "steps        4 of 6 planned steps on 50 examples" in shown
    certificate.save("certificate.json")
    assert "checked by the run" not in cli("show", "certificate.json").out
    assert "checked by the run" in cli("show", "run.json", "--markdown").out
    assert "50 examples" not in cli("show", "run.json", "--markdown").out  # neighbours differ in their number
    entry = cli("show", "run.json", "--registry").out
    assert entry == registry_yaml(certificate, record)
    assert entry.count("[checked by the run]") == 2
    assert "[unchecked]" not in entry
    assert cli("show", "run.json", "--json").json["record"]["steps"] == 4


def test_what_was_checked_in_part_is_not_called_checked(certificate) -> None:
    record = record_of(certificate, "noise_is_added")
    words, said = record.about("noise") or ("", "")
    assert words == "partly checked by the run"
    assert "On trust: The gradient of every example was clipped" in said
    assert (record.about("batches") or ("", ""))[0] == "checked by the run"
    assert record.about("theorem") is None


def test_every_promise_belongs_to_an_assumption_or_is_about_the_stop() -> None:
    from hockeystick.training.record import ABOUT, MEANINGS

    assert set(MEANINGS) - {name for promises in ABOUT.values() for name in promises} == {"stop_is_public"}


def test_commands_about_the_mechanism_alone_ask_for_the_certificate_of_a_record(cli, certificate) -> None:
    record_of(certificate).save("run.json")
    for command in (("compose", "run.json"), ("tune", "run.json", "--trials", "3"), ("state", "run.json")):
        cli.refuses(*command, says=("'run.json' is the record of a run; give its certificate",))
    RunRecord.load("run.json").certificate.save("certificate.json")
    assert cli("compose", "certificate.json").code == 0


def test_a_file_of_something_else_is_no_certificate(cli) -> None:
    Path("package.json").write_text('{"name": "some", "version": "1.0", "scripts": {}}')
    cli.refuses("verify", "package.json", says=("'package.json' is no certificate: it has neither a 'format' nor",))


def test_it_verifies(cli, certificate) -> None:
    record_of(certificate, *WHOLE).save("run.json")
    done = cli("verify", "run.json")
    assert "batches       checked by the run\n" in done.out
    assert done.out.splitlines()[-1].startswith("verified: recomputed at most ")
    assert cli("verify", "run.json", "--json").json["run"] == {
        "steps": 4,
        "planned_steps": 6,
        "assumptions": {
            "batches": "checked by the run",
            "noise": "checked by the run",
            "normaliser": "on trust",
            "secrecy": "on trust",
        },
    }
    smaller = certificate.model_copy(update={"epsilon": hs.Interval(lower=None, upper=0.1)}).sealed()
    record_of(smaller).save("false.json")
    cli.refuses("verify", "false.json", code=1, says=("claims",))


def test_it_is_reported(cli, certificate) -> None:
    record_of(certificate, *WHOLE).save("run.json")
    assert cli("report", "run.json", "--budget", "1", "--out", "run.html").code == 0
    page = Path("run.html").read_text()
    assert page.count("checked by the run") == 2
    assert "4 of 6 planned steps on 50 examples" in page
    assert cli("report", "run.json", "--budget", "1", "--public", "--out", "public.html").code == 0
    assert "on 50 examples" not in Path("public.html").read_text()


def test_a_record_without_a_certificate_is_shown_alone(cli) -> None:
    record_of(None).save("run.json")
    assert "no certificate was given" in cli("show", "run.json").out
    cli.refuses("show", "run.json", "--markdown", says=("a record without one",))
    cli.refuses("verify", "run.json", code=1, says=("has no certificate",))
    cli.refuses("report", "run.json", says=("has no certificate",))
