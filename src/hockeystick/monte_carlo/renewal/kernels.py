"""Draws outputs of a renewal mixture and evaluates densities like its likelihood ratio by the backward recursion.

With the columns and the outputs in units of sigma (``a_i = c_i / sigma``, ``y ~ N(0, I)`` under Q)

    ``f_i = (1-h) f_{i+1} + E_i f_{i+b}``,   ``f_i = 1`` beyond n,
    ``E_i = sum_j w_j exp(m_j (<a_i, y> - shift_i) - m_j^2 |a_i|^2 / 2)``,

and the density, relative to Q, is ``sum_u start_u f_u``. It is X for ``w_j = P(Binomial(k, q) = j)``, ``m_j = j`` and
the chances of the first availability; shifts are then zero but for the add direction of a matrix that is not banded. Xt
and the chains of :mod:`.proposals` are other densities of this kind. The recursion runs on doubles that share a power
of two, which is looked at once in b steps; samples of which doubles do not reach far enough, which occur when sigma is
very small, run in logarithms (docs/theory/monte-carlo/renewal.md).
"""

import math
from typing import NamedTuple

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.draws import place_of
from hockeystick.monte_carlo.sums import log_add

RANGE = 300.0
"""The largest D with ``e^D = max(1, max_i E_i / h) (1-h)^-b``, the ratio of values less than b steps apart."""
COMMON = 2.0**32
"""The newest value is brought back to 1 when it leaves 1 / COMMON to COMMON."""
TILE = 512
"""Steps whose exponents are formed at a time: they stay in the fastest cache."""
SMALLEST = -700.0
"""Exponents below this count as this, which changes X by less than a part in ``e^(700 - RANGE)``."""
CONTRACT = {"contract"}
"""A product and a sum may be rounded once."""

_OCTAVE = math.log(2.0)
_PER_OCTAVE = 1.0 / _OCTAVE
_OCTAVE_HIGH = float.fromhex("0x1.62e42feep-1")
"""ln 2 with its last 21 bits cleared: products with small integers are exact."""
_OCTAVE_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SHIFTER = 1.5 * 2.0**52
"""Added to a double it rounds it to an integer, which the lowest bits of the sum then hold."""
_F13 = 1.0 / math.factorial(13)
_LOWER = tuple(1.0 / math.factorial(k) for k in range(12, -1, -1))


class Recursion(NamedTuple):
    """What the kernels know of a density.

    Attributes:
        taps: columns of C / sigma, shape (p, n): ``taps[d, i] = C[i + d, i] / sigma``; (p, 1) when they are all the
            first one, moved down and cut off at the end.
        half_squares: ``|a_i|^2 / 2``, shape (n,).
        shifts: shape (n,).
        times: ``m_j``, how many columns a participation of each kind adds; shape (kinds,).
        log_weights: ``log w_j``, shape (kinds,).
        log_stay: ``log(1 - h)``.
        min_sep: b.
        first: weights of the first availability at the steps 0, 1, ...; shape (1,) or up to (b,).
    """

    taps: Array
    half_squares: Array
    shifts: Array
    times: Array
    log_weights: Array
    log_stay: float
    min_sep: int
    first: Array


@kernel
def draw_outputs(rng: np.random.Generator, law: Recursion, of_p: bool, mean: Array, beta: float, out: Array) -> None:
    """Fill ``out``, shape (samples, 2), with ``log X`` and ``<mean, y>`` of outputs ``y = z - beta mean``.

    With ``of_p`` the columns of a run's participations are added. O(n p) time a sample, O(n + p + b) memory.
    """
    n = law.half_squares.size
    y, work = np.zeros(n + law.taps.shape[0]), workspace(law)
    for sample in range(out.shape[0]):
        for i in range(n):
            y[i] = rng.standard_normal() - beta * mean[i]
        if of_p:
            participate(rng, law, y)
        out[sample, 0] = log_ratio(y, law, work)
        out[sample, 1] = np.dot(mean, y[:n])


@kernel(inline="always")
def participate(rng: np.random.Generator, law: Recursion, y: Array) -> None:
    """Add the columns of one run's participations to y, shape (n + p,), of which the last p stay zero."""
    n, step = law.half_squares.size, place_of(rng.random(), law.first)
    while step < n:
        skipped = np.floor(np.log(1.0 - rng.random()) / law.log_stay)
        if skipped >= n - step:
            return
        step += int(skipped)
        add_column(law.taps, step, float(_taken(rng, law)), n, y)
        step += law.min_sep


