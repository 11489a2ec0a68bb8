"""hockeystick epsilon: certified bounds on epsilon at a delta."""

from hockeystick.cli import common


def command(
    plan: common.PlanPath,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: common.BudgetOption = "60",
    out: common.OutOption = None,
    json: common.JsonOption = False,
) -> None:
    """Certify epsilon for a plan with a noise multiplier."""
    from hockeystick.certification import certify
    from hockeystick.files import check_writable
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    at = common.wanted_delta(loaded, delta)
    mechanism = common.mechanism_with_noise(loaded, noise_multiplier)
    if out is not None:
        check_writable(out)
    with common.working("certifying", budget) as watch:
        certificate = certify(mechanism, delta=at, method=method, watch=watch)
    if out is not None:
        certificate.save(out)
    if json:
        common.emit_json(common.claim_json(certificate, watch.elapsed()))
    else:
        common.emit(str(certificate))
