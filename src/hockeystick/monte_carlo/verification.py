"""Derive again what a certificate claims, from stored statistics or by drawing every sample again."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice

import numpy as np

from hockeystick.bounds import Profile, Question
from hockeystick.claim import MonteCarloClaim, RunClaim
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.monte_carlo.confidence import LARGEST_BET, off_grid
from hockeystick.monte_carlo.estimation import CHUNK_SIZES, SMALLEST_BOUND, Estimation
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.forgery import redraws
from hockeystick.monte_carlo.proposals import Proposal, rounded
from hockeystick.monte_carlo.runs import MARGIN, in_this_process
from hockeystick.monte_carlo.statistics import Tally, failure_spent
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import KERNELS, Chunk, Ledger, Run
from hockeystick.settings import MonteCarlo
from hockeystick.types import Direction, Side

TOLERANCE = 1e-6
"""Relative difference in the statistics of a chunk that another machine's mathematical library may make."""
OFF_GRID = 1e-6
"""Steps that the rounding of another machine may move a fraction by."""


def rederived(
    pair: DominatingPair,
    question: Question,
    claim: MonteCarloClaim,
    options: MonteCarlo,
    deadline: Deadline,
    evidence: Ledger | None = None,
    known_upper: Mapping[Direction, Profile] | None = None,
) -> Estimation:
    """The estimation that a claim describes: every number in it is checked, no proposal or fraction is chosen anew.

    Args:
        claim: its runs are all about this pair.
        options: its executor draws chunks; its failure probability is that of the claim.
        evidence: the stored chunks, so many of which are drawn again, chosen at random, that forged ones which move a
            bound are found (:mod:`hockeystick.monte_carlo.forgery`); without it all of them are drawn again.
        known_upper: deterministic upper bounds of the pair, as for the estimation itself.

    Raises: VerificationError naming what does not follow.
    """
    result = Estimation(pair, question, options, deadline, claim.statement, known_upper=known_upper or {})
    runs = [run_claim.run for run_claim in claim.runs]
    if len({run.key for run in runs}) < len(runs):
        raise VerificationError("The 'monte_carlo.runs' field names a run twice.")
    spent = failure_spent(runs) if runs else 0.0
    if spent > claim.failure_probability * (1.0 + 1e-12):
        raise VerificationError(
            f"The 'monte_carlo.failure_probability' field claims {claim.failure_probability!r}, "
            f"but its runs spend {spent!r}."
        )
    for run_claim in claim.runs:
        proposal = proposal_of(pair, run_claim.run)
        check_design(run_claim.run, proposal)
        tally = (
            _drawn(proposal, run_claim, options, deadline)
            if evidence is None
            else _stored(pair, question, proposal, run_claim, evidence, options, deadline)
        )
        result.tallies.append(tally)
    result.learn_known()
    return result


def check_run(run: Run, proposal: Proposal) -> None:
    """Kernels, proposal, weight bounds and fractions of a run have to be what is proved; raises VerificationError."""
    if run.kernels != KERNELS:
        raise VerificationError(
            f"The 'kernels' field of the run {run.key[:12]} says {run.kernels}; this version draws with kernels "
            f"{KERNELS} and cannot draw its samples again."
        )
    own = proposal.direction, proposal.evidence_name, proposal.parameters
    if (run.direction, run.proposal, run.parameters) != own:
        raise VerificationError(f"The run {run.key[:12]} has a proposal that its pair does not give.")
    for node in run.nodes:
        if node.side not in proposal.sides:
            raise VerificationError(f"The proposal {run.proposal!r} gives no {node.side.value} bounds.")
        if not proposal.drawn_bound(node.side, node.epsilon) <= node.weight_bound:
            raise VerificationError(
                f"The 'weight_bound' field of a node of {run.proposal!r} claims {node.weight_bound!r}, "
                f"but the proved value is {proposal.drawn_bound(node.side, node.epsilon)!r}."
            )
        if node.side is Side.UPPER and node.theta * node.weight_bound > LARGEST_BET * (1.0 + 1e-12):
            raise VerificationError(
                f"The 'theta' field of a node must be at most {LARGEST_BET} / weight_bound. Got {node.theta!r} instead."
            )


