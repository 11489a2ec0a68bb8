"""Rows of moving averages: slopes against differences, products against whole matrices, and what a search gains."""

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.banded_rows import Programme, Rows
from hockeystick.types import Side

BINS, DEPTH = 14, 3


def programme(side: Side, ring: bool, white: float = 0.1) -> tuple[Programme, Array]:
    """The covariance of these rows, without white noise."""
    rows = 0.3 * np.random.default_rng(0).standard_normal((BINS, DEPTH))
    rows[:, 0] = 1.0
    weights = np.array([0.5, 0.4, 0.2])
    empty = Programme(np.zeros((DEPTH, BINS)), weights, white, side, ring)
    return Programme(empty.products(rows), weights, white, side, ring), rows


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("side", list(Side))
def test_slopes_are_those_of_the_loss(side: Side, ring: bool) -> None:
    given, rows = programme(side, ring)
    rng = np.random.default_rng(1)
    at = Rows(rows + 0.1 * rng.standard_normal(rows.shape), 0.2 * rng.standard_normal(rows.shape))
    slope = given._loss(at, 0.05)[1]
    for _ in range(3):
        one, other = 1e-6 * rng.standard_normal((2, BINS, DEPTH))
        above = given._loss(Rows(at.rows + one, at.shared + other), 0.05)[0]
        below = given._loss(Rows(at.rows - one, at.shared - other), 0.05)[0]
        exact = 2.0 * float((slope.rows * one).sum() + (slope.shared * other).sum())
        assert above - below == pytest.approx(exact, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("ring", [False, True])
def test_products_are_those_of_all_bins(ring: bool) -> None:
    given, rows = programme(Side.UPPER, ring)
    whole = np.zeros((BINS, BINS + DEPTH - 1))
    for i in range(BINS):
        whole[i, i : i + DEPTH] = rows[i, ::-1]
    if ring:
        whole[:, BINS:] += whole[:, : DEPTH - 1]
        whole = whole[:, DEPTH - 1 :]
    covariance = whole @ whole.T
    place = np.arange(BINS)
    for lag in range(DEPTH):
        first = 0 if ring else lag
        assert given.products(rows)[lag, first:] == pytest.approx(covariance[place, place - lag][first:])


@pytest.mark.parametrize("side", list(Side))
def test_little_is_lost_where_there_is_white_noise(side: Side) -> None:
    """With a fifth of the variance to spare, of which half is asked for."""
    given = programme(side, True, 0.1)[0]
    entries = given.entries.copy()
    entries[0] += 0.2
    roomy = Programme(entries, given.weights, 0.1, side, True)
    first = roomy.first()
    assert first is not None
    found = roomy.improved(first, 150, Deadline())
    assert roomy._loss(found, 1e-6)[0] <= 0.05 * roomy._loss(first, 1e-6)[0]
    assert roomy._loss(found, 1e-6)[0] <= 0.02
