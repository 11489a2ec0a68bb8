"""hockeystick epsilon: certified bounds on epsilon at a delta."""

from hockeystick.cli import common, sampling


def command(
    plan: common.PlanPath,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: common.BudgetOption = None,
    allow: sampling.AllowOption = None,
    failure_probability: sampling.FailureOption = None,
    seed: sampling.SeedOption = None,
    evidence: sampling.EvidenceOption = None,
    backend: sampling.BackendOption = None,
    address: sampling.AddressOption = None,
    workers: sampling.WorkersOption = None,
    generator: common.GeneratorOption = None,
    out: common.OutOption = None,
    verbose: common.VerboseOption = False,
    json: common.JsonOption = False,
) -> None:
    """Certify epsilon for a plan with a noise multiplier."""
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)
    common.certify_and_report(
        common.mechanism_with_noise(loaded, noise_multiplier),
        delta=common.wanted_delta(loaded, delta),
        method=method,
        budget=budget,
        sampling=sampling.monte_carlo_options(allow, failure_probability, seed, evidence, backend, address, workers),
        out=out,
        json=json,
        verbose=verbose,
        plan=plan,
        num_examples=loaded.data.num_examples,
        generator=generator,
    )
