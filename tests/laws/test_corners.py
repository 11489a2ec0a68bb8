"""What may be inside a cell of triples beyond its corners, and means over bins, against integrals over outputs."""

from math import exp, expm1, log, pi, sinh, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from hockeystick.laws.bins import chord_weights, ends_of_parts, means
from hockeystick.laws.corners import EVERYTHING, Cell, _mixed_moment, _second_moment, allowances
from hockeystick.laws.triples import covered, log_places, on_circle, opposite
from hockeystick.types import Side
from tests.laws.triples_oracle import divergence, linear_part, points_of, truth


def test_triples_on_the_circle_have_these_angles() -> None:
    """Distances and products from coordinates; an equilateral triangle has sides of the square root of 3."""
    for at_e, at_other in ((pi / 3.0, pi / 3.0), (0.2, 1.4), (0.7, 0.6), (0.0, 0.5 * pi)):
        v, e, other = points_of(2.0, at_e, at_other)
        gram = on_circle(4.0, at_e, at_other)
        assert gram.own == pytest.approx((e - v) @ (e - v), abs=1e-14)
        assert gram.other == pytest.approx((other - v) @ (other - v), abs=1e-14)
        assert gram.inner == pytest.approx((e - v) @ (other - v), abs=1e-14)
    assert on_circle(4.0, pi / 3.0, pi / 3.0) == pytest.approx((3.0, 3.0, 1.5))


@pytest.mark.parametrize(
    ("rate", "distance", "ends"),
    [(0.01, 0.5, (0.3, 1.0, 6.0)), (0.1, 0.5, (1.0, 8.0)), (0.5, 1.0, (0.3, 2.0, 20.0)), (0.05, 2.0, (0.5, 5.0))],
)
def test_no_triple_exceeds_the_corners_of_its_cell_by_more(
    rate: float, distance: float, ends: tuple[float, ...]
) -> None:
    """For intervals around 1, and those that reach further up or down; ends in steps' standard deviations.

    Cells are large, so that what is inside counts: some triples exceed all corners.
    """
    rng, shares = np.random.default_rng(7), []
    for _ in range(40):
        lengths = 0.5 * 10.0 ** rng.uniform(-1.0, 0.0, 2)
        low = rng.uniform(0.0, 0.5 * pi - lengths)
        cell = Cell((low[0], low[0] + lengths[0]), (low[1], low[1] + lengths[1]))
        end = rng.choice(ends) * rate * sqrt(expm1(distance**2))
        interval = rng.permuted([end * rng.choice([0.0, 0.3, 1.0]), end])

        def value(at_e: float, at_other: float, interval: np.ndarray = interval) -> float:
            return divergence(points_of(distance, at_e, at_other), rate, interval[0], interval[1], 240)

        corners = max(value(at_e, at_other) for at_e in cell.at_e for at_other in cell.at_other)
        inside = [(0.5 * sum(cell.at_e), 0.5 * sum(cell.at_other)), *rng.uniform(low, low + lengths, (4, 2))]
        shares.append((max(value(*angles) for angles in inside) - corners) / sum(allowances(rate, distance**2, cell)))
    assert 0.0 < max(shares) <= 1.0


def test_allowances_with_little_noise_do_not_overflow() -> None:
    """Where the exponential would, the bound that holds at any distance is left, as ``M <= P``."""
    rate, squared = 1e-9, 19.05**2
    assert _second_moment(rate, squared, squared) == sqrt(rate)
    assert _mixed_moment(rate, squared) == rate
    assert np.all(np.isfinite(allowances(rate, squared, EVERYTHING)))


@pytest.mark.parametrize(("rate", "distance", "least"), [(0.01, 0.5, 0.9), (0.3, 0.3, 0.9), (0.05, 1.5, 0.8)])
def test_paths_bend_by_no_more_than_is_allowed(rate: float, distance: float, least: float) -> None:
    """Second derivatives of the laws by angles, times those of ``Q f(P / Q)``, against what cells are given for them.

    A part of it is needed: with v at e', where e is opposite, and nearly all of it with much noise and a small rate.
    """
    rng, shares, step = np.random.default_rng(11), [], 1e-2
    opposed = [(0.0, 0.5 * pi), (0.5 * pi, 0.0), (0.5 * pi, 0.5 * pi)]
    for at_e, at_other in [*opposed, *rng.uniform(0.0, 0.5 * pi, (25, 2))]:
        point = Cell((at_e, at_e + 1e-9), (at_other, at_other + 1e-9))
        by_e, by_other = (allowed * 8e18 for allowed in allowances(rate, distance**2, point))
        for low, high in ((30.0, 30.0), (0.0, 1.0), (2.0, 0.5)):
            for turned, bound in ((0, by_e), (1, by_other)):
                moves = np.eye(2)[turned] * step
                bend = linear_part(
                    [points_of(distance, *(np.array([at_e, at_other]) + side * moves)) for side in (-1, 0, 1)],
                    rate,
                    low * rate * distance,
                    high * rate * distance,
                )
                shares.append(-bend / step**2 / bound)
    assert least <= max(shares) <= 1.0