@kernel
def add_column(taps: Array, step: int, times: float, n: int, y: Array) -> None:
    """Add a multiple of the column of a step, cut off after n rows."""
    column = min(step, taps.shape[1] - 1)
    for d in range(min(taps.shape[0], n - step)):
        y[step + d] += times * taps[d, column]


@kernel(inline="always")
def _taken(rng: np.random.Generator, law: Recursion) -> int:
    """A Binomial(k, q), given that it is positive."""
    k = law.log_weights.size
    if k == 1:
        return 1
    at = rng.random() * -np.expm1(law.log_stay)
    for count in range(1, k):
        at -= np.exp(law.log_weights[count - 1])
        if at < 0.0:
            return count
    return k


class Workspace(NamedTuple):
    """Scratch memory of :func:`log_ratio`; the integers are views of the bits of the doubles before them."""

    products: Array
    terms: Array
    values: Array
    exponents: Array
    octaves: Array
    octave_bits: Integers
    powers: Array
    power_bits: Integers


@kernel
def workspace(law: Recursion) -> Workspace:
    """For one thread."""
    n = law.half_squares.size
    octaves, powers = np.empty(TILE), np.empty(TILE)
    return Workspace(
        np.empty(n),
        np.empty(n),
        np.empty(n + law.min_sep),
        np.empty(TILE),
        octaves,
        octaves.view(np.int64),
        powers,
        powers.view(np.int64),
    )


@kernel
def log_ratio(y: Array, law: Recursion, work: Workspace) -> float:
    """The logarithm of the density at y / sigma, shape (n + p,), the last p entries zero."""
    correlate(y, law.taps, work.products)
    return log_sum(law, work)


@kernel
def log_sum(law: Recursion, work: Workspace) -> float:
    """The same from the ``products`` of :func:`correlate`."""
    largest = _weigh(law, work) + np.log(law.times.size)
    if in_range(largest, law):
        return sum_values(law, work.values)
    for i in range(work.terms.size):
        total = -np.inf
        for j in range(law.times.size):
            exponent = (work.products[i] - law.shifts[i] - law.times[j] * law.half_squares[i]) * law.times[j]
            total = log_add(total, exponent + law.log_weights[j]) if j > 0 else exponent + law.log_weights[j]
        work.terms[i] = total
    return sum_logs(law, work.terms, work.values)


@kernel(inline="always")
def sum_terms(law: Recursion, work: Workspace) -> float:
    """The same from the log E_i, in ``terms``."""
    if not in_range(work.terms.max(), law):
        return sum_logs(law, work.terms, work.values)
    work.values[:] = 0.0
    for start in range(0, work.terms.size, TILE):
        terms = work.terms[start : start + TILE]
        _add_exponentials(terms, work, work.values[start : start + terms.size])
    return sum_values(law, work.values)


@kernel
def in_range(largest: float, law: Recursion) -> bool:
    """Whether the recursion runs on doubles, for E_i of at most ``e^largest``."""
    reach = max(0.0, largest - np.log(-np.expm1(law.log_stay))) - law.min_sep * law.log_stay
    return bool(reach <= RANGE)  # False for what is not a number


@kernel
def sum_values(law: Recursion, values: Array) -> float:
    """The logarithm of the density from the E_i, shape (n + b,), which are overwritten; on doubles."""
    octaves = _recur(values, law.half_squares.size, law.min_sep, np.exp(law.log_stay))
    mixed = 0.0
    for u in range(law.first.size):
        mixed += law.first[u] * values[u]
    return float(np.log(mixed) + octaves * _OCTAVE)


@kernel
def correlate(y: Array, taps: Array, products: Array) -> None:
    """``products[i] = sum_d taps[d, i] y[i + d]``."""
    n, p = products.size, taps.shape[0]
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        tile = products[start:stop]
        tile[:] = 0.0
        if taps.shape[1] > 1:
            for d in range(min(p, n - start)):
                _add_products(taps[d, start:stop], y[start + d :], tile)
        else:
            used = min(p, n - start)
            for d in range(0, used - 7, 8):
                _add_eight(taps[d : d + 8, 0], y[start + d :], tile)
            for d in range(used - used % 8, used):
                _add_multiple(taps[d, 0], y[start + d :], tile)


@kernel(fastmath=CONTRACT)
def _add_products(taps: Array, y: Array, tile: Array) -> None:
    for i in range(min(tile.size, y.size)):
        tile[i] += taps[i] * y[i]


