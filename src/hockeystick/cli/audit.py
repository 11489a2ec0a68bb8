"""hockeystick audit: test the sampler, the noise and the certificate of a plan, a run, or a training loop."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common
from hockeystick.errors import HockeystickError, InvalidInputError, ViolationError, shortened

if TYPE_CHECKING:
    from hockeystick.audit import Addendum, Verdict
    from hockeystick.audit.parts import Part
    from hockeystick.certificate import Certificate
    from hockeystick.mechanism import Mechanism
    from hockeystick.plan import Plan

SAMPLES, LEVEL = "20000", "0.001"
PARTS: "tuple[Part, ...]" = ("sampler", "noise", "mechanism")


def command(
    plan: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="Plan file (TOML or JSON).", show_default=False)
    ] = None,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="Run only this part: 'sampler', 'noise' or 'mechanism'. May be repeated."),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            "--samples", metavar="NUMBER", help=f"Largest number of output pairs to draw; by default {SAMPLES}."
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level", metavar="NUMBER", help=f"False-alarm probability of all parts together; by default {LEVEL}."
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="NUMBER", help="Seed of the runs; by default a fresh one.")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="SCRIPT",
            help="Replay the training loop of this Python file. It goes with PLAN, --noise-multiplier and --seed only.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows",
            metavar="FILE",
            help="Audit the noise in this .npy file, of shape (steps, numbers), in clipping norms. It goes with PLAN, "
            "--noise-multiplier and --level only.",
        ),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="FILE", help="Audit this certificate; PLAN may then be left out."),
    ] = None,
    canaries: Annotated[
        str | None,
        typer.Option("--canaries", metavar="FILE", help="Also audit the run with these canaries (Canaries.record)."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the verdicts to this file, as an addendum to the certificate.")
    ] = None,
    budget: common.BudgetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Test the sampler, the noise and the certificate of a plan.

    The batches and the noise are drawn, and compared with what is claimed. With --replay or --rows, your own loop or
    your own noise is tested instead. The exit code is 1 if the audit finds evidence against the claim.
    """
    from hockeystick.audit.parts import audit_part
    from hockeystick.certification.issue import certify
    from hockeystick.plan import Plan

    if plan is None and replay is None and certificate is None:
        raise InvalidInputError(
            "The PLAN argument is missing; give a plan, a certificate with --certificate, or a training loop with "
            "--replay."
        )
    _check_options(certificate, replay=replay, canaries=canaries, out=out, delta=delta, budget=budget)
    unused = {"--delta": delta, "--part": part, "--samples": samples, "--budget": budget}
    if rows is not None:
        only = "with --rows, which audits the noise in a file"
        _refuse_all(unused | {"--seed": seed, "--replay": replay, "--certificate": certificate}, only)
    start = None if seed is None else _whole("--seed", seed)
    if certificate is not None:
        if out is not None:
            common.check_output(out, plan, certificate, canaries)
        _audit_certificate(
            _certificate(certificate, None if plan is None else Plan.load(plan), noise_multiplier),
            parts=_parts(part),
            canaries=canaries,
            samples=_whole("--samples", samples or SAMPLES),
            level=_level(level or LEVEL),
            seed=start,
            out=out,
            json=json,
        )
        return
    if replay is not None:
        _refuse_all(unused | {"--level": level}, "with --replay, which compares two runs and leaves nothing to chance")
        if plan is None and noise_multiplier is not None:
            raise InvalidInputError("The '--noise-multiplier' option is for a PLAN; with --replay alone there is none.")
    loaded = None if plan is None else Plan.load(plan)
    mechanism = None if loaded is None else common.mechanism_with_noise(loaded, noise_multiplier)
    if replay is not None:
        with redirect_stdout(sys.stderr):  # whatever the script prints
            verdict = _replayed(replay, mechanism, start or 0)
        _report([verdict], json)
        return
    assert loaded is not None  # checked above
    assert mechanism is not None
    if rows is not None:
        _report([_of_rows(rows, mechanism, _level(level or LEVEL))], json)
        return
    wanted = _parts(part)
    at = common.wanted_delta(loaded, delta) if "mechanism" in wanted else None
    count, share = _whole("--samples", samples or SAMPLES), _level(level or LEVEL) / len(wanted)
    with common.working("auditing", budget, mechanism) as deadline:
        claim = certify(mechanism, delta=at, deadline=deadline) if "mechanism" in wanted else None
        verdicts = [
            audit_part(
                one,
                mechanism,
                num_examples=loaded.data.num_examples,
                certificate=claim,
                samples=count,
                level=share,
                seed=start,
                deadline=deadline,
            )
            for one in wanted
        ]
    _report(verdicts, json)


def _refuse_all(options: Mapping[str, object], where: str) -> None:
    """Raise InvalidInputError for an option that is given."""
    for name, value in options.items():
        if value:
            raise InvalidInputError(f"The {name!r} option does not go {where}.")


def _check_options(
    certificate: str | None,
    *,
    replay: str | None,
    canaries: str | None,
    out: str | None,
    delta: str | None,
    budget: str | None,
) -> None:
    """Refuse options that do not go together."""
    for name, value in (("--canaries", canaries), ("--out", out)):
        if value is not None and certificate is None:
            raise InvalidInputError(f"The option {name} needs --certificate, which the evidence is about.")
    for name, value in (("--replay", replay), ("--delta", delta), ("--budget", budget)):
        if value is not None and certificate is not None:
            raise InvalidInputError(f"The options --certificate and {name} exclude each other; give one of them.")


