"""``python -m benchmarks.same_numbers``: the same numbers as before, after a change that should not touch them.

``run OUT.json`` asks every accountant for epsilon on every plan of the table, on each of its sides, and then
``certify``. Grids and effort are fixed and there is no deadline, so that two runs of the same code agree in every bit.
Sampled plans ask the Monte Carlo accountant, with a fixed seed, in place of the deterministic ones.

``compare BEFORE.json AFTER.json`` prints what differs by more than 1e-9 of itself, what is missing or new, and every
plan for which a lower bound of either file is above an upper bound of either file. Of sampled intervals it asks only
that they overlap, which is that last rule. The exit code is 1 when a number is worse or lost, or bounds cross.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import isclose, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import hockeystick as hs
from hockeystick.accountants.registry import every_accountant
from hockeystick.pairs.registry import dominating_pair

NODES = 68
EFFORT = 2.0
MOST_SECONDS = 20.0
"""Accountants that expect to take longer are left out."""
BUDGET = 600.0
"""Seconds for certify: far more than it takes, so that the clock decides nothing."""
SEED, RATIO = 20_240_607, 0.3
TOLERANCE = 1e-9
"""Relative difference up to which two numbers are the same."""
FAULTS = ("worse", "lost", "crossing")

STRATEGIES: dict[str, Any] = {
    "identity": hs.Identity(),
    "bsr": hs.BandedSquareRoot(bands=3),
    "bsr16": hs.BandedSquareRoot(bands=16),
    "bisr": hs.BandedInverseSquareRoot(bands=3),
    "root": hs.SquareRoot(),
    "toeplitz": hs.BandedToeplitz(bands=3),
    "bandmf": hs.ColumnNormalizedBanded(bands=3),
    "bandmf8": hs.ColumnNormalizedBanded(bands=8),
    "bandinv": hs.BandedInverse(bands=2),
    "bandinv-far": hs.BandedInverse(bands=3, min_sep=6),
    "blt": hs.BufferedToeplitz(buffers=2),
    "blt-mean": hs.BufferedToeplitz(buffers=3, objective="mean", min_sep=4),
    "tree": hs.BinaryTree(),
    "trees": hs.TreeRestart(height=3),
    "dense": hs.Dense(),
    "dense-epochs": hs.Dense(epochs=2),
}
CORRELATED = "bsr bisr root toeplitz bandmf bandinv blt tree trees dense custom"
ANY = f"identity {CORRELATED}"
"""One of each kind; the custom matrix is in no file yet."""

SAMPLERS: dict[str, Any] = {
    "fixed 4x3": hs.Deterministic(bins=4, epochs=3),
    "shuffle 20x3 of 50": hs.Shuffle(batch_size=50, bins=20, epochs=3),
    "shuffle 6 of 2": hs.Shuffle(batch_size=2, bins=6),
    "shuffle 1x2 of 3": hs.Shuffle(batch_size=3, bins=1, epochs=2),
    "shuffle 8x2 of 2": hs.Shuffle(batch_size=2, bins=8, epochs=2),
    "shuffle 2^18 of 1": hs.Shuffle(batch_size=1, bins=1 << 18),
    "shuffle 1e5 of 1": hs.Shuffle(batch_size=1, bins=100_000),
    "poisson .3x3": hs.Poisson(sampling_prob=0.3, steps=3),
    "poisson .1x24": hs.Poisson(sampling_prob=0.1, steps=24),
    "poisson .01x300": hs.Poisson(sampling_prob=0.01, steps=300),
    "poisson .001x1e4": hs.Poisson(sampling_prob=0.001, steps=10_000),
    "poisson 1x4": hs.Poisson(sampling_prob=1.0, steps=4),
    "poisson cut": hs.Poisson(sampling_prob=0.05, steps=20, truncated_batch_size=60, num_examples=500),
    "cyclic 4 .2x24": hs.CyclicPoisson(groups=4, sampling_prob=0.2, steps=24),
    "cyclic 2 .2x9": hs.CyclicPoisson(groups=2, sampling_prob=0.2, steps=9),
    "cyclic 8 .08x400": hs.CyclicPoisson(groups=8, sampling_prob=0.08, steps=400),
    "cyclic 1 .1x30": hs.CyclicPoisson(groups=1, sampling_prob=0.1, steps=30),
    "cyclic own 3 .3x10": hs.CyclicPoisson(groups=3, sampling_prob=0.3, steps=10, partition="independent"),
    "bins 2": hs.BallsInBins(bins=2),
    "bins 1x5": hs.BallsInBins(bins=1, epochs=5),
    "bins 6x2": hs.BallsInBins(bins=6, epochs=2),
    "bins 32x4": hs.BallsInBins(bins=32, epochs=4),
    "bins 50x4": hs.BallsInBins(bins=50, epochs=4),
    "bins 100x10": hs.BallsInBins(bins=100, epochs=10),
    "1 of 1000": hs.RandomAllocation(bins=1000),
    "1 of 100 x4": hs.RandomAllocation(bins=100, epochs=4),
    "3 of 7": hs.RandomAllocation(bins=7, participations=3),
    "3 of 100 x2": hs.RandomAllocation(bins=100, participations=3, epochs=2),
    "apart 4 warm": hs.BMinSep(min_sep=4, sampling_prob=0.1, steps=24),
    "apart 3 cold": hs.BMinSep(min_sep=3, sampling_prob=0.1, steps=24, warm_start=False),
    "apart 3 cut": hs.BMinSep(min_sep=3, sampling_prob=0.05, steps=24, truncated_batch_size=60, num_examples=500),
    "user of 1": hs.MultiAttribution(min_sep=3, sampling_prob=0.05, steps=24, examples_per_user=1),
    "user of 2": hs.MultiAttribution(min_sep=3, sampling_prob=0.05, steps=16, examples_per_user=2, warm_up_steps=2),
    "shared": hs.MultiAttribution(min_sep=3, sampling_prob=0.05, steps=16, examples_per_user=2, users_per_example=2),
}

PLANS: tuple[tuple[str, str, tuple[float, ...], tuple[float, ...]], ...] = (
    ("fixed 4x3", ANY, (2.0, 5.0, 12.0, 30.0), (1e-5, 1e-3, 1e-10)),
    ("shuffle 20x3 of 50, shuffle 6 of 2, shuffle 1x2 of 3, shuffle 1e5 of 1", "identity", (0.8, 3.0), (1e-6, 1e-4)),
    ("shuffle 8x2 of 2, shuffle 2^18 of 1", "tree", (30.0,), (1e-5,)),
    ("poisson .3x3, poisson .001x1e4, bins 2, bins 50x4, 1 of 1000", "identity", (0.6, 1.5), (1e-6, 1e-10)),
    ("1 of 100 x4, 3 of 7, 3 of 100 x2", "identity", (0.9, 5.0), (1e-5, 1e-3)),
    ("poisson .01x300", "identity bsr bandmf", (0.9, 1.5, 3.0), (1e-8, 1e-6, 1e-5)),
    ("poisson 1x4, poisson cut, cyclic own 3 .3x10, cyclic 1 .1x30", "identity bsr", (1.0, 4.0), (1e-5, 1e-3)),
    ("poisson .1x24", CORRELATED, (2.0, 4.0, 10.0), (1e-5, 1e-7)),
    ("cyclic 4 .2x24", ANY, (1.2, 3.0, 8.0, 30.0), (1e-6, 1e-4, 1e-9)),
    ("cyclic 2 .2x9", "bsr trees bandinv-far", (1.5, 4.0), (1e-5, 1e-3)),
    ("cyclic 8 .08x400", "bsr16 bandmf8", (3.0, 1.5), (1e-6,)),
    ("bins 6x2", f"{CORRELATED} bandinv-far blt-mean dense-epochs", (3.0, 6.0, 1.5, 30.0), (1e-5, 1e-3, 1e-10)),
    ("bins 32x4", "bsr16 bandmf8", (8.0, 1.0), (1e-5, 1e-6)),
    ("bins 1x5, bins 100x10", "bsr", (2.0, 4.0), (1e-5, 1e-6)),
    ("apart 4 warm, user of 1", ANY, (2.0, 6.0, 15.0), (1e-5, 1e-8)),
    ("apart 3 cold, apart 3 cut, user of 2, shared", "identity bsr", (4.0, 10.0), (1e-4,)),
)
"""Samplers, strategies, noise multipliers, deltas.

