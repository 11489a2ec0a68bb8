"""``python -m benchmarks.gaps``: how far the two sides of ``certify`` are apart, for every sampler with every strategy.

One cell is a sampler, a strategy matrix and an epsilon at delta = 1e-5. ``calibrate`` finds the noise multiplier whose
upper bound is that epsilon, and ``certify`` gives the lower bound; with ``--near``, where bounds take long, a few calls
of ``certify`` find one whose upper bound is within 2 percent of it. ``--sampled`` asks again at the same noise
multiplier with Monte Carlo, which may fail with probability 1e-9. All runs have 1,000 steps.

Every answer is appended to a CSV file as soon as it is there, and what the file has is not computed again: stop the
command whenever you like. ``--write`` renders docs/reference/gaps.md from the file. Deterministic numbers depend on
neither the machine nor its load, as no deadline is set; seconds do.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, inf, isfinite, log
from pathlib import Path
from time import monotonic

import hockeystick as hs
from benchmarks.answer_files import append, read
from hockeystick.errors import CannotCertifyError, UnsupportedError
from hockeystick.execution import executor

DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
NEAR, ATTEMPTS, SLOPE = 0.02, 6, -1.2
"""How far an upper bound may be from a cell's epsilon, how often it is tried, and about how log epsilon falls with log
sigma."""
LEAST_SHOWN = 1e-3
"""Percent: the file has six digits of a bound."""
HERE = Path(__file__).parent
ANSWERS = HERE / "gaps.csv"
PAGE = HERE.parent / "docs" / "reference" / "gaps.md"
USER = hs.Unit(kind="user", examples_per_user=2)
SAMPLERS = {
    "Poisson .01": (hs.Poisson(sampling_prob=0.01, steps=1000), hs.Unit()),
    "Poisson .01, users of 2": (hs.Poisson(sampling_prob=0.01, steps=1000), USER),
    "cyclic Poisson, 16 groups": (hs.CyclicPoisson(groups=16, sampling_prob=0.16, steps=1000), hs.Unit()),
    "balls-in-bins 100 x 10": (hs.BallsInBins(bins=100, epochs=10), hs.Unit()),
    "allocation 100 x 10": (hs.RandomAllocation(bins=100, epochs=10), hs.Unit()),
    "allocation 10 of 1000": (hs.RandomAllocation(bins=1000, participations=10), hs.Unit()),
    "b-min-sep 16": (hs.BMinSep(min_sep=16, sampling_prob=0.01 / 0.85, steps=1000), hs.Unit()),
    "b-min-sep 16, users of 2": (
        hs.MultiAttribution(
            min_sep=16, sampling_prob=0.01 / 0.85, steps=1000, examples_per_user=2, exclusion="example"
        ),
        hs.Unit(),
    ),
    "10 of 1000, without replacement": (hs.FixedSize(batch_size=10, num_examples=1000, steps=1000), hs.Unit()),
    "10 of 1000, without replacement, replaced": (
        hs.FixedSize(batch_size=10, num_examples=1000, steps=1000),
        hs.Unit(neighbours="replace"),
    ),
    "shuffle 100 x 10": (hs.Shuffle(batch_size=500, bins=100, epochs=10), hs.Unit()),
}
"""By name: the sampler, and whose contribution is hidden. Long-run rates are .01, for b-min-sep by example .01176."""
STRATEGIES = {
    "I": hs.Identity(),
    "BSR 4": hs.BandedSquareRoot(bands=4),
    "BSR 16": hs.BandedSquareRoot(bands=16),
    "BSR 64": hs.BandedSquareRoot(bands=64),
    "BISR 4": hs.BandedInverseSquareRoot(bands=4),
    "BandMF 64": hs.ColumnNormalizedBanded(bands=64),
    "BLT 3": hs.BufferedToeplitz(buffers=3),
    "square root": hs.SquareRoot(),
    "tree": hs.BinaryTree(),
    "tree restart 5": hs.TreeRestart(height=5),
}

REASONS = (
    "",
    "## What is open, and why",
    "",
    "* Random allocation with correlated noise. Without sampling, the proof replaces the columns of C by columns",
    "  that reveal more, which makes the epochs independent ([proof](../theory/fresh-bins.md)). This is far from",
    "  the truth if columns reach over many epochs. With sampling, BISR 4 keeps a gap at epsilon 2 and 4: in the",
    "  add direction a single sample may count up to 12,000 times delta, so the bound without samples is used.",
    "  Several visits in an epoch together with correlated noise have not been analysed.",
    "* 10 of 1,000 with independent noise, without sampling. Most of the gap comes from the upper bound, whose",
    "  proof reveals blocks of steps ([samples](../theory/monte-carlo/allocations.md)).",
    "* Epsilon 8. It was measured without sampling only.",
    "* Poisson sampling at epsilon 4 with BSR 16 and BISR 4. With Monte Carlo the gap stays between 2 and 5",
    "  percent, because a single sample may count up to 840 and 3,200 times delta, respectively. With more than",
    "  three and two copies the largest weight is too large; with fewer copies the proposal fits epsilon 4",
    "  poorly.",
    "* b-min-sep for users of two examples that wait by themselves. One upper bound takes the coins for those of",
    "  Poisson sampling, as if the examples did not wait. The other starts from the bound for one example and",
    "  goes through a chain of neighbours. No upper bound of several renewal processes at once is computed yet,",
    "  and they are not sampled. In the lower bound both examples have equal gradients, which are the worst. It",
    "  is a sum over rows with I and BSR 4. Otherwise it is a linear statistic, which loses what single rows",
    "  tell.",
    "* Batches of exactly one size, drawn without replacement, if the example is zeroed out. The worst dataset is",
    "  not known. The upper bound takes steps by themselves, or the example for a replaced one, whose worst",
    "  dataset is known at every ratio ([fixed sizes](../theory/fixed-size.md)). With correlated noise, the",
    "  batches are taken as known.",
    "* Shuffled batches. No amplification of much use is proved ([thresholds](../theory/shuffle-thresholds.md)).",
    "  With correlated noise, nobody has analysed them.",
    "* Overlapping columns, without sampling. The upper bound works on windows, and loses what the",
    "  participations in other windows tell. The lower bound is a linear statistic, which loses what single rows",
    "  tell. These cells were measured before columns were fitted to the noise in question, which lowers the upper",
    "  bounds by .1 to 6.7 percent on 49 plans of Poisson, cyclic Poisson and trees: the gaps are smaller now.",
    "* Bins at epsilon 2 and above with BSR 16, BISR 4 and trees, without sampling. Moments lose at low noise.",
    "  Moving averages are for few bands, and columns of BISR never end.",
)
"""Lines that follow the tables."""


@dataclass(frozen=True)
class Answer:
    """One line of the file.

    Attributes:
        sampler, strategy, epsilon: the cell.
        kind: "deterministic" or "sampled".
        noise_multiplier: 0 where the combination has no analysis.
        lower, upper: the bounds on epsilon.
        lower_method, upper_method: the accountants that gave them.
        seconds: of the wall clock, calibration included.
    """

    sampler: str
    strategy: str
    epsilon: float
    kind: str
    noise_multiplier: float
    lower: float
    upper: float
    lower_method: str
    upper_method: str
    seconds: float

    @property
    def cell(self) -> tuple[str, str, float, str]:
        """What identifies the line."""
        return self.sampler, self.strategy, self.epsilon, self.kind

    @property
    def shown(self) -> str:
        """The gap ``upper / lower - 1`` in percent, for a table."""
        if not self.noise_multiplier:
            return "none"
        if self.lower <= 0.0:
            return "one side"
        gap = 100.0 * (self.upper / self.lower - 1.0)
        return f"{gap:.3g}" if gap >= LEAST_SHOWN else f"< {LEAST_SHOWN:g}"


def mechanism(sampler: str, strategy: str, noise_multiplier: float | None = None) -> hs.Mechanism:
    """The mechanism of a cell."""
    drawn, unit = SAMPLERS[sampler]
    return hs.Mechanism(strategy=STRATEGIES[strategy], sampler=drawn, unit=unit, noise_multiplier=noise_multiplier)


def _answer(cell: tuple[str, str, float], kind: str, certificate: hs.Certificate, seconds: float) -> Answer:
    bounds, method = certificate.bounds, certificate.method
    return Answer(
        *cell,
        kind,
        certificate.mechanism.sigma,
        bounds.lower or 0.0,
        bounds.upper,
        method.lower or "none",
        method.upper,
        seconds,
    )


def measured(cell: tuple[str, str, float]) -> Answer:
    """The smallest noise multiplier that deterministic bounds certify, and the lower bound there."""
    sampler, strategy, epsilon = cell
    started = monotonic()
    try:
        run = mechanism(sampler, strategy)
        certificate = hs.calibrate_and_certify(run, epsilon=epsilon, delta=DELTA)
    except (UnsupportedError, CannotCertifyError):
        return _none(cell, monotonic() - started)
    return _answer(cell, "deterministic", certificate, monotonic() - started)


def _none(cell: tuple[str, str, float], seconds: float) -> Answer:
    return Answer(*cell, "deterministic", 0.0, 0.0, inf, "none", "none", seconds)


def measured_near(cell: tuple[str, str, float], start: float) -> Answer:
    """Both bounds at a noise multiplier whose upper bound is within NEAR of epsilon: secants, in logarithms."""
    sampler, strategy, epsilon = cell
    started, slope = monotonic(), SLOPE
    noise, before = start, None
    for _ in range(ATTEMPTS):
        try:
            certificate = hs.certify(mechanism(sampler, strategy, noise), delta=DELTA)
        except (UnsupportedError, CannotCertifyError):
            return _none(cell, monotonic() - started)
        off = log(certificate.bounds.upper / epsilon)
        if abs(off) <= NEAR:
            break
        if before is not None and noise != before[0] and off != before[1]:
            slope = min((off - before[1]) / log(noise / before[0]), -0.2)
        before = noise, off
        noise = float(f"{noise * exp(-off / slope):.4g}")
    return _answer(cell, "deterministic", certificate, monotonic() - started)


def start_of(known: dict[tuple[str, str, float, str], Answer], cell: tuple[str, str, float]) -> float | None:
    """Where the row's noise multiplier at the nearest epsilon moves to; None if the row is empty.

    It moves as that of independent noise does, and by the usual slope where that is not known.
    """
    noise_multipliers = {
        epsilon: answer.noise_multiplier for epsilon in EPSILONS if (answer := _calibrated(known, *cell[:2], epsilon))
    }
    if not noise_multipliers:
        return None
    nearest = min(noise_multipliers, key=lambda epsilon: abs(log(epsilon / cell[2])))
    ends = [_calibrated(known, cell[0], "I", epsilon) for epsilon in (cell[2], nearest)]
    if ends[0] and ends[1]:
        moved = ends[0].noise_multiplier / ends[1].noise_multiplier
    else:
        moved = (cell[2] / nearest) ** (1.0 / SLOPE)
    return float(f"{noise_multipliers[nearest] * moved:.4g}")


def _calibrated(
    known: dict[tuple[str, str, float, str], Answer], sampler: str, strategy: str, epsilon: float
) -> Answer | None:
    answer = known.get((sampler, strategy, epsilon, "deterministic"))
    return answer if answer is not None and answer.noise_multiplier else None


def sampled(cell: tuple[str, str, float], noise_multiplier: float, budget: float, workers: int) -> Answer:
    """Both bounds at a noise multiplier, Monte Carlo allowed, on ``workers`` processes."""
    sampler, strategy, _ = cell
    run = mechanism(sampler, strategy, noise_multiplier)
    started = monotonic()
    with executor(workers=workers) as spread:
        settings = hs.MonteCarlo(seed=1, executor=spread)
        certificate = hs.certify(run, delta=DELTA, budget=budget, monte_carlo=settings)
    return _answer(cell, "sampled", certificate, monotonic() - started)


def cells(only: str) -> list[tuple[str, str, float]]:
    """The cells whose name, as in ``Poisson .01, BSR 4, epsilon=2``, contains a text."""
    every = product(SAMPLERS, STRATEGIES, EPSILONS)
    return [cell for cell in every if only in f"{cell[0]}, {cell[1]}, epsilon={cell[2]:g}"]


def page(answers: Iterable[Answer]) -> str:
    """The page docs/reference/gaps.md."""
    known = {answer.cell: answer for answer in answers}
    text = [
        "# How far apart the two sides are",
        "",
        "The tables show the gap between the two bounds on epsilon, `upper / lower - 1`, in percent. All runs have",
        "1,000 steps, and delta is 1e-5. In each column the noise multiplier is the one whose deterministic upper",
        "bound is the epsilon of the column, or within 2 percent of it. If that gap is more than 2 percent, a second",
        "number after a slash is the gap with Monte Carlo at the same noise multiplier, in at most two minutes on at",
        "most two cores.",
        "",
        "* **Strategies.** I is independent noise. BSR k and BISR k are banded square roots and banded inverse",
        "  square roots with k bands. BandMF k is the matrix of k bands with the least error. BLT 3 has three",
        "  buffers. Tree restart 5 begins a new tree every 16 steps.",
        "* **Samplers.** Examples take part at a long-run rate of .01. Under b-min-sep 16 the rate is .01176, with a",
        "  coin of .0143 at the steps where the example is available; for users of 2 that coin is .0118. 100 x 10",
        "  means 100 bins and 10 epochs. 10 of 1000 is k-of-t allocation, in 10 of 1,000 steps; without replacement",
        "  it is a batch of exactly 10 of 1,000 examples, one of which is zeroed out, or *replaced* by any other.",
        "* **Cells.** `none` means that nobody has analysed the combination, and `one side` that there is no lower",
        "  bound. An empty cell was not measured.",
        "",
        "`python -m benchmarks.gaps --write` writes this page. Noise multipliers, methods and seconds are in",
        "`benchmarks/gaps.csv`.",
    ]
    for sampler in SAMPLERS:
        lines = []
        for strategy in STRATEGIES:
            shown = [_shown(known, sampler, strategy, epsilon) for epsilon in EPSILONS]
            if any(shown) and set(shown) != {"none"}:
                lines.append(f"| {strategy} | " + " | ".join(shown) + " |")
        if lines:
            text += [
                "",
                f"## {sampler}",
                "",
                "| strategy | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
            ]
            text += ["|---|" + "---|" * len(EPSILONS), *lines]
    text += ["", f"{_summary(known.values())}", *REASONS]
    return "\n".join(text) + "\n"


def _shown(known: dict[tuple[str, str, float, str], Answer], sampler: str, strategy: str, epsilon: float) -> str:
    both = [known.get((sampler, strategy, epsilon, kind)) for kind in ("deterministic", "sampled")]
    return " / ".join(answer.shown for answer in both if answer is not None)


def _summary(answers: Iterable[Answer]) -> str:
    gaps = [
        answer.upper / answer.lower - 1.0
        for answer in answers
        if answer.kind == "deterministic" and answer.lower > 0.0 and isfinite(answer.upper)
    ]
    near = [sum(gap <= limit for gap in gaps) for limit in (0.001, 0.01, 0.05)]
    return (
        f"Of {len(gaps)} measured cells with both sides, {near[0]} are within 0.1 percent without sampling,\n"
        f"{near[1]} within 1 percent and {near[2]} within 5 percent."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the cells that are missing, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaps", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains TEXT")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for Monte Carlo in a cell; 120 by default")
    parser.add_argument("--workers", type=int, default=2, help="processes for Monte Carlo; 2 by default")
    parser.add_argument(
        "--sampled", action="store_true", help="Monte Carlo too, where deterministic bounds leave a gap"
    )
    parser.add_argument(
        "--near",
        type=float,
        metavar="SIGMA",
        help="noise multipliers near enough, from this one on where a row is empty",
    )
    parser.add_argument("--again", action="store_true", help="compute what the file has as well")
    parser.add_argument("--answers", type=Path, default=ANSWERS, metavar="FILE", help="the file of the answers")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from the file and compute nothing")
    options = parser.parse_args(arguments)
    known = read(options.answers, Answer)
    if options.write:
        PAGE.write_text(page(known.values()), encoding="utf-8")
        return 0
    chosen = cells(options.only)
    if not chosen:
        print(f"No cell's name contains {options.only!r}.", file=sys.stderr)
        return 2
    for cell in chosen:
        answer = known.get((*cell, "deterministic"))
        if answer is None or options.again:
            start = None if options.near is None else start_of(known, cell) or options.near
            answer = measured(cell) if start is None else measured_near(cell, start)
            known[answer.cell] = answer
            _report(options.answers, answer)
        open_cell = answer.noise_multiplier and answer.upper > 1.02 * answer.lower
        if options.sampled and open_cell and (options.again or (*cell, "sampled") not in known):
            _report(options.answers, sampled(cell, answer.noise_multiplier, options.budget, options.workers))
    return 0


def _report(file: Path, answer: Answer) -> None:
    append(file, answer)
    print(
        f"{answer.sampler}, {answer.strategy}, epsilon={answer.epsilon:g}, {answer.kind}: "
        f"sigma {answer.noise_multiplier:.5g} [{answer.lower:.5g}, {answer.upper:.5g}] "
        f"{answer.shown} % {answer.seconds:.1f} s "
        f"{answer.upper_method}, {answer.lower_method}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