def _certificate(path: str, plan: "Plan | None", noise_multiplier: str | None) -> "tuple[Certificate, int | None]":
    """The certificate and, where a plan says it, the size of the data set; refuses a plan of another mechanism."""
    from hockeystick.certificate import Certificate

    found = Certificate.load(path)
    if not isinstance(found, Certificate):
        raise InvalidInputError(
            f"The '--certificate' file {shortened(path)} must be of the present format; issue it again."
        )
    found = common.with_matrix(found, None)  # refuses certificates of matrices in files
    if plan is None:
        return found, None
    planned = plan.mechanism(
        None if noise_multiplier is None else common.number("--noise-multiplier", noise_multiplier)
    )
    if planned.noise_multiplier is None:
        planned = plan.mechanism(found.mechanism.sigma)
    if planned.pinned() != found.mechanism:
        raise InvalidInputError("The '--certificate' file must be about the mechanism of PLAN, not another one.")
    return found, plan.data.num_examples


def _audit_certificate(
    claim: "tuple[Certificate, int | None]",
    *,
    parts: "tuple[Part, ...]",
    canaries: str | None,
    samples: int,
    level: float,
    seed: int | None,
    out: str | None,
    json: bool,
) -> None:
    """Audit a certificate, write the addendum and print it; raises ViolationError if it is refuted."""
    from hockeystick.audit import CanaryScores, addendum

    certificate, num_examples = claim
    scores = None if canaries is None else CanaryScores.load(canaries)
    with common.working("auditing", None, certificate.mechanism):
        made = addendum(
            certificate,
            num_examples=num_examples,
            parts=parts,
            canaries=scores,
            samples=samples,
            level=level,
            seed=seed,
        )
    if out is not None:
        made.save(out)
    _report([one.verdict for one in made.evidence], json, made)


def _report(verdicts: "list[Verdict]", json: bool, made: "Addendum | None" = None) -> None:
    """Print the verdicts; raises ViolationError if one of them refutes its claim."""
    refuted = [verdict.about for verdict in verdicts if verdict.refuted]
    if json:
        content = [verdict.model_dump(mode="json") for verdict in verdicts]
        found: dict[str, Any] = {
            "refuted": bool(refuted),
            "level": sum(one.level for one in verdicts),
            "verdicts": content,
        }
        if made is not None:
            found |= {"certificate": made.certificate.digest, "digest": made.digest}
            found |= {"checks": [check.model_dump(mode="json") for check in made.checks]}
        common.emit_json(found)
    else:
        common.emit("\n".join(map(str, verdicts)) if made is None else str(made))
    if refuted:
        raise ViolationError(f"The audit found evidence against the claim about: {', '.join(refuted)}.")


def _replayed(script: str, mechanism: "Mechanism | None", seed: int) -> "Verdict":
    """The verdict on the training loop of a script, which is run."""
    import runpy

    from hockeystick.audit import replay
    from hockeystick.files import opened

    with opened(script, f"'--replay' file {shortened(script)}"):
        pass
    try:
        found = runpy.run_path(script)
        missing = [name for name in ("train", "DATA", "NEIGHBOUR", "CLIP_NORM") if name not in found]
        if missing:
            raise InvalidInputError(
                f"The '--replay' file must define train, DATA, NEIGHBOUR and CLIP_NORM. It lacks {', '.join(missing)}."
            )
        return replay(
            found["train"],
            found["DATA"],
            found["NEIGHBOUR"],
            clip_norm=found["CLIP_NORM"],
            mechanism=found.get("MECHANISM", mechanism),
            neighbours=found.get("NEIGHBOURS", "zero_out"),
            seed=seed,
        )
    except HockeystickError:
        raise
    except (Exception, SystemExit) as error:  # a script that exits would look like an audit that passed
        what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise InvalidInputError(f"The '--replay' file {shortened(script)} failed with {what}.") from error


def _of_rows(path: str, mechanism: "Mechanism", level: float) -> "Verdict":
    """The verdict on the rows of noise in a file."""
    from hockeystick.audit import noise
    from hockeystick.audit.rows_file import saved_rows

    with common.working("auditing", None, mechanism):
        return noise(saved_rows(path, mechanism.sampler.steps, "'--rows' file"), mechanism, level=level)


def _parts(given: list[str] | None) -> "tuple[Part, ...]":
    for name in given or ():
        if name not in PARTS:
            raise InvalidInputError(
                f"The '--part' option must be 'sampler', 'noise' or 'mechanism'. Got {shortened(name)} instead."
            )
    return tuple(part for part in PARTS if part in (given or PARTS))


def _level(text: str) -> float:
    from hockeystick.audit.sampling import check_level

    value = common.number("--level", text)
    check_level(value)
    return value


def _whole(name: str, text: str) -> int:
    value = common.number(name, text)
    if not (0 <= value < 2**63 and value == int(value)):
        raise InvalidInputError(
            f"The {name!r} option must be a whole number of at least 0. Got {shortened(text)} instead."
        )
    return int(value)
