"""hockeystick epsilon: certified bounds on epsilon at a delta."""

from hockeystick.cli import certifying, common
from hockeystick.cli.grouped import grouped


@grouped
def command(
    plan: common.PlanPath,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    options: certifying.CertifyOptions = certifying.DEFAULTS,
) -> None:
    """Certify epsilon for a plan with a noise multiplier."""
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    mechanism = common.mechanism_with_noise(loaded, noise_multiplier)
    options.certify_and_report(mechanism, loaded, plan, delta=common.wanted_delta(loaded, delta))
