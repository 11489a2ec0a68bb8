"""hockeystick compare: every applicable accountant, side by side."""

from typing import Annotated

import typer

from hockeystick.cli import common, sampling
from hockeystick.cli.grouped import grouped


@grouped
def command(
    plan: common.PlanPath,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    budget: common.BudgetOption = None,
    samples: sampling.SamplingOptions = sampling.NONE,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw all bounds into this file (.png, .pdf or .svg).")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Bound epsilon with every accountant that applies to a plan."""
    from hockeystick.plan import Plan

    loaded = Plan.load(plan)  # before the rest is imported, so that a bad plan is refused at once
    from hockeystick.certification.issue import compare
    from hockeystick.report.table import comparison_json, comparison_table

    at = common.wanted_delta(loaded, delta)
    mechanism = common.mechanism_with_noise(loaded, noise_multiplier)
    if plot is not None:
        from hockeystick.report.plot import check_plot_path

        check_plot_path(plot)
    with samples.opened() as monte_carlo, common.working("comparing", budget, mechanism) as deadline:
        outcomes = compare(
            mechanism, delta=at, budget=common.budget_seconds(budget), deadline=deadline, monte_carlo=monte_carlo
        )
    if json:
        common.emit_json({"delta": at, "noise_multiplier": mechanism.sigma, "bounds": comparison_json(outcomes)})
    else:
        common.emit(comparison_table(outcomes))
    if plot is not None:
        from hockeystick.report.plot import plot_comparison

        plot_comparison(outcomes, plot, title=f"{mechanism.sampler.kind}, sigma = {mechanism.sigma:g}, delta = {at:g}")
