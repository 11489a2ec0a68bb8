"""The example on scikit-learn's digits trains with JAX, and leaves what it promises."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")
pytest.importorskip("sklearn", reason="needs scikit-learn")

import jax

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits_jax.py"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    spec = importlib.util.spec_from_file_location("digits_jax", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_is_about_what_it_says(example):
    training, test = example.digits()
    assert len(training[0]) == hs.Plan.load(example.PLAN).data.num_examples
    assert len(test[0]) == 297
    shapes = jax.eval_shape(example.network, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 9930


def test_the_example_trains_and_leaves_what_it_promises(example, tmp_path, monkeypatch, capfd):
    """The weights to begin with are fixed, batches and noise are not; accuracies are about 0.93."""
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--epsilon", "4", "--out", str(tmp_path / "digits")])
    example.main()
    said = "".join(capfd.readouterr())
    accuracy = re.search(r"accuracy (\S+)", said)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.8
    assert f"hockeystick verify {tmp_path}/digits/epsilon-4.certificate.json" in said
    assert "verified" in said
    assert (tmp_path / "digits" / "accuracy.png").stat().st_size > 1000
    record = RunRecord.load(tmp_path / "digits" / "epsilon-4.run.json")
    certificate = hs.Certificate.load(tmp_path / "digits" / "epsilon-4.certificate.json")
    assert record.certificate == certificate
    assert certificate.epsilon.upper <= 4.0
    assert (record.steps, record.violations) == (300, ())
