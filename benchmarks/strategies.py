"""``python -m benchmarks.strategies``: every optimiser of strategies, value and seconds, beside jax-privacy.

The value is the mean squared error of the prefix sums times the squared sensitivity, computed here from the matrix that
a contestant returns. Each contestant runs in a process of its own on one core: once to warm up, compilation included
('first'), and then again, measured. jax-privacy compiles anew in every call; a persistent compilation cache keeps that
out of the measured call.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.runner import ONE_THREAD, ROOT

PEER = "jax-privacy"
OURS = "hockeystick"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is optimised.

    Attributes:
        strategy: our spec as plain data.
        steps: n.
        peer: jax-privacy's first column, shape (steps,), or C, shape (steps, steps).
        min_sep: the value takes the sensitivity of participations this far apart; None: of one.
    """

    strategy: Mapping[str, object]
    steps: int
    peer: Callable[[int, Mapping[str, Any]], Any]
    min_sep: int | None = None


def peer_banded_toeplitz(steps: int, strategy: Mapping[str, Any]) -> Any:
    """optimize_banded_toeplitz at its defaults."""
    import numpy as np
    from jax_privacy.matrix_factorization import toeplitz

    return np.pad(toeplitz.optimize_banded_toeplitz(steps, strategy["bands"]), (0, steps - strategy["bands"]))


def peer_column_normalized(steps: int, strategy: Mapping[str, Any]) -> Any:
    """banded.optimize at its defaults."""
    from jax_privacy.matrix_factorization import banded

    return banded.optimize(steps, bands=strategy["bands"]).materialize()


def peer_buffered(steps: int, strategy: Mapping[str, Any]) -> Any:
    """buffered_toeplitz.optimize at its defaults; it looks for the number of buffers, here the same."""
    from jax_privacy.matrix_factorization import buffered_toeplitz

    buffers = buffered_toeplitz.optimize(n=steps, error=strategy["objective"])
    if buffers.buf_decay.size != strategy["buffers"]:
        raise RuntimeError(f"found {buffers.buf_decay.size} buffers")
    return buffers.toeplitz_coefs(steps)


def peer_dense(steps: int, strategy: Mapping[str, Any]) -> Any:
    """dense.optimize at its defaults."""
    from jax_privacy.matrix_factorization import dense

    return dense.optimize(steps, epochs=strategy.get("epochs", 1))


def peer_banded_inverse(steps: int, strategy: Mapping[str, Any]) -> Any:
    """It has no such family: its L-BFGS on its own error and sensitivity, from the inverse of the square root."""
    from jax import numpy as jnp
    from jax_privacy.matrix_factorization import optimization, toeplitz

    bands, min_sep = strategy["bands"], strategy.get("min_sep")

    def column(noising: Any) -> Any:
        return toeplitz.inverse_coef(jnp.pad(noising / noising[0], (0, steps - bands)))

    def loss(noising: Any) -> Any:
        strategy_column = column(noising)
        squared = (
            toeplitz.sensitivity_squared(strategy_column, steps)
            if min_sep is None
            else toeplitz.minsep_sensitivity_squared(strategy_column, min_sep, n=steps, skip_checks=True)
        )
        padded = jnp.pad(noising / noising[0], (0, steps - bands))
        return jnp.mean(toeplitz.per_query_error(noising_coef=padded, n=steps)) * squared

    start = toeplitz.optimal_max_error_noising_coefs(bands)
    return column(optimization.optimize(loss, start))


def _banded(kind: str, bands: int, steps: int, peer: Callable[[int, Mapping[str, Any]], Any]) -> Case:
    return Case(strategy={"kind": kind, "bands": bands}, steps=steps, peer=peer)


def _buffered(buffers: int, steps: int, objective: str) -> Case:
    strategy = {"kind": "buffered_toeplitz", "buffers": buffers, "objective": objective}
    return Case(strategy=strategy, steps=steps, peer=peer_buffered)


CASES: dict[str, Case] = {
    "banded Toeplitz n=1024 p=32": _banded("banded_toeplitz", 32, 1024, peer_banded_toeplitz),
    "banded Toeplitz n=4096 p=64": _banded("banded_toeplitz", 64, 4096, peer_banded_toeplitz),
    "banded Toeplitz n=1000 p=64": _banded("banded_toeplitz", 64, 1000, peer_banded_toeplitz),
    "column-normalised n=1000 p=64": _banded("column_normalized_banded", 64, 1000, peer_column_normalized),
    "buffered n=1000 max 3 buffers": _buffered(3, 1000, "max"),
    "buffered n=10000 max 4 buffers": _buffered(4, 10_000, "max"),
    "buffered n=1000 mean 3 buffers": _buffered(3, 1000, "mean"),
    "dense n=256": Case(strategy={"kind": "dense"}, steps=256, peer=peer_dense),
    "banded inverse n=1024 p=4": _banded("banded_inverse", 4, 1024, peer_banded_inverse),
    "banded inverse n=1024 p=4 min-sep 64": Case(
        strategy={"kind": "banded_inverse", "bands": 4, "min_sep": 64},
        steps=1024,
        peer=peer_banded_inverse,
        min_sep=64,
    ),
}
"""What ``--only`` matches."""


