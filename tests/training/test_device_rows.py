"""Rows of noise on a device of torch, and the noise that parameters get from them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick import noise
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.noise.exact import solvers

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

from hockeystick.training import Run
from hockeystick.training.torch import device_rows

MECHANISM = hs.Mechanism(
    sampler=hs.Poisson(sampling_prob=0.05, steps=12), noise_multiplier=2.0, strategy=hs.BandedSquareRoot(bands=3)
)
WITH_BANDS = {"bands": hs.BandedSquareRoot(bands=6), "bands of the inverse": hs.BandedInverseSquareRoot(bands=6)}


@pytest.mark.parametrize("strategy", [*WITH_BANDS.values(), hs.Identity()], ids=lambda one: one.kind)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_on_a_device_have_the_bits_of_rows_in_memory(device, dtype, strategy):
    """Also from a checkpoint of either, of a replay, and for parameters on the device."""
    mechanism = MECHANISM.model_copy(update={"strategy": strategy, "sampler": hs.Deterministic(bins=30)})
    options = {"num_examples": 30, "shape": 3001, "dtype": dtype}
    places = {"memory": None, "device": hs.torch.OnDevice(device), "replay": noise.Replay()}
    runs = {name: Run(mechanism, rng=np.random.default_rng(7), rows=rows, **options) for name, rows in places.items()}
    for step in range(30):
        rows = {name: run.noise([step]) for name, run in runs.items()}
        assert np.array_equal(rows["device"], rows["memory"])
        assert np.array_equal(rows["replay"], rows["memory"])
        if step == 12:
            states = {name: run.state_dict() for name, run in runs.items()}
            for name, state in states.items():
                runs[f"from {name}"] = Run(mechanism, rows=places["device"], **options)
                runs[f"from {name}"].load_state_dict(state)
            runs["from the device"] = Run(mechanism, **options)
            runs["from the device"].load_state_dict(states["device"])
        assert all(np.array_equal(row, rows["memory"]) for name, row in rows.items() if name.startswith("from"))
    assert sum(name.startswith("from") for name in runs) == 4


@pytest.mark.parametrize("strategy", [*WITH_BANDS.values(), hs.Identity()], ids=lambda one: one.kind)
@pytest.mark.parametrize("error", [solvers.ERROR, 3e-8])
def test_whole_numbers_on_a_device_are_those_in_memory(device, strategy, error, monkeypatch):
    """Of a source whose numbers the processor draws; also with a tenth of them in doubt, and from either's state."""
    steps = {"sampler": hs.Deterministic(bins=12), "exact": True}
    mechanism = MECHANISM.model_copy(update={"strategy": strategy} | steps)
    here = noise.stream(mechanism, 301, secure=True)
    there = noise.NoiseStream.from_state(mechanism, here.state(), rows=hs.torch.OnDevice(device))
    assert there.source == "keyed"
    for step in range(12):
        right = here.next()
        with monkeypatch.context() as patched:
            patched.setattr(solvers, "ERROR", error)
            np.testing.assert_array_equal(there.next(), right)
        if step == 7:
            states = here.state(), there.state()
            assert all(np.array_equal(value, states[1][name]) for name, value in states[0].items())
            here = noise.NoiseStream.from_state(mechanism, states[1])
            there = noise.NoiseStream.from_state(mechanism, states[0], rows=hs.torch.OnDevice(device))


def test_replay_on_a_device_keeps_nothing(device):
    mechanism = MECHANISM.model_copy(update={"strategy": WITH_BANDS["bands of the inverse"]})
    here, rows = noise.stream(mechanism, 31, secure=True), hs.torch.OnDevice(device, replay=True)
    there = noise.NoiseStream.from_state(mechanism, here.state(), rows=rows)
    assert there.nbytes == 0
    for _ in range(8):
        row: Any = there.next(copy=False)
        assert row.device.type == device
        np.testing.assert_array_equal(row.cpu().numpy(), here.next())
    with pytest.raises(UnsupportedError, match="strategies whose inverse has bands"):
        noise.stream(MECHANISM, 31, rng=np.random.default_rng(0), rows=rows)


