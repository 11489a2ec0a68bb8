"""hockeystick state: what the user says, in a certificate."""

from typing import Annotated

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened


def command(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="Certificate file.", show_default=False)],
    label: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the run is called, in one line.", show_default=False)
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(
            metavar="YYYY-MM-DD", help="Date of the run; without this option there is none.", show_default=False
        ),
    ] = None,
    num_examples: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Size of the data set.", show_default=False)
    ] = None,
    clipping_norm: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Norm that gradients are clipped to.", show_default=False)
    ] = None,
    normaliser: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="What noisy sums are divided by.", show_default=False)
    ] = None,
    tuning: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What was tuned on the same data, and how, in one line.", show_default=False),
    ] = None,
    other_releases: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What else was released from the data, in one line.", show_default=False),
    ] = None,
    asserted: Annotated[
        list[str] | None,
        typer.Option(
            "--assert", metavar="NAME=EVIDENCE", help="An assumption that you assert, and the evidence for it."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the certificate here; by default it replaces CERTIFICATE.")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Add your own statements to a certificate.

    They are marked as yours. Verification checks that they are consistent with the mechanism, not that they are true.
    """
    from hockeystick.certificate import Certificate, Statements
    from hockeystick.certification.description import state
    from hockeystick.files import check_writable
    from hockeystick.report.certificate import shown

    loaded = Certificate.load(certificate)
    if not isinstance(loaded, Certificate):
        raise UnsupportedError("A certificate of format 1 has no statements; certify its mechanism again.")
    path = certificate if out is None else out
    check_writable(path)
    given = {
        "label": label,
        "date": date,
        "num_examples": None if num_examples is None else _whole("--num-examples", num_examples),
        "clipping_norm": None if clipping_norm is None else common.number("--clipping-norm", clipping_norm),
        "normaliser": None if normaliser is None else common.number("--normaliser", normaliser),
        "tuning": tuning,
        "other_releases": other_releases,
        "asserted": loaded.statements.asserted | dict(_named(statement) for statement in asserted or ()),
    }
    if all(value is None for name, value in given.items() if name != "asserted") and not asserted:
        raise InvalidInputError(
            "There is nothing to state; give --label, --date or another option that says something."
        )
    kept = loaded.statements.model_dump() | {name: value for name, value in given.items() if value is not None}
    stated = state(loaded, Statements(**kept))
    stated.save(path)
    if json:
        common.emit_json(
            {"kind": "certificate", "out": path, "certificate": stated.content() | {"digest": stated.digest}}
        )
    else:
        common.emit(shown(stated))


def _whole(name: str, text: str) -> int:
    value = common.number(name, text)
    if not value.is_integer():
        raise InvalidInputError(f"The {name!r} option must be a whole number. Got {shortened(text)} instead.")
    return int(value)


def _named(text: str) -> tuple[str, str]:
    """An assumption and its evidence."""
    name, equals, evidence = text.partition("=")
    if not equals or not evidence:
        raise InvalidInputError(f"The '--assert' option must be NAME=EVIDENCE. Got {shortened(text)} instead.")
    return name, evidence
