"""hockeystick tune: the privacy of releasing the best of several trials."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hockeystick.cli import common
from hockeystick.cli.compose import DeltaOption, EpsilonOption, OutOption, asked_for, certificate_of_one_run, report

if TYPE_CHECKING:
    from hockeystick.certificate import AnyCertificate
    from hockeystick.mechanism import Mechanism


def command(
    trial: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Certificate (.json) or plan (.toml) of one trial.", show_default=False),
    ],
    trials: Annotated[
        str, typer.Option("--trials", metavar="NUMBER", help="Number of trials; if the number is random, its mean.")
    ],
    distribution: Annotated[
        str,
        typer.Option(
            "--distribution",
            metavar="NAME",
            help="How the number of trials is drawn: fixed, poisson, geometric or logarithmic.",
        ),
    ] = "geometric",
    delta: DeltaOption = None,
    epsilon: EpsilonOption = None,
    budget: common.BudgetOption = None,
    out: OutOption = None,
    json: common.JsonOption = False,
) -> None:
    """Bound the privacy of a search that releases its best trial.

    The claim covers the output of the best trial alone: not the other trials, not their scores, not their number.
    """
    from hockeystick.plan import Plan

    run: AnyCertificate | Mechanism
    if Path(trial).suffix.lower() == ".toml":
        plan = Plan.load(trial)
        run, known = common.mechanism_with_noise(plan, None), plan.target.delta
    else:
        from hockeystick.certificate import Interval

        run = certificate = common.with_matrix(certificate_of_one_run(trial), None)
        known = None if isinstance(certificate.delta, Interval) else certificate.delta
    from hockeystick.composition.trials import trials_of  # after the plan is read, so that a bad one is refused at once
    from hockeystick.composition.tuning import tuning

    asked = asked_for(delta, epsilon, [] if known is None else [known])
    number = common.number("--trials", trials)
    trials_of(number, distribution)  # refuses bad input before anything is compiled
    if out is not None:
        common.check_output(out, trial)
    with common.working("tuning", budget) as deadline:
        claim = tuning(
            run,
            trials=number,
            distribution=distribution,
            delta=asked.delta,
            epsilon=asked.epsilon,
            deadline=deadline,
        )
    report(claim, deadline.elapsed(), out, json, {"trials": claim.trials.model_dump(mode="json")})
