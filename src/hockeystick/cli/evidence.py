"""hockeystick evidence: inspect, merge, verify and prune stores of Monte Carlo evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common
from hockeystick.errors import EvidenceError, InvalidInputError, VerificationError, shortened
from hockeystick.report.document import aligned

if TYPE_CHECKING:
    from hockeystick.certificate import CertificateBase
    from hockeystick.claim import RunClaim
    from hockeystick.evidence import EvidenceStore, Redrawn, RunSummary
    from hockeystick.mechanism import Mechanism
    from hockeystick.samples import Run

app = typer.Typer(help="Stored Monte Carlo evidence: list, show, merge, verify, prune.", rich_markup_mode=None)

StorePath = Annotated[str, typer.Argument(metavar="FILE", help="Store of evidence.", show_default=False)]


@app.command("list")
def list_(file: StorePath, json: common.JsonOption = False) -> None:
    """List the runs of a store."""
    from hockeystick.evidence import EvidenceStore

    with EvidenceStore.open(file, read_only=True) as store:
        summaries = store.runs()
    if json:
        common.emit_json({"runs": [_run_json(summary) for summary in summaries]})
        return
    rows = [("run", "about", "direction", "proposal", "chunks", "samples", "stored")]
    rows += [
        (
            summary.key[:12],
            summary.label or "-",
            summary.run.direction.value,
            summary.run.proposal,
            str(summary.chunks),
            str(summary.chunks * summary.run.chunk_size),
            summary.created_at,
        )
        for summary in summaries
    ]
    common.emit(aligned(rows) if summaries else "no runs")


@app.command("show")
def show(
    file: StorePath,
    key: Annotated[str, typer.Argument(metavar="[KEY]", help="Prefix of the keys of the runs to show.")] = "",
    json: common.JsonOption = False,
) -> None:
    """Show what determines the runs of a store, and their statistics."""
    from hockeystick.evidence import EvidenceStore

    with EvidenceStore.open(file, read_only=True) as store:
        shown = [_statistics(store, summary) for summary in _matching(store.runs(), key)]
    if json:
        common.emit_json({"runs": shown})
    elif not shown:
        common.emit("no runs")
    for run in () if json else shown:
        common.emit(_run_text(run))


@app.command("merge")
def merge(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Store to merge into; created if missing.")],
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Stores to merge.", show_default=False)],
    json: common.JsonOption = False,
) -> None:
    """Merge the chunks of other stores into a store.

    If two stores contradict each other, nothing is merged.
    """
    from hockeystick.evidence import EvidenceStore

    for source in sources:  # before a target is made
        EvidenceStore.open(source, read_only=True).close()
    with EvidenceStore.open(target) as store:
        added = store.merge(*sources)
        summaries = store.runs()
    chunks = sum(summary.chunks for summary in summaries)
    if json:
        common.emit_json({"added": added, "runs": len(summaries), "chunks": chunks})
    else:
        common.emit(f"{_several(added, 'chunk')} added; {target} has {_counted(len(summaries), chunks)}")


@app.command("verify")
def verify(
    file: StorePath,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", help="Check the runs of this certificate, and redraw some of their chunks."),
    ] = None,
    plan: Annotated[str | None, typer.Option("--plan", help="Redraw chunks of the runs of this plan.")] = None,
    noise_multiplier: common.NoiseOption = None,
    chunks: Annotated[
        str, typer.Option("--chunks", metavar="NUMBER", help="Chunks of each run to redraw, chosen at random.")
    ] = "4",
    budget: common.VerifyBudgetOption = "600",
    matrix: common.MatrixOption = None,
    json: common.JsonOption = False,
) -> None:
    """Check every page and every digest of a store.

    With a certificate or a plan it also draws some chunks again and compares.
    """
    from hockeystick.certificate import Certificate
    from hockeystick.evidence import EvidenceStore
    from hockeystick.plan import Plan

    how_many = _whole_number("--chunks", chunks)
    if certificate is not None and (plan is not None or noise_multiplier is not None):
        raise InvalidInputError("The --certificate option cannot be combined with --plan or --noise-multiplier.")
    if plan is None and noise_multiplier is not None:
        raise InvalidInputError("The --noise-multiplier option belongs to --plan, which is missing.")
    if certificate is None and matrix is not None:
        raise InvalidInputError("The --matrix option belongs to --certificate, which is missing.")
    claim = None if certificate is None else common.with_matrix(Certificate.load(certificate), matrix)
    claimed = None if claim is None else _claimed(claim, str(certificate))
    mechanism = None if claim is None else claim.mechanism
    if plan is not None:
        mechanism = common.mechanism_with_noise(Plan.load(plan), noise_multiplier)
    with EvidenceStore.open(file, read_only=True) as store, common.working("verifying", budget, mechanism) as deadline:
        health = store.check()
        redrawn = None
        if mechanism is not None:
            mechanism = store.pinned(mechanism)
            redrawn = _redraw(store, mechanism, claimed, how_many, deadline)
    if json:
        content = {"intact": True, "runs": health.runs, "chunks": health.chunks, "gaps": health.gaps}
        again = None if redrawn is None else [_redrawn_json(run) for run in redrawn]
        common.emit_json(content | {"redrawn": again, "seconds": round(deadline.elapsed(), 4)})
        return
    common.emit(f"intact: {_counted(health.runs, health.chunks)}, all digests match")
    for key, place in health.gaps.items():
        common.emit(f"run {key[:12]}: chunk {place} is missing; what is stored behind it waits for it")
    for run in redrawn or ():
        streams = ", ".join(str(stream) for stream in run.streams)
        common.emit(f"run {run.key[:12]}: drawn again and confirmed: {streams} ({run.exact} bit for bit)")
    if redrawn is None:
        common.emit("no samples were drawn again; give --certificate or --plan, which say what to draw from")


@app.command("prune")
def prune(
    file: StorePath,
    certificate: Annotated[
        list[str] | None, typer.Option("--certificate", help="Keep only the runs of this certificate (repeatable).")
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="KEY", help="Drop the run whose key has this prefix (repeatable)."),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Drop whole runs from a store.

    It drops the runs that no given certificate names, or the runs with the given keys.
    """
    from hockeystick.certificate import Certificate
    from hockeystick.evidence import EvidenceStore

    if bool(certificate) == bool(run):
        raise InvalidInputError("Either --certificate or --run must be given, and not both.")
    keep = {claimed.run.key for path in certificate or () for claimed in _claimed(Certificate.load(path), path)}
    with EvidenceStore.open(file, read_only=True) as store:
        drop = [_only(store.runs(), key).key for key in run or ()]
    with EvidenceStore.open(file) as store:
        gone = store.prune(drop=drop) if run else store.prune(keep=keep)
        left = store.runs()
    if json:
        common.emit_json({"dropped": [summary.key for summary in gone], "kept": [summary.key for summary in left]})
        return
    for summary in gone:
        common.emit(f"dropped run {summary.key[:12]} with {_several(summary.chunks, 'chunk')}")
    common.emit(f"{file} has {_counted(len(left), sum(summary.chunks for summary in left))}")


