"""hockeystick reproduce: recompute the figures and printed numbers of a paper."""

from typing import Annotated

import typer

from hockeystick.cli import common


def command(
    paper: Annotated[
        str | None, typer.Argument(help="Key of the paper, or 'all'. Without it the papers are listed.")
    ] = None,
    figure: Annotated[str | None, typer.Argument(help="One figure or table; by default all of them.")] = None,
    out: Annotated[str, typer.Option("--out", help="Directory for PNG and CSV files.")] = "reproduced",
    quick: Annotated[bool, typer.Option("--quick", help="Compute fewer points and smaller cases, in minutes.")] = False,
    json: common.JsonOption = False,
) -> None:
    """Recompute the figures and printed numbers of a paper.

    Figures are written as PNG and CSV. A table compares the printed numbers with ours. A run that was interrupted
    continues where it stopped.
    """
    from hockeystick.reproduction.papers import available, check, reproduce

    if paper is None:
        known = available()
        if json:
            common.emit_json({"papers": known})
        else:
            for key, figures in known.items():
                common.emit(f"{key}: {', '.join(figures)}")
        return
    papers = list(available()) if paper == "all" else [paper]
    for name in papers:
        check(name, figure)
    parts = []
    with common.working("reproducing", None) as deadline:
        for name in papers:
            for part in reproduce(name, figure, out, deadline, quick=quick):
                parts.append(part.as_json())
                if not json:
                    common.emit(str(part))
    if json:
        common.emit_json({"parts": parts, "seconds": round(deadline.elapsed(), 4)})
    else:
        common.emit(f"total: {deadline.elapsed():.1f} s")
