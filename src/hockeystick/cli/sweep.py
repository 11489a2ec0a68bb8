"""hockeystick sweep: certify every combination of a grid of plans."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hockeystick.cli import common, sampling
from hockeystick.cli.grouped import grouped
from hockeystick.errors import counted
from hockeystick.report.document import aligned

if TYPE_CHECKING:
    from hockeystick.sweep import Record


@grouped
def command(
    sweep: Annotated[
        str, typer.Argument(metavar="SWEEP", help="Plan file (TOML) with a [grid] table.", show_default=False)
    ],
    epsilon: common.EpsilonOption = None,
    delta: common.DeltaOption = None,
    method: common.MethodOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="SECONDS", help="Time limit in seconds for each cell of the grid.")
    ] = None,
    samples: sampling.CellSamplingOptions = sampling.NONE_FOR_CELLS,
    retry: Annotated[
        bool, typer.Option("--retry", help="Compute again the cells that could not be certified.")
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", help="Results file, one line per cell; SWEEP.results.jsonl by default.")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Certify every combination of a grid.

    Cells that the results file already has are not computed again.
    """
    from hockeystick.settings import DEFAULT_FAILURE
    from hockeystick.sweep import Sweep, certifier, check_results, run_sweep

    seconds = common.budget_seconds(budget)
    common.check_method(method)
    path = out if out is not None else Path(sweep).stem + ".results.jsonl"
    common.check_output(path, sweep)
    check_results(path)
    failure = _given("--failure-probability", samples.failure_probability)
    cells = Sweep.load(sweep).cells(
        delta=_given("--delta", delta),
        epsilon=_given("--epsilon", epsilon),
        settings={
            "method": method,
            "allow": samples.allow,
            "failure_probability": failure or (samples.allow and DEFAULT_FAILURE),
        },
    )
    # Without samples the workers certify cells; they draw the samples of one cell after the other otherwise.
    drawn = samples if samples.allow else replace(samples, backend=None, address=None, workers=None)
    spread = nullcontext() if samples.allow or samples.places == sampling.HERE else samples.places.executor()
    with drawn.opened() as monte_carlo, spread as executor, _progress(len(cells), seconds) as show:
        certify_cell = certifier(budget=seconds, method=method, monte_carlo=monte_carlo)
        records = run_sweep(cells, path, certify_cell=certify_cell, retry=retry, on_cell=show, executor=executor)
    if json:
        common.emit_json({"out": path, "cells": len(records), "results": [as_json(record) for record in records]})
    else:
        common.emit(_table(records))
        common.emit(f"results written to {path}")


def _given(name: str, text: str | None) -> float | None:
    return None if text is None else common.number(name, text)


@contextmanager
def _progress(cells: int, seconds: float | None) -> Iterator[Callable[[int], None]]:
    """A bar of finished cells on a terminal, one line anywhere else."""
    if not sys.stderr.isatty():
        limit = "" if seconds is None else f", at most {seconds:g} s each"
        typer.echo(f"hockeystick: a sweep of {counted(cells, 'cell')}{limit}", err=True)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("sweeping"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        handle = bar.add_task("sweep", total=cells)
        yield lambda done: bar.update(handle, completed=done)


def as_json(record: "Record") -> dict[str, Any]:
    """What ``--json`` prints of one cell."""
    content: dict[str, Any] = {"fields": record.fields, "status": record.status, "seconds": record.seconds}
    if record.certificate is not None:
        content |= common.claim_json(record.certificate, record.seconds)
    return content


def _table(records: "list[Record]") -> str:
    """The cells with their bounds, or the reason why there are none."""
    rows = [(*records[0].fields, "epsilon", "delta", "adjacency", "seconds", "status")]
    rows += [
        (*map(str, record.fields.values()), *_claim(record), f"{record.seconds:.3f}", record.status)
        for record in records
    ]
    return aligned(rows)


def _claim(record: "Record") -> tuple[str, str, str]:
    """epsilon and delta as text, of which the one that was bounded is an interval, and the neighbours they are for."""
    from hockeystick.certificate import Interval, exact, interval_text

    if record.certificate is None:
        return "-", "-", "-"
    pair = (record.certificate.epsilon, record.certificate.delta)
    epsilon, delta = (interval_text(value) if isinstance(value, Interval) else exact(value) for value in pair)
    return epsilon, delta, ", also ".join((record.certificate.adjacency, *record.certificate.also_holds_for))
