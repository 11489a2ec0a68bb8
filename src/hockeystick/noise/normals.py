"""Independent standard normal numbers, each from the 64-bit words at its position by the inverse of the normal law.

One word a number, and more of them far in the tail: nothing is rejected, so the position of a number is that of its
words. Any part of the noise can be made again, or by another thread or process, without the rest.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.errors import HockeystickError, InvalidInputError, install
from hockeystick.noise.chacha import TILE, Words, chacha_tile

Reals = NDArray[np.floating[Any]]

MASK = 0x7FFFFFFFFFFFFFFF
"""All bits of a word but the sign."""

BATCH = 1 << 15
"""Words that are drawn and converted at a time: they stay in the cache, and need no memory that grows with d."""
SEGMENT_BITS = 7
"""Each power of two below 1/2 is cut into 2**7 segments of the inverse distribution function."""
DEGREE = 4
OCTAVES = 64
"""The uniforms of the table are from 2**-65 to 1/2."""
TABLE_DIGEST = "e0e3575eb30c02cb735057cda9c72d2e1c8d192a9cb38f92eab9dbf841d1e003"
"""SHA-256 of the table's file."""
TAIL = 1 << 20
"""A number of which all that is known is an integer below this takes 64 more bits: at first one of 2**43 numbers."""


