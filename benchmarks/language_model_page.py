"""``python -m benchmarks.language_model_page``: writes the tables of docs/reference/language-models.md.

Everything is from the rows and the certificates in ``benchmarks/language-model``. Perplexity is the exponential of the
mean loss of a token of the test documents. Intervals are of 95 percent over the seeds (Student's t), for mean losses or
for differences of two losses of one seed, and are about seeds alone: the public model, the documents and the chosen
learning rates are the same for all.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

import hockeystick as hs
from benchmarks.language_model import (
    FOLDER,
    MOMENTUM,
    SCHEDULE,
    SETTING,
    WITHOUT,
    Cell,
    Run,
    Setting,
    cells_of,
    file_of,
    runs_in,
)
from benchmarks.runner import ROOT
from experiments.report import epsilon_text, interval, noise_text
from hockeystick.files import write_atomically

PAGE = ROOT / "docs" / "reference" / "language-models.md"
MARK = "<!-- written by python -m benchmarks.language_model_page; do not edit below -->"


def perplexity(losses: Sequence[float]) -> str:
    """Of the mean loss, with its interval."""
    middle, half = interval(list(losses))
    return f"{math.exp(middle):.2f} ({math.exp(middle - half):.2f} to {math.exp(middle + half):.2f})"


def ratio_in_percent(differences: Iterable[float]) -> str:
    """By how many percent a perplexity is above another, from differences of losses, with the interval."""
    middle, half = interval(list(differences))
    low, center, high = (100.0 * math.expm1(value) for value in (middle - half, middle, middle + half))
    return f"{center:+.2f} ({low:+.2f} to {high:+.2f})"


def complete_seeds(setting: Setting, runs: list[Run]) -> list[int]:
    """Those with which all cells were trained."""
    return [seed for seed in range(setting.seeds) if all(cell.of(runs, [seed]) for cell in cells_of(setting))]


def losses_of(cell: Cell, runs: list[Run], seeds: Sequence[int]) -> list[float]:
    """The test losses of a cell, in the order of the seeds."""
    return [cell.of(runs, [seed])[0].test for seed in seeds]


def losses_table(setting: Setting, runs: list[Run], folder: Path) -> list[str]:
    """A line for each cell."""
    public, seeds = runs[0].public, complete_seeds(setting, runs)
    free = fmean(losses_of(Cell(WITHOUT, math.nan), runs, seeds))
    lines = [
        "| trained with | strategy and sampler | noise multiplier | epsilon, certified | by | learning rate | "
        "test perplexity | gain |",
        "|---|---|---|---|---|---|---|---|",
        f"| nothing, the public model | | | | | | {math.exp(public):.2f} | 0 |",
    ]
    for cell in cells_of(setting):
        losses = losses_of(cell, runs, seeds)
        columns = ["", "", "none", ""]
        if cell.mechanism != WITHOUT:
            certificate = hs.Certificate.load(file_of(cell, folder))
            mechanism, bounds = certificate.mechanism, certificate.bounds
            columns = [
                f"`{mechanism.strategy.kind}`, `{mechanism.sampler.kind}`",
                noise_text(repr(mechanism.sigma)),
                epsilon_text(repr(bounds.lower), repr(bounds.upper)),
                f"`{certificate.method.upper}`",
            ]
        gain = (public - fmean(losses)) / (public - free)
        rate = cell.of(runs, seeds)[0].rate
        columns += [f"{rate:g}", perplexity(losses), f"{100 * gain:.0f}"]
        lines.append(f"| {cell.mechanism} | {' | '.join(columns)} |")
    return lines


def predicted_error(setting: Setting, cell: Cell, folder: Path) -> float:
    """The error by which mechanisms are recommended, in learning rates and clipping norms."""
    mechanism = hs.Certificate.load(file_of(cell, folder)).mechanism
    workload = hs.Workload(momentum=MOMENTUM, schedule=SCHEDULE)
    return workload.unit_error(mechanism.matrix) * mechanism.sigma / setting.batch_size


def pairs_table(setting: Setting, runs: list[Run], folder: Path) -> list[str]:
    """A line for each pair of mechanisms."""
    seeds = complete_seeds(setting, runs)
    lines = ["| mechanism, against | epsilon | predicted error, percent | perplexity, percent |", "|---|---|---|---|"]
    for target in setting.targets:
        for other, cell in combinations([cell for cell in cells_of(setting) if cell.target == target], 2):
            differences = np.subtract(losses_of(cell, runs, seeds), losses_of(other, runs, seeds))
            error = predicted_error(setting, cell, folder) / predicted_error(setting, other, folder)
            lines.append(
                f"| {cell.mechanism}, {other.mechanism} | {target:g} | {100.0 * (error - 1.0):+.0f} | "
                f"{ratio_in_percent(differences)} |"
            )
    return lines


def tables(setting: Setting, folder: Path) -> str:
    """What stands below the mark."""
    runs = runs_in(folder / "runs.csv")
    seeds = len(complete_seeds(setting, runs))
    if seeds < 2:
        sys.exit(f"{folder / 'runs.csv'} must have the runs of all mechanisms with at least 2 seeds. Got {seeds}.")
    return "\n".join(
        [
            *losses_table(setting, runs, folder),
            "",
            *pairs_table(setting, runs, folder),
            "",
            f"{seeds} of {setting.seeds} seeds were trained with all mechanisms.",
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or print its tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of rows and certificates")
    parser.add_argument("--print", action="store_true", help="print the tables instead of writing the page")
    options = parser.parse_args(arguments)
    made = tables(SETTING, options.folder)
    if options.print:
        print(made, end="")
        return 0
    write_atomically(PAGE, f"{PAGE.read_text().split(MARK)[0]}{MARK}\n\n{made}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