For each sampler the other three take turns, until the strategies and the noise multipliers have all had one.
"""
SAMPLED = (
    ("poisson .1x24, cyclic 2 .2x9, bins 6x2, apart 4 warm, apart 3 cut, user of 2", "bsr", (3.0,), (1e-4,)),
    ("shuffle 20x3 of 50, bins 2, apart 3 cold", "identity", (1.5,), (1e-5,)),
)


@dataclass(frozen=True)
class Plan:
    """One mechanism, one delta, and the kind of bounds that is asked for."""

    name: str
    mechanism: hs.Mechanism
    delta: float
    kind: hs.Kind


@dataclass(frozen=True)
class Answer:
    """One bound on epsilon; None where there is none, and then the status says why."""

    value: float | None
    status: str
    kind: str


Document = dict[str, dict[str, Answer]]
"""By plan, and then by method and side, as in ``direct upper``."""


def plans(folder: Path) -> Iterator[Plan]:
    """All plans of the tables; custom matrices are written to the folder."""
    rows = [(*row, hs.Kind.DETERMINISTIC) for row in PLANS] + [(*row, hs.Kind.MONTE_CARLO) for row in SAMPLED]
    for samplers, names, sigmas, deltas, kind in rows:
        strategies = names.split()
        for name, at in product(samplers.split(", "), range(max(len(strategies), len(sigmas)))):
            sampler, strategy = SAMPLERS[name], strategies[at % len(strategies)]
            sigma, delta = sigmas[at % len(sigmas)], deltas[at % len(deltas)]
            matrix = custom(sampler.steps, folder) if strategy == "custom" else STRATEGIES[strategy]
            mechanism = hs.Mechanism(strategy=matrix, sampler=sampler, noise_multiplier=sigma)
            yield Plan(f"{name}, {strategy}, sigma={sigma:g}, delta={delta:g}, {kind}", mechanism, delta, kind)


def custom(steps: int, folder: Path) -> hs.Custom:
    """Columns of three lengths whose entries fall like 1 / lag: neither Toeplitz nor banded."""
    at = np.arange(steps)
    lag = np.maximum(np.subtract.outer(at, at), 0)
    path = folder / f"{steps}.npy"
    np.save(path, np.tril(1.0 / (1.0 + lag)) * (1.0 + 0.1 * (at % 3)))
    return hs.Custom(path=str(path))


def measured(plan: Plan) -> dict[str, Answer]:
    """What the accountants and certify say."""
    sampled = hs.MonteCarlo(seed=SEED, ratio=RATIO) if plan.kind is hs.Kind.MONTE_CARLO else None
    answers = dict(accountants_on(plan, sampled))
    try:
        certificate = hs.certify(plan.mechanism, delta=plan.delta, budget=BUDGET, monte_carlo=sampled)
    except Exception as error:  # a fault is an answer too, and must not end the run
        return answers | {f"certify {side}": Answer(None, repr(error), plan.kind) for side in hs.Side}
    for side in hs.Side:
        value, by = getattr(certificate.bounds, side), getattr(certificate.method, side)
        answers[f"certify {side}"] = Answer(value, f"by {by}", plan.kind)
    return answers


def accountants_on(plan: Plan, sampled: hs.MonteCarlo | None) -> Iterator[tuple[str, Answer]]:
    """Every accountant of the plan's kind that analyses its pair, on each of its sides."""
    pair = dominating_pair(plan.mechanism)
    resolution, question = hs.Resolution(NODES, plan.delta), hs.Question(delta=plan.delta)
    settings = hs.Settings(resolution=resolution, question=question, monte_carlo=sampled, effort=EFFORT)
    for method in every_accountant().values():
        if method.kind is not plan.kind or not method.covers(type(pair)):
            continue
        for side in method.sides:
            if method.why_not(pair, side) is None and method.cost(pair) > MOST_SECONDS:
                yield f"{method.name} {side}", Answer(None, "left out: it would take long", plan.kind)
                continue
            try:
                value = hs.bound(plan.mechanism, method=method.name, side=side, settings=settings).epsilon(plan.delta)
                answer = Answer(value, "ok", plan.kind) if isfinite(value) else Answer(None, f"{value}", plan.kind)
            except Exception as error:  # a fault is an answer too
                answer = Answer(None, repr(error), plan.kind)
            yield f"{method.name} {side}", answer


