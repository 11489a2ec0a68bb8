"""Certificates that rest on samples: verified from scratch, from evidence, and refused when something does not follow.

Nothing here is random beyond fixed seeds, except which stored chunks are drawn again; all are right or all wrong.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from many_bands_cases import pair_of

from hockeystick import (
    BandedSquareRoot,
    BMinSep,
    Certificate,
    Interval,
    Mechanism,
    MonteCarlo,
    Poisson,
    Question,
    Settings,
    certify,
)
from hockeystick.accountants import monte_carlo
from hockeystick.certification.verification import verify
from hockeystick.claim import MonteCarloClaim
from hockeystick.errors import VerificationError
from hockeystick.evidence import EvidenceStore
from hockeystick.monte_carlo import estimation
from hockeystick.monte_carlo.confidence import LARGEST_BET
from hockeystick.monte_carlo.far.limits import TAILS, fewest
from hockeystick.monte_carlo.far.subjects import columns_for
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.monte_carlo.subsets.family import FAMILY
from hockeystick.monte_carlo.verification import check_design
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Node, Run
from hockeystick.types import Direction, Side

MECHANISM = Mechanism(sampler=BMinSep(min_sep=3, sampling_prob=0.1, steps=12), noise_multiplier=0.8)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Path]:
    """A certificate and the evidence behind it."""
    path = tmp_path_factory.mktemp("evidence") / "evidence.db"
    with EvidenceStore.open(path) as store:
        options = MonteCarlo(seed=3, ratio=0.05, failure_probability=1e-6, ledger=store)
        certificate = certify(MECHANISM, epsilon=1.0, monte_carlo=options)
    assert certificate.method.upper == certificate.method.lower == "monte_carlo"
    return certificate, path


def claim_of(certificate: Certificate) -> MonteCarloClaim:
    assert certificate.monte_carlo is not None
    return certificate.monte_carlo


def with_claim(certificate: Certificate, **changes: Any) -> Certificate:
    """The same certificate with another claim, sealed again as a forger would."""
    claim = claim_of(certificate).model_copy(update=changes)
    return certificate.model_copy(update={"monte_carlo": claim}).sealed()


def with_run(certificate: Certificate, change: Callable[[Run], Run]) -> Certificate:
    """The same certificate with a change to its first run."""
    first, *others = claim_of(certificate).runs
    return with_claim(certificate, runs=(first.model_copy(update={"run": change(first.run)}), *others))


def with_nodes(certificate: Certificate, side: Side, **factors: float) -> Certificate:
    """The same certificate with the fields of the first run's nodes of a side multiplied."""

    def change(run: Run) -> Run:
        nodes = tuple(
            node.model_copy(update={name: getattr(node, name) * by for name, by in factors.items()})
            if node.side is side
            else node
            for node in run.nodes
        )
        return run.model_copy(update={"nodes": nodes})

    return with_run(certificate, change)


def better(certificate: Certificate) -> Interval:
    """The bounds with an upper end that is a little too good."""
    return certificate.bounds.model_copy(update={"upper": certificate.bounds.upper * 0.999})


def test_it_follows_from_its_seeds_and_from_its_evidence(stored: tuple[Certificate, Path]) -> None:
    certificate, path = stored
    assert certificate.confidence == 1.0 - 1e-6
    assert verify(certificate).bounds == certificate.bounds
    with EvidenceStore.open(path, read_only=True) as store:
        assert verify(certificate, evidence=store).bounds == certificate.bounds


def test_other_evidence_does_not_do(stored: tuple[Certificate, Path], tmp_path: Path) -> None:
    certificate, _ = stored
    with EvidenceStore.open(tmp_path / "other.db") as store, pytest.raises(VerificationError, match="holds 0 of the"):
        verify(certificate, evidence=store)


