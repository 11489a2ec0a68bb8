"""The example on scikit-learn's digits: a loop for Opacus trains with our engine to hs.certify's epsilon."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("sklearn", reason="needs scikit-learn")

import opacus
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits_opacus.py"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    spec = importlib.util.spec_from_file_location("digits_opacus", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_line_switches_from_opacus(monkeypatch):
    """The same function trains with either engine, to about the same accuracy; seeds are fixed."""
    digits = example(monkeypatch)
    training, test = digits.digits()
    plan = hs.Plan.load(digits.PLAN)
    mechanism = plan.mechanism(noise_multiplier=1.5)
    accuracies = []
    for engine in (opacus.PrivacyEngine(), hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(0))):
        torch.manual_seed(0)
        model = digits.train(engine, training, epochs=20, batch_size=100, noise_multiplier=1.5)
        accuracies.append(digits.accuracy(model, test))
    assert min(accuracies) > 0.85
    assert abs(accuracies[0] - accuracies[1]) < 0.08
    expected = hs.certify(mechanism, delta=1e-5)
    assert engine.certificate(1e-5) == expected
    assert engine.get_epsilon(1e-5) == expected.epsilon.upper
    record = engine.record(expected)
    assert (record.steps, record.violations) == (300, ())


def test_the_example_leaves_what_it_promises(tmp_path, monkeypatch, capfd):
    digits = example(monkeypatch)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--epsilon", "4", "--out", str(tmp_path / "digits")])
    digits.main()
    said = "".join(capfd.readouterr())
    assert "accuracy" in said
    assert "verified" in said
    assert (tmp_path / "digits" / "accuracy.png").stat().st_size > 1000
    record = RunRecord.load(tmp_path / "digits" / "epsilon-4.run.json")
    certificate = hs.Certificate.load(tmp_path / "digits" / "epsilon-4.certificate.json")
    assert record.certificate == certificate
    assert certificate.epsilon.upper <= 4.0
    assert not record.violations
