"""Train every plan of an experiment with every seed, one row of a CSV a run.

    python -m experiments.train experiments/dong-ganesh-2026-figure-4 --cache data

``experiment.toml`` in the folder says what is trained, and ``plans/`` how. The noise multiplier of a plan is calibrated
once for each epsilon, or given, and its certificates are kept in ``certificates/``. Every epsilon in ``runs.csv`` is
that of the certificate in the record of the run. Rows that exist are skipped: interrupt at any time, and start again.

A certificate is about one model. If you publish several, or one that was chosen among several, account for all of them.
"""

import argparse
import csv
import os
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hockeystick as hs
from experiments.models import train
from experiments.tasks import task_of
from hockeystick.errors import CannotCertifyError

COLUMNS = (
    "plan", "target", "learning_rate", "seed", "accuracy", "loss", "method", "noise_multiplier", "epsilon_upper",
    "epsilon_lower", "delta", "certificate", "seconds",
)  # fmt: skip
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Experiment:
    """What ``experiment.toml`` says.

    Attributes:
        task: data, by its name in ``tasks.py``.
        plans: file names without suffix, in the order of training.
        targets: epsilons to calibrate for; or, with ``given_noise``, noise multipliers.
        methods: of each plan, the accountants that bound its epsilon; the best where none is said.
        compare: pairs of plans that the report compares.
    """

    folder: Path
    task: str
    plans: tuple[str, ...]
    targets: tuple[float, ...]
    given_noise: bool
    seeds: int
    learning_rates: tuple[float, ...]
    methods: dict[str, list[str]]
    settings: dict[str, Any]
    compare: list[tuple[str, str]]

    @classmethod
    def load(cls, folder: Path) -> "Experiment":
        """Read ``experiment.toml`` in this folder."""
        said = tomllib.loads((folder / "experiment.toml").read_text())
        noise = "noise_multiplier" in said
        return cls(
            folder,
            said["task"],
            tuple(said["plans"]),
            tuple(said["noise_multiplier" if noise else "epsilon"]),
            noise,
            said["seeds"],
            tuple(said["learning_rate"]),
            said.get("methods", {}),
            said["training"],
            said.get("compare", []),
        )

    def plan(self, name: str) -> hs.Plan:
        """The plan of this name."""
        return hs.Plan.load(self.folder / "plans" / f"{name}.toml")


def certificates(experiment: Experiment, name: str, target: float) -> list[hs.Certificate]:
    """One for each accountant that is asked for and has a finite bound, from files, or made and kept there."""
    usable: list[hs.Certificate] = []
    folder = experiment.folder / "certificates"
    for method in experiment.methods.get(name, ["best"]):
        path = folder / f"{name}-{target:g}{'' if method == 'best' else '-' + method}.json"
        if not path.exists():
            folder.mkdir(exist_ok=True)
            print(f"certificate {path.name}", file=sys.stderr, flush=True)
            try:
                certified(experiment, name, target, None if method == "best" else method).save(path)
            except CannotCertifyError as error:
                print(f"{path.name}: {error}", file=sys.stderr, flush=True)
                continue
        kept = hs.Certificate.load(path)
        if not kept.mechanism.is_of(experiment.plan(name).mechanism(kept.mechanism.sigma)):
            sys.exit(f"{path} is not about the plan {name!r} as it is now; delete it, and the plan's rows in runs.csv.")
        usable.append(kept)
    if not usable:
        sys.exit(f"No accountant that is asked for has a finite bound for the plan {name!r} at {target:g}.")
    return usable


def certified(experiment: Experiment, name: str, target: float, method: str | None) -> hs.Certificate:
    """The certificate of a plan at a noise multiplier, or for an epsilon."""
    plan = experiment.plan(name)
    delta = plan.target.delta
    sampling = hs.MonteCarlo() if method == "monte_carlo" else None
    if experiment.given_noise:
        return hs.certify(plan.mechanism(target), delta=delta, method=method, monte_carlo=sampling)
    return hs.calibrate_and_certify(plan.mechanism(), epsilon=target, delta=delta, method=method, monte_carlo=sampling)


def missing(experiment: Experiment, done: set[Key]) -> Iterator[tuple[str, float, list[tuple[float, int]]]]:
    """Plans and targets with the learning rates and seeds that have no row yet."""
    for name in experiment.plans:
        for target in experiment.targets:
            pairs = [(rate, seed) for rate in experiment.learning_rates for seed in range(experiment.seeds)]
            left = [(rate, seed) for rate, seed in pairs if (name, f"{target:g}", f"{rate:g}", str(seed)) not in done]
            if left:
                yield name, target, left


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a file of runs; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one run, in one write that is on the disk before the next run starts."""
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())


def run_all(experiment: Experiment, cache: Path) -> None:
    """Train what has no row yet."""
    path = experiment.folder / "runs.csv"
    done = {(row["plan"], row["target"], row["learning_rate"], row["seed"]) for row in rows_of(path)}
    for name, target, left in missing(experiment, done):
        proofs = certificates(experiment, name, target)
        task = task_of(experiment.task, cache, experiment.plan(name))
        for rate, seed in left:
            begin = time.perf_counter()
            outcome = train(task, proofs[0].mechanism, seed, rate, experiment.settings)
            seconds = time.perf_counter() - begin
            rows = []
            for proof in proofs:
                kept = outcome.record(proof).certificate
                if kept is None:
                    sys.exit(f"The run of {name} with seed {seed} has no certificate.")
                values = (
                    name, f"{target:g}", f"{rate:g}", seed, f"{outcome.accuracy:.6f}", f"{outcome.loss:.6f}",
                    kept.method.upper, repr(kept.mechanism.sigma), repr(kept.epsilon.upper), repr(kept.epsilon.lower),
                    repr(kept.delta), kept.digest, f"{seconds:.2f}",
                )  # fmt: skip
                rows.append(dict(zip(COLUMNS, values, strict=True)))
            append(path, rows)
        print(f"{name} {target:g}: {len(left)} runs", file=sys.stderr, flush=True)


def main() -> None:
    """Train, resuming."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="folder with experiment.toml and plans/")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the data; fetched where it has none")
    parser.add_argument("--targets", type=float, nargs="+", help="only these epsilons, or noise multipliers")
    arguments = parser.parse_args()
    experiment = Experiment.load(arguments.experiment)
    chosen = tuple(target for target in experiment.targets if arguments.targets is None or target in arguments.targets)
    run_all(replace(experiment, targets=chosen), arguments.cache)


if __name__ == "__main__":
    main()
