"""hockeystick curve: what it prints and writes, and what it refuses."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import hockeystick as hs
from hockeystick.composition.files import load_claim
from hockeystick.errors import InvalidInputError

NUMBERS = [
    "epsilon",
    "mu",
    "regret",
    "advantage",
    "tpr_at_fpr_0.1",
    "tpr_at_fpr_0.01",
    "tpr_at_fpr_0.001",
    "bayes_error",
]


@pytest.fixture
def quick(cli: Any) -> Any:
    """A plan whose accountant takes no time."""
    cli.write_plan({"sampler.kind": '"deterministic"'})
    return cli


def test_json_is_one_object_with_two_sides_everywhere(quick: Any) -> None:
    printed = quick("curve", "plan.toml", "--noise-multiplier", "0.8,1,1", "--json").json
    assert printed.keys() == {"delta", "curves"}
    assert [curve["noise_multiplier"] for curve in printed["curves"]] == [0.8, 1.0]
    for curve in printed["curves"]:
        assert list(curve["numbers"]) == NUMBERS
        assert all(number["lower"] <= number["upper"] for number in curve["numbers"].values())
        profile, trade_off = curve["profile"], curve["trade_off"]
        assert profile.keys() == {"epsilon", "delta_lower", "delta_upper"}
        assert trade_off.keys() == {"type_one_error", "type_two_error_lower", "type_two_error_upper"}
        for low, high in (
            (profile["delta_lower"], profile["delta_upper"]),
            (trade_off["type_two_error_lower"], trade_off["type_two_error_upper"]),
        ):
            assert all(a <= b for a, b in zip(low, high, strict=True))
    less, more = (curve["numbers"]["mu"]["upper"] for curve in printed["curves"])
    assert less == pytest.approx(1.25, rel=1e-6)
    assert more == pytest.approx(1.0, rel=1e-6)


def test_epsilons_are_calibrated(quick: Any) -> None:
    printed = quick("curve", "plan.toml", "--epsilon", "1,4", "--json").json
    for target, curve in zip((1.0, 4.0), printed["curves"], strict=True):
        assert 0.998 * target <= curve["numbers"]["epsilon"]["upper"] <= target * (1.0 + 1e-6)


def test_text_has_a_column_for_each_curve(quick: Any) -> None:
    result = quick("curve", "plan.toml", "--noise-multiplier", "1,2")
    lines = result.out.splitlines()
    assert lines[0].split() == ["noise", "multiplier", "1", "2"]
    assert lines[1].startswith("epsilon at delta = 1e-05")
    assert all(line.count(" .. ") == 2 for line in lines[1:])
    assert len(lines) == 1 + len(NUMBERS)
    assert result.created == set()


def test_csv_and_json_files_say_the_same(quick: Any) -> None:
    assert quick("curve", "plan.toml", "--out", "c.csv").created == {"c.csv"}
    result = quick("curve", "plan.toml", "--out", "c.JSON")
    assert result.created == {"c.JSON"}
    assert result.out.endswith("curves written to c.JSON\n")
    rows = list(csv.DictReader(Path("c.csv").read_text().splitlines()))
    (curve,) = json.loads(Path("c.JSON").read_text())["curves"]
    points = [row for row in rows if row["curve"] == "delta_by_epsilon"]
    assert [float(row["upper"]) for row in points] == curve["profile"]["delta_upper"]
    assert {row["curve"]: float(row["lower"]) for row in rows if not row["x"]} == {
        name: number["lower"] for name, number in curve["numbers"].items()
    }


@pytest.mark.parametrize("name", ["c.png", "c.svg", "c.pdf"])
def test_plots(quick: Any, name: str) -> None:
    pytest.importorskip("matplotlib")
    assert quick("curve", "plan.toml", "--noise-multiplier", "1", "--out", name).created == {name}
    assert Path(name).read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--epsilon", "1", "--noise-multiplier", "1"), ("--epsilon", "--noise-multiplier")),
        (("--epsilon", "1,x"), ("--epsilon", "'x'")),
        (("--epsilon", ""), ("--epsilon",)),
        (("--epsilon", "0"), ("epsilon",)),
        (("--noise-multiplier", "0.8,0"), ("noise_multiplier", "0.01")),
        (("--noise-multiplier", ",".join(map(str, range(1, 40)))), ("--noise-multiplier", "20")),
        (("--delta", "2"), ("delta",)),
        (("--out", "c.txt"), (".csv", ".svg")),
        (("--out", "missing/c.csv"), ("missing/c.csv",)),
        (("--budget", "-1"), ("budget",)),
    ],
)
def test_bad_options_are_refused_in_one_sentence(quick: Any, options: tuple[str, ...], says: tuple[str, ...]) -> None:
    quick.refuses("curve", "plan.toml", *options, says=says)


def test_several_runs_together_have_no_curve_and_it_says_what_they_have(quick: Any) -> None:
    assert quick("epsilon", "plan.toml", "--out", "one.json").code == 0
    assert quick("compose", "one.json", "one.json", "--out", "two.json").code == 0
    quick.refuses("curve", "two.json", says=("'two.json'", "'hockeystick report' draws its curves"))
    for claim, said in (("one.json", "give its 'mechanism'"), ("two.json", "or bound all runs again by hs.compose")):
        with pytest.raises(InvalidInputError, match=rf"must be a Mechanism or a Plan\. Got .* instead; .*{said}\.$"):
            hs.profile(load_claim(claim))


def test_a_plan_without_noise_says_what_to_give(cli: Any) -> None:
    cli.write_plan({"mechanism.noise_multiplier": None})
    cli.refuses("curve", "plan.toml", says=("noise_multiplier", "--noise-multiplier"))
