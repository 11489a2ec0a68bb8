"""One cell of Figures 2 and 3: the least error of each sampling scheme at one epoch length and one epsilon."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from time import process_time

from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically

from .runs import (
    DELTA,
    DRAFT,
    STEPS,
    Draft,
    b_min_sep,
    bracketed_noise,
    cyclic_noise,
    draft_delta,
    draft_noise,
    error,
    refined,
)

SCHEMES = ("cyclic_poisson", "balls_in_bins", "b_min_sep")
KEPT = Path(__file__).parent / "cells.csv"
"""What was computed on the whole grid, by ``python papers/dong-ganesh-2026/grid.py``."""
ROOM, ROUGH, ROUGH_ROOM = 1.03, DRAFT // 4, 2.5
"""A choice of C and b is dropped where its draft needs an error of more than ROOM times the least so far. A quarter of
the samples does where they are far from it: where their delta is above ROUGH_ROOM times the target."""


@dataclass(frozen=True)
class Search:
    """What is tried in a cell.

    Attributes:
        bands: numbers of bands of C.
        limits: the best of each scheme is sought among at most so many bands, for each of these limits.
    """

    bands: tuple[int, ...]
    limits: tuple[int, ...]

    def min_seps(self, bands: int, length: int) -> list[int]:
        """The values of b for C with these bands: every power of two times the bands up to the epoch length."""
        return [bands << power for power in range(length.bit_length()) if bands << power <= length]


GRID = Search(bands=(2, 4, 8, 16, 32, 64), limits=(32, 64))
"""The paper's, with 64 bands beside its limit of 32."""
PLACES = [(length, epsilon) for length in (128, 256, 512, 1024) for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]


@dataclass(frozen=True)
class Scheme:
    """The best of a scheme in a cell: ``sigma`` is an estimate, and certainly between the other two.

    Where nothing was certified they are 0 and infinity.
    """

    bands: int
    min_sep: int
    sigma: float
    sigma_lower: float = 0.0
    sigma_upper: float = inf

    def errors(self, steps: int = STEPS) -> tuple[float, float, float]:
        """The mean squared error: at least, as estimated, at most."""
        unit = error(self.bands, steps)
        return unit * self.sigma_lower**2, unit * self.sigma**2, unit * self.sigma_upper**2

    @property
    def certified(self) -> bool:
        """Whether the noise is known from both sides."""
        return self.sigma_lower > 0.0 and isfinite(self.sigma_upper)


@dataclass(frozen=True)
class Cell:
    """What came out among C with at most so many bands, and the processor seconds that its estimates took."""

    length: int
    epsilon: float
    most_bands: int
    seconds: float
    cyclic_poisson: Scheme
    balls_in_bins: Scheme
    b_min_sep: Scheme

    @property
    def certified(self) -> bool:
        """Whether all noise multipliers are known from both sides."""
        return all(getattr(self, scheme).certified for scheme in SCHEMES)

    def ratio(self, other: str, steps: int = STEPS) -> tuple[float, float, float]:
        """The error of b-min-sep over that of another scheme: at least, as estimated, at most."""
        theirs: Scheme = getattr(self, other)
        if self.b_min_sep == theirs:
            return 1.0, 1.0, 1.0
        (low, middle, high), (other_low, other_middle, other_high) = self.b_min_sep.errors(steps), theirs.errors(steps)
        return low / other_high, middle / other_middle, high / other_low if other_low > 0.0 else inf