def test_cells_are_divided_into_those_that_matter() -> None:
    """Triples with v nearer to e', not obtuse at v, are in one of the halves; the others need not be."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        cell, angles = EVERYTHING, np.sort(rng.uniform(0.0, 0.5 * pi, 2))
        if angles.sum() < 0.5 * pi:
            continue
        for _ in range(8):
            inside = [
                half
                for half in cell.halves(int(rng.integers(2)))
                if all(low <= angle <= high for (low, high), angle in zip(half, angles, strict=True))
            ]
            assert inside
            cell = inside[0]
    assert not Cell((0.1, 0.2), (0.3, 0.4)).matters
    assert not Cell((1.3, 1.4), (1.0, 1.1)).matters


@pytest.mark.parametrize(("rate", "distance"), [(0.1, 1.4), (0.6, 0.5), (0.02, 4.0)])
def test_boxes_cover_triples_of_all_shapes(rate: float, distance: float) -> None:
    """Against finer boxes, whose places are means: acute and obtuse ones, and those along a line."""
    spacing, places = 0.05, 120
    logs = log_places(spacing, -places, places)
    for at_e, at_other in ((0.2, 1.5), (0.9, 1.1), (0.4, 0.6), (1.2, 0.1), (0.25 * pi, 0.25 * pi), (1e-9, 1.0)):
        wide, found = (
            covered(rate, on_circle(distance**2, at_e, at_other), spacing, places, width) for width in (0.5, 0.02)
        )
        exact = truth(points_of(distance, at_e, at_other), rate, logs)
        assert np.all(exact <= np.minimum(wide, found) + 1e-14)
        assert np.all(found <= exact * 1.2 + 1e-3 * rate)


@pytest.mark.parametrize(("rate", "distance"), [(0.01, 0.5), (0.3, 1.0), (0.5, 2.5), (0.9, 1.5)])
def test_moments_are_bounded(rate: float, distance: float) -> None:
    """``M^2 P^(-3/2) Q^(1/2)`` and ``M M' (P Q)^(-1/2)`` over all outputs, with equilateral, right and flat triples."""
    for at_e, at_other in ((pi / 3.0, pi / 3.0), (0.25 * pi, 0.25 * pi), (0.1, 0.5 * pi), (0.5 * pi, 0.5 * pi)):
        points = points_of(distance, at_e, at_other)
        gram = on_circle(distance**2, at_e, at_other)
        sides = [np.linspace(points[:, i].min() - 9.0, points[:, i].max() + 9.0, 500) for i in (0, 1)]
        x, y = np.meshgrid(*sides, indexing="ij")
        rest, own, other = (np.exp(-0.5 * ((x - p[0]) ** 2 + (y - p[1]) ** 2)) / (2.0 * pi) for p in points)
        k, m1, m2 = (1.0 - rate) * rest, rate * own, rate * other
        p, q = k + m1, k + m2
        area = (sides[0][1] - sides[0][0]) * (sides[1][1] - sides[1][0])
        second = float((m1**2 * p**-1.5 * q**0.5).sum()) * area
        mixed = float((m1 * m2 * (p * q) ** -0.5).sum()) * area
        assert second * (1.0 - 1e-9) <= _second_moment(rate, gram.own, max(gram.inner, 0.0)) <= 4.0 * second
        assert mixed * (1.0 - 1e-9) <= _mixed_moment(rate, max(gram.inner, 0.0)) <= 6.0 * mixed


def test_means_over_bins_are_bounded_by_chords() -> None:
    """Against quadrature of calls, which are convex at 1 too; the mean of a bin keeps its place."""
    rate, distance, spacing = 0.2, 0.6, 0.02
    ends, weights = chord_weights(spacing)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert weights @ np.exp(ends) == pytest.approx(1.0, abs=1e-14)
    parts = ends_of_parts(spacing, -20, 40)
    assert np.allclose(parts[::4], spacing * (np.arange(-20, 42) - 0.5), atol=1e-15)
    found = means(opposite(rate, distance, parts, Side.UPPER), spacing, -20, 40)
    single = opposite(rate, distance, spacing * np.arange(-20, 41), Side.UPPER)

    def call(x: float) -> float:
        a = max(1.0 + expm1(x) / rate, 1e-300)
        return rate * float(ndtr(0.5 * distance - log(a) / distance) - a * ndtr(-0.5 * distance - log(a) / distance))

    for place in range(-20, 41):

        def weighed(x: float, middle: float = place * spacing) -> float:
            value = call(middle + x) if exp(middle + x) > 1.0 - rate else 1.0 - exp(middle + x)
            return (value - max(1.0 - exp(middle), 0.0)) * exp(-0.5 * x)

        edge = log(1.0 - rate) - place * spacing
        points = [edge] if abs(edge) < 0.5 * spacing else None
        whole = quad(weighed, -0.5 * spacing, 0.5 * spacing, points=points, epsabs=1e-15)[0]
        mean, one = whole / (4.0 * sinh(0.25 * spacing)), single[place + 20]
        assert mean - 1e-12 <= found[place + 20] <= mean + 0.3 * max(mean - one, 0.0) + 1e-7
