"""Numba kernel of the pair (P_S, Q_S) of shuffled batches: epochs of Gaussians with one shifted coordinate."""

from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.sums import added, log_add


class Move(NamedTuple):
    """What is taken off all coordinates, what is added to one, and how much more with the chance ``share``."""

    drift: float
    shift: float
    extra: float
    share: float


@kernel
def draw_epochs(rng: np.random.Generator, sigma: float, bins: int, epochs: int, move: Move, out: Array) -> None:
    """Draw ``w = s e_t - drift 1 + sigma z`` in every epoch and fill ``out``, shape (samples, 3).

    t is uniform, and s is ``shift + extra`` with probability ``share``, else ``shift``. With ``u = w / sigma^2`` and
    the power means ``A_k = (1/T) sum_t e^{k u_t}``, the columns are the sums over the epochs of ``log A_2 - log A_1``,
    of the log-ratio of the drawn density (without drift) to that with ``share = 0`` for ``shift = 2``, and of
    ``(1/T) sum_t u_t``. O(T) for each epoch.
    """
    drift, shift, extra, share = move
    u = np.empty(bins)
    variance = sigma * sigma
    farther = ((2.0 + extra) ** 2 - 4.0) / (2.0 * variance)
    for sample in range(out.shape[0]):
        loss, log_ratio, average = 0.0, 0.0, 0.0
        for _ in range(epochs):
            for t in range(bins):
                u[t] = (sigma * rng.standard_normal() - drift) / variance
            moved = shift + (extra if share > 0.0 and rng.random() < share else 0.0)
            u[min(int(rng.random() * bins), bins - 1)] += moved / variance
            top = u.max()
            log_one, log_two = _first_power_means(u, top)
            loss += log_two - log_one
            if share > 0.0:
                excess = _log_power_mean(u, top, 2.0 + extra) - log_two - farther + np.log(share)
                rest = np.log1p(-share) if share < 1.0 else -np.inf
                log_ratio += log_add(excess, rest)
            average += _mean(u)
        out[sample, 0], out[sample, 1], out[sample, 2] = loss, log_ratio, average


@kernel(inline="always")
def _first_power_means(u: Array, top: float) -> tuple[float, float]:
    """``log A_1`` and ``log A_2``; the largest u is taken out of the exponentials."""
    first, second = 0.0, 0.0
    for t in range(u.size):
        ratio = np.exp(u[t] - top)
        first += ratio
        second += ratio * ratio
    return top + np.log(first / u.size), 2.0 * top + np.log(second / u.size)


@kernel(inline="always")
def _log_power_mean(u: Array, top: float, power: float) -> float:
    """``log A_power``, in the same way."""
    total = 0.0
    for t in range(u.size):
        total += np.exp(power * (u[t] - top))
    return float(power * top + np.log(total / u.size))


@kernel(inline="always")
def _mean(u: Array) -> float:
    """The mean, by Kahan's summation: its error does not grow with the number of terms."""
    total, lost = 0.0, 0.0
    for t in range(u.size):
        total, lost = added(total, lost, u[t])
    return float(total / u.size)
