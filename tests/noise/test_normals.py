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
from hockeystick.noise.chacha import TILE
from hockeystick.noise.normals import (
    BATCH,
    SOURCES,
    KeyedSource,
    SeededSource,
    inverse_distribution_table,
    words_to_normals,
)

SAMPLES = 200_000


def normals(words, dtype=np.float64):
    out = np.empty(len(words), dtype)
    words_to_normals(np.asarray(words, np.uint64), inverse_distribution_table(), 1.0, out)
    return out


def by_definition(word: int) -> float:
    """|x| = -Phi^{-1}((k + 1/2) / 2^64), negative where the top bit is clear, by mpmath with 40 digits."""
    with mpmath.workdps(40):
        u = (mpmath.mpf(word % 2**63) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64
        start = float(ndtri(float(u)))
        x = mpmath.findroot(lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2 - u, start, tol=1e-60, verify=False)
        return float(x if word >> 63 else -x)


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


def test_the_tail_is_where_it_is_said_to_be():
    largest = normals([0])[0]
    assert 9.1 < largest < 9.2
    assert math.erfc(largest / math.sqrt(2.0)) == pytest.approx(2.0**-64, rel=1e-9)
    assert normals([2**63])[0] == -largest


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
    exact, found = np.empty(50), np.empty(50, np.float32)
    make().fill(exact, 10**15 + 3)
    make().fill(found, 10**15 + 3, 1.7)
    np.testing.assert_array_equal(found, (exact * 1.7).astype(np.float32))


@pytest.mark.parametrize("make", [seeded, keyed])
def test_a_source_is_its_state(make):
    source = make()
    again = SOURCES[source.kind].from_state(source.state())
    np.testing.assert_array_equal(again.words(5, 9), source.words(5, 9))


def chacha(key: bytes, block: int, rounds: int) -> bytes:
    """A block of ChaCha with a 64-bit counter and a nonce of zero, as its definition reads."""

    def quarter(x, a, b, c, d):
        for i, j, k, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[i] = (x[i] + x[j]) % 2**32
            word = x[k] ^ x[i]
            x[k] = (word << bits | word >> (32 - bits)) % 2**32

    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), block % 2**32, block >> 32, 0, 0]
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
    for block in (0, 1, 2**32 - 1):
        nonce = block.to_bytes(8, "little") + bytes(8)
        stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, nonce), None).encryptor()
        assert stream.update(bytes(64)) == chacha(key, block, 20)


def test_the_seeded_words_are_those_of_chacha_with_8_rounds():
    """Blocks of several tiles; the first of the key of zeros is in draft-strombergson-chacha-test-vectors."""
    assert chacha(bytes(32), 0, 8).hex().startswith("3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e")
    key = np.random.default_rng(0).bytes(32)
    source = SeededSource(np.frombuffer(key, "<u8"))
    for tile in (0, 1, 2**27 - 1, 2**27):  # the counter's low half overflows in between
        words = source.words(TILE * tile, TILE).reshape(8, -1)
        for lane in (0, 1, 63):
            assert words[:, lane].astype("<u8").tobytes() == chacha(key, 64 * tile + lane, 8)


def test_the_key_stream_is_aes_in_counter_mode():
    """NIST SP 800-38A, F.5.5 starts its counter elsewhere; FIPS 197, C.3 is one block of AES-256."""
    pytest.importorskip("cryptography")
    key = bytes(range(32))
    block = int.from_bytes(bytes.fromhex("00112233445566778899aabbccddeeff"), "big")
    words = KeyedSource(key).words(2 * block, 2)
    assert words.astype("<u8").tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_two_seeds_and_two_keys_differ():
    pytest.importorskip("cryptography")
    assert not np.intersect1d(seeded(0).words(0, 1000), seeded(1).words(0, 1000)).size
    one, two = KeyedSource.from_operating_system(), KeyedSource.from_operating_system()
    assert not np.intersect1d(one.words(0, 1000), two.words(0, 1000)).size


def test_seeding_moves_the_generator_on():
    rng = np.random.default_rng(0)
    first, second = SeededSource.from_generator(rng), SeededSource.from_generator(rng)
    assert not np.intersect1d(first.words(0, 1000), second.words(0, 1000)).size


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'hockeystick\[secure\]'"):
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
