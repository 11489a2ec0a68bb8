"""hockeystick recommend: which strategy, sampler and bands to use for a plan."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hockeystick.cli import common, interruption, sampling
from hockeystick.cli.grouped import grouped
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.report.document import visible

if TYPE_CHECKING:
    from hockeystick.execution.base import ChunkExecutor
    from hockeystick.recommendation.candidates import Limits
    from hockeystick.recommendation.recommend import Recommendation
    from hockeystick.recommendation.workload import Measure, Schedule, Workload

LEAST_SECONDS = 1e-9
"""What is left of a budget that was over before the estimates began."""
LEFT = 0.03
"""Share of the budget that is left for printing, writing and ending the process."""
PERIOD = 0.6
"""Seconds between two lines of progress, so that they are less than one apart on a busy machine too."""
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@grouped
def command(
    plan: common.PlanPath,
    epsilon: common.EpsilonOption = None,
    delta: common.DeltaOption = None,
    samplers: Annotated[
        str | None,
        typer.Option("--samplers", metavar="A,B", help="What the loader can do; by default all but fixed_size."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Memory for the rows of noise, such as 8GB.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="N", help="Parameters of the model; needed with --memory.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Type of the noise: float32 or float64.")] = "float32",
    momentum: Annotated[
        str | None, typer.Option("--momentum", metavar="NUMBER", help="Momentum of the optimiser.")
    ] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", help="Schedule of the learning rate: constant, cosine, linear or step.")
    ] = "constant",
    weight_decay: Annotated[
        str | None,
        typer.Option("--weight-decay", metavar="NUMBER", help="Weight decay times the largest learning rate."),
    ] = None,
    measure: Annotated[str, typer.Option("--measure", help="Rank by mean or max error over the steps.")] = "mean",
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            help="Seconds in all: 300 by default, 0 for the estimates alone.",
        ),
    ] = None,
    samples: sampling.SamplingOptions = sampling.NONE,
    results: Annotated[
        str | None, typer.Option("--results", metavar="FILE", help="Keep the calibrations in this file and reuse them.")
    ] = None,
    write: Annotated[
        str | None, typer.Option("--write", metavar="FILE", help="Write the recommended plan (.toml or .json).")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw error against memory into this file (.png, .pdf or .svg).")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Recommend the mechanism with the least predicted error.

    The error is that of the trained weights, for the data and the target of the plan.
    """
    from hockeystick.recommendation.open_plan import OpenPlan

    loaded = OpenPlan.load(plan)  # before the rest is imported, so that a bad plan is refused at once
    from hockeystick.plan import Target

    target, at = common.wanted_epsilon(loaded, epsilon), common.wanted_delta(loaded, delta)
    Target.parse({"epsilon": target, "delta": at})  # refuses what is out of range
    workload = _workload(momentum, schedule, weight_decay, measure)
    limits = _limits(samplers, memory, parameters, dtype, samples.allow is not None)
    seconds = None if budget is None else _seconds(budget)
    for option, path in (("--results", results), ("--write", write)):
        if path is not None:
            common.check_output(path, plan, option=option)
    if results is not None and Path(results).exists():
        from hockeystick.sweep import check_results

        check_results(results)
    if plot is not None:
        from hockeystick.report.plot import check_plot_path

        check_plot_path(plot)
    given = next((field.name for field in fields(samples.places) if getattr(samples, field.name) is not None), None)
    if seconds == 0.0 and samples.allow is None and given is not None:
        raise InvalidInputError(f"The '--{given}' option needs a '--budget' above 0: estimates are made here.")
    # Without samples the workers are those of the calibrations.
    sampled = samples if samples.allow else replace(samples, backend=None, address=None, workers=None)
    progress = Progress(interruption.began(), table=not json)

    def hand_over(recommendation: "Recommendation") -> None:
        from hockeystick.report.recommendation import recommendation_json, recommendation_table

        if json:
            common.emit_json(recommendation_json(recommendation))
        else:
            common.emit(recommendation_table(recommendation))

    def save(recommendation: "Recommendation") -> None:
        if write is None:
            return
        from hockeystick.files import write_atomically

        write_atomically(write, recommendation.plan.file_text(json=write.lower().endswith(".json")))
        if not json:
            common.emit(
                f"plan written to {write}" + ("" if recommendation.best.certified else ", without a noise multiplier")
            )

    try:
        with (
            sampled.opened(part_of=at) as monte_carlo,
            _calibrators(samples) as executor,
            progress.every_second(),  # of what was not refused, with the imports, which take seconds on a busy machine
        ):
            from hockeystick.recommendation.recommend import BUDGET, recommend

            progress.budget = seconds = BUDGET if seconds is None else seconds
            recommendation = recommend(
                loaded,
                epsilon=target,
                delta=at,
                workload=workload,
                limits=limits,
                budget=seconds and max((1.0 - LEFT) * seconds - progress.elapsed(), LEAST_SECONDS),
                monte_carlo=monte_carlo,
                executor=executor,
                results=results,
                on_answer=progress.answer,
            )
    except BaseException:  # an interruption may come as another error; see the module
        if interruption.seen() and progress.best is not None:
            if not json:
                hand_over(progress.best)
            save(progress.best)
        raise
    hand_over(recommendation)
    if plot is not None:
        from hockeystick.report.recommendation import plot_recommendation

        plot_recommendation(recommendation, plot)
    save(recommendation)


