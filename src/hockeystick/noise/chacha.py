"""ChaCha with 8 rounds: words that follow from a key and their position alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel

Words = NDArray[np.uint64]

LANES = 64
"""Blocks that are made together, so that one instruction works on several of them."""
TILE = 8 * LANES
"""Words of 64 bits in these blocks."""


@kernel
def chacha_tile(key: NDArray[np.uint32], level: int, tile: int, out: Words) -> None:
    """Overwrite ``out``, shape (512,), with the words of a tile: of the blocks 64 tile, ..., 64 tile + 63.

    Word 64 j + i is the j-th pair of 32-bit words of the i-th block, the first of the pair in its low half. The block
    counter has 64 bits and so has the nonce, which is the level: words of different levels are independent.

    Source: Bernstein (2008), "ChaCha, a variant of Salsa20". With eight rounds, as Aumasson (2019), "Too much crypto",
    proposes: no attack on eight is known that is faster than trying all keys.

    Args:
        key: shape (8,).
    """
    nonce_low, nonce_high = np.uint32(level), np.uint32(np.uint64(level) >> np.uint64(32))
    for lane in range(LANES):
        block = np.uint64(LANES * tile + lane)
        low, high = np.uint32(block), np.uint32(block >> np.uint64(32))
        x0, x1, x2, x3 = np.uint32(0x61707865), np.uint32(0x3320646E), np.uint32(0x79622D32), np.uint32(0x6B206574)
        x4, x5, x6, x7 = key[0], key[1], key[2], key[3]
        x8, x9, x10, x11 = key[4], key[5], key[6], key[7]
        x12, x13, x14, x15 = low, high, nonce_low, nonce_high
        state = (x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15)
        x = double_round(double_round(double_round(double_round(state))))  # written out, or nothing is vectorised
        out[lane] = pair(x[0] + x0, x[1] + x1)
        out[lane + LANES] = pair(x[2] + x2, x[3] + x3)
        out[lane + 2 * LANES] = pair(x[4] + x4, x[5] + x5)
        out[lane + 3 * LANES] = pair(x[6] + x6, x[7] + x7)
        out[lane + 4 * LANES] = pair(x[8] + x8, x[9] + x9)
        out[lane + 5 * LANES] = pair(x[10] + x10, x[11] + x11)
        out[lane + 6 * LANES] = pair(x[12] + x12, x[13] + x13)
        out[lane + 7 * LANES] = pair(x[14] + x14, x[15] + x15)


@kernel
def double_round(x: Any) -> Any:
    """The four columns, then the four diagonals, of 16 words of 32 bits."""
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = x
    x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@kernel
def quarter_round(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Additions modulo 2**32, exclusive ors and rotations by 16, 12, 8 and 7 bits."""
    a = np.uint32(a + b)
    d = rotated(d ^ a, 16)
    c = np.uint32(c + d)
    b = rotated(b ^ c, 12)
    a = np.uint32(a + b)
    d = rotated(d ^ a, 8)
    c = np.uint32(c + d)
    b = rotated(b ^ c, 7)
    return a, b, c, d


@kernel
def rotated(value: Any, bits: int) -> Any:
    """A word of 32 bits, rotated to the left."""
    word = np.uint32(value)
    return np.uint32((word << np.uint32(bits)) | (word >> np.uint32(32 - bits)))


@kernel
def pair(low: Any, high: Any) -> Any:
    """Two words of 32 bits, of which only the low halves count, as one of 64."""
    return np.uint64(np.uint32(low)) | (np.uint64(np.uint32(high)) << np.uint64(32))