def check_design(run: Run, proposal: Proposal) -> None:
    """A run has to be designed as an estimation designs one; raises VerificationError.

    The samples follow from the seed and the subject, but which of them count, and how, is up to the design. On these
    grids the designs are few, and whoever tries them all for a better bound has that many chances to fail
    (docs/theory/monte-carlo/evidence.md).
    """
    fewest, most = CHUNK_SIZES
    if not (fewest <= run.chunk_size <= most and run.chunk_size.bit_count() == 1):
        raise VerificationError(
            f"The 'chunk_size' field of a run must be a power of 2 from {fewest} to {most}. "
            f"Got {run.chunk_size} instead."
        )
    for name, value in run.parameters.items():
        if name not in proposal.whole and value != rounded(value):
            raise VerificationError(f"The {name!r} parameter of a run must have three digits. Got {value!r} instead.")
    for node in run.nodes:
        if off_grid(node.theta, node.weight_bound) > OFF_GRID:
            raise VerificationError(f"The 'theta' field of a node is not one that is proposed. Got {node.theta!r}.")
        proved = proposal.drawn_bound(node.side, node.epsilon)
        if node.weight_bound > max(proved, SMALLEST_BOUND) * (1.0 + 2.0 * MARGIN):
            raise VerificationError(
                f"The 'weight_bound' field of a node of {run.proposal!r} claims {node.weight_bound!r}, "
                f"more than the proved {proved!r} and its room for rounding."
            )


def proposal_of(pair: DominatingPair, run: Run) -> Proposal:
    """The proposal of a run, built again from its pair and checked; raises VerificationError."""
    try:
        proposal = family_of(pair).build(pair, run.direction, run.proposal, run.parameters)
    except InvalidInputError as error:
        raise VerificationError(f"The run {run.key[:12]} cannot be drawn again: {error}") from None
    check_run(run, proposal)
    return proposal


def _drawn(proposal: Proposal, claim: RunClaim, options: MonteCarlo, deadline: Deadline) -> Tally:
    tally = Tally.empty(claim.run)
    with closing((options.executor or in_this_process)(proposal, claim.run, range(claim.chunks))) as chunks:
        for chunk in chunks:
            tally.add(chunk)
            deadline.tick()
    return tally


def _stored(
    pair: DominatingPair,
    question: Question,
    proposal: Proposal,
    claim: RunClaim,
    evidence: Ledger,
    options: MonteCarlo,
    deadline: Deadline,
) -> Tally:
    """The tally of stored chunks, an unpredictable sample of which is drawn again. Memory: their sums and logs."""
    run, tally, kept = claim.run, Tally.empty(claim.run), []
    for chunk in islice(evidence.chunks(run), claim.chunks):
        tally.add(chunk)
        kept.append(replace(chunk, cells=chunk.cells[:0], counts=chunk.counts[:0]))
    if tally.chunks < claim.chunks:
        raise VerificationError(
            f"The evidence holds {tally.chunks} of the {claim.chunks} chunks of run {run.key[:12]} without a gap."
        )
    chosen = np.random.default_rng().permutation(claim.chunks)[: redraws(tally, kept, question, pair.slack)]
    with closing((options.executor or in_this_process)(proposal, run, chosen.tolist())) as chunks:
        for chunk in chunks:
            compare(run, kept[chunk.stream], chunk)
            deadline.tick()
    return tally


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
        ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=TOLERANCE, atol=1e-300) for ours, theirs in pairs
    )
    if not same:
        raise VerificationError(
            f"The stored chunk {stored.stream} of run {run.key[:12]} is not what its seed gives when drawn again."
        )
