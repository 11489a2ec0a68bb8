"""Lightning's own loop on the loader and the optimizer of an engine; the module is that of the example."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("lightning", reason="needs lightning")
pytest.importorskip("sklearn", reason="needs scikit-learn")

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from whole_numbers import classifier, engine_of, train, weights_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"
pytestmark = pytest.mark.filterwarnings("ignore")
QUIET = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("digits_lightning")


@pytest.fixture
def fitted(example, training, tmp_path):
    """Makes a training, and fits it with Lightning."""

    def fit(resume=None, **options):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        made = training(module=model, optimizer=optimizer)
        trainer = lightning.Trainer(default_root_dir=tmp_path, max_epochs=2, **QUIET | options)
        torch.manual_seed(1)
        trainer.fit(example.Classifier(made.model, made.optimizer), made.loader, ckpt_path=resume, weights_only=True)
        assert trainer.global_step == made.engine.run.step
        return made

    return fit


def test_a_training_that_was_stopped_within_an_epoch_continues_as_if_it_had_not_been(fitted, tmp_path):
    saving = ModelCheckpoint(dirpath=tmp_path, filename="{step}", save_top_k=-1, every_n_train_steps=13)
    whole = fitted(callbacks=[saving])
    again = fitted(resume=tmp_path / "step=13.ckpt", enable_checkpointing=False)
    assert np.array_equal(whole.weights(), again.weights())
    record = again.engine.record()
    assert (record.steps, record.resumed, record.violations) == (40, 1, ())
    assert record.commitment == whole.engine.record().commitment
    expected = hs.certify(again.engine.mechanism, delta=1e-5, method="gaussian")
    assert again.engine.certificate(1e-5, method="gaussian") == expected


def test_sums_of_whole_numbers_are_those_of_an_ordinary_loop(example, tmp_path):
    """Bit for bit, where every batch fits into a physical one."""
    plain, fitted = engine_of(physical_batch_size=32), engine_of(physical_batch_size=32)
    model, *rest = classifier(plain)
    train(plain, model, *rest)
    again, optimizer, loader = classifier(fitted)
    trainer = lightning.Trainer(default_root_dir=tmp_path, max_epochs=2, enable_checkpointing=False, **QUIET)
    trainer.fit(example.Classifier(again, optimizer), loader)
    assert np.array_equal(weights_of(again), weights_of(model))
    record = fitted.record()
    assert (record.steps, record.violations) == (12, ())
    assert {"exact_sums", "one_shape"} <= set(record.checked)


def test_lightning_adds_up_no_batches_of_the_plan(fitted):
    with pytest.raises(ValueError, match="not compatible with grad accumulation"):
        fitted(accumulate_grad_batches=4, enable_checkpointing=False)


def test_lightning_puts_no_sampler_of_its_own_under_the_loader(training):
    from lightning.pytorch.utilities.data import _update_dataloader
    from torch.utils.data import DistributedSampler

    loader = training().loader
    with pytest.raises(TypeError, match="can't inject"):
        _update_dataloader(loader, DistributedSampler(loader.dataset, num_replicas=2, rank=0))


def test_the_example_leaves_what_it_promises(example, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["digits_lightning.py", "--out", str(tmp_path / "digits")])
    example.main()
    assert "verified" in "".join(capfd.readouterr())
    record = RunRecord.load(tmp_path / "digits" / "lightning.run.json")
    assert record.certificate == hs.Certificate.load(tmp_path / "digits" / "lightning.certificate.json")
    assert (record.steps, record.violations) == (300, ())
