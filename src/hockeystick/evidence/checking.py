"""Draw stored chunks again from their seeds and compare."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hockeystick.deadline import Deadline
from hockeystick.errors import VerificationError
from hockeystick.evidence.rows import short
from hockeystick.evidence.store import EvidenceStore
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import fingerprint, run_chunk
from hockeystick.monte_carlo.verification import check_run, compare, proposal_of
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import Chunk, Run

Cells = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Places along one coordinate, and the number of samples at each."""


@dataclass(frozen=True)
class Redrawn:
    """The chunks of a run that were drawn again and agreed.

    Attributes:
        key: of the run.
        streams: ascending.
        exact: how many have the same sums and logs, bit for bit.
    """

    key: str
    streams: tuple[int, ...]
    exact: int


def redraw(
    store: EvidenceStore,
    pair: DominatingPair,
    runs: Sequence[Run],
    how_many: int,
    rng: np.random.Generator,
    deadline: Deadline | None = None,
) -> list[Redrawn]:
    """Apply :func:`recheck` to several runs about one pair, from which their proposals are built.

    Raises: what :func:`recheck` raises; VerificationError for a run that is about another pair or has a proposal that
        this one does not have; UnsupportedError for a pair that cannot be sampled.
    """
    subjects = {fingerprint(family_of(member), member): member for member in pair.members}
    redrawn = []
    for run in runs:
        if run.subject not in subjects:
            raise VerificationError(f"The run {short(run.key)} is about another mechanism.")
        redrawn.append(recheck(store, run, proposal_of(subjects[run.subject], run), how_many, rng, deadline))
    return redrawn


def recheck(
    store: EvidenceStore,
    run: Run,
    proposal: Proposal,
    how_many: int,
    rng: np.random.Generator,
    deadline: Deadline | None = None,
) -> Redrawn:
    """Draw a random sample of a run's stored chunks again from their seeds and compare the statistics.

    First the run itself is checked (:func:`check_run`), then each chunk (:func:`compare`), its cells up to moves of
    samples by one, as rounding may make, or across a loss of 0.

    When a fraction f of a run's chunks is wrong, all of the chosen ones are good with probability at most
    (1 - f)^how_many.

    Args:
        proposal: the proposal of this run, built again from its pair.
        how_many: chunks to draw; all of them if there are fewer.
        rng: chooses them; seed it afresh, so that the choice is unpredictable.
        deadline: ticks after each chunk.

    Raises: VerificationError naming run and stream; EvidenceError where the store is damaged;
        BudgetExceededError from the deadline.

    """
    check_run(run, proposal)
    stored = sorted(store.streams(run))
    chosen = sorted(int(place) for place in rng.choice(len(stored), min(how_many, len(stored)), replace=False))
    exact = 0
    for stream in (stored[place] for place in chosen):
        kept, drawn = store.chunk(run, stream), run_chunk(proposal, run, stream)
        compare(run, kept, drawn)
        if not same_cells(kept, drawn):
            raise VerificationError(
                f"The stored chunk {stream} of run {short(run.key)} has other cells than its seed gives."
            )
        exact += np.array_equal(kept.sums, drawn.sums) and np.array_equal(kept.logs, drawn.logs)
        if deadline is not None:
            deadline.tick()
    return Redrawn(key=run.key, streams=tuple(stored[place] for place in chosen), exact=exact)


def same_cells(chunk: Chunk, other: Chunk) -> bool:
    """Whether moving samples by at most one cell in each coordinate may explain the difference."""
    return all(
        _covers(first, second, column, sign)
        for first, second in ((chunk, other), (other, chunk))
        for column in (0, 1)
        for sign in (1, -1)
    )


def _covers(chunk: Chunk, other: Chunk, column: int, sign: int) -> bool:
    """Whether ``other`` has, from one cell before each place on, at least as many samples as ``chunk`` from there on.

    Samples in the first cells of loss are left out: in ``other`` they may have no positive loss, and so no cell.
    """
    sure = chunk.cells[:, 1] >= 1
    places, wanted = _from_there_on(sign * chunk.cells[sure, column], chunk.counts[sure])
    others, reached = _from_there_on(sign * other.cells[:, column], other.counts)
    return bool((wanted <= np.append(reached, 0)[np.searchsorted(others, places - 1)]).all())


def _from_there_on(places: NDArray[np.int32], counts: NDArray[np.int64]) -> Cells:
    """The places that occur, ascending, and the number of samples there or beyond."""
    order = np.argsort(places, kind="stable")
    distinct, first = np.unique(places[order], return_index=True)
    reached = np.cumsum(counts[order][::-1])[::-1]
    return distinct.astype(np.int64), reached[first]
