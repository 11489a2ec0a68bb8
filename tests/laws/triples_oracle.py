"""Steps without replacement whose points v, e and e' are known, by boxes and integrals over the plane of outputs."""

from math import pi

import numpy as np
from scipy.special import ndtr

LEAST = 1e-25
"""Boxes with less mass are left out, so that less is told apart."""


def boxes(points: np.ndarray, rate: float, count: int = 260) -> tuple[np.ndarray, np.ndarray]:
    """P- and Q-masses of boxes of outputs for v, e and e' in the plane, shape (3, 2): less than the outputs tell."""
    low, high = points.min(axis=0) - 7.0, points.max(axis=0) + 7.0
    ends = [np.linspace(*both, count) for both in zip(low, high, strict=True)]
    rest, own, other = (
        np.multiply.outer(*(cells(side - centre) for side, centre in zip(ends, point, strict=True))).ravel()
        for point in points
    )
    p, q = (1.0 - rate) * rest + rate * own, (1.0 - rate) * rest + rate * other
    seen = (p > LEAST) & (q > LEAST)
    return p[seen], q[seen]


def cells(ends: np.ndarray) -> np.ndarray:
    """Normal masses, each from the tail on its own side, where it keeps its digits."""
    return np.where(ends[1:] <= 0.0, np.diff(ndtr(ends)), -np.diff(ndtr(-ends)))


def triple(rng: np.random.Generator, distance: float) -> np.ndarray:
    """Points of a disc whose diameter is this distance, often on its rim, and often near the opposite ones."""
    angles, lengths = rng.uniform(0.0, 2.0 * pi, 3), np.sqrt(rng.uniform(0.0, 1.0, 3))
    if rng.random() < 0.8:
        lengths[:] = 1.0
    if rng.random() < 0.5:
        near = 10.0 ** rng.uniform(-3.0, 0.0)
        angles = np.array([pi + near * rng.uniform(-1.0, 1.0), 0.0, pi + near * rng.uniform(-1.0, 1.0)])
    points = 0.5 * distance * (lengths * np.array([np.cos(angles), np.sin(angles)])).T
    return points[[1, 0, 2]] if rng.random() < 0.2 else points[[0, 2, 1]] if rng.random() < 0.5 else points


def truth(points: np.ndarray, rate: float, logs: np.ndarray) -> np.ndarray:
    """At most o of a triple at ``e^logs``."""
    p, q = boxes(points, rate)
    order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    from_here = np.searchsorted(p / q, np.exp(logs))
    p_above, q_above = (np.append(np.cumsum(one[::-1])[::-1], 0.0)[from_here] for one in (p, q))
    p_below, q_below = (np.append(0.0, np.cumsum(one))[from_here] for one in (p, q))
    ratios = np.exp(logs)
    return np.where(logs >= 0.0, p_above - ratios * q_above, ratios * q_below - p_below)


def divergence(points: np.ndarray, rate: float, low: float, high: float, count: int = 320) -> float:
    """``D_f`` for ``f'' = x^(-3/2)`` where the logarithm is from -low to high, f(1) = f'(1) = 0; of v, e and e'.

    By the trapezoid rule, whose error is far below 1e-4 of it.
    """
    sides = [np.linspace(points[:, i].min() - 8.0, points[:, i].max() + 8.0, count) for i in (0, 1)]
    x, y = np.meshgrid(*sides, indexing="ij")
    rest, own, other = (np.exp(-0.5 * ((x - p[0]) ** 2 + (y - p[1]) ** 2)) for p in points)
    p, q = (1.0 - rate) * rest + rate * own, (1.0 - rate) * rest + rate * other
    ratios = p / q
    inside = np.exp(np.clip(np.log(ratios), -low, high))
    slope = 2.0 * (1.0 - inside**-0.5)
    values = 2.0 * (np.sqrt(inside) - 1.0) ** 2 + slope * (ratios - inside)
    steps = [side[1] - side[0] for side in sides]
    return float((q * values).sum() * steps[0] * steps[1] / (2.0 * pi))


def points_of(distance: float, at_e: float, at_other: float) -> np.ndarray:
    """v, e and e' on the circle: the arc over a chord is twice the angle at the third point."""
    turns = np.array([0.0, -2.0 * at_other, 2.0 * at_e])
    return 0.5 * distance * np.array([np.cos(turns), np.sin(turns)]).T


def linear_part(three: list[np.ndarray], rate: float, low: float, high: float, count: int = 320) -> float:
    """The second difference of ``int (f'(r) P + (f(r) - r f'(r)) Q)`` along three triples, f and r of the middle one.

    f as in :func:`divergence`.
    """
    every = np.concatenate(three)
    sides = [np.linspace(every[:, i].min() - 8.0, every[:, i].max() + 8.0, count) for i in (0, 1)]
    x, y = np.meshgrid(*sides, indexing="ij")

    def laws(points: np.ndarray) -> np.ndarray:
        rest, own, other = (np.exp(-0.5 * ((x - p[0]) ** 2 + (y - p[1]) ** 2)) / (2.0 * pi) for p in points)
        return np.array([(1.0 - rate) * rest + rate * own, (1.0 - rate) * rest + rate * other])

    before, (p, q), after = (laws(points) for points in three)
    ratios = p / q
    inside = np.exp(np.clip(np.log(ratios), -low, high))
    slope = 2.0 * (1.0 - inside**-0.5)
    rest = 2.0 * (np.sqrt(inside) - 1.0) ** 2 - slope * inside  # f(r) - r f'(r)
    differences = before - 2.0 * np.array([p, q]) + after
    steps = [side[1] - side[0] for side in sides]
    return float((slope * differences[0] + rest * differences[1]).sum() * steps[0] * steps[1])
