"""A training that is killed at random moments ends as one that was left alone."""

import numpy as np
import pytest
from processes import end, start

from hockeystick.training import RunRecord


def killed(module, folder, times):
    """How many trainings were alive when they were killed."""
    end(start("killing.main", module, folder, times, folder=folder))
    return int((folder / "killed").read_text())


def check_records(folder):
    alone, often = (RunRecord.load(folder / name / "run.json") for name in ("alone", "often"))
    assert alone.commitment == often.commitment
    assert alone.certificate == often.certificate
    assert often.resumed >= 1
    assert "repeated_steps_repeat" in often.asserted


def test_numpy(tmp_path):
    assert killed("numpy_training", tmp_path, times=10) == 10
    with np.load(tmp_path / "alone/state.npz") as left, np.load(tmp_path / "often/state.npz") as right:
        assert {name for name in left if not np.array_equal(left[name], right[name])} == {"resumed"}
    check_records(tmp_path)


@pytest.mark.parametrize(
    ("module", "times"),
    [
        pytest.param("torch_training", 10, marks=pytest.mark.weekly),
        ("prefetching_training", 3),
        pytest.param("exact_training", 20, marks=pytest.mark.weekly),
        ("exact_training", 3),
    ],
)
def test_torch(module, times, tmp_path):
    """Bit-identical weights on a CPU, with dropout and momentum; a state has what was used, not what was read ahead.

    So are sums of whole numbers, killed between the physical batches of a step or not.
    Weekly without workers that read ahead: that part of a state is tested elsewhere too.
    """
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    assert killed(module, tmp_path, times) == times
    alone, often = (torch.load(tmp_path / name / "state.pt") for name in ("alone", "often"))
    for part in ("module_state_dict", "optimizer_state_dict"):
        left, right = flat(alone[part]), flat(often[part])
        assert {name for name in left | right if not same(left[name], right[name])} <= {"/hockeystick_run/resumed"}
    check_records(tmp_path)


def test_jax(tmp_path):
    """Bit-identical weights on a CPU, with dropout and momentum."""
    pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")
    assert killed("jax_training", tmp_path, times=2) == 2
    with np.load(tmp_path / "alone/state.npz") as left, np.load(tmp_path / "often/state.npz") as right:
        differ = {name for name in left if not np.array_equal(left[name], right[name])}
    assert differ == {"run_resumed"}
    check_records(tmp_path)


def test_transformers(tmp_path):
    """Bit-identical weights on a CPU, with dropout and Adam, from checkpoints that are whole or are not there."""
    torch = pytest.importorskip("torch")
    for name in ("opacus", "transformers", "accelerate"):
        pytest.importorskip(name)
    assert killed("huggingface_training", tmp_path, times=2) == 2
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "often")]
    assert files[0] == files[1]
    left, right = (flat(torch.load(tmp_path / name / "optimizer.pt")) for name in ("alone", "often"))
    assert {name for name in left | right if not same(left[name], right[name])} <= {"/hockeystick_run/resumed"}
    check_records(tmp_path)


def flat(state, path=""):
    """The leaves of a nested state by their paths."""
    if not isinstance(state, dict | list):
        return {path: state}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return {name: leaf for key, part in items for name, leaf in flat(part, f"{path}/{key}").items()}


def same(left, right):
    return np.array_equal(np.asarray(left), np.asarray(right))
