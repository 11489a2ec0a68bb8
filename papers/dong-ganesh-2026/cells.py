"""One cell of Figures 2 and 3: the least error of each sampling scheme at one epoch length and one epsilon."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError

from .runs import DELTA, SEED, STEPS, b_min_sep, bracketed_noise, cyclic_noise, draft_noise, error

FORMAT = "dong-ganesh-2026/1"


@dataclass(frozen=True)
class Search:
    """What is tried in a cell.

    Attributes:
        bands: numbers of bands of C.
        factors: min_sep as multiples of the bands; the epoch length itself, balls-in-bins, is always tried.
    """

    bands: tuple[int, ...]
    factors: tuple[int, ...]

    def min_seps(self, bands: int, length: int) -> list[int]:
        """The values of b for C with these bands, without that of balls-in-bins."""
        return sorted({bands * factor for factor in self.factors if bands * factor < length})


COARSE = Search(bands=(8, 32), factors=(1, 8))
FULL = Search(bands=(2, 4, 8, 16, 32), factors=tuple(2**k for k in range(10)))
"""The paper's: every power of two from the number of bands to the epoch length."""
COARSE_CELLS = [(128, 0.5), (128, 8.0), (1024, 8.0)]
FULL_CELLS = [(length, epsilon) for length in (128, 256, 512, 1024) for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]


@dataclass(frozen=True)
class Scheme:
    """The best of a scheme in a cell: ``sigma`` lies between the two, and so does the mean squared error."""

    bands: int
    min_sep: int
    sigma_lower: float
    sigma_upper: float

    def errors(self, steps: int) -> tuple[float, float]:
        """The mean squared error at either end of the noise."""
        unit = error(self.bands, steps)
        return unit * self.sigma_lower**2, unit * self.sigma_upper**2


@dataclass(frozen=True)
class Cell:
    """What came out, with everything that it depends on."""

    length: int
    epsilon: float
    search: dict[str, Any]
    steps: int
    delta: float
    seed: int
    cyclic_poisson: Scheme
    balls_in_bins: Scheme
    b_min_sep: Scheme

    def ratio(self, other: str) -> tuple[float, float]:
        """The error of b-min-sep over that of another scheme: the least and the most that is possible."""
        low, high = self.b_min_sep.errors(self.steps)
        other_low, other_high = getattr(self, other).errors(self.steps)
        if self.b_min_sep == getattr(self, other):
            return 1.0, 1.0
        return low / other_high, high / other_low if other_low > 0.0 else float("inf")


def solve(length: int, epsilon: float, search: Search, deadline: Deadline, steps: int = STEPS) -> Cell:
    """Compare the schemes by drafts, then certify the best of each. Which is best is not certified.

    The comparison with cyclic Poisson is exact accounting, to 0.1 percent in its noise.
    """
    cyclic = {bands: cyclic_noise(bands, length, epsilon, steps) for bands in search.bands}
    bands = min(cyclic, key=lambda one: error(one, steps) * cyclic[one] ** 2)
    drafts = {}
    for one in search.bands:
        for min_sep in [*search.min_seps(one, length), length]:
            drafts[one, min_sep] = draft_noise(b_min_sep(one, min_sep, length, steps), epsilon, cyclic[one], deadline)

    def expected(which: tuple[int, int]) -> float:
        return error(which[0], steps) * drafts[which].sigma ** 2

    def certified(which: tuple[int, int]) -> Scheme:
        run = b_min_sep(*which, length, steps)
        found = bracketed_noise(run, epsilon, drafts[which], deadline)
        return Scheme(*which, found.lower, found.upper)

    bins = min((which for which in drafts if which[1] == length), key=expected)
    best = min(drafts, key=expected)
    in_bins = certified(bins)
    return Cell(
        length=length,
        epsilon=epsilon,
        search=asdict(search),
        steps=steps,
        delta=DELTA,
        seed=SEED,
        cyclic_poisson=Scheme(bands, bands, cyclic[bands] * (1.0 - 1e-3), cyclic[bands]),
        balls_in_bins=in_bins,
        b_min_sep=in_bins if best == bins else certified(best),
    )


# --- results that are kept --------------------------------------------------------------------------------------------


def kept(path: Path) -> Iterator[Cell]:
    """The cells of a file, one JSON object a line; a last line that was cut off is not there.

    Raises: InvalidInputError for a file with anything else.
    """
    if not path.exists():
        return
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    for line in lines:
        try:
            record = json.loads(line)
            version = record.pop("format")
            schemes = {name: Scheme(**record.pop(name)) for name in ("cyclic_poisson", "balls_in_bins", "b_min_sep")}
            cell = Cell(**record, **schemes)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInputError(f"The results {str(path)!r} have a line that is no cell; remove it.") from None
        if version != FORMAT:
            raise InvalidInputError(f"The results {str(path)!r} are of another version; remove them.")
        yield cell


def keep(path: Path, cell: Cell) -> None:
    """Add a cell; it is on the disk when this returns."""
    line = json.dumps({"format": FORMAT, **asdict(cell)})
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:  # the writer was stopped in the middle of a line
        os.truncate(path, len(whole.encode()))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def solved(
    path: Path, places: Sequence[tuple[int, float]], search: Search, deadline: Deadline, steps: int = STEPS
) -> list[Cell]:
    """The cells of these places with this search: from the file, or solved now and added to it."""
    wanted = json.loads(json.dumps(asdict(search)))
    same = {"search": wanted, "steps": steps, "delta": DELTA, "seed": SEED}
    known = {
        (cell.length, cell.epsilon): cell for cell in kept(path) if same == {name: getattr(cell, name) for name in same}
    }
    for place in places:
        if place not in known:
            known[place] = solve(*place, search, deadline, steps)
            keep(path, known[place])
    return [known[place] for place in places]
