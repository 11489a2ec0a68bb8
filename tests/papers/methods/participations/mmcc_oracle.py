"""Slow and obvious versions of what the engine computes, and the truth on tiny cases."""

from itertools import pairwise, product

import numpy as np
from scipy.special import ndtr

from hockeystick.types import Direction


def subsets(columns: int, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """All outcomes of the coins, shape (2^columns, columns), and their probabilities."""
    outcomes = np.array(list(product((0.0, 1.0), repeat=columns)))
    return outcomes, np.prod(np.where(outcomes > 0.0, prob, 1.0 - prob), axis=1)


def true_profile(entries: np.ndarray, sigma: float, prob: float, epsilon: float, points: int) -> dict[Direction, float]:
    """Both hockey-stick divergences by the midpoint rule on a grid in up to three dimensions."""
    outcomes, weights = subsets(entries.shape[1], prob)
    means = outcomes @ entries.T / sigma
    axes = [np.linspace(-7.5, 7.5 + means[:, row].max(), points) for row in range(entries.shape[0])]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    cell = float(np.prod([axis[1] - axis[0] for axis in axes]))
    without = np.exp(-0.5 * np.sum(grid**2, axis=1)) / (2.0 * np.pi) ** (entries.shape[0] / 2) * cell
    ratio = np.zeros(grid.shape[0])
    for mean, weight in zip(means, weights, strict=True):
        ratio += weight * np.exp(grid @ mean - 0.5 * mean @ mean)
    level = np.exp(epsilon)
    return {
        Direction.REMOVE: float(without @ np.maximum(ratio - level, 0.0)),
        Direction.ADD: float(without @ np.maximum(1.0 - level * ratio, 0.0)),
    }


def tail(products: np.ndarray, own: float, sigma: float, prob: float, threshold: float, direction: Direction) -> float:
    """``P(sum_j products_j x_j + sigma sqrt(own) z >= threshold)``, or without the sum for add."""
    if direction is Direction.ADD:
        return float(ndtr(-threshold / (sigma * np.sqrt(own))))
    outcomes, weights = subsets(products.size, prob)
    return float(weights @ ndtr((outcomes @ products - threshold) / (sigma * np.sqrt(own))))


def block_cuts(entries: np.ndarray, single_rows: bool) -> list[int]:
    """Where blocks begin, and the end: at every row, or at the first row of every column."""
    if single_rows:
        return list(range(entries.shape[0] + 1))
    return [*sorted({int(np.flatnonzero(column)[0]) for column in entries.T}), entries.shape[0]]


def slow_blocks(entries: np.ndarray, single_rows: bool) -> list[list[tuple[float, ...]]]:
    """For each block, newest column first: block norm, own, total, square and largest."""
    cuts = block_cuts(entries, single_rows)
    blocks = []
    for first, last in pairwise(cuts):
        gram = entries[:first].T @ entries[:first]
        pairs = []
        for j in reversed(range(entries.shape[1])):
            norm = float(np.linalg.norm(entries[first:last, j]))
            if norm > 0.0:
                others = np.delete(gram[j], j)
                largest = float(others.max(initial=0.0))
                pairs.append((norm, float(gram[j, j]), float(others.sum()), float(others @ others), largest))
        if pairs:
            blocks.append(pairs)
    return blocks
