"""Start the cases, one after the other, and collect what they say."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTESTANTS, Contestant
from benchmarks.workloads import WORKLOADS, Workload

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def installed(package: str) -> bool:
    """Whether a package, or a part of one, can be found, and those that it is in."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one contestant on one workload; None where it is not."""

    workload: str
    asks: str
    contestant: str
    status: str
    lower: float | None = None
    upper: float | None = None
    estimate: float | None = None
    note: str = ""
    seconds: float | None = None
    first_seconds: float | None = None
    runs: int = 0
    peak_mb: float | None = None
    baseline_mb: float | None = None

    @property
    def gap(self) -> float | None:
        """upper / lower - 1, where there are two sides and the lower one is positive."""
        if self.lower is None or self.upper is None or not self.lower > 0.0:
            return None
        return self.upper / self.lower - 1.0


def select(pattern: str) -> list[Workload]:
    """Workloads whose name contains the pattern; all of them, save the quick ones, when it is empty."""
    if not pattern:
        return [workload for workload in WORKLOADS.values() if not workload.name.startswith("quick")]
    return [workload for workload in WORKLOADS.values() if pattern.lower() in workload.name.lower()]


def contestants_for(workload: Workload, pattern: str = "") -> list[Contestant]:
    """Who is asked, hockeystick first."""
    return [
        contestant
        for contestant in CONTESTANTS.values()
        if workload.kind in contestant.kinds and pattern.lower() in contestant.name.lower()
    ]


def run(workload: Workload, contestant: Contestant, *, repeats: int, timeout: float) -> Result:
    """One case in a fresh process on one core.

    This process stays small (it imports no numerical library): on Linux the peak memory of a child starts at the
    size of the process that started it.
    """
    identity: dict[str, Any] = {"workload": workload.name, "asks": workload.asks, "contestant": contestant.name}
    if not contestant.installed:
        return Result(**identity, status="not installed")
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.case", contestant.name, workload.name, str(repeats)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=timeout, check=False
        )
        output, timed_out = done.stdout, False
        failure = f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"[:200]
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
        timed_out, failure = True, f"timeout after {timeout:g} s"
    lines = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
    if not lines:
        return Result(**identity, status=failure)
    last = lines[-1] | {"first_seconds": lines[0].get("first_seconds")}
    if timed_out and not last["runs"]:
        last["status"] = f"{last['status']} (timeout after {timeout:g} s)"
    return Result(**identity, **last)
