"""Recommendations as text, JSON and a plot."""

from pathlib import Path
from typing import Any

from hockeystick.certificate import exact, interval_text, number
from hockeystick.recommendation.explain import error_interval
from hockeystick.recommendation.recommend import Recommendation
from hockeystick.recommendation.search import Choice
from hockeystick.report.document import aligned

ROWS = 12
"""Choices that a table shows."""
ESTIMATE, CERTIFIED = "estimate", "certified"


def recommendation_table(recommendation: Recommendation, rows: int = ROWS) -> str:
    """The best choices, calibrated ones first, and the sentences that explain the first of them."""
    asked = recommendation.asked
    head = (
        f"target: epsilon = {exact(asked.epsilon)}, delta = {exact(asked.delta)}; error: {asked.workload.measure} "
        f"over the steps for {asked.workload.describe()}, relative to the first row"
    )
    table = [("strategy and sampler", "error", "noise multiplier", "rows", "epsilon", "status")]
    shown = [
        *recommendation.choices[:rows],
        *(choice for choice in recommendation.choices[rows:] if choice.candidate.own or _plain(choice)),
    ]
    for choice in shown:
        certificate = choice.certificate
        table.append(
            (
                choice.candidate.name + (" (the plan)" if choice.candidate.own else ""),
                f"{choice.error / recommendation.best.error:.3f}",
                f"{choice.noise_multiplier:.5g}" if certificate is None else number(choice.noise_multiplier, up=True),
                str(choice.rows),
                "-" if certificate is None else interval_text(certificate.bounds),
                _status(choice, asked.delta),
            )
        )
    return "\n".join([head, aligned(table), *(f"* {reason}" for reason in recommendation.reasons)])


def recommendation_json(recommendation: Recommendation) -> dict[str, Any]:
    """The JSON object of ``recommend``: every choice, and the plan of the first."""
    asked = recommendation.asked
    return {
        "target": {"epsilon": asked.epsilon, "delta": asked.delta},
        "workload": {
            "momentum": asked.workload.momentum,
            "schedule": asked.workload.schedule,
            "weight_decay": asked.workload.weight_decay,
            "measure": asked.workload.measure,
        },
        "plan": recommendation.plan.model_dump(mode="json", by_alias=True, exclude_none=True),
        "certified": recommendation.best.certified,
        "choices": [_choice_json(recommendation, choice) for choice in recommendation.choices],
        "reasons": list(recommendation.reasons),
        "seconds": {"first": round(recommendation.seconds[0], 3), "all": round(recommendation.seconds[1], 3)},
    }


def plot_recommendation(recommendation: Recommendation, path: str | Path) -> None:
    """Error against rows of noise, one mark for each choice; calibrated ones are filled."""
    from hockeystick.report.plot import new_figure, save_figure  # a table needs none of what a plot imports

    figure = new_figure(figsize=(7, 4.5))
    axes = figure.subplots()
    kinds = sorted({_kind(choice) for choice in recommendation.choices})
    for place, kind in enumerate(kinds):
        for certified in (False, True):
            some = [
                choice for choice in recommendation.choices if _kind(choice) == kind and choice.certified == certified
            ]
            axes.plot(
                [choice.rows for choice in some],
                [choice.error for choice in some],
                "o",
                color=f"C{place % 10}",
                markerfacecolor=None if certified else "none",
                label=f"{kind} ({CERTIFIED if certified else ESTIMATE})" if some else None,
            )
    axes.set_xscale("symlog")
    axes.set_yscale("log")
    axes.set_xlabel("rows of noise kept between steps")
    axes.set_ylabel("predicted error of a weight")
    axes.legend(fontsize=7)
    save_figure(figure, path)


def _choice_json(recommendation: Recommendation, choice: Choice) -> dict[str, Any]:
    certificate = choice.certificate
    between = error_interval(recommendation.asked.epsilon, recommendation.asked.delta, choice)
    return {
        "strategy": choice.candidate.plan.strategy.model_dump(mode="json", exclude_none=True),
        "sampler": choice.candidate.plan.sampler.model_dump(mode="json", exclude_none=True),
        "own": choice.candidate.own,
        "error": choice.error,
        "error_lower_estimate": None if between is None else between[0],
        "unit_error": choice.unit_error,
        "expected_batch": choice.expected_batch,
        "rows": choice.rows,
        "noise_multiplier": choice.noise_multiplier,
        "status": ESTIMATE if certificate is None else CERTIFIED,
        "rough": choice.rough,
        "estimate": {"noise_multiplier": choice.estimate.noise_multiplier, "how": choice.estimate.how},
        "delta": None if certificate is None else certificate.delta,
        "epsilon": None
        if certificate is None
        else {"upper": certificate.bounds.upper, "lower": certificate.bounds.lower},
    }


def _status(choice: Choice, delta: float) -> str:
    """Where the noise multiplier comes from, and the delta of the bounds where sampling takes a part of it."""
    if choice.certificate is None:
        return f"{ESTIMATE} ({choice.estimate.how})"
    at = choice.certificate.question.claimed(choice.certificate.bounds.upper)[1]
    status = f"{CERTIFIED}, roughly calibrated" if choice.rough else CERTIFIED
    return status if at == delta else f"{status} (bounds at delta = {number(at)})"


def _kind(choice: Choice) -> str:
    return f"{choice.candidate.plan.strategy.kind}, {choice.candidate.plan.sampler.kind}"


def _plain(choice: Choice) -> bool:
    return choice.candidate.plan.strategy.kind == "identity"
