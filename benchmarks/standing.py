"""``python -m benchmarks.standing``: which accountant gives the best upper bound where, and so which ones certify runs.

Every deterministic accountant that covers a pair bounds epsilon on a grid of mechanisms, noise levels and deltas, with
the effort that ``certify`` gives it and no deadline. A method that is best anywhere by more than 0.1 percent, or one
that is a cheap first bound, belongs to the default; the others run when named, and in ``compare``. The exit code is 1
when the registry says otherwise. ``--update`` writes docs/reference/standing.md. Seconds are processor seconds.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import inf, isfinite
from pathlib import Path
from statistics import median
from textwrap import fill
from time import process_time
from typing import Any, Literal

from threadpoolctl import threadpool_limits

import hockeystick as hs
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import DEFAULT, accountant, every_accountant, warm_up
from hockeystick.certification.schedule import EPSILON_NODES
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "standing.md"
DELTAS = (1e-3, 1e-5, 1e-8, 1e-12)
EFFORT = 10.0
MOST_SECONDS = 20.0
"""Accountants whose estimated cost is higher are left out."""
MARGIN = 1e-3
"""Relative margin by which a method has to be the best."""
SMALLEST = 1e-6
"""Cells whose best epsilon is smaller are left out: all methods say zero there."""
FIRST_BOUNDS = {
    "gaussian": "It takes microseconds and always answers, so there is a bound whatever the deadline cuts off. It is "
    "exact for fixed batches.",
    "comparison": "It takes tenths of a second for any matrix. At low noise it is often below `moment_majorant`, and "
    "the best of a request that refuses `moment_majorant_cells` or has no time for it (8 seconds and more).",
}
"""Cheap methods that stay in the default whether they are the best anywhere or not, and why."""
TOO_LITTLE = {
    "mmcc": "It is the best in 2 cells of Poisson sampling, by .8 and 1.3 percent. In other runs it uses up the "
    "planned work in which `participation_windows` says 4 to 8 percent more.",
}
"""Methods that leave the default although they are the best somewhere, by less than 2 percent."""


@dataclass(frozen=True)
class Regime:
    """One mechanism and its noise multipliers, at which epsilon is near 10, 2, 0.4 and 0.05 for delta = 1e-5."""

    kind: str
    name: str
    strategy: Any
    sampler: Any
    noise: tuple[float, ...]
    neighbours: Literal["zero_out", "replace"] = "zero_out"

    @property
    def cells(self) -> list[tuple[float, float]]:
        """Noise multipliers and deltas: every second combination where the accountants are slow."""
        every = list(product(enumerate(self.noise), enumerate(DELTAS)))
        kept = [cell for cell in every if self.kind not in SLOW or (cell[0][0] + cell[1][0]) % 2 == 0]
        return [(sigma, delta) for (_, sigma), (_, delta) in kept]


NONE, FULL, BSR = hs.Identity(), hs.SquareRoot(), hs.BandedSquareRoot
TENTH = hs.RandomAllocation(bins=100, participations=10, epochs=2)
HIDDEN = hs.CyclicPoisson(groups=3, sampling_prob=0.3, steps=12, partition="independent")
OFTEN = hs.CyclicPoisson(groups=8, sampling_prob=0.4, steps=32)
PAIRED = hs.CyclicPoisson(groups=2, sampling_prob=0.1, steps=32)
WARM = hs.BMinSep(min_sep=4, sampling_prob=0.1, steps=24)
ROUNDS = hs.CyclicPoisson(groups=4, sampling_prob=0.2, steps=40)
SIZED = hs.FixedSize(batch_size=10, num_examples=1000, steps=1000)
COHORTS = hs.FixedSize(batch_size=100, num_examples=1000, steps=20, cohort_steps=5)
FIXED, POISSON, ALLOCATION, SECRET = "Fixed batches", "Poisson", "Random allocation", "Secret groups"
ONE_SIZE, EXCHANGED = "Batches of one size", "Batches of one size, examples replaced"
ALLOCATION_C = "Random allocation with C"
POISSON_C, CYCLIC_C, BINS_C = "Poisson with C", "Cyclic Poisson with C", "Balls-in-bins with C"
SHUFFLE, TREE, APART = "Shuffling", "Shuffled tree", "b-min-sep"
SLOW = (EXCHANGED, POISSON_C, BINS_C)
REGIMES = tuple(
    Regime(*row)
    for row in (
        (FIXED, "4x3", NONE, hs.Deterministic(bins=4, epochs=3), (0.87, 3.5, 15.0, 100.0)),
        (FIXED, "4x3, BSR(3)", BSR(bands=3), hs.Deterministic(bins=4, epochs=3), (1.0, 4.1, 18.0, 120.0)),
        (ONE_SIZE, "10 of 1000, x1000", NONE, SIZED, (1.1, 1.8, 4.1, 20.0)),
        (ONE_SIZE, "100 of 1000, 4 cohorts of 5 steps", NONE, COHORTS, (1.5, 4.6, 9.9, 37.0)),
        (EXCHANGED, "10 of 1000, x1000", NONE, SIZED, (1.2, 1.9, 8.0, 40.0), "replace"),
        (POISSON, ".01x1000", NONE, hs.Poisson(sampling_prob=0.01, steps=1000), (0.55, 0.96, 2.9, 19.0)),
        (POISSON, ".001x1e5", NONE, hs.Poisson(sampling_prob=0.001, steps=100_000), (0.54, 0.91, 2.8, 19.0)),
        (POISSON, ".3x10", NONE, hs.Poisson(sampling_prob=0.3, steps=10), (0.81, 2.3, 8.7, 56.0)),
        (ALLOCATION, "1 of 1000", NONE, hs.RandomAllocation(bins=1000), (0.33, 0.56, 0.76, 2.0)),
        (ALLOCATION, "1 of 50, 4 epochs", NONE, hs.RandomAllocation(bins=50, epochs=4), (0.66, 1.2, 2.5, 15.0)),
        (ALLOCATION, "bins 50, 4 epochs", NONE, hs.BallsInBins(bins=50, epochs=4), (0.78, 1.6, 3.0, 17.0)),
        (ALLOCATION, "3 of 7", NONE, hs.RandomAllocation(bins=7, participations=3), (0.73, 2.4, 10.0, 68.0)),
        (ALLOCATION, "10 of 100, 2 epochs", NONE, TENTH, (0.96, 3.0, 12.0, 82.0)),
        (ALLOCATION, "60 of 100", NONE, hs.RandomAllocation(bins=100, participations=60), (3.2, 13.0, 55.0, 370.0)),
        (SECRET, "3 groups .3x12", NONE, HIDDEN, (0.62, 1.3, 3.4, 20.0)),
        (POISSON_C, ".02x40, BSR(3)", BSR(bands=3), hs.Poisson(sampling_prob=0.02, steps=40), (0.84, 1.5, 2.9, 14.0)),
        (POISSON_C, ".1x32, BSR(16)", BSR(bands=16), hs.Poisson(sampling_prob=0.1, steps=32), (2.8, 6.8, 23.0, 150.0)),
        (POISSON_C, ".05x24, square root", FULL, hs.Poisson(sampling_prob=0.05, steps=24), (2.0, 4.1, 11.0, 62.0)),
        (CYCLIC_C, "4 groups .2x40, BandMF(4)", hs.ColumnNormalizedBanded(bands=4), ROUNDS, (0.69, 1.8, 5.9, 37.0)),
        (CYCLIC_C, "4 groups .2x40, BSR(8)", BSR(bands=8), ROUNDS, (1.1, 2.9, 9.8, 62.0)),
        (CYCLIC_C, "8 groups .4x32, square root", FULL, OFTEN, (1.4, 4.0, 14.0, 91.0)),
        (CYCLIC_C, "2 groups .1x32, BSR(16)", BSR(bands=16), PAIRED, (1.6, 3.6, 12.0, 74.0)),
        (BINS_C, "100x2, BSR(4)", BSR(bands=4), hs.BallsInBins(bins=100, epochs=2), (0.67, 1.5, 3.3, 20.0)),
        (BINS_C, "64x2, BSR(16)", BSR(bands=16), hs.BallsInBins(bins=64, epochs=2), (0.79, 2.5, 8.7, 58.0)),
        (BINS_C, "24x4, square root", FULL, hs.BallsInBins(bins=24, epochs=4), (1.8, 7.2, 31.0, 200.0)),
        (BINS_C, "200x1, square root", FULL, hs.BallsInBins(bins=200), (0.6, 100.0)),
        (BINS_C, "300x1, BSR(4)", BSR(bands=4), hs.BallsInBins(bins=300), (0.78, 0.95)),
        (ALLOCATION_C, "12x3, BSR(2)", BSR(bands=2), hs.RandomAllocation(bins=12, epochs=3), (0.95, 2.5, 8.8, 56.0)),
        (ALLOCATION_C, "40x4, BSR(8)", BSR(bands=8), hs.RandomAllocation(bins=40, epochs=4), (1.2, 3.2, 10.0, 64.0)),
        (SHUFFLE, "batches of 50, 20x3", NONE, hs.Shuffle(batch_size=50, bins=20, epochs=3), (0.87, 3.5, 15.0, 100.0)),
        (SHUFFLE, "batches of 1, 2^18", NONE, hs.Shuffle(batch_size=1, bins=1 << 18), (0.51, 2.0, 8.7, 58.0)),
        (TREE, "batches of 1, 2^18", hs.BinaryTree(), hs.Shuffle(batch_size=1, bins=1 << 18), (2.2, 8.7, 38.0, 250.0)),
        (APART, "4 apart .1x24", BSR(bands=3), WARM, (1.5, 5.8, 25.0, 170.0)),
    )
)
"""Sizes are small, so that the whole grid takes some ten minutes of one core."""


@dataclass(frozen=True)
class Answer:
    """The epsilon of one method in one cell, infinite where it gives none, and its processor seconds."""

    kind: str
    cell: str
    method: str
    epsilon: float
    seconds: float
    status: str = "ok"


@dataclass(frozen=True)
class Row:
    """What a table says of one method in one kind of pair; ratios are to the best of the others."""

    method: str
    ratios: tuple[float, ...]
    seconds: float

    @property
    def wins(self) -> int:
        """In how many cells the method is the best."""
        return sum(ratio < 1.0 - MARGIN for ratio in self.ratios)


def measured(regime: Regime, sigma: float, delta: float) -> Iterator[Answer]:
    """The answers of all deterministic accountants in one cell."""
    mechanism = hs.Mechanism(
        strategy=regime.strategy,
        sampler=regime.sampler,
        noise_multiplier=sigma,
        unit=hs.Unit(neighbours=regime.neighbours),
    )
    warm_up(mechanism)
    pair = dominating_pair(mechanism)
    resolution, question = hs.Resolution(EPSILON_NODES, delta), hs.Question(delta=delta)
    settings = hs.Settings(resolution=resolution, question=question, effort=EFFORT)
    for method in every_accountant().values():
        if method.kind is hs.Kind.DETERMINISTIC and hs.Side.UPPER in method.sides and method.covers(type(pair)):
            begun = process_time()
            epsilon, status = answered(method, pair, settings, delta)
            yield Answer(
                regime.kind, cell_name(regime, sigma, delta), method.name, epsilon, process_time() - begun, status
            )


def cell_name(regime: Regime, sigma: float, delta: float) -> str:
    """The name of a cell, unique within its kind."""
    return f"{regime.name}, sigma={sigma:g}, delta={delta:g}"


def answered(method: Accountant, pair: DominatingPair, settings: hs.Settings, delta: float) -> tuple[float, str]:
    """An upper bound on epsilon, and "ok" or why there is none."""
    if method.why_not(pair, hs.Side.UPPER) is not None:
        return inf, "refused"
    if method.cost(pair) > MOST_SECONDS:
        return inf, f"left out: about {method.cost(pair):.0f} s"
    try:
        epsilon = method.bound(pair, hs.Side.UPPER, settings).epsilon(delta)
    except UnsupportedError:
        return inf, "refused"
    return epsilon, "ok" if isfinite(epsilon) else "no finite bound"


def run(only: str, file: Path | None) -> list[Answer]:
    """All answers of the regimes whose kind or name contains ``only``; cells that the file has are not run again."""
    known = [Answer(**answer) for answer in json.loads(file.read_text())] if file and file.exists() else []
    seen = {(answer.kind, answer.cell) for answer in known}
    for regime in REGIMES:
        for sigma, delta in regime.cells if only in f"{regime.kind}: {regime.name}" else ():
            if (regime.kind, cell_name(regime, sigma, delta)) not in seen:
                known += measured(regime, sigma, delta)
        if file:
            file.write_text(json.dumps([asdict(answer) for answer in known], indent=0))
    return known


def cells_of(answers: Iterable[Answer]) -> dict[str, dict[str, float]]:
    """By cell and method the epsilons of those that answer, in cells where the best one is above ``SMALLEST``."""
    cells: dict[str, dict[str, float]] = {}
    for answer in answers:
        if answer.status != "refused":
            cells.setdefault(answer.cell, {})[answer.method] = answer.epsilon
    return {name: each for name, each in cells.items() if min(each.values()) > SMALLEST}


def rows(answers: Sequence[Answer]) -> list[Row]:
    """One row for each method of one kind of pair."""
    cells = cells_of(answers).values()
    table: list[Row] = []
    for method in dict.fromkeys(answer.method for answer in answers if answer.status != "refused"):
        seconds = median(answer.seconds for answer in answers if answer.method == method and answer.status != "refused")
        if ratios := tuple(ratio(method, each) for each in cells if method in each):
            table.append(Row(method, ratios, seconds))
    return table


def ratio(method: str, epsilons: dict[str, float]) -> float:
    """The method's epsilon over the best of the others; 1 where there is no other."""
    best = min((value for name, value in epsilons.items() if name != method), default=epsilons[method])
    return epsilons[method] / best if isfinite(epsilons[method]) else inf