def _redraw(
    store: "EvidenceStore", mechanism: "Mechanism", claimed: "Sequence[RunClaim] | None", how_many: int, deadline: Any
) -> "list[Redrawn]":
    """Draw chunks again: of the runs of a certificate, which have to be there, or of all that are about a plan."""
    import numpy as np

    from hockeystick.evidence import redraw
    from hockeystick.monte_carlo.families import family_of
    from hockeystick.monte_carlo.runs import fingerprint
    from hockeystick.pairs.registry import dominating_pair

    pair = dominating_pair(mechanism)
    if claimed is None:
        subject = fingerprint(family_of(pair), pair)
        runs = [run for run in (summary.run for summary in store.runs()) if run.subject == subject]
        if not runs:
            raise InvalidInputError("The plan's mechanism is not what any run of this store is about.")
    else:
        runs = [_present(store, run) for run in claimed]
    return redraw(store, pair, runs, how_many, np.random.default_rng(), deadline)


def _present(store: "EvidenceStore", claimed: "RunClaim") -> "Run":
    """A run of which the store has the chunks that a certificate used."""
    chunks = next((summary.prefix for summary in store.runs() if summary.key == claimed.run.key), 0)
    if chunks < claimed.chunks:
        raise VerificationError(
            f"The certificate uses {claimed.chunks} chunks of the run {claimed.run.key[:12]}, and this store has "
            f"{chunks} of them."
        )
    return claimed.run


