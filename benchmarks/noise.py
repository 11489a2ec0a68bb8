"""``python -m benchmarks.noise``: correlated noise, steps a second on one core, beside jax-privacy where installed.

The strategy is the banded square root; each contestant makes the noise of one step after the other, in float32 or, of
exact noise, in whole numbers of 32 bits, in a process of its own that may use one core. 'memory' is what is kept
between steps, 'peak' that of the whole process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from benchmarks.runner import ONE_THREAD, ROOT


def ours(
    bands: int, size: int, steps: int, *, secure: bool = False, exact: bool = False
) -> tuple[Callable[[], object], int]:
    """One step of our stream, and the bytes it keeps."""
    import numpy as np

    from hockeystick.mechanism import Mechanism
    from hockeystick.noise import stream
    from hockeystick.samplers import BallsInBins
    from hockeystick.strategies import BandedSquareRoot

    mechanism = Mechanism(
        strategy=BandedSquareRoot(bands=bands), sampler=BallsInBins(bins=steps), noise_multiplier=1.0, exact=exact
    )
    noise = stream(mechanism, size, rng=None if secure else np.random.default_rng(0), secure=secure)
    out = np.empty(size, noise.dtype)
    return lambda: noise.next(out), noise.nbytes


def our_secure_noise(bands: int, size: int, steps: int) -> tuple[Callable[[], object], int]:
    """The same from an AES key stream."""
    return ours(bands, size, steps, secure=True)


def our_exact_noise(bands: int, size: int, steps: int) -> tuple[Callable[[], object], int]:
    """The same in whole numbers, with exactly the law that is accounted for."""
    return ours(bands, size, steps, exact=True)


def our_filter(bands: int, size: int, steps: int) -> tuple[Callable[[], object], int]:
    """The linear map alone, without random numbers; the time is that of a block, spread over its steps."""
    import numpy as np

    from hockeystick.noise import streaming_solver
    from hockeystick.strategies import BandedSquareRoot

    solver = streaming_solver(BandedSquareRoot(bands=bands).matrix(steps), size=size, dtype=np.float32)
    block: Iterator[object] = iter(())

    def one_step() -> None:
        nonlocal block
        if next(block, None) is None:
            block = iter(solver.advance(lambda rows, first, column: None))
            next(block)

    return one_step, solver.nbytes


def numpy_normals(bands: int, size: int, steps: int) -> tuple[Callable[[], object], int]:
    """White noise by numpy, for scale: what drawing the numbers costs there."""
    import numpy as np

    rng, out = np.random.default_rng(0), np.empty(size, np.float32)
    return lambda: rng.standard_normal(out=out, dtype=np.float32), 0


def jax_privacy(bands: int, size: int, steps: int) -> tuple[Callable[[], object], int]:
    """Its privatizer, compiled, with the state donated."""
    import jax
    import numpy as np
    from jax import numpy as jnp
    from jax_privacy.matrix_factorization import toeplitz
    from jax_privacy.noise_addition import matrix_factorization_privatizer

    from hockeystick.strategies import BandedSquareRoot

    column = BandedSquareRoot(bands=bands).matrix(bands).columns(np.zeros(1, np.int64))[:, 0]
    privatizer = matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(jnp.asarray(column, jnp.float32)),
        stddev=1.0,
        prng_key=jax.random.key(0),
        dtype=jnp.float32,
    )
    gradient = jnp.zeros(size, jnp.float32)
    state = privatizer.init(gradient)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state[1]))
    update = jax.jit(privatizer.update, donate_argnums=1)

    def one_step() -> None:
        nonlocal state
        noise, state = update(gradient, state)
        noise.block_until_ready()

    return one_step, kept


CONTESTANTS: dict[str, tuple[str, Callable[[int, int, int], tuple[Callable[[], object], int]]]] = {
    "hockeystick": ("hockeystick", ours),
    "hockeystick, exact": ("hockeystick", our_exact_noise),
    "hockeystick, secure": ("cryptography", our_secure_noise),
    "hockeystick, filter only": ("hockeystick", our_filter),
    "numpy, white noise": ("numpy", numpy_normals),
    "jax-privacy": ("jax_privacy", jax_privacy),
}
"""The package that has to be installed, and what to time."""


def measure(name: str, bands: int, size: int, steps: int, repeats: int) -> dict[str, float]:
    """Steps a second: the best of some repeats, after a warm-up of two rounds of the bands."""
    warm_up = 2 * bands
    one_step, kept = CONTESTANTS[name][1](bands, size, warm_up + repeats * steps)
    for _ in range(warm_up):
        one_step()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(steps):
            one_step()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rate": steps / min(seconds), "slowest": steps / max(seconds), "memory": kept / 1e6, "peak": peak}


def main(arguments: list[str] | None = None) -> int:
    """Print one line for each contestant."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise", description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="float32 parameters")
    parser.add_argument("--bands", type=int, default=32)
    parser.add_argument("--steps", type=int, default=64, help="steps in each repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", choices=CONTESTANTS, help="measure one contestant here and print JSON")
    options = parser.parse_args(arguments)
    if options.one:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(json.dumps(measure(options.one, options.bands, options.size, options.steps, options.repeats)))
        return 0
    print(f"{options.bands} bands, {options.size} float32 parameters, one core, best and slowest of {options.repeats}")
    print(f"{'':26}{'steps/s':>9}{'slowest':>9}{'memory MB':>11}{'peak MB':>9}")
    for name, (package, _) in CONTESTANTS.items():
        if find_spec(package) is None:
            print(f"{name:26}not installed")
            continue
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.noise", "--one", name]
        for field in ("size", "bands", "steps", "repeats"):
            command += [f"--{field}", str(getattr(options, field))]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{name:26}failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
            continue
        record = json.loads(done.stdout.splitlines()[-1])
        print(f"{name:26}{record['rate']:9.1f}{record['slowest']:9.1f}{record['memory']:11.1f}{record['peak']:9.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
