"""Rows of moving averages: slopes against differences, products against whole matrices, and what a search gains."""

from dataclasses import replace

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.banded_rows import Programme, Rows
from hockeystick.types import Side

BINS, DEPTH = 24, 3
SHAPES = pytest.mark.parametrize(("ring", "period"), [(False, 1), (True, 1), (False, 2), (True, 2), (True, 3)])


def programme(side: Side, ring: bool, period: int = 1) -> tuple[Programme, Array]:
    """The covariance of these rows, without white noise."""
    rows = 0.3 * np.random.default_rng(0).standard_normal((BINS, DEPTH))
    rows[:, 0] = 1.0
    weights = np.linspace(0.5, 0.2, DEPTH * period)
    empty = Programme(np.zeros((DEPTH * period, BINS)), weights, 0.1, side, ring, period, DEPTH)
    return replace(empty, entries=empty.products(empty.spread(rows))), rows


@SHAPES
@pytest.mark.parametrize("side", list(Side))
def test_slopes_are_those_of_the_loss(side: Side, ring: bool, period: int) -> None:
    given, rows = programme(side, ring, period)
    rng = np.random.default_rng(1)
    shared = 0.2 * rng.standard_normal((BINS, DEPTH * period))
    at = Rows(rows + 0.1 * rng.standard_normal(rows.shape), shared)
    slope = given._loss(at, 0.05)[1]
    for _ in range(3):
        of_rows, of_shared = 1e-6 * rng.standard_normal(rows.shape), 1e-6 * rng.standard_normal(shared.shape)
        above = given._loss(Rows(at.rows + of_rows, at.shared + of_shared), 0.05)[0]
        below = given._loss(Rows(at.rows - of_rows, at.shared - of_shared), 0.05)[0]
        exact = 2.0 * float((slope.rows * of_rows).sum() + (slope.shared * of_shared).sum())
        assert above - below == pytest.approx(exact, rel=1e-5, abs=1e-12)


@SHAPES
def test_products_are_those_of_all_bins(ring: bool, period: int) -> None:
    """The innovation that is new for a period is that of its first bin."""
    given, rows = programme(Side.UPPER, ring, period)
    groups = BINS // period
    whole = np.zeros((BINS, groups + DEPTH))
    for i in range(BINS):
        whole[i, i // period + 1 : i // period + 1 + DEPTH] = rows[i, ::-1]
    if ring:
        whole[:, groups:] += whole[:, :DEPTH]
        whole = whole[:, DEPTH:]
    covariance = whole @ whole.T
    place = np.arange(BINS)
    for lag in range(DEPTH * period):
        first = 0 if ring else lag
        assert given.entries[lag, first:] == pytest.approx(covariance[place, place - lag][first:])


@pytest.mark.parametrize("side", list(Side))
def test_little_is_lost_where_there_is_white_noise(side: Side) -> None:
    """With a fifth of the variance to spare, of which half is asked for."""
    given = programme(side, True)[0]
    entries = given.entries.copy()
    entries[0] += 0.2
    roomy = replace(given, entries=entries)
    first = roomy.first()
    assert first is not None
    improved = roomy.improved(first, 150, Deadline())
    assert roomy.loss(improved) <= 0.05 * roomy.loss(first)
    assert roomy.loss(improved) <= 0.02


def test_shared_innovations_begin_with_those_that_explain_most() -> None:
    """Of rows with one innovation for two bins, whose bins see it alike, nothing is lost but the white noise."""
    rows = np.tile([1.0, 0.5], (BINS, 1))
    empty = Programme(np.zeros((4, BINS)), np.linspace(0.5, 0.2, 4), 0.1, Side.UPPER, True, 2, 2)
    given = replace(empty, entries=empty.products(empty.spread(rows)))
    spread = given.spread(rows)
    assert given._merged(spread) == pytest.approx(rows)
    assert given._gathered(spread).tolist() == rows.tolist()
