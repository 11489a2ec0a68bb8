"""Theorems 1 and 2 of exact noise in fractions: what a run releases is a function of what the real mechanism gives."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from hockeystick.mechanism import Mechanism
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import BandedInverseSquareRoot, BandedSquareRoot

STEPS = 6
FEEDBACK, SUMS = BandedSquareRoot(bands=5), BandedInverseSquareRoot(bands=4)
either_form = pytest.mark.parametrize("strategy", [FEEDBACK, SUMS], ids=["feedback", "sums"])


@either_form
def test_equal_outputs_of_the_real_mechanism_give_equal_releases(strategy):
    """A thousand runs whose gradients react to what was released, each beside one with the same y and no gradients.

    Matrices, gradients and z are random, and every second matrix is that of the strategy.
    """
    assert all(releases_are_equal(seed, strategy) for seed in range(1000))


def rounded_to_even(a):
    return round(a)


def wrapped(v):
    """Kept in too few bits."""
    return (v + 8) % 16 - 8


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        (FEEDBACK, {"rounding": rounded_to_even}),
        (SUMS, {"rounding": rounded_to_even}),
        (FEEDBACK, {"kept": wrapped}),
        (SUMS, {"nearly": Fraction(1, 10**9)}),
    ],
    ids=["rint", "rint of sums", "a ring that wraps", "W near the inverse"],
)
def test_other_roundings_and_rings_give_other_releases(strategy, fault):
    """On the ties that whole and half numbers bring. Real numbers have none, so no run of noise would show it."""
    assert not all(releases_are_equal(seed, strategy, **fault) for seed in range(40))


def releases_are_equal(seed, strategy, **fault):
    """Of two runs with the same y, one with gradients that react; :func:`released` has the faults."""
    draw = np.random.default_rng(seed)
    entries = random_matrix(draw) if seed % 2 else matrix_of(strategy)
    if strategy == SUMS:  # the doubles of C are roundings of an exact inverse: take that
        entries = inverted(entries)
    z = [Fraction(int(value), 2) for value in draw.integers(-9, 10, size=STEPS)]
    slope, start = (int(value) for value in draw.integers(-4, 5, size=2))
    x, w = released(entries, z, lambda w: slope * (w % 5) + start, strategy, **fault)
    y = [sum(entries[t][s] * x[s] for s in range(t + 1)) + z[t] for t in range(STEPS)]
    return w == released(entries, y, lambda w: 0, strategy, **fault)[1]


@cache
def matrix_of(strategy):
    """C of an exact mechanism; its inverse where that has the bands."""
    matrix = Mechanism(strategy=strategy, sampler=BallsInBins(bins=STEPS), noise_multiplier=1.7, exact=True).matrix
    rows = matrix.solve(np.eye(STEPS)) if strategy == SUMS else matrix.materialize()
    return [[Fraction(float(value)) for value in row] for row in rows]


def random_matrix(draw):
    """Lower triangular, of multiples of 1/8 from -1 to 1, with a positive diagonal."""
    entries = np.tril(draw.integers(-8, 9, size=(STEPS, STEPS)), -1) + np.diag(draw.integers(1, 9, size=STEPS))
    return [[Fraction(int(value), 8) for value in row] for row in entries]


def inverted(weights):
    """The inverse of a lower triangular matrix of fractions."""
    size = len(weights)
    inverse = [[Fraction(0)] * size for _ in range(size)]
    for i in range(size):
        for t in range(i, size):
            rest = sum((weights[t][s] * inverse[s][i] for s in range(i, t)), Fraction(0))
            inverse[t][i] = (Fraction(int(t == i)) - rest) / weights[t][t]
    return inverse


def half_up(a):
    return (a + Fraction(1, 2)).__floor__()


def released(entries, z, react, strategy, *, rounding=half_up, kept=int, nearly=0):
    """x and w of a run whose gradients are ``react`` of what was released last.

    Faults are another ``rounding``, what of v is ``kept``, and how far an entry of W is from the inverse's.
    """
    x: list[int] = []
    w: list[int] = []
    v: list[int] = []
    weights = inverted(entries)
    weights[2][1] += nearly
    for t in range(len(z)):
        x.append(react(w[-1] if w else 0))
        if strategy == FEEDBACK:
            a = (z[t] - sum((entries[t][s] * kept(v[s]) for s in range(t)), Fraction(0))) / entries[t][t]
        else:
            a = sum((weights[t][s] * z[s] for s in range(t + 1)), Fraction(0))
        v.append(rounding(a))
        w.append(x[-1] + v[-1])
    return x, w
