"""``python -m benchmarks.subsets``: Poisson and cyclic Poisson sampling of several strategies, method by method.

For each case the deterministic lower bound, what every upper bound gives (alone, for this delta), its gap to the lower
bound, processor seconds, and the peak memory of its process. ``mmcc`` is the published accountant with a corrected
budget; ``split_noise`` is not published. Every answer comes from a process of its own that may use one core, after a
warm-up. ``--monte-carlo`` adds importance sampling where it applies (both of its sides, failure probability 1e-9).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import hockeystick as hs
from benchmarks.runner import ONE_THREAD, ROOT
from hockeystick.errors import HockeystickError
from hockeystick.samplers import Sampler
from hockeystick.strategies import StrategySpec

DELTA = 1e-6
BUDGET = 120.0
LOWER = "linear_statistic"
UPPER = ("split_noise", "mmcc", "generalized_mmcc")
CASES: dict[str, tuple[StrategySpec, Sampler, float]] = {
    "square root, n=2000, p=1/64, sigma=40": (
        hs.SquareRoot(),
        hs.Poisson(sampling_prob=1 / 64, steps=2000),
        40.0,
    ),
    "BSR 32, n=10000, p=1/64, sigma=16": (
        hs.BandedSquareRoot(bands=32),
        hs.Poisson(sampling_prob=1 / 64, steps=10_000),
        16.0,
    ),
    "BSR 8, n=1000, p=1/100, sigma=4": (
        hs.BandedSquareRoot(bands=8),
        hs.Poisson(sampling_prob=0.01, steps=1000),
        4.0,
    ),
    "BSR 6, n=1000, p=1/100, sigma=3": (
        hs.BandedSquareRoot(bands=6),
        hs.Poisson(sampling_prob=0.01, steps=1000),
        3.0,
    ),
    "BSR 4, n=1000, p=1/100, sigma=2": (
        hs.BandedSquareRoot(bands=4),
        hs.Poisson(sampling_prob=0.01, steps=1000),
        2.0,
    ),
    "tree, n=1024, p=1/1024, sigma=33.2": (
        hs.BinaryTree(),
        hs.Poisson(sampling_prob=1 / 1024, steps=1024),
        33.2,
    ),
    "trees of 8, n=512, p=1/16, sigma=16": (
        hs.TreeRestart(height=4),
        hs.Poisson(sampling_prob=1 / 16, steps=512),
        16.0,
    ),
    "BSR 16, 8 groups, n=1000, q=.08, sigma=3": (
        hs.BandedSquareRoot(bands=16),
        hs.CyclicPoisson(groups=8, sampling_prob=0.08, steps=1000),
        3.0,
    ),
    "BandMF 16, 8 groups, n=1000, q=.08, sigma=8": (
        hs.ColumnNormalizedBanded(bands=16),
        hs.CyclicPoisson(groups=8, sampling_prob=0.08, steps=1000),
        8.0,
    ),
}


def answer(name: str, method: str) -> dict[str, float] | None:
    """One method on one case; None where it does not apply. Seconds and megabytes are those of this process."""
    strategy, sampler, sigma = CASES[name]
    run = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma)
    small = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=2), sampler=hs.Poisson(sampling_prob=0.2, steps=4), noise_multiplier=3.0
    )
    hs.certify(small, delta=1e-2)
    sampled = hs.MonteCarlo(seed=1) if method == "monte_carlo" else None
    start = time.process_time()
    try:
        if method == LOWER:
            settings = hs.Settings(hs.Resolution(smallest_delta=DELTA))
            record = {"lower": hs.bound(run, method, side=hs.Side.LOWER, settings=settings).epsilon(DELTA)}
        else:
            interval = hs.certify(run, delta=DELTA, method=method, budget=BUDGET, monte_carlo=sampled).bounds
            record = {"upper": interval.upper}
            if sampled is not None and interval.lower is not None:
                record["lower"] = interval.lower
    except HockeystickError as error:
        print(f"{name}: {method}: {error}", file=sys.stderr)
        return None
    record["seconds"] = time.process_time() - start
    record["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return record


def asked(name: str, method: str) -> dict[str, float] | None:
    """The answer of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.subsets", "--one", name, method]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    record: dict[str, float] | None = json.loads(done.stdout)
    return record


def lines(name: str, methods: tuple[str, ...]) -> list[str]:
    """The rows of a Markdown table for one case."""
    below = asked(name, LOWER)
    assert below is not None
    rows = [f"| {name} | {LOWER} | {below['lower']:.4f} | | | {below['seconds']:.1f} | {below['megabytes']:.0f} |"]
    for method in methods:
        print(f"... {name}: {method}", file=sys.stderr, flush=True)
        record = asked(name, method)
        if record is None:
            continue
        lower = record.get("lower", below["lower"])
        own = f"{record['lower']:.4f}" if "lower" in record else ""
        gap = f"{100.0 * (record['upper'] / lower - 1.0):.1f} %"
        rows.append(
            f"| | {method} | {own} | {record['upper']:.4f} | {gap} | {record['seconds']:.1f} | "
            f"{record['megabytes']:.0f} |"
        )
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 2 when nothing matches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.subsets", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains PATTERN")
    parser.add_argument("--monte-carlo", action="store_true", help="importance sampling as well")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(answer(*options.one)))
        return 0
    names = [name for name in CASES if options.only in name]
    if not names:
        print(f"No case's name contains {options.only!r}.", file=sys.stderr)
        return 2
    methods = (*UPPER, "monte_carlo") if options.monte_carlo else UPPER
    print(
        f"| epsilon at delta = {DELTA:g} | method | lower | upper | gap | CPU s | MB |\n|---|---|---|---|---|---|---|"
    )
    for name in names:
        print("\n".join(lines(name, methods)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
