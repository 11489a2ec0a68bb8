"""hockeystick epsilon: certified bounds on epsilon at a delta."""

from typing import Annotated

import typer

from hockeystick.cli import common


def command(
    plan: common.PlanPath,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: common.BudgetOption = 60.0,
    out: Annotated[str | None, typer.Option("--out", help="Write the certificate here.")] = None,
    json: common.JsonOption = False,
) -> None:
    """Certify epsilon for a plan with a noise multiplier."""
    from hockeystick.certification import certify
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    at = common.wanted_delta(loaded, delta)
    mechanism = common.mechanism_with_noise(loaded, noise_multiplier)
    with common.working("certifying", budget) as watch:
        certificate = certify(mechanism, delta=at, method=method, watch=watch)
    if out is not None:
        certificate.save(out)
    if json:
        common.emit_json(common.claim_json(certificate, watch.elapsed()))
    else:
        common.emit(str(certificate))
