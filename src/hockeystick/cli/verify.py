"""hockeystick verify: recompute a certificate, or derive an addendum to one again."""

from typing import TYPE_CHECKING, Annotated

import typer

from hockeystick.cli import common, sampling

if TYPE_CHECKING:
    from hockeystick.certificate import CertificateBase


def command(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="Certificate file.", show_default=False)],
    budget: common.VerifyBudgetOption = "600",
    evidence: Annotated[
        str | None,
        typer.Option(
            "--evidence",
            metavar="FILE",
            help="Check Monte Carlo bounds against this store, drawing enough chunks again.",
        ),
    ] = None,
    backend: sampling.BackendOption = None,
    address: sampling.AddressOption = None,
    workers: sampling.WorkersOption = None,
    matrix: common.MatrixOption = None,
    json: common.JsonOption = False,
) -> None:
    """Recompute the bounds of a certificate and compare; exit code 1 if they do not follow.

    For an addendum it also derives the verdicts of its audits, from their seeds.
    """
    if common.is_addendum(certificate):
        _verify_addendum(certificate, budget, json)
        return
    from hockeystick.certificate import CertificateBase, interval_text
    from hockeystick.cli.compose import derived_json
    from hockeystick.composition.files import load_claim
    from hockeystick.composition.verification import verify

    loaded = load_claim(certificate)
    claimed = common.with_matrix(loaded, matrix) if isinstance(loaded, CertificateBase) else loaded
    for one in () if isinstance(loaded, CertificateBase) else loaded.certificates:
        common.with_matrix(one, None)  # refuses certificates of matrices in files
    mechanism, methods = None, None
    if isinstance(claimed, CertificateBase):
        mechanism, methods = claimed.mechanism, _methods(claimed)
    with (
        sampling.chosen_executor(backend, address, workers) as executor,
        sampling.opened(evidence) as store,
        common.working("verifying", budget, mechanism, methods) as deadline,
    ):
        found = verify(claimed, deadline=deadline, evidence=store, executor=executor)
    if json:
        seconds = deadline.elapsed()
        numbers = (
            common.claim_json(found, seconds) if isinstance(found, CertificateBase) else derived_json(found, seconds)
        )
        common.emit_json({"verified": True} | numbers)
    else:
        common.emit(str(claimed))
        common.emit(f"verified: recomputed {interval_text(found.bounds)}")


def _methods(certificate: "CertificateBase") -> set[str]:
    """The accountants that verification runs."""
    return {name for name in (certificate.method.upper, certificate.method.lower) if name is not None}


def _verify_addendum(path: str, budget: str, json: bool) -> None:
    from hockeystick.audit import Addendum

    found = Addendum.load(path)
    common.with_matrix(found.certificate, None)  # refuses certificates of matrices in files
    certificate = found.certificate
    with common.working("verifying", budget, certificate.mechanism, _methods(certificate)) as deadline:
        found.verify(deadline=deadline)
    if json:
        checks = [check.model_dump(mode="json") for check in found.checks]
        common.emit_json({"verified": True, "refuted": found.refuted, "checks": checks})
    else:
        common.emit(str(found))
        common.emit("verified: the certificate and every verdict follow again from what they say")