def _claimed(certificate: "CertificateBase", path: str) -> "Sequence[RunClaim]":
    """The runs that a certificate names."""
    if certificate.monte_carlo is None or not certificate.monte_carlo.runs:
        raise InvalidInputError(f"The certificate {shortened(path)} names no runs: its bounds rest on no samples.")
    return certificate.monte_carlo.runs


def _matching(summaries: "Sequence[RunSummary]", key: str) -> "list[RunSummary]":
    """The runs whose key begins in this way; there has to be one unless nothing is asked for."""
    matching = [summary for summary in summaries if summary.key.startswith(key.lower())]
    if key and not matching:
        raise InvalidInputError(f"The key must be the beginning of a run's key. Got {shortened(key)} instead.")
    return matching


def _only(summaries: "Sequence[RunSummary]", key: str) -> "RunSummary":
    matching = _matching(summaries, key)
    if not key or len(matching) != 1:
        raise InvalidInputError(
            f"The --run option must be the beginning of one run's key. Got {shortened(key)} instead, which "
            f"{len(matching)} runs have."
        )
    return matching[0]


def _run_json(summary: "RunSummary") -> dict[str, Any]:
    run = summary.run
    return {
        "key": summary.key,
        "about": summary.label,
        "direction": run.direction.value,
        "proposal": run.proposal,
        "chunks": summary.chunks,
        "without_gap": summary.prefix,
        "chunk_size": run.chunk_size,
        "stored": summary.created_at,
        "hockeystick_version": summary.code_version,
    }


def _statistics(store: "EvidenceStore", summary: "RunSummary") -> dict[str, Any]:
    """Everything about a run, and the statistics of its chunks without a gap. Memory: one chunk."""
    import numpy as np

    run = summary.run
    sums, logs, largest, samples = np.zeros(len(run.nodes)), np.zeros(len(run.nodes)), 0.0, 0
    for chunk in store.chunks(run):
        sums, logs, samples = sums + chunk.sums, logs + chunk.logs, samples + chunk.samples
        largest = max(largest, chunk.largest)
    if not (np.isfinite(sums).all() and np.isfinite(logs).all() and np.isfinite(largest)):
        raise EvidenceError(f"The run {summary.key[:12]} has statistics that are not finite.")
    nodes = [
        node.model_dump(mode="json") | {"sum": float(total), "sum_of_logs": float(log)}
        for node, total, log in zip(run.nodes, sums, logs, strict=True)
    ]
    details = {"subject": run.subject, "parameters": run.parameters, "seed": run.seed, "kernels": run.kernels}
    return _run_json(summary) | details | {"samples": samples, "largest_seen": largest, "nodes": nodes}


def _run_text(run: dict[str, Any]) -> str:
    parameters = "".join(f", {name} = {value:g}" for name, value in run["parameters"].items())
    behind = run["chunks"] - run["without_gap"]
    waiting = f" ({behind} more behind a gap)" if behind else ""
    lines = [
        f"run {run['key']}",
        f"  about         {run['about'] or '-'}",
        f"  subject       {run['subject']}",
        f"  samples       {run['direction']}, {run['proposal']}{parameters}",
        f"  seed          {run['seed']} (kernels {run['kernels']})",
        f"  chunks        {run['without_gap']} of {run['chunk_size']} samples without a gap{waiting}",
        f"  stored        {run['stored']} by hockeystick {run['hockeystick_version']}",
        f"  largest seen  {run['largest_seen']:.6g} of what is proved",
    ]
    columns = ("side", "epsilon", "theta", "weight_bound", "failure", "sum", "sum_of_logs")
    rows: list[Sequence[str]] = [("side", "epsilon", "theta", "weight bound", "failure", "sum of Y", "sum of logs")]
    rows += [tuple(_cell(node[column]) for column in columns) for node in run["nodes"]]
    return "\n".join([*lines, *(f"  {line}" for line in aligned(rows).split("\n"))])


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _redrawn_json(redrawn: "Redrawn") -> dict[str, Any]:
    return {"run": redrawn.key, "streams": list(redrawn.streams), "bit_for_bit": redrawn.exact}


def _counted(runs: int, chunks: int) -> str:
    return f"{_several(runs, 'run')} and {_several(chunks, 'chunk')}"


def _several(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _whole_number(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**9:
        raise InvalidInputError(f"The {name!r} option must be a whole number from 1 on. Got {shortened(text)} instead.")
    return value
