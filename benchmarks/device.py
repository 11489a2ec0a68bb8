"""``python -m benchmarks.device``: the noise of a step on a GPU, beside the peers that are installed.

The strategy is the banded square root, or its inverse where rows are replayed; numbers are float32, or whole numbers
where the noise is exact. Each contestant has a process of its own. 'traffic' is the time that the rows which it has to
read and write take at the bandwidth of a copy in the same run. The last lines compare the times with what is asked of
one H100. ``--tests`` runs the tests that have a part on a GPU afterwards.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.runner import ROOT, installed

Step = Callable[[], object]
BANDS, STEPS = 32, 4096
FLOAT = 4
"""Bytes of a number."""


def stream(size: int, device: str, *, bands: int = BANDS, exact: bool = False, rows: Any = None, seed: int = 0) -> Any:
    """Our noise, with the rows on the device unless they are elsewhere."""
    import numpy as np

    from hockeystick.mechanism import Mechanism
    from hockeystick.noise import stream
    from hockeystick.samplers import BallsInBins
    from hockeystick.strategies import BandedSquareRoot
    from hockeystick.training.torch import OnDevice

    strategy, sampler = BandedSquareRoot(bands=bands), BallsInBins(bins=STEPS)
    mechanism = Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=1.0, exact=exact)
    return stream(mechanism, size, rng=np.random.default_rng(seed), rows=OnDevice(device) if rows is None else rows)


def ours(size: int, device: str) -> Step:
    """Float32, the rows on the device."""
    noise = stream(size, device)
    return lambda: noise.next(copy=False)


def ours_exact(size: int, device: str) -> Step:
    """The same in whole numbers."""
    noise = stream(size, device, exact=True)
    return lambda: noise.next(copy=False)


def ours_in_memory(size: int, device: str) -> Step:
    """The rows in the memory of the processor, and each row copied to the device."""
    import torch

    from hockeystick.noise import Memory

    noise = stream(size, device, rows=Memory(max_bytes=2**40))
    staged = torch.empty(size, pin_memory=device == "cuda")

    def step() -> object:
        staged.copy_(torch.from_numpy(noise.next(copy=False)))
        return staged.to(device)

    return step


def ours_replayed(size: int, device: str, *, exact: bool = False) -> Step:
    """Four bands of the inverse, with no rows kept."""
    import numpy as np

    from hockeystick.mechanism import Mechanism
    from hockeystick.noise import stream
    from hockeystick.samplers import BallsInBins
    from hockeystick.strategies import BandedInverseSquareRoot
    from hockeystick.training.torch import OnDevice

    strategy, sampler = BandedInverseSquareRoot(bands=4), BallsInBins(bins=64)
    mechanism = Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=1.0, exact=exact)
    noise = stream(mechanism, size, rng=np.random.default_rng(0), rows=OnDevice(device, replay=True))
    return lambda: noise.next(copy=False)


def ours_replayed_exact(size: int, device: str) -> Step:
    """The same in whole numbers."""
    return ours_replayed(size, device, exact=True)


def our_normals(size: int, device: str) -> Step:
    """White noise by our kernel."""
    import numpy as np
    import torch

    from hockeystick.noise.devices.steps import normals
    from hockeystick.noise.normals import SeededSource

    out, source = torch.empty(size, device=device), SeededSource(np.arange(4, dtype=np.uint64))
    return lambda: normals(out, source)


def torch_normals(size: int, device: str) -> Step:
    """White noise by torch."""
    import torch

    out = torch.empty(size, device=device)
    return out.normal_


def copy(size: int, device: str) -> Step:
    """One row read and one written."""
    import torch

    source, other = torch.zeros(size, device=device), torch.empty(size, device=device)
    return lambda: other.copy_(source)


def opacus_independent(size: int, device: str) -> Step:
    """The independent noise of Opacus."""
    import torch
    from opacus.optimizers.optimizer import _generate_noise

    reference = torch.zeros(size, device=device)
    return lambda: _generate_noise(1.0, reference)


def opake_banded(size: int, device: str) -> Step:
    """The banded square root of opake."""
    import torch
    from opake.dpftrl.noise import bsr_strategy, mf_gaussian_noise
    from opake.random import key
    from opake.types import clipped

    gradient = {"all": torch.zeros(size, device=device)}
    strategy = bsr_strategy(bandwidth=BANDS, alpha=1.0, beta=0.0)
    add, state = mf_gaussian_noise(gradient, strategy, n_steps=STEPS, noise_multiplier=1.0, key=key(0))

    def step() -> object:
        nonlocal state
        noisy, state = add(clipped(gradient, max_norm=1.0), state)
        return noisy

    return step


def jax_privacy_banded(size: int, device: str) -> Step:
    """The banded Toeplitz noise of jax-privacy, compiled."""
    from benchmarks.noise import jax_privacy

    del device  # JAX takes the GPU where it sees one
    return jax_privacy(BANDS, size, STEPS)[0]


@dataclass(frozen=True)
class Contestant:
    """What to time.

    Attributes:
        package: that has to be installed.
        make: a step, from the size and the device.
        sizes: numbers in a row.
        rows: rows that a step has to read or write at least; None where that is no limit.
        steps: that are timed together, so that all steps of a block of ours count.
    """

    package: str
    make: Callable[[int, str], Step]
    sizes: tuple[int, ...]
    rows: int | None = None
    steps: int = 16


IN_MEMORY = "hockeystick, 32 bands, in memory"
SMALL, LARGE, HUGE = 10_000_000, 100_000_000, 1_000_000_000
CONTESTANTS = {
    "copy": Contestant("torch", copy, (SMALL, LARGE, HUGE), 2),
    "torch.randn": Contestant("torch", torch_normals, (SMALL, LARGE, HUGE), 1),
    "Opacus, independent": Contestant("opacus", opacus_independent, (SMALL, LARGE), 1),
    "hockeystick, white noise": Contestant("triton", our_normals, (SMALL, LARGE, HUGE), 1),
    "hockeystick, 32 bands": Contestant("hockeystick", ours, (SMALL, LARGE), BANDS),
    "hockeystick, 32 bands, exact": Contestant("hockeystick", ours_exact, (SMALL, LARGE), BANDS),
    IN_MEMORY: Contestant("hockeystick", ours_in_memory, (SMALL,)),
    "hockeystick, replay of 4": Contestant("triton", ours_replayed, (LARGE, HUGE), 1, 4),
    "hockeystick, replay of 4, exact": Contestant("triton", ours_replayed_exact, (LARGE,), 1, 4),
    "jax-privacy, 32 bands": Contestant("jax_privacy", jax_privacy_banded, (SMALL, LARGE), BANDS),
    "opake, 32 bands": Contestant("opake.dpftrl", opake_banded, (SMALL, LARGE), BANDS),
}


def measure(name: str, size: int, device: str, repeats: int) -> list[float]:
    """Seconds a step of each repeat, after a warm-up of two."""
    import torch

    contestant = CONTESTANTS[name]
    step = contestant.make(size, device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds = []
    for _ in range(repeats + 2):
        wait()
        start = time.perf_counter()
        for _ in range(contestant.steps):
            step()
        wait()
        seconds.append((time.perf_counter() - start) / contestant.steps)
    return seconds[2:]


def differences(device: str, size: int = 1_000_003, steps: int = 20) -> dict[str, int]:
    """How many numbers of our noise differ between the device and the memory of the processor."""
    import numpy as np

    from hockeystick.noise import Memory

    by_dtype = {}
    for exact in (False, True):
        here, there = (stream(size, device, exact=exact, rows=rows) for rows in (Memory(), None))
        unlike = sum(int(np.count_nonzero(here.next() != there.next())) for _ in range(steps))
        by_dtype["exact" if exact else "float32"] = unlike
    return by_dtype


def needs() -> str:
    """What has to be there, where torch sees no GPU, and which packages of contestants are missing."""
    packages = sorted({contestant.package for contestant in CONTESTANTS.values()})
    missing = [package for package in packages if not installed(package)]
    also = f" Not installed here, and left out then: {', '.join(missing)}." if missing else ""
    return (
        "There is no GPU here that torch sees, so there is nothing to measure. It takes one that CUDA drives, with "
        "torch for CUDA, and 16 GB of its memory for our largest rows; there, run "
        f"'python -m benchmarks.device --tests'.{also}"
    )


@dataclass(frozen=True)
class Time:
    """Of a step: the best and the slowest repeat, in milliseconds; None with a note where there is none."""

    contestant: str
    size: int
    best: float | None = None
    slowest: float | None = None
    traffic: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Aim:
    """A number that is asked of the noise on one H100, ``at`` "least" or "most"; None where it was not measured."""

    what: str
    value: float | None
    at: str
    end: float

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.what}: at {self.at} {self.end:g} is asked, not measured"
        missed = self.value < self.end if self.at == "least" else self.value > self.end
        return f"{self.what}: at {self.at} {self.end:g} is asked, {'MISSED' if missed else 'met'} with {self.value:.3g}"


def aims(every: Sequence[Time]) -> list[Aim]:
    """All of these, from the best repeats of a table."""
    rows = {(timing.contestant, timing.size): timing for timing in every}

    def ratio(above: tuple[str, int], below: tuple[str, int], field: str = "best") -> float | None:
        ends = [getattr(rows.get(key), name, None) for key, name in ((above, "best"), (below, field))]
        return ends[0] / ends[1] if ends[0] and ends[1] else None

    small, large = (("hockeystick, 32 bands, exact", size) for size in (SMALL, LARGE))
    replay = rows.get(("hockeystick, replay of 4", HUGE))
    return [
        Aim("32 bands of 1e8, exact, over its traffic", ratio(large, large, "traffic"), "most", 1.5),
        Aim("jax-privacy over 32 bands of 1e8, exact", ratio(("jax-privacy, 32 bands", LARGE), large), "least", 4.5),
        Aim("in memory over 32 bands of 1e7, exact", ratio((IN_MEMORY, SMALL), small), "least", 30),
        Aim("ms of a replay of 4 of 1e9", None if replay is None else replay.best, "most", 25),
    ]


def tests() -> int:
    """Run the tests that have a part on a GPU, one after the other, on standard error; the exit code of pytest."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "slow or not slow", "tests/noise", "tests/training"]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode


