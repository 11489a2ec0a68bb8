"""hockeystick audit: three audits of a plan, one object, and an exit code."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick import audit
from hockeystick.audit import outputs

FAST = ("audit", "plan.toml", "--seed", "1", "--samples", "2000", "--delta", "0.01")


@pytest.fixture
def small(cli):
    cli.write_plan({"data.num_examples": "200", "data.batch_size": "20", "data.epochs": "2"})
    return cli


def test_all_parts_of_a_correct_plan_pass(small):
    """False failure with probability at most 1e-3, and the seed is fixed."""
    report = small(*FAST, "--json").json
    assert not report["refuted"]
    assert report["level"] == pytest.approx(1e-3)
    assert [verdict["about"] for verdict in report["verdicts"]] == ["sampler", "noise", "mechanism"]
    epsilon = report["verdicts"][2]["epsilon"]
    assert 0.0 < epsilon["audited"] < epsilon["upper"]
    assert epsilon["delta"] == 0.01
    text = small(*FAST, "--part", "noise", "--part", "sampler").out
    assert text.count("nothing found") == 2


def test_the_seed_decides(small):
    assert small(*FAST, "--json").out == small(*FAST, "--json").out


def test_what_is_refuted_ends_with_exit_code_1(small, monkeypatch):
    def without_noise(mechanism):
        def steps(examples, rng):
            for batch in mechanism.sampler.batches(examples, rng):
                yield batch, 0.01 * rng.standard_normal(examples)

        return steps

    monkeypatch.setattr(outputs, "_own", without_noise)
    result = small(*FAST, "--part", "mechanism")
    assert result.code == 1
    assert "does not do what is claimed" in result.out
    assert "claim about: mechanism" in result.complaint
    report = json.loads(small(*FAST, "--part", "mechanism", "--json").out)  # one object, and nothing else
    assert (report["refuted"], report["exit_code"], report["error"]) == (True, 1, result.complaint)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--part", "model"), "--part"),
        (("--samples", "many"), "--samples"),
        (("--samples", "1.5"), "--samples"),
        (("--samples", "0"), "'--samples' option must be a whole number of at least 1"),
        (("--samples", "nan"), "--samples"),
        (("--level", "2"), "level"),
        (("--level", "0"), "level"),
        (("--level", ""), "'--level' option must be a number. Got '' instead."),
        (("--samples", ""), "'--samples' option must be a number. Got '' instead."),
        (("--seed", "-1"), "--seed"),
        (("--delta", "x"), "--delta"),
    ],
)
def test_bad_options_are_named(small, options, says):
    small.refuses("audit", "plan.toml", *options, says=[says])


def test_mechanisms_without_a_likelihood_ratio_are_refused_by_name(small):
    small.write_plan({"sampler.kind": '"shuffle"', "data.num_examples": "200"})
    small.refuses("audit", "plan.toml", says=["ShuffledBatches", "parts 'sampler' and 'noise' alone"])
    assert small("audit", "plan.toml", "--seed", "1", "--part", "sampler").code == 0


@pytest.mark.parametrize(
    "change", [{"sampler.kind": '"shuffle"'}, {"sampler.kind": '"poisson"', "sampler.truncated_batch_size": "30"}]
)
def test_what_cannot_be_audited_is_refused_before_anything_is_computed(change, small, monkeypatch):
    """Nothing is certified, and no other part is looked at."""

    def late(*args, **named):
        raise AssertionError("that is too late")

    monkeypatch.setattr("hockeystick.certification.issue.certify", late)
    monkeypatch.setattr("hockeystick.audit.parts.audit_part", late)
    small.write_plan({"data.num_examples": "200", "data.batch_size": "20", **change})
    small.refuses("audit", "plan.toml", "--noise-multiplier", "1", says=["cannot be audited"])


LOOP = """
import numpy as np

DATA, NEIGHBOUR, CLIP_NORM = np.ones(8), np.append(np.ones(7), 0.0), {clip_norm}


def train(data, tape):
    rng, weights = np.random.default_rng(0), 0.0
    for _ in range(3):
        batch = data[rng.random(8) < 0.5]
        released = (np.clip(batch, -1.0, 1.0).sum() + rng.standard_normal()) / 4.0
        weights = tape.step(released, normaliser=4.0, state=weights - released)
