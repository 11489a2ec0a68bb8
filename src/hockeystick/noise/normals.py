"""Independent standard normal numbers, each from one 64-bit word by the inverse of the normal distribution function.

One word a number, whatever its value: nothing is rejected, so the position in the stream of words says everything
about what comes next.
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

Reals = NDArray[np.floating[Any]]
Words = NDArray[np.uint64]

BATCH = 1 << 15
"""Words that are drawn and converted at a time: they stay in the cache, and need no memory that grows with d."""
SEGMENT_BITS = 5
"""Each power of two below 1/2 is cut into 2**5 segments of the inverse distribution function."""
DEGREE = 6
OCTAVES = 64
"""The uniforms are from 2**-65 to 1/2."""


class NormalSource(ABC):
    """A stream of N(0, 1) numbers.

    Guarantee: the words are uniform on 64 bits and independent as far as the generator says. A word's top bit is the
    sign and its other bits k give ``|x| = -Phi^{-1}((k + 1/2) / 2**64)``, computed in float64 with an absolute error
    below 1e-13 and then rounded to the type asked for. Before that rounding the distribution function differs from the
    normal one by at most 2**-65 anywhere; no value exceeds 9.2 in magnitude.
    """

    kind: str

    @abstractmethod
    def words(self, count: int) -> Words:
        """The next ``count`` words."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The position in the stream, as arrays and integers."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, Any]) -> "NormalSource":
        """A source that continues from a state."""

    def fill(self, out: Reals) -> None:
        """Overwrite ``out`` (contiguous, float32 or float64) with the next ``out.size`` numbers. About 5 ns each."""
        flat = out.reshape(-1)
        table = inverse_distribution_table()
        for first in range(0, flat.size, BATCH):
            part = flat[first : first + BATCH]
            words_to_normals(self.words(part.size), table, part)


class SeededSource(NormalSource):
    """Words from numpy's SFC64: fast, repeatable from a seed, and not made to withstand an adversary.

    Args:
        generator: the 256-bit state of SFC64, shape (4,) of uint64.
    """

    kind = "seeded"

    def __init__(self, generator: Words) -> None:
        self._bits = np.random.SFC64(0)
        self._bits.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.asarray(generator, dtype=np.uint64)},
            "has_uint32": 0,
            "uinteger": 0,
        }

    @classmethod
    def from_generator(cls, rng: np.random.Generator) -> "SeededSource":
        """A stream of its own, seeded with 256 bits from ``rng``, which may be used for other things afterwards."""
        if not isinstance(rng, np.random.Generator):
            raise InvalidInputError(
                "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
                f"Got an object of type {type(rng).__name__!r} instead."
            )
        entropy = rng.integers(0, 2**64 - 1, size=4, dtype=np.uint64, endpoint=True)
        return cls(np.random.SFC64([int(word) for word in entropy]).state["state"]["state"])

    def words(self, count: int) -> Words:
        return self._bits.random_raw(count)

    def state(self) -> dict[str, Any]:
        return {"generator": np.array(self._bits.state["state"]["state"], dtype=np.uint64)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SeededSource":
        generator = np.asarray(state["generator"])
        if generator.shape != (4,) or generator.dtype != np.uint64:
            raise InvalidInputError("The 'generator' entry of a noise state must be 4 words of 64 bits.")
        return cls(generator)


class KeyedSource(NormalSource):
    """Words from AES-256 in counter mode, under a secret key from the operating system.

    Nobody without the key can tell the words from random ones by any method known for AES-256. Whoever has the key
    (it is in :meth:`state`) can take the noise off every release.

    Args:
        key: 32 bytes.
        position: words of the stream that were used already.

    Raises: InvalidInputError where the ``cryptography`` package is missing.
    """

    kind = "keyed"

    def __init__(self, key: bytes, position: int = 0) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise InvalidInputError(
                "Secure noise needs the 'cryptography' package: pip install 'hockeystick[secure]'."
            ) from None
        self._key = key
        self._position = position
        # A block of AES is two words, and the counter that starts at zero counts blocks.
        counter = (position // 2).to_bytes(16, "big")
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
        self._zeros = bytes(8 * BATCH)
        self._encryptor.update(self._zeros[: 8 * (position % 2)])

    @classmethod
    def from_operating_system(cls) -> "KeyedSource":
        """A stream under a fresh key."""
        return cls(os.urandom(32))

    def words(self, count: int) -> Words:
        self._position += count
        return np.frombuffer(self._encryptor.update(self._zeros[: 8 * count]), dtype="<u8").astype(
            np.uint64, copy=False
        )

    def state(self) -> dict[str, Any]:
        return {"key": np.frombuffer(self._key, dtype=np.uint8).copy(), "position": self._position}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "KeyedSource":
        key, position = np.asarray(state["key"]), int(state["position"])
        if key.shape != (32,) or key.dtype != np.uint8 or position < 0:
            raise InvalidInputError("The 'key' entry of a noise state must be 32 bytes and 'position' at least 0.")
        return cls(key.tobytes(), position)


SOURCES: dict[str, type[NormalSource]] = {source.kind: source for source in (SeededSource, KeyedSource)}
"""The class of each kind of source, as a state names it."""


@lru_cache(maxsize=1)
def inverse_distribution_table() -> NDArray[np.float64]:
    """Polynomials for ``Phi^{-1}`` on [2**-65, 1/2], highest power first, shape (64 * 2**5 + 1, 7).

    Segment s covers ``2**e (1 + [i, i + 1) / 2**5)`` with s = 2**5 (e + 65) + i; its argument runs from 0 to 1. The
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


@njit(cache=True, fastmath={"contract"})
def words_to_normals(words: Words, table: NDArray[np.float64], out: Reals) -> None:
    """One number from each word; ``out`` is float32 or float64, of the size of ``words``.

    The segment of a uniform is read off the exponent and the leading bits of its double.
    """
    rest = 52 - SEGMENT_BITS
    lowest = (1023 - 1) << SEGMENT_BITS  # of 2**-65 * 2**64 = 1/2
    uniform = np.empty(1)  # in units of 2**-64
    bits = uniform.view(np.int64)
    for i in range(words.size):
        uniform[0] = np.float64(np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))) + 0.5
        segment = (bits[0] >> rest) - lowest
        place = (bits[0] & ((1 << rest) - 1)) * (1.0 / (1 << rest))
        value = table[segment, 0]
        for j in range(1, DEGREE + 1):
            value = value * place + table[segment, j]
        # A product, as a branch on a random bit would be mispredicted every other time.
        out[i] = value * (np.float64(np.int64(words[i] >> np.uint64(63))) * 2.0 - 1.0)
