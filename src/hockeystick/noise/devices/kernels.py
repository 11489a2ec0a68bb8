"""The kernels: normal numbers, and the rows of x that are made of them, in the order of operations of the processor.

They take the columns begin, ..., stop - 1 of a row; column c has the number at position ``512 tile + shift + c``. What
they cannot decide, they flag. Numbers in float64 come in tensors, as Triton makes a Python float a float32.

Flags: shape (capacity + 1,), int64: how many, then columns as :func:`hockeystick.noise.devices.words.flag` writes them,
in no order. Where they are more than the capacity, the kernel has to run again with more room; no kernel but
:func:`accumulate` reads what it writes.
"""

import triton
import triton.language as tl

from hockeystick.noise.devices.words import column_of, flag, normal, uniform, words

TAIL = tl.constexpr(float(1 << 20))
"""As in :mod:`hockeystick.noise.normals`: a number below it takes more words."""
CELL = tl.constexpr(0.75)
"""Half the cell of k is at most .63 / k standard deviations wide, and .75 / (k + 1/2) is more from k = 3 on."""
ROUNDOFF = tl.constexpr(3.0 * 2.0**-52)
"""Six times the relative error of one operation: of those that a number goes through before it is rounded."""

CHANGING = [
    *("out", "total", "weights", "over", "numbers", "units", "doubts"),
    *("rows", "place", "width", "bands", "tile", "shift", "begin", "stop", "capacity"),
]
"""Arguments whose value or alignment changes from step to step: no kernel is compiled again for that."""


@triton.jit
def put_normals(at, low, high, column, begin, stop, table, scale, end):
    """Store a vector of numbers; returns which of them need more words than one."""
    inside = (column >= begin) & (column < stop)
    value = normal(low, high, table, scale)
    tl.store(at + column, value.to(at.dtype.element_ty), mask=inside)
    return (inside & ((uniform(low, high) < TAIL) | (tl.abs(value) > end))).to(tl.int64)