"""


def test_a_training_loop_is_replayed(cli):
    Path("loop.py").write_text(LOOP.format(clip_norm=1.0))
    report = cli("audit", "--replay", "loop.py", "--json").json
    assert (report["refuted"], report["level"]) == (False, 0.0)
    assert report["verdicts"][0]["samples"] == 3
    assert cli("audit", "plan.toml", "--replay", "loop.py").code == 0
    Path("loop.py").write_text(LOOP.format(clip_norm=1.0) + "    print('trained')\nprint('loaded')")
    assert cli("audit", "--replay", "loop.py", "--json").json == report  # and nothing else on stdout
    Path("loop.py").write_text(LOOP.format(clip_norm=0.5))
    result = cli("audit", "--replay", "loop.py")
    assert result.code == 1
    assert "claim about: replay" in result.complaint


def test_what_cannot_be_replayed_is_named(cli):
    cli.refuses("audit", says=["PLAN"])
    cli.refuses("audit", "--replay", "missing.py", says=["--replay", "missing.py"])
    Path("loop.py").write_text("DATA = 1")
    cli.refuses("audit", "--replay", "loop.py", says=["train, NEIGHBOUR, CLIP_NORM"])
    Path("loop.py").write_text("import nothing_of_the_kind")
    cli.refuses("audit", "--replay", "loop.py", says=["loop.py", "ModuleNotFoundError"])
    Path("loop.py").write_text("raise SystemExit(0)")
    cli.refuses("audit", "--replay", "loop.py", says=["loop.py", "SystemExit"])


def test_noise_in_a_file_is_audited(small):
    """An end at 4.5 is found in 2.5 million numbers, with certainty; without it an alarm has chance 0.01."""
    z = np.random.default_rng(0).standard_normal((20, 125_000), dtype=np.float32)
    np.save("noise.npy", z)
    options = ("audit", "plan.toml", "--noise-multiplier", "1", "--rows", "noise.npy")
    honest = small(*options, "--json", "--level", "0.01").json
    assert (honest["refuted"], honest["level"]) == (False, 0.01)
    np.save("noise.npy", np.clip(z, -4.5, 4.5))
    result = small(*options)
    assert result.code == 1
    assert "false-alarm probability at most 0.001" in result.out
    assert "ends: " in result.out
    assert "claim about: noise" in result.complaint


def of_bytes(content):
    return lambda path: Path(path).write_bytes(content)


def of_array(*arguments, **options):
    return lambda path: np.save(path, np.ones(*arguments, **options))


def cut_short(path):
    np.save(path, np.ones((2, 5)))
    Path(path).write_bytes(Path(path).read_bytes()[:-1])


class Unpickled:
    """Leaves a mark where it is read."""

    def __reduce__(self):
        return Path.touch, (Path("read"),)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (of_bytes(b""), ".npy format"),
        (of_bytes(b"1,2,3"), ".npy format"),
        (of_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': ("), ".npy format"),
        (lambda path: np.save(path, np.array([[Unpickled()]]), allow_pickle=True), "object"),
        (of_array((2, 5), dtype=int), "int64"),
        (of_array((2, 5), dtype=complex), "complex128"),
        (of_array(5), "shape (5,)"),
        (of_array((2, 0)), "shape (2, 0)"),
        (of_array((2, 5), order="F"), "row by row"),
        (of_array((21, 1)), "at most 20 rows"),
        (cut_short, "size"),
        (lambda path: Path(path).mkdir(), "not an ordinary file"),
        (lambda path: None, "cannot be read"),
    ],
)
def test_files_that_hold_no_rows_are_named(small, write, says):
    write("rows.npy")
    small.refuses("audit", "plan.toml", "--noise-multiplier", "1", "--rows", "rows.npy", says=["--rows", says])
    assert not Path("read").exists()


def test_a_file_with_more_numbers_than_are_looked_at_is_refused(small):
    with open("rows.npy", "wb") as file:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (20, 2**24)}
        np.lib.format.write_array_header_1_0(file, shape)
        file.truncate(file.tell() + 4 * 20 * 2**24)  # takes no room
    small.refuses("audit", "plan.toml", "--noise-multiplier", "1", "--rows", "rows.npy", says=["268435456"])


@pytest.mark.parametrize("option", ["--part", "--samples", "--seed", "--delta", "--budget", "--replay"])
def test_noise_in_a_file_takes_no_other_options(small, option):
    small.refuses("audit", "plan.toml", "--rows", "rows.npy", option, "1", says=[option, "--rows"])


def test_an_addendum_is_written_shown_and_derived_again(small):
    """False failure with probability at most 1e-3, and the seed is fixed."""
    small.write_plan({"sampler.kind": '"poisson"', "data.num_examples": "200", "data.batch_size": "20"})
    assert small("epsilon", "plan.toml", "--delta", "0.01", "--out", "c.json").code == 0
    audit = ("audit", "plan.toml", "--certificate", "c.json", "--seed", "1", "--samples", "1000", "--out", "a.json")
    addendum = small(*audit, "--json").json
    assert not addendum["refuted"]
    assert [check["outcome"] for check in addendum["checks"]] == [
        "passed",
        "passed",
        "not_tested",
        "not_tested",
        "holds",
    ]
    shown = small("show", "a.json").out
    assert "not tested" in shown
    assert small("show", "a.json", "--json").json["addendum"]["digest"] == addendum["digest"]
    verified = small("verify", "a.json")
    assert verified.code == 0
    assert "verified" in verified.out
    assert small("verify", "a.json", "--json").json["verified"]
    small.refuses("show", "a.json", "--markdown", says=["--markdown", "addendum"])
    Path("a.json").write_text(Path("a.json").read_text().replace('"passed"', '"holds"'))
    for command in ("show", "verify"):
        result = small(command, "a.json")
        assert result.code == 1
        assert "altered" in result.complaint


def test_canaries_of_a_run_are_audited(small):
    canaries = hs.audit.canaries(300, num_examples=100, size=300, seed=2)
    scores = np.random.default_rng(0).normal(size=300) + 4.0 * canaries.included
    run = hs.Mechanism(sampler=hs.Deterministic(bins=4), noise_multiplier=1.0)
    canaries.record(run, scores=scores).save("scores.json")
    hs.certify(run, delta=1e-5, method="gaussian").save("c.json")
    audit = ("audit", "--certificate", "c.json", "--part", "noise", "--seed", "1", "--canaries", "scores.json")
    assert small(*audit, "--level", "0.05").code == 0
    exact = hs.certify(run.model_copy(update={"noise_multiplier": 8.0}), delta=1e-5, method="gaussian")
    exact.save("c.json")
    result = small(*audit, "--out", "a.json")
    assert result.code == 1
    assert "claim about: canaries" in result.complaint
    assert small("show", "a.json").out == result.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("plan.toml", "--out", "a.json"), "--certificate"),
        (("plan.toml", "--canaries", "s.json"), "--certificate"),
        (("--certificate", "c.json", "--delta", "0.1"), "--delta"),
        (("--certificate", "c.json", "--budget", "3"), "--budget"),
        (("--certificate", "c.json", "--replay", "x.py"), "--replay"),
        (("--certificate", "missing.json"), "missing.json"),
        (("--certificate", "c.json"), "num_examples"),
        (("plan.toml", "--certificate", "c.json"), "not another one"),
        (("plan.toml", "--certificate", "c.json", "--noise-multiplier", "2"), "not another one"),
        (("--certificate", "c.json", "--part", "noise", "--canaries", "c.json"), "hockeystick-canaries"),
        (("--certificate", "c.json", "--part", "noise", "--out", "no/a.json"), "no/a.json"),
    ],
)
def test_options_that_do_not_go_together_are_named(small, options, says):
    run = hs.Mechanism(sampler=hs.Deterministic(bins=4), noise_multiplier=1.0)
    hs.certify(run, delta=1e-5, method="gaussian").save("c.json")
    small.refuses("audit", *options, says=[says])


SHARED_SEED = """
import sys

