"""A training that is killed at random moments ends as one that was left alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from hockeystick.training import RunRecord

HERE = Path(__file__).parent


def killed(module, folder, times, seconds):
    """How many trainings were alive when they were killed."""
    command = [sys.executable, HERE / "killing.py", module, folder, str(times), str(seconds)]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)


def check_records(folder):
    alone, often = (RunRecord.load(folder / name / "run.json") for name in ("alone", "often"))
    assert alone.commitment == often.commitment
    assert alone.certificate == often.certificate
    assert often.resumed >= 1
    assert "repeated_steps_repeat" in often.asserted


def test_numpy(tmp_path):
    assert killed("numpy_training", tmp_path, times=20, seconds=0.1) >= 10
    with np.load(tmp_path / "alone/state.npz") as left, np.load(tmp_path / "often/state.npz") as right:
        assert {name for name in left if not np.array_equal(left[name], right[name])} == {"resumed"}
    check_records(tmp_path)
