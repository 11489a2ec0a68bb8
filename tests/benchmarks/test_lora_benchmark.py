"""The benchmark of low-rank adapters, on few steps of small batches. No times are asserted."""

import json
from pathlib import Path

import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("peft", reason="needs peft")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture
def lora(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import lora

    for name, value in (("BATCH", 3), ("BINS", 4), ("WARM_UP", 1)):
        monkeypatch.setattr(lora, name, value)
    return lora


@pytest.mark.parametrize("name", ["transformers", "hockeystick, bands", "hockeystick, ghost"])
def test_a_contestant_is_measured(name, lora, capsys):
    assert lora.main(["--one", name, "--steps", "4", "--bands", "2"]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert cost["cpu"] > 0.0
    assert cost["peak"] > 0.0


def test_all_are_in_the_table_beside_the_first(lora, capsys, monkeypatch):
    costs = iter(range(1, 9))
    monkeypatch.setattr(lora, "_elsewhere", lambda name, options: dict.fromkeys(("cpu", "memory", "peak"), next(costs)))
    assert lora.main(["--rounds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines[1:]] == list(lora.CONTESTANTS)
    assert lines[2].split()[-5:] == ["4000.0", "1.60", "4", "1.60", "4"]
