"""Millions of numbers of exact noise against a proved enclosure: ``python exact_oracle.py FORM NUMBERS [SEED]``.

FORM is a key of ``FORMS``. Nothing but the words and the matrix is taken from the library. A number v is right where
the uniform of its word lies between the tails of the normal law at the two points that v is rounded from. Tails are
polynomials in float64 whose error Arb proves (:class:`Tail`); where they decide nothing, Arb does, with as many bits as
it takes.
"""

import sys
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
from exact_tools import enclosed, rounded
from flint import arb, ctx

from hockeystick.mechanism import Mechanism
from hockeystick.noise import Replay, stream
from hockeystick.noise.exact.grid import grid_of
from hockeystick.noise.normals import MASK, SeededSource
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import (
    BandedInverseSquareRoot,
    BandedSquareRoot,
    BinaryTree,
    ColumnNormalizedBanded,
    Identity,
    SquareRoot,
)
from hockeystick.strategies.matrix.dyadic import UNIT

FORMS = {
    "identity": (Identity(), None),
    "bands": (BandedSquareRoot(bands=6), None),
    "every column its own": (ColumnNormalizedBanded(bands=6), None),
    "all rows": (SquareRoot(), None),
    "bands of the inverse": (BandedInverseSquareRoot(bands=6), None),
    "replay": (BandedInverseSquareRoot(bands=6), Replay()),
    "tree": (BinaryTree(), None),
}
SUMS = ("bands of the inverse", "replay", "tree")
STEPS = 64
BLOCK = 4096
"""Columns that are compared together."""
ROUNDOFF = 2.0**-53
ROOM = 2.0**-47
"""What two tails are apart at least where one is larger than the other: their errors, and those of what is compared."""
END_OF_TAIL = 9.0
"""Larger numbers are left to Arb."""
NEAR = 2.0**-44
"""Two points this far on either side of a number's guess are shown to enclose it."""


class Counts(NamedTuple):
    """How many numbers were compared, how many differed, and how many were left to Arb."""

    numbers: int
    differing: int
    by_arb: int


class Tail:
    """``Q(x) = P(N(0, 1) > x)`` for x in [0, END_OF_TAIL), by Taylor's polynomial of degree 6 at the nearest node.

    ``error``, which Arb proves here: no value is further from Q(x) than this times Q(x). With h half a gap of nodes,
    the truncation at a node n is at most max |Q^(7)| h^7 / 7! on [n - h, n + h], over Q(n + h), as Q falls. ``x - n``
    is exact. A coefficient is rounded once, and goes through at most 6 products and 6 sums: 13 roundings of at most the
    sum of all |terms|. Derivatives are ``Q^(i) = (-1)^i He_{i-1} phi``.
    """

    NODES, DEGREE = 512, 6

    def __init__(self):
        ctx.prec = 160
        half = arb(1) / (2 * self.NODES)
        self.table = np.empty((int(END_OF_TAIL * self.NODES) + 1, self.DEGREE + 1))
        worst = arb(0)
        for j in range(len(self.table)):
            node = arb(j) / self.NODES
            least = ((node + half) / arb(2).sqrt()).erfc() / 2
            terms = taylor(node, self.DEGREE)
            self.table[j] = [float(term) for term in terms]
            truncation = abs(taylor(node + arb(0, half), self.DEGREE + 1)[-1]) * half ** (self.DEGREE + 1)
            rounding = 13 * ROUNDOFF * sum(abs(term) * half**i for i, term in enumerate(terms))
            worst = worst.max(((truncation + rounding) / least).upper())
        self.error = float(worst) * (1.0 + ROUNDOFF)

    def __call__(self, x):
        nearest = np.rint(x * self.NODES)
        rest, coefficients = x - nearest / self.NODES, self.table[nearest.astype(np.int64)]
        value = coefficients[..., self.DEGREE].copy()
        for i in range(self.DEGREE - 1, -1, -1):
            value *= rest
            value += coefficients[..., i]
        return value


@cache
def proved_tail():
    """The one tail that all comparisons take, with what they allow for its error."""
    tail = Tail()
    assert tail.error + 4.0 * ROUNDOFF < ROOM
    return tail


