"""The comparison of many numbers of exact noise with an enclosure: its proof, what it sees, and that none differs."""

import numpy as np
import pytest

from hockeystick.noise import stream
from hockeystick.noise.normals import MASK

pytest.importorskip("flint")

import exact_oracle
from exact_oracle import END_OF_TAIL, FORMS, NEAR, ROUNDOFF, STEPS, compare, is_within, proved_tail
from flint import arb, ctx


@pytest.fixture(autouse=True)
def _digits():
    ctx.prec = 160
    yield
    ctx.prec = 53


@pytest.mark.parametrize(
    ("form", "numbers"),
    [(form, 20_000) for form in FORMS] + [pytest.param(form, 10_000_000, marks=pytest.mark.weekly) for form in FORMS],
)
def test_no_number_differs(form, numbers):
    """Nearly all are decided without Arb: that would take a millisecond each."""
    counts = compare(form, numbers)
    assert counts.numbers == numbers // STEPS * STEPS
    assert counts.differing == 0
    assert counts.by_arb <= 3 + numbers // 100_000


@pytest.mark.parametrize("form", ["identity", "bands", "bands of the inverse", "tree"])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_number_that_is_off_by_one_is_seen(form, off, monkeypatch):
    """And of a feedback some of those that are made from it."""

    def wrong(*arguments, **options):
        for at, row in enumerate(stream(*arguments, **options)):
            yield row + off * (at == 3) * (np.arange(len(row)) == 1)

    monkeypatch.setattr(exact_oracle, "stream", wrong)
    differing = compare(form, 3 * STEPS).differing
    assert 1 <= differing <= (6 if form == "bands" else 1)


def test_tails_are_as_close_to_those_of_arb_as_they_say():
    tail = proved_tail()
    x = np.random.default_rng(0).uniform(0.0, END_OF_TAIL, 4000)
    x[:3] = 0.0, 1e-300, np.nextafter(END_OF_TAIL, 0.0)
    assert 6.0 * ROUNDOFF < tail.error < 16.0 * ROUNDOFF
    for point, value in zip(x.tolist(), tail(x).tolist(), strict=True):
        truth = (arb(point) / arb(2).sqrt()).erfc() / 2
        assert abs(value - truth) < tail.error * truth


def test_points_enclose_the_number_of_a_word_or_do_not():
    """A point that is beyond the cell by a roundoff of itself is not enough, on either side and for either sign."""
    tail, draw = proved_tail(), np.random.default_rng(1)
    words = draw.integers(0, 2**64, 600, dtype=np.uint64)
    words[:100] >>= draw.integers(1, 62, 100, dtype=np.uint64)
    for word in words:
        k, sign = int(word) & MASK, -1.0 if int(word) >> 63 else 1.0
        ends = [(arb(end) / arb(2) ** 63).erfcinv() * arb(2).sqrt() for end in (k + 1, k or 1)]  # of the size
        inside = [float(ends[0].upper()) * (1.0 + ROUNDOFF * 2.0), float(ends[1].lower()) * (1.0 - ROUNDOFF * 2.0)]
        for low, high in ((inside[0], 8.9), (0.0, inside[1])):
            points = sorted((sign * low, sign * high))
            assert not is_within(tail, np.array([word]), np.array(points[:1]), np.array(points[1:]))[0]
        if 2**53 < k < 2**63 - 1:
            around = sorted(sign * point for point in (float(ends[0].lower()) - NEAR, float(ends[1].upper()) + NEAR))
            assert is_within(tail, np.array([word]), np.array(around[:1]), np.array(around[1:]))[0]