class NormalSource(ABC):
    """N(0, 1) numbers 0, 1, 2, ..., each a function of the source's key and its own position alone.

    Guarantee: the words are uniform on 64 bits and independent as far as the generator says. A number begins with the
    word of level 0: its top bit is the sign (set: negative), its other bits are an integer k. While k < 2**20, the word
    w of the next level at the same position is appended: ``k = 2**64 k + w``. After level l the number is
    ``|x| = -Phi^{-1}((k + 1/2) / 2**(64 (l + 1)))``, computed in float64 with an absolute error below 1e-13, scaled,
    and then rounded to the type asked for. Before that error and that rounding, the probability of a value beyond any
    point differs from that of a normal number by at most 2**-65 and by at most 2**-21 of itself: each integer stands
    for a cell of the uniform, at whose middle it is, and a cell is at most 2**-20 times as wide as it is far from 0.

    Values have no end before 2e10, where levels end. Neighbouring values of size x > 5 are at most 2**-20 / x apart (a
    cell over the density, which is above x times the probability of the tail), others at most 2**-44. So at any scale
    every float32 number from 2**-16 standard deviations on is the rounding of one of them. Type float64 has gaps.
    """

    kind: str

    @abstractmethod
    def words(self, first: int, count: int, level: int = 0) -> Words:
        """The words of a level from position ``first`` on; the level is below 2**63."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The key, as arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, Any]) -> "NormalSource":
        """The source of a state."""

    def fill(self, out: Reals, first: int = 0, scale: float = 1.0) -> None:
        """Overwrite ``out`` (contiguous, float32 or float64) with ``scale`` times the numbers from ``first`` on."""
        flat = out.reshape(-1)
        if self._fill_from_level_0(flat, first, scale) < TAIL:
            self._refine(flat, first, scale)

    def _fill_from_level_0(self, out: Reals, first: int, scale: float) -> int:
        """Overwrite ``out``, shape (count,), as if every number ended at level 0; returns the smallest k."""
        table = inverse_distribution_table()
        smallest = MASK
        for start in range(0, out.size, BATCH):
            part = out[start : start + BATCH]
            words = self.words(first + start, part.size)
            smallest = min(smallest, int(words_to_normals(words, table, scale, part)))
        return smallest

    def _refine(self, out: Reals, first: int, scale: float) -> None:
        """Overwrite the numbers with k < ``TAIL`` after level 0; so few that looking for them may take long."""
        for start in range(0, out.size, BATCH):
            words = self.words(first + start, min(BATCH, out.size - start))
            for i in np.flatnonzero(words & np.uint64(MASK) < TAIL):
                size = self.tail_size(int(words[i]) & MASK, first + start + int(i))
                out[start + i] = size * (-1.0 if words[i] >> np.uint64(63) else 1.0) * scale

    def tail_size(self, k: int, position: int) -> float:
        """``|x|`` of the number at a position whose bits of level 0 are k, below ``TAIL``."""
        level = 0
        while k < TAIL:
            level += 1
            k = (k << 64) + int(self.words(position, 1, level)[0])
        return size_of_cell(k, 64 * (level + 1))


class SeededSource(NormalSource):
    """Words from ChaCha with 8 rounds: fast, repeatable from a seed, and no more secret than that.

    Args:
        key: 256 bits, shape (4,) of uint64.
    """

    kind = "seeded"

    def __init__(self, key: Words) -> None:
        self._words = np.array(key, dtype=np.uint64)
        self._key = self._words.astype("<u8").view("<u4").astype(np.uint32)

    @classmethod
    def from_generator(cls, rng: np.random.Generator) -> "SeededSource":
        """A stream of its own, seeded with 256 bits from ``rng``, which may be used for other things afterwards."""
        if not isinstance(rng, np.random.Generator):
            raise InvalidInputError(
                "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
                f"Got an object of type {type(rng).__name__!r} instead."
            )
        return cls(rng.integers(0, 2**64 - 1, size=4, dtype=np.uint64, endpoint=True))

    def words(self, first: int, count: int, level: int = 0) -> Words:
        tiles = range(first // TILE, -(-(first + count) // TILE))
        out = np.empty((len(tiles), TILE), np.uint64)
        for row, tile in zip(out, tiles, strict=True):
            chacha_tile(self._key, level, tile, row)
        return out.reshape(-1)[first % TILE :][:count]

    def _fill_from_level_0(self, out: Reals, first: int, scale: float) -> int:
        return int(seeded_normals(self._key, first, inverse_distribution_table(), scale, out))

    def state(self) -> dict[str, Any]:
        return {"key": self._words.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SeededSource":
        key = np.asarray(state["key"])
        if key.shape != (4,) or key.dtype != np.uint64:
            raise InvalidInputError("The 'key' entry of a noise state must be 4 words of 64 bits.")
        return cls(key)


class KeyedSource(NormalSource):
    """Words from AES-256 in counter mode, under a secret key from the operating system.

    Nobody without the key can tell the words from random ones by any method known for AES-256. Whoever has the key
    (it is in :meth:`state`) can take the noise off every release.

    Args:
        key: 32 bytes.

    Raises: InvalidInputError where the ``cryptography`` package is missing.
    """

    kind = "keyed"

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise InvalidInputError(
                f"Secure noise needs the package 'cryptography', which is not installed; {install('secure')}."
            ) from None
        self._key = key

        def encryptor(counter: int) -> Any:
            return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()

        self._encryptor = encryptor

    @classmethod
    def from_operating_system(cls) -> "KeyedSource":
        """A stream under a fresh key."""
        return cls(os.urandom(32))

    def words(self, first: int, count: int, level: int = 0) -> Words:
        skipped = first % 2
        counter = (level << 64) + first // 2  # a block of AES is two words, and the low half of the counter counts them
        stream: bytes = self._encryptor(counter).update(bytes(8 * (skipped + count)))
        return np.frombuffer(stream, dtype="<u8")[skipped:].astype(np.uint64, copy=False)

    def state(self) -> dict[str, Any]:
        return {"key": np.frombuffer(self._key, dtype=np.uint8).copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "KeyedSource":
        key = np.asarray(state["key"])
        if key.shape != (32,) or key.dtype != np.uint8:
            raise InvalidInputError("The 'key' entry of a noise state must be 32 bytes.")
        return cls(key.tobytes())


def size_of_cell(k: int, bits: int) -> float:
    """``-Phi^{-1}`` at the middle of the cell from ``k / 2**bits`` to ``(k + 1) / 2**bits``."""
    from scipy.special import ndtri_exp

    return -float(ndtri_exp(log(2 * k + 1) - (bits + 1) * log(2.0)))  # its uniform may be too small for a float64


SOURCES: dict[str, type[NormalSource]] = {source.kind: source for source in (SeededSource, KeyedSource)}
"""The class of each kind of source, as a state names it."""


@lru_cache(maxsize=1)
def inverse_distribution_table() -> NDArray[np.float64]:
    """Polynomials for ``Phi^{-1}`` on [2**-65, 1/2], highest power first, shape (64 * 2**7 + 1, 5).

    Segment s covers ``2**e (1 + [i, i + 1) / 2**7)`` with s = 2**7 (e + 65) + i; its argument runs from 0 to 1. The
    polynomial interpolates at Chebyshev nodes. The last segment is the point 1/2, where the function is zero. It is a
    file, so that the noise is the same whatever SciPy is installed; a test proves its error on every segment.

    Raises: HockeystickError where the file is not the one that was proved.
    """
    content = (Path(__file__).parent / "inverse_distribution.f64").read_bytes()
    if hashlib.sha256(content).hexdigest() != TABLE_DIGEST:
        raise HockeystickError("The table of the normal distribution was altered; install hockeystick again.")
    return np.frombuffer(content, dtype="<f8").astype(np.float64).reshape(-1, DEGREE + 1)


@kernel
def seeded_normals(
    key: NDArray[np.uint32], first: int, table: NDArray[np.float64], scale: float, out: Reals
) -> np.int64:
    """The numbers from position ``first`` on: those of :func:`words_to_normals` for the words of a key at level 0."""
    words = np.empty(TILE, np.uint64)
    done, smallest = 0, np.int64(MASK)
    while done < out.size:
        skipped = (first + done) % TILE
        count = min(TILE - skipped, out.size - done)
        chacha_tile(key, 0, (first + done) // TILE, words)
        least = words_to_normals(words[skipped : skipped + count], table, scale, out[done : done + count])
        smallest = min(smallest, least)
        done += count
    return smallest


@kernel(fastmath={"contract"})
def words_to_normals(words: Words, table: NDArray[np.float64], scale: float, out: Reals) -> np.int64:
    """``scale`` times one number from each word of level 0; returns the smallest k, which tells whether any needs more.

    ``out`` is float32 or float64, of the size of ``words``. The segment of a uniform is read off the exponent and the
    leading bits of its double.
    """
    rest = 52 - SEGMENT_BITS
    lowest = (1023 - 1) << SEGMENT_BITS  # of 2**-65 * 2**64 = 1/2
    uniforms = np.empty(words.size)  # in units of 2**-64; a loop of its own, as it is vectorised and the next is not
    smallest = np.int64(MASK)
    for i in range(words.size):
        k = np.int64(words[i] & np.uint64(MASK))
        smallest = min(smallest, k)
        uniforms[i] = np.float64(k) + 0.5
    bits = uniforms.view(np.int64)
    for i in range(words.size):
        segment = np.uint64((bits[i] >> rest) - lowest)
        place = (bits[i] & ((1 << rest) - 1)) * (1.0 / (1 << rest))
        value = table[segment, 0]
        for j in range(1, DEGREE + 1):
            value = value * place + table[segment, j]
        # A product, as a branch on a random bit would be mispredicted every other time.
        out[i] = value * (np.float64(np.int64(words[i] >> np.uint64(63))) * 2.0 - 1.0) * scale
    return smallest
