"""hockeystick calibrate: the smallest certified noise multiplier for a target."""

from pathlib import Path
from typing import Annotated

import typer

from hockeystick.cli import common


def command(
    plan: common.PlanPath,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="Overrides the plan's target epsilon.")] = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: common.BudgetOption = 60.0,
    out: Annotated[
        str | None, typer.Option("--out", help="Where the certificate goes; PLAN.certificate.json by default.")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Find the smallest noise multiplier that is certified for the plan's target, and write the certificate."""
    from hockeystick.calibration import calibrate
    from hockeystick.certification import certify
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    target = common.wanted_epsilon(loaded, epsilon)
    at = common.wanted_delta(loaded, delta)
    path = Path(out) if out is not None else Path(Path(plan).stem + ".certificate.json")
    with common.working("calibrating", budget) as watch:
        mechanism = calibrate(loaded.mechanism(), epsilon=target, delta=at, method=method, watch=watch)
        certificate = certify(mechanism, delta=at, method=method, watch=watch)
    certificate.save(path)
    if json:
        common.emit_json(
            common.claim_json(certificate, watch.elapsed())
            | {"target": {"epsilon": target, "delta": at}, "certificate": str(path)}
        )
    else:
        common.emit(f"noise_multiplier = {mechanism.sigma!r} for epsilon = {target:g}, delta = {at:g}")
        common.emit(str(certificate))
        common.emit(f"certificate written to {path}")
