"""show: the numbers that follow from a plan, commands that run as they are printed, and certificates."""

import shlex
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.cli import INTERRUPTED, common

PLANS = Path(__file__).resolve().parents[2] / "examples" / "plans"

MNIST = {"data.num_examples": "60000", "data.batch_size": "256", "data.epochs": "15"}
FEW = {"data.num_examples": "400"}
"""20 bins, for what is certified or calibrated."""
LONG = "cifar10-banded-matrix-factorization"
"""Its matrix is optimised for many seconds."""


def test_the_numbers_of_a_plan(cli) -> None:
    cli.write_plan(MNIST)
    shown = cli("show", "plan.toml").out
    assert "expected batch  256.4102564 (the plan asks for 256)\n" in shown
    assert "sampling rate   0.0042735 (1 in 234)\n" in shown
    assert "steps           3510 (15 epochs of 234)\n" in shown
    assert "participations  exactly 15 per example\n" in shown
    assert "whole run       sensitivity 3.87298 if the batches were known\n" in shown  # sqrt(15)
    assert "noise           noise_multiplier 1.0 clipping norms; over the sensitivity 1\n" in shown
    overview = cli("show", "plan.toml", "--json").json
    assert (overview["bins"], overview["epochs"], overview["steps"]) == (234, 15, 3510)
    assert overview["expected_batch"] == pytest.approx(60_000 / 234)
    assert overview["target"] == {"epsilon": 2.0, "delta": 1e-5}


def test_some_of_all_steps_are_shown_with_the_batch_that_they_make(cli) -> None:
    """k-of-t allocation: every example is in 20 of 2,400 batches, so that these are twenty times as large."""
    some = {"data.batch_size": None, "data.batches_per_epoch": "2400", "data.epochs": "1"}
    cli.write_plan(MNIST | some | {"sampler.kind": '"random_allocation"', "sampler.participations": "20"})
    shown = cli("show", "plan.toml").out
    assert "expected batch  500 (20 visits in an epoch, of 25)\n" in shown
    assert "steps           2400 (1 epoch of 2400)\n" in shown


@pytest.mark.parametrize(
    ("remainder", "says"),
    [
        ("drop", "256 exactly; the other 96 examples are left out"),
        ("short", "256 exactly; the last one of an epoch has 96"),
    ],
)
def test_what_becomes_of_the_rest_is_shown(cli, remainder: str, says: str) -> None:
    cli.write_plan(MNIST | {"sampler.kind": '"shuffle"', "sampler.remainder": f'"{remainder}"'})
    assert says in cli("show", "plan.toml").out
    overview = cli("show", "plan.toml", "--json").json
    assert (overview["remainder"], overview["rest"]) == (remainder, 96)
    assert overview["participations"] == pytest.approx(15 * 59_904 / 60_000 if remainder == "drop" else 15)


@pytest.mark.parametrize("missing", [(), ("target.epsilon", "target.delta"), ("mechanism.noise_multiplier",)])
def test_the_commands_run_as_they_are_printed(cli, missing: tuple[str, ...]) -> None:
    name = "a plan.toml"
    cli.write_plan(FEW | dict.fromkeys(missing), name=name)
    overview = cli("show", name, "--json").json
    shown = cli("show", name).out
    asked = [step["command"] for step in overview["commands"]]
    assert [command.split()[1] for command in asked] == ["calibrate", "calibrate", "epsilon", "delta", "compare"]
    for command in asked:
        assert command in shown
        if "monte-carlo" not in command:  # it takes longer, and is run elsewhere
            words = shlex.split(command)
            assert cli(*words[1:]).code == 0, command


def test_the_proposed_delta_is_below_one_over_the_examples(cli) -> None:
    for count, delta in (("6000", "0.0001"), ("100000", "1e-06"), ("99999", "1e-05"), ("1", "0.1")):
        cli.write_plan({"target.delta": None, "data.num_examples": count, "data.batch_size": "1"})
        command = cli("show", "plan.toml", "--json").json["commands"][0]["command"]
        assert command.endswith(f"--delta {delta}")
        assert float(delta) < 1.0 / int(count)


def test_correlated_noise_has_a_sensitivity_and_what_is_not_analysed_is_said(cli) -> None:
    cli.write_plan({"strategy.kind": '"banded_square_root"', "strategy.bands": "2"})
    overview = cli("show", "plan.toml", "--json").json
    assert overview["sensitivity"] == pytest.approx(1.25**0.5)  # a column (1, 1/2)
    cli.write_plan({"strategy.kind": '"banded_square_root"', "strategy.bands": "2", "sampler.kind": '"shuffle"'})
    assert (
        cli("show", "plan.toml").out.splitlines()[-1].startswith("The strategy 'banded_square_root' with the sampler")
    )
    assert cli("show", "plan.toml", "--json").json["commands"] == []


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(plan, id=plan.stem, marks=pytest.mark.weekly if plan.stem == LONG else ())
        for plan in sorted(PLANS.glob("*.toml"))
    ],
)
def test_shipped_plans_are_shown(cli, plan: Path) -> None:
    """The one that takes long weekly."""
    done = cli("show", str(plan))
    assert done.code == 0
    assert len(done.out.splitlines()) < 20


def test_certificates_are_shown(cli) -> None:
    assert cli("epsilon", "plan.toml", "--out", "c.json").code == 0
    assert cli("show", "c.json").out.startswith("All 300 training steps together are (")
    assert cli("show", "c.json", "--json").json["certificate"]["kind"] == "deterministic"
    Path("c.json").write_text(Path("c.json").read_text().replace('"noise_multiplier": 1.0', '"noise_multiplier": 1.5'))
    cli.refuses("show", "c.json", code=1, says=("was altered",))


