"""hockeystick show: a certificate for readers."""

from enum import StrEnum
from typing import Annotated

import typer

from hockeystick.cli import common


class Form(StrEnum):
    """How to write a certificate."""

    TEXT = "text"
    MARKDOWN = "markdown"
    REGISTRY = "registry"


def command(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="Certificate file.", show_default=False)],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown, without what should not be published.")
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="A draft for OpenDP's registry of deployments, as YAML.")
    ] = False,
) -> None:
    """Show what a certificate claims, what was run, and what the claim rests on. Nothing is recomputed."""
    common.emit(written(certificate, Form.MARKDOWN if markdown else Form.REGISTRY if registry else Form.TEXT))


def written(path: str, form: Form = Form.TEXT) -> str:
    """The certificate in a file, in one of the forms.

    Raises: InvalidInputError or VerificationError when there is no intact certificate in the file; UnsupportedError for
        a registry entry of a certificate of format 1.
    """
    from hockeystick.certificate import Certificate
    from hockeystick.interop.deployments_registry import registry_yaml
    from hockeystick.report.certificate import markdown, shown

    writers = {Form.TEXT: shown, Form.MARKDOWN: markdown, Form.REGISTRY: registry_yaml}
    return writers[form](Certificate.load(path)).rstrip("\n")
