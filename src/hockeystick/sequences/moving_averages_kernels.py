"""Hot loops of the sums over moving averages: plain arrays in, plain arrays out, compiled by numba.

Complex numbers are kept as real parts and imaginary ones, each in an array of its own.
"""

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.sequences.complex_dot import complex_dot

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@kernel(fastmath={"contract", "reassoc"})
def place_table(
    nodes: Array, stride: int, starts: Counts, factors: Array, newest: int, columns: int, natural: Array, table: Array
) -> None:
    """A bin's table, interpolated between nodes, in the order in which the windows of one state follow each other.

    Args:
        nodes: shape (2, N), real parts and imaginary ones.
        stride: how many nodes the places ``c``, ``c + w``, ``c + 2 w``, ... are apart, w the length of ``starts``.
        starts, factors: shape (w,) and (w, J), J a multiple of 4: the first node of the first w places, and what
            J nodes count there.
        newest: distance of places that follow each other.
        columns: how many of them there are.
        natural: shape (3, places), to work in.
        table: shape (2, K), which is written; what is beyond the last place is 0.
    """
    wide, places = starts.size, natural.shape[1]
    many = (places + wide - 1) // wide
    sums = natural[2, :many]
    for part in range(2):
        for c in range(wide):
            count = (places - c + wide - 1) // wide
            for q in range(count):
                sums[q] = 0.0
            for j in range(0, factors.shape[1], 4):
                f, g, h, k = factors[c, j], factors[c, j + 1], factors[c, j + 2], factors[c, j + 3]
                near = nodes[part, starts[c] + j :]
                if stride == 1:
                    for q in range(count):
                        sums[q] += f * near[q] + g * near[q + 1] + h * near[q + 2] + k * near[q + 3]
                else:
                    for q in range(count):
                        t = stride * q
                        sums[q] += f * near[t] + g * near[t + 1] + h * near[t + 2] + k * near[t + 3]
            for q in range(count):
                natural[part, c + wide * q] = sums[q]
        for place in range(table.shape[1]):
            table[part, place] = 0.0
        for row in range(newest if newest > 0 else places):
            last = columns if newest == 0 else min(columns, (places - 1 - row) // newest + 1)
            for column in range(last):
                table[part, row * columns + column] = natural[part, row + newest * column]


@kernel(fastmath={"contract", "reassoc"})
def window_sums(
    begins: Counts, counts: Counts, values: Array, tables: Array, kinds: Counts, first: Counts, work: Array, sums: Array
) -> None:
    """One group of bins backwards: for each state the mean over its windows of what the group adds times what follows.

    Args:
        begins, counts: of :class:`..moving_averages.InnovationWindows`.
        values: shape (2, S + LANES), of the states that windows lead to, times their chances; the ``LANES`` at the end
            are read, and have no effect.
        tables: shape (kinds, 2, K), the transform of what a bin adds at each place, and ``LANES`` zeros at the end.
        kinds: shape (q,), the table of each bin.
        first: shape (q, S), the place of the first window of each state in each bin's table; the others follow.
        work: shape (2, the most windows of a state + LANES), to work in.
        sums: shape (2, S), which is written.
    """
    rows, bins = begins.size, kinds.size
    reals, imaginaries = values[0], values[1]
    a, b, places = tables[kinds[0], 0], tables[kinds[0], 1], first[0]
    # The windows of a state lead to states that follow each other, and show places that follow each other in a table:
    # the mean over them is one inner product.
    if bins == 1:
        for s in range(rows):
            sums[0, s], sums[1, s] = complex_dot(reals, imaginaries, a, b, begins[s], places[s], counts[s])
        return
    # With several bins in the group, what all but the first of them add is multiplied in before.
    x, y = work[0], work[1]
    for s in range(rows):
        n, begin = counts[s], begins[s]
        # One by one: for a whole array numba compiles for seconds what its message about shapes needs.
        for j in range(n):
            x[j], y[j] = reals[begin + j], imaginaries[begin + j]
        for i in range(1, bins):
            table, place = tables[kinds[i]], first[i, s]
            c, d = table[0, place : place + n], table[1, place : place + n]
            for j in range(n):
                u, v = x[j], y[j]
                x[j] = u * c[j] - v * d[j]
                y[j] = u * d[j] + v * c[j]
        sums[0, s], sums[1, s] = complex_dot(x, y, a, b, 0, places[s], n)


@kernel(fastmath={"contract", "reassoc"}, inline="always")
def _add_adjoints(begins: Counts, counts: Counts, values: Array, table: Array, first: Counts, adjoints: Array) -> None:
    """Add to ``adjoints`` what :func:`window_adjoints` sums for a group of one bin, in one pass."""
    for s in range(begins.size):
        n, begin, place = counts[s], begins[s], first[s]
        u, v = values[0, s], values[1, s]
        c, d = table[0, place : place + n], table[1, place : place + n]
        reals, imaginaries = adjoints[0, begin : begin + n], adjoints[1, begin : begin + n]
        for j in range(n):
            reals[j] += u * c[j] + v * d[j]
            imaginaries[j] += v * c[j] - u * d[j]


@kernel(fastmath={"contract", "reassoc"})
def window_adjoints(
    begins: Counts,
    counts: Counts,
    values: Array,
    tables: Array,
    kinds: Counts,
    first: Counts,
    work: Array,
    adjoints: Array,
) -> None:
    """Add to ``adjoints``, shape (2, S), for each state what :func:`window_sums` takes of it, conjugated.

    Times chances over the weights of states, that is the adjoint for inner products with these weights. Arguments as
    there, but for ``values``, shape (2, S): of the states that windows begin at, times their weights.
    """
    if kinds.size == 1:
        _add_adjoints(begins, counts, values, tables[kinds[0]], first[0], adjoints)
        return
    x, y = work[0], work[1]
    for s in range(begins.size):
        n, begin = counts[s], begins[s]
        for j in range(n):  # one by one, as above
            x[j], y[j] = values[0, s], values[1, s]
        for i in range(kinds.size):
            table, place = tables[kinds[i]], first[i, s]
            c, d = table[0, place : place + n], table[1, place : place + n]
            for j in range(n):
                u, v = x[j], y[j]
                x[j] = u * c[j] + v * d[j]
                y[j] = v * c[j] - u * d[j]
        for j in range(n):
            adjoints[0, begin + j] += x[j]
            adjoints[1, begin + j] += y[j]


@kernel
def window_means(
    begins: Counts, counts: Counts, values: Array, scales: Array, kinds: Counts, first: Counts, means: Array
) -> None:
    """The same for mass and mean of the rest of the sum; ``scales`` has the mean that a bin adds at each place.

    Args:
        values: shape (2, S), of the states that windows lead to, times their chances.
        means: shape (2, S), which is written.
    """
    for s in range(begins.size):
        mass = mean = 0.0
        for j in range(counts[s]):
            t = begins[s] + j
            added = 0.0
            for i in range(kinds.size):
                added += scales[kinds[i], first[i, s] + j]
            mass += values[0, t]
            mean += values[1, t] + added * values[0, t]
        means[0, s], means[1, s] = mass, mean


@kernel(fastmath={"contract", "reassoc"})
def factor_of(before: Array, after: Array, weights: Array) -> tuple[float, float, float]:
    """The complex factor that best explains ``after`` by ``before``, of shape (2, S), and the norm of the rest."""
    size = real = imaginary = 0.0
    for s in range(weights.size):  # least squares: <before, after> / <before, before>
        a, b, c, d, w = before[0, s], before[1, s], after[0, s], after[1, s], weights[s]
        size += w * (a * a + b * b)
        real += w * (c * a + d * b)
        imaginary += w * (d * a - c * b)
    if size > 0.0:
        real, imaginary = real / size, imaginary / size
    rest = 0.0
    for s in range(weights.size):
        a, b, c, d = before[0, s], before[1, s], after[0, s], after[1, s]
        rest += weights[s] * ((c - real * a + imaginary * b) ** 2 + (d - real * b - imaginary * a) ** 2)
    return real, imaginary, np.sqrt(rest)
