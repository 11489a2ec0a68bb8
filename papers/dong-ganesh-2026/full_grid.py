"""Figures 2 and 3 on the paper's whole grid: ``python papers/dong-ganesh-2026/full_grid.py DIRECTORY``.

Takes hours. Every cell is kept in ``DIRECTORY/cells.jsonl`` as soon as it is done: interrupt at any time, start again.
"""

import sys
from pathlib import Path

from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import Output, _figures


def main(directory: str) -> None:
    """Solve the missing cells and draw both figures."""
    _figures(Path(__file__).parent)
    package = sys.modules["hockeystick_papers_dong_ganesh_2026"]
    Path(directory).mkdir(parents=True, exist_ok=True)
    output = Output(Path(directory), Deadline())
    for figure in package.FULL_FIGURES.values():
        figure(output)
    sys.stdout.write("\n".join(output.lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
