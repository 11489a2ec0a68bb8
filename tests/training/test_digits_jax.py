"""The example on scikit-learn's digits trains with JAX, and leaves what it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")
pytest.importorskip("sklearn", reason="needs scikit-learn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "digits_jax.py"


def test_the_example_trains_and_leaves_what_it_promises(tmp_path):
    """The weights to begin with are fixed, batches and noise are not; accuracies are about 0.93."""
    command = [sys.executable, str(EXAMPLE), "--epsilon", "4", "--out", str(tmp_path / "digits")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
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