def taylor(x, degree):
    """``Q^(i)(x) / i!`` for i = 0, ..., degree, for a ball x."""
    density = (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    terms, hermite, factorial = [(x / arb(2).sqrt()).erfc() / 2], [arb(1), x], arb(1)
    for i in range(1, degree + 1):
        factorial *= i
        terms.append((-1) ** i * hermite[i - 1] * density / factorial)
        hermite.append(x * hermite[i] - i * hermite[i - 1])
    return terms


def is_within(tail, words, low, high):
    """Whether the numbers of words are proved to lie between two points each; False says nothing.

    The points may be off by twice the roundoff of themselves.
    """
    negative = words >> np.uint64(63) != 0
    low, high = np.where(negative, -high, low), np.where(negative, -low, high)  # of the size, -sign times the number
    low, high = low + 4.0 * ROUNDOFF * abs(low), high - 4.0 * ROUNDOFF * abs(high)
    k = (words & np.uint64(MASK)).astype(np.int64)
    known = (high > 0.0) & (high < END_OF_TAIL)
    above = tail(np.where(known, high, 0.0)) * (1.0 + ROOM) < k.astype(np.float64) * 2.0**-64
    below = tail(np.where(known & (low > 0.0), low, 0.0)) * (1.0 - ROOM) > (k + 1).astype(np.float64) * 2.0**-64
    return known & above & (below | (low <= 0.0))


def by_feedback(tail, words, v, units, scale):
    """Where ``v_t = floor((z_t - sum of C v) / C_tt + 1/2)`` is proved, shape of v; units are the entries of C.

    ``z_t`` is ``scale`` times the number of a word, so that number is between ``(C_tt (2 v_t - 1) + 2 sum of C v)`` and
    the same with ``2 v_t + 1``, over ``2 scale``: both whole numbers in units, without error.
    """
    proved = np.empty(v.shape, bool)
    whole, over = v.astype(np.int64), 2.0 * scale / UNIT
    for t, row in enumerate(units):
        middle = 2 * sum(unit * whole[s] for s, unit in row)
        ends = [(middle + sign * row[-1][1]).astype(np.float64) / over for sign in (-1, 1)]
        proved[t] = is_within(tail, words[t], *ends)
    return proved


def by_sums(tail, words, v, weights, scale):
    """Where ``v_t = floor(scale sum of W z + 1/2)`` is proved: every number of z is within ``NEAR`` of its guess."""
    from scipy.special import ndtri

    k = (words & np.uint64(MASK)).astype(np.float64) + 0.5
    guess = ndtri(k * 2.0**-64) * np.where(words >> np.uint64(63), 1.0, -1.0)
    near = is_within(tail, words, guess - NEAR, guess + NEAR)
    proved = np.empty(v.shape, bool)
    for t, row in enumerate(weights):
        parts = [float(weight) * scale * guess[s] for s, weight in row]
        room = sum(abs(part) for part in parts) * (len(row) + 6) * ROUNDOFF
        room += sum(abs(float(weight)) for _, weight in row) * scale * NEAR * (1.0 + 64.0 * ROUNDOFF)
        proved[t] = abs(sum(parts) - v[t]) < 0.5 - room
        proved[t] &= np.logical_and.reduce([near[s] for s, _ in row])
    return proved


def decided(source, scale, terms, past, diagonal):
    """``floor((scale sum of weights times numbers - past) / diagonal + 1/2)`` by Arb, from pairs (weight, position)."""
    for levels in range(2, 9):
        low = high = -Fraction(past)
        for weight, position in terms:
            ends = sorted(weight * Fraction(scale) * end for end in enclosed(source, position, levels))
            low, high = low + ends[0], high + ends[1]
        whole = rounded(low / diagonal, high / diagonal)
        if whole is not None:
            return whole
    raise AssertionError("512 bits leave a number open")


def entries_of(rows, value):
    """Column and value of the entries of every row that are not 0."""
    return [[(int(s), value(row[s])) for s in np.flatnonzero(row)] for row in rows]


def compare(form, numbers, seed=0):
    """Compare about so many numbers, in columns of ``STEPS`` steps."""
    strategy, rows = FORMS[form]
    width = max(1, numbers // STEPS)
    run = Mechanism(strategy=strategy, sampler=BallsInBins(bins=STEPS), noise_multiplier=1.7, exact=True)
    matrix, scale = run.matrix, grid_of(run.matrix, run.sigma, width).scale
    made = np.array(list(stream(run, width, rng=np.random.default_rng(seed), rows=rows)))
    source = SeededSource.from_generator(np.random.default_rng(seed))
    words = source.words(0, matrix.rows * width).reshape(matrix.rows, width)
    if form in SUMS:
        prove, entries = by_sums, entries_of(matrix.solve(np.eye(matrix.rows)), lambda value: Fraction(float(value)))
    else:
        prove, entries = by_feedback, entries_of(matrix.materialize(), lambda value: int(value / UNIT))
    tail, proved = proved_tail(), np.zeros(made.shape, bool)
    for start in range(0, width, BLOCK):
        part = slice(start, start + BLOCK)
        proved[:, part] = prove(tail, words[:, part], made[:, part], entries, scale)
    differing = 0
    for t, at in np.argwhere(~proved).tolist():
        if form in SUMS:
            terms, past, diagonal = [(weight, s * width + at) for s, weight in entries[t]], 0, 1
        else:
            past = sum(unit * int(made[s, at]) for s, unit in entries[t] if s < t)
            terms, diagonal = [(1 / Fraction(UNIT), t * width + at)], entries[t][-1][1]
        differing += int(made[t, at]) != decided(source, scale, terms, past, diagonal)
    return Counts(made.size, differing, int(np.count_nonzero(~proved)))


if __name__ == "__main__":
    print(sys.argv[1], compare(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:])))  # noqa: T201
