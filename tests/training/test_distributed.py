"""Two processes execute the same mechanism as one."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")

SCRIPT = Path(__file__).parent / "ddp_training.py"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def alone(mode):
    """The same training in this process."""
    spec = importlib.util.spec_from_file_location("ddp_training", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.train(lambda model: model, mode)


@pytest.mark.parametrize("mode", ["hooks", "ghost", "independent"])
def test_two_ranks_are_one_run(mode, tmp_path):
    """One noise stream, no rank ahead of the other where its part of a batch is empty, and the same public divisor."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    commands = [[sys.executable, SCRIPT, tmp_path, str(port), str(rank), mode] for rank in (0, 1)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in processes:
        said = process.communicate(timeout=200)[1]
        assert process.returncode == 0, said
    first, second = (np.load(tmp_path / f"{rank}-1.npz") for rank in (0, 1))
    weights, _, sizes, engine = alone(mode)
    assert np.array_equal(first["weights"], second["weights"])
    assert np.array_equal(first["sizes"] + second["sizes"], sizes)
    assert np.any((first["sizes"] == 0) != (second["sizes"] == 0))
    assert np.allclose(first["weights"], weights, rtol=0, atol=1e-5)
    # Without gradients, what reaches p.grad on both ranks is the noise of the run in one process, to float32.
    twin = engine.mechanism
    noise = [np.load(tmp_path / f"{rank}-0.npz")["rows"] for rank in (0, 1)]
    assert np.array_equal(*noise)
    white = twin.matrix.dot(noise[0]) / twin.sigma
    size = white.shape[1]
    same = np.eye(len(white))
    assert np.abs((white @ white.T - size * same) / np.sqrt(size * (1.0 + same))).max() < 8.0  # see test_engine
    records = [RunRecord.load(tmp_path / f"{rank}-1.json") for rank in (0, 1)]
    assert records[0].commitment == records[1].commitment == engine.record().commitment
    assert "one_noise_row_a_step" in records[0].checked
    assert "one_noise_row_a_step" in records[1].asserted
