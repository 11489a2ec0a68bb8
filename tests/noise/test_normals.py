"""Standard normal numbers from words: the inverse distribution function, the sources, and their law."""

import math
import struct
import sys

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstwo

from hockeystick.errors import InvalidInputError
from hockeystick.noise import normals as module
from hockeystick.noise.chacha import TILE
from hockeystick.noise.normals import (
    BATCH,
    SOURCES,
    TAIL,
    KeyedSource,
    NormalSource,
    SeededSource,
    inverse_distribution_table,
    words_to_normals,
)

SAMPLES = 200_000


def normals(words, dtype=np.float64):
    out = np.empty(len(words), dtype)
    words_to_normals(np.asarray(words, np.uint64), inverse_distribution_table(), 1.0, out)
    return out


def by_definition(word: int, *more: int) -> float:
    """|x| = -Phi^{-1}((k + 1/2) / 2^(64 words)), negative where the top bit is set, by mpmath with 80 digits.

    Args:
        more: the words of the levels after level 0, which are appended to k.
    """
    k = word % 2**63
    for appended in more:
        k = k * 2**64 + appended
    with mpmath.workdps(80):
        log_u = mpmath.log(k + mpmath.mpf(1) / 2) - 64 * (1 + len(more)) * mpmath.log(2)
        function = lambda x: mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2) - log_u  # noqa: E731
        largest = mpmath.sqrt(-2 * log_u)  # as the probability of the tail is at most exp(-x^2 / 2)
        x = mpmath.findroot(function, (mpmath.mpf(0), largest), solver="anderson", tol=1e-50)
        return float(-x if word >> 63 else x)


def seeded(seed=0):
    return SeededSource.from_generator(np.random.default_rng(seed))


def keyed(key=bytes(32)):
    pytest.importorskip("cryptography")
    return KeyedSource(key)


@pytest.mark.parametrize("sign", [0, 1])
def test_a_word_becomes_the_number_of_its_definition(sign):
    """Over all octaves of the uniform, ends of segments included."""
    ks = {0, 1, 2, 3, 2**63 - 1, 2**63 - 512, 2**63 - 2**50, 2**62, 2**62 - 1}
    ks |= {math.floor(2.0**octave * fraction) for octave in range(1, 63, 3) for fraction in (1.0, 1.33, 1.999)}
    words = [k + sign * 2**63 for k in sorted(ks)]
    expected = [by_definition(word) for word in words]
    np.testing.assert_allclose(normals(words), expected, rtol=0.0, atol=1e-13)


def test_all_segments_against_scipy():
    """Every segment of the table, at points inside and at its ends."""
    mantissas = 1.0 + (np.arange(128)[:, None] + np.array([1e-12, 0.2, 0.5, 0.77, 1.0 - 1e-12])) / 128.0
    uniforms = (2.0 ** np.arange(-62.0, -1.0)[:, None] * mantissas.reshape(-1)).reshape(-1)
    k = np.floor(uniforms * 2.0**64).astype(np.uint64)
    expected = ndtri((k.astype(np.float64) + 0.5) * 2.0**-64)
    np.testing.assert_allclose(normals(k + np.uint64(2**63)), expected, rtol=0.0, atol=1e-13)


SIGN = 2**63
PLANTED = [
    (0, 1, 0),
    (0, TAIL - 1, 7),  # the last number that ends at level 2
    (0, TAIL),  # the first number that ends at level 1
    (0, 2**63),
    (0, 2**64 - 1),
    (1, 0),
    (1, 2**64 - 1),
    (2, 12345),
    (TAIL - 1, 0),
    (TAIL - 1, 2**64 - 1),  # the last number that ends at level 1
    (TAIL,),  # the first number that ends at level 0
    (TAIL + 1,),
    (0, 0, 0, 5, 2**63),
    (0,) * 40 + (TAIL,),  # below the smallest float64
]
DEFAULT = 0x0123456789ABCDEF
"""The word of every position and level where none is planted."""


def plant(monkeypatch, make, planted):
    """A source whose words are ``DEFAULT`` but for those planted: position -> the words of levels 0, 1, ..."""

    def words(self, first, count, level=0):
        rows = [planted.get(position, ()) for position in range(first, first + count)]
        return np.array([row[level] if level < len(row) else DEFAULT for row in rows], np.uint64)

    source = make()
    monkeypatch.setattr(type(source), "words", words)
    monkeypatch.setattr(type(source), "_fill_from_level_0", NormalSource._fill_from_level_0)
    return source


