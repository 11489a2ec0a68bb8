"""The benchmark of devices: what it times runs, on a few numbers of the CPU, and it says where there is no GPU."""

import json

import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

from benchmarks import device

HERE = ["copy", "torch.randn", "Opacus, independent", "hockeystick, 32 bands", "hockeystick, 32 bands, exact"]


@pytest.mark.parametrize("name", [*HERE, "hockeystick, 32 bands, in memory", "hockeystick, replay of 4"])
def test_a_contestant_is_measured(name):
    assert all(seconds > 0.0 for seconds in device.measure(name, 50, "cpu", repeats=1))


@pytest.mark.parametrize(("name", "package"), [("jax-privacy, 32 bands", "jax_privacy"), ("opake, 32 bands", "opake")])
def test_a_peer_is_measured(name, package):
    pytest.importorskip(package)
    assert all(seconds > 0.0 for seconds in device.measure(name, 50, "cpu", repeats=1))


def test_our_numbers_are_compared_with_those_in_memory():
    assert device.differences("cpu", size=70, steps=3) == {"float32": 0, "exact": 0}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.setattr(device, "installed", lambda package: package not in ("jax_privacy", "triton"))
    assert device.main([]) == 0
    assert capsys.readouterr().out == (
        "There is no GPU here that torch sees, so there is nothing to measure. It takes one that CUDA drives, with "
        "torch for CUDA, and 16 GB of its memory for our largest rows. Not installed here, and left out then: "
        "jax_privacy, triton.\n"
    )
    assert device.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}


def test_a_line_says_what_is_known():
    timing = device.Time("copy", 10**9, 2.5, 2.75, 2.0)
    assert device.line(timing).split() == ["copy", "1e+09", "2.500", "2.750", "2.000", "1.25"]
    missing = device.times("opake, 32 bands", 10, 1, None) if not device.installed("opake.dpftrl") else None
    assert missing is None or device.line(missing).endswith("opake.dpftrl is not installed")
