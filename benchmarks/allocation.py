"""``python -m benchmarks.allocation``: does random allocation, of k visits to t steps, need less noise than Poisson?

Dong and Ozgur (2026, arXiv:2605.07072) ask this for more than 60 settings, of which only three could be had; these 60
are our own. Each has k, t and a target epsilon at delta = 1e-5. The noise is first calibrated for Poisson sampling at
rate k/t. At this noise ``certify`` gives both ends of the allocation's epsilon. The noise that the allocation needs for
the target has two ends too: what ``calibrate`` finds is enough, and the largest noise tried whose epsilon is at least
the target is too little.

Answers are appended to a CSV file; what it has is not computed again. ``--table`` prints what
docs/theory/allocation.md shows.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log
from pathlib import Path

import hockeystick as hs
from benchmarks.answer_files import append, read

DELTA = 1e-5
EPSILONS = (0.25, 1.0, 2.0, 4.0, 8.0)
SCHEMES = (
    (1, 100),
    (1, 1_000),
    (1, 10_000),
    (5, 391),
    (10, 100),
    (10, 1_000),
    (10, 10_000),
    (50, 100),
    (100, 1_000),
    (100, 10_000),
    (205, 10_000),
    (655, 2_000),
)
"""k and t. Three are in the documentation of the paper's implementation: 5 of 391, 205 of 10,000, 655 of 2,000."""
ANSWERS = Path(__file__).parent / "allocation.csv"
SECANTS = 6
"""Noises that are tried from below."""


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        visits, steps, target: the setting: k, t and the epsilon.
        poisson_noise: calibrated for Poisson sampling at rate k/t.
        poisson_lower: Poisson sampling has at least this epsilon there, and at most the target.
        lower, upper: the allocation's epsilon at this noise.
        noise_lower, noise_upper: the allocation needs more than the first for the target, and the second is enough.
    """

    visits: int
    steps: int
    target: float
    poisson_noise: float
    poisson_lower: float
    lower: float
    upper: float
    noise_lower: float
    noise_upper: float

    @property
    def cell(self) -> tuple[int, int, float]:
        """What identifies the line."""
        return self.visits, self.steps, self.target

    @property
    def verdict(self) -> str:
        """Which scheme is proved to have the smaller epsilon at the same noise."""
        if self.upper < self.poisson_lower:
            return "allocation"
        return "Poisson" if self.lower > self.target else "open"

    @property
    def saved(self) -> str:
        """By how many percent the allocation needs less noise: at least and at most."""
        least, most = (100.0 * (1.0 - noise / self.poisson_noise) for noise in (self.noise_upper, self.noise_lower))
        return f"{least:.1f} to {most:.1f}"


def measured(visits: int, steps: int, target: float) -> Row:
    """All ends of one setting."""
    poisson = hs.Mechanism(sampler=hs.Poisson(sampling_prob=visits / steps, steps=steps))
    allocation = hs.Mechanism(sampler=hs.RandomAllocation(bins=steps, participations=visits))
    noise = hs.calibrate(poisson, epsilon=target, delta=DELTA).sigma
    enough = hs.calibrate(allocation, epsilon=target, delta=DELTA).sigma
    of_poisson = hs.certify(poisson.with_noise(noise), delta=DELTA).bounds
    bounds = hs.certify(allocation.with_noise(noise), delta=DELTA).bounds
    return Row(
        visits=visits,
        steps=steps,
        target=target,
        poisson_noise=noise,
        poisson_lower=of_poisson.lower or 0.0,
        lower=bounds.lower or 0.0,
        upper=bounds.upper,
        noise_lower=_too_little(allocation, target, enough),
        noise_upper=enough,
    )


def _too_little(allocation: hs.Mechanism, target: float, enough: float) -> float:
    """The largest noise that was tried whose lower end is above the target; epsilon falls about as a power of noise."""
    largest, noise, power = 0.0, 0.999 * enough, 1.5
    known: tuple[float, float] | None = None
    for _ in range(SECANTS):
        lower = hs.certify(allocation.with_noise(noise), delta=DELTA).bounds.lower or 0.0
        if lower > target:
            largest = max(largest, noise)
        if lower <= 0.0:
            break
        if known is not None and noise != known[0]:
            power = max(-log(lower / known[1]) / log(noise / known[0]), 0.3)
        known = noise, lower
        noise = min(noise * exp(log(lower / (1.0002 * target)) / power), enough)
    return largest


def table(rows: Iterable[Row]) -> list[str]:
    """The noise saved, a line for each k of t and a column for each epsilon."""
    cells = {row.cell: row for row in rows}
    text = [
        "| k | t | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * (2 + len(EPSILONS)) + "|",
    ]
    for visits, steps in SCHEMES:
        shown = [cells[visits, steps, epsilon] for epsilon in EPSILONS]
        marks = [
            row.saved + {"allocation": "", "Poisson": " (Poisson)", "open": " (open)"}[row.verdict] for row in shown
        ]
        text.append(f"| {visits} | {steps:,} | " + " | ".join(marks) + " |")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what the file lacks, or print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allocation", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--answers", type=Path, default=ANSWERS, help="the CSV file")
    parser.add_argument("--table", action="store_true", help="print the table of what the file has")
    options = parser.parse_args(arguments)
    if options.table:
        print("\n".join(table(read(options.answers, Row).values())))
        return 0
    for (visits, steps), target in product(SCHEMES, EPSILONS):
        if (visits, steps, target) not in read(options.answers, Row):
            row = measured(visits, steps, target)
            append(options.answers, row)
            print(f"{visits} of {steps}, epsilon {target:g}: {row.saved} percent, {row.verdict}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