def lost(answers: Iterable[Answer]) -> float:
    """At worst, how much larger the best epsilon of the default is than the best of all that assume nothing."""
    cells = cells_of(answer for answer in answers if accountant(answer.method).assumes is None).values()
    return max(min(each[name] for name in DEFAULT if name in each) / min(each.values()) - 1.0 for each in cells)


def by_kind(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """The answers of each kind of pair."""
    kinds: dict[str, list[Answer]] = {regime.kind: [] for regime in REGIMES}
    for answer in answers:
        kinds[answer.kind].append(answer)
    return {kind: each for kind, each in kinds.items() if each}


def verdicts(answers: Iterable[Answer]) -> dict[str, str]:
    """By method: "default" where it is best somewhere or a first bound, and not by too little, else "published"."""
    tables = [row for each in by_kind(answers).values() for row in rows(each)]
    best = {row.method for row in tables if row.wins and accountant(row.method).assumes is None} | set(FIRST_BOUNDS)
    return {row.method: "default" if row.method in best - TOO_LITTLE.keys() else "published" for row in tables}


def page(answers: Sequence[Answer]) -> str:
    """The content of docs/reference/standing.md."""
    verdict = verdicts(answers)
    text = [
        "# Standing of the accountants",
        "",
        "Which method gives the best deterministic upper bound, and what it costs: the reason why `certify` and "
        "`calibrate` run it (default), or run it only when it is named (published). `compare` runs both. Written by",
        "`python -m benchmarks.standing --update`.",
        "",
        "A cell is a mechanism, a noise multiplier and a delta. The noise multipliers of a mechanism give epsilon near "
        "10, 2, 0.4 and 0.05 at delta = 1e-5 (the outer two for the largest mechanism); the deltas are 1e-3, 1e-5, "
        "1e-8 and 1e-12. Where methods take seconds, every second combination is measured. A method is best in a cell "
        f"when its epsilon is smaller than that of every other method by more than {100 * MARGIN:g} percent, and in "
        "the default when it is best in any cell of any table. Ratios are to the best of the other methods; none means "
        f"no finite bound. Cells where the best epsilon is below {SMALLEST:g}, and methods that refuse a cell, are not "
        "counted. Every method has the effort that `certify` gives it by default, and no deadline; seconds are medians "
        "of processor time on one core. Mechanisms: batches x epochs, or sampling probability x steps.",
    ]
    for kind, each in by_kind(answers).items():
        text += ["", f"## {kind}", "", "; ".join(regime.name for regime in REGIMES if regime.kind == kind) + ".", ""]
        text += ["| method | best in | best ratio | median ratio | worst ratio | seconds | verdict |"]
        text += ["|---|---|---|---|---|---|---|"]
        for row in rows(each):
            ratios = (min(row.ratios), median(row.ratios), max(row.ratios))
            shown = " | ".join(f"{ratio:.4g}" if isfinite(ratio) else "none" for ratio in ratios)
            best = f"{row.wins} of {len(row.ratios)}"
            text += [f"| `{row.method}` | {best} | {shown} | {row.seconds:.2g} | {verdict[row.method]} |"]
        text += ["", f"The default is at most {100 * lost(each):.2g} percent above the best of all methods."]
        left = sorted(
            {f"`{answer.method}` ({answer.status})" for answer in each if answer.status.startswith("left out")}
        )
        text += ["", f"Not run: {', '.join(left)}."] if left else []
    text += ["", "## Named only, as they assume something about the run", ""]
    text += [f"* `{method.name}`: {method.assumes}" for method in every_accountant().values() if method.assumes]
    text += ["", "## In the default whether best or not", ""]
    text += [f"* `{name}`: {why}" for name, why in FIRST_BOUNDS.items()]
    text += ["", "## Not in the default though best somewhere", ""]
    text += [f"* `{name}`: {why}" for name, why in TOO_LITTLE.items()]
    others = [f"`{name}`" for name in every_accountant() if name not in verdict]
    text += ["", f"Not compared, as they give no deterministic upper bound: {', '.join(others)}."]
    wrapped = (
        line if line.startswith("|") else fill(line, 120, subsequent_indent="  " * line.startswith("*"))
        for line in text
    )
    return "\n".join(wrapped) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the page or write it, and compare its verdicts with the registry."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standing", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="regimes whose 'kind: name' contains PATTERN")
    parser.add_argument("--cells", type=Path, metavar="FILE", help="keep the cells in FILE, and go on from there")
    parser.add_argument("--update", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        answers = run(options.only, options.cells)
    if options.update:
        PAGE.write_text(page(answers), encoding="utf-8")
    else:
        print(page(answers))
    wrong = [name for name, word in verdicts(answers).items() if (word == "default") != (name in DEFAULT)]
    total = f"{sum(answer.seconds for answer in answers):.0f} processor seconds"
    print(total, *(f"the registry has {name} in another place" for name in wrong), sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
