"""``python -m benchmarks.work``: the standard seconds that methods plan, beside the processor seconds that they take.

Certify plans its work by rough formulas, the costs of the accountants. Here each method runs alone, on both sides and
with the effort of certify, on balls-in-bins with correlated noise from four bins to two thousand. The constants of
these formulas come from this table: every answer is appended to work.csv, and a test compares the formulas with it.
Monte Carlo draws for both sides together, until they are close: for at most 150 bins, as for more it draws until the
planned sampling is over (32 seconds for 300 bins).

The work of sampling is counted in samples: ``SMALL_RUNS`` are pairs of a few steps, whose proposals are measured for
one sample of a run.

Measure on an idle machine. Kernels are compiled before; what the file has is not measured again.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import process_time

import hockeystick as hs
from benchmarks.answer_files import append, read
from benchmarks.case import forget
from hockeystick.accountants.registry import ACCOUNTANTS, warm_up
from hockeystick.certification.schedule import settings_for
from hockeystick.errors import UnsupportedError
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import run_chunk, seconds_per_sample
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Run
from hockeystick.types import Kind

DELTA = 1e-5
METHODS = ("moment_majorant", "moment_majorant_cells", "monte_carlo")
ANSWERS = Path(__file__).parent / "work.csv"
BOTH = "both"
MOST_SAMPLED = 150
"""Bins."""


def _bins(bins: int, epochs: int, bands: int, noise_multiplier: float, **more: object) -> hs.Mechanism:
    return hs.Mechanism.parse(
        {
            "strategy": {"kind": "banded_square_root", "bands": bands},
            "sampler": {"kind": "balls_in_bins", "bins": bins, "epochs": epochs},
            "noise_multiplier": noise_multiplier,
            **more,
        }
    )


RUNS = {
    "users in 4 bins": _bins(4, 1, 2, 3.0, unit={"kind": "user", "examples_per_user": 2}),
    "4 bins": _bins(4, 1, 2, 2.0),
    "6 bins, twice": _bins(6, 2, 3, 3.0),
    "8 bins": _bins(8, 1, 4, 2.0),
    "12 bins, thrice": _bins(12, 3, 12, 5.0),
    "20 bins, 5 times": _bins(20, 5, 8, 6.0),
    "32 bins, low noise": _bins(32, 1, 4, 1.0),
    "50 bins": _bins(50, 1, 4, 2.0),
    "64 bins, 4 times": _bins(64, 4, 64, 8.0),
    "100 bins, 10 times": _bins(100, 10, 16, 9.0),
    "150 bins, twice": _bins(150, 2, 150, 6.0),
    "300 bins": _bins(300, 1, 16, 3.0),
    "600 bins, twice": _bins(600, 2, 8, 3.0),
    "1000 bins": _bins(1000, 1, 100, 4.0),
    "2000 bins": _bins(2000, 1, 4, 2.0),
}


def _few(strategy: str, sampler: dict[str, object], examples: int = 1) -> hs.Mechanism:
    unit = {"kind": "user", "examples_per_user": examples} if examples > 1 else {"kind": "example"}
    matrix: dict[str, object] = {"kind": strategy} | ({"bands": 2} if strategy == "banded_square_root" else {})
    return hs.Mechanism.parse({"strategy": matrix, "sampler": sampler, "unit": unit, "noise_multiplier": 2.0})


THREE_STEPS: dict[str, object] = {"kind": "poisson", "sampling_prob": 0.3, "steps": 3}
SMALL_RUNS = {
    "2 bins": _few("square_root", {"kind": "balls_in_bins", "bins": 2}),
    "2 bins, independent": _few("identity", {"kind": "balls_in_bins", "bins": 2}),
    "3 bins, twice": _few("identity", {"kind": "random_allocation", "bins": 3, "epochs": 2}),
    "3 steps": _few("banded_square_root", THREE_STEPS),
    "3 steps, tree": _few("binary_tree", THREE_STEPS),
    "users in 3 steps": _few("square_root", THREE_STEPS, 2),
    "users of 3 in 3 steps": _few("binary_tree", THREE_STEPS, 3),
    "6 steps in groups": _few("square_root", {"kind": "cyclic_poisson", "groups": 2, "sampling_prob": 0.3, "steps": 6}),
    "6 steps apart": _few("banded_square_root", {"kind": "b_min_sep", "min_sep": 2, "sampling_prob": 0.2, "steps": 6}),
    "50 steps": _few("square_root", {"kind": "poisson", "sampling_prob": 0.05, "steps": 50}),
}
"""Sampled alone."""
PILOTED, TIMED = 0.05, 65_536
"""Work, in standard seconds, after which the runs of a pair are known, and samples that are timed."""


@dataclass(frozen=True)
class Row:
    """What one method takes for one side, or one sample of a proposal.

    Attributes:
        run: of ``RUNS`` or ``SMALL_RUNS``.
        method: or the direction and the proposal.
        side: or both, of samples.
        seconds: of the processor.
        epsilon: what it says; nan where it refuses, and for one sample.
    """

    run: str
    method: str
    side: str
    seconds: float
    epsilon: float

    @property
    def cell(self) -> tuple[str, str, str]:
        """What identifies the line."""
        return self.run, self.method, self.side


def planned(run: str, method: str) -> float:
    """The cost of one side."""
    return ACCOUNTANTS[method].seconds(dominating_pair(RUNS[run]))


def measured(run: str, method: str, side: str) -> Row:
    """One side, or both, as certify asks for them at ``DELTA``, with nothing known from before."""
    pair, accountant = dominating_pair(RUNS[run]), ACCOUNTANTS[method]
    sampled = hs.MonteCarlo() if accountant.kind is Kind.MONTE_CARLO else None
    settings = settings_for(hs.Question(delta=DELTA), pair, hs.Deadline(), sampled)
    sides = tuple(hs.Side) if side == BOTH else (hs.Side(side),)
    forget("hockeystick")
    started = process_time()
    try:
        epsilon = accountant.bounds(pair, sides, settings)[sides[0]].epsilon(DELTA)
    except UnsupportedError:
        epsilon = float("nan")
    return Row(run, method, side, process_time() - started, epsilon)


def sides_of(run: str, method: str) -> tuple[str, ...]:
    """Which sides are measured, each for itself or both together."""
    if not ACCOUNTANTS[method].joint_analyses:
        return tuple(str(side) for side in hs.Side)
    sampler = RUNS[run].sampler
    return (BOTH,) if isinstance(sampler, hs.BallsInBins) and sampler.bins <= MOST_SAMPLED else ()


def sampled(run: str) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """For every proposal of a small run what is planned for one sample, and a measurement of it."""
    pair = dominating_pair(SMALL_RUNS[run]).members[-1]
    estimation = Estimation(pair, hs.Question(delta=DELTA), hs.MonteCarlo(seed=1), hs.Deadline(), work=PILOTED)
    estimation.sample()
    for tally in estimation.tallies:
        drawn = tally.run.model_copy(update={"chunk_size": TIMED})
        proposal = estimation.family.build(pair, drawn.direction, drawn.proposal, drawn.parameters)
        losses = estimation.pilots.draw(proposal, "work").losses
        seconds = seconds_per_sample(proposal, [node.epsilon for node in drawn.nodes], losses)
        planned_row = Row(run, f"{drawn.direction} {drawn.proposal}", BOTH, seconds, float("nan"))
        yield planned_row, partial(_timed, planned_row, proposal, drawn)


def _timed(row: Row, proposal: Proposal, run: Run) -> Row:
    started = process_time()
    run_chunk(proposal, run, 0)
    return replace(row, seconds=(process_time() - started) / TIMED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    options = parser.parse_args(arguments)
    known = read(options.answers, Row)
    warm_up(RUNS["4 bins"], METHODS)
    for run in RUNS:
        for method in METHODS:
            for side in sides_of(run, method):
                if options.only in run and (run, method, side) not in known:
                    row = measured(run, method, side)
                    append(options.answers, row)
                    print(f"{run}, {method} {side}: {planned(run, method):.2g} planned, {row.seconds:.2g} taken")
    for run in SMALL_RUNS:
        for expected, measure in sampled(run) if options.only in run else ():
            if expected.cell not in known:
                row = measure()
                append(options.answers, row)
                print(f"{run}, {row.method}: {expected.seconds:.2g} planned for a sample, {row.seconds:.2g} taken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