@pytest.mark.parametrize("make", [seeded, keyed])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("first", [0, TILE // 2 + 1, 10**15 + 3])
def test_a_small_word_takes_more_words(monkeypatch, make, dtype, first):
    """Each at a position of its own, with either sign: the definition, and nothing else changes."""
    places = {first + 5 + 3 * i: words for i, words in enumerate(PLANTED)}
    places |= {first + BATCH - 2 + 3 * i: (words[0] + SIGN, *words[1:]) for i, words in enumerate(PLANTED)}
    source = plant(monkeypatch, make, places)
    out = np.empty(BATCH + 60, dtype)
    source.fill(out, first, 0.7)
    rest = np.ones(out.size, bool)
    for position, words in places.items():
        expected = 0.7 * by_definition(*words)
        assert out[position - first] == pytest.approx(expected, rel=2**-24 if dtype == np.float32 else 0.0, abs=1e-13)
        rest[position - first] = False
    assert (out[rest] == dtype(0.7 * normals([DEFAULT])[0])).all()
    alone = [(position - first, 1) for position in places]
    for start, count in (*alone, (6, 2), (BATCH - 1, 20), (0, BATCH)):
        part = np.empty(count, dtype)
        source.fill(part, first + start, 0.7)
        np.testing.assert_array_equal(part, out[start : start + count])


@pytest.mark.parametrize("make", [seeded, keyed])
def test_the_words_of_a_source_are_appended(monkeypatch, make):
    """With a bound on k under which 2^-11 of the numbers fall, so that this is seen: those, and only those, change."""
    source, count, first = make(), 20_000, 3 * TILE + 11
    before, after = np.empty(count), np.empty(count)
    source.fill(before, first)
    monkeypatch.setattr(module, "TAIL", 1 << 52)
    source.fill(after, first)
    words = [[int(word) for word in source.words(first, count, level)] for level in (0, 1)]
    small = [i for i in range(count) if words[0][i] % SIGN < 2**52]
    assert len(small) > 2
    assert not np.any(np.delete(before != after, small))
    for i in small:
        assert after[i] == pytest.approx(by_definition(words[0][i], words[1][i]), rel=0.0, abs=1e-13)


def test_the_size_falls_as_the_bits_grow_also_across_levels(monkeypatch):
    """All bits known of a number, in the order of the uniform; strictly, as the values lie 1e-8 apart and more."""
    in_order = [
        (0, 0, TAIL),
        (0, 1, 0),
        (0, 1, 2**63),
        (0, TAIL - 1, 2**63),
        (0, TAIL),
        (0, 2**63),
        (1, 0),
        (1, 2**63),
        (2, 0),
        (TAIL - 2, 2**63),
        (TAIL - 1, 2**63),
    ]
    source = plant(monkeypatch, seeded, dict(enumerate(in_order)))
    sizes = [source.tail_size(words[0], position) for position, words in enumerate(in_order)]
    sizes += list(normals([TAIL, TAIL + 1, TAIL + 2]))
    assert (np.diff(sizes) < -1e-8).all()


def test_neighbouring_values_are_within_half_a_float32_spacing():
    """At the widest cells of each level: the values of the two smallest integers that end there, by the definition."""
    for level in range(4):
        words = [[0] * level + [TAIL + i] for i in (0, 1)]
        larger, smaller = (by_definition(*draw) for draw in words)
        gap = larger - smaller
        assert gap <= 0.5 * np.spacing(np.float32(smaller))
        assert gap <= 2.0**-20 / smaller < 1.03 * gap  # the claim, and that it says no more than it must


def test_what_lies_beyond_an_end_can_come_out(monkeypatch):
    """Two levels reach beyond 9.16, the end of 63 bits, and 37 beyond 50."""
    source = plant(monkeypatch, seeded, {0: (0, 2**62), 1: (0,) * 37 + (TAIL,)})
    assert source.tail_size(0, 0) > 9.16
    assert source.tail_size(0, 1) > 50.0


@pytest.mark.parametrize("make", [seeded, keyed])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_law_is_normal(make, dtype):
    """Kolmogorov-Smirnov at level 1e-8, and the autocorrelations of the numbers and of their squares."""
    out = np.empty(SAMPLES, dtype)
    make().fill(out)
    x = np.sort(out.astype(np.float64))
    normal = 0.5 * np.array([math.erfc(-v / math.sqrt(2.0)) for v in x])
    grid = np.arange(SAMPLES + 1) / SAMPLES
    distance = max((grid[1:] - normal).max(), (normal - grid[:-1]).max())
    assert distance < kstwo.isf(1e-8, SAMPLES)
    y = out.astype(np.float64)
    for series in (y, (y**2 - 1.0) / math.sqrt(2.0)):
        for lag in (1, 2, 3, 64):
            # A mean of uncorrelated terms of variance one: six standard deviations, below 1e-8 in all.
            assert abs(np.mean(series[lag:] * series[:-lag])) < 6.0 / math.sqrt(SAMPLES - lag)


@pytest.mark.parametrize("make", [seeded, keyed])
def test_a_number_depends_on_its_position_alone(make):
    """One long draw is the same numbers as short ones in any order, at odd positions and across tiles and batches."""
    lengths = [1, 7, TILE, BATCH, 3, TILE - 5, BATCH + 5, 2]
    whole = np.empty(sum(lengths))
    source = make()
    source.fill(whole)
    ends = np.cumsum(lengths)
    for end, length in reversed(list(zip(ends, lengths, strict=True))):
        part = np.empty(length)
        source.fill(part, int(end) - length)
        np.testing.assert_array_equal(part, whole[end - length : end])
        np.testing.assert_array_equal(normals(source.words(int(end) - length, length)), part)


@pytest.mark.parametrize("make", [seeded, keyed])
def test_a_scale_multiplies_before_the_rounding(make):
    """Also at a position that a run of 1e5 steps on 1e10 parameters reaches."""
    exact, scaled = np.empty(50), np.empty(50, np.float32)
    make().fill(exact, 10**15 + 3)
    make().fill(scaled, 10**15 + 3, 1.7)
    np.testing.assert_array_equal(scaled, (exact * 1.7).astype(np.float32))


@pytest.mark.parametrize("make", [seeded, keyed])
def test_a_source_is_its_state(make):
    source = make()
    again = SOURCES[source.kind].from_state(source.state())
    np.testing.assert_array_equal(again.words(5, 9), source.words(5, 9))


def chacha(key: bytes, block: int, rounds: int, nonce: int = 0) -> bytes:
    """A block of ChaCha with a 64-bit counter and a 64-bit nonce, as its definition reads."""

    def quarter(x, a, b, c, d):
        for i, j, k, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[i] = (x[i] + x[j]) % 2**32
            word = x[k] ^ x[i]
            x[k] = (word << bits | word >> (32 - bits)) % 2**32

    place = (block % 2**32, block >> 32, nonce % 2**32, nonce >> 32)
    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), *place]
    x = list(state)
    for _ in range(rounds // 2):
        for i in range(4):
            quarter(x, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) % 2**32 for a, b in zip(x, state, strict=True)))


