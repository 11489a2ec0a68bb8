"""Re-deriving what a certificate claims from stored statistics, or from drawing every sample again."""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

import numpy as np

from hockeystick.accountants.monte_carlo.campaign import Campaign
from hockeystick.accountants.monte_carlo.claim import MonteCarloClaim, RunClaim
from hockeystick.accountants.monte_carlo.confidence import LARGEST_BET
from hockeystick.accountants.monte_carlo.families import family_of
from hockeystick.accountants.monte_carlo.ledger import Ledger
from hockeystick.accountants.monte_carlo.options import MonteCarlo
from hockeystick.accountants.monte_carlo.run import KERNELS, Chunk, Run, run_chunk
from hockeystick.accountants.monte_carlo.statistics import Tally, failure_spent
from hockeystick.accountants.monte_carlo.tilt import Tilt
from hockeystick.bounds import Question
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.pairs.base import DominatingPair
from hockeystick.types import Side
from hockeystick.watch import Watch

TOLERANCE = 1e-6
"""Relative difference in the statistics of a chunk that another machine's mathematical library may make."""
REDRAWN = 8
"""Chunks of each run that are drawn again when the others are taken from stored evidence."""


def rederived(
    pair: DominatingPair,
    question: Question,
    claim: MonteCarloClaim,
    options: MonteCarlo,
    watch: Watch,
    evidence: Ledger | None = None,
    redrawn: int = REDRAWN,
) -> Campaign:
    """The campaign that a claim describes: every number in it is checked, no tilt or fraction is chosen anew.

    Args:
        claim: its runs are all about this pair.
        options: its executor draws chunks; its failure probability is that of the claim.
        evidence: the stored chunks; without it all of them are drawn again.
        redrawn: how many of the stored chunks of each run, chosen at random, are drawn again and compared.

    Raises: VerificationError naming what does not follow.
    """
    result = Campaign(pair, question, options, watch, claim.statement, closed=claim.closed)
    runs = [one.run for one in claim.runs]
    if len({run.key for run in runs}) < len(runs):
        raise VerificationError("The 'monte_carlo.runs' field names a run twice.")
    spent = failure_spent(runs) if runs else 0.0
    if spent > claim.failure_probability * (1.0 + 1e-12):
        raise VerificationError(
            f"The 'monte_carlo.failure_probability' field claims {claim.failure_probability!r}, "
            f"but its runs spend {spent!r}."
        )
    for one in claim.runs:
        tilt = _tilt(pair, one.run)
        tally = _drawn(tilt, one, options, watch) if evidence is None else _stored(tilt, one, evidence, redrawn, watch)
        result.tallies.append(tally)
    result.learn_known()
    return result


def check_nodes(tilt: Tilt, run: Run) -> None:
    """The proved largest values and the fractions of a run have to be right; raises VerificationError."""
    for node in run.nodes:
        read = max(node.epsilon - tilt.loss_error, 0.0) if node.side is Side.UPPER else node.epsilon
        if node.side not in tilt.sides:
            raise VerificationError(f"The tilt {run.tilt!r} gives no {node.side.value} bounds.")
        if not tilt.largest(read) <= node.largest:
            raise VerificationError(
                f"The 'largest' field of a node of {run.tilt!r} claims {node.largest!r}, "
                f"but the proved value is {tilt.largest(read)!r}."
            )
        if node.side is Side.UPPER and node.theta * node.largest > LARGEST_BET * (1.0 + 1e-12):
            raise VerificationError(
                f"The 'theta' field of a node must be at most {LARGEST_BET} / largest. Got {node.theta!r} instead."
            )


def _tilt(pair: DominatingPair, run: Run) -> Tilt:
    if run.kernels != KERNELS:
        raise VerificationError(
            f"The 'monte_carlo.runs.kernels' field says {run.kernels}; this version draws with kernels {KERNELS} "
            f"and cannot draw these samples again."
        )
    try:
        tilt = family_of(pair).build(pair, run.direction, run.tilt, run.parameters)
    except InvalidInputError as error:
        raise VerificationError(str(error)) from None
    check_nodes(tilt, run)
    return tilt


def _drawn(tilt: Tilt, claim: RunClaim, options: MonteCarlo, watch: Watch) -> Tally:
    tally = Tally.empty(claim.run)
    with closing(options.executor(tilt, claim.run, range(claim.chunks))) as chunks:
        for chunk in chunks:
            tally.add(chunk)
            watch.tick()
    return tally


def _stored(tilt: Tilt, claim: RunClaim, evidence: Ledger, redrawn: int, watch: Watch) -> Tally:
    run, tally = claim.run, Tally.empty(claim.run)
    again = set(_sample(claim.chunks, redrawn))
    for chunk in islice(evidence.chunks(run), claim.chunks):
        if chunk.stream in again:
            compare(run, chunk, run_chunk(tilt, run, chunk.stream))
            watch.tick()
        tally.add(chunk)
    if tally.chunks < claim.chunks:
        raise VerificationError(
            f"The evidence holds {tally.chunks} of the {claim.chunks} chunks of run {run.key[:12]} without a gap."
        )
    return tally


def _sample(chunks: int, count: int) -> Sequence[int]:
    """Chunks that nobody could foresee."""
    return [int(i) for i in np.random.default_rng().choice(chunks, size=min(count, chunks), replace=False)]


def compare(run: Run, stored: Chunk, drawn: Chunk) -> None:
    """Raise VerificationError, naming run and stream, when a chunk is not what its seed gives.

    Compared are the number of samples and, to TOLERANCE, the sums, the logs and the largest value; cells are not, as a
    sample may move to the next one.
    """
    pairs = [
        (np.array([stored.samples, stored.largest]), np.array([drawn.samples, drawn.largest])),
        (stored.sums, drawn.sums),
        (stored.logs, drawn.logs),
    ]
    same = all(
        one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=1e-300) for one, other in pairs
    )
    if not same:
        raise VerificationError(
            f"The stored chunk {stored.stream} of run {run.key[:12]} is not what its seed gives when drawn again."
        )
