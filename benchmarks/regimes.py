"""``python -m benchmarks.regimes``: what certify gives for correlated noise under balls-in-bins, regime by regime.

One cell is a strategy (BSR or BandMF of p bands), b bins, k epochs and a noise multiplier at which epsilon at
delta = 1e-5 is near .25, .5, 1 or 2. For each the two-sided bound of ``certify`` with its usual budget, the gap
``upper / lower - 1``, the methods that gave the two ends, and the seconds it took. ``--write`` renders the table of
docs/reference/regimes.md; with ``--json FILE`` a run that was stopped goes on, with the same version and budget.

Noise multipliers are settings, not results: the truth is near the epsilon of the column, the bounds say how near.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from joblib import Parallel, delayed

import hockeystick as hs
from benchmarks.regime_noise import NOISE
from hockeystick.files import write_atomically

DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0)
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "regimes.md"
STRATEGIES = {"BSR": hs.BandedSquareRoot, "BandMF": hs.ColumnNormalizedBanded}


@dataclass(frozen=True)
class Row:
    """One cell and what certify said of it."""

    strategy: str
    bands: int
    bins: int
    epochs: int
    near: float
    noise_multiplier: float
    lower: float
    upper: float
    method_lower: str
    method_upper: str
    seconds: float

    @property
    def gap(self) -> float:
        """Relative width of the interval."""
        return self.upper / self.lower - 1.0 if self.lower > 0.0 else float("inf")


def mechanism_of(strategy: str, bands: int, bins: int, epochs: int, noise_multiplier: float) -> hs.Mechanism:
    """The mechanism of one cell."""
    return hs.Mechanism(
        strategy=STRATEGIES[strategy](bands=bands),
        sampler=hs.BallsInBins(bins=bins, epochs=epochs),
        noise_multiplier=noise_multiplier,
    )


def measured(cell: tuple[str, int, int, int, float], noise_multiplier: float, budget: float) -> Row:
    """certify on one cell."""
    strategy, bands, bins, epochs, near = cell
    started = monotonic()
    certificate = hs.certify(mechanism_of(strategy, bands, bins, epochs, noise_multiplier), delta=DELTA, budget=budget)
    interval = certificate.bounds
    return Row(
        strategy=strategy,
        bands=bands,
        bins=bins,
        epochs=epochs,
        near=near,
        noise_multiplier=noise_multiplier,
        lower=interval.lower or 0.0,
        upper=interval.upper,
        method_lower=certificate.method.lower or "none",
        method_upper=certificate.method.upper,
        seconds=monotonic() - started,
    )


def line(row: Row) -> str:
    """One row as text."""
    name = f"{row.strategy} p={row.bands} b={row.bins} k={row.epochs}"
    return (
        f"{name:24} sigma={row.noise_multiplier:<9g} [{row.lower:.5f}, {row.upper:.5f}] {100 * row.gap:7.2f} % "
        f"{row.seconds:6.1f} s  {row.method_upper}, {row.method_lower}"
    )


def page(rows: Iterable[Row], budget: float) -> str:
    """The table of docs/reference/regimes.md."""
    table: dict[tuple[str, int, int, int], dict[float, Row]] = {}
    for row in rows:
        table.setdefault((row.strategy, row.bands, row.bins, row.epochs), {})[row.near] = row
    text = [
        "# Best method by regime",
        "",
        "Correlated noise under balls-in-bins, delta = 1e-5: the gap between the two sides of `certify` with a budget",
        f"of {budget:g} seconds, in percent of the lower one, and the methods of the upper and the lower bound. The",
        "columns are noise multipliers at which epsilon is near the number above. Written by",
        "`python -m benchmarks.regimes --write`.",
        "",
        "| strategy | p | b | k | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|---|---|---|" + "---|" * len(EPSILONS),
    ]
    for key, cells in table.items():
        parts = [str(part) for part in key]
        for epsilon in EPSILONS:
            row = cells.get(epsilon)
            ends = "" if row is None else " / ".join(dict.fromkeys((row.method_upper, row.method_lower)))
            parts.append("" if row is None else f"{100 * row.gap:.2f} % {ends}")
        text.append("| " + " | ".join(parts) + " |")
    return "\n".join(text) + "\n"


def key_of(row: Row) -> tuple[object, ...]:
    """The cell and the noise that a row is about."""
    return row.strategy, row.bands, row.bins, row.epochs, row.near, row.noise_multiplier


def kept(path: Path | None) -> dict[tuple[object, ...], Row]:
    """The rows of an earlier run, by cell and noise."""
    if path is None or not path.exists():
        return {}
    rows = [Row(**one) for one in json.loads(path.read_text())]
    return {key_of(row): row for row in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cells that match and print one line for each as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regimes", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cells whose name contains PATTERN")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each certify")
    parser.add_argument("--workers", type=int, default=1, help="cells measured at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep rows there, and go on from them")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    chosen = [
        (cell, noise)
        for cell, noise in NOISE.items()
        if options.only in f"{cell[0]} p={cell[1]} b={cell[2]} k={cell[3]} epsilon={cell[4]:g}"
    ]
    if not chosen:
        print(f"No cell's name contains {options.only!r}.", file=sys.stderr)
        return 2
    known = kept(options.json)
    jobs = (delayed(measured)(cell, noise, options.budget) for cell, noise in chosen if (*cell, noise) not in known)
    for row in Parallel(n_jobs=options.workers, return_as="generator", inner_max_num_threads=1)(jobs):
        print(line(row), flush=True)
        known[key_of(row)] = row
        if options.json is not None:
            write_atomically(options.json, json.dumps([asdict(one) for one in known.values()], indent=1) + "\n")
    rows = [known[*cell, noise] for cell, noise in chosen]
    reached = sum(row.gap <= 0.02 for row in rows)
    print(f"{reached} of {len(rows)} cells within 2 percent.")
    if options.write:
        PAGE.write_text(page(rows, options.budget))
    return 0


if __name__ == "__main__":
    sys.exit(main())