def test_the_definition_of_chacha_is_that_of_another_library():
    """With 20 rounds; its 16 bytes of nonce are the counter and the nonce."""
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key = bytes(range(32))
    for block, nonce in ((0, 0), (1, 0), (2**32 - 1, 0), (7, 1), (7, 2**63 + 5)):
        place = block.to_bytes(8, "little") + nonce.to_bytes(8, "little")
        stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, place), None).encryptor()
        assert stream.update(bytes(64)) == chacha(key, block, 20, nonce)


def test_the_seeded_words_are_those_of_chacha_with_8_rounds():
    """Blocks of several tiles; the first of the key of zeros is in draft-strombergson-chacha-test-vectors."""
    assert chacha(bytes(32), 0, 8).hex().startswith("3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e")
    key = np.random.default_rng(0).bytes(32)
    source = SeededSource(np.frombuffer(key, "<u8"))
    for tile in (0, 1, 2**27 - 1, 2**27):  # the counter's low half overflows in between
        words = source.words(TILE * tile, TILE).reshape(8, -1)
        for lane in (0, 1, 63):
            assert words[:, lane].astype("<u8").tobytes() == chacha(key, 64 * tile + lane, 8)
    for level in (1, 2, 2**32, 2**63 - 1):
        words = source.words(5 * TILE, TILE, level).reshape(8, -1)
        assert words[:, 3].astype("<u8").tobytes() == chacha(key, 64 * 5 + 3, 8, level)


def test_the_key_stream_is_aes_in_counter_mode():
    """NIST SP 800-38A, F.5.5 starts its counter elsewhere; FIPS 197, C.3 is one block of AES-256."""
    pytest.importorskip("cryptography")
    key = bytes(range(32))
    block = int.from_bytes(bytes.fromhex("00112233445566778899aabbccddeeff"), "big")
    words = KeyedSource(key).words(2 * block, 2)
    assert words.astype("<u8").tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"
    # The same block by its halves: the level is the upper one.
    level, block = divmod(block, 2**64)
    again = KeyedSource(key).words(2 * block + 1, 1, level)
    np.testing.assert_array_equal(again, words[1:])


def test_two_seeds_and_two_keys_differ():
    pytest.importorskip("cryptography")
    assert not np.intersect1d(seeded(0).words(0, 1000), seeded(1).words(0, 1000)).size
    first, second = KeyedSource.from_operating_system(), KeyedSource.from_operating_system()
    assert not np.intersect1d(first.words(0, 1000), second.words(0, 1000)).size


def test_seeding_moves_the_generator_on():
    rng = np.random.default_rng(0)
    first, second = SeededSource.from_generator(rng), SeededSource.from_generator(rng)
    assert not np.intersect1d(first.words(0, 1000), second.words(0, 1000)).size


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(InvalidInputError, match=r"pip install '\.\[secure\]'"):
        KeyedSource.from_operating_system()


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("seeded", {"key": np.zeros(3, np.uint64)}),
        ("seeded", {"key": np.zeros(4)}),
        ("keyed", {"key": np.zeros(16, np.uint8)}),
    ],
)
def test_states_that_cannot_be_are_refused(kind, state):
    with pytest.raises(InvalidInputError, match="noise state must be"):
        SOURCES[kind].from_state(state)
