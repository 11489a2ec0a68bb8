"""Independent standard normal numbers, each from one 64-bit word by the inverse of the normal distribution function.

One word a number, whatever its value: nothing is rejected, so the position of a number is that of its word. Any part of
the noise can be made again, or by another thread or process, without the rest.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError
from hockeystick.noise.chacha import TILE, Words, chacha_tile

Reals = NDArray[np.floating[Any]]

BATCH = 1 << 15
"""Words that are drawn and converted at a time: they stay in the cache, and need no memory that grows with d."""
SEGMENT_BITS = 7
"""Each power of two below 1/2 is cut into 2**7 segments of the inverse distribution function."""
DEGREE = 4
OCTAVES = 64
"""The uniforms are from 2**-65 to 1/2."""


class NormalSource(ABC):
    """N(0, 1) numbers 0, 1, 2, ..., each a function of the source's key and its own position alone.

    Guarantee: the words are uniform on 64 bits and independent as far as the generator says. A word's top bit is the
    sign and its other bits k give ``|x| = -Phi^{-1}((k + 1/2) / 2**64)``, computed in float64 with an absolute error
    below 1e-13, scaled, and then rounded to the type asked for. Before that error and that rounding the distribution
    function differs from the normal one by at most 2**-65 anywhere. No value exceeds 9.2 in magnitude, before it is
    scaled.
    """

    kind: str

    @abstractmethod
    def words(self, first: int, count: int) -> Words:
        """The words from position ``first`` on."""

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
        table = inverse_distribution_table()
        for start in range(0, flat.size, BATCH):
            part = flat[start : start + BATCH]
            words_to_normals(self.words(first + start, part.size), table, scale, part)


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

    def words(self, first: int, count: int) -> Words:
        tiles = range(first // TILE, -(-(first + count) // TILE))
        out = np.empty((len(tiles), TILE), np.uint64)
        for row, tile in zip(out, tiles, strict=True):
            chacha_tile(self._key, tile, row)
        return out.reshape(-1)[first % TILE :][:count]

    def fill(self, out: Reals, first: int = 0, scale: float = 1.0) -> None:
        seeded_normals(self._key, first, inverse_distribution_table(), scale, out.reshape(-1))

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
                "Secure noise needs the 'cryptography' package: pip install 'hockeystick[secure]'."
            ) from None
        self._key = key

        def encryptor(block: int) -> Any:  # a block of AES is two words, and the counter counts blocks
            return Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()

        self._encryptor = encryptor

    @classmethod
    def from_operating_system(cls) -> "KeyedSource":
        """A stream under a fresh key."""
        return cls(os.urandom(32))

    def words(self, first: int, count: int) -> Words:
        skipped = first % 2
        stream: bytes = self._encryptor(first // 2).update(bytes(8 * (skipped + count)))
        return np.frombuffer(stream, dtype="<u8")[skipped:].astype(np.uint64, copy=False)

    def state(self) -> dict[str, Any]:
        return {"key": np.frombuffer(self._key, dtype=np.uint8).copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "KeyedSource":
        key = np.asarray(state["key"])
        if key.shape != (32,) or key.dtype != np.uint8:
            raise InvalidInputError("The 'key' entry of a noise state must be 32 bytes.")
        return cls(key.tobytes())


SOURCES: dict[str, type[NormalSource]] = {source.kind: source for source in (SeededSource, KeyedSource)}
"""The class of each kind of source, as a state names it."""


@lru_cache(maxsize=1)
def inverse_distribution_table() -> NDArray[np.float64]:
    """Polynomials for ``Phi^{-1}`` on [2**-65, 1/2], highest power first, shape (64 * 2**7 + 1, 5).

    Segment s covers ``2**e (1 + [i, i + 1) / 2**7)`` with s = 2**7 (e + 65) + i; its argument runs from 0 to 1. The
    polynomial interpolates at Chebyshev nodes. The last segment is the point 1/2, where the function is zero.
    """
    from scipy.special import ndtri

    segments = 1 << SEGMENT_BITS
    octave = 2.0 ** np.arange(-OCTAVES - 1, -1)[:, None]
    low = (octave * (1.0 + np.arange(segments) / segments)).reshape(-1, 1)
    width = np.broadcast_to(octave / segments, (OCTAVES, segments)).reshape(-1, 1)
    nodes = 0.5 + 0.5 * np.cos(np.pi * (2.0 * np.arange(DEGREE + 1) + 1.0) / (2.0 * DEGREE + 2.0))
    polynomials = np.linalg.solve(np.vander(nodes), ndtri(low + width * nodes).T).T
    return np.ascontiguousarray(np.vstack([polynomials, np.zeros(DEGREE + 1)]))


@njit(cache=True, nogil=True)
def seeded_normals(key: NDArray[np.uint32], first: int, table: NDArray[np.float64], scale: float, out: Reals) -> None:
    """The numbers from position ``first`` on: those of :func:`words_to_normals` for the words of a key."""
    words = np.empty(TILE, np.uint64)
    done = 0
    while done < out.size:
        skipped = (first + done) % TILE
        count = min(TILE - skipped, out.size - done)
        chacha_tile(key, (first + done) // TILE, words)
        words_to_normals(words[skipped : skipped + count], table, scale, out[done : done + count])
        done += count


@njit(cache=True, nogil=True, fastmath={"contract"})
def words_to_normals(words: Words, table: NDArray[np.float64], scale: float, out: Reals) -> None:
    """``scale`` times one number from each word; ``out`` is float32 or float64, of the size of ``words``.

    The segment of a uniform is read off the exponent and the leading bits of its double.
    """
    rest = 52 - SEGMENT_BITS
    lowest = (1023 - 1) << SEGMENT_BITS  # of 2**-65 * 2**64 = 1/2
    uniforms = np.empty(words.size)  # in units of 2**-64; a loop of its own, as it is vectorised and the next is not
    for i in range(words.size):
        uniforms[i] = np.float64(np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))) + 0.5
    bits = uniforms.view(np.int64)
    for i in range(words.size):
        segment = np.uint64((bits[i] >> rest) - lowest)
        place = (bits[i] & ((1 << rest) - 1)) * (1.0 / (1 << rest))
        value = table[segment, 0]
        for j in range(1, DEGREE + 1):
            value = value * place + table[segment, j]
        # A product, as a branch on a random bit would be mispredicted every other time.
        out[i] = value * (np.float64(np.int64(words[i] >> np.uint64(63))) * 2.0 - 1.0) * scale
