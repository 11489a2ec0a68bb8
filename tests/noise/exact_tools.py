"""Exact noise from nothing but the words of its source: Arb's enclosures and fractions, one number at a time."""

from fractions import Fraction
from math import floor

from flint import arb, ctx

from hockeystick.noise.normals import MASK

PLACES = 240
HALF = Fraction(1, 2)


def enclosed(source, position, levels=2):
    """Two fractions around the number at a position: ``sqrt(2) erfcinv(2 u)`` at the ends of the cell of its bits."""
    ctx.prec = 64 * levels + 200
    words = [int(source.words(position, 1, level)[0]) for level in range(levels)]
    k = words[0] & MASK
    for word in words[1:]:
        k = (k << 64) + word
    ends = [as_fractions((arb(end) / arb(2) ** (64 * levels - 1)).erfcinv() * arb(2).sqrt()) for end in (k + 1, k)]
    low, high = ends[0][0], ends[1][1]
    return (-high, -low) if words[0] >> 63 else (low, high)


def as_fractions(number):
    """The ends of a ball."""
    middle, radius = number.mid(), number.rad()
    (m, e), (r, f) = middle.man_exp(), radius.man_exp()
    m, e, r, f = int(m), int(e), int(r), int(f)
    centre, room = Fraction(m) * Fraction(2) ** e, Fraction(r) * Fraction(2) ** f
    return centre - room, centre + room


def rounded(low, high):
    """The whole number that both ends round to, halves upwards; None where they do not agree."""
    first, last = floor(low + HALF), floor(high + HALF)
    return first if first == last else None


def feedback(source, matrix, grid_scale, width, steps, column):
    """``v_t = round((z_t - sum C v) / C_tt)`` of one column, in fractions."""
    entries = [[Fraction(float(value)) for value in row] for row in matrix.materialize()]
    scale = Fraction(grid_scale)
    v: list[int | None] = []
    for t in range(steps):
        low, high = enclosed(source, t * width + column)
        past = sum((entries[t][s] * v[s] for s in range(t) if entries[t][s]), Fraction(0))
        v.append(rounded((scale * low - past) / entries[t][t], (scale * high - past) / entries[t][t]))
    return v


def sums(source, weights, grid_scale, width, column):
    """``v_t = round(sum_s W[t, s] z_s)`` of one column, in fractions, for all rows of W."""
    scale = Fraction(grid_scale)
    z: dict[int, tuple[Fraction, Fraction]] = {}
    v: list[int | None] = []
    for row in weights:
        low = high = Fraction(0)
        for s, value in enumerate(row):
            if value:
                z.setdefault(s, enclosed(source, s * width + column))
                ends = sorted(Fraction(float(value)) * scale * end for end in z[s])
                low, high = low + ends[0], high + ends[1]
        v.append(rounded(low, high))
    return v
