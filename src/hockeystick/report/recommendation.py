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


def recommendation_table(found: Recommendation, rows: int = ROWS) -> str:
    """The best choices, calibrated ones first, and the sentences that explain the first of them."""
    asked = found.asked
    head = (
        f"target: epsilon = {exact(asked.epsilon)}, delta = {exact(asked.delta)}; error: {asked.workload.measure} "
        f"over the steps for {asked.workload.describe()}, relative to the first row"
    )
    table = [("strategy and sampler", "error", "noise multiplier", "rows", "epsilon", "status")]
    shown = [*found.choices[:rows], *(one for one in found.choices[rows:] if one.candidate.own or _plain(one))]
    for one in shown:
        certificate = one.certificate
        table.append(
            (
                one.candidate.name + (" (the plan)" if one.candidate.own else ""),
                f"{one.error / found.best.error:.3f}",
                f"{one.noise_multiplier:.5g}" if certificate is None else number(one.noise_multiplier, up=True),
                str(one.rows),
                "-" if certificate is None else interval_text(certificate.bounds),
                _status(one, asked.delta),
            )
        )
    return "\n".join([head, aligned(table), *(f"* {reason}" for reason in found.reasons)])


def recommendation_json(found: Recommendation) -> dict[str, Any]:
    """The JSON object of ``recommend``: every choice, and the plan of the first."""
    asked = found.asked
    return {
        "target": {"epsilon": asked.epsilon, "delta": asked.delta},
        "workload": {
            "momentum": asked.workload.momentum,
            "schedule": asked.workload.schedule,
            "weight_decay": asked.workload.weight_decay,
            "measure": asked.workload.measure,
        },
        "plan": found.plan.model_dump(mode="json", by_alias=True, exclude_none=True),
        "certified": found.best.certified,
        "choices": [_choice_json(found, one) for one in found.choices],
        "reasons": list(found.reasons),
        "seconds": {"first": round(found.seconds[0], 3), "all": round(found.seconds[1], 3)},
    }


def plot_recommendation(found: Recommendation, path: str | Path) -> None:
    """Error against rows of noise, one mark for each choice; calibrated ones are filled."""
    from hockeystick.report.plot import new_figure, save_figure  # a table needs none of what a plot imports

    figure = new_figure(figsize=(7, 4.5))
    axes = figure.subplots()
    kinds = sorted({_kind(one) for one in found.choices})
    for place, kind in enumerate(kinds):
        for certified in (False, True):
            some = [one for one in found.choices if _kind(one) == kind and one.certified == certified]
            axes.plot(
                [one.rows for one in some],
                [one.error for one in some],
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


def _choice_json(found: Recommendation, one: Choice) -> dict[str, Any]:
    certificate = one.certificate
    between = error_interval(found.asked.epsilon, found.asked.delta, one)
    return {
        "strategy": one.candidate.plan.strategy.model_dump(mode="json", exclude_none=True),
        "sampler": one.candidate.plan.sampler.model_dump(mode="json", exclude_none=True),
        "own": one.candidate.own,
        "error": one.error,
        "error_lower_estimate": None if between is None else between[0],
        "unit_error": one.unit_error,
        "expected_batch": one.expected_batch,
        "rows": one.rows,
        "noise_multiplier": one.noise_multiplier,
        "status": ESTIMATE if certificate is None else CERTIFIED,
        "rough": one.rough,
        "estimate": {"noise_multiplier": one.estimate.noise_multiplier, "how": one.estimate.how},
        "delta": None if certificate is None else certificate.delta,
        "epsilon": None
        if certificate is None
        else {"upper": certificate.bounds.upper, "lower": certificate.bounds.lower},
    }


def _status(one: Choice, delta: float) -> str:
    """Where the noise multiplier comes from, and the delta of the bounds where sampling takes a part of it."""
    if one.certificate is None:
        return f"{ESTIMATE} ({one.estimate.how})"
    at = one.certificate.question.claimed(one.certificate.bounds.upper)[1]
    status = f"{CERTIFIED}, roughly calibrated" if one.rough else CERTIFIED
    return status if at == delta else f"{status} (bounds at delta = {number(at)})"


def _kind(one: Choice) -> str:
    return f"{one.candidate.plan.strategy.kind}, {one.candidate.plan.sampler.kind}"


def _plain(one: Choice) -> bool:
    return one.candidate.plan.strategy.kind == "identity"