@contextmanager
def _calibrators(samples: sampling.SamplingOptions) -> Iterator["Callable[[], ChunkExecutor] | None"]:
    """Makes the workers for the calibrations; all cores by default, as far as there are candidates for them.

    Those that an option names are made before anything is computed, so that what is wrong with them is said at once.
    """
    if samples.allow is not None:
        yield None
        return
    places = samples.places
    with ExitStack() as stack:

        def workers_of(count: str | None) -> "ChunkExecutor":
            return stack.enter_context(replace(places, workers=count).executor())

        def on_all_cores() -> "ChunkExecutor":
            from joblib import cpu_count

            from hockeystick.recommendation.search import CALIBRATIONS

            return workers_of(str(min(cpu_count(), CALIBRATIONS)))

        if places == sampling.Places():
            yield on_all_cores
            return
        local = places.workers is None and places.backend in (None, "local")
        chosen = on_all_cores() if local else workers_of(places.workers)
        yield lambda: chosen


class Progress:
    """What stderr says: the table of estimates, what each calibration changed, and a line at least every second.

    Args:
        began: when the command was begun, by the monotonic clock.
        table: whether the estimates are printed as tables: the first of them, and all.
        period: seconds between the lines.

    Attributes:
        budget: seconds in all.
        best: the last answer.
    """

    def __init__(self, began: float, *, table: bool, period: float = PERIOD) -> None:
        self.began, self.table, self.period, self.budget = began, table, period, 0.0
        self.best: Recommendation | None = None
        self._tables: set[bool] = set()
        self._said = ""

    def elapsed(self) -> float:
        """Seconds since the command was begun."""
        return monotonic() - self.began

    def answer(self, recommendation: "Recommendation") -> None:
        """Report an answer, and keep it to be handed over when the command is stopped."""
        self.best = recommendation
        whole = bool(recommendation.reasons)
        if self.table and whole not in self._tables:
            self._tables |= {whole, False}
            from hockeystick.report.recommendation import recommendation_table

            sys.stderr.write(visible(recommendation_table(recommendation)) + "\n")
        from hockeystick.certificate import number

        status, choice = "certified" if recommendation.best.certified else "estimated", recommendation.best
        text = f"{choice.candidate.name}, noise multiplier {number(choice.noise_multiplier)} ({status})"
        if text != self._said:
            common.say(f"best after {self.elapsed():.1f} s: {text}")
        self._said = text

    def line(self) -> str:
        """Where the command is."""
        seconds = self.elapsed()
        if self.best is None:
            return f"{seconds:.1f} s: estimating; kernels are compiled the first time on this machine"
        where = f"of {self.budget:g} s: calibrating" if self.budget else "s: estimating"
        return f"{seconds:.1f} {where}; so far {self._said}"

    @contextmanager
    def every_second(self) -> Iterator[None]:
        """Say where the command is, once a period."""
        done = Event()

        def repeat() -> None:
            wait = max(self.period - self.elapsed(), 0.0)  # a busy machine may take longer than that to get here
            while not done.wait(wait):
                common.say(self.line())
                wait = self.period

        Thread(target=repeat, daemon=True).start()
        try:
            yield
        finally:
            done.set()


def _workload(momentum: str | None, schedule: str, weight_decay: str | None, measure: str) -> "Workload":
    from hockeystick.recommendation.workload import Workload

    return Workload(
        momentum=0.0 if momentum is None else common.number("--momentum", momentum),
        schedule=cast("Schedule", schedule),  # the constructor checks it
        weight_decay=0.0 if weight_decay is None else common.number("--weight-decay", weight_decay),
        measure=cast("Measure", measure),
    )


def _limits(samplers: str | None, memory: str | None, parameters: str | None, dtype: str, sampled: bool) -> "Limits":
    from hockeystick.recommendation.candidates import USUAL, Limits

    return Limits(
        memory=None if memory is None else _bytes(memory),
        parameters=None if parameters is None else common.parameter_count(parameters),
        dtype=dtype,
        samplers=USUAL if samplers is None else tuple(samplers.split(",")),
        monte_carlo=sampled,
    )


def _seconds(text: str) -> float:
    value = common.number("--budget", text)
    if not 0.0 <= value <= 1e9:
        raise InvalidInputError(f"The '--budget' option must be from 0 to 1e9 seconds. Got {shortened(text)} instead.")
    return value


def _bytes(text: str) -> float:
    """A size such as 8GB, or a number of bytes."""
    unit = next((suffix for suffix in UNITS if text.endswith(suffix)), "")
    try:
        return float(text.removesuffix(unit)) * UNITS.get(unit, 1.0)
    except ValueError:
        raise InvalidInputError(
            f"The '--memory' option must be a size such as 8GB (in {', '.join(UNITS)}) or a number of bytes. "
            f"Got {shortened(text)} instead."
        ) from None