@kernel(fastmath=CONTRACT)
def _add_multiple(tap: float, y: Array, tile: Array) -> None:
    for i in range(min(tile.size, y.size)):
        tile[i] += tap * y[i]


@kernel(fastmath=CONTRACT)
def _add_eight(taps: Array, y: Array, tile: Array) -> None:
    """Eight taps at a time: the sums stay in registers that long."""
    t0, t1, t2, t3, t4, t5, t6, t7 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5], taps[6], taps[7]
    for i in range(min(tile.size, y.size - 7)):
        total = tile[i] + t0 * y[i]
        total = total + t1 * y[i + 1]
        total = total + t2 * y[i + 2]
        total = total + t3 * y[i + 3]
        total = total + t4 * y[i + 4]
        total = total + t5 * y[i + 5]
        total = total + t6 * y[i + 6]
        tile[i] = total + t7 * y[i + 7]


@kernel(inline="always")
def _weigh(law: Recursion, work: Workspace) -> float:
    """Put the E_i in ``values``; return the largest exponent. Where that exceeds RANGE the values are void."""
    largest = -np.inf
    for start in range(0, work.products.size, TILE):
        stop = min(start + TILE, work.products.size)
        products, half_squares, shifts = work.products[start:stop], law.half_squares[start:stop], law.shifts[start:stop]
        values, exponents = work.values[start:stop], work.exponents[: stop - start]
        values[:] = 0.0
        for j in range(law.times.size):
            _exponents(products, half_squares, shifts, law.times[j], law.log_weights[j], exponents)
            largest = max(largest, exponents.max())
            _add_exponentials(exponents, work, values)
    return largest


@kernel(fastmath=CONTRACT)
def _exponents(
    products: Array, half_squares: Array, shifts: Array, times: float, log_weight: float, exponents: Array
) -> None:
    for i in range(exponents.size):
        exponents[i] = (products[i] - shifts[i] - times * half_squares[i]) * times + log_weight


@kernel(fastmath=CONTRACT)
def _add_exponentials(exponents: Array, work: Workspace, values: Array) -> None:
    """``values += exp(exponents)``, relative error below 2^-50, for exponents up to 700; in vector registers.

    ``e^x = 2^m e^r``, ``|r| <= ln(2)/2``: a Taylor polynomial of degree 13, whose exponent is then raised by m. Of at
    most TILE numbers.
    """
    octaves, octave_bits, powers, power_bits = work.octaves, work.octave_bits, work.powers, work.power_bits
    for i in range(exponents.size):
        x = max(exponents[i], SMALLEST)
        octaves[i] = x * _PER_OCTAVE + _SHIFTER
        m = octaves[i] - _SHIFTER
        r = (x - m * _OCTAVE_HIGH) - m * _OCTAVE_LOW
        total = _F13
        for factorial in _LOWER:
            total = total * r + factorial
        powers[i] = total
    for i in range(exponents.size):
        power_bits[i] += octave_bits[i] << 52
    for i in range(exponents.size):
        values[i] += powers[i]


@kernel(fastmath=CONTRACT)
def _recur(values: Array, n: int, min_sep: int, stay: float) -> int:
    """Turn the E_i into the f_i, in place; return m such that f_i is ``values[i] 2^m`` for i up to min_sep."""
    values[n:] = 1.0
    octaves = 0
    stop = n
    while stop > 0:
        start = max(stop - min_sep, 0)
        for i in range(start, stop):
            values[i] *= values[i + min_sep]
        value = values[stop]
        for i in range(stop - 1, start - 1, -1):
            value = stay * value + values[i]
            values[i] = value
        if value > COMMON or value < 1.0 / COMMON:
            exponent = math.frexp(value)[1]
            scale = math.ldexp(1.0, -exponent)
            octaves += exponent
            for i in range(start, start + min_sep):
                values[i] *= scale
        stop = start
    return octaves


@kernel
def sum_logs(law: Recursion, terms: Array, values: Array) -> float:
    """The density's logarithm from the log E_i where doubles do not reach; ``values`` then holds the log f_i."""
    n = terms.size
    values[n:] = 0.0
    for i in range(n - 1, -1, -1):
        values[i] = log_add(law.log_stay + values[i + 1], terms[i] + values[i + law.min_sep])
    mixed = -np.inf
    for u in range(law.first.size):
        mixed = log_add(mixed, np.log(law.first[u]) + values[u])
    return mixed
