"""``python -m benchmarks.random_runs``: the common questions at random parameters, with times, gaps and an inversion.

Thirty runs of each sampler: rates from 1e-4 to .1, 100 to 100,000 steps and epsilons from .1 to 10, all log-uniform, at
delta 1e-5 (``--seed`` draws others). Each is calibrated to its epsilon, and both sides are asked at the noise
multiplier that is found; a row has the CPU seconds of either with caches emptied before, and how far the sides are
apart. ``--invert`` adds the epsilon of Poisson runs by an inversion that shares no code with the library
(:func:`inverted`); ``--peers`` the epsilons and seconds of dp-accounting, prv-accountant and opake, those that are
installed. Ends with exit code 1 if an inversion is outside of the two sides by more than ``INVERSION`` of them.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import exp, log, pi, sqrt
from time import process_time
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import hockeystick as hs
from benchmarks.case import forget, peak_memory_mb
from benchmarks.workloads import Workload
from hockeystick.types import Side

DELTA = 1e-5
RUNS, SEED = 30, 44
RATES, STEPS, EPSILONS = (1e-4, 0.1), (100.0, 1e5), (0.1, 10.0)
KINDS = ("poisson", "random_allocation", "balls_in_bins")
INVERSION = 1e-5
"""Relative error of an inverted epsilon, about: of the lattice, which spreads the law of a step."""
PLACES = 1 << 22
PEERS = {"dp-accounting": "dp_accounting", "prv-accountant": "prv", "opake": "opake"}
OPTIONS = {"dp-accounting": {"method": "pld"}}


T = TypeVar("T")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RandomRun:
    """A sampler and the epsilon that it is calibrated to."""

    sampler: hs.Poisson | hs.RandomAllocation | hs.BallsInBins
    epsilon: float

    @property
    def text(self) -> str:
        """The parameters in a few words."""
        if isinstance(self.sampler, hs.Poisson):
            return f"q={self.sampler.sampling_prob:.4g} T={self.sampler.steps}"
        return f"t={self.sampler.bins} x {self.sampler.epochs}"


def random_runs(kind: str, count: int = RUNS, seed: int = SEED) -> list[RandomRun]:
    """The runs of one kind, always the same ones."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    runs = []
    for _ in range(count):
        rate, steps, epsilon = (exp(rng.uniform(log(low), log(high))) for low, high in (RATES, STEPS, EPSILONS))
        bins = round(1.0 / rate)
        epochs = max(round(steps / bins), 1)
        if kind == "poisson":
            runs.append(RandomRun(hs.Poisson(sampling_prob=rate, steps=round(steps)), epsilon))
        elif kind == "random_allocation":
            runs.append(RandomRun(hs.RandomAllocation(bins=bins, epochs=epochs), epsilon))
        else:
            runs.append(RandomRun(hs.BallsInBins(bins=bins, epochs=epochs), epsilon))
    return runs


def inverted(rate: float, noise_multiplier: float, steps: int, delta: float, places: int = PLACES) -> float:
    """The epsilon of Poisson steps, by one discrete Fourier transform of a step's law in either direction.

    The logarithm of a step's ratio is split between two neighbours of a lattice so that both its probabilities, with
    the example and without, are kept. That adds at most a quarter of the squared spacing to its variance.
    """
    mu = 1.0 / noise_multiplier
    z = np.linspace(-9.5, 9.5 + mu, 1 << 18)
    ratios = 1.0 - rate + rate * np.exp(mu * z - 0.5 * mu**2)
    without = (z[1] - z[0]) / sqrt(2.0 * pi) * np.exp(-0.5 * z**2)
    return max(
        _direction(np.log(ratios), without * ratios, 1.0, steps, delta, places),
        _direction(np.log(ratios), without, -1.0, steps, delta, places),
    )


def _direction(logs: Numbers, masses: Numbers, sign: float, steps: int, delta: float, places: int) -> float:
    """The epsilon of the law of a step whose loss is the logarithm of its ratio (remove), or minus that (add)."""
    mean = float(masses @ logs)
    likely = logs[masses > 1e-18]
    reach = 12.0 * sqrt(steps * float(masses @ (logs - mean) ** 2)) + float(likely.max() - likely.min())
    spacing = 2.0 * reach / places
    index = np.floor(logs / spacing).astype(np.int64)
    # The share of the place above keeps the mass, and the mass times e^-loss, which is that of the other law.
    share = np.expm1(sign * (spacing * index - logs)) / np.expm1(-sign * spacing)
    lattice = np.bincount(index % places, masses * (1.0 - share), places)
    lattice += np.bincount((index + 1) % places, masses * share, places)
    sums = np.fft.irfft(np.fft.rfft(lattice) ** steps, places)
    start = round((steps * mean - reach) / spacing)
    losses = sign * spacing * (start + np.arange(places, dtype=np.float64))
    return _epsilon(losses[:: int(sign)], np.roll(sums, -start)[:: int(sign)], delta)


