"""hockeystick report: one self-contained HTML file about a certificate, a sweep or a comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, shortened

if TYPE_CHECKING:
    from hockeystick.report.html.page import Page

MOST_BYTES = 1 << 26


def command(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Certificate, addendum, or what 'sweep' or 'compare --json' wrote.",
            show_default=False,
        ),
    ],
    addendum: Annotated[
        list[str] | None,
        typer.Option("--addendum", metavar="FILE", help="What an audit found about the certificate; may be repeated."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Leave out what the certificate says should not be published.")
    ] = False,
    budget: Annotated[
        str, typer.Option("--budget", metavar="SECONDS", help="Seconds for everything that is computed again.")
    ] = "60",
    matrix: common.MatrixOption = None,
    out: Annotated[str | None, typer.Option("--out", help="Report file; FILE.html by default.")] = None,
    json: common.JsonOption = False,
) -> None:
    """Write a report as one HTML file that makes no request to any network.

    For a certificate, it verifies the claim and computes curves, other methods and other noise multipliers beside it.
    The numbers of sweeps and comparisons are those of their files.
    """
    from hockeystick.files import check_writable, json_object, read_small_file, write_atomically
    from hockeystick.sweep import HEADER

    path = out if out is not None else Path(subject).stem + ".html"
    check_writable(path)
    common.budget_seconds(budget)
    content = read_small_file(subject, f"file {shortened(subject)}", MOST_BYTES)
    fields = json_object(content)
    results = content.startswith(HEADER.encode())
    summary: dict[str, Any] = {}
    if not results and "format" in fields:
        page, summary = _certificate_page(subject, addendum or [], public, budget, matrix)
    elif addendum or public or matrix is not None:
        raise InvalidInputError(
            f"The options --addendum, --public and --matrix are for certificates. Got {shortened(subject)} instead."
        )
    elif results or "results" in fields:
        page = _sweep_page(subject, content, results)
    elif "bounds" in fields:
        from hockeystick.report.html.comparison import Comparison, comparison_page

        page = comparison_page(Comparison.parse_json(content, f"comparison {shortened(subject)}"), Path(subject).name)
    else:
        raise InvalidInputError(
            f"The file {shortened(subject)} must be a certificate, an addendum, or what 'sweep' or 'compare --json' "
            f"wrote."
        )
    write_atomically(path, page.html())
    if json:
        common.emit_json({"report": path, "kind": page.kind.lower()} | summary)
    else:
        for line in (*(notice.text for notice in page.notices), *page.colophon):
            common.emit(line)
        common.emit(f"report written to {path}")


def _certificate_page(
    subject: str, names: list[str], public: bool, budget: str, matrix: str | None
) -> "tuple[Page, dict[str, Any]]":
    from hockeystick.audit import Addendum
    from hockeystick.certificate import Certificate
    from hockeystick.composition.files import load_claim
    from hockeystick.recomputed import recomputed
    from hockeystick.report.html.certificate import certificate_page

    addenda = [Addendum.load(name) for name in names]
    if common.is_addendum(subject):
        addenda.insert(0, Addendum.load(subject))
        claim: object = addenda[0].certificate
    else:
        claim = load_claim(subject)
    if not isinstance(claim, Certificate):
        raise InvalidInputError(
            f"The file {shortened(subject)} must be a certificate of one run in the present format; "
            f"'hockeystick show' prints other claims."
        )
    for name, one in zip(names, addenda[len(addenda) - len(names) :], strict=True):
        if one.certificate.digest != claim.digest:
            raise InvalidInputError(f"The addendum {shortened(name)} is about another certificate.")
    certificate = common.with_matrix(claim, matrix)
    with common.working("computing the report", budget, certificate.mechanism) as deadline:
        found = recomputed(certificate, budget=common.number("--budget", budget), deadline=deadline)
    refuted = any(one.refuted for one in addenda)
    page = certificate_page(certificate, found, addenda, public=public)
    return page, {"verified": found.verified, "refuted": refuted, "left_out": list(found.left_out)}


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
