"""hockeystick calibrate: the smallest certified noise multiplier for a target."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hockeystick.cli import common, sampling
from hockeystick.cli.grouped import grouped


@grouped
def command(
    plan: common.PlanPath,
    epsilon: common.EpsilonOption = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: common.BudgetOption = None,
    samples: sampling.SamplingOptions = sampling.NONE,
    generator: common.GeneratorOption = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Certificate file; PLAN.certificate.json by default.")
    ] = None,
    verbose: common.VerboseOption = False,
    json: common.JsonOption = False,
) -> None:
    """Find the smallest noise multiplier for a plan's target.

    The answer is certified, and the certificate is written to a file.
    """
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)  # before the rest is imported, so that a bad plan is refused at once
    from hockeystick.bounds import Question, check_target
    from hockeystick.calibration.search import calibrate_and_certify
    from hockeystick.certificate import Statements
    from hockeystick.certification.description import state

    target = common.wanted_epsilon(loaded, epsilon)
    at = common.wanted_delta(loaded, delta)
    path = out if out is not None else Path(plan).stem + ".certificate.json"
    common.check_output(path, plan)
    Question(delta=at)  # refuses bad numbers and names before anything is compiled
    check_target(target)
    common.check_method(method)
    common.check_generator(generator)
    mechanism = loaded.mechanism()
    mechanism.strategy.check_file(mechanism.sampler.steps)
    with samples.opened(part_of=at) as monte_carlo, common.working("calibrating", budget, mechanism) as deadline:
        certificate = calibrate_and_certify(
            mechanism,
            epsilon=target,
            delta=at,
            method=method,
            budget=common.budget_seconds(budget),
            deadline=deadline,
            monte_carlo=monte_carlo,
            generator=generator,
        )
        certificate = state(certificate, Statements(num_examples=loaded.data.num_examples))
    common.say_of_sampling(certificate, allowed=monte_carlo is not None)
    if budget is not None and certificate.cut_off:
        common.say("the budget ended the search; a larger one may find less noise, and so may an idle machine")
    hints = partial(
        common.hints_of, certificate, epsilon=target, sampling=monte_carlo is not None, method=method, budget=budget
    )
    with common.saving(certificate, path):
        if json:
            target_json = {"target": {"epsilon": target, "delta": at}, "certificate": path, "hints": hints()}
            common.emit_json(common.claim_json(certificate, deadline.elapsed()) | target_json)
            return
        common.emit(certificate.text(requirements=verbose))
    common.emit(f"certificate written to {path}")
    common.emit(f"noise_multiplier = {certificate.mechanism.sigma!r} for epsilon = {target!r}, delta = {at!r}")
    common.say_hints(hints())  # after the answer: the estimate in a hint may take longer, and compile more