@triton.jit(do_not_specialize=CHANGING)
def normals(out, key, table, scales, flags, tile, shift, begin, stop, capacity, LANES: tl.constexpr):
    """``out[c] = scale z[c]``, flagged beyond an end.

    Args:
        out: float32 or float64.
        scales: the standard deviation and the end.
    """
    scale, end = tl.load(scales), tl.load(scales + 1)
    column = column_of(shift, LANES)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = words(
        key, tile + tl.program_id(0).to(tl.int64) * (LANES // 64), LANES
    )
    bad = put_normals(out, w0, w1, column, begin, stop, table, scale, end)
    bad |= put_normals(out, w2, w3, column + 64, begin, stop, table, scale, end) << 1
    bad |= put_normals(out, w4, w5, column + 128, begin, stop, table, scale, end) << 2
    bad |= put_normals(out, w6, w7, column + 192, begin, stop, table, scale, end) << 3
    bad |= put_normals(out, w8, w9, column + 256, begin, stop, table, scale, end) << 4
    bad |= put_normals(out, w10, w11, column + 320, begin, stop, table, scale, end) << 5
    bad |= put_normals(out, w12, w13, column + 384, begin, stop, table, scale, end) << 6
    bad |= put_normals(out, w14, w15, column + 448, begin, stop, table, scale, end) << 7
    flag(flags, column, bad, capacity)


@triton.jit
def put_products(at, low, high, column, begin, stop, table, scale, end, weight):
    """Add the products of a vector of numbers, which are rounded to the type of the sum before; returns the same."""
    inside = (column >= begin) & (column < stop)
    value = normal(low, high, table, scale)
    total = tl.load(at + column, mask=inside, other=0.0)
    tl.store(at + column, tl.fma(value.to(at.dtype.element_ty), weight, total), mask=inside)
    return (inside & ((uniform(low, high) < TAIL) | (tl.abs(value) > end))).to(tl.int64)


@triton.jit(do_not_specialize=CHANGING)
def accumulate(total, key, table, scales, weights, flags, tile, shift, begin, stop, capacity, LANES: tl.constexpr):
    """``total[c] += weight scale z[c]``, flagged beyond an end.

    Args:
        total: float32 or float64.
        scales: the standard deviation and the end.
        weights: its first entry is the weight, in the type of the sum.
    """
    scale, end, weight = tl.load(scales), tl.load(scales + 1), tl.load(weights)
    column = column_of(shift, LANES)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = words(
        key, tile + tl.program_id(0).to(tl.int64) * (LANES // 64), LANES
    )
    bad = put_products(total, w0, w1, column, begin, stop, table, scale, end, weight)
    bad |= put_products(total, w2, w3, column + 64, begin, stop, table, scale, end, weight) << 1
    bad |= put_products(total, w4, w5, column + 128, begin, stop, table, scale, end, weight) << 2
    bad |= put_products(total, w6, w7, column + 192, begin, stop, table, scale, end, weight) << 3
    bad |= put_products(total, w8, w9, column + 256, begin, stop, table, scale, end, weight) << 4
    bad |= put_products(total, w10, w11, column + 320, begin, stop, table, scale, end, weight) << 5
    bad |= put_products(total, w12, w13, column + 384, begin, stop, table, scale, end, weight) << 6
    bad |= put_products(total, w14, w15, column + 448, begin, stop, table, scale, end, weight) << 7
    flag(flags, column, bad, capacity)


@triton.jit
def in_tail(low, high, column, begin, stop):
    """Which of a vector of numbers need more words than one."""
    return ((column >= begin) & (column < stop) & (uniform(low, high) < TAIL)).to(tl.int64)


@triton.jit
def plus_past(row, past, column, begin, stop, weight):
    """Add the product of a weight and a vector of an earlier row."""
    inside = (column >= begin) & (column < stop)
    return tl.fma(tl.load(past + column, mask=inside, other=0.0), weight, row)


@triton.jit
def put_row(at, row, column, begin, stop):
    """Store a vector of a row."""
    tl.store(at + column, row, mask=(column >= begin) & (column < stop))


@triton.jit(do_not_specialize=CHANGING)
def substitute(
    ring, key, table, scales, weights, over, flags, rows, place, width, bands, tile, shift, begin, stop, capacity,
    LANES: tl.constexpr,
):  # fmt: skip
    """``ring[place] = over (scale z + sum_{0 < j < bands} weights[j] ring[place - j])``, of one step.

    Args:
        ring: shape (rows, width), float32 or float64; the row before the first one is the last one.
        scales: the standard deviation.
        weights: minus the entries of C, shape (bands,), in the type of the ring, as ``over``, one over the diagonal.
    """
    scale = tl.load(scales)
    dtype: tl.constexpr = ring.dtype.element_ty
    column = column_of(shift, LANES)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = words(
        key, tile + tl.program_id(0).to(tl.int64) * (LANES // 64), LANES
    )
    bad = in_tail(w0, w1, column, begin, stop)
    bad |= in_tail(w2, w3, column + 64, begin, stop) << 1
    bad |= in_tail(w4, w5, column + 128, begin, stop) << 2
    bad |= in_tail(w6, w7, column + 192, begin, stop) << 3
    bad |= in_tail(w8, w9, column + 256, begin, stop) << 4
    bad |= in_tail(w10, w11, column + 320, begin, stop) << 5
    bad |= in_tail(w12, w13, column + 384, begin, stop) << 6
    bad |= in_tail(w14, w15, column + 448, begin, stop) << 7
    flag(flags, column, bad, capacity)
    a0 = normal(w0, w1, table, scale).to(dtype)
    a1 = normal(w2, w3, table, scale).to(dtype)
    a2 = normal(w4, w5, table, scale).to(dtype)
    a3 = normal(w6, w7, table, scale).to(dtype)
    a4 = normal(w8, w9, table, scale).to(dtype)
    a5 = normal(w10, w11, table, scale).to(dtype)
    a6 = normal(w12, w13, table, scale).to(dtype)
    a7 = normal(w14, w15, table, scale).to(dtype)
    for j in tl.range(1, bands):
        past = ring + tl.cast((place - j + rows) % rows, tl.int64) * width
        weight = tl.load(weights + j)
        a0 = plus_past(a0, past, column, begin, stop, weight)
        a1 = plus_past(a1, past, column + 64, begin, stop, weight)
        a2 = plus_past(a2, past, column + 128, begin, stop, weight)
        a3 = plus_past(a3, past, column + 192, begin, stop, weight)
        a4 = plus_past(a4, past, column + 256, begin, stop, weight)
        a5 = plus_past(a5, past, column + 320, begin, stop, weight)
        a6 = plus_past(a6, past, column + 384, begin, stop, weight)
        a7 = plus_past(a7, past, column + 448, begin, stop, weight)
    factor, out = tl.load(over), ring + tl.cast(place, tl.int64) * width
    put_row(out, a0 * factor, column, begin, stop)
    put_row(out, a1 * factor, column + 64, begin, stop)
    put_row(out, a2 * factor, column + 128, begin, stop)
    put_row(out, a3 * factor, column + 192, begin, stop)
    put_row(out, a4 * factor, column + 256, begin, stop)
    put_row(out, a5 * factor, column + 320, begin, stop)
    put_row(out, a6 * factor, column + 384, begin, stop)
    put_row(out, a7 * factor, column + 448, begin, stop)


@triton.jit
def plus_units(past, row, column, begin, stop, unit):
    """Add the product of a weight and a vector of an earlier row, in whole numbers."""
    inside = (column >= begin) & (column < stop)
    return past + tl.load(row + column, mask=inside, other=0).to(tl.int64) * unit


@triton.jit
def put_rounded(at, low, high, past, column, begin, stop, table, numbers, diagonal):
    """Store a vector of whole numbers, as ``exact.kernels._by_units`` makes them; returns which are not certain.

    The quotient of the past by the diagonal is made in floating point and is off by one at most, which its rest shows.
    """
    inside = (column >= begin) & (column < stop)
    scale, over, inverse = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    middle = uniform(low, high)
    large = normal(low, high, table, scale) * over
    doubt = tl.load(numbers + 3) + CELL / middle * tl.load(numbers + 4) + ROUNDOFF * tl.abs(large)
    whole = tl.floor(past.to(tl.float64) * inverse).to(tl.int64)
    rest = past - whole * diagonal
    step = (rest >= diagonal).to(tl.int64) - (rest < 0).to(tl.int64)
    shifted = large - (rest - step * diagonal).to(tl.float64) * inverse + 0.5
    down = tl.floor(shifted)
    tl.store(at + column, (down.to(tl.int64) - whole - step).to(tl.int32), mask=inside)
    return (inside & ((middle < TAIL) | (tl.abs(shifted - down - 0.5) > 0.5 - doubt))).to(tl.int64)


@triton.jit(do_not_specialize=CHANGING)
def feed_back(
    ring, key, table, numbers, units, flags, rows, place, width, bands, tile, shift, begin, stop, capacity,
    LANES: tl.constexpr,
):  # fmt: skip
    """``ring[place] = floor((scale z - sum_{0 < j < bands} C[j] ring[place - j]) / C[0] + 1/2)``, of one step.

    Args:
        ring: shape (rows, width), int32; the row before the first one is the last one.
        numbers: the standard deviation; one over the diagonal; one over it in units of ``2^-24``; a bound on the error
            of what is rounded, but for the width of cells and the size of z; the standard deviation over the diagonal.
        units: the entries of C in units of ``2^-24``, shape (bands,), int32 or int64.
    """
    column = column_of(shift, LANES)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = words(
        key, tile + tl.program_id(0).to(tl.int64) * (LANES // 64), LANES
    )
    p0 = tl.full((LANES,), 0, tl.int64)
    p1, p2, p3, p4, p5, p6, p7 = p0, p0, p0, p0, p0, p0, p0
    for j in tl.range(1, bands):
        row = ring + tl.cast((place - j + rows) % rows, tl.int64) * width
        unit = tl.load(units + j).to(tl.int64)
        p0 = plus_units(p0, row, column, begin, stop, unit)
        p1 = plus_units(p1, row, column + 64, begin, stop, unit)
        p2 = plus_units(p2, row, column + 128, begin, stop, unit)
        p3 = plus_units(p3, row, column + 192, begin, stop, unit)
        p4 = plus_units(p4, row, column + 256, begin, stop, unit)
        p5 = plus_units(p5, row, column + 320, begin, stop, unit)
        p6 = plus_units(p6, row, column + 384, begin, stop, unit)
        p7 = plus_units(p7, row, column + 448, begin, stop, unit)
    diagonal, out = tl.load(units).to(tl.int64), ring + tl.cast(place, tl.int64) * width
    bad = put_rounded(out, w0, w1, p0, column, begin, stop, table, numbers, diagonal)
    bad |= put_rounded(out, w2, w3, p1, column + 64, begin, stop, table, numbers, diagonal) << 1
    bad |= put_rounded(out, w4, w5, p2, column + 128, begin, stop, table, numbers, diagonal) << 2
    bad |= put_rounded(out, w6, w7, p3, column + 192, begin, stop, table, numbers, diagonal) << 3
    bad |= put_rounded(out, w8, w9, p4, column + 256, begin, stop, table, numbers, diagonal) << 4
    bad |= put_rounded(out, w10, w11, p5, column + 320, begin, stop, table, numbers, diagonal) << 5
    bad |= put_rounded(out, w12, w13, p6, column + 384, begin, stop, table, numbers, diagonal) << 6
    bad |= put_rounded(out, w14, w15, p7, column + 448, begin, stop, table, numbers, diagonal) << 7
    flag(flags, column, bad, capacity)


@triton.jit(do_not_specialize=CHANGING)
def combine(
    out, ring, weights, doubts, flags, rows, place, width, bands, capacity, ROUNDED: tl.constexpr, LANES: tl.constexpr
):
    """``out = sum_{j < bands} weights[j] ring[place - j]``; where it is to be rounded, ``floor(that + 1/2)``.

    Args:
        out: shape (width,); int32 where it is to be rounded.
        ring: shape (rows, width), float32 or float64; the row before the first one is the last one.
        weights: shape (bands,), in the type of the ring.
        doubts: where it is to be rounded, its first entry is a bound on the error of the sum.
    """
    column = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = column < width
    total = tl.load(ring + tl.cast(place, tl.int64) * width + column, mask=inside, other=0.0) * tl.load(weights)
    for j in tl.range(1, bands):
        past = ring + tl.cast((place - j + rows) % rows, tl.int64) * width + column
        total = tl.fma(tl.load(past, mask=inside, other=0.0), tl.load(weights + j), total)
    if ROUNDED:
        shifted = total + 0.5
        down = tl.floor(shifted)
        bad = inside & (tl.abs(shifted - down - 0.5) > 0.5 - tl.load(doubts))
        flag(flags, column, bad.to(tl.int64), capacity)
        tl.store(out + column, down.to(tl.int32), mask=inside)
    else:
        tl.store(out + column, total, mask=inside)
