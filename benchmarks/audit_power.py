"""``python -m benchmarks.audit_power``: the smallest errors in the noise and in the rate that audits find.

For six mechanisms and three numbers of samples: by audits of the noise, of the batches and of the mechanism, and by
``jax_privacy.auditing`` where it is installed, which sees the same outputs as the audit of the mechanism. Also from how
many numbers an audit of the noise finds its end, which is computed. ``--json FILE`` keeps what was measured and does
not measure it again; ``--update`` writes docs/reference/audit-power.md.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil, inf, isfinite, log, log10, sqrt
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from scipy.special import ndtr

import hockeystick as hs
from benchmarks.table import wrapped
from hockeystick.audit import whiteness
from hockeystick.audit.betting import Bets
from hockeystick.audit.ratios import ratio_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "audit-power.md"
LEVEL, DELTA = 1e-3, 1e-2
SAMPLES = (1_000, 10_000, 100_000)
SEEDS = {1_000: 9, 10_000: 5, 100_000: 3}
"""Runs whose median is shown."""
LOOKS = 20
SMALLEST, LARGEST = 0.002, 0.9
HALVINGS = 8
"""Of the range of logarithms: an error is found within 2.5 percent of itself."""
EXAMPLES = 1000
BANDED = hs.BandedSquareRoot(bands=4)
MECHANISMS = {
    "fixed batches, BSR(4)": (2.0, BANDED, hs.Deterministic(bins=10, epochs=2)),
    "Poisson": (1.0, hs.Identity(), hs.Poisson(sampling_prob=0.1, steps=20)),
    "cyclic Poisson, BSR(4)": (2.0, BANDED, hs.CyclicPoisson(groups=5, sampling_prob=0.5, steps=20)),
    "random allocation": (1.0, hs.Identity(), hs.RandomAllocation(bins=10, epochs=2)),
    "balls in bins, BSR(4)": (1.5, BANDED, hs.BallsInBins(bins=10, epochs=2)),
    "b-min-sep, BSR(4)": (1.5, BANDED, hs.BMinSep(min_sep=5, sampling_prob=0.1, steps=20, warm_start=False)),
}
RATES = ("Poisson", "cyclic Poisson, BSR(4)", "b-min-sep, BSR(4)")
"""Mechanisms with a rate; of the others, every change of how often an example takes part is impossible by the claim."""
ENDS = {
    "ends at 3 on both sides": (3.0, 3.0),
    "ends at 4 on both sides": (4.0, 4.0),
    "ends at 4.5 on both sides": (4.5, 4.5),
    "ends at 4.5 on one side": (inf, 4.5),
    "ends at 5.2 on both sides": (5.2, 5.2),
    "ends at -5.42 and 5.22, as of `jax.random.normal` in float32": (5.42, 5.22),
    "ends at 5.77 on both sides, as of torch in float32 on a CPU": (5.768, 5.768),
}
"""The magnitudes of the smallest and the largest number of noise, in standard deviations."""
WAYS = {
    "noise": "sigma, `audit.noise`",
    "mechanism-sigma": "sigma, `audit.mechanism`",
    "jax-sigma": "sigma, `jax_privacy`",
    "sampler": "rate, `audit.sampler`",
    "mechanism-rate": "rate, `audit.mechanism`",
    "jax-rate": "rate, `jax_privacy`",
}


@dataclass(frozen=True)
class Cell:
    """The smallest error that the median run finds, infinite where it is above ``LARGEST``, and processor seconds."""

    mechanism: str
    way: str
    samples: int
    error: float
    seconds: float


def mechanism_of(name: str) -> hs.Mechanism:
    """The mechanism of a row."""
    sigma, strategy, sampler = MECHANISMS[name]
    return hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma)


def with_rate(sampler: Any, factor: float) -> Any:
    """The sampler with its rate times a factor."""
    if isinstance(sampler, hs.BMinSep):  # of the rate of an available example
        prob = sampler.participation_prob * factor
        return sampler.model_copy(update={"sampling_prob": prob / (1.0 + (sampler.min_sep - 1) * prob)})
    return sampler.model_copy(update={"sampling_prob": sampler.sampling_prob * factor})


class Outputs:
    """Outputs of one mechanism with and without examples, at any error, from the same random numbers."""

    def __init__(self, mechanism: hs.Mechanism, seed: int, samples: int) -> None:
        self.mechanism, self.seed, self.samples = mechanism, seed, samples
        self.ratio = ratio_of(mechanism)
        rng = np.random.default_rng([1, seed])
        self.noise = rng.standard_normal((2, mechanism.matrix.rows, samples))
        self.signals: dict[float, np.ndarray] = {}

    def signal(self, factor: float) -> np.ndarray:
        """``C x / sigma`` of examples that are sampled at so many times the rate, shape (rows, samples)."""
        if factor not in self.signals:
            sampler = self.mechanism.sampler
            sampler = sampler if factor == 1.0 else with_rate(sampler, factor)
            examples = self.ratio.fitting(None)
            who = self.ratio.who(examples).ravel()
            rng = np.random.default_rng([2, self.seed])
            parts: list[np.ndarray] = []
            while sum(part.shape[1] for part in parts) < self.samples:
                x = np.zeros((sampler.steps, examples))
                for step, batch in enumerate(sampler.batches(examples, rng)):
                    x[step, batch] = 1.0
                parts.append(x[:, who])
            x = np.concatenate(parts, axis=1)[:, : self.samples]
            self.signals = {factor: self.mechanism.matrix.dot(x) / self.mechanism.sigma}
        return self.signals[factor]

    def losses(self, noise: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """``log P/Q`` with and without the example."""
        with_example = self.ratio.log_ratios(self.signal(rate) + noise * self.noise[0])
        return with_example, self.ratio.log_ratios(noise * self.noise[1])


def refuted(losses: tuple[np.ndarray, np.ndarray], upper: float) -> bool:
    """Whether the bets of ``audit.mechanism`` refute this epsilon."""
    bets = Bets(upper, DELTA, LEVEL)
    for with_example, other in zip(np.array_split(losses[0], LOOKS), np.array_split(losses[1], LOOKS), strict=True):
        bets.observe(with_example, other)
        if bets.refuted:
            return True
    return False


def refuted_by_jax(losses: tuple[np.ndarray, np.ndarray], upper: float) -> bool:
    """Whether a lower bound of ``jax_privacy.auditing`` exceeds it, with its first strategy for thresholds or another.

    In its favour the level is that of each strategy; those that look at one direction look at both here.
    """
    from jax_privacy import auditing

    auditor = auditing.CanaryScoreAuditor(*losses)
    return any(
        auditor.epsilon_clopper_pearson(LEVEL, DELTA, False, threshold_strategy=strategy) > upper
        for strategy in (auditing.Bonferroni(), auditing.Split(seed=0))
    )


def smallest(is_found: Callable[[float], bool]) -> float:
    """The least error that is found, by halving the range of logarithms; infinite if even the largest is not."""
    if not is_found(LARGEST):
        return inf
    low, high = SMALLEST, LARGEST
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


@dataclass
class Row:
    """One mechanism, whose cells are measured one by one."""

    name: str

    @cached_property
    def mechanism(self) -> hs.Mechanism:
        """The mechanism of the row."""
        return mechanism_of(self.name)

    @cached_property
    def upper(self) -> float:
        """The upper end of its certificate."""
        return hs.certify(self.mechanism, delta=DELTA).epsilon.upper

    def measure(self, way: str, samples: int) -> Cell:
        """The smallest error that one way finds in so many samples, in the median run."""
        begun = process_time()
        errors = [self.run(way, samples, seed) for seed in range(SEEDS[samples])]
        return Cell(self.name, way, samples, median(errors), process_time() - begun)

    def run(self, way: str, samples: int, seed: int) -> float:
        """The smallest error of one run."""
        if way == "noise":
            steps = self.mechanism.sampler.steps
            stream = hs.noise.stream(self.mechanism, samples // steps, rng=np.random.default_rng([3, seed]))
            rows = np.array([np.asarray(row, dtype=np.float64) for row in stream])
            return smallest(lambda e: hs.audit.noise((1.0 - e) * rows, self.mechanism, level=LEVEL).refuted)
        if way == "sampler":
            return smallest(lambda e: self.rate_is_seen(1.0 + e, samples, seed))
        outputs = Outputs(self.mechanism, seed, samples)
        test = refuted if way.startswith("mechanism") else refuted_by_jax
        if way.endswith("sigma"):
            return smallest(lambda e: test(outputs.losses(1.0 - e, 1.0), self.upper))
        return smallest(lambda e: test(outputs.losses(1.0, 1.0 + e), self.upper))

    def rate_is_seen(self, factor: float, samples: int, seed: int) -> bool:
        """Whether an audit of so many coins finds a rate that is too large by a factor."""
        claimed = self.mechanism.sampler
        size = min(EXAMPLES, samples // claimed.steps)
        runs = samples // (size * claimed.steps)
        other = with_rate(claimed, factor)
        return hs.audit.sampler(
            lambda run: other.batches(size, np.random.default_rng([4, seed, run])),
            claimed,
            num_examples=size,
            runs=runs,
            level=LEVEL,
        ).refuted


def numbers_until_found(below: float, above: float) -> float:
    """How many numbers ``audit.noise`` takes to find noise without values below ``-below`` and above ``above``.

    No chance is involved: a bet on a threshold beyond the end wins with every number. Infinite where the audit does not
    take so many. The stake that waits for a later row and all other bets are left out, which errs upward.
    """
    chance = ndtr(-whiteness.ENDS)
    sides = (above, chance), (below, chance), (max(above, below), 2.0 * chance)
    winning = np.concatenate([chances[end <= whiteness.ENDS] for end, chances in sides])
    rates = -np.log1p(winning * np.expm1(whiteness.NEARLY_NONE))
    stakes = 2.0 * 3.0 * whiteness.ENDS.size * len(set(whiteness.SAYS) - {"not_finite"})
    is_found = lambda n: np.logaddexp.reduce(n * rates) >= log(stakes / LEVEL)  # noqa: E731
    low, high = 1, whiteness.MOST_NUMBERS
    if not winning.size or not is_found(high):
        return inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def measured(ways: Iterable[str], only: str, file: Path | None) -> list[Cell]:
    """All cells of the mechanisms whose name contains ``only``; those that the file has are not measured again."""
    cells = [Cell(**cell) for cell in json.loads(file.read_text())] if file is not None and file.exists() else []
    seen = {(cell.mechanism, cell.way, cell.samples) for cell in cells}
    wanted = list(ways)
    for name in MECHANISMS:
        row = Row(name)
        for way in wanted if only in name else ():
            for samples in SAMPLES:
                if (name, way, samples) in seen or ((way == "sampler" or "rate" in way) and name not in RATES):
                    continue
                cells.append(row.measure(way, samples))
                print(f"{name}, {way}, {samples}: {cells[-1].error:.3g}", file=sys.stderr, flush=True)
                if file is not None:
                    file.write_text(json.dumps([asdict(cell) for cell in cells], indent=0), encoding="utf-8")
    return cells


def page(cells: Iterable[Cell]) -> str:
    """The content of docs/reference/audit-power.md."""
    errors = {(cell.mechanism, cell.way, cell.samples): cell.error for cell in cells}
    text = [
        "# The power of audits",
        "",
        "The tables show the smallest relative error that an audit finds: by how much the standard deviation of the "
        "noise is too small, or the sampling rate too large. They have medians of "
        + ", ".join(f"{runs} runs of {samples:,}" for samples, runs in SEEDS.items())
        + f" samples at level {LEVEL:g}, found by bisection with the same random numbers. None means that not even "
        f"{100 * LARGEST:g} percent is found. This page is written by `python -m benchmarks.audit_power --json FILE "
        "--update`.",
        "",
        f"A sample is a number of noise for `audit.noise`, a coin for `audit.sampler`, and a pair of outputs, with "
        f"and without the example, for `audit.mechanism`, which has to refute the upper end of the certificate at "
        f"delta = {DELTA:g}. `jax_privacy.auditing` 2.0 gets the same pairs. It has no scores of its own, so it gets "
        f"the same optimal log-likelihood ratio as score. Its `epsilon_clopper_pearson` has to exceed the same upper "
        f"end, with one of the strategies `Bonferroni` and `Split`. It looks once, at the end, whereas "
        f"`audit.mechanism` may stop at any time. It has no audits of noise or batches alone.",
        "",
        "Audits of outputs find only large errors, because they know nothing of the noise and the batches and must "
        "contradict epsilon itself. If the certified interval is wide (b-min-sep here), the error has to bridge that, "
        "too. With fixed batches, random allocation and balls in bins, the claim says exactly how often an example "
        "takes part, so `audit.sampler` finds any change when it first occurs. The column of `audit.noise` is the "
        "same for all, because C times the noise is white for all of them.",
    ]
    for title, ways in (
        ("Noise that is too small", ("noise", "mechanism-sigma", "jax-sigma")),
        ("A rate that is too large", ("sampler", "mechanism-rate", "jax-rate")),
    ):
        labels = {way: WAYS[way].split(", ")[1] for way in ways}
        text += ["", f"## {title}", "", "| mechanism | samples | " + " | ".join(labels.values()) + " |"]
        text += ["|---|---|" + "---|" * len(ways)]
        for name in MECHANISMS:
            for samples in SAMPLES:
                shown = [shown_of(errors.get((name, way, samples))) for way in ways]
                if any(shown):
                    text.append(f"| {name} | {samples:,} | " + " | ".join(error or "-" for error in shown) + " |")
    text += [
        "",
        "## Noise that ends",
        "",
        "Here the noise is normal, except that it never goes beyond an end: values there are clipped or drawn again. "
        f"The table shows how many numbers `audit.noise` needs to find this at level {LEVEL:g}, with certainty. It "
        f"accepts at most {whiteness.MOST_NUMBERS:,} numbers.",
        "",
        "| noise that | numbers |",
        "|---|---|",
    ]
    text += [f"| {name} | {rounded_up(numbers_until_found(*ends))} |" for name, ends in ENDS.items()]
    return "\n".join(map(wrapped, text)) + "\n"


def rounded_up(numbers: float) -> str:
    """A number of numbers, to two digits."""
    if not isfinite(numbers):
        return "not found"
    unit = 10 ** max(int(log10(numbers)) - 1, 0)
    return f"{ceil(numbers / unit) * unit:,}"


def shown_of(error: float | None) -> str:
    """An error in percent."""
    if error is None:
        return ""
    return f"{100 * error:.2g} %" if isfinite(error) else "none"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_power", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="mechanisms whose name contains PATTERN")
    parser.add_argument("--way", action="append", choices=WAYS, help="only these columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured here")
    parser.add_argument("--update", action="store_true", help="write the page")
    options = parser.parse_args(arguments)
    text = page(measured(options.way or WAYS, options.only, options.json))
    if options.update:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
