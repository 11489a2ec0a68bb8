"""Whole curves from bounds at some epsilons, and bounds at another epsilon from stored counts.

Proofs: docs/theory/monte-carlo/confidence.md, "Curves" and "Another epsilon from the counts".
"""

from collections.abc import Sequence
from functools import partial
from math import expm1

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.bounds import Profile
from hockeystick.errors import InvalidInputError
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.monte_carlo.confidence import LARGEST_BET, betting_lower, betting_upper
from hockeystick.monte_carlo.proposals import Array
from hockeystick.monte_carlo.runs import CELL, CELL_LIMIT
from hockeystick.samples import Chunk, Node, Run
from hockeystick.types import Side

_ROUNDED = 1.0 + 2.0**-42
"""More than the interpolation, or the value in a cell's corner, loses to rounding."""
_EDGE = 2e-12
"""More than the differences between the edges of cells, at most 2048, and epsilon lose to rounding."""


def upper_curve(epsilons: ArrayLike, uppers: ArrayLike) -> Profile:
    """The profile that goes through upper bounds which hold at all these epsilons at once.

    delta is convex in ``e^epsilon`` and never increases, and it is 1 where ``e^epsilon`` is 0: so it stays below the
    chords in ``e^epsilon`` between (0, 1) and the nodes, and below the last node from there on.

    Args:
        epsilons: shape (n,), increasing, in [0, 700].
        uppers: shape (n,), at least 0. Their joint failure probability is that of the curve.

    Raises: InvalidInputError for nodes that are not so.
    """
    places, values = _nodes(epsilons, uppers)
    return partial(_upper_at, places, np.minimum.accumulate(np.minimum(values, 1.0)))


def lower_curve(epsilons: ArrayLike, lowers: ArrayLike) -> Profile:
    """The profile that steps down behind each of some lower bounds which hold at all these epsilons at once.

    delta never increases: it is at least what it is at any larger epsilon. Beyond the last node the curve is 0.

    Args and raises: as :func:`upper_curve`.
    """
    places, values = _nodes(epsilons, lowers)
    return partial(_lower_at, places, np.maximum.accumulate(values[::-1])[::-1])


def _upper_at(places: Array, values: Array, epsilon: float) -> float:
    after = int(np.searchsorted(places, epsilon))
    if after == places.size:
        return float(values[-1]) * _ROUNDED
    # How far along the chord, rounded down: further to the left is higher. All chords are in t = e^epsilon.
    if after == 0:
        left, part = 1.0, float(np.exp(epsilon - places[0]))
    else:
        left = float(values[after - 1])
        part = expm1(epsilon - places[after - 1]) / expm1(places[after] - places[after - 1])
    part = min(part, 1.0) if epsilon == places[after] else min(part / _ROUNDED, 1.0)
    return ((1.0 - part) * left + part * float(values[after])) * _ROUNDED


def _lower_at(places: Array, values: Array, epsilon: float) -> float:
    after = int(np.searchsorted(places, epsilon))
    return float(values[after]) if after < places.size else 0.0


def _nodes(epsilons: ArrayLike, bounds: ArrayLike) -> tuple[Array, Array]:
    places, values = np.array(epsilons, dtype=np.float64), np.array(bounds, dtype=np.float64)
    if not (places.ndim == 1 and places.size and places.shape == values.shape):
        raise InvalidInputError(
            f"A curve must have as many bounds as epsilons, at least one. Got {values.size} and {places.size} instead."
        )
    if not (places[0] >= 0.0 and places[-1] <= MAX_EPSILON and (np.diff(places) > 0.0).all()):
        raise InvalidInputError(f"The epsilons of a curve must increase from at least 0 to at most {MAX_EPSILON:g}.")
    if not (values >= 0.0).all():
        raise InvalidInputError("The bounds of a curve must be at least 0.")
    return places, values


def counts_bound(
    run: Run,
    chunks: Sequence[Chunk],
    epsilon: float,
    side: Side,
    largest: float,
    failure: float,
    *,
    loss_error: float,
) -> float:
    """Bound delta at an epsilon that is not among the run's nodes, from the cells that its samples fell into.

    Each sample counts with the supremum (upper) or infimum (lower) of Y over its cell, which is wider by about
    1 / CELL in the weights and as much again in the losses; nothing is drawn. Valid at any number of chunks for an
    epsilon that was chosen before the run; several epsilons from a fixed grid share ``failure`` between them.

    Args:
        run: with at least one node of this side; theta follows from the nearest one, and so from no sample.
        chunks: of that run, in the order of their streams.
        epsilon: in [0, 700].
        side: of the bound.
        largest: M of the run's proposal at this epsilon.
        failure: the probability with which the bound may fail.
        loss_error: of the run's proposal.

    Raises: InvalidInputError when the run has no node of this side.
    """
    theta = _theta(run, epsilon, side, largest)
    cells = np.concatenate([chunk.cells for chunk in chunks]).astype(np.float64)
    counts = np.concatenate([chunk.counts for chunk in chunks])
    samples = sum(chunk.samples for chunk in chunks)
    moved = loss_error + _EDGE
    if side is Side.UPPER:
        values = _largest_in(cells, epsilon, largest, moved)
        # A sample in no cell has a loss of at most 0. Its Y is 0, unless even its rounding can tell.
        outside = largest if epsilon < loss_error else 0.0
        logs = float(counts @ np.log1p(-theta * values)) + float(samples - counts.sum()) * np.log1p(-theta * outside)
        return min(betting_upper(samples, logs, theta, failure), 1.0)
    values = _smallest_in(cells, epsilon, largest, moved)
    return betting_lower(samples, float(counts @ np.log1p(theta * values)), theta, failure)


def _theta(run: Run, epsilon: float, side: Side, largest: float) -> float:
    """The bet of the nearest node of this side, at the same share of M."""
    nodes = [node for node in run.nodes if node.side is side]
    if not nodes:
        raise InvalidInputError(f"The run must have a node for the {side.value} side. Got none instead.")
    nearest: Node = min(nodes, key=lambda node: abs(node.epsilon - epsilon))
    share = nearest.theta * nearest.weight_bound
    return (min(share, LARGEST_BET) if side is Side.UPPER else share) / largest


def _largest_in(cells: Array, epsilon: float, largest: float, moved: float) -> Array:
    """Supremum of Y over each cell, its edges ``moved`` by what rounding may have moved the samples; at most M."""
    top = cells + 1.0
    top[cells == CELL_LIMIT - 1] = np.inf  # these cells hold all that is above, and what could not be told
    with np.errstate(over="ignore"):
        weight = np.exp(top[:, 0] / CELL + moved)
    rest = -np.expm1(np.minimum(epsilon - top[:, 1] / CELL - moved, 0.0))
    return np.minimum(np.where(rest > 0.0, weight, 0.0) * rest * _ROUNDED, largest)


def _smallest_in(cells: Array, epsilon: float, largest: float, moved: float) -> Array:
    """Infimum of Y over each cell, likewise; 0 where samples that could not be told may be."""
    with np.errstate(over="ignore"):
        weight = np.exp(cells[:, 0] / CELL - moved)
    rest = -np.expm1(np.minimum(epsilon - cells[:, 1] / CELL + moved, 0.0))
    unknown = (cells == CELL_LIMIT - 1).all(axis=1) | (cells[:, 0] == -CELL_LIMIT)
    weight = np.where(unknown | (rest <= 0.0), 0.0, weight)
    return np.minimum(weight * rest / _ROUNDED, largest)
