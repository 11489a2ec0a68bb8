"""``python -m benchmarks.regimes``: what certify gives for correlated noise under balls-in-bins, regime by regime.

One cell is a strategy (BSR or BandMF of p bands), b bins, k epochs and a noise multiplier at which epsilon at
delta = 1e-5 is near .25, .5, 1 or 2. For each the two-sided bound of ``certify``, the gap ``upper / lower - 1``, the
methods that gave the two ends, and the processor seconds it took. Noise multipliers are settings, not results: the
truth is near the epsilon of the column, the bounds say how near.

Every answer is appended to a CSV file as soon as it is there, and what the file has is not computed again: stop the
command whenever you like. ``--write`` renders docs/reference/regimes.md from the file. Work is planned and no
deadline is set, so bounds depend on neither the machine nor its load; seconds do. ``--sampled`` allows Monte Carlo,
whose bounds depend on the seconds it gets. ``--upper METHOD`` and ``--lower METHOD`` compute one side by one method,
for efforts at which running all of them would take too long.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import process_time

import hockeystick as hs
from benchmarks.answer_files import append, read
from benchmarks.regime_noise import NOISE
from hockeystick.accountants.registry import every_accountant
from hockeystick.certification.schedule import settings_for
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import DEFAULT_WORK, SearchPolicy

DELTA, SEED = 1e-5, 1
EPSILONS = (0.25, 0.5, 1.0, 2.0)
HERE = Path(__file__).parent
ANSWERS = HERE / "regimes.csv"
PAGE = HERE.parent / "docs" / "reference" / "regimes.md"
STRATEGIES = {"BSR": hs.BandedSquareRoot, "BandMF": hs.ColumnNormalizedBanded}


@dataclass(frozen=True)
class Row:
    """One cell and what certify said of it.

    Attributes:
        strategy, bands, bins, epochs, near: the cell.
        work: standard seconds that were planned.
        lower, upper: the bounds on epsilon.
        seconds: of the processor; of the wall clock where there was a deadline.
        deadline: seconds of the wall clock after which searches were cut off, or inf.
        kind: "deterministic", or "sampled" where Monte Carlo was allowed for ``work`` seconds; "upper" or "lower" for
            one side by one method, with 0 or inf for the other side.
    """

    strategy: str
    bands: int
    bins: int
    epochs: int
    near: float
    work: float
    noise_multiplier: float
    lower: float
    upper: float
    method_lower: str
    method_upper: str
    seconds: float
    deadline: float = inf
    kind: str = "deterministic"

    @property
    def cell(self) -> tuple[str, int, int, int, float, float, str]:
        """What identifies the line."""
        return self.strategy, self.bands, self.bins, self.epochs, self.near, self.work, self.kind

    @property
    def gap(self) -> float:
        """Relative width of the interval."""
        return self.upper / self.lower - 1.0 if self.lower > 0.0 else float("inf")

    @property
    def shown(self) -> str:
        """The gap in percent and the methods of both ends, for a table; a star where a deadline was set."""
        star = "" if self.deadline == inf else "*"
        return f"{100 * self.gap:.2f} %{star} " + " / ".join(dict.fromkeys((self.method_upper, self.method_lower)))


def mechanism_of(strategy: str, bands: int, bins: int, epochs: int, noise_multiplier: float) -> hs.Mechanism:
    """The mechanism of one cell."""
    return hs.Mechanism(
        strategy=STRATEGIES[strategy](bands=bands),
        sampler=hs.BallsInBins(bins=bins, epochs=epochs),
        noise_multiplier=noise_multiplier,
    )


def measured(
    cell: tuple[str, int, int, int, float], noise_multiplier: float, work: float, kind: str = "deterministic"
) -> Row:
    """certify on one cell; without samples no deadline is set."""
    started = process_time()
    run = mechanism_of(*cell[:4], noise_multiplier)
    if kind == "sampled":
        certificate = hs.certify(run, delta=DELTA, budget=work, monte_carlo=hs.MonteCarlo(seed=SEED))
    else:
        certificate = hs.certify(run, delta=DELTA, budget=work, deadline=hs.Deadline())
    return Row(
        *cell,
        work=work,
        noise_multiplier=noise_multiplier,
        lower=certificate.bounds.lower or 0.0,
        upper=certificate.bounds.upper,
        method_lower=certificate.method.lower or "none",
        method_upper=certificate.method.upper,
        seconds=process_time() - started,
        kind=kind,
    )


def measured_side(
    cell: tuple[str, int, int, int, float], noise_multiplier: float, work: float, kind: str, method: str
) -> Row:
    """One side of one cell by one method, with the effort that it has where ``certify`` plans this work."""
    started = process_time()
    run = mechanism_of(*cell[:4], noise_multiplier)
    question, pair = hs.Question(delta=DELTA), dominating_pair(run)
    settings = settings_for(question, pair, hs.Deadline(), policy=SearchPolicy(work=work))
    epsilon = question.answer(hs.bound(run, method, side=hs.Side(kind), settings=settings))
    upper = kind == "upper"
    return Row(
        *cell,
        work=work,
        noise_multiplier=noise_multiplier,
        lower=0.0 if upper else epsilon,
        upper=epsilon if upper else inf,
        method_lower="none" if upper else method,
        method_upper=method if upper else "none",
        seconds=process_time() - started,
        kind=kind,
    )


def closest(rows: Iterable[Row]) -> list[Row]:
    """For each cell its largest lower bound beside its least upper one, whatever found them."""
    best: dict[tuple[tuple[str, int, int, int, float], float], Row] = {}
    for row in rows:
        place = row.cell[:5], row.noise_multiplier  # other noise, another mechanism
        known = best.setdefault(place, row)
        if row.upper < known.upper:
            known = replace(known, upper=row.upper, method_upper=row.method_upper)
        if row.lower > known.lower:
            known = replace(known, lower=row.lower, method_lower=row.method_lower)
        best[place] = known
    return list(best.values())


def name_of(cell: tuple[str, int, int, int, float]) -> str:
    """One cell as text."""
    strategy, bands, bins, epochs, near = cell
    return f"{strategy} p={bands} b={bins} k={epochs} epsilon={near:g}"


def line(row: Row) -> str:
    """One row as text."""
    return (
        f"{name_of(row.cell[:5]):37} sigma={row.noise_multiplier:<9g} [{row.lower:.5f}, {row.upper:.5f}] "
        f"{100 * row.gap:7.2f} % {row.seconds:6.1f} s  {row.method_upper}, {row.method_lower}"
    )


def _table(rows: Iterable[Row]) -> list[str]:
    table: dict[tuple[str, int, int, int], dict[float, Row]] = {}
    for row in rows:
        table.setdefault((row.strategy, row.bands, row.bins, row.epochs), {})[row.near] = row
    text = ["| strategy | p | b | k | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |"]
    text.append("|---|---|---|---|" + "---|" * len(EPSILONS))
    for key, cells in table.items():
        shown = [cells[epsilon].shown if epsilon in cells else "" for epsilon in EPSILONS]
        text.append("| " + " | ".join([*map(str, key), *shown]) + " |")
    return text


def _sides(rows: Iterable[Row]) -> list[str]:
    text = ["| strategy | p | b | k | near | side | method | epsilon | work | seconds |", "|---" * 10 + "|"]
    for row in rows:
        epsilon, method = (row.upper, row.method_upper) if row.kind == "upper" else (row.lower, row.method_lower)
        cell = f"{row.strategy} | {row.bands} | {row.bins} | {row.epochs} | {row.near:g}"
        text.append(f"| {cell} | {row.kind} | {method} | {epsilon:.6g} | {row.work:g} | {row.seconds:.0f} |")
    return text


def _summary(rows: Sequence[Row]) -> str:
    within = [sum(row.gap <= limit for row in rows) for limit in (0.01, 0.02, 0.05)]
    return (
        f"Of these {len(rows)} cells {within[0]} are within 1 percent, {within[1]} within 2 and {within[2]} within 5. "
        f"The worst is {100 * max(row.gap for row in rows):.1f} percent."
    )


def page(rows: Iterable[Row]) -> str:
    """The page docs/reference/regimes.md: the table with the usual work, then cells with more of it."""
    order = list(NOISE)
    ordered = sorted(rows, key=lambda row: order.index(row.cell[:5]))
    text = [
        "# Best method by regime",
        "",
        "Correlated noise under balls-in-bins, delta = 1e-5: the gap between the two sides of `certify` in percent of",
        "the lower one, and the methods of the upper and the lower bound, for p bands, b bins and k epochs. The",
        "columns are noise multipliers at which epsilon is near the number above. No deadline is set, so the gaps",
        "depend on neither the machine nor its load;",
        "a star marks cells that an earlier version measured with a deadline, on a machine with other work: their",
        "searches may have been cut off. Empty: not measured. Written by `python -m benchmarks.regimes --write`;",
        "bounds and processor seconds are in `benchmarks/regimes.csv`.",
    ]
    drawn = [row for row in ordered if row.kind == "sampled"]
    sides = [row for row in ordered if row.kind in ("upper", "lower")]
    deterministic = [row for row in ordered if row.kind == "deterministic"]
    for work in sorted({row.work for row in deterministic}):
        chosen = [row for row in deterministic if row.work == work]
        usual = " (the usual)" if work == DEFAULT_WORK else ""
        text += ["", f"## {work:g} standard seconds of work{usual}", "", *_table(chosen), "", _summary(chosen)]
    if sides:
        text += ["", "## One side by one method, with more work", ""]
        text += ["What `hs.bound` gives with the effort that a method has where `certify` plans this work. No other"]
        text += ["method ran, and not every one of these bounds is better than those above.", "", *_sides(sides)]
    both = closest([*deterministic, *sides])
    if len(both) < len(deterministic) + len(sides):
        text += ["", "## The closest of each cell", "", _summary(both)]
    for work in sorted({row.work for row in drawn}):
        chosen = [row for row in drawn if row.work == work]
        text += ["", f"## Monte Carlo, {work:g} seconds, failure {hs.MonteCarlo().failure_probability:g}", ""]
        text += ["Cells that are more than 1 percent apart without samples. Seconds decide, so these gaps depend on"]
        text += ["the machine and its load.", "", *_table(chosen), "", _summary(chosen)]
    return "\n".join(text) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the cells that are missing, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regimes", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains TEXT")
    parser.add_argument("--work", type=float, default=DEFAULT_WORK, help="standard seconds that certify may plan")
    parser.add_argument("--above", type=float, metavar="GAP", help="only cells whose gaps in the file are above GAP")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--sampled", action="store_true", help="allow Monte Carlo, for the seconds of --work")
    for side in hs.Side:
        text = f"compute only the {side} bound, by this method"
        kinds.add_argument(f"--{side}", metavar="METHOD", choices=sorted(every_accountant()), help=text)
    parser.add_argument("--again", action="store_true", help="compute what the file has as well")
    parser.add_argument("--answers", type=Path, default=ANSWERS, metavar="FILE", help="the file of the answers")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from the file and compute nothing")
    options = parser.parse_args(arguments)
    known = read(options.answers, Row)
    if options.write:
        PAGE.write_text(page(known.values()), encoding="utf-8")
        return 0
    chosen = [(cell, noise) for cell, noise in NOISE.items() if options.only in name_of(cell)]
    if not chosen:
        print(f"No cell's name contains {options.only!r}.", file=sys.stderr)
        return 2
    for cell, noise in chosen:
        gaps = [
            row.gap for row in closest(row for row in known.values() if row.kind != "sampled") if row.cell[:5] == cell
        ]
        if options.above is not None and min(gaps, default=0.0) <= options.above:
            continue
        method = options.upper or options.lower
        kind = "sampled" if options.sampled else "deterministic"
        if method:
            kind = "upper" if options.upper else "lower"
        if (*cell, options.work, kind) not in known or options.again:
            try:
                if method:
                    row = measured_side(cell, noise, options.work, kind, method)
                else:
                    row = measured(cell, noise, options.work, kind)
            except UnsupportedError as error:
                print(f"{name_of(cell)}: {error}", file=sys.stderr)
                continue
            append(options.answers, row)
            print(line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
