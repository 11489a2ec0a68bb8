"""Correlated noise under b-min-sep subsampling: a mixture of Gaussians over participations that renew themselves."""

from dataclasses import dataclass
from functools import lru_cache
from math import expm1, log, log1p

import numpy as np

from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.visits import Visits, first_available, waits
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.base import BLOCK, UNIT_ROUNDOFF, Array

MAX_ENTRIES = 1 << 26
"""The columns of more than this many entries would take more than half a gigabyte."""
ROOM = 1e-12
"""Room for the rounding of a handful of exponentials and logarithms, relative to their arguments."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RenewalMixture(DominatingPair):
    """``P = E N(C x, sigma^2 I)`` against ``Q = N(0, sigma^2 I)``, x the random participations; add swaps them.

    An example that is available at a step is taken with probability q; once taken it is unavailable for the next
    ``min_sep - 1`` steps. With k_u examples, the number that is taken at an available step is Binomial(k_u, q), and
    any positive number makes all of them unavailable.

    The pair dominates the mechanism with adaptively chosen gradients for every causal, non-negative C, Toeplitz or
    not, banded or not, and is attained by constant ones, where the batches of all other examples are independent of
    the coins of these (docs/theory/monte-carlo/renewal.md).

    Attributes:
        matrix: C, with n columns.
        min_sep: b.
        participation_prob: q, the chance of an available example to be taken at a step; below 1.
        warm_start: whether the first steps are in the stationary state; otherwise all examples start available.
        examples_per_user: k_u; with 1 the unit of privacy is an example.
        attained: whether some dataset makes the outputs of the run exactly these two; otherwise the pair only bounds it
            from above.
    """

    matrix: StrategyMatrix
    min_sep: int
    participation_prob: float
    warm_start: bool
    examples_per_user: int = 1
    attained: bool = True

    @property
    def full_sensitivity(self) -> float:
        """``k_u max |sum_{i in S} C[:, i]|`` over the sets S of steps that are min_sep apart: all that x can be.

        Rounded up, so that no error is left to add; where it is not exact it is an upper bound
        (:func:`hockeystick.strategies.sensitivity.min_separation`).
        """
        return self.examples_per_user * largest_norm(self.matrix, self.min_sep)

    @property
    def why_not_from_below(self) -> str | None:
        """That no dataset attains it, or None."""
        return None if self.attained else "the pair bounds the run only from above"

    @property
    def banded(self) -> bool:
        """Whether columns of two participations never overlap, which makes the recursion for X exact."""
        return self.matrix.bands <= self.min_sep

    @property
    def too_large(self) -> str | None:
        """The reason not to form :attr:`columns`, or None."""
        if self.matrix.rows != self.matrix.steps:
            return f"it needs a square strategy matrix, not one of {self.matrix.rows} rows"
        if self.matrix.steps * self.matrix.bands > MAX_ENTRIES:
            return f"it needs all entries of C, more than {MAX_ENTRIES} here"
        return None

    @property
    def columns(self) -> Array:
        """``columns[j, d] = C[j + d, j]``, 0 beyond the end, shape (n, p) with p the bands of C. Do not write."""
        return band_of(self.matrix)

    @property
    def hit_prob(self) -> float:
        """``h = 1 - (1 - q)^k_u``: the chance that an available step takes any of the examples."""
        return float(-np.expm1(self.examples_per_user * np.log1p(-self.participation_prob)))

    @property
    def first_available(self) -> Array:
        """Probabilities that the examples are available from step u = 1, 2, ... on for the first time.

        Shape (1,) when cold, (min_sep,) when warm: ``1 / (1 + (b-1) h)``, then ``h / (1 + (b-1) h)`` for each u.
        """
        return first_available(self.min_sep, self.hit_prob, self.warm_start)

    @property
    def visits(self) -> Visits:
        """When a single example takes part."""
        return waits(self.participation_prob, self.min_sep, self.warm_start)

    @property
    def availability(self) -> Array:
        """Probability that the examples are available, at each step; shape (n,).

        Relative error below ``8 n / (1 - h)`` roundoffs, as h is rounded before ``1 - h`` is taken.
        ``E x_t = k_u q a_t`` and ``E x_t^2 = (k_u q (1 - q) + (k_u q)^2) a_t`` for these a_t.
        """
        from hockeystick.pairs.renewal_kernels import availability

        return availability(self.matrix.steps, self.min_sep, self.hit_prob, self.first_available)

    @property
    def overlaps(self) -> Array:
        """At least ``max_S sum_{j in S} <c_i, c_j>`` over sets S of steps that are min_sep apart, all from i + min_sep.

        Shape (n,), kappa of the non-banded recursion; zero for a banded C. O(n^2 rows) once, for square C or not.
        """
        return _overlaps(self.matrix, self.min_sep)

    @property
    def log_idle(self) -> float:
        """At most log x0, x0 the chance to take part in no step at all; within twice ROOM (1 + |log x0|)."""
        waiting, left, log_stay = self._at_first
        beyond = log1p(max(waiting - self.matrix.steps, 0.0) * self.hit_prob)  # w > n: some wait until the end
        value = left * log_stay + beyond - log1p(waiting * self.hit_prob)
        return min(value, 0.0) - ROOM * (1.0 + abs(value))

    @property
    def active_moments(self) -> tuple[float, float, float]:
        """v, k and log(1 - x0): given that x is not 0, the mean of its log-ratios is ``N(-k - v/2, v)``.

        The first two from above. O(n p) once, or what :attr:`overlaps` takes. All sums are of non-negative terms.
        """
        waiting, left, log_stay = self._at_first
        hit = min(waiting, float(self.matrix.steps)) * self.hit_prob - expm1(left * log_stay)
        active = hit / (1.0 + waiting * self.hit_prob)
        rate = self.examples_per_user * self.participation_prob
        means = rate * self.availability
        squares = (rate * (1.0 - self.participation_prob) + rate**2) * self.availability
        norms = self.matrix.column_norms
        second = float(squares @ (norms * norms) + 2.0 * self.examples_per_user * (means @ self.overlaps))
        shift = self.matrix.dot(means)
        precision = self.noise_multiplier**-2
        variance = float(shift @ shift) * precision / active**2
        half_second = 0.5 * second * precision / active
        of_stay = max(1.0, 0.5 / max(1.0 - self.hit_prob, UNIT_ROUNDOFF))  # chances that hang on 1 - h
        error = 8.0 * self.matrix.rounding + 64 * self.matrix.rows * UNIT_ROUNDOFF * of_stay
        drift = half_second * (1.0 + error) - 0.5 * variance * (1.0 - error)
        return variance * (1.0 + error), max(drift, 0.0), log(active)

    @property
    def _at_first(self) -> tuple[float, float, float]:
        """The longest wait w at first, the ``(n - w)_+`` steps that are left after it, and ``log(1 - h)``.

        Sums over :attr:`first_available` have closed forms in these three: with a term for every step of the wait they
        would round too often (docs/theory/monte-carlo/renewal.md, "The naive proposal").
        """
        waiting = self.min_sep - 1 if self.warm_start else 0
        left = max(self.matrix.steps - waiting, 0)
        return float(waiting), float(left), self.examples_per_user * log1p(-self.participation_prob)


@lru_cache(maxsize=8)
def largest_norm(matrix: StrategyMatrix, min_sep: int) -> float:
    """The longest sum of columns that are min_sep apart, from above; kept for the next noise multiplier."""
    from hockeystick.strategies.sensitivity import min_separation

    return min_separation(matrix, min_sep).value


@lru_cache(maxsize=4)
def _overlaps(matrix: StrategyMatrix, min_sep: int) -> Array:
    from hockeystick.pairs.renewal_kernels import best_of_toeplitz

    overlaps = np.zeros(matrix.steps)
    if matrix.bands > min_sep:
        column = matrix.toeplitz_column
        if column is not None:
            best_of_toeplitz(column, min_sep, overlaps)
        else:
            _best_of_all(matrix, min_sep, overlaps)
        # Sums of products of non-negative entries: fewer than 2 n additions, each entry within the matrix's rounding.
        overlaps *= 1.0 + 8.0 * matrix.rounding
    overlaps.flags.writeable = False
    return overlaps


def _best_of_all(matrix: StrategyMatrix, min_sep: int, overlaps: Array) -> None:
    """Inner products of blocks of columns with those after them, by matrix products."""
    from hockeystick.pairs.renewal_kernels import best_after

    for first in range(0, matrix.steps, BLOCK):
        which = np.arange(first, min(first + BLOCK, matrix.steps))
        columns = matrix.columns(which)
        products = np.zeros((which.size, matrix.steps))
        for start in range(first, matrix.steps, BLOCK):
            other = np.arange(start, min(start + BLOCK, matrix.steps))
            products[:, other] = columns.T @ matrix.columns(other)
        for row, i in enumerate(which):
            overlaps[i] = best_after(products[row], int(i) + min_sep, min_sep)
