"""hockeystick reproduce: recompute the figures and printed numbers of a paper."""

from typing import Annotated

import typer

from hockeystick.cli import common


def command(
    paper: Annotated[str | None, typer.Argument(help="Key of the paper; lists all papers if omitted.")] = None,
    figure: Annotated[str | None, typer.Argument(help="One figure or table; all of them if omitted.")] = None,
    out: Annotated[str, typer.Option("--out", help="Directory for PNG and CSV files.")] = "reproduced",
) -> None:
    """Recompute a paper's figures (PNG and CSV) and printed numbers (table with verdicts)."""
    from hockeystick.reproduction.papers import available, reproduce

    if paper is None:
        for key, figures in available().items():
            common.emit(f"{key}: {', '.join(figures)}")
        return
    with common.working("reproducing", "1e6") as deadline:
        for line in reproduce(paper, figure, out, deadline):
            common.emit(line)
