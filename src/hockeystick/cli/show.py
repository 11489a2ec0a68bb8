"""hockeystick show: what a plan or a claim says, in numbers and with the next commands."""

from typing import Annotated

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, shortened

SUBJECT = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Plan file (TOML or JSON), certificate, record of a run, or what 'compose', 'tune' or 'audit' wrote.",
        show_default=False,
    ),
]


def command(
    subject: SUBJECT,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a certificate as Markdown, without what should not be published.")
    ] = False,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Print a certificate as a YAML draft for OpenDP's registry of deployments."),
    ] = False,
    parameters: Annotated[
        str | None,
        typer.Option(
            "--parameters",
            metavar="N",
            help="For a plan: also print the memory and the time that the noise of N parameters takes on this machine.",
            show_default=False,
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Show what follows from a plan, or what a certificate says.

    For a plan it prints batches, rate, steps and sensitivity, and the commands that answer the next questions. For the
    record of a run it prints the certificate, and says which assumptions the run checked.

    It recomputes nothing in a certificate; 'hockeystick verify' does that.
    """
    chosen = [name for name, given in (("--markdown", markdown), ("--registry", registry), ("--json", json)) if given]
    if len(chosen) > 1:
        raise InvalidInputError(f"The options {chosen[0]} and {chosen[1]} exclude each other; give one of them.")
    count = None if parameters is None else common.parameter_count(parameters)
    if _is_claim(subject):
        if count is not None:
            raise InvalidInputError(f"The option --parameters is for plans. Got {shortened(subject)} instead.")
        if common.is_addendum(subject):
            _show_addendum(subject, *chosen)
        elif common.is_record(subject):
            _show_record(subject, *chosen)
        else:
            _show_claim(subject, *chosen)
    elif markdown or registry:
        raise InvalidInputError(
            f"The option {chosen[0]} is for certificates. Got {shortened(subject)}, a plan, instead."
        )
    else:
        _show_plan(subject, json, count)


def _show_plan(path: str, json: bool, parameters: int | None) -> None:
    from hockeystick.plan import Plan

    loaded = Plan.load(path)
    with common.say_if_slow("reading the plan and finding its strategy matrix"):
        from hockeystick.report.overview import overview, overview_json, overview_text

        plan_overview = overview(loaded, path)
    value, text = overview_json(plan_overview), overview_text(plan_overview)
    if parameters is not None:
        from hockeystick.report.noise import noise_json, noise_text

        with common.say_if_slow("measuring the noise"):
            from hockeystick.noise.cost import noise_cost

            cost = noise_cost(loaded.mechanism().matrix, parameters)
        value, text = value | {"noise_cost": noise_json(cost)}, f"{text}\n{noise_text(cost)}"
    if json:
        common.emit_json(value)
    else:
        common.emit(text)


def _show_addendum(path: str, form: str = "") -> None:
    from hockeystick.audit import Addendum

    if form in ("--markdown", "--registry"):
        raise InvalidInputError(f"The option {form} is for certificates. Got {shortened(path)}, an addendum, instead.")
    addendum = Addendum.load(path)
    if form == "--json":
        common.emit_json({"kind": "addendum", "addendum": addendum.model_dump(mode="json")})
    else:
        common.emit(str(addendum))


def _show_record(path: str, form: str = "") -> None:
    from hockeystick.interop.deployments_registry import registry_yaml
    from hockeystick.report.certificate import markdown, shown
    from hockeystick.training import RunRecord

    record = RunRecord.load(path)
    if form == "--json":
        common.emit_json({"kind": "run", "record": record.model_dump(mode="json")})
    elif record.certificate is None:
        if form:
            raise InvalidInputError(
                f"The option {form} is for certificates. Got {shortened(path)}, a record without one, instead."
            )
        common.emit(str(record))
    elif form == "--registry":
        common.emit(registry_yaml(record.certificate, record).rstrip("\n"))
    else:
        write = markdown if form == "--markdown" else shown
        common.emit(write(record.certificate, record))


def _show_claim(path: str, form: str = "") -> None:
    from hockeystick.certificate import CertificateBase
    from hockeystick.composition.files import load_claim
    from hockeystick.interop.deployments_registry import registry_yaml
    from hockeystick.report.certificate import markdown, shown

    claim = load_claim(path)
    if not isinstance(claim, CertificateBase):
        if form in ("--markdown", "--registry"):
            raise InvalidInputError(
                f"The option {form} is for the certificate of one run. Got {shortened(path)}, a {claim.what}, instead."
            )
        if form == "--json":
            common.emit_json({"kind": claim.what, "claim": claim.model_dump(mode="json")})
        else:
            common.emit(str(claim))
    elif form == "--json":
        common.emit_json({"kind": "certificate", "certificate": claim.content() | {"digest": claim.digest}})
    else:
        write = {"--markdown": markdown, "--registry": registry_yaml}.get(form, shown)
        common.emit(write(claim).rstrip("\n"))


def _is_claim(path: str) -> bool:
    """Whether a file is JSON that names a format, which plans do not."""
    from hockeystick.files import MAX_CLAIM_BYTES, json_object, read_small_file

    raw = read_small_file(path, f"file {shortened(path)}", MAX_CLAIM_BYTES)
    return "format" in json_object(raw)
