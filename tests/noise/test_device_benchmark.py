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
        "torch for CUDA, and 16 GB of its memory for our largest rows; there, run "
        "'python -m benchmarks.device --tests'. Not installed here, and left out then: jax_privacy, triton.\n"
    )
    assert device.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}


def test_a_line_says_what_is_known():
    timing = device.Time("copy", 10**9, 2.5, 2.75, 2.0)
    assert device.line(timing).split() == ["copy", "1e+09", "2.500", "2.750", "2.000", "1.25"]
    missing = device.times("opake, 32 bands", 10, 1, None) if not device.installed("opake.dpftrl") else None
    assert missing is None or device.line(missing).endswith("opake.dpftrl is not installed")


def test_what_is_asked_is_compared_with_what_was_measured():
    exact = "hockeystick, 32 bands, exact"
    every = [
        device.Time(exact, 10**7, 0.8, 0.9, 0.4),
        device.Time(exact, 10**8, 6.0, 7.0, 4.0),
        device.Time("jax-privacy, 32 bands", 10**8, 24.0, 25.0, 4.0),
        device.Time(device.IN_MEMORY, 10**7, note="an error"),
        device.Time("hockeystick, replay of 4", 10**9, 26.0, 27.0, 2.0),
    ]
    assert [aim.value for aim in device.aims(every)] == [1.5, 4.0, None, 26.0]
    assert [str(aim).split(" is asked, ")[1] for aim in device.aims(every)] == [
        "met with 1.5",
        "MISSED with 4",
        "not measured",
        "MISSED with 26",
    ]
    assert [aim.value for aim in device.aims([])] == [None] * 4
