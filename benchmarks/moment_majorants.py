"""``python -m benchmarks.moment_majorants``: deterministic bounds of correlated noise beside the truth by sampling.

For each case: epsilon by Monte Carlo with failure probability 1e-6 (an interval), then every deterministic accountant
that applies, on both sides, as a ratio to the middle of that interval, with seconds of one core and the peak memory of
the process so far. Beside the interval stands the ratio that a prototype of the method reached.
"""

import argparse
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

import hockeystick as hs
from benchmarks.regimes import mechanism_of
from hockeystick.errors import UnsupportedError

METHODS = ("moment_majorant", "moment_majorant_cells", "comparison", "bin_renyi", "conditional_composition")
FAILURE = 1e-6


@dataclass(frozen=True)
class Case:
    """Strategy, noise multiplier, delta, and the ratio of upper bound and truth that a prototype reached."""

    strategy: str
    bands: int
    bins: int
    epochs: int
    noise_multiplier: float
    delta: float
    prototype: float

    @property
    def mechanism(self) -> hs.Mechanism:
        """The mechanism."""
        return mechanism_of(self.strategy, self.bands, self.bins, self.epochs, self.noise_multiplier)

    def __str__(self) -> str:
        return (
            f"{self.strategy} p={self.bands} b={self.bins} k={self.epochs} "
            f"sigma={self.noise_multiplier:g} delta={self.delta:g}"
        )


CASES = (
    Case("BSR", 4, 100, 10, 2.0, 1e-5, 1.012),
    Case("BSR", 4, 100, 10, 4.0, 1e-5, 1.023),
    Case("BSR", 4, 100, 10, 8.0, 1e-5, 1.002),
    Case("BSR", 64, 100, 10, 5.0, 1e-5, 1.0008),
    Case("BSR", 64, 100, 10, 5.0, 1e-8, 1.0004),
    Case("BSR", 64, 100, 10, 8.0, 1e-5, 1.0007),
    Case("BSR", 64, 300, 10, 5.0, 1e-5, 1.030),
    Case("BSR", 64, 300, 10, 5.0, 1e-8, 1.054),
    Case("BSR", 64, 300, 10, 8.0, 1e-5, 1.007),
)


def truth(case: Case, seconds: float) -> tuple[float, float]:
    """An interval that holds epsilon except with probability FAILURE."""
    sampled = hs.MonteCarlo(failure_probability=FAILURE, seed=1, ratio=0.005)
    interval = hs.certify(
        case.mechanism, delta=case.delta, method="monte_carlo", budget=seconds, monte_carlo=sampled
    ).bounds
    return interval.lower or 0.0, interval.upper


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a deterministic bound contradicts the samples."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moment_majorants", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains PATTERN")
    parser.add_argument("--method", default="", metavar="PATTERN", help="methods whose name contains PATTERN")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the samples of each case")
    options = parser.parse_args(arguments)
    contradictions = 0
    for case in CASES:
        if options.only not in str(case):
            continue
        low, high = truth(case, options.seconds)
        middle = 0.5 * (low + high)
        width = 50 * (high - low) / middle
        print(f"{case}: [{low:.5f}, {high:.5f}] by samples, +- {width:.2f} %; prototype {case.prototype}")
        for method in METHODS:
            if options.method not in method:
                continue
            for side in hs.Side:
                started = process_time()
                try:
                    settings = hs.Settings(hs.Resolution(68, case.delta), question=hs.Question(delta=case.delta))
                    value = hs.bound(case.mechanism, method, side=side, settings=settings).epsilon(case.delta)
                except UnsupportedError as error:
                    if side is hs.Side.UPPER:
                        print(f"    {method:24}{side.value:6} {error}")
                    continue
                seconds = process_time() - started
                megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                ratio = value / middle
                print(
                    f"    {method:24}{side.value:6}{value:10.5f}{ratio:9.4f}{seconds:8.2f} s{megabytes:8.0f} MB",
                    flush=True,
                )
                contradictions += value < low if side is hs.Side.UPPER else value > high
    if contradictions:
        print(f"{contradictions} bounds contradict the samples.", file=sys.stderr)
    return 1 if contradictions else 0


if __name__ == "__main__":
    sys.exit(main())
