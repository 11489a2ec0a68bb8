"""hockeystick show: what a plan or a certificate says, in numbers and with the next commands."""

import json as json_
from typing import Annotated

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, shortened

SUBJECT = Annotated[
    str, typer.Argument(metavar="FILE", help="Plan file (TOML or JSON), or certificate.", show_default=False)
]


def command(
    subject: SUBJECT,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="A certificate as Markdown, without what should not be published.")
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="A certificate as a draft for OpenDP's registry of deployments, as YAML.")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Show what follows from a plan (batches, rate, steps, sensitivity) and what to ask next, or a certificate.

    Nothing in a certificate is recomputed; verify does that.
    """
    chosen = [name for name, given in (("--markdown", markdown), ("--registry", registry), ("--json", json)) if given]
    if len(chosen) > 1:
        raise InvalidInputError(f"The options {chosen[0]} and {chosen[1]} exclude each other; give one of them.")
    if _is_certificate(subject):
        _show_certificate(subject, *chosen)
    elif markdown or registry:
        raise InvalidInputError(
            f"The option {chosen[0]} is for certificates. Got {shortened(subject)}, a plan, instead."
        )
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


def _show_certificate(path: str, form: str = "") -> None:
    from hockeystick.certificate import Certificate
    from hockeystick.interop.deployments_registry import registry_yaml
    from hockeystick.report.certificate import markdown, shown

    certificate = Certificate.load(path)
    if form == "--json":
        common.emit_json({"kind": "certificate", "certificate": certificate.content() | {"digest": certificate.digest}})
    else:
        write = {"--markdown": markdown, "--registry": registry_yaml}.get(form, shown)
        common.emit(write(certificate).rstrip("\n"))


def _is_certificate(path: str) -> bool:
    """Whether a file is JSON that names a format, which plans do not."""
    from hockeystick.certificate import MAX_CERTIFICATE_BYTES
    from hockeystick.files import read_small_file

    raw = read_small_file(path, f"file {shortened(path)}", MAX_CERTIFICATE_BYTES)
    try:
        values = json_.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and "format" in values
