"""b-min-sep by enumeration: every participation vector with its probability, and the likelihood ratio as their sum."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

Array = NDArray[np.float64]


def participations(
    steps: int, min_sep: int, prob: float, warm: bool, examples: int = 1, before: float | None = None
) -> tuple[Array, Array]:
    """Probabilities, shape (m,), and participation counts, shape (m, steps), of all vectors that can occur.

    Before a warm start the chance to take part was ``before``, by default ``prob`` too.

    The state is the number of steps until the examples are available again; it is followed forwards from 0 when
    cold, from the stationary distribution of its transition matrix when warm. Equal vectors are merged.
    """
    law: dict[tuple[int, ...], float] = {}
    start = stationary(min_sep, prob if before is None else before, examples) if warm else np.eye(min_sep)[0]
    for state, weight in enumerate(start):
        if weight > 0.0:
            _follow(law, (), state, float(weight), steps, min_sep, prob, examples)
    vectors = sorted(law)
    return np.array([law[vector] for vector in vectors]), np.array(vectors, dtype=float).reshape(-1, steps)


def _follow(
    law: dict[tuple[int, ...], float],
    past: tuple[int, ...],
    state: int,
    weight: float,
    steps: int,
    min_sep: int,
    prob: float,
    examples: int,
) -> None:
    if len(past) == steps:
        law[past] = law.get(past, 0.0) + weight
        return
    if state > 0:
        _follow(law, (*past, 0), state - 1, weight, steps, min_sep, prob, examples)
        return
    for count in range(examples + 1):
        chance = weight * float(binom.pmf(count, examples, prob))
        later = min_sep - 1 if count else 0
        _follow(law, (*past, count), later, chance, steps, min_sep, prob, examples)


def stationary(min_sep: int, prob: float, examples: int = 1) -> Array:
    """Distribution of the state in the long run, shape (min_sep,): the left eigenvector of the transition matrix."""
    hit = 1.0 - (1.0 - prob) ** examples
    move = np.zeros((min_sep, min_sep))
    move[0, min_sep - 1] += hit
    move[0, 0] += 1.0 - hit
    for state in range(1, min_sep):
        move[state, state - 1] = 1.0
    conditions = np.concatenate([move.T - np.eye(min_sep), np.ones((1, min_sep))])
    return np.linalg.lstsq(conditions, np.append(np.zeros(min_sep), 1.0), rcond=None)[0]


def log_ratio(y: Array, matrix: Array, weights: Array, vectors: Array, sigma: float) -> Array:
    """``log X = log sum_v w_v exp(<C v, y>/s^2 - |C v|^2/(2 s^2))`` for outputs y of shape (samples, rows)."""
    means = vectors @ matrix.T
    exponents = (y @ means.T - 0.5 * np.einsum("vt,vt->v", means, means)) / sigma**2
    return np.asarray(logsumexp(exponents, b=weights, axis=1))
