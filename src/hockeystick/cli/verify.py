"""hockeystick verify: recompute a certificate."""

from typing import Annotated

import typer

from hockeystick.cli import common, sampling


def command(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="Certificate file.", show_default=False)],
    budget: common.VerifyBudgetOption = "600",
    evidence: Annotated[
        str | None,
        typer.Option(
            "--evidence", metavar="FILE", help="Derive Monte Carlo bounds from this store, redrawing a few chunks."
        ),
    ] = None,
    backend: sampling.BackendOption = None,
    address: sampling.AddressOption = None,
    workers: sampling.WorkersOption = None,
    matrix: common.MatrixOption = None,
    json: common.JsonOption = False,
) -> None:
    """Recompute the bounds of a certificate and compare; exit code 1 if they do not follow."""
    from hockeystick.certificate import Certificate, interval_text
    from hockeystick.certification.verification import verify

    claimed = common.with_matrix(Certificate.load(certificate), matrix)
    with (
        sampling.chosen_executor(backend, address, workers) as executor,
        sampling.opened(evidence) as store,
        common.working("verifying", budget, claimed.mechanism) as deadline,
    ):
        found = verify(claimed, deadline=deadline, evidence=store, executor=executor)
    if json:
        common.emit_json({"verified": True} | common.claim_json(found, deadline.elapsed()))
    else:
        common.emit(str(claimed))
        common.emit(f"verified: recomputed {interval_text(found.bounds)}")
