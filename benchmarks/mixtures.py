"""``python -m benchmarks.mixtures``: one mixture of Gaussians and its compositions, beside dp-accounting.

The sensitivity is uniform on K equidistant values from 0 to 2, the noise has standard deviation 1: every component
matters. 'build' is the law of one step (for hockeystick the upper and the lower one together), 'compose' that of its
self-composition, both in processor seconds; epsilons are those of one step and of the composition, worse direction.
Every contestant runs in a process of its own that may use one core, after a warm-up on a tiny case.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

from benchmarks.runner import ONE_THREAD, ROOT

LARGEST = 2.0
Answer = dict[str, list[float]]
"""``seconds``: building and composing. ``one`` and ``all``: epsilons, lower before upper where there are two."""


def ours(components: int, count: int, delta: float) -> Answer:
    """Both sides, at the grids that certify uses."""
    import numpy as np

    from hockeystick.certification.schedule import EPSILON_NODES
    from hockeystick.laws.grid import Resolution
    from hockeystick.laws.lattice import lattice_law
    from hockeystick.laws.law import Law
    from hockeystick.laws.operations import power
    from hockeystick.laws.profile import law_delta, smallest_epsilon
    from hockeystick.types import Direction, Side

    resolution = Resolution(EPSILON_NODES, delta)
    masses = np.full(components, 1.0 / components)
    spacing = LARGEST / (components - 1)

    def epsilon(law: Law) -> float:
        def worse(at: float) -> float:
            return max(law_delta(law, at, direction) for direction in Direction)

        return smallest_epsilon(worse, delta, law.side)

    start = time.process_time()
    laws = [lattice_law(masses, spacing, 1.0, side, resolution) for side in (Side.LOWER, Side.UPPER)]
    built = time.process_time()
    composed = [power(law, count, resolution) for law in laws]
    done = time.process_time()
    return {
        "seconds": [built - start, done - built],
        "one": [epsilon(law) for law in laws],
        "all": [epsilon(law) for law in composed],
    }


def dp_accounting(components: int, count: int, delta: float) -> Answer:
    """Its pessimistic estimate (connect the dots) on intervals of 1e-4."""
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution

    start = time.process_time()
    step = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        standard_deviation=1.0,
        sensitivities=np.linspace(0.0, LARGEST, components).tolist(),
        sampling_probs=np.full(components, 1.0 / components).tolist(),
        value_discretization_interval=1e-4,
    )
    built = time.process_time()
    composed = step.self_compose(count)
    done = time.process_time()
    return {
        "seconds": [built - start, done - built],
        "one": [step.get_epsilon_for_delta(delta)],
        "all": [composed.get_epsilon_for_delta(delta)],
    }


CONTESTANTS: dict[str, tuple[str, Callable[[int, int, float], Answer]]] = {
    "hockeystick": ("hockeystick", ours),
    "dp-accounting": ("dp_accounting", dp_accounting),
}
"""The package that has to be installed, and what to time."""


def measure(name: str, components: int, count: int, delta: float) -> Answer:
    """A tiny case first: compiling and importing are not what is compared."""
    answer = CONTESTANTS[name][1]
    answer(2, 2, delta)
    return answer(components, count, delta)


def main(arguments: list[str] | None = None) -> int:
    """Print one line for each number of components and contestant."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixtures", description=__doc__)
    parser.add_argument("--components", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--count", type=int, default=16, help="steps that are composed")
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each contestant")
    parser.add_argument("--one", choices=CONTESTANTS, help="measure one contestant here and print JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one, options.components[0], options.count, options.delta)))
        return 0
    print(f"one step and {options.count} steps at delta = {options.delta:g}, processor seconds on one core")
    print(f"{'components':>10}  {'':14}{'build':>9}{'compose':>9}  epsilon of one step, of all (lower upper)")
    for components in options.components:
        for name, (package, _) in CONTESTANTS.items():
            line = f"{components:10}  {name:14}"
            if find_spec(package) is None:
                print(f"{line}not installed")
                continue
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.mixtures", "--one", name]
            command += ["--components", str(components), "--count", str(options.count), "--delta", str(options.delta)]
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=os.environ | ONE_THREAD,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=options.timeout,
                )
            except subprocess.TimeoutExpired:
                print(f"{line}timeout after {options.timeout:g} s")
                continue
            if done.returncode:
                print(f"{line}failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
                continue
            record = json.loads(done.stdout.splitlines()[-1])
            epsilons = ", ".join(" ".join(f"{value:.6f}" for value in record[key]) for key in ("one", "all"))
            print(f"{line}{record['seconds'][0]:9.4f}{record['seconds'][1]:9.3f}  {epsilons}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
