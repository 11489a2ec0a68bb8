"""``python -m benchmarks.audit_alarms``: how often audits of correct code raise an alarm, in 1,000 runs of each.

The exit code is 1 when there are more alarms than the level allows. ``--json FILE`` keeps the counts, and what it has
is not run again; ``--update`` writes docs/reference/audit-alarms.md.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import numpy as np
from scipy.stats import binom

import hockeystick as hs
from benchmarks.table import wrapped

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "audit-alarms.md"
LEVEL = 1e-3
CHANCE = 1e-3
"""Of more alarms than are allowed, if every run raised one with probability ``LEVEL``."""
SIZE = 500
"""Examples of a data set, and numbers of a row of noise."""
BANDED = hs.BandedSquareRoot(bands=4)
SAMPLERS = {
    "Poisson": hs.Poisson(sampling_prob=0.05, steps=40),
    "balls in bins": hs.BallsInBins(bins=10, epochs=4),
    "random allocation, 1 of 10": hs.RandomAllocation(bins=10, epochs=4),
    "random allocation, 3 of 10": hs.RandomAllocation(bins=10, epochs=4, participations=3),
    "shuffle": hs.Shuffle(batch_size=50, bins=10, epochs=4),
    "b-min-sep, warm": hs.BMinSep(min_sep=5, sampling_prob=0.05, steps=40),
    "b-min-sep, cold": hs.BMinSep(min_sep=5, sampling_prob=0.05, steps=40, warm_start=False),
    "cyclic Poisson, public groups": hs.CyclicPoisson(groups=5, sampling_prob=0.3, steps=40),
    "cyclic Poisson, secret groups": hs.CyclicPoisson(groups=5, sampling_prob=0.3, steps=40, partition="independent"),
}
STRATEGIES = {
    "none": hs.Identity(),
    "BSR(4)": BANDED,
    "square root": hs.SquareRoot(),
    "BISR(4)": hs.BandedInverseSquareRoot(bands=4),
    "binary tree": hs.BinaryTree(),
}
FEW = hs.Poisson(sampling_prob=0.2, steps=5)
"""For audits of mechanisms, which make whole runs again and again."""
MECHANISMS = {
    "Poisson": hs.Mechanism(sampler=FEW, noise_multiplier=1.0),
    "users of 2, Poisson": hs.Mechanism(
        sampler=FEW, noise_multiplier=2.0, unit=hs.Unit(kind="user", examples_per_user=2)
    ),
    "fixed batches, BSR(4)": hs.Mechanism(
        strategy=BANDED, sampler=hs.Deterministic(bins=5, epochs=2), noise_multiplier=2.0
    ),
    "random allocation": hs.Mechanism(sampler=hs.RandomAllocation(bins=5), noise_multiplier=1.0),
    "Poisson, cut at 12 of 50": hs.Mechanism(
        sampler=FEW.model_copy(update={"truncated_batch_size": 12, "num_examples": 50}), noise_multiplier=1.0
    ),
}


CERTIFICATES: dict[str, hs.Certificate] = {}
"""Of the mechanisms that were audited so far, each issued once."""


@dataclass(frozen=True)
class Count:
    """Alarms of one kind of correct code, and the largest evidence of a run, as a natural logarithm."""

    part: str
    kind: str
    runs: int
    alarms: int
    evidence: float
    seconds: float


def seeded(kinds: Iterable[str], kind: str, seed: int) -> np.random.Generator:
    """A generator for one run of one kind."""
    return np.random.default_rng([list(kinds).index(kind), seed])


def sampler(kind: str, seed: int, level: float) -> hs.audit.Verdict:
    """One audit of 20,000 coins."""
    claimed = SAMPLERS[kind]
    batches = claimed.batches(SIZE, seeded(SAMPLERS, kind, seed))
    return hs.audit.sampler(batches, claimed, num_examples=SIZE, level=level)


def noise(kind: str, seed: int, level: float) -> hs.audit.Verdict:
    """One audit of 20,000 numbers."""
    claimed = hs.Mechanism(strategy=STRATEGIES[kind], sampler=SAMPLERS["Poisson"], noise_multiplier=2.0)
    return hs.audit.noise(hs.noise.stream(claimed, SIZE, rng=seeded(STRATEGIES, kind, seed)), claimed, level=level)


def mechanism(kind: str, seed: int, level: float) -> hs.audit.Verdict:
    """One audit of 1,000 pairs of outputs, against the upper end of a certificate at delta = 0.01."""
    claimed = MECHANISMS[kind]
    if kind not in CERTIFICATES:
        CERTIFICATES[kind] = hs.certify(claimed, delta=0.01)
    rng = seeded(MECHANISMS, kind, seed)
    return hs.audit.mechanism(claimed, certificate=CERTIFICATES[kind], samples=1000, level=level, rng=rng)


PARTS: dict[str, tuple[Callable[[str, int, float], hs.audit.Verdict], Iterable[str], int]] = {
    "sampler": (sampler, SAMPLERS, 112),
    "noise": (noise, STRATEGIES, 200),
    "mechanism": (mechanism, MECHANISMS, 200),
}
"""The audit, the kinds of correct code, and how many runs of each."""


def count(part: str, kind: str, runs: int, level: float = LEVEL) -> Count:
    """The alarms of so many runs."""
    audit, _, _ = PARTS[part]
    begun = process_time()
    verdicts = [audit(kind, seed, level) for seed in range(runs)]
    evidence = max(finding.evidence or 0.0 for verdict in verdicts for finding in verdict.findings)
    alarms = sum(verdict.refuted for verdict in verdicts)
    return Count(part, kind, runs, alarms, evidence, process_time() - begun)


def allowed(runs: int, level: float = LEVEL) -> int:
    """So many alarms that more have a probability of at most ``CHANCE``, if every run raised one at its level."""
    return int(binom.isf(CHANCE, runs, level))


def counted(file: Path | None, only: Iterable[str]) -> list[Count]:
    """All counts of these parts; those that the file has are not made again."""
    counts = [Count(**count) for count in json.loads(file.read_text())] if file is not None and file.exists() else []
    seen = {(count.part, count.kind) for count in counts}
    for part in only:
        for kind in PARTS[part][1]:
            if (part, kind) not in seen:
                counts.append(count(part, kind, PARTS[part][2]))
                print(f"{part}, {kind}: {counts[-1].alarms} of {counts[-1].runs}", file=sys.stderr, flush=True)
                if file is not None:
                    file.write_text(json.dumps([asdict(count) for count in counts], indent=0), encoding="utf-8")
    return counts


def page(counts: list[Count]) -> str:
    """The content of docs/reference/audit-alarms.md."""
    text = [
        "# False alarms of audits",
        "",
        f"Audits of correct code, each at level {LEVEL:g}: seeds 0, 1, 2, ... of every kind. Written by `python -m "
        "benchmarks.audit_alarms --json FILE --update`. An audit of batches looks at 20,000 coins (500 examples, 40 "
        "batches), one of noise at 20,000 numbers (40 rows), one of a mechanism at 1,000 pairs of outputs against the "
        "upper end of its certificate at delta = 0.01. The audits' levels are proved ([audits](../theory/audits.md)); "
        "this page would show a program that does not do what was proved. Runs are those of fixed seeds, so that "
        "anybody gets these counts.",
        "",
        "| audit | runs | alarms | allowed |",
        "|---|---|---|---|",
    ]
    for part in PARTS:
        own = [count for count in counts if count.part == part]
        if own:
            runs, alarms = sum(count.runs for count in own), sum(count.alarms for count in own)
            text.append(f"| `audit.{part}` | {runs:,} | {alarms} | {allowed(runs)} |")
    text += [
        "",
        f"Allowed: more have a probability of at most {CHANCE:g} if each run raises an alarm with probability "
        f"{LEVEL:g}. Evidence is the natural logarithm of the largest bet's worth in any of the runs; an alarm needs a "
        f"mean worth of {1 / LEVEL:,.0f}, whose logarithm is {np.log(1 / LEVEL):.1f}.",
        "",
        "| audit | correct code | runs | alarms | largest evidence |",
        "|---|---|---|---|---|",
    ]
    text += [
        f"| `audit.{count.part}` | {count.kind} | {count.runs} | {count.alarms} | {count.evidence:.1f} |"
        for count in counts
    ]
    return "\n".join(map(wrapped, text)) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Count and print the page; 1 when a part has more alarms than its level allows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_alarms", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only these audits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts here")
    parser.add_argument("--update", action="store_true", help="write the page")
    options = parser.parse_args(arguments)
    counts = counted(options.json, options.part or PARTS)
    text = page(counts)
    if options.update:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    own = {part: [count for count in counts if count.part == part] for part in PARTS}
    return int(
        any(
            sum(count.alarms for count in each) > allowed(sum(count.runs for count in each))
            for each in own.values()
            if each
        )
    )


if __name__ == "__main__":
    sys.exit(main())
