"""Re-deriving what a certificate claims from stored statistics, or from drawing every sample again."""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

import numpy as np

from hockeystick.bounds import Question
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.monte_carlo.claim import MonteCarloClaim, RunClaim
from hockeystick.monte_carlo.confidence import LARGEST_BET
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import in_this_process, run_chunk
from hockeystick.monte_carlo.statistics import Tally, failure_spent
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import KERNELS, Chunk, Ledger, Run
from hockeystick.settings import MonteCarlo
from hockeystick.types import Side

TOLERANCE = 1e-6
"""Relative difference in the statistics of a chunk that another machine's mathematical library may make."""
REDRAWN = 8
"""Chunks of each run that are drawn again when the others are taken from stored evidence."""


def rederived(
    pair: DominatingPair,
    question: Question,
    claim: MonteCarloClaim,
    options: MonteCarlo,
    deadline: Deadline,
    evidence: Ledger | None = None,
    redrawn: int = REDRAWN,
) -> Estimation:
    """The estimation that a claim describes: every number in it is checked, no proposal or fraction is chosen anew.

    Args:
        claim: its runs are all about this pair.
        options: its executor draws chunks; its failure probability is that of the claim.
        evidence: the stored chunks; without it all of them are drawn again.
        redrawn: how many of the stored chunks of each run, chosen at random, are drawn again and compared.

    Raises: VerificationError naming what does not follow.
    """
    result = Estimation(pair, question, options, deadline, claim.statement, closed=claim.closed)
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
        proposal = _proposal(pair, one.run)
        tally = (
            _drawn(proposal, one, options, deadline)
            if evidence is None
            else _stored(proposal, one, evidence, redrawn, deadline)
        )
        result.tallies.append(tally)
    result.learn_known()
    return result


def check_nodes(proposal: Proposal, run: Run) -> None:
    """The proved largest values and the fractions of a run have to be right; raises VerificationError."""
    for node in run.nodes:
        read = max(node.epsilon - proposal.loss_error, 0.0) if node.side is Side.UPPER else node.epsilon
        if node.side not in proposal.sides:
            raise VerificationError(f"The proposal {run.proposal!r} gives no {node.side.value} bounds.")
        if not proposal.largest(read) <= node.largest:
            raise VerificationError(
                f"The 'largest' field of a node of {run.proposal!r} claims {node.largest!r}, "
                f"but the proved value is {proposal.largest(read)!r}."
            )
        if node.side is Side.UPPER and node.theta * node.largest > LARGEST_BET * (1.0 + 1e-12):
            raise VerificationError(
                f"The 'theta' field of a node must be at most {LARGEST_BET} / largest. Got {node.theta!r} instead."
            )


def _proposal(pair: DominatingPair, run: Run) -> Proposal:
    if run.kernels != KERNELS:
        raise VerificationError(
            f"The 'monte_carlo.runs.kernels' field says {run.kernels}; this version draws with kernels {KERNELS} "
            f"and cannot draw these samples again."
        )
    try:
        proposal = family_of(pair).build(pair, run.direction, run.proposal, run.parameters)
    except InvalidInputError as error:
        raise VerificationError(str(error)) from None
    check_nodes(proposal, run)
    return proposal


def _drawn(proposal: Proposal, claim: RunClaim, options: MonteCarlo, deadline: Deadline) -> Tally:
    tally = Tally.empty(claim.run)
    with closing((options.executor or in_this_process)(proposal, claim.run, range(claim.chunks))) as chunks:
        for chunk in chunks:
            tally.add(chunk)
            deadline.tick()
    return tally


def _stored(proposal: Proposal, claim: RunClaim, evidence: Ledger, redrawn: int, deadline: Deadline) -> Tally:
    run, tally = claim.run, Tally.empty(claim.run)
    again = set(_sample(claim.chunks, redrawn))
    for chunk in islice(evidence.chunks(run), claim.chunks):
        if chunk.stream in again:
            compare(run, chunk, run_chunk(proposal, run, chunk.stream))
            deadline.tick()
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