def _epsilon(losses: Numbers, masses: Numbers, delta: float) -> float:
    """Where ``E (1 - e^(epsilon - loss))_+`` falls to delta, by bisection."""
    low, high = 0.0, 60.0
    for _ in range(45):
        middle = 0.5 * (low + high)
        first = int(np.searchsorted(losses, middle))
        value = float(masses[first:] @ -np.expm1(middle - losses[first:]))
        low, high = (middle, high) if value > delta else (low, middle)
    return high


@dataclass(frozen=True)
class Row:
    """What is measured of one run."""

    noise_multiplier: float
    lower: float
    upper: float
    epsilon_seconds: float
    calibrate_seconds: float

    @property
    def gap(self) -> float:
        """Of both sides, relative."""
        return self.upper / self.lower - 1.0 if self.lower > 0.0 else float("inf")


def timed(ask: Callable[[], T], repeats: int) -> tuple[T, float]:
    """An answer, and the least CPU seconds of some runs with empty caches."""
    seconds = []
    for _ in range(repeats):
        forget("hockeystick")
        started = process_time()
        answer = ask()
        seconds.append(process_time() - started)
    return answer, min(seconds)


def measured(run: RandomRun, repeats: int) -> Row:
    """Calibrate, and ask both sides at the noise multiplier that is found."""
    plain = hs.Mechanism(sampler=run.sampler)
    noise, calibrating = timed(lambda: hs.calibrate(plain, epsilon=run.epsilon, delta=DELTA).sigma, repeats)
    mechanism = plain.with_noise(noise)

    def both() -> tuple[float, float]:
        lower, upper = (hs.bound(mechanism, "direct", side=side).epsilon(DELTA) for side in (Side.LOWER, Side.UPPER))
        return float(lower), float(upper)

    (lower, upper), asking = timed(both, repeats)
    return Row(noise, lower, upper, asking, calibrating)


def beside(run: RandomRun, noise_multiplier: float) -> list[str]:
    """What the peers that are installed say of a Poisson run, and in how many CPU seconds."""
    if not isinstance(run.sampler, hs.Poisson):
        return []
    workload = Workload(
        name="",
        kind="poisson",
        noise_multiplier=noise_multiplier,
        steps=run.sampler.steps,
        rate=run.sampler.sampling_prob,
        delta=DELTA,
    )
    cells = []
    for name, module in PEERS.items():
        try:
            answering = import_module(f"benchmarks.answers.{module}")
        except ImportError:
            continue
        started = process_time()
        try:
            answer = answering.answer(workload, **OPTIONS.get(name, {}))
        except Exception as error:
            cells.append(f"{name}: {type(error).__name__}")
            continue
        lower = "" if answer.lower is None else f"{answer.lower:.6f} to "
        cells.append(f"{name}: {lower}{answer.upper:.6f} in {process_time() - started:.3f} s")
    return cells


def _spread(name: str, values: Sequence[float], scale: float = 1.0) -> str:
    return f"{name} median {scale * float(np.median(values)):.3g}, most {scale * max(values):.3g}"


def main(arguments: list[str] | None = None) -> int:
    """Print a row for each run, and medians and maxima for each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_runs", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], help="all of them by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind")
    parser.add_argument("--seed", type=int, default=SEED, help="of the parameters")
    parser.add_argument("--repeats", type=int, default=3, help="measured runs; the best one counts")
    parser.add_argument("--invert", action="store_true", help="compare Poisson runs with an inversion")
    parser.add_argument("--peers", action="store_true", help="ask other libraries too")
    options = parser.parse_args(arguments)
    outside = 0
    for kind in options.kinds or KINDS:
        rows = []
        for run in random_runs(kind, options.runs, seed=options.seed):
            row = measured(run, options.repeats)
            rows.append(row)
            cells = [f"{kind} {run.text}", f"epsilon {run.epsilon:.6g}: sigma {row.noise_multiplier:.6g}"]
            cells += [f"{row.lower:.8f} to {row.upper:.8f} in {row.epsilon_seconds:.3f} s"]
            cells += [f"calibrated in {row.calibrate_seconds:.3f} s"]
            if options.invert and isinstance(run.sampler, hs.Poisson):
                value = inverted(run.sampler.sampling_prob, row.noise_multiplier, run.sampler.steps, DELTA)
                off = max(row.lower / value - 1.0, value / row.upper - 1.0, 0.0)
                outside += off > INVERSION
                cells.append(f"inverted {value:.8f}, outside by {off:.1e}")
            if options.peers:
                cells += beside(run, row.noise_multiplier)
            print("; ".join(cells), flush=True)
        print(f"{kind}: {len(rows)} runs at delta {DELTA:g}, CPU seconds with empty caches")
        print("  " + _spread("both sides", [row.epsilon_seconds for row in rows]))
        print("  " + _spread("calibrate", [row.calibrate_seconds for row in rows]))
        print("  " + _spread("gap in percent", [row.gap for row in rows], 100.0))
        print(f"  peak memory {peak_memory_mb():.0f} MB", flush=True)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
