"""hockeystick curve: delta by epsilon, the trade-off curve, and what attackers gain."""

from typing import TYPE_CHECKING, Annotated

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, shortened

if TYPE_CHECKING:
    from hockeystick.deadline import Deadline
    from hockeystick.mechanism import Mechanism
    from hockeystick.plan import Plan

MOST_CURVES = 20


def command(
    plan: common.PlanPath,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="NUMBERS", help="Calibrate for each of these epsilons, such as 1,2,4,8."),
    ] = None,
    noise_multiplier: Annotated[
        str | None,
        typer.Option("--noise-multiplier", metavar="NUMBERS", help="Noise multipliers, such as 0.8,1,1.2."),
    ] = None,
    delta: common.DeltaOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="SECONDS", help="Time limit in seconds for each calibration and for each curve."
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the curves here (.csv, .json, .png, .pdf or .svg).")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Bound the whole privacy profile, and what attackers gain.

    It does so for the plan's noise multiplier, for several noise multipliers, or for several targets.
    """
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)  # before the rest is imported, so that a bad plan is refused at once
    from hockeystick.bounds import Question
    from hockeystick.curve import curve
    from hockeystick.report.curves import check_curve_path, curves_table, save_curves

    at = common.wanted_delta(loaded, delta)
    Question(delta=at)
    if epsilon is not None and noise_multiplier is not None:
        raise InvalidInputError("The '--epsilon' and '--noise-multiplier' options must not be given together.")
    if out is not None:
        check_curve_path(out)
        common.check_output(out, plan)
    targets = None if epsilon is None else _numbers("--epsilon", epsilon)
    loaded.strategy.check_file(loaded.numbers().steps)
    mechanisms = [] if targets is not None else _with_noise(loaded, noise_multiplier)
    seconds = common.budget_seconds(budget)
    for target in targets or ():
        with common.working(f"calibrating for epsilon {target:g}", budget, loaded.mechanism()) as deadline:
            mechanisms.append(_calibrated(loaded.mechanism(), target, at, seconds, deadline))
    curves = []
    for mechanism in mechanisms:
        with common.working(f"computing the curve of noise {mechanism.sigma:g}", budget, mechanism) as deadline:
            curves.append(curve(mechanism, delta=at, budget=seconds, deadline=deadline))
    try:
        if json:
            common.emit_json({"delta": at, "curves": [curve.as_json() for curve in curves]})
        else:
            common.emit(curves_table(curves, delta=at))
    finally:
        if out is not None:
            save_curves(curves, out, delta=at)
    if out is not None and not json:
        common.emit(f"curves written to {out}")


def _numbers(name: str, text: str) -> list[float]:
    """The numbers of a list such as ``1,2,4``; the same number once."""
    numbers = list(dict.fromkeys(common.number(name, part) for part in text.split(",")))
    if len(numbers) > MOST_CURVES:
        raise InvalidInputError(
            f"The {name!r} option must have at most {MOST_CURVES} numbers. Got {shortened(text)} instead."
        )
    return numbers


def _with_noise(plan: "Plan", option: str | None) -> "list[Mechanism]":
    """The plan's mechanism with each noise multiplier of the option; with its own where there is no option."""
    """The plan's mechanism with each noise multiplier of the option; with its own where there is no option."""
    if option is None:
        return [common.mechanism_with_noise(plan, None)]
    return [plan.mechanism(sigma) for sigma in _numbers("--noise-multiplier", option)]


def _calibrated(
    mechanism: "Mechanism", epsilon: float, delta: float, budget: float | None, deadline: "Deadline"
) -> "Mechanism":
    """The mechanism with the smallest certified noise for a target. What searches for it is imported here alone."""
    from hockeystick.calibration.search import calibrate

    return calibrate(mechanism, epsilon=epsilon, delta=delta, budget=budget, deadline=deadline)
