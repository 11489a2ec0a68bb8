"""hockeystick verify: recompute a certificate, or derive an addendum to one again."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common, sampling
from hockeystick.cli.grouped import grouped
from hockeystick.errors import VerificationError, shortened

if TYPE_CHECKING:
    from hockeystick.certificate import CertificateBase
    from hockeystick.training import RunRecord


@grouped
def command(
    certificate: Annotated[
        str, typer.Argument(metavar="CERTIFICATE", help="Certificate, or the record of a run.", show_default=False)
    ],
    budget: common.VerifyBudgetOption = "600",
    evidence: Annotated[
        str | None,
        typer.Option(
            "--evidence",
            metavar="FILE",
            help="Check Monte Carlo bounds against this store; enough of its chunks are drawn again.",
        ),
    ] = None,
    places: sampling.Places = sampling.HERE,
    matrix: common.MatrixOption = None,
    json: common.JsonOption = False,
) -> None:
    """Recompute a certificate, and check that its claim follows.

    The exit code is 1 if the claim does not follow, or if the time is too short to tell.

    For an addendum it also derives the verdicts of the audits again, from their seeds. For the record of a run it
    recomputes the certificate, but cannot repeat the checks of the run.
    """
    if common.is_addendum(certificate):
        _verify_addendum(certificate, budget, json)
        return
    from hockeystick.certificate import CertificateBase, interval_text
    from hockeystick.cli.compose import derived_json
    from hockeystick.composition.files import load_claim
    from hockeystick.composition.verification import stand_ins
    from hockeystick.report.certificate import run_rows

    record = None
    if common.is_record(certificate):
        from hockeystick.training import RunRecord

        record = RunRecord.load(certificate)
        if record.certificate is None:
            raise VerificationError(f"The record {shortened(certificate)} has no certificate that could be verified.")
    loaded = load_claim(certificate) if record is None or record.certificate is None else record.certificate
    claimed = common.with_matrix(loaded, matrix) if isinstance(loaded, CertificateBase) else loaded
    for part in () if isinstance(loaded, CertificateBase) else loaded.certificates:
        common.with_matrix(part, None)  # refuses certificates of matrices in files
    mechanism, methods = None, None
    if isinstance(claimed, CertificateBase):
        mechanism, methods = claimed.mechanism, _methods(claimed)
    with (
        places.executor() as executor,
        sampling.opened(evidence) as store,
        common.working("verifying", budget, mechanism, methods) as deadline,
    ):
        others = stand_ins(claimed, deadline=deadline, evidence=store, executor=executor)
    of_run = {} if record is None else of_assumptions(record)
    if json:
        seconds = deadline.elapsed()
        numbers = (
            common.claim_json(claimed, seconds)
            if isinstance(claimed, CertificateBase)
            else derived_json(claimed, seconds)
        )
        run = {} if record is None else {"run": run_json(record)}
        stood_in = [{"side": stand_in.side, "named": stand_in.named, "method": stand_in.method} for stand_in in others]
        common.emit_json({"verified": True, "stand_ins": stood_in} | numbers | run)
    else:
        if isinstance(claimed, CertificateBase):
            common.emit(claimed.text(requirements=False))
        else:
            common.emit(str(claimed))
        if record is not None:
            common.emit("  the run")
            for row in run_rows(record):
                common.emit(f"    {row.name:12}  {row.text}")
            for name, (words, _) in of_run.items():
                common.emit(f"    {name:12}  {words}")
        for other in others:
            common.emit(str(other))
        common.emit(f"verified: recomputed {interval_text(claimed.bounds)}")


def of_assumptions(record: "RunRecord") -> dict[str, tuple[str, str]]:
    """What the record knows of the assumptions of its certificate, by name."""
    assumptions = () if record.certificate is None else record.certificate.assumptions
    known = {assumption.name: record.about(assumption.name) for assumption in assumptions}
    return {name: said for name, said in known.items() if said is not None}


def run_json(record: "RunRecord") -> dict[str, Any]:
    """What the record says of the run and of every assumption of its certificate."""
    return {
        "steps": record.steps,
        "planned_steps": record.mechanism.sampler.steps,
        "assumptions": {name: words for name, (words, _) in of_assumptions(record).items()},
    }


def _methods(certificate: "CertificateBase") -> set[str] | None:
    """The accountants that verification runs; None where any may stand in for a retired one."""
    from hockeystick.accountants.registry import every_accountant

    named = {name for name in (certificate.method.upper, certificate.method.lower) if name is not None}
    return named if named <= every_accountant().keys() else None


def _verify_addendum(path: str, budget: str, json: bool) -> None:
    from hockeystick.audit import Addendum

    addendum = Addendum.load(path)
    common.with_matrix(addendum.certificate, None)  # refuses certificates of matrices in files
    certificate = addendum.certificate
    with common.working("verifying", budget, certificate.mechanism, _methods(certificate)) as deadline:
        addendum.verify(deadline=deadline)
    if json:
        checks = [check.model_dump(mode="json") for check in addendum.checks]
        common.emit_json({"verified": True, "refuted": addendum.refuted, "checks": checks})
    else:
        common.emit(str(addendum))
        common.emit("verified: the certificate and every verdict were derived again")
