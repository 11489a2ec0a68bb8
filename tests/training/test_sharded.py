"""Two processes that share out the parameters execute the same mechanism as one, with the same noise bits."""

import signal

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")

import shards_on_a_cpu
import torch
from fsdp_training import train
from processes import end, exit_codes, start_two
from torch import distributed
from torch.distributed.tensor import Shard

from hockeystick.training.torch import shards

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The folder with what two processes left."""
    folder = tmp_path_factory.mktemp("shards")
    end(*start_two("fsdp_training.main", folder, folder=folder))
    return folder


@shards_on_a_cpu.needed
def test_two_shards_are_one_run(left):
    """The noise bit for bit, the weights but for rounding, and a checkpoint in the middle changes neither."""
    first, second = (np.load(left / f"{rank}.npz") for rank in (0, 1))
    weights, _, sizes, engine = train(None, 1.0)
    assert np.array_equal(first["sizes"] + second["sizes"], sizes)
    assert np.any((first["sizes"] == 0) != (second["sizes"] == 0))
    assert np.array_equal(first["weights"], second["weights"])
    assert np.allclose(first["weights"], weights, rtol=0, atol=1e-5)
    _, noise, _, _ = train(None, 0.0)  # without gradients, nothing but noise reaches p.grad
    assert np.array_equal(first["noise"], noise)  # the halves of both ranks are exact
    assert np.array_equal(second["noise"], noise)
    records = [RunRecord.load(left / f"{rank}.json") for rank in (0, 1)]
    assert records[0].commitment == records[1].commitment == engine.record().commitment
    assert all("one_noise_row_a_step" in record.checked for record in records)


@shards_on_a_cpu.needed
def test_whole_numbers_of_two_shards_are_those_of_one_process(left):
    """Not a bit differs, of any step, from gradients that are all in memory; resumed in the middle too."""
    weights, sums, _, engine = train(None, 1.0, exact=True)
    for rank in (0, 1):
        own, record = np.load(left / f"{rank}.npz"), RunRecord.load(left / f"exact-{rank}.json")
        assert np.array_equal(own["exact"], weights)
        assert np.array_equal(own["sums"], sums)
        assert record.commitment == engine.record().commitment
        assert record.resumed == 1
        assert {"exact_sums", "one_shape", "norms"} <= set(record.checked)


@shards_on_a_cpu.needed
@pytest.mark.weekly
def test_whole_numbers_of_shards_that_were_killed_are_those_of_one_process(tmp_path):
    """Both processes die two steps after they saved; two others go on."""
    killed = start_two("fsdp_training.main", tmp_path, True, folder=tmp_path)
    codes = exit_codes(*killed)
    assert -signal.SIGKILL in codes  # the other one may see the connection fail before it dies
    assert 0 not in codes
    assert (tmp_path / "state-0.pt").exists()
    assert (tmp_path / "state-1.pt").exists()
    end(*start_two("fsdp_training.main", tmp_path, True, folder=tmp_path))
    weights, _, _, _ = train(None, 1.0, exact=True)
    for rank in (0, 1):
        assert np.array_equal(np.load(tmp_path / f"killed-{rank}.npy"), weights)


def of_three(parameters, monkeypatch):
    """Play each of three processes, which hold what the rule of fully_shard gives them."""
    monkeypatch.setattr(shards, "DTensor", torch.Tensor)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        held = {id(one): [*one.chunk(3), one[:0], one[:0], one[:0]][rank] for one in parameters}
        for one in parameters:
            one.placements, one.device_mesh = (Shard(0),), torch.zeros(3)
            one.device_mesh.size = lambda: 3
            one.to_local = lambda one=one, held=held: held[id(one)]
        yield rank


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (4,), (4, 2)])
def test_a_process_without_rows_is_an_error_everywhere(sizes, monkeypatch):
    """Or the others would wait for the one that stopped."""
    parameters = [torch.zeros(size, 3) for size in sizes]
    for _ in of_three(parameters, monkeypatch):
        with pytest.raises(InvalidInputError, match=f"Every process must hold .* at most {max(sizes)} rows: . of 3"):
            shards.part_of(parameters)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_shards_are_all_numbers_once(rows, monkeypatch):
    """Three processes, some without a row of the first parameter."""
    parameters = [torch.zeros(rows, 4), torch.zeros(5)]
    found = []
    for _ in of_three(parameters, monkeypatch):
        found += [n for start, stop in shards.part_of(parameters) for n in range(start, stop)]
    assert sorted(found) == list(range(rows * 4 + 5))
    parameters[0].placements = ()
    with pytest.raises(UnsupportedError, match="sharded by rows over all processes"):
        shards.part_of(parameters)
