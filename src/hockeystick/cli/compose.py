"""hockeystick compose: one claim for several runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, shortened

if TYPE_CHECKING:
    from hockeystick.bounds import Question
    from hockeystick.certificate import AnyCertificate
    from hockeystick.composition.claims import DerivedClaim
    from hockeystick.mechanism import Mechanism

DeltaOption = Annotated[
    str | None,
    typer.Option(
        "--delta", metavar="NUMBER", help="Bound epsilon at this delta; by default at the delta that the input gives."
    ),
]
EpsilonOption = Annotated[
    str | None, typer.Option("--epsilon", metavar="NUMBER", help="Bound delta at this epsilon instead.")
]
OutOption = Annotated[str | None, typer.Option("--out", help="Write the claim here.")]


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Certificates (.json) and plans (.toml, also with [[phase]] tables). Name a file once for each run.",
            show_default=False,
        ),
    ],
    delta: DeltaOption = None,
    epsilon: EpsilonOption = None,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="RELATION",
            help="same, disjoint, or sets of runs such as 1+2,3: no example is in runs of two sets.",
        ),
    ] = "same",
    budget: common.BudgetOption = None,
    out: OutOption = None,
    json: common.JsonOption = False,
) -> None:
    """Bound the privacy of several runs together.

    The runs are given by their certificates, by plans, or as the phases of one plan.
    """
    from hockeystick.composition.compose import compose

    runs, known = _runs(files)
    asked = asked_for(delta, epsilon, known)
    relation = _relation(data)
    if out is not None:
        common.check_output(out, *files)
    with common.working("composing", budget) as deadline:
        claim = compose(runs, delta=asked.delta, epsilon=asked.epsilon, data=relation, deadline=deadline)
    report(claim, deadline.elapsed(), out, json, {"data": claim.relation, "runs": len(claim.runs)})


def asked_for(delta: str | None, epsilon: str | None, known: list[float]) -> "Question":
    """The question of the options, or the delta that all files give; refuses bad numbers before any work."""
    from hockeystick.bounds import Question

    if delta is None and epsilon is None:
        if len(set(known)) != 1:
            what = "The files use different deltas" if known else "No file says at which delta"
            raise InvalidInputError(f"{what}; pass --delta or --epsilon.")
        return Question(delta=known[0])
    return Question(
        delta=None if delta is None else common.number("--delta", delta),
        epsilon=None if epsilon is None else common.number("--epsilon", epsilon),
    )


def report(claim: "DerivedClaim", seconds: float, out: str | None, json: bool, more: dict[str, Any]) -> None:
    """Print the claim, and write it even if nobody reads what is printed."""
    try:
        if json:
            common.emit_json(derived_json(claim, seconds) | more)
        else:
            common.emit(str(claim))
    finally:
        if out is not None:
            claim.save(out)


def derived_json(claim: "DerivedClaim", seconds: float) -> dict[str, Any]:
    """The fields that all derived claims print."""
    content = claim.model_dump(mode="json", exclude={"certificates"})
    names = ("delta", "epsilon", "kind", "confidence")
    failure = {} if claim.failure_probability is None else {"failure_probability": claim.failure_probability}
    return {name: content[name] for name in names} | failure | {"seconds": round(seconds, 4)}


def certificate_of_one_run(path: str) -> "AnyCertificate":
    """The certificate in a file; refuses the claims that are made from several."""
    from hockeystick.certificate import Certificate, CertificateOfFormat1
    from hockeystick.composition.files import load_claim

    loaded = load_claim(path)
    if not isinstance(loaded, Certificate | CertificateOfFormat1):
        raise InvalidInputError(
            f"The file {shortened(path)} must be a certificate of one run. It is a {loaded.what}; give the "
            f"certificates that it was made from instead."
        )
    return loaded


def _runs(files: list[str]) -> "tuple[list[AnyCertificate | Mechanism], list[float]]":
    """The runs of all files in their order, and the deltas that the files give."""
    from hockeystick.certificate import AnyCertificate, Interval
    from hockeystick.composition.phases import Phases

    runs: list[AnyCertificate | Mechanism] = []
    deltas = []
    for file in files:
        if Path(file).suffix.lower() == ".toml":
            try:
                phases = Phases.load(file)
                runs += phases.mechanisms()
            except InvalidInputError as error:
                raise InvalidInputError(f"In {shortened(file)}: {error}" if len(files) > 1 else str(error)) from None
            deltas += [phases.target.delta] if phases.target.delta is not None else []
            continue
        certificate = common.with_matrix(certificate_of_one_run(file), None)
        runs.append(certificate)
        deltas += [] if isinstance(certificate.delta, Interval) else [certificate.delta]
    return runs, deltas


def _relation(text: str) -> str | list[list[int]]:
    """``same``, ``disjoint``, or ``1+2,3`` as lists of numbers of runs."""
    if text in ("same", "disjoint"):
        return text
    groups = [[number.strip() for number in group.split("+")] for group in text.split(",")]
    if not all(number.isascii() and number.isdecimal() and len(number) < 7 for group in groups for number in group):
        raise InvalidInputError(
            f"The '--data' option must be same, disjoint, or sets of runs such as 1+2,3. Got {shortened(text)} instead."
        )
    return [[int(number) for number in group] for group in groups]
