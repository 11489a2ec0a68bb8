"""Millions of numbers of exact noise against Arb: ``python exact_oracle.py FORM NUMBERS``.

FORM is a key of ``FORMS``. Every number comes from a ball of the quantile over the cell of its word, at 128 bits, and
from whole numbers. What 63 bits leave open is decided by fractions with more of them, as in :mod:`exact_tools`.
"""

import sys
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from exact_tools import enclosed, rounded
from flint import arb, ctx

from hockeystick.mechanism import Mechanism
from hockeystick.noise import stream
from hockeystick.noise.exact.grid import grid_of
from hockeystick.noise.normals import MASK, SeededSource
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import BandedInverseSquareRoot, BandedSquareRoot, BinaryTree, Identity
from hockeystick.strategies.matrix.dyadic import UNIT

FORMS = {
    "identity": Identity(),
    "bands": BandedSquareRoot(bands=6),
    "bands of the inverse": BandedInverseSquareRoot(bands=6),
    "tree": BinaryTree(),
}
STEPS = 64


class Counts(NamedTuple):
    """How many numbers were compared, how many differed, and how many 63 bits left open."""

    numbers: int
    differing: int
    open: int


class Column:
    """The numbers of z in one column, as balls, in grid steps."""

    def __init__(self, source, words, scale, width, at):
        self.source, self.words, self.width, self.at = source, words, width, at
        self.factor = arb(scale) * arb(2).sqrt()
        self.scale, self.top = Fraction(scale), arb(2) ** -64
        self.balls = {}

    def ball(self, row):
        """A number of z by the 63 bits of its word."""
        if row not in self.balls:
            word = self.words[row]
            size = (arb(2 * (word & MASK) + 1, 1) * self.top).erfcinv() * self.factor
            self.balls[row] = -size if word >> 63 else size
        return self.balls[row]

    def ends(self, row, levels):
        """The same by more bits, in fractions."""
        return [self.scale * end for end in enclosed(self.source, row * self.width + self.at, levels)]

    def whole(self, terms, past, diagonal):
        """``floor((sum of weights times rows - past) / diagonal + 1/2)``, and whether it took more bits.

        ``terms`` are pairs of a fraction and a row; ``past`` and ``diagonal`` are whole.
        """
        total = sum(arb(weight.numerator) / arb(weight.denominator) * self.ball(row) for weight, row in terms)
        whole = ((total - past) / diagonal + arb(0.5)).floor().unique_fmpz()
        if whole is not None:
            return int(whole), False
        for levels in range(2, 9):
            low = high = -Fraction(past)
            for weight, row in terms:
                products = sorted(weight * end for end in self.ends(row, levels))
                low, high = low + products[0], high + products[1]
            decided = rounded(low / diagonal, high / diagonal)
            if decided is not None:
                return decided, True
        raise AssertionError("512 bits leave a number open")


def by_feedback(units, column):
    """``v_t`` of one column, with the entries of C in units, and whether each took more bits."""
    v: list[int] = []
    for t, row in enumerate(units):
        past = sum(unit * v[s] for s, unit in row if s < t)
        number, more = column.whole([(1 / Fraction(UNIT), t)], past, row[-1][1])
        v.append(number)
        yield number, more


def by_sums(weights, column):
    """The same for ``v = round(W z)``."""
    for row in weights:
        yield column.whole([(weight, s) for s, weight in row], 0, 1)


def entries_of(rows, value):
    """Column and value of the entries of every row that are not 0."""
    return [[(int(s), value(row[s])) for s in np.flatnonzero(row)] for row in rows]


def compare(form, numbers, seed=0):
    """Compare about so many numbers, in columns of ``STEPS`` steps."""
    ctx.prec = 128
    strategy, width = FORMS[form], max(1, numbers // STEPS)
    run = Mechanism(strategy=strategy, sampler=BallsInBins(bins=STEPS), noise_multiplier=1.7, exact=True)
    matrix, grid = run.matrix, grid_of(run.matrix, run.sigma, width)
    made = np.array(list(stream(run, width, rng=np.random.default_rng(seed))))
    source = SeededSource.from_generator(np.random.default_rng(seed))
    words = source.words(0, matrix.rows * width).reshape(matrix.rows, width)
    if form in ("bands of the inverse", "tree"):
        solve, entries = by_sums, entries_of(matrix.solve(np.eye(matrix.rows)), lambda value: Fraction(float(value)))
    else:
        solve, entries = by_feedback, entries_of(matrix.materialize(), lambda value: int(value / UNIT))
    differing = left_open = 0
    for at in range(width):
        column = Column(source, words[:, at].tolist(), grid.scale, width, at)
        for number, (expected, more) in zip(made[:, at].tolist(), solve(entries, column), strict=True):
            differing += number != expected
            left_open += more
    return Counts(made.size, differing, left_open)


if __name__ == "__main__":
    print(*sys.argv[1:], compare(sys.argv[1], int(sys.argv[2])))  # noqa: T201