def test_one_possible_chunk_of_a_few_is_found_when_forged(stored: tuple[Certificate, Path], tmp_path: Path) -> None:
    """With few chunks each moves the bounds, so all of them are drawn again."""
    certificate, path = stored
    (first, *_), forged = claim_of(certificate).runs, tmp_path / "forged.db"
    with EvidenceStore.open(path, read_only=True) as source, EvidenceStore.open(forged) as store:
        for claimed in claim_of(certificate).runs:
            for chunk in source.chunks(claimed.run):
                if claimed is first and chunk.stream == 0:
                    chunk.sums[:] = 0.0
                    chunk.logs[:] = 0.0
                store.add(claimed.run, chunk)
        for _ in range(5):
            with pytest.raises(VerificationError, match=r"stored chunk 0 .* not what its seed gives"):
                verify(certificate, evidence=store)


def test_evidence_that_its_seed_does_not_give_is_refused(stored: tuple[Certificate, Path], tmp_path: Path) -> None:
    """A forger puts the chunks of a luckier run under the run's key: drawing some again shows it."""
    certificate, path = stored
    (first, *_), forged = claim_of(certificate).runs, tmp_path / "forged.db"
    with EvidenceStore.open(path, read_only=True) as source, EvidenceStore.open(forged) as store:
        for claimed in claim_of(certificate).runs:
            for chunk in source.chunks(claimed.run):
                if claimed is first:
                    chunk.sums[:] *= 0.5
                    chunk.logs[:] *= 0.5
                store.add(claimed.run, chunk)
        with pytest.raises(VerificationError, match="not what its seed gives"):
            verify(certificate, evidence=store)


