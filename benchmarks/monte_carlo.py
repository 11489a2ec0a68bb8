"""``python -m benchmarks.monte_carlo``: Monte Carlo accounting beside jax-privacy and plain numpy.

First, naive samples of the privacy loss a CPU-second on one core, after compilation, with delta at an easy epsilon so
that the contestants can be compared. Then what it takes to bound delta on both sides: measured for our importance
samples; for naive ones extrapolated, as the Chernoff-KL number of samples for bounds of the same ratio and failure
probability (about 2 log(2 / failure) (2 + ratio)^2 / (ratio^2 delta)) over the rate of the first part. Each line is a
process of its own, so that its peak memory is its own; 'peak x10' is the peak after ten times as many samples.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.monte_carlo_cases import CASES, ONE_IN_1E5, Case, Target
from benchmarks.monte_carlo_naive import CONTESTANTS, OURS, suits
from benchmarks.runner import ONE_THREAD, ROOT

QUICK_SECONDS = 0.3
TABLE = f"{'':46}{'':24}{'value':>12}{'gap':>9}"
RATES = f"{TABLE}{'samples/s':>12}{'slowest':>11}{'samples':>11}{'CPU s':>9}{'seconds':>9}{'peak MB':>9}{'peak x10':>9}"
BOUNDS = f"{TABLE}{'CPU s':>12}{'seconds':>11}{'samples':>11}{'x ours':>9}{'peak MB':>9}{'peak x10':>9}"


def child(arguments: Sequence[str], timeout: float) -> dict[str, Any]:
    """What a process of its own measures; its status says why there is nothing else."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.monte_carlo", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"status": f"timeout after {timeout:g} s"}
    if done.returncode:
        return {"status": f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"[:200]}
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


def rates(name: str, case: Case, seconds: float, timeout: float) -> Iterator[dict[str, Any]]:
    """One record for each contestant that can sample a case, and one for each that cannot, saying so."""
    for contestant, (package, _) in CONTESTANTS.items():
        if not suits(contestant, case):
            continue
        if find_spec(package) is None:
            record: dict[str, Any] = {"status": "not installed"}
        else:
            record = child(["--one", contestant, "--only", name, "--seconds", str(seconds)], timeout)
        yield {"case": name, "epsilon": case.easy, "contestant": contestant, **record}


def bounds(
    name: str, called: str, target: Target, rate: Mapping[str, float], budget: float, tenfold: bool
) -> Iterator[dict[str, Any]]:
    """Our record, that of all of certify, and the extrapolated ones of the naive contestants with a rate."""
    identity = {"case": name, "target": called, "epsilon": target.epsilon, "ratio": target.ratio}
    identity |= {"failure": target.failure, "workers": target.workers}
    budget = min(target.budget, budget)
    asked = ["--target", called, "--only", name, "--budget", str(budget), *(["--tenfold"] if tenfold else [])]
    record = child(asked, (3.0 + 10.0 * tenfold) * budget + 60.0)
    certified, needed = record.pop("certify", None), record.pop("naive_samples", None)
    yield {**identity, "contestant": OURS, **record}
    if certified is not None:
        yield {**identity, "contestant": f"{OURS}, all certify", "status": "ok", **certified}
    if needed is None:
        return
    for contestant, each in rate.items():
        naive = {"status": "extrapolated", "samples": needed, "cpu": needed / each, "rate": each}
        naive["times_ours"] = naive["cpu"] / record["cpu"]
        yield {**identity, "contestant": f"{contestant}, naive", **naive}


def disagreements(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Naive intervals of one case that have nothing in common; each contestant against us."""
    ours = {record["case"]: record for record in records if record["contestant"] == OURS and record["status"] == "ok"}
    lines = []
    for record in records:
        mine = ours.get(record["case"])
        if mine is None or record["status"] != "ok":
            continue
        if record["lower"] > mine["upper"] or record["upper"] < mine["lower"]:
            lines.append(f"{record['case']}: {record['contestant']} says {record['value']:.5g}, we {mine['value']:.5g}")
    return lines


def rate_line(record: Mapping[str, Any]) -> str:
    """A record of the first part as a line."""
    title = f"{record['case']:46}{record['contestant']:24}"
    if record["status"] != "ok":
        return f"{title}{record['status']:>12}"
    gap = f"{record['upper'] / record['lower'] - 1.0:.1%}" if record["lower"] > 0.0 else "-"
    return (
        f"{title}{record['value']:12.5f}{gap:>9}{record['rate']:12.0f}{record['slowest']:11.0f}{record['samples']:11.3g}"
        f"{record['cpu']:9.2f}{record['seconds']:9.2f}{record['peak_mb']:9.0f}{record['peak_mb_tenfold']:9.0f}"
    )


def bound_line(record: Mapping[str, Any]) -> str:
    """A record of the second part as a line."""
    title = f"{record['case']:46}{record['contestant']:24}"
    if "cpu" not in record:
        return f"{title}{record['status']:>12}"
    if record["status"] == "extrapolated":
        blank, gap = "", f"{record['ratio']:.1%}"
        return (
            f"{title}{blank:12}{gap:>9}{record['cpu']:12.3g}{blank:11}{record['samples']:11.2g}"
            f"{record['times_ours']:9.3g}  extrapolated"
        )
    gap = f"{record['upper'] / record['lower'] - 1.0:.1%}" if record["lower"] > 0.0 else "-"
    samples = f"{record['samples']:.3g}" if "samples" in record else ""
    more = (
        f"{record['peak_mb_tenfold']:9.0f} ({record['tenfold']:.1f} times the samples)" if "tenfold" in record else ""
    )
    said = "" if record["status"] == "ok" else f"  {record['status']}"
    return (
        f"{title}{record['upper']:12.4g}{gap:>9}{record['cpu']:12.2f}{record['seconds']:11.2f}{samples:>11}"
        f"{'':9}{record['peak_mb']:9.0f}{more}{said}"
    )


def measure_here(options: argparse.Namespace) -> int:
    """What the processes that this one starts do: measure one thing and print it as JSON."""
    from benchmarks.monte_carlo_measure import interval, rate

    case = CASES[options.only]
    cores = 1 if options.one else case.targets[options.target].workers
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    if options.one:
        print(json.dumps(rate(options.only, options.one, options.seconds)))
    else:
        print(json.dumps(interval(options.only, options.target, options.budget, options.tenfold)))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Print both parts; 1 when contestants disagree, 2 when nothing matches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monte_carlo", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains PATTERN")
    parser.add_argument("--quick", action="store_true", help="small cases, within about a minute")
    parser.add_argument("--rates", action="store_true", help="the first part alone")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--seconds", type=float, help="of each naive measurement (4, or 0.3 with --quick)")
    parser.add_argument("--budget", type=float, default=900.0, help="at most so many seconds for two bounds")
    parser.add_argument("--one", choices=CONTESTANTS, help="measure one contestant here and print JSON")
    parser.add_argument("--target", help="measure our bounds for this target here and print JSON")
    parser.add_argument("--tenfold", action="store_true", help="with --target: also with ten times the samples")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else 4.0)
    if options.one or options.target:
        return measure_here(options)
    cases = {name: case for name, case in CASES.items() if options.only in name and case.quick is options.quick}
    if not cases:
        print(f"No case's name contains {options.only!r}; the cases: {', '.join(CASES)}.", file=sys.stderr)
        return 2
    out = sys.stderr if options.json else sys.stdout
    print(f"Python {platform.python_version()} on {platform.machine()}\n\n{RATES}", file=out, flush=True)
    sampled: list[dict[str, Any]] = []
    for name, case in cases.items():
        for record in rates(name, case, options.seconds, timeout=60.0 + 20.0 * options.seconds):
            sampled.append(record)
            print(rate_line(record), file=out, flush=True)
    bounded: list[dict[str, Any]] = []
    for title, name, called in [] if options.rates else _targets(cases):
        case = cases[name]
        if title:
            print(f"\n{title}\n{BOUNDS}", file=out)
        rate = {
            record["contestant"]: record["rate"]
            for record in sampled
            if record["case"] == name and record["status"] == "ok"
        }
        tenfold = called == ONE_IN_1E5 and case.sampler["kind"] == "balls_in_bins"
        for record in bounds(name, called, case.targets[called], rate, options.budget, tenfold):
            bounded.append(record)
            print(bound_line(record), file=out, flush=True)
    problems = disagreements(sampled)
    print("\nNaive estimates that disagree:", *(problems or ["none"]), sep="\n  ", file=out)
    if options.json:
        print(json.dumps({"rates": sampled, "bounds": bounded, "disagreements": problems}, indent=1))
    return 1 if problems else 0


def _targets(cases: Mapping[str, Case]) -> Iterator[tuple[str, str, str]]:
    """A title where a new one begins, the case and the target; equal targets of all cases together."""
    for called in dict.fromkeys(called for case in cases.values() for called in case.targets):
        title = called
        for name, case in cases.items():
            if called in case.targets:
                target = case.targets[called]
                cores = "one core" if target.workers == 1 else f"{target.workers} workers"
                said = f"{called}: ratio {target.ratio:g}, failure probability {target.failure:g}, {cores}"
                yield (said if title else ""), name, called
                title = ""


if __name__ == "__main__":
    sys.exit(main())
