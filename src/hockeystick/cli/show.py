"""hockeystick show: what a plan or a certificate says, in numbers and with the next commands."""

import json as json_
from typing import Annotated

import typer

from hockeystick.cli import common

SUBJECT = Annotated[
    str, typer.Argument(metavar="FILE", help="Plan file (TOML or JSON), or certificate.", show_default=False)
]


def command(subject: SUBJECT, json: common.JsonOption = False) -> None:
    """Show what follows from a plan (batches, rate, steps, sensitivity) and what to ask next, or a certificate."""
    if _is_certificate(subject):
        _show_certificate(subject, json)
    else:
        _show_plan(subject, json)


def _show_plan(path: str, json: bool) -> None:
    from hockeystick.plan import Plan

    loaded = Plan.load(path)
    with common.say_if_slow("reading the plan and finding its strategy matrix"):
        from hockeystick.report.overview import overview, overview_json, overview_text

        found = overview(loaded, path)
    if json:
        common.emit_json(overview_json(found))
    else:
        common.emit(overview_text(found))


def _show_certificate(path: str, json: bool) -> None:
    from hockeystick.certificate import Certificate

    certificate = Certificate.load(path)
    if json:
        common.emit_json({"kind": "certificate", "certificate": certificate.model_dump(mode="json")})
    else:
        common.emit(str(certificate))


def _is_certificate(path: str) -> bool:
    """Whether a file is JSON that names a format, which plans do not."""
    from hockeystick.certificate import MAX_CERTIFICATE_BYTES
    from hockeystick.errors import shortened
    from hockeystick.files import read_small_file

    raw = read_small_file(path, f"file {shortened(path)}", MAX_CERTIFICATE_BYTES)
    try:
        values = json_.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and "format" in values