FORGERIES: dict[str, tuple[Callable[[Certificate], Certificate], str]] = {
    "weight bound understated": (
        lambda c: with_nodes(c, Side.UPPER, weight_bound=0.5),
        "'weight_bound' field",
    ),
    "weight bound overstated": (lambda c: with_nodes(c, Side.UPPER, weight_bound=2.0, theta=0.5), "room for rounding"),
    "bets a little moved": (lambda c: with_nodes(c, Side.UPPER, theta=1.0 - 1e-6), "not one that is proposed"),
    "another size of chunks": (
        lambda c: with_run(c, lambda run: run.model_copy(update={"chunk_size": run.chunk_size + 1})),
        "'chunk_size' field",
    ),
    "a parameter a little moved": (
        lambda c: with_run(
            c,
            lambda run: run.model_copy(update={"parameters": run.parameters | {"rate": run.parameters["rate"] + 1e-9}}),
        ),
        "three digits",
    ),
    "bets above what is proved": (lambda c: with_nodes(c, Side.UPPER, theta=1e6), "'theta' field"),
    "failure probabilities raised": (
        lambda c: with_nodes(c, Side.UPPER, failure=1000.0),
        "'monte_carlo.failure_probability' field",
    ),
    "failure probability lowered": (
        lambda c: with_claim(c, failure_probability=1e-9),
        "'monte_carlo.failure_probability' field",
    ),
    "another seed": (lambda c: with_run(c, lambda run: run.model_copy(update={"seed": run.seed + 1})), r"'delta\."),
    "another subject": (
        lambda c: with_run(c, lambda run: run.model_copy(update={"subject": "0" * 64})),
        "not about this mechanism",
    ),
    "other kernels": (lambda c: with_run(c, lambda run: run.model_copy(update={"kernels": 99})), "kernels"),
    "an unknown proposal": (lambda c: with_run(c, lambda run: run.model_copy(update={"proposal": "lucky"})), "lucky"),
    "a run twice": (lambda c: with_claim(c, runs=(*claim_of(c).runs, claim_of(c).runs[0])), "names a run twice"),
    "no runs": (lambda c: with_claim(c, runs=()), r"'(delta\.upper|method\.upper)' field"),
    "no claim": (lambda c: c.model_copy(update={"monte_carlo": None}).sealed(), "'monte_carlo' field is missing"),
    "a better upper bound": (
        lambda c: c.model_copy(
            update={"delta": c.bounds.model_copy(update={"upper": c.bounds.upper * 0.999})}
        ).sealed(),
        r"'delta\.upper'",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries_are_refused(stored: tuple[Certificate, Path], forgery: str) -> None:
    change, message = FORGERIES[forgery]
    forged = Certificate.parse_json(change(stored[0]).model_dump_json())
    with pytest.raises(VerificationError, match=message):
        verify(forged)


def test_whole_numbers_of_a_design_have_any_digits() -> None:
    """Those that are proved are few: blocks of 1,024 opportunities are among them."""
    pair = pair_of(700, 0.01, 30.0)
    limit = fewest(columns_for(pair, Side.UPPER), 1024, TAILS[3])
    parameters = {"order": 2.0, "decay": 0.99, "rate": 0.01, "block": 1024.0, "limit": float(limit)}
    proposal = FAMILY.build(pair, Direction.REMOVE, "far_counted", parameters)
    largest = proposal.drawn_bound(Side.UPPER, 1.0)
    node = Node(side=Side.UPPER, epsilon=1.0, theta=LARGEST_BET / largest, weight_bound=largest, failure=1e-9)
    run = Run(
        subject="0" * 64,
        direction=Direction.REMOVE,
        proposal="far_counted",
        parameters=parameters,
        nodes=(node,),
        chunk_size=estimation.CHUNK_SIZES[0],
        seed=1,
    )
    check_design(run, proposal)
    with pytest.raises(VerificationError, match="three digits"):
        check_design(run.model_copy(update={"parameters": parameters | {"rate": 0.01234}}), proposal)


def test_fewer_chunks_give_what_they_give(stored: tuple[Certificate, Path]) -> None:
    """Stopping earlier is allowed at any time, but then the bounds are those of fewer chunks."""
    certificate, _ = stored
    first, *others = claim_of(certificate).runs
    assert first.chunks > 1
    fewer = with_claim(certificate, runs=(first.model_copy(update={"chunks": 1}), *others))
    with pytest.raises(VerificationError, match=r"'delta\.(upper|lower)'"):
        verify(fewer)


def test_runs_of_the_other_direction_do_not_stand_in(stored: tuple[Certificate, Path]) -> None:
    certificate, _ = stored
    runs = claim_of(certificate).runs
    remove = tuple(claimed for claimed in runs if claimed.run.direction is Direction.REMOVE)
    other = tuple(claimed for claimed in runs if claimed.run.direction is Direction.ADD)
    assert remove
    with pytest.raises(VerificationError):
        verify(with_claim(certificate, runs=other))


@pytest.mark.parametrize("spared", [estimation.SPARED, 0.0])
def test_a_claim_is_derived_again_with_the_costly_bound_only_where_that_spared_add(
    spared: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not spare the samples of add it does not count, at the issuer nor here."""
    run = Mechanism(strategy=BandedSquareRoot(bands=8), sampler=Poisson(sampling_prob=0.05, steps=60))
    pair, question = dominating_pair(run.with_noise(4.0)), Question(delta=1e-4)
    monkeypatch.setattr(estimation, "SPARED", spared)
    costly = monte_carlo.costly_upper(pair)
    assert costly is not None
    monkeypatch.setattr(monte_carlo, "costly_upper", lambda member: replace(costly, seconds=0.0))
    monkeypatch.setattr(monte_carlo, "known_upper", lambda member, settings: {})
    settings = Settings(question=question, monte_carlo=MonteCarlo(seed=1, failure_probability=1e-6), work=2.0)
    issued = monte_carlo.ACCOUNTANT.bounds(pair, [Side.UPPER], settings)[Side.UPPER]
    directions = {claimed.run.direction for claimed in issued.claim.runs}
    assert directions == ({Direction.REMOVE} if spared else set(Direction))
    again, derived = monte_carlo.as_claimed(pair, settings, issued.claim, None, in_this_process)
    bound = again.bounds(pair, [Side.UPPER], derived)[Side.UPPER]
    for direction in Direction:
        for epsilon in (1.0, 1.5, 2.0):
            assert bound.profiles[direction](epsilon) == issued.profiles[direction](epsilon)
    assert 0.0 < issued.profiles[Direction.ADD](2.0) < 1e-4