def test_bad_input_is_refused_as_everywhere(cli) -> None:
    cli.refuses("show", "missing.toml", says=("missing.toml",))
    Path("empty.toml").write_text("")
    cli.refuses("show", "empty.toml", says=("is empty",))
    Path("list.json").write_text("[1]")
    cli.refuses("show", "list.json")
    cli.write_plan(MNIST | {"data.epochs": "1.5"})
    cli.refuses("show", "plan.toml", says=("'data.epochs'", "data.epochs = 1 or 2 would do"))


def test_hints_are_a_list_in_json_and_lines_on_stderr(cli) -> None:
    cli.write_plan(FEW | {"sampler.kind": '"deterministic"'})
    for command in (("epsilon", "plan.toml"), ("calibrate", "plan.toml")):
        (hint,) = cli(*command, "--json").json["hints"]
        assert "sampler.kind = 'random_allocation'" in hint
        done = cli(*command)
        assert f"hockeystick: hint: {hint}\n" in done.err
        assert "hint" not in done.out
    cli.write_plan(FEW)
    assert cli("epsilon", "plan.toml", "--json").json["hints"] == []
    assert "hint" not in cli("epsilon", "plan.toml").err


def test_a_calibration_is_printed_and_saved_before_its_hints(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number in a hint is estimated, which may take longer than the answer; an interruption leaves the answer."""

    def interrupted(certificate: hs.Certificate, **asked: object) -> list[str]:
        assert hs.Certificate.load("plan.certificate.json") == certificate
        raise KeyboardInterrupt

    monkeypatch.setattr(common, "hints_of", interrupted)
    cli.write_plan(FEW | {"sampler.kind": '"deterministic"'})
    done = cli("calibrate", "plan.toml")
    assert done.code == INTERRUPTED
    assert done.out.splitlines()[-1].startswith("noise_multiplier = ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[phase]]\nnoise_multiplier = 1.0\n", "'hockeystick compose'"),
        ("[grid]\nnoise_multiplier = [1.0, 2.0]\n", "'hockeystick sweep'"),
    ],
)
def test_a_file_of_another_kind_is_sent_to_the_command_that_reads_it(cli, text: str, says: str) -> None:
    cli.write_plan()
    Path("other.toml").write_text(Path("plan.toml").read_text() + text)
    for command in ("show", "epsilon", "calibrate"):
        cli.refuses(command, "other.toml", says=(says,))


def test_a_certificate_is_no_plan(cli) -> None:
    cli.write_plan()
    assert cli("epsilon", "plan.toml", "--out", "c.json").code == 0
    cli.refuses("epsilon", "c.json", says=("is a certificate, not a plan", "'hockeystick report' draws its curves"))


def test_the_unit_is_shown_where_it_is_a_user(cli) -> None:
    cli.write_plan()
    assert "unit " not in cli("show", "plan.toml").out
    cli.write_plan(FEW | {"unit.kind": '"user"', "unit.examples_per_user": "3"})
    assert "unit            user with at most 3 example(s)\n" in cli("show", "plan.toml").out
    assert cli("show", "plan.toml", "--json").json["unit"]["examples_per_user"] == 3
    assert "unit              user with at most 3 example(s)\n" in cli("epsilon", "plan.toml").out


BANDS = {"strategy.kind": '"banded_square_root"', "strategy.bands": "32"}


def test_memory_and_time_of_the_noise(cli, monkeypatch) -> None:
    """Bytes by hand: 31 rows and blocks of 8 steps make 40 rows; a full inverse replays half the steps and a half."""
    monkeypatch.setattr("hockeystick.noise.cost.SAMPLE_BYTES", 1 << 16)
    cli.write_plan(MNIST | BANDS)
    cost = cli("show", "plan.toml", "--parameters", "1e6", "--json").json["noise_cost"]
    kept = {"float32": 40 * 4 * 10**6, "float64": 40 * 8 * 10**6}
    assert cost["bytes"] == {"memory": kept, "file": kept, "replay": {"float32": 0, "float64": 0}}
    assert cost["replay_rows"] == (3510 + 1) / 2
    assert (cost["parameters"], cost["measured"]) == (10**6, (1 << 16) // 160)
    assert 0.0 < cost["seconds"] < 60.0
    shown = cli("show", "plan.toml", "--parameters", "1e6").out
    assert "noise of 1,000,000 parameters\n  in memory       160 MB in float32 or 320 MB in float64" in shown
    assert "measured here for 409 of them, with" in shown
    assert "no memory, but 1755.5 times as many random numbers" in shown
    assert "noise_cost" not in cli("show", "plan.toml", "--json").json


def test_one_parameter_is_measured_itself(cli) -> None:
    cli.write_plan({"strategy.kind": '"banded_inverse_square_root"', "strategy.bands": "4"})
    shown = cli("show", "plan.toml", "--parameters", "1").out
    assert "in float32 from memory, measured here, with" in shown


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "inf", "nan", "1e16"])
def test_parameters_that_cannot_be_are_refused(cli, text: str) -> None:
    cli.refuses("show", "plan.toml", f"--parameters={text}", says=("'--parameters' option must be",))


def test_parameters_are_for_plans(cli) -> None:
    cli("epsilon", "plan.toml", "--out", "certificate.json")
    cli.refuses("show", "certificate.json", "--parameters", "5", says=("--parameters is for plans",))


def test_words_of_a_certificate_cannot_command_the_terminal(cli):
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
    certificate = hs.certify(run, delta=0.01, method="direct")
    certificate.model_copy(update={"sentence": "private\x1b[2J\u202ebut not \x9b1m"}).sealed().save("c.json")
    shown = cli("show", "c.json").out
    assert not set("\x1b\u202e\x9b") & set(shown)
    assert r"private\x1b[2J\u202ebut not \x9b1m" in shown
