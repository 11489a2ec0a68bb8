"""hockeystick delta: certified bounds on delta at an epsilon."""

from hockeystick.cli import certifying, common
from hockeystick.cli.grouped import grouped


@grouped
def command(
    plan: common.PlanPath,
    epsilon: common.EpsilonOption = None,
    noise_multiplier: common.NoiseOption = None,
    options: certifying.CertifyOptions = certifying.DEFAULTS,
) -> None:
    """Certify delta for a plan with a noise multiplier."""
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    mechanism = common.mechanism_with_noise(loaded, noise_multiplier)
    options.certify_and_report(mechanism, loaded, plan, epsilon=common.wanted_epsilon(loaded, epsilon))
