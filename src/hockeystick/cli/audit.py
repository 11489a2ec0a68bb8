"""hockeystick audit: test the sampler, the noise and the certificate of a plan, a run, or a training loop."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common, say_failure
from hockeystick.cli.scripts import check_script, of_script
from hockeystick.errors import InvalidInputError, UnsupportedError, install, shortened

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
    invariance: Annotated[
        str | None,
        typer.Option(
            "--invariance",
            metavar="SCRIPT",
            help="Compare the bits of the per-example gradients of the model in this Python file, which defines MODEL, "
            "CRITERION, EXAMPLE and BATCH. It goes with --seed only.",
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

    The batches and the noise are drawn, and compared with what is claimed. With --replay, --rows or --invariance, your
    own loop, noise or model is tested instead. The exit code is 1 if the audit finds evidence against the claim.
    """
    from hockeystick.plan import Plan

    unused: dict[str, object] = {"--delta": delta, "--part": part, "--samples": samples, "--budget": budget}
    start = None if seed is None else _whole("--seed", seed)
    if invariance is not None:
        others = {"--noise-multiplier": noise_multiplier, "--level": level, "--replay": replay, "--rows": rows}
        others |= {"PLAN": plan, "--certificate": certificate, "--canaries": canaries, "--out": out}
        _refuse_all(unused | others, "with --invariance, which is about a model alone")
        _audit_invariance(invariance, start or 0, json)
        return
    if plan is None and replay is None and certificate is None:
        raise InvalidInputError(
            "The PLAN argument is missing; give a plan, a certificate with --certificate, or a training loop with "
            "--replay."
        )
    _check_options(certificate, replay=replay, canaries=canaries, out=out, delta=delta, budget=budget)
    if rows is not None:
        only = "with --rows, which audits the noise in a file"
        _refuse_all(unused | {"--seed": seed, "--replay": replay, "--certificate": certificate}, only)
    wanted, risk = _parts(part), _level(LEVEL if level is None else level)
    count = _whole("--samples", SAMPLES if samples is None else samples, least=1)
    if certificate is not None:
        if out is not None:
            common.check_output(out, plan, certificate, canaries)
        _audit_certificate(
            _certificate(certificate, None if plan is None else Plan.load(plan), noise_multiplier),
            parts=wanted,
            canaries=canaries,
            samples=count,
            level=risk,
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
        _report([_replayed(replay, mechanism, start or 0)], json)
        return
    assert loaded is not None  # checked above
    assert mechanism is not None
    if rows is not None:
        _report([_of_rows(rows, mechanism, risk)], json)
        return
    from hockeystick.bounds import Question

    at = common.wanted_delta(loaded, delta) if "mechanism" in wanted else None
    if at is not None:
        Question(delta=at)  # refuses a bad number before what takes long to import
    common.budget_seconds(budget)
    from hockeystick.audit.parts import audit_part, check_parts
    from hockeystick.certification.issue import certify

    check_parts(wanted, mechanism)
    with common.working("auditing", budget, mechanism) as deadline:
        claim = certify(mechanism, delta=at, deadline=deadline) if "mechanism" in wanted else None
        verdicts = [
            audit_part(
                kind,
                mechanism,
                num_examples=loaded.data.num_examples,
                certificate=claim,
                samples=count,
                level=risk / len(wanted),
                seed=start,
                deadline=deadline,
            )
            for kind in wanted
        ]
    _report(verdicts, json)


def _refuse_all(options: Mapping[str, object], where: str) -> None:
    """Raise InvalidInputError for an option that is given."""
    for name, value in options.items():
        if value not in (None, []):
            what = "option" if name.startswith("--") else "argument"
            raise InvalidInputError(f"The {name!r} {what} does not go {where}.")


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

    certificate = Certificate.load(path)
    if not isinstance(certificate, Certificate):
        raise InvalidInputError(
            f"The '--certificate' file {shortened(path)} must be of the present format; issue it again."
        )
    certificate = common.with_matrix(certificate, None)  # refuses certificates of matrices in files
    if plan is None:
        return certificate, None
    planned = plan.mechanism(
        None if noise_multiplier is None else common.number("--noise-multiplier", noise_multiplier)
    )
    if planned.noise_multiplier is None:
        planned = plan.mechanism(certificate.mechanism.sigma)
    if planned.pinned() != certificate.mechanism:
        raise InvalidInputError("The '--certificate' file must be about the mechanism of PLAN, not another one.")
    return certificate, plan.data.num_examples


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
    """Audit a certificate, write the addendum and print it; ends with exit code 1 if it is refuted."""
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
    _report([test.verdict for test in made.evidence], json, made)


def _report(verdicts: "list[Verdict]", json: bool, made: "Addendum | None" = None) -> None:
    """Print the verdicts, and end with exit code 1 if one of them refutes its claim."""
    refuted = [verdict.about for verdict in verdicts if verdict.refuted]
    content: dict[str, Any] = {
        "refuted": bool(refuted),
        "level": sum(verdict.level for verdict in verdicts),
        "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
    }
    if made is not None:
        content |= {"certificate": made.certificate.digest, "digest": made.digest}
        content |= {"checks": [check.model_dump(mode="json") for check in made.checks]}
    _conclude(
        f"The audit found evidence against the claim about: {', '.join(refuted)}." if refuted else None,
        text="\n".join(map(str, verdicts)) if made is None else str(made),
        content=content if json else None,
    )


def _conclude(complaint: str | None, *, text: str, content: dict[str, Any] | None) -> None:
    """Print a text, or one object; a complaint ends the command with exit code 1, and is part of the object."""
    if content is None:
        common.emit(text)
    else:
        common.emit_json(content | ({} if complaint is None else {"error": complaint, "exit_code": 1}))
    if complaint is not None:
        say_failure(complaint, 1, as_json=False)
        raise typer.Exit(1)


def _replayed(script: str, mechanism: "Mechanism | None", seed: int) -> "Verdict":
    """The verdict on the training loop of a script, which is run."""
    from hockeystick.audit import replay

    verdict: Verdict = of_script(
        "--replay",
        script,
        ("train", "DATA", "NEIGHBOUR", "CLIP_NORM"),
        lambda defined: replay(
            defined["train"],
            defined["DATA"],
            defined["NEIGHBOUR"],
            clip_norm=defined["CLIP_NORM"],
            mechanism=defined.get("MECHANISM", mechanism),
            neighbours=defined.get("NEIGHBOURS", "zero_out"),
            seed=seed,
        ),
    )
    return verdict


def _audit_invariance(script: str, seed: int, json: bool) -> None:
    """Audit the gradients of a script's model, and print what changed; ends with exit code 1 if anything did."""
    check_script("--invariance", script)  # before the imports, which take seconds
    try:
        from hockeystick.audit import invariance
    except ImportError:
        raise UnsupportedError(f"The audit of a model needs torch and opacus; {install('torch')}.") from None

    chosen = {
        "NEIGHBOURS": "neighbours",
        "PLACES": "places",
        "SHAPES": "shapes",
        "GRAD_SAMPLE_MODE": "grad_sample_mode",
        "LOSS_REDUCTION": "loss_reduction",
    }
    with common.working("auditing", None):
        result = of_script(
            "--invariance",
            script,
            ("MODEL", "CRITERION", "EXAMPLE", "BATCH"),
            lambda defined: invariance(
                defined["MODEL"],
                defined["CRITERION"],
                defined["EXAMPLE"],
                batch=defined["BATCH"],
                seed=seed,
                **{argument: defined[name] for name, argument in chosen.items() if name in defined},
            ),
        )
    content = {"invariant": result.invariant, "worst": result.worst} | result.model_dump(mode="json")
    complaint = "The gradient of an example depends on its place or on the other examples of its batch."
    _conclude(None if result.invariant else complaint, text=str(result), content=content if json else None)


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
    value = common.number("--level", text)
    if not 0.0 < value < 1.0:
        raise InvalidInputError(
            f"The '--level' option must be between 0 and 1, both excluded. Got {shortened(text)} instead."
        )
    return value


def _whole(name: str, text: str, least: int = 0) -> int:
    value = common.number(name, text)
    if not (least <= value < 2**63 and value == int(value)):
        raise InvalidInputError(
            f"The {name!r} option must be a whole number of at least {least}. Got {shortened(text)} instead."
        )
    return int(value)