import numpy as np

DATA, NEIGHBOUR, CLIP_NORM = 1.0, 0.0, 1.0


def train(data, tape):
    noise = np.random.standard_normal()
    print(noise, file=sys.stderr)
    tape.step(data + noise)
"""


def test_a_replay_uses_the_seed_and_refuses_what_it_has_no_use_for(cli):
    Path("loop.py").write_text(SHARED_SEED)
    shown = [cli("audit", "--replay", "loop.py", "--seed", seed).err for seed in ("0", "1", "1")]
    assert shown[0] != shown[1]
    assert shown[1] == shown[2]
    for option, value in (
        ("--delta", "0.1"),
        ("--part", "noise"),
        ("--samples", "10"),
        ("--level", "0.1"),
        ("--budget", "5"),
    ):
        cli.refuses("audit", "--replay", "loop.py", option, value, says=[option, "--replay"])
    cli.refuses("audit", "--replay", "loop.py", "--noise-multiplier", "1", says=["--noise-multiplier", "PLAN"])
    assert cli("audit", "plan.toml", "--replay", "loop.py", "--noise-multiplier", "1").code == 0


def test_a_loop_that_is_not_deterministic_is_said_to_be_so(cli):
    Path("loop.py").write_text(LOOP.format(clip_norm=1.0).replace("default_rng(0)", "default_rng()"))
    result = cli("audit", "--replay", "loop.py")
    assert result.code == 1
    assert "The same data and seeds give another result the second time, from step 0 on" in result.out


MODEL = """
import torch
print("a model")
torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
CRITERION, EXAMPLE, BATCH, SHAPES = torch.nn.CrossEntropyLoss(), (torch.ones(4), torch.tensor(2)), 32, [2]
"""


def test_the_bits_of_a_model_are_audited(cli):
    pytest.importorskip("opacus", reason="needs torch and opacus")
    Path("model.py").write_text(MODEL)
    report = cli("audit", "--invariance", "model.py", "--json").json  # and nothing else on stdout
    assert report["invariant"]
    assert (report["batch"], report["mode"], report["worst"]) == (32, "hooks", 0.0)
    assert [shape["examples"] for shape in report["shapes"]] == [2]
    assert "No bit of the example's gradient changed" in cli("audit", "--invariance", "model.py").out
    Path("model.py").write_text(f"{MODEL}GRAD_SAMPLE_MODE = 'functorch'\n")
    assert cli("audit", "--invariance", "model.py", "--json").json["mode"] == "functorch"


def test_bits_that_change_end_with_exit_code_1(cli):
    pytest.importorskip("opacus", reason="needs torch and opacus")
    Path("model.py").write_text(f"{MODEL}MODEL.append(torch.nn.Dropout(0.5))\n")
    result = cli("audit", "--invariance", "model.py", "--json")
    report = json.loads(result.out)  # one object, and nothing else
    assert (result.code, report["exit_code"], report["invariant"]) == (1, 1, False)
    assert report["dropout"] == ["3"]
    assert "depends on its place or on the other examples" in report["error"]
    assert report["error"] in result.err


def test_an_audit_of_a_model_without_torch_says_what_to_install(cli, monkeypatch):
    monkeypatch.delitem(vars(audit), "invariance", raising=False)
    monkeypatch.setitem(sys.modules, "hockeystick.training.torch.invariance", None)
    Path("model.py").touch()
    cli.refuses("audit", "--invariance", "model.py", says=["torch and opacus", "'.[torch]'"])


def test_what_a_script_lacks_is_named(cli):
    pytest.importorskip("opacus", reason="needs torch and opacus")
    Path("model.py").write_text("MODEL = BATCH = 1\n")
    cli.refuses(
        "audit", "--invariance", "model.py", says=["MODEL, CRITERION, EXAMPLE and BATCH", "CRITERION, EXAMPLE."]
    )


def test_what_has_no_bits_to_audit_is_named(cli):
    cli.refuses("audit", "--invariance", "missing.py", says=["--invariance", "missing.py"])
    Path("model.py").touch()
    cli.refuses("audit", "--invariance", "model.py", "--level", "0.1", says=["--level", "--invariance"])
    cli.refuses("audit", "plan.toml", "--invariance", "model.py", says=["PLAN", "--invariance"])
