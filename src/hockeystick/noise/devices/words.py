"""Functions of kernels: the words of ChaCha with 8 rounds and their normal numbers, in registers.

A program makes LANES blocks, 64 of a tile, and so the words 64 j + i of these tiles for j = 0, ..., 7: sixteen vectors
of 32-bit words, a low and a high half for each j. The order of operations is that of :mod:`hockeystick.noise.chacha`
and of :func:`hockeystick.noise.normals.words_to_normals`, with the additions fused that the processor fuses.
"""

import triton
import triton.language as tl


@triton.jit
def quarter_round(a, b, c, d):
    """Additions modulo 2**32, exclusive ors and rotations by 16, 12, 8 and 7 bits."""
    a = a + b
    d = d ^ a
    d = (d << 16) | (d >> 16)
    c = c + d
    b = b ^ c
    b = (b << 12) | (b >> 20)
    a = a + b
    d = d ^ a
    d = (d << 8) | (d >> 24)
    c = c + d
    b = b ^ c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def double_round(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    """The four columns, then the four diagonals, of 16 words of 32 bits."""
    x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@triton.jit
def words(key, tile, LANES: tl.constexpr):
    """The words of level 0 of LANES blocks, from the first of a tile on: the first two are the halves for j = 0."""
    block = tl.cast(tile, tl.int64) * 64 + tl.arange(0, LANES)
    low = (block & 0xFFFFFFFF).to(tl.uint32)
    high = (block >> 32).to(tl.uint32)
    zero = low * 0
    x0, x1, x2, x3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    k0, k1, k2, k3 = tl.load(key), tl.load(key + 1), tl.load(key + 2), tl.load(key + 3)
    k4, k5, k6, k7 = tl.load(key + 4), tl.load(key + 5), tl.load(key + 6), tl.load(key + 7)
    x4, x5, x6, x7 = zero + k0, zero + k1, zero + k2, zero + k3
    x8, x9, x10, x11 = zero + k4, zero + k5, zero + k6, zero + k7
    x12, x13, x14, x15 = low, high, zero, zero
    for _ in tl.static_range(4):
        x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = double_round(
            x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15
        )
    return (
        x0 + 0x61707865, x1 + 0x3320646E, x2 + 0x79622D32, x3 + 0x6B206574, x4 + k0, x5 + k1, x6 + k2, x7 + k3,
        x8 + k4, x9 + k5, x10 + k6, x11 + k7, x12 + low, x13 + high, x14, x15,
    )  # fmt: skip


@triton.jit
def uniform(low, high):
    """``k + 1/2`` in float64, where k are the 63 bits of a word below its sign."""
    return (((high & 0x7FFFFFFF).to(tl.int64) << 32) | low.to(tl.int64)).to(tl.float64) + 0.5


@triton.jit
def normal(low, high, table, scale):
    """``scale`` times a number, in float64, as if it ended at level 0."""
    bits = uniform(low, high).to(tl.int64, bitcast=True)
    row = table + ((bits >> 45) - (1022 << 7)) * 5
    place = (bits & ((1 << 45) - 1)).to(tl.float64) * (1.0 / (1 << 45))
    value = tl.load(row)
    value = tl.fma(value, place, tl.load(row + 1))
    value = tl.fma(value, place, tl.load(row + 2))
    value = tl.fma(value, place, tl.load(row + 3))
    value = tl.fma(value, place, tl.load(row + 4))
    return value * ((high >> 31).to(tl.float64) * 2.0 - 1.0) * scale


@triton.jit
def column_of(shift, LANES: tl.constexpr):
    """The column of the word j = 0 of every lane, where column c has the word shift + c; 64 more for the next j."""
    lane = tl.arange(0, LANES)
    return (tl.program_id(0).to(tl.int64) * (LANES // 64) + lane // 64) * 512 + lane % 64 - shift


@triton.jit
def flag(flags, column, words, capacity):
    """Append ``256 column + words`` to a list whose length is ``flags[0]``, where there are such words.

    What does not fit is counted alone.

    Args:
        words: bit j stands for the word j of a lane, so for the column ``column + 64 j``.
    """
    some = words != 0
    slot = tl.atomic_add(flags + column * 0, 1, mask=some, sem="relaxed")
    tl.store(flags + 1 + slot, column * 256 + words, mask=some & (slot < capacity))
