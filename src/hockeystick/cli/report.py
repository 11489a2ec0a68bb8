"""hockeystick report: one self-contained HTML file about a claim, a sweep or a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common, sampling
from hockeystick.errors import InvalidInputError, shortened

if TYPE_CHECKING:
    from hockeystick.certificate import AnyCertificate
    from hockeystick.composition.composition import Composition
    from hockeystick.composition.tuning import Tuning
    from hockeystick.report.html.page import Page
    from hockeystick.samples import Ledger

MOST_BYTES = 1 << 26


def command(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Certificate, record of a run, addendum, or what compose, tune, sweep or 'compare --json' wrote.",
            show_default=False,
        ),
    ],
    addendum: Annotated[
        list[str] | None,
        typer.Option(
            "--addendum", metavar="FILE", help="Addendum that an audit of the certificate wrote; may be repeated."
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Leave out what the certificate says should not be published.")
    ] = False,
    budget: Annotated[
        str,
        typer.Option(
            "--budget", metavar="SECONDS", help="Time limit in seconds for everything that is computed again."
        ),
    ] = "60",
    evidence: Annotated[
        str | None,
        typer.Option("--evidence", metavar="FILE", help="Verify Monte Carlo bounds from the samples in this store."),
    ] = None,
    matrix: common.MatrixOption = None,
    out: Annotated[str | None, typer.Option("--out", help="Report file; FILE.html by default.")] = None,
    json: common.JsonOption = False,
) -> None:
    """Write a report as one HTML file.

    The file makes no request to any network. A claim is verified first. The report of one run adds curves, other
    methods and other noise multipliers; the report of several runs adds epsilon at other deltas. For sweeps and
    comparisons, nothing is computed again.
    """
    from hockeystick.files import json_object, read_small_file, write_atomically
    from hockeystick.sweep import HEADER

    path = out if out is not None else Path(subject).stem + ".html"
    common.check_output(path, subject)
    common.budget_seconds(budget)
    content = read_small_file(subject, f"file {shortened(subject)}", MOST_BYTES)
    fields = json_object(content)
    results = content.startswith(HEADER.encode())
    summary: dict[str, Any] = {}
    if not results and "format" in fields:
        with sampling.opened(evidence) as ledger:
            page, summary = _claim_page(subject, addendum or [], public, budget, matrix, ledger)
    elif addendum or public or matrix is not None or evidence is not None:
        raise InvalidInputError(
            f"The options --addendum, --public, --evidence and --matrix are for certificates. "
            f"Got {shortened(subject)} instead."
        )
    elif results or "results" in fields:
        page = _sweep_page(subject, content, results)
    elif "bounds" in fields:
        from hockeystick.report.html.comparison import Comparison, comparison_page

        page = comparison_page(Comparison.parse_json(content, f"comparison {shortened(subject)}"), Path(subject).name)
    else:
        raise InvalidInputError(
            f"The file {shortened(subject)} must be a certificate, a record of a run, an addendum, or what 'compose', "
            f"'tune', 'sweep' or 'compare --json' wrote."
        )
    write_atomically(path, page.html())
    if json:
        common.emit_json({"report": path, "kind": page.kind.lower()} | summary)
    else:
        for line in (*(notice.text for notice in page.notices), *page.colophon):
            common.emit(line)
        common.emit(f"report written to {path}")


def _claim_page(
    subject: str, names: list[str], public: bool, budget: str, matrix: str | None, evidence: "Ledger | None"
) -> "tuple[Page, dict[str, Any]]":
    from hockeystick.audit import Addendum
    from hockeystick.certificate import Certificate, CertificateOfFormat1
    from hockeystick.composition.files import load_claim
    from hockeystick.recomputed import recomputed, recomputed_together
    from hockeystick.report.html.certificate import certificate_page
    from hockeystick.report.html.derived import page_of_claim, page_of_format_1
    from hockeystick.training import RunRecord

    addenda = [Addendum.load(name) for name in names]
    if common.is_addendum(subject):
        addenda.insert(0, Addendum.load(subject))
    record = RunRecord.load(subject) if common.is_record(subject) else None
    if record is not None and record.certificate is None:
        raise InvalidInputError(f"The record {shortened(subject)} has no certificate to report about.")
    if record is not None and record.certificate is not None:
        claim: AnyCertificate | Composition | Tuning = record.certificate
    else:
        claim = addenda[0].certificate if len(addenda) > len(names) else load_claim(subject)
    for name, addendum in zip(names, addenda[len(addenda) - len(names) :], strict=True):
        if addendum.certificate.digest != claim.digest:
            raise InvalidInputError(f"The addendum {shortened(name)} is about another certificate.")
    if public and not isinstance(claim, Certificate):
        raise InvalidInputError(
            f"The option --public is for the certificate of one run, of a format that says what should not be "
            f"published. Got {shortened(subject)} instead."
        )
    if not isinstance(claim, Certificate | CertificateOfFormat1):
        if matrix is not None:
            raise InvalidInputError(f"The option --matrix is for the certificate of one run. Got {shortened(subject)}.")
        for each in claim.certificates:
            common.with_matrix(each, None)  # refuses certificates of matrices in files
        with common.working("computing the report", budget) as deadline:
            together = recomputed_together(claim, deadline=deadline, evidence=evidence)
        return page_of_claim(claim, together), _summary(together.unverified, together.left_out)
    claim = common.with_matrix(claim, matrix)
    with common.working("computing the report", budget, claim.mechanism) as deadline:
        report = recomputed(claim, budget=common.number("--budget", budget), deadline=deadline, evidence=evidence)
    summary = _summary(report.unverified, report.left_out)
    if isinstance(claim, CertificateOfFormat1):
        return page_of_format_1(claim, report), summary
    refuted = any(addendum.refuted for addendum in addenda)
    return certificate_page(claim, report, addenda, public=public, record=record), summary | {"refuted": refuted}


def _summary(unverified: str | None, left_out: Sequence[str]) -> dict[str, Any]:
    reasons = [] if unverified is None else [unverified]
    return {"verified": unverified is None, "left_out": [*reasons, *left_out]}


def _sweep_page(subject: str, content: bytes, results: bool) -> "Page":
    from hockeystick.report.html.sweep import CellOfSweep, SweepResults, sweep_page

    name = f"sweep {shortened(subject)}"
    if not results:
        return sweep_page(SweepResults.parse_json(content, name).results, Path(subject).name)
    from json import dumps

    from hockeystick.cli.sweep import as_json
    from hockeystick.sweep import read_records

    cells = [CellOfSweep.parse_json(dumps(as_json(record))) for record in read_records(subject, name)[0]]
    if not cells:
        raise InvalidInputError(f"The {name} has no results yet.")
    return sweep_page(cells, Path(subject).name)
