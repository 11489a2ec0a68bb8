"""Figures 2 and 3 on the whole grid: ``python papers/dong-ganesh-2026/grid.py [FILE]``, hours on one core.

First every cell is estimated, then one after the other is certified. ``cells.csv`` beside this file (or FILE) is
written after each: interrupt at any time, start again.
"""

import sys
from pathlib import Path
from time import process_time

from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import figures_of

FIRST = [(128, 0.5), (1024, 8.0), (128, 8.0), (1024, 0.5), (128, 2.0), (1024, 2.0), (256, 2.0)]
"""Cells that the text is about."""


def main(*paths: str) -> None:
    """Do what is missing in the file."""
    figures_of(Path(__file__).parent)
    cells = sys.modules["hockeystick_papers_dong_ganesh_2026.cells"]
    path = Path(paths[0]) if paths else cells.KEPT
    places = list(dict.fromkeys([*FIRST, *cells.PLACES]))
    for what in ("estimated", "certified"):
        for place in places:
            started, known = process_time(), cells.kept(path)
            here = [cell for cell in known if (cell.length, cell.epsilon) == place]
            if what == "estimated" and not here:
                here = cells.estimate(*place, cells.GRID, Deadline())
            elif what == "certified" and not all(cell.certified for cell in here):
                here = cells.certify(here, Deadline())
            else:
                continue
            others = [cell for cell in known if (cell.length, cell.epsilon) != place]
            cells.keep(path, [*others, *here], cells.PLACES, cells.GRID)
            seconds = process_time() - started
            sys.stderr.write(f"|D|/B = {place[0]}, epsilon = {place[1]:g}: {what} in {seconds:.0f} processor seconds\n")
            sys.stderr.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