def times(name: str, size: int, repeats: int, bandwidth: float | None) -> Time:
    """Time a contestant in a process of its own.

    Args:
        bandwidth: bytes a second, for the time of the traffic.
    """
    contestant = CONTESTANTS[name]
    if not installed(contestant.package):
        return Time(name, size, note=f"{contestant.package} is not installed")
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.device", "--one", name, "--size", str(size)]
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [*command, "--repeats", str(repeats)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return Time(name, size, note=(done.stderr.strip().splitlines() or ["no output"])[-1])
    seconds = json.loads(done.stdout.splitlines()[-1])
    traffic = contestant.rows and bandwidth and 1e3 * contestant.rows * FLOAT * size / bandwidth
    return Time(name, size, 1e3 * min(seconds), 1e3 * max(seconds), traffic)


def main(arguments: list[str] | None = None) -> int:
    """Print one line for each contestant and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--tests", action="store_true", help="run tests/noise and tests/training afterwards")
    parser.add_argument("--one", choices=CONTESTANTS, help="measure one contestant here and print JSON")
    parser.add_argument("--size", type=int, default=SMALL, help="numbers in a row, with --one")
    options = parser.parse_args(arguments)
    import torch

    if not torch.cuda.is_available():
        print("{}" if options.json else needs())
        return 0
    if options.one:
        print(json.dumps(measure(options.one, options.size, "cuda", options.repeats)))
        return 0
    unlike, bandwidth = differences("cuda"), None
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    if not options.json:
        print(f"{machine}; best and slowest of {options.repeats} repeats")
        print(f"Numbers that differ from the processor's: {unlike['float32']} in float32, {unlike['exact']} exact")
        print(f"{'':34}{'numbers':>9}{'ms':>9}{'slowest':>9}{'traffic':>9}{'ratio':>7}")
    every = []
    for name, contestant in CONTESTANTS.items():
        for size in contestant.sizes:
            timing = times(name, size, options.repeats, bandwidth)
            if name == "copy" and timing.best is not None:
                bandwidth = 2 * FLOAT * size / timing.best * 1e3  # of the largest size that fits
            every.append(timing)
            if not options.json:
                print(line(timing), flush=True)
    asked = aims(every)
    if options.json:
        lists = {"times": [asdict(timing) for timing in every], "aims": [asdict(aim) for aim in asked]}
        print(json.dumps({"machine": machine, "differences": unlike} | lists))
    else:
        print("\nAsked of one H100:", *asked, sep="\n")
    failed = tests() if options.tests else 0
    return 1 if any(unlike.values()) or failed else 0


def line(timing: Time) -> str:
    """One line of the table."""
    start = f"{timing.contestant:34}{timing.size:9.0e}"
    if timing.best is None or timing.slowest is None:
        return f"{start}  {timing.note}"
    ends = f"{timing.best:9.3f}{timing.slowest:9.3f}"
    return (
        f"{start}{ends}{timing.traffic:9.3f}{timing.best / timing.traffic:7.2f}" if timing.traffic else f"{start}{ends}"
    )


if __name__ == "__main__":
    sys.exit(main())
