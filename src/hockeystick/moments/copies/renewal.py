"""Moments of a renewal mixture's likelihood ratio: several copies of the participations, followed together.

Proof: docs/theory/monte-carlo/renewal-proposals.md. Sums of positive terms, in logarithms; moments are rounded up.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import chain, combinations_with_replacement
from math import comb, factorial, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import UNIT_ROUNDOFF, Array

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Renewal:
    """A renewal mixture in units of its noise; C has non-negative entries and p <= min_sep bands. Steps count from 0.

    Attributes:
        columns: shape (n, p), ``C[j + d, j] / sigma`` at [j, d], zero beyond the end.
        min_sep: b.
        prob: q, in (0, 1).
        warm: whether the first availability is that of the long run.
        chances: ``E x``, shape (n,).
    """

    columns: Array
    min_sep: int
    prob: float
    warm: bool
    chances: Array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Renewal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> bytes:
        """SHA-256 of all of it; copies in other processes find the tables that were made there."""
        numbers = f"{self.columns.shape} {self.min_sep} {self.prob!r} {self.warm}"
        return sha256(numbers.encode() + self.columns.tobytes()).digest()

    @property
    def steps(self) -> int:
        """n."""
        return int(self.columns.shape[0])

    @property
    def bands(self) -> int:
        """p."""
        return int(self.columns.shape[1])

    @cached_property
    def mean(self) -> tuple[Array, float, float]:
        """``C E[x] / sigma``, shape (n,); its square norm; and ``A = E |C x|^2 / sigma^2``.

        Columns of one example do not overlap, so A is a sum.
        """
        mean = np.zeros(self.steps + self.bands)
        for lag in range(self.bands):
            mean[lag : lag + self.steps] += self.chances * self.columns[:, lag]
        mean = mean[: self.steps]
        return mean, float(mean @ mean), float(self.chances @ self.squares)

    @property
    def squares(self) -> Array:
        """``|c_i|^2 / sigma^2``, shape (n,)."""
        return np.asarray(np.einsum("id,id->i", self.columns, self.columns))

    def lagged(self) -> Array:
        """``<c_(i-d), c_i> / sigma^2`` at [i, d], shape (n, p), zero before the start."""
        products = np.zeros_like(self.columns)
        for lag in range(min(self.bands, self.steps)):
            earlier, later = self.columns[: self.steps - lag, lag:], self.columns[lag:, : self.bands - lag]
            products[lag:, lag] = np.einsum("id,id->i", earlier, later)
        return products

    def log_takes(self, separation: int) -> Array:
        """Logs of ``q (1 - q)^-m``, shape (n,): what a participation weighs that blocks only ``separation`` steps.

        m is the number of further steps of the run that it ought to block.
        """
        first = np.arange(self.steps)
        early = np.minimum(first + self.min_sep, self.steps) - np.minimum(first + separation, self.steps)
        return log(self.prob) - early * log1p(-self.prob)

    def log_starts(self, separation: int) -> Array:
        """Logs of the weights of the first availability at steps 0, 1, ...; shape (1,) when cold, else (separation,).

        Availabilities from ``separation`` on count for ``separation - 1``, with ``(1 - q)^-m`` for m steps of the run.
        """
        if not self.warm:
            return np.zeros(1)
        first = np.arange(self.min_sep)
        logs = np.where(first == 0, 0.0, log(self.prob)) - log1p((self.min_sep - 1) * self.prob)
        early = np.minimum(first, self.steps) - np.minimum(separation - 1, self.steps)
        logs[separation:] -= early[separation:] * log1p(-self.prob)
        return np.append(logs[: separation - 1], np.logaddexp.reduce(logs[separation - 1 :]))


class Copies(NamedTuple):
    """How the joint state of a copies moves: how long each is still blocked, in ascending order, the first 0.

    State s is such a tuple without its first entry; state 0 has all copies available. In a state with m copies
    available k of them take part, k from 0 to m, and then nothing can happen for ``jumps[s, k]`` steps.

    Attributes:
        available: m, shape (states,).
        jumps, targets: steps to the next state, and that state; shape (states, order + 1).
        lags: how long ago the blocked copies took part, shape (states, order - 1), padded with -1.
        combinations: ``log binom(m, k)`` at [m, k].
    """

    available: Integers
    jumps: Integers
    targets: Integers
    lags: Integers
    combinations: Array

    @classmethod
    def of(cls, order: int, separation: int) -> "Copies":
        """O(states * order^2)."""
        states = list(combinations_with_replacement(range(separation), order - 1))
        index = {state: number for number, state in enumerate(states)}
        available = np.array([1 + state.count(0) for state in states])
        jumps, targets = np.zeros((2, len(states), order + 1), np.int64)
        lags = np.full((len(states), order - 1), -1)
        for number, state in enumerate(states):
            blocked = [wait for wait in state if wait > 0]
            lags[number, : len(blocked)] = [separation - wait for wait in blocked]
            for taken in range(available[number] + 1):
                waits = sorted([*blocked, *[separation] * taken, *[1] * (int(available[number]) - taken)])
                jumps[number, taken] = waits[0]
                targets[number, taken] = index[tuple(wait - waits[0] for wait in waits[1:])]
        combinations = np.array([[log(max(1, comb(m, k))) for k in range(order + 1)] for m in range(order + 1)])
        return cls(available=available, jumps=jumps, targets=targets, lags=lags, combinations=combinations)


def state_count(order: int, separation: int) -> int:
    """Number of states of :class:`Copies`."""
    return comb(separation + order - 2, order - 1)


class Table(NamedTuple):
    """``Z_a = E_Q Xt^a`` and all that it takes to draw outputs with density ``Xt^a / Z_a`` relative to Q; Xt >= X.

    ``Xt`` is X with participations that block ``separation`` steps alone and weigh more for it; it is X when
    separation = min_sep (docs/theory/monte-carlo/renewal-proposals.md).

    Attributes:
        copies: the moves of the copies.
        log_skip: log(1 - q).
        log_takes: shape (n,).
        lagged: shape (n, p).
        values: shape (n, states): log of the expected weight of all that comes after a state at a step.
        log_starts: logs of the probabilities of the joint first availabilities, shape (m,).
        cumulative: sums of these probabilities, shape (m,).
        first_steps, first_states: when the first copy is available, and the state then; shape (m,).
        survival: shape (n + 1,), not increasing: its difference between two steps is the log of the probability
            that copies which are all available at the first do nothing before the second.
        log_moment: log Z_a, rounded up.
        error: bound on the rounding error of ``log_moment``.
    """

    copies: Copies
    log_skip: float
    log_takes: Array
    lagged: Array
    values: Array
    log_starts: Array
    cumulative: Array
    first_steps: Integers
    first_states: Integers
    survival: Array
    log_moment: float
    error: float

    @classmethod
    def of(cls, renewal: Renewal, order: int, separation: int) -> "Table":
        """O(n states order) time, O(n states) memory; max(p, 1) <= separation <= min_sep."""
        copies = _copies(order, separation)
        log_skip, log_takes = log1p(-renewal.prob), renewal.log_takes(separation)
        # Upwards by the rounding of the columns and of their inner products, so that Z_a is not too small.
        lagged = renewal.lagged() * (1.0 + (2 * renewal.bands + 16) * UNIT_ROUNDOFF)
        values = np.empty((renewal.steps, copies.available.size))
        _fill(values, log_skip, log_takes, lagged, copies)
        first_steps, first_states, logs = _joint_starts(renewal.log_starts(separation), order, separation)
        inside = first_steps < renewal.steps
        logs[inside] += values[first_steps[inside], first_states[inside]]
        total = float(np.logaddexp.reduce(logs))
        survival = order * log_skip * np.arange(renewal.steps + 1) + np.append(values[:, 0], 0.0)
        largest_move = order * (
            float(np.abs(log_takes).max()) + abs(log_skip) + order * float(lagged.sum(axis=1).max())
        )
        size = 4.0 + float(np.abs(values).max()) + largest_move
        error = 16.0 * (renewal.steps + 8) * (order + 1) * UNIT_ROUNDOFF * size
        return cls(
            copies=copies,
            log_skip=log_skip,
            log_takes=log_takes,
            lagged=lagged,
            values=values,
            log_starts=logs - total,
            cumulative=np.cumsum(np.exp(logs - total)),
            first_steps=first_steps,
            first_states=first_states,
            survival=np.minimum.accumulate(survival),
            log_moment=total + 0.5 * error,
            error=error,
        )


@lru_cache(maxsize=4)
def _copies(order: int, separation: int) -> Copies:
    """The moves, which are the same for every noise multiplier."""
    return Copies.of(order, separation)


def _joint_starts(log_starts: Array, order: int, separation: int) -> tuple[Integers, Integers, Array]:
    """First step, state then and log-weight of every multiset of a first availabilities, one for each copy."""
    joint = _multisets(log_starts.size, order)
    first = joint[:, 0]
    # States are numbered in lexicographic order, in which their digits to the base of the separation grow too.
    digits = separation ** np.arange(order - 2, -1, -1)
    states = np.searchsorted(_multisets(separation, order - 1) @ digits, (joint[:, 1:] - first[:, None]) @ digits)
    # a! / prod of the factorials of how often each step occurs: the k-th time that it does divides by k.
    orders, times = np.full(first.size, float(factorial(order))), np.ones(first.size)
    for place in range(1, order):
        times = np.where(joint[:, place] == joint[:, place - 1], times + 1.0, 1.0)
        orders /= times
    return first, states, log_starts[joint].sum(axis=1) + np.log(orders)


def _multisets(kinds: int, size: int) -> Integers:
    """All multisets of numbers below ``kinds``, each in ascending order, in lexicographic order; shape (m, size)."""
    count = comb(kinds + size - 1, size)
    numbers = chain.from_iterable(combinations_with_replacement(range(kinds), size))
    return np.fromiter(numbers, dtype=np.int64, count=count * size).reshape(count, size)


@kernel
def weigh_moves(
    terms: Array, step: int, state: int, values: Array, log_skip: float, log_takes: Array, lagged: Array, copies: Copies
) -> int:
    """Fill ``terms[k]`` with the log-weight of k copies taking part and all that may follow; return the largest k."""
    available, jumps, targets, lags, combinations = copies
    most = available[state]
    # What a copy that takes part now shares with each of the copies that took part a moment ago.
    shared = 0.0
    for copy in range(lags.shape[1]):
        lag = lags[state, copy]
        if 0 <= lag < lagged.shape[1]:
            shared += lagged[step, lag]
    for taken in range(most + 1):
        later = step + jumps[state, taken]
        follow = values[later, targets[state, taken]] if later < values.shape[0] else 0.0
        pairs = 0.5 * taken * (taken - 1) * lagged[step, 0]
        alone = (most - taken) * log_skip + taken * log_takes[step]
        terms[taken] = follow + (combinations[most, taken] + alone + (pairs + taken * shared))
    return int(most)


@kernel
def _fill(values: Array, log_skip: float, log_takes: Array, lagged: Array, copies: Copies) -> None:
    """Backwards over the steps."""
    terms = np.empty(copies.jumps.shape[1])
    for step in range(values.shape[0] - 1, -1, -1):
        for state in range(values.shape[1]):
            most = weigh_moves(terms, step, state, values, log_skip, log_takes, lagged, copies)
            largest = terms[0]
            for taken in range(1, most + 1):
                largest = max(largest, terms[taken])
            total = 0.0
            for taken in range(most + 1):
                total += np.exp(terms[taken] - largest)
            values[step, state] = largest + np.log(total)
