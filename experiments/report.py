"""Draw the runs of an experiment, and write their tables into its page.

    python -m experiments.report experiments/dong-ganesh-2026-figure-4

Everything is from ``runs.csv`` and ``certificates/``: means over seeds with 95 percent intervals (Student's t), at the
learning rate whose mean is the best. The interval is about seeds alone, not about the choice of the learning rate.
"""

import argparse
import sys
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

import hockeystick as hs
from experiments.train import Experiment, rows_of
from hockeystick.files import write_atomically
from hockeystick.strategies.error import mean_error, prefix_sums

BEGIN, END = "<!-- results -->", "<!-- end of the results -->"
LEVEL = 0.95


@dataclass(frozen=True)
class Cell:
    """The runs of a plan at one target and the best learning rate, with the epsilon of one accountant.

    Attributes:
        accuracies: by seed.
        row: one of the rows, for what all seeds share.
    """

    plan: str
    target: str
    method: str
    accuracies: dict[str, float]
    losses: dict[str, float]
    row: dict[str, str]

    @property
    def place(self) -> float:
        """The certified epsilon, on the horizontal axis."""
        return float(self.row["epsilon_upper"])


def interval(values: list[float]) -> tuple[float, float]:
    """The mean and half of the interval's width; nan for a single value."""
    if len(values) < 2:
        return values[0], float("nan")
    return fmean(values), float(student.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def written(values: list[float], digits: int = 4) -> str:
    """The interval as a table has it."""
    middle, half = interval(values)
    return f"{middle:.{digits}f}" if np.isnan(half) else f"{middle:.{digits}f} ± {half:.{digits}f}"


def cells_of(experiment: Experiment, rows: list[dict[str, str]]) -> list[Cell]:
    """In the order of the experiment; cells that lack a run of any seed or learning rate are left out."""
    cells = []
    all_runs = len(experiment.learning_rates) * experiment.seeds
    for plan in experiment.plans:
        for target in (f"{target:g}" for target in experiment.targets):
            of_plan = [row for row in rows if (row["plan"], row["target"]) == (plan, target)]
            for method in sorted({row["method"] for row in of_plan}):
                runs: dict[str, list[dict[str, str]]] = {}
                for row in of_plan:
                    if row["method"] == method:
                        runs.setdefault(row["learning_rate"], []).append(row)
                if sum(map(len, runs.values())) < all_runs:
                    continue
                best = max(runs.values(), key=lambda some: fmean(float(row["accuracy"]) for row in some))
                accuracies = {row["seed"]: float(row["accuracy"]) for row in best}
                losses = {row["seed"]: float(row["loss"]) for row in best}
                cells.append(Cell(plan, target, method, accuracies, losses, best[0]))
    return cells


def error_of(experiment: Experiment, cell: Cell) -> float:
    """The mean squared error of prefix sums of the noise, in squared clipping norms."""
    digest = cell.row["certificate"]
    for path in sorted((experiment.folder / "certificates").glob("*.json")):
        certificate = hs.Certificate.load(path)
        if certificate.digest == digest:
            mechanism = certificate.mechanism
            return mechanism.sigma**2 * mean_error(mechanism.matrix, prefix_sums(mechanism.matrix.steps))
    sys.exit(f"No file in {experiment.folder / 'certificates'} has the digest {digest} of a row in runs.csv.")


def noise_text(value: str) -> str:
    """Four digits, rounded up: less noise would not be certified for the epsilon beside it."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(value)):g}"


def epsilon_text(lower: str, upper: str) -> str:
    """The bounds that there are, with three digits after the point, rounded outwards."""
    digits = Decimal("0.001")
    above = Decimal(upper).quantize(digits, ROUND_CEILING)
    return f"at most {above}" if lower == "None" else f"{Decimal(lower).quantize(digits, ROUND_FLOOR)} to {above}"


def results(experiment: Experiment, cells: list[Cell]) -> str:
    """The table of all cells, and which are empty."""
    lines = [
        "| plan | noise multiplier | epsilon, certified | by | rate | test accuracy | test loss | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        row = cell.row
        lines.append(
            f"| {cell.plan} | {noise_text(row['noise_multiplier'])} | "
            f"{epsilon_text(row['epsilon_lower'], row['epsilon_upper'])} | `{cell.method}` | "
            f"{row['learning_rate']} | {written(list(cell.accuracies.values()))} | "
            f"{written(list(cell.losses.values()))} | {len(cell.accuracies)} |"
        )
    there = {(cell.plan, cell.target) for cell in cells}
    wanted = [(plan, f"{target:g}") for plan in experiment.plans for target in experiment.targets]
    empty = [f"{plan} at {target}" for plan, target in wanted if (plan, target) not in there]
    lines += ["", f"Not trained to the end: {', '.join(empty)}." if empty else "All cells were trained."]
    return "\n".join(lines)


def comparisons(experiment: Experiment, cells: list[Cell]) -> str:
    """Differences over seeds that both have, beside the ratio of mean squared errors; nothing where none is asked."""
    lines = ["| plan, against | epsilon | ratio of errors | accuracy gained | sign |", "|---|---|---|---|---|"]
    by_name = {(cell.plan, cell.target): cell for cell in cells}
    verdicts = []
    for plan, other in experiment.compare:
        for target in (f"{target:g}" for target in experiment.targets):
            first, second = by_name.get((plan, target)), by_name.get((other, target))
            if first is None or second is None:
                continue
            seeds = sorted(first.accuracies.keys() & second.accuracies.keys(), key=int)
            gains = [first.accuracies[seed] - second.accuracies[seed] for seed in seeds]
            middle, half = interval(gains)
            ratio = error_of(experiment, first) / error_of(experiment, second)
            verdict = "open"
            if abs(middle) > half:
                verdict = "as the ratio" if (ratio < 1.0) == (middle > 0.0) else "opposite"
            verdicts.append(verdict)
            lines.append(f"| {plan}, {other} | {target} | {ratio:.3f} | {written(gains)} | {verdict} |")
    if not verdicts:
        return ""
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("as the ratio", "open", "opposite"))
    return "\n".join(["", *lines, "", f"Signs of {len(verdicts)} comparisons: {counts}."])


def draw(experiment: Experiment, cells: list[Cell]) -> None:
    """Accuracy against the certified epsilon."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4.5), layout="constrained")).subplots()
    for plan, method in dict.fromkeys((cell.plan, cell.method) for cell in cells):
        own = sorted(
            (cell for cell in cells if (cell.plan, cell.method) == (plan, method)), key=lambda cell: cell.place
        )
        middles, halves = zip(*(interval(list(cell.accuracies.values())) for cell in own), strict=True)
        label = f"{plan}, {method}" if len({cell.method for cell in cells if cell.plan == plan}) > 1 else plan
        axes.errorbar(
            [cell.place for cell in own], middles, np.nan_to_num(halves), marker="o", ms=3, capsize=2, label=label
        )
    delta = cells[0].row["delta"]
    axes.set(xscale="log", xlabel=f"certified epsilon at delta = {float(delta):g}", ylabel="test accuracy")
    axes.legend(fontsize="small")
    figure.savefig(experiment.folder / "accuracy.png", dpi=200, metadata={"Software": None})


def page(experiment: Experiment) -> str:
    """The text of the page with its tables made from the runs."""
    text = (experiment.folder / "README.md").read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{experiment.folder / 'README.md'} must have one line {BEGIN!r} and one line {END!r}.")
    cells = cells_of(experiment, rows_of(experiment.folder / "runs.csv"))
    made = "\n".join(part for part in (results(experiment, cells), comparisons(experiment, cells)) if part)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main() -> None:
    """Write the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="folder with experiment.toml, runs.csv and README.md")
    experiment = Experiment.load(parser.parse_args().experiment)
    write_atomically(experiment.folder / "README.md", page(experiment))
    draw(experiment, cells_of(experiment, rows_of(experiment.folder / "runs.csv")))


if __name__ == "__main__":
    main()