def crossings(name: str, *answers: dict[str, Answer]) -> Iterator[str]:
    """The largest lower bound and the smallest upper one of a plan, if they are the wrong way round."""
    known = [(answer.value, key) for each in answers for key, answer in each.items() if answer.value is not None]
    lower = max((entry for entry in known if entry[1].endswith(hs.Side.LOWER)), default=(0.0, "none"))
    upper = min((entry for entry in known if entry[1].endswith(hs.Side.UPPER)), default=(float("inf"), "none"))
    if lower[0] > upper[0]:
        yield f"{name}: {lower[1]} {lower[0]!r} above {upper[1]} {upper[0]!r}"


def run(out: Path, only: str) -> int:
    """Measure the plans whose name contains ``only``, and write them; 1 when bounds cross."""
    started, answers = perf_counter(), Document()
    with TemporaryDirectory() as folder, threadpool_limits(1):
        for plan in plans(Path(folder)):
            if only in plan.name:
                begun = perf_counter()
                answers[plan.name] = measured(plan)
                print(f"{plan.name}: {perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    seconds = perf_counter() - started
    content = {name: {key: asdict(answer) for key, answer in each.items()} for name, each in answers.items()}
    document = {"source": hs.__file__, "seconds": round(seconds, 1), "plans": content}
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    crossed = [line for name, each in answers.items() for line in crossings(name, each)]
    print(*(f"crossing: {line}" for line in crossed), sep="\n", end="\n" if crossed else "")
    values = sum(answer.value is not None for each in answers.values() for answer in each.values())
    print(f"{len(answers)} plans, {values} values, {len(crossed)} crossings, {seconds:.0f} s, of {hs.__file__}")
    return 1 if crossed else 0


def loaded(path: Path) -> Document:
    """What :func:`run` wrote."""
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))["plans"]
    return {name: {key: Answer(**answer) for key, answer in each.items()} for name, each in content.items()}


