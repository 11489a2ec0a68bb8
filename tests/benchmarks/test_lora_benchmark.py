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


@pytest.mark.parametrize("name", ["opake", "opake, bands"])
def test_opake_trains_on_the_same_batches(name, lora, tmp_path):
    if reason := lora.import_error("opake.transformers"):
        pytest.skip(f"opake cannot be imported: {reason}")
    trainer = lora.trainer_of(name, str(tmp_path), 5, 2)
    texts = [trainer.train_dataset[place]["input_ids"].tolist() for place in range(lora.BATCH * lora.BINS)]
    batches = [batch["input_ids"].tolist() for batch in trainer.get_train_dataloader()]
    assert batches == 2 * [texts[first : first + lora.BATCH] for first in range(0, len(texts), lora.BATCH)]
    assert trainer.train().global_step == 2 * lora.BINS


def test_a_library_that_cannot_be_imported_has_one_line(lora, capsys, monkeypatch):
    assert lora.import_error("json") == ""
    assert lora.import_error("no_such_module") == "ModuleNotFoundError: No module named 'no_such_module'"
    monkeypatch.setattr(lora, "import_error", lambda module: "no wheel")
    monkeypatch.setattr(lora, "_elsewhere", lambda name, options: {"cpu": 1.0, "memory": 1.0, "peak": 1.0})
    assert lora.main(["--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "opake is left out: no wheel"
    assert [line[:22].strip() for line in lines[2:]] == [name for name in lora.CONTESTANTS if "opake" not in name]


def test_all_are_in_the_table_beside_the_first(lora, capsys, monkeypatch):
    costs = iter(range(1, 13))
    monkeypatch.setattr(lora, "import_error", lambda module: "")
    monkeypatch.setattr(lora, "_elsewhere", lambda name, options: dict.fromkeys(("cpu", "memory", "peak"), next(costs)))
    assert lora.main(["--rounds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines[1:]] == list(lora.CONTESTANTS)
    assert lines[2].split()[-5:] == ["5000.0", "1.57", "5", "1.57", "5"]
