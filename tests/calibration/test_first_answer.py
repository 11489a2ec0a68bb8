"""What calibrate reports on the way is certified, and comes before the slow methods; nothing needless is compiled."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.laws.gaussian import gaussian_delta


class EnoughError(Exception):
    """The first report has come."""


def test_the_first_report_is_certified_and_comes_before_the_slow_methods() -> None:
    mechanism = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=hs.BallsInBins(bins=8, epochs=1))

    def stop(line: str) -> None:
        raise EnoughError(line)

    with pytest.raises(EnoughError) as said:
        hs.calibrate(mechanism, epsilon=2.0, delta=1e-3, deadline=hs.Deadline(on_report=stop))
    found = re.fullmatch(
        r"noise_multiplier = (\S+) is certified so far \(comparison\); looking for less", str(said.value)
    )  # comparison compiles no kernels but those of the laws
    assert found is not None
    noise = float(found[1])
    assert hs.bound(mechanism.with_noise(noise), method="comparison").epsilon(1e-3) <= 2.0
    unamplified = gaussian_delta(noise, mechanism.matrix.max_column_norm, 2.0, hs.Side.LOWER)
    assert unamplified > 1e-3  # batches amplify it


def test_only_what_runs_is_compiled() -> None:
    """Nothing ahead without a budget; for one method nothing else; a budget pays for no compilation."""
    code = """
import hockeystick as hs
from hockeystick.accountants.registry import _warm_up_laws, _warm_up_one, warm_up
run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
for compiling in (
    lambda: hs.certify(run, delta=1e-5),
    lambda: warm_up(run, {"direct"}),
    lambda: hs.certify(run, delta=1e-5, budget=10.0),
):
    compiling()
    print(_warm_up_laws.cache_info().currsize, _warm_up_one.cache_info().currsize)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    without, named, ahead = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert without == (0, 0)
    assert named == (1, 1)
    assert ahead[0] == 1
    assert ahead[1] > 1


def test_no_kernel_is_compiled_twice_for_one_question(tmp_path: Path) -> None:
    """A literal, or an array whose numbers are not neighbours, is a type of its own to numba, compiled apart.

    What kernels call of numba's own, such as ``np.zeros``, is compiled once more only for kernels with ``fastmath``.
    """
    code = """
from collections import Counter
from numba.core import event
import hockeystick as hs
compilations = event.RecordingListener()
event.register("numba:compile", compilations)
bins = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.BallsInBins(bins=40, epochs=4), noise_multiplier=3.0
)
separated = hs.Mechanism(sampler=hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=32), noise_multiplier=3.0)
hs.bound(bins, method="moment_majorant").epsilon(1e-5)
hs.bound(separated, method="separated_windows").epsilon(1e-5)
compiled = [started.data for _, started in compilations.buffer if started.is_start]
names = [(data["dispatcher"].py_func, data["args"]) for data in compiled]
kernels = Counter(f"{f.__module__}.{f.__name__}" for f, _ in names if f.__module__.startswith("hockeystick."))
called = Counter((f.__qualname__, str(args)) for f, args in names if f.__module__.startswith("numba."))
for kernel, count in kernels.items():
    print(kernel, count)
print("again", called.total() - len(called))
"""
    cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True, env=cache
    )
    counts = {kernel: int(count) for kernel, count in map(str.split, done.stdout.splitlines())}
    assert counts.pop("again") <= 1
    assert {"hockeystick.moments.band_kernels.close_from", "hockeystick.windows.linked_windows._rise"} <= set(counts)
    assert [kernel for kernel, count in counts.items() if count > 1] == []
