"""``python -m benchmarks``: every workload beside every installed peer, in one run."""

import argparse
import json
import platform
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.runner import Result, contestants_for, run, select
from benchmarks.table import contradictions, settings, table
from benchmarks.workloads import WORKLOADS

DISTRIBUTIONS = (
    "hockeystick",
    "numpy",
    "PLD-accounting",
    "random-allocation",
    "dp-accounting",
    "opake",
    "prv-accountant",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks; 1 when a peer contradicts us, 2 when nothing matches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose name contains PATTERN")
    parser.add_argument("--contestant", default="", metavar="PATTERN", help="contestants whose name contains PATTERN")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there as well")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each case, warm-up included")
    parser.add_argument("--repeats", type=int, default=3, help="measured runs after the warm-up; the best one counts")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(WORKLOADS))
        return 0
    workloads = select(options.only)
    if not workloads:
        print(f"No workload's name contains {options.only!r}; see --list.", file=sys.stderr)
        return 2
    machine = {"python": platform.python_version(), "machine": platform.machine(), "versions": _versions()}
    print(f"Python {machine['python']} on {machine['machine']}; {', '.join(_versions())}")
    print(f"One core; the best of {options.repeats} runs after a warm-up; {options.timeout:g} s for each case.")
    print("'first' is the warm-up's time, compilation or loading of compiled code included.")
    print("Peak memory is that of the whole process; 'import MB' is its peak after the imports alone.\n")
    every: list[Result] = []
    problems: list[str] = []
    for workload in workloads:
        results = []
        for contestant in contestants_for(workload, options.contestant):
            print(f"... {workload.name}: {contestant.name}", file=sys.stderr, flush=True)
            results.append(run(workload, contestant, repeats=options.repeats, timeout=options.timeout))
        if results:
            print(table(results), end="\n\n", flush=True)
        problems += [f"{workload.name}: {problem}" for problem in contradictions(results)]
        every += results
        if options.json is not None:
            document = {"environment": machine, "results": [asdict(result) for result in every]}
            options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    print(settings(every))
    print("\nContradictions with our bounds:", *(problems or ["none"]), sep="\n  ")
    return 1 if problems else 0


def _versions() -> list[str]:
    versions = []
    for name in DISTRIBUTIONS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} not installed")
    return versions


if __name__ == "__main__":
    sys.exit(main())
