"""What calibrate reports on the way is certified, and comes before the slow methods; nothing needless is compiled."""

import re
import subprocess
import sys

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
