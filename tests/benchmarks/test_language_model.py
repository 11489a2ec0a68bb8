"""The benchmark of private fine-tuning, on a tiny setting; and the page has what its rows and certificates say."""

import math
import sysconfig
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import hockeystick as hs

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("peft", reason="needs peft")

from benchmarks import language_model, language_model_canaries, language_model_page
from benchmarks.language_model import SETTING, TUNING_SEED, WITHOUT, Cell, Setting, data_of, runs_in

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

TINY = Setting(
    vocabulary=300,
    tokens=8,
    width=16,
    documents=60,
    held_out=20,
    batch_size=20,
    epochs=2,
    public_steps=5,
    library=Path(sysconfig.get_path("stdlib")) / "email",
    packages=("numpy.linalg", "numpy.random", "numpy.lib"),
    targets=(8.0,),
    rates=(0.5, 1.0),
    seeds=2,
)
ONE_EPOCH = replace(TINY, epochs=1, targets=(4.0,))
"""Calibrated in a fifth of the time."""


@pytest.fixture(autouse=True)
def few_topics(monkeypatch):
    monkeypatch.setattr(
        language_model, "topics", {name: language_model.topics[name] for name in ("if", "while", "for")}
    )


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(language_model, "SETTING", ONE_EPOCH)
    monkeypatch.setattr(language_model, "PRIVATE", ("poisson", "recommended"))
    monkeypatch.setattr(language_model, "data_of", cache(data_of))


def test_a_benchmark_that_was_stopped_goes_on(tiny, monkeypatch, tmp_path):
    def until_the_third(*given):
        if len(runs_in(tmp_path / "runs.csv")) == 3:
            raise KeyboardInterrupt
        return train(*given)

    train = language_model.trained
    monkeypatch.setattr(language_model, "trained", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        language_model.main(["--folder", str(tmp_path)])
    first = (tmp_path / "runs.csv").read_text()
    monkeypatch.setattr(language_model, "trained", train)
    assert language_model.main(["--folder", str(tmp_path)]) == 0
    assert (tmp_path / "runs.csv").read_text().startswith(first)

    runs = runs_in(tmp_path / "runs.csv")
    cells = [Cell(WITHOUT, math.nan), Cell("poisson", 4.0), Cell("recommended", 4.0)]
    assert len(runs) == 3 * (2 + 2)
    for cell in cells:
        tried = cell.of(runs, [TUNING_SEED])
        best = min(tried, key=lambda run: run.validation).rate
        assert {run.rate for run in tried} == {0.5, 1.0}
        assert [(run.seed, run.rate) for run in cell.of(runs, range(2))] == [(0, best), (1, best)]
    made = language_model_page.tables(ONE_EPOCH, tmp_path)
    losses = [run.test for run in cells[1].of(runs, range(2))]
    assert f"| {math.exp(sum(losses) / 2):.2f} (" in made
    assert "| recommended, poisson | 4 |" in made

    monkeypatch.setattr(language_model, "SETTING", replace(ONE_EPOCH, public_steps=1))
    with pytest.raises(SystemExit, match="The public model has a loss of"):
        language_model.main(["--folder", str(tmp_path)])


def test_canaries_find_noise_that_is_too_small_and_nothing_in_right_runs(monkeypatch, capsys):
    monkeypatch.setattr(language_model_canaries, "SETTING", replace(TINY, documents=100))
    monkeypatch.setattr(language_model_canaries, "CANARIES", 80)
    assert language_model_canaries.main(["--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said.count("nothing found against the claim") == 2
    assert "deterministic, 0.25 of the noise" in said
    monkeypatch.setattr(language_model_canaries, "RUNS", [("deterministic", 0.9)])
    assert language_model_canaries.main([]) == 1


def test_documents_are_in_one_set_alone_and_do_not_begin_as_public_ones():
    """Nor does the tokenizer see any of them: other packages change no public text."""
    data = data_of(TINY)
    rows = [tuple(row) for part in (data.training, data.validation, data.test) for row in part.tolist()]
    assert len(set(rows)) == len(rows) == 60 + 20 + 20
    assert not set(rows) & {tuple(row) for row in data.public.tolist()}
    other = data_of(replace(TINY, packages=("numpy.lib", "numpy.ma")))
    assert other.public.equal(data.public)
    assert not other.training.equal(data.training)


def test_too_few_documents_are_refused():
    with pytest.raises(SystemExit, match=r"numpy\.random must have at least 10040 docstrings that differ\. Got"):
        data_of(replace(TINY, documents=10_000, packages=("numpy.random",)))


def test_the_page_has_what_its_rows_and_certificates_say():
    folder = language_model.FOLDER
    assert language_model_page.PAGE.read_text().endswith(language_model_page.tables(SETTING, folder))
    runs = runs_in(folder / "runs.csv")
    seeds = language_model_page.complete_seeds(SETTING, runs)
    assert len(seeds) > 2
    for cell in language_model.cells_of(SETTING):
        if cell.mechanism == WITHOUT:
            continue
        certificate = hs.Certificate.load(language_model.file_of(cell, folder))
        assert certificate.epsilon.upper <= cell.target
        sigmas = {run.noise_multiplier for run in cell.of(runs, [TUNING_SEED, *seeds])}
        assert sigmas == {float(f"{certificate.mechanism.sigma:.6g}")}
