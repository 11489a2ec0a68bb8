"""What the commands print: clean JSON with the documented keys, text for people, files that are whole."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from hockeystick import Certificate, Kind, __version__
from hockeystick.accountants.registry import every_accountant
from hockeystick.cli import common
from hockeystick.errors import InvalidInputError
from hockeystick.pairs.registry import PAIRS, pair_types
from hockeystick.plan import Plan
from hockeystick.samplers import SAMPLERS
from hockeystick.strategies import STRATEGIES

CLAIM = {"delta", "noise_multiplier", "epsilon", "method", "kind", "confidence", "seconds"}
ANSWER = CLAIM | {"hints"}


def assert_claim(claim: dict[str, Any], interval: str, given: str) -> None:
    """One interval with two methods, one given number, and no unknown kind."""
    assert claim[interval].keys() == {"upper", "lower"}
    assert 0.0 <= claim[interval]["lower"] <= claim[interval]["upper"]
    assert isinstance(claim[given], float)
    assert claim["method"].keys() == {"upper", "lower"}
    assert set(claim["method"].values()) <= set(every_accountant())
    assert claim["kind"] in set(Kind)
    assert 0.0 < claim["confidence"] <= 1.0
    assert claim["seconds"] >= 0.0


def test_lists_quote_the_names_of_fields(cli: Any) -> None:
    listed = cli("list", "strategies").out
    assert "cut to 'bands' diagonals" in listed
    assert "`" not in listed


def test_epsilon_json(cli: Any) -> None:
    result = cli("epsilon", "plan.toml", "--json")
    assert result.json.keys() == ANSWER
    assert_claim(result.json, "epsilon", "delta")
    assert result.json["delta"] == 1e-5
    assert result.json["noise_multiplier"] == 1.0
    assert result.created == set()


def test_delta_json(cli: Any) -> None:
    result = cli("delta", "plan.toml", "--epsilon", "0.5", "--json")
    assert result.json.keys() == ANSWER
    assert_claim(result.json, "delta", "epsilon")
    assert result.json["epsilon"] == 0.5


def test_calibrate_json_and_verify_json(cli: Any) -> None:
    result = cli("calibrate", "plan.toml", "--json")
    answer = result.json
    assert answer.keys() == ANSWER | {"target", "certificate"}
    assert_claim(answer, "epsilon", "delta")
    assert answer["target"] == {"epsilon": 2.0, "delta": 1e-5}
    assert answer["epsilon"]["upper"] <= 2.0
    assert result.created == {answer["certificate"]} == {"plan.certificate.json"}
    verified = cli("verify", "plan.certificate.json", "--json").json
    assert verified.keys() == CLAIM | {"verified", "stand_ins"}
    assert verified["verified"] is True
    assert verified["epsilon"] == answer["epsilon"]


def test_compare_json(cli: Any) -> None:
    comparison = cli("compare", "plan.toml", "--json").json
    assert comparison.keys() == {"delta", "noise_multiplier", "bounds"}
    rows = comparison["bounds"]
    for row in rows:
        assert row.keys() == {"method", "side", "kind", "confidence", "epsilon", "seconds", "status"}
        assert (row["epsilon"] is None) == (row["status"] != "ok")
    kinds = ("identity", Plan.load("plan.toml").sampler.kind)
    assert {(row["method"], row["side"]) for row in rows} == {
        (method.name, side.value)
        for method in every_accountant().values()
        for side in method.sides
        if method.kind is Kind.DETERMINISTIC and method.covers(pair_types(*kinds)[0])
    }
    lower = max(row["epsilon"] or 0.0 for row in rows if row["side"] == "lower")
    assert all(row["epsilon"] >= lower for row in rows if row["side"] == "upper" and row["epsilon"] is not None)
    values = [row["epsilon"] for row in rows if row["side"] == "upper" and row["epsilon"] is not None]
    assert values == sorted(values)


def test_options_override_the_plan(cli: Any) -> None:
    answer = cli("epsilon", "plan.toml", "--delta", "1e-3", "--noise-multiplier", "2", "--method", "gaussian", "--json")
    assert answer.json["delta"] == 1e-3
    assert answer.json["noise_multiplier"] == 2.0
    assert answer.json["method"]["upper"] == "gaussian"


@pytest.mark.parametrize("suffix", ["json", "JSON"])
def test_json_plans(cli: Any, suffix: str) -> None:
    plan = {
        "data": {"num_examples": 60, "batch_size": 20, "epochs": 2},
        "sampler": {"kind": "deterministic"},
        "target": {"delta": 1e-5},
        "noise_multiplier": 3,
    }
    Path(f"plan.{suffix}").write_text(json.dumps(plan))
    assert cli("epsilon", f"plan.{suffix}", "--json").json["noise_multiplier"] == 3.0


def test_a_byte_order_mark_and_windows_line_ends_do_not_hurt(cli: Any) -> None:
    text = Path("plan.toml").read_text().replace("\n", "\r\n")
    Path("plan.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert cli("epsilon", "plan.toml", "--method", "gaussian").code == 0


@pytest.mark.parametrize(("command", "extra"), [("epsilon", ()), ("delta", ()), ("calibrate", ())])
def test_certificates_are_written_whole_and_verify(cli: Any, command: str, extra: tuple[str, ...]) -> None:
    Path("here").mkdir()
    result = cli(command, "plan.toml", "--method", "gaussian", "--out", "here/cert.json", *extra)
    assert result.code == 0
    assert [path.name for path in Path("here").iterdir()] == ["cert.json"]
    certificate = Certificate.load("here/cert.json")
    assert certificate.text(requirements=False) in result.out
    assert not any(requirement in result.out for requirement in certificate.requirements)
    verified = cli("verify", "here/cert.json")
    assert verified.code == 0
    assert "verified" in verified.out


@pytest.mark.parametrize("command", ["epsilon", "delta"])
def test_the_answer_comes_after_what_the_run_must_do(cli: Any, command: str) -> None:
    brief = cli(command, "plan.toml", "--method", "gaussian", "--out", "cert.json").out
    said = cli(command, "plan.toml", "--method", "gaussian", "--verbose").out
    requirements = Certificate.load("cert.json").requirements
    assert said.startswith("the run must\n")
    assert said.endswith(brief)
    assert requirements
    assert all(said.count(requirement) == 1 for requirement in requirements)


def test_a_failed_calibration_keeps_the_old_certificate(cli: Any) -> None:
    Path("plan.certificate.json").write_text("old")
    cli.write_plan({"sampler.kind": '"shuffle"'})
    assert cli("calibrate", "plan.toml", "--method", "direct").code == 2
    assert Path("plan.certificate.json").read_text() == "old"


def test_calibrate_text_names_the_noise(cli: Any) -> None:
    result = cli("calibrate", "plan.toml", "--method", "gaussian")
    sigma = Certificate.load("plan.certificate.json").mechanism.sigma
    assert result.out.endswith(f"noise_multiplier = {sigma!r} for epsilon = 2.0, delta = 1e-05\n")
    assert "the run must" not in result.out
    assert cli("calibrate", "plan.toml", "--method", "gaussian", "--verbose").out.count("the run must") == 1


@pytest.mark.parametrize("name", ["x.png", "x.PNG", "x.svg", "x.pdf"])
def test_plots(cli: Any, name: str) -> None:
    pytest.importorskip("matplotlib")
    result = cli("compare", "plan.toml", "--budget", "0.001", "--plot", name)
    assert result.code == 0
    assert result.created == {name}
    assert Path(name).stat().st_size > 500


def test_list_covers_everything(cli: Any) -> None:
    def listed(topic: str) -> list[dict[str, str]]:
        printed = cli("list", topic, "--json").json
        assert printed.keys() == {topic}
        return list(printed[topic])

    assert [row["name"] for row in listed("samplers")] == list(SAMPLERS)
    assert [row["name"] for row in listed("accountants")] == list(every_accountant())
    assert [row["name"] for row in listed("strategies")] == [
        strategy.model_fields["kind"].default for strategy in STRATEGIES.values()
    ]
    support = listed("support")
    assert [row["name"] for row in support] == [f"{strategy} with {sampler}" for strategy, sampler in PAIRS]
    assert {name for row in support for name in row["summary"].split(", ")} == set(every_accountant())
    for topic in ("samplers", "accountants", "strategies", "support"):
        text = cli("list", topic).out
        for row in listed(topic):
            assert row["summary"]
            assert row["name"] in text


def test_help(cli: Any) -> None:
    for arguments in ((), ("--help",)):
        result = cli(*arguments)
        assert result.code == 0
        for command in ("calibrate", "epsilon", "delta", "compare", "verify", "list", "reproduce"):
            assert command in result.out
    assert "--noise-multiplier" in cli("epsilon", "--help").out


def test_reproduce_lists_what_there_is(cli: Any) -> None:
    result = cli("reproduce")
    assert result.code == 0
    assert result.created == set()


def test_a_fault_of_ours_is_one_line_too(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(topic: str) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("hockeystick.report.listing.listing", fail)
    result = cli("list", "samplers")
    assert result.code == 70
    assert "ZeroDivisionError: division by zero" in result.complaint
    assert "test_output.py" in result.complaint


@pytest.mark.parametrize("error", [KeyboardInterrupt, typer.Abort])
def test_an_interruption_is_one_line(cli: Any, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def interrupt(topic: str) -> None:
        raise error

    monkeypatch.setattr("hockeystick.report.listing.listing", interrupt)
    result = cli("list", "samplers")
    assert result.code == 130
    assert result.complaint.startswith("Interrupted")


def test_an_interrupted_kernel_is_an_interruption(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(topic: str) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("hockeystick.report.listing.listing", interrupt)
    assert cli("list", "samplers").code == 130


def test_a_budget_that_is_over_leaves_calibrate_with_the_gaussian(cli: Any) -> None:
    cli.write_plan({"data.num_examples": "100000", "sampler.kind": '"poisson"'})
    answer = cli("calibrate", "plan.toml", "--budget", "0.001", "--json").json
    assert answer["epsilon"]["upper"] <= 2.0
    assert answer["method"]["upper"] == "gaussian"
    assert all(method["seconds"] > 0.001 for method in answer["cut_off"])
    assert "direct" in {method["method"] for method in answer["cut_off"]}
    done = cli("calibrate", "plan.toml", "--budget", "0.001")
    assert "hockeystick: the budget ended the search; a larger one may find less noise" in done.err
    told = done.out
    assert "more seconds may give a better bound" in told


def test_a_budget_that_is_over_leaves_epsilon_with_a_bound(cli: Any) -> None:
    cli.write_plan({"data.num_examples": "100000", "sampler.kind": '"poisson"', "mechanism.noise_multiplier": "10.0"})
    answer = cli("epsilon", "plan.toml", "--budget", "1e-6", "--json").json
    assert answer["epsilon"]["upper"] > 0.0
    rows = cli("compare", "plan.toml", "--budget", "1e-6", "--json").json["bounds"]
    for row in rows:
        if row["method"] == "direct":
            assert row["status"].startswith("left out: it takes about")


def test_a_budget_that_is_over_is_no_failed_verification(cli: Any) -> None:
    assert cli("epsilon", "plan.toml", "--out", "cert.json", "--method", "direct").code == 0
    cli.refuses("verify", "cert.json", "--budget", "1e-6", code=1, says=("time budget",))


def test_progress_goes_to_stderr(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Timer", Impatient)
    result = cli("epsilon", "plan.toml", "--json")
    assert "hockeystick: certifying\n" in result.err
    assert "certifying, at most 60 s" in cli("epsilon", "plan.toml", "--json", "--budget", "60").err
    assert result.json.keys() == ANSWER


class Impatient:
    """A timer whose time is over as soon as it starts."""

    def __init__(self, seconds: float, function: Callable[..., None], args: Sequence[Any] = ()) -> None:
        self.start, self.cancel = partial(function, *args), lambda: None


def test_long_work_is_reported_again_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "AGAIN_SECONDS", 0.02)
    with common.working("waiting", None):
        said, end = "", time.monotonic() + 30.0
        while said.count("still") < 3 and time.monotonic() < end:
            time.sleep(0.02)
            said += capsys.readouterr().err
    lines = [line for line in said.splitlines() if "still" in line]
    assert lines[:3] == [f"hockeystick: {seconds} s: still waiting" for seconds in ("0.02", "0.04", "0.08")]
    capsys.readouterr()
    time.sleep(0.3)  # longer than until the next line would be due
    assert "still" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["calibrate", "epsilon", "delta"])
def test_a_result_that_cannot_be_saved_is_printed_all_the_same(
    cli: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for json_option in ([], ["--json"]):
        result = cli(command, "plan.toml", "--method", "gaussian", "--out", "cert.json", *json_option)
        assert (result.code, result.created) == (2, set())
        assert result.complaint == "The output path 'cert.json' cannot be written: No space left on device."
        assert "noise_multiplier" in json.loads(result.out) if json_option else "is certified" in result.out
        assert "written to" not in result.out


def test_a_comparison_that_cannot_be_drawn_is_printed_all_the_same(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise InvalidInputError("The disk is full.")

    monkeypatch.setattr("hockeystick.report.plot.plot_comparison", full)
    result = cli("compare", "plan.toml", "--budget", "0.001", "--plot", "x.png")
    assert (result.code, result.complaint) == (2, "The disk is full.")
    assert "gaussian" in result.out


def test_a_result_that_nobody_reads_is_saved_all_the_same(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(text: str) -> None:
        raise SystemExit(0)  # as for a closed pipe

    monkeypatch.setattr("hockeystick.cli.common.emit", gone)
    assert cli("calibrate", "plan.toml", "--method", "gaussian").created == {"plan.certificate.json"}


def test_version(cli: Any) -> None:
    result = cli("--version")
    assert (result.code, result.out, result.err) == (0, f"hockeystick {__version__}\n", "")


def test_completion_in_a_shell(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--install-completion" in cli("--help").out
    for words, at, expected in (("hockeystick ca", 1, "calibrate"), ("hockeystick verify --mat", 2, "--matrix")):
        monkeypatch.setenv("_HOCKEYSTICK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(at))
        result = cli()
        assert (result.code, result.out.split(), result.err) == (0, [expected], "")
    monkeypatch.setenv("_HOCKEYSTICK_COMPLETE", "source_zsh")
    assert "compdef _hockeystick_completion hockeystick" in cli().out