def differences(before: Document, after: Document) -> Iterator[tuple[str, str]]:
    """Pairs of a verdict and what it is about."""
    missing = Answer(None, "missing", "")
    for name in before | after:
        old, new = before.get(name, {}), after.get(name, {})
        for key in old | new:
            ends = old.get(key, missing), new.get(key, missing)
            verdict = verdict_on(*ends, is_upper=key.endswith(hs.Side.UPPER))
            if verdict is not None:
                first, second = (answer.status if answer.value is None else repr(answer.value) for answer in ends)
                yield verdict, f"{name}: {key}: {first} -> {second}"
        for line in crossings(name, old, new):
            yield "crossing", line


def verdict_on(old: Answer, new: Answer, *, is_upper: bool) -> str | None:
    """A word for the difference, or None; "restated" for another status where there is no value either way."""
    if new.value is None:
        return "lost" if old.value is not None else "restated" if old.status != new.status else None
    if old.value is None:
        return "new"
    if new.kind == hs.Kind.MONTE_CARLO or isclose(old.value, new.value, rel_tol=TOLERANCE):
        return None
    return "worse" if (new.value > old.value) == is_upper else "better"


def compare(before: Path, after: Path) -> int:
    """Print the differences; 1 when there are faults among them."""
    counts: Counter[str] = Counter()
    for verdict, line in differences(loaded(before), loaded(after)):
        counts[verdict] += 1
        print(f"{verdict}: {line}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no differences")
    return 1 if any(counts[fault] for fault in FAULTS) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or compare two measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_numbers", description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    measuring = modes.add_parser("run", help="write the numbers of this code")
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--only", default="", metavar="PATTERN", help="plans whose name contains PATTERN")
    comparing = modes.add_parser("compare", help="what differs between two files")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    return run(options.out, options.only) if options.mode == "run" else compare(options.before, options.after)


if __name__ == "__main__":
    sys.exit(main())