def test_rows_are_nearby_where_the_device_makes_them_and_has_room(monkeypatch):
    """Which place was chosen shows in what the stream gives without a copy; the noise is the same."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    tree = MECHANISM.model_copy(update={"strategy": hs.BinaryTree()})

    def row(mechanism, **options):
        rows = device_rows.Nearby("cpu", **options)
        return noise.stream(mechanism, 31, rng=np.random.default_rng(0), rows=rows).next(copy=False)

    here = row(MECHANISM)
    assert isinstance(here, np.ndarray)
    monkeypatch.setattr(device_rows.OnDevice, "reason", lambda self, source: None if source == "seeded" else "AES")
    there = row(MECHANISM)
    assert isinstance(there, torch.Tensor)
    assert np.array_equal(there.numpy(), here)
    assert isinstance(row(MECHANISM, secure=True), np.ndarray)
    assert isinstance(row(tree), np.ndarray)
    with pytest.raises(InvalidInputError, match="'max_bytes' parameter must be at least"):
        row(MECHANISM, max_bytes=100)


def test_parameters_on_a_cuda_device_have_their_rows_nearby(monkeypatch):
    """As far as it can be seen without one: the engine of a run is told where, and how much."""
    told = {}
    monkeypatch.setattr(
        "hockeystick.training.torch.noise.Run", lambda mechanism, shape, **options: told.update(options)
    )
    monkeypatch.setattr(hs.torch.Noise, "__init__", lambda self, run, parameters: None)

    class Parameter:
        device = torch.device("cuda:1")

        def numel(self):
            return 3

    hs.torch.Noise.of(MECHANISM, [Parameter()], secure=True, max_bytes=9)
    assert (told["rows"].device, told["rows"].secure, told["rows"].max_bytes) == (Parameter.device, True, 9)
    hs.torch.Noise.of(MECHANISM, [torch.zeros(3)], rows=None)
    assert told["rows"] is None


def test_a_device_says_why_it_draws_no_numbers():
    assert hs.torch.OnDevice("cuda").reason("keyed") is not None
    reason = hs.torch.OnDevice("cpu").reason()
    assert reason is not None
    assert "triton" in reason or "of type 'cuda'" in reason


@pytest.mark.parametrize("rows", ["memory", "device"])
@pytest.mark.parametrize("step", [3, 9])
def test_a_state_whose_rows_are_of_other_steps_is_refused(device, rows, step):
    """Rows on a device would be read at the wrong place: an old row, or one that has no noise yet."""
    place = {"memory": noise.Memory(), "device": hs.torch.OnDevice(device)}[rows]
    stream = noise.stream(MECHANISM, 4, rng=np.random.default_rng(0), rows=place)
    for _ in range(6):
        stream.next()
    with pytest.raises(InvalidInputError, match="must be a step of the last block it holds"):
        noise.NoiseStream.from_state(MECHANISM, stream.state() | {"step": step}, rows=place)


def test_parameters_get_the_rows_of_a_device(device):
    parameters = [torch.zeros(7, device=device), torch.zeros(4, device=device)]
    there = hs.torch.Noise.of(
        MECHANISM, parameters, num_examples=20, rng=np.random.default_rng(0), rows=hs.torch.OnDevice(device)
    )
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    kept = []
    for batch in twin.batches():
        kept.append((there.next(batch), twin.noise(batch)))
        kept[-1][0][0].mul_(1.0)
    for parts, row in kept:  # what was given out earlier stays as it is
        assert np.array_equal(torch.cat(parts).cpu().numpy(), row)


def test_rows_that_are_not_for_a_device_are_refused():
    for strategy in (hs.BinaryTree(), hs.BufferedToeplitz(buffers=2)):
        mechanism = MECHANISM.model_copy(update={"strategy": strategy})
        with pytest.raises(UnsupportedError, match="strategies with bands"):
            Run(mechanism, num_examples=20, shape=3, rows=hs.torch.OnDevice("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_added_in_place_in_the_type_of_the_sum(dtype):
    parameter = torch.zeros(11, dtype=dtype, requires_grad=True)
    there = hs.torch.Noise.of(MECHANISM, [parameter], num_examples=20, rng=np.random.default_rng(0))
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    batch = next(twin.batches())
    parameter.grad = torch.full_like(parameter, 0.0625 * len(batch))
    given = parameter.grad
    there.add_(batch, clip_norm=0.5)
    row = torch.from_numpy(twin.noise(batch))
    assert torch.equal(parameter.grad, torch.full((11,), 0.0625 * len(batch), dtype=dtype).add(row, alpha=0.5))
    assert parameter.grad.data_ptr() == given.data_ptr()


def test_rows_are_placed_where_all_parameters_are():
    """Described by their devices alone: no GPU is at hand. What the caller says is kept."""
    there, other = (SimpleNamespace(device=torch.device("cuda", number)) for number in (0, 1))
    here = torch.zeros(2)
    found = device_rows.placed([there, there], {"rows": None, "secure": True, "rng": 5})
    assert isinstance(found["rows"], device_rows.Nearby)
    assert (found["rows"].device, found["rows"].secure, found["rng"]) == (there.device, True, 5)
    for tensors in ([here], [here, there], [there, other]):
        assert device_rows.placed(tensors, {"rows": None}) == {"rows": None}
    memory = hs.noise.Memory()
    assert device_rows.placed([there], {"rows": memory}) == {"rows": memory}
