"""hockeystick reproduce: recompute the figures and printed numbers of a paper."""

from typing import Annotated

import typer

from hockeystick.cli import common


def command(
    paper: Annotated[str | None, typer.Argument(help="Key of the paper, or 'all'; lists papers if omitted.")] = None,
    figure: Annotated[str | None, typer.Argument(help="One figure or table; all of them if omitted.")] = None,
    out: Annotated[str, typer.Option("--out", help="Directory for PNG and CSV files.")] = "reproduced",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and smaller cases; takes minutes.")] = False,
) -> None:
    """Recompute a paper's figures (PNG and CSV) and printed numbers (table with verdicts).

    A run that was interrupted continues where it stopped.
    """
    from hockeystick.reproduction.papers import available, check, reproduce

    if paper is None:
        for key, figures in available().items():
            common.emit(f"{key}: {', '.join(figures)}")
        return
    papers = list(available()) if paper == "all" else [paper]
    for one in papers:
        check(one, figure)
    with common.working("reproducing", None) as deadline:
        for one in papers:
            for line in reproduce(one, figure, out, deadline, quick=quick):
                common.emit(line)
        common.emit(f"total: {deadline.elapsed():.1f} s")