def estimate(length: int, epsilon: float, search: Search, deadline: Deadline, steps: int = STEPS) -> list[Cell]:
    """Find the best of each scheme by drafts, one cell for each limit. Only cyclic Poisson's noise is certified."""
    started = process_time()
    cyclic = {bands: cyclic_noise(bands, length, epsilon, steps) for bands in search.bands}
    drafts: dict[tuple[int, int], Draft] = {}
    least = inf
    for bands in search.bands:
        last = Draft(cyclic[bands].upper, 8.0)
        for min_sep in reversed(search.min_seps(bands, length)):
            deadline.tick()
            run, unit = b_min_sep(bands, min_sep, length, steps), error(bands, steps)
            if min_sep < length:
                enough = run((ROOM * least / unit) ** 0.5)
                if draft_delta(enough, epsilon, ROUGH) > ROUGH_ROOM * DELTA or draft_delta(enough, epsilon) > DELTA:
                    continue
            last = drafts[bands, min_sep] = draft_noise(run, epsilon, last, deadline)
            least = min(least, unit * last.sigma**2)
    known: dict[tuple[int, int], Scheme] = {}

    def best(limit: int, shortest: int) -> Scheme:
        of_limit = (which for which in drafts if which[0] <= limit and which[1] >= shortest)
        which = min(of_limit, key=lambda pair: error(pair[0], steps) * drafts[pair].sigma ** 2)
        if which not in known:
            run = b_min_sep(*which, length, steps)
            known[which] = Scheme(*which, refined(run, epsilon, drafts[which], deadline))
        return known[which]

    rows = []
    for limit in search.limits:
        bands = min(
            (count for count in cyclic if count <= limit),
            key=lambda count: error(count, steps) * cyclic[count].upper ** 2,
        )
        noise = cyclic[bands]
        poisson = Scheme(bands, bands, noise.upper, noise.lower, noise.upper)
        rows.append((limit, poisson, best(limit, length), best(limit, 0)))
    seconds = round(process_time() - started, 1)
    return [Cell(length, epsilon, limit, seconds, *schemes) for limit, *schemes in rows]


def certify(cells: Sequence[Cell], deadline: Deadline, steps: int = STEPS) -> list[Cell]:
    """The cells of one place with certified noise. Which C and b are the best is not certified."""
    known: dict[tuple[int, int], Scheme] = {}

    def certified(cell: Cell, scheme: Scheme) -> Scheme:
        which = scheme.bands, scheme.min_sep
        if which not in known:
            run = b_min_sep(*which, cell.length, steps)
            bracket = bracketed_noise(run, cell.epsilon, Draft(scheme.sigma, 10.0), deadline)
            known[which] = replace(scheme, sigma_lower=bracket.lower, sigma_upper=bracket.upper)
        return known[which]

    return [
        replace(cell, balls_in_bins=certified(cell, cell.balls_in_bins), b_min_sep=certified(cell, cell.b_min_sep))
        for cell in cells
    ]


# --- results that are kept --------------------------------------------------------------------------------------------

OF_SCHEMES = [f"{s}_{name}" for s in SCHEMES for name in ("bands", "min_sep", "sigma", "sigma_lower", "sigma_upper")]
COLUMNS = ["epoch_length", "epsilon", "most_bands", "seconds", *OF_SCHEMES]


def kept(path: Path = KEPT) -> list[Cell]:
    """The cells of a file. A row without results is a cell that was not computed, and a scheme without bounds one that
    was not certified.

    Raises: InvalidInputError for a file with anything else.
    """
    if not path.exists():
        return []
    cells = []
    try:
        header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
        if header != COLUMNS:
            raise ValueError("other columns")
        for length, epsilon, limit, seconds, *values in rows:
            if any(values):
                schemes = [
                    Scheme(int(bands), int(min_sep), float(sigma), float(low or 0.0), float(high or inf))
                    for bands, min_sep, sigma, low, high in zip(*[iter(values)] * 5, strict=True)
                ]
                cells.append(Cell(int(length), float(epsilon), int(limit), float(seconds), *schemes))
    except (ValueError, TypeError) as reason:
        raise InvalidInputError(f"The results {str(path)!r} are not cells of this version: {reason}.") from None
    return cells


def keep(path: Path, cells: Iterable[Cell], places: Sequence[tuple[int, float]], search: Search) -> None:
    """Write the cells in the order of the places, with an empty row for each that is missing."""
    by_place = {(cell.length, cell.epsilon, cell.most_bands): cell for cell in cells}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for length, epsilon in places:
        for limit in search.limits:
            cell = by_place.get((length, epsilon, limit))
            where = [length, f"{epsilon:g}", limit]
            writer.writerow([*where, *([""] * 16 if cell is None else [cell.seconds, *_columns(cell)])])
    write_atomically(path, text.getvalue())


def _columns(cell: Cell) -> list[object]:
    columns: list[object] = []
    for scheme in SCHEMES:
        parameters: Scheme = getattr(cell, scheme)
        ends = [f"{parameters.sigma_lower:.6g}", f"{parameters.sigma_upper:.6g}"] if parameters.certified else ["", ""]
        columns += [parameters.bands, parameters.min_sep, f"{parameters.sigma:.6g}", *ends]
    return columns