def ours(case: Case) -> Any:
    """The first column or the matrix, as one of our strategies builds it, without the cache."""
    from pydantic import TypeAdapter

    from hockeystick.strategies import Strategy

    adapter: TypeAdapter[Any] = TypeAdapter(Strategy)
    matrix = adapter.validate_python(case.strategy).build(case.steps)
    return matrix.materialize() if matrix.toeplitz_column is None else matrix.toeplitz_column


def value(matrix: Any, min_sep: int | None) -> float:
    """Mean squared error of the prefix sums times the squared sensitivity.

    Args:
        matrix: first column of a Toeplitz matrix, shape (steps,), or the matrix.
        min_sep: participations 0, min_sep, 2 min_sep, ..., the worst for a column that does not grow; None: one.
    """
    import numpy as np
    from scipy.linalg import solve_triangular
    from scipy.signal import lfilter

    matrix = np.asarray(matrix, dtype=np.float64)
    steps = matrix.shape[0]
    if matrix.ndim == 1:
        queries = lfilter([1.0], np.trim_zeros(matrix, "b"), np.ones(steps))
        total = np.zeros(steps)
        for first in range(0, steps, min_sep or steps):
            total[first:] += matrix[: steps - first]
        return float((np.arange(steps, 0.0, -1.0) @ queries**2) / steps * (total @ total))
    queries = np.cumsum(solve_triangular(matrix, np.eye(steps), lower=True), axis=0)
    return float((queries**2).sum() / steps * (matrix**2).sum(axis=0).max())


def measure(name: str, contestant: str, repeats: int) -> dict[str, float]:
    """Value, seconds of the warm-up, and the best of the measured calls."""
    case = CASES[name]
    if contestant == PEER:
        import jax
        import numpy as np

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_compilation_cache_dir", os.environ["COMPILED"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        run: Callable[[], Any] = lambda: np.asarray(case.peer(case.steps, case.strategy))  # noqa: E731
    else:
        run = lambda: ours(case)  # noqa: E731
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        matrix = run()
        seconds.append(time.perf_counter() - start)
    return {"value": value(matrix, case.min_sep), "first": seconds[0], "seconds": min(seconds[1:])}


def line(name: str, contestant: str, repeats: int, timeout: float) -> str:
    """One contestant on one case in a process of its own, as a line of the table."""
    title = f"{name:38}{contestant:13}"
    if find_spec({OURS: "hockeystick", PEER: "jax_privacy"}[contestant]) is None:
        return f"{title}not installed"
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.strategies", "--one", contestant]
    command += ["--only", name, "--repeats", str(repeats)]
    with tempfile.TemporaryDirectory() as compiled:
        environment = os.environ | ONE_THREAD | {"COMPILED": compiled}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{title}timeout after {timeout:g} s"
    if done.returncode:
        return f"{title}failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"[:200]
    record = json.loads(done.stdout.splitlines()[-1])
    return f"{title}{record['value']:12.6f}{record['seconds']:10.3f}{record['first']:10.3f}"


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each case and contestant; 2 when nothing matches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains PATTERN")
    parser.add_argument("--contestant", choices=(OURS, PEER), help="this one alone")
    parser.add_argument("--repeats", type=int, default=1, help="measured calls after the warm-up; the best one counts")
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for each process")
    parser.add_argument("--one", choices=(OURS, PEER), help="measure the case --only here and print JSON")
    options = parser.parse_args(arguments)
    if options.one:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(json.dumps(measure(options.only, options.one, options.repeats)))
        return 0
    names = [name for name in CASES if options.only in name]
    if not names:
        print(f"No case's name contains {options.only!r}; the cases: {', '.join(CASES)}.", file=sys.stderr)
        return 2
    print(f"{'':38}{'':13}{'value':>12}{'seconds':>10}{'first':>10}")
    for name in names:
        for contestant in (OURS, PEER) if options.contestant is None else (options.contestant,):
            print(line(name, contestant, options.repeats, options.timeout), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
