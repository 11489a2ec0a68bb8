"""Both sides of the profile of one epoch of random allocation, by an inverse Laplace transform.

An example that is in one of t steps, uniformly at random and hidden, has the likelihood ratio
``X = (Y_1 + ... + Y_t) / t`` with independent ``Y = exp(mu z - mu^2 / 2)``, ``z ~ N(0, 1)`` under Q and
``mu = 1 / sigma``. With ``Lambda(v) = E e^(-v Y)`` and a > 0,

    p(x) = E (x - X)_+ = (1 / 2 pi) int Lambda(s / t)^t e^(s x) / s^2 dw,   s = a + iw.

The trapezoidal rule of step ``2 pi / W`` adds ``e^(-a W m) p(x + m W)``, m = 1, 2, ..., and nothing else, as p vanishes
where x is not positive. All of that is known but for what one has out of the money,

    o(x) = p(x) - (x - 1)_+,   delta(eps) = o(e^eps)  remove,   delta(eps) = e^eps o(e^-eps)  add,

which is between 0 and 1. Proofs: docs/theory/contours.md, "Random allocation". Cost: O(frequencies * nodes) for a line,
which serves all places x within a factor of 2; O(frequencies) for each place. There are about ``x / deviation(X)`` tens
of frequencies. Far out :mod:`.one_large_ratio` answers instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, e, exp, expm1, log, log2, pi, sin, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hockeystick.laws.answers import Answers, Foreseen, Sides
from hockeystick.laws.inner_products import inner_products
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.one_large_ratio import MOST_PLACE, OneLargeRatio
from hockeystick.laws.rotations import exponentials_less_one, rotations
from hockeystick.types import Direction

LEAST_NOISE, MOST_NOISE, MOST_BINS = 0.3, 300.0, 10**6
"""Noise of a single visit: with less a line takes too many nodes; with more, or more bins, rounding is too large."""
TURN = 0.75
"""Angle by which Y is turned in the complex plane, at most pi / 4, so that e^(-v Y) falls on all lines."""
REACH = 8.6
"""Standard deviations beyond which nodes are left out, and charged: on the left of z, and on the right of z - mu."""
QUADRATURE = 37.0
"""The trapezoidal rule over z errs by at most 2 e^-QUADRATURE."""
BLOCK = 32
"""Nodes of a partial sum, and the fewest frequencies of a block, whose exponentials are products of two others."""
MOST_IN_BLOCK, LONG = 256, 4000.0
"""The most frequencies of a block, and how many of them make the first doubling of blocks worth while."""
TOGETHER = 8
"""How many blocks, at most, take their exponentials from those of the first of them, by products."""
DAMPING = 28.0
"""a W: what the rule adds is at most about e^-DAMPING."""
WINDOW, NARROW_WINDOW = 8.0, 4.0
"""Least ratio of W and a place x: where the first takes too much work, rounding may grow with the second."""
COMMON_RATE, FEW_BINS = DAMPING / WINDOW, 60
"""Lines of places from 1 on have at most this rate, and share the frequency where they end, unless bins are few."""
SMALLEST_POWER = -28.0
"""Logarithm of |Lambda(s / t)|^t where frequencies end."""
MOST_WORK, MOST_WORK_IF_NARROW = 8e7, 8e7
"""Frequencies times nodes of a line with either window; what needs more is left to the laws."""
PLACES_TOGETHER = 256
"""Places that are asked at once."""
LOWEST = 2.0**-7
"""Smaller places are not asked: from there on, p(x) / x at the lowest is the upper bound of the add direction."""
LARGEST_POWER = -7.0
"""As ``SMALLEST_POWER`` where the search for the end begins."""
LEAST_STEP, MOST_STEP = 0.06, 0.2
"""Neighbouring frequencies between which the size of Lambda is bounded differ by a share between these."""
FIRST_FAR, LAST_FAR, FAR_GAP, FAR_GAP_OF_SEVERAL = 7, int(log2(MOST_PLACE)), 3e-4, 5e-3
"""Octaves in which one large ratio answers, if its sides are as close as this, relatively, where they begin."""
LAST_OF_FIRST = 12
"""Up to this octave one large ratio is asked for the ends of all at once."""
FIRST_SHORT, LEAST_SHORT, SHORT_BY = 4, 1e-6, 14.0
"""Octaves from which on lines for several epochs may be short: where o is at least the second number up to their ends.

What they leave out is about ``e^-SHORT_BY`` of it.
"""


class OutOfTheMoney(Protocol):
    """What knows o at places."""

    def out_of_the_money(self, places: Array) -> tuple[Array, Array]:
        """Lower and upper bounds on o at places of shape (k,)."""


@dataclass(frozen=True, eq=False)
class LaplaceLine:
    """The line ``Re s = rate``, ready to be asked for many places.

    Attributes:
        rate, step, window: a, the distance of the frequencies, and W.
        terms: shape (blocks, k), complex, k frequencies a block: of the sum, but for the factor ``e^(s (x - 1))``.
        error, error_of_angles: bounds on the error of the sum of the terms, without the size of that factor: always,
            and for each unit of ``|x - 1|``.
    """

    rate: float
    step: float
    window: float
    terms: NDArray[np.complex128]
    error: float
    error_of_angles: float

    def out_of_the_money(self, places: Array) -> tuple[Array, Array]:
        """Lower and upper bounds on o at places of shape (k,) below ``window``, close up to ``window / WINDOW``.

        O(k frequencies) time.
        """
        shifts = places - 1.0
        count, block = self.terms.shape
        within = rotations(np.multiply.outer(shifts, self.step * np.arange(block)))
        starts = rotations(np.multiply.outer(shifts, self.step * block * np.arange(count)))
        sums = inner_products(within, self.terms)
        factors = np.exp(self.rate * shifts)
        # Blocks are summed in groups of about as many as there are groups, which keeps the rounding small.
        groups = np.add.reduceat(starts * sums, np.arange(0, count, ceil(sqrt(count))), axis=1)
        values = factors * groups.sum(axis=1).real
        copies = np.arange(1.0, 24.0)  # later ones are below 1e-280
        known = np.maximum(places[:, None] - 1.0 + self.window * copies, 0.0) @ np.exp(-DAMPING * copies)
        known += np.maximum(shifts, 0.0)
        errors = factors * (self.error + self.error_of_angles * np.abs(shifts)) * (1.0 + 1e-9)
        errors += 64.0 * UNIT_ROUNDOFF * known
        upper = values - known + errors
        lower = values - known - errors - 1.0 / expm1(DAMPING)
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)


Lines = dict[int, OutOfTheMoney | None]
"""What knows o in each octave of places that has been asked for; None where nothing is good."""


class MeanOfRatios(Foreseen):
    """The mean of the ratios of ``bins`` steps, of which one has the example.

    Args:
        several: whether o is asked for the law of one of several epochs, which needs fewer digits far out.
        lines: those of the same arguments that are known; what is asked for adds to them. None for none.

    >>> one_epoch = MeanOfRatios(1.0, 100)
    >>> lower, upper = one_epoch.sides(0.5, Direction.REMOVE)
    >>> upper / lower - 1.0 < 1e-6
    True
    """

    def __init__(
        self, noise_multiplier: float, bins: int, *, several: bool = False, lines: Lines | None = None
    ) -> None:
        super().__init__()
        self.mu, self.bins, self.several = 1.0 / noise_multiplier, bins, several
        self.in_reach = LEAST_NOISE <= noise_multiplier <= MOST_NOISE and 2 <= bins <= MOST_BINS
        self.far = OneLargeRatio(self.mu, bins)
        self._lines: Lines = {} if lines is None else lines
        self._ends: dict[tuple[float, float, float], float] = {}

    def foresee(self, epsilons: Sequence[float], direction: Direction) -> Answers:
        """As :meth:`Foreseen.foresee`; None where no line takes little enough work."""
        known = self._kept()
        fresh = [epsilon for epsilon in dict.fromkeys(epsilons) if (epsilon, direction) not in known]
        answers: dict[float, Sides | None] = dict.fromkeys(fresh)
        lines: dict[int, list[float]] = {}
        for epsilon in fresh:
            lines.setdefault(self._octave(_place(epsilon, direction)[1]), []).append(epsilon)
        for together in lines.values():
            line = self.line(_place(together[0], direction)[1])
            if line is None:
                continue
            for first in range(0, len(together), PLACES_TOGETHER):
                some = together[first : first + PLACES_TOGETHER]
                lower, upper = line.out_of_the_money(np.array([_place(epsilon, direction)[1] for epsilon in some]))
                far = isinstance(line, OneLargeRatio)
                for epsilon, low, high in zip(some, lower.tolist(), upper.tolist(), strict=True):
                    answers[epsilon] = _sides(epsilon, direction, low, high, far=far)
        # All at once: an interruption leaves no epsilon without the answer that it would have.
        known |= {(epsilon, direction): sides for epsilon, sides in answers.items()}
        return known

    def line(self, place: float) -> OutOfTheMoney | None:
        """What knows o from one power of 2 to the next, which holds a place > 0; None if nothing is good."""
        octave = self._octave(place)
        if octave not in self._lines:
            self._lines[octave] = self._good(octave) if self.in_reach else None
        return self._lines[octave]

    def reaches(self, octave: int) -> bool:
        """Whether one large ratio answers for the places below ``2^octave``, and so beyond."""
        if not FIRST_FAR <= octave <= LAST_FAR:
            return False
        lower, upper = self._far_at(octave - 1)
        return 1.0 - lower / upper <= (FAR_GAP_OF_SEVERAL if self.several else FAR_GAP)

    def _far_at(self, octave: int) -> tuple[float, float]:
        """What one large ratio says of o at ``2^octave``, of the first octaves all at once."""
        if octave >= FIRST_SHORT + len(self._far_at_first[0]):
            lower, upper = self.far.out_of_the_money(np.array([2.0**octave]))
            return float(lower[0]), float(upper[0])
        lower, upper = self._far_at_first
        return float(lower[octave - FIRST_SHORT]), float(upper[octave - FIRST_SHORT])

    @cached_property
    def _far_at_first(self) -> tuple[Array, Array]:
        """Lower and upper bounds on o by one large ratio at ``2^FIRST_SHORT`` and some powers of 2 from there on."""
        return self.far.out_of_the_money(np.exp2(np.arange(FIRST_SHORT, LAST_OF_FIRST + 1, dtype=np.float64)))

    def _good(self, octave: int) -> OutOfTheMoney | None:
        """What knows o at the places up to ``2^octave``: one large ratio, or a line with as wide a window as pays."""
        if self.reaches(octave):
            return self.far
        end = 2.0**octave
        if not self.several:
            line = self._line(WINDOW * end, MOST_WORK)
            # Rates below 1 would leave the range of doubles.
            return line or (self._line(NARROW_WINDOW * end, MOST_WORK_IF_NARROW) if octave > 0 else None)
        least = 0.0 if octave < FIRST_SHORT else self._far_at(octave)[0]
        if least < LEAST_SHORT:
            return self._line(WINDOW * end, MOST_WORK)
        return self._line(NARROW_WINDOW * end, MOST_WORK, max(log(least) - SHORT_BY, SMALLEST_POWER))

    def _octave(self, place: float) -> int:
        """The number of the octave that ends at the next power of 2; out of reach all places share one."""
        return ceil(log2(place)) if self.in_reach else 0

    @cached_property
    def turn(self) -> float:
        """theta of the page; less where noise is large, as the path of z moves by ``theta / mu``."""
        return min(TURN, 1.2 * self.mu)

    @cached_property
    def nodes(self) -> Array:
        """Where the rule over z is evaluated: exact multiples of a step of few bits, from -REACH to mu + REACH."""
        height = self.turn / self.mu
        step = 2.0 * pi * height / (QUADRATURE + 2.0 * height**2)
        step = int(step * 2**20) / 2**20
        before, after = ceil(REACH / step) + 1, ceil((REACH + self.mu) / step) + 1
        count = BLOCK * ceil((before + after) / BLOCK)
        nodes: Array = step * (np.arange(count, dtype=np.float64) - before)
        return nodes

    @cached_property
    def ratios(self) -> NDArray[np.complex128]:
        """Y at the nodes, turned."""
        turned: NDArray[np.complex128] = np.exp(self.mu * self.nodes - 0.5 * self.mu**2 - 1j * self.turn)
        return turned

    @cached_property
    def weights(self) -> NDArray[np.complex128]:
        """The density of z on the line through which Y is turned, times the step of the nodes."""
        height, z = self.turn / self.mu, self.nodes
        step = float(z[1] - z[0])
        exponents = 0.5 * (height - z) * (height + z) + 1j * height * z
        return np.asarray(step / sqrt(2.0 * pi) * np.exp(exponents), dtype=np.complex128)

    @cached_property
    def error(self) -> float:
        """Bounds the error of every value of Lambda: of the rule, of what it leaves out, and of rounding."""
        height, z = self.turn / self.mu, np.abs(self.nodes)
        sizes = np.abs(self.weights)
        step = float(self.nodes[1] - self.nodes[0])
        left_out = float(sizes[0] + sizes[-1]) / -expm1(-step * REACH)
        # |w| e^(-Re w) is at most 1 / (e sin(turn)) for every exponent w that occurs.
        slope = 1.0 / (e * sin(self.turn))
        of_weights = z**2 + height**2 + 2.0 * height * z + 16.0
        # Sigma of a visit may be two roundings off itself.
        of_exponents = 8.0 * slope * (self.mu * z + self.mu**2 + self.turn + 12.0)
        rounding = float(np.sum(sizes * (of_weights + of_exponents + 128.0)))
        rounding += 1.5 * (BLOCK + len(z) / BLOCK + 16.0) * float(sizes.sum())
        return 2.0 * exp(-QUADRATURE) + left_out + UNIT_ROUNDOFF * rounding * 1.01

    @cached_property
    def error_of_departures(self) -> float:
        """Bounds the error of every departure of Lambda, relative to |v|: as ``error``, with 2 |v Y| for e^(-vY)."""
        height, z = self.turn / self.mu, np.abs(self.nodes)
        sizes = 2.0 * np.abs(self.weights) * np.abs(self.ratios)
        step = float(self.nodes[1] - self.nodes[0])
        left_out = float(sizes[0] + sizes[-1]) / -expm1(-step * REACH)
        of_weights = z**2 + height**2 + 2.0 * height * z + 16.0
        of_exponents = 6.0 * (self.mu * z + self.mu**2)
        rounding = float(np.sum(sizes * (of_weights + of_exponents + 272.0)))
        rounding += 3.0 * (BLOCK + len(z) / BLOCK + 16.0) * float(sizes.sum())
        return 4.0 * exp(-QUADRATURE) + left_out + UNIT_ROUNDOFF * rounding * 1.01

    def departures(self, coarse: NDArray[Any], fine: NDArray[Any], steps: Array) -> NDArray[np.complex128]:
        """``Lambda(v) - 1`` for v as in :meth:`laplace`, up to 1 in size: ``E (e^(-vY) - 1 + vY) - v``, as E Y = 1."""
        starts, rotations = np.add.outer(coarse, fine).ravel(), 1j * steps
        of_starts, of_steps = self._less_one(coarse, fine), self._less_one(rotations, np.zeros(1))
        parts = [
            _summed(np.expand_dims((values + np.multiply.outer(arguments, self.ratios)) * self.weights, axis))
            for arguments, values, axis in ((starts, of_starts, 1), (rotations, of_steps, 0))
        ]
        products = self._products(of_starts * self.weights, of_steps)
        return np.asarray(parts[0] + parts[1] + products - np.add.outer(starts, rotations))

    def laplace(self, coarse: NDArray[Any], fine: NDArray[Any], steps: Array) -> NDArray[np.complex128]:
        """``Lambda(v)`` for ``v = coarse[a] + fine[b] + i steps[c]``, all with arguments from 0 to pi / 2.

        Shape (a b, c).
        """
        of_starts = (1.0 + self._less_one(coarse, fine)) * self.weights
        return self._products(of_starts, 1.0 + self._less_one(1j * steps, np.zeros(1)))

    def _less_one(self, coarse: NDArray[Any], fine: NDArray[Any]) -> NDArray[np.complex128]:
        """``e^(-vY) - 1`` for ``v = coarse[a] + fine[b]``, shape (a b, nodes), from exponentials of either alone."""
        exponents = (-np.multiply.outer(arguments, self.ratios) for arguments in (coarse, fine))
        first, second = map(exponentials_less_one, exponents)
        if not fine.any():
            return first
        both = first[:, None] * second
        both += first[:, None]
        both += second
        return both.reshape(-1, len(self.ratios))

    def _products(self, of_starts: NDArray[np.complex128], of_steps: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Sums over the nodes of the product of two functions: shapes (a, nodes) and (b, nodes) to (a, b)."""
        chunks = (-1, len(self.nodes) // BLOCK, BLOCK)
        # Partial sums of BLOCK nodes keep the rounding of the whole small.
        parts = np.zeros((len(of_starts), len(of_steps)), dtype=np.complex128)
        for a, b in zip(
            np.moveaxis(of_starts.reshape(chunks), 1, 0), np.moveaxis(of_steps.reshape(chunks), 1, 0), strict=True
        ):
            parts += inner_products(a, b)
        return parts

    def _line(self, window: float, most_work: float, power: float | None = None) -> LaplaceLine | None:
        """The line whose rule has copies at this distance; None where it would take more work than this.

        Args:
            power: the logarithm of ``|Lambda(s / t)|^t`` where it ends; ``SMALLEST_POWER`` if it is not given.
        """
        power = SMALLEST_POWER if power is None else power
        rate, step, bins = DAMPING / window, 2.0 * pi / window, float(self.bins)
        # Where the line ends, the search for which lines of low rates share (the page's "Where the line may end").
        common = rate <= COMMON_RATE and bins >= FEW_BINS
        last = self._settled(0.0, COMMON_RATE / bins, power) if common else self._settled(rate, 0.0, power)
        if last * len(self.nodes) > most_work * step:
            return None
        block = BLOCK
        while block < MOST_IN_BLOCK and last / step > LONG * (block / BLOCK) ** 2:
            block *= 2
        blocks = ceil(last / step / block + 1.0)
        together = min(1 + blocks // 16, TOGETHER)
        count = block * together * ceil(blocks / together)
        frequencies = step * np.arange(count, dtype=np.float64)
        first = frequencies[::block] / bins
        coarse, fine = rate / bins + 1j * first[::together], 1j * first[:together]
        s = rate + 1j * frequencies
        # Lambda at v = s / t, the bounds on its error (``off``) and the roundings of its logarithm.
        if abs(s[-1]) <= bins:
            departures = self.departures(coarse, fine, frequencies[:block] / bins).ravel()
            sizes, logs = np.abs(1.0 + departures), _log1p(departures)
            off, of_logs = self.error_of_departures * np.abs(s) / bins, 24.0 * np.abs(logs)
        else:
            values = self.laplace(coarse, fine, frequencies[:block] / bins).ravel()
            sizes = np.abs(values)
            logs = np.log(np.where(sizes > 1e-300, values, 1e-300))
            off, of_logs = np.full(count, self.error), 8.0 * (1.0 + np.abs(logs))
        # A whole number of bins makes the branch of the logarithm indifferent.
        powers = np.exp(bins * logs + s)
        shares = np.full(count, 2.0 / window) / np.abs(s) ** 2
        shares[0] *= 0.5
        # (|Lambda| + error)^(t - 1), times the factor e^s of the term at x = 1.
        largest = np.exp((bins - 1.0) * np.log(np.minimum(sizes + off, 1.0)) + rate)
        rounding = UNIT_ROUNDOFF * (bins * of_logs + 8.0 * np.abs(s) + block + 2.0 * sqrt(count / block) + 128.0)
        of_terms = shares * np.abs(powers)
        errors = shares * bins * off * largest + of_terms * rounding
        cut_off = exp(rate + power) * 2.0 / (window * step * (frequencies[-1]))
        return LaplaceLine(
            rate=rate,
            step=step,
            window=window,
            terms=np.asarray(shares * powers * (np.abs(s) / s) ** 2, dtype=np.complex128).reshape(-1, block),
            error=1.01 * float(errors.sum()) + cut_off,
            error_of_angles=8.0 * UNIT_ROUNDOFF * float(np.sum(of_terms * np.abs(s))),
        )

    def _settled(self, rate: float, off: float = 0.0, power: float | None = None) -> float:
        """A frequency T such that ``(|Lambda((rate + iw) / t)| + off)^t <= e^power`` for every ``w >= T``.

        Between neighbouring values of Lambda it is at most the larger of them and what their straight line can be off
        by, from its second derivative. ``off`` is at most ``COMMON_RATE / t``, and 0 for few bins.
        """
        power = SMALLEST_POWER if power is None else power
        if (rate, off, power) not in self._ends:
            bins, height = float(self.bins), self.turn / self.mu
            most, (places, rotations) = exp(power / bins) - off, self._rotations
            values = self._products(
                (1.0 + self._less_one(np.array([rate / bins]), np.zeros(1))) * self.weights, rotations
            )
            sizes = np.abs(values[0]) + self.error
            # |Y^2 e^(-vY)| is at most (2 / (e sin(turn)) / |v|)^2 where Y is turned, and at most Y^2 where it is not.
            turned = exp(0.5 * height**2) * (2.0 / (e * sin(self.turn)) / places[:-1]) ** 2
            bends = np.minimum(turned, exp(self.mu**2))
            between = np.maximum(sizes[:-1], sizes[1:]) + np.diff(places) ** 2 / 8.0 * bends
            above = np.flatnonzero(between * (1.0 + 1e-9) > most)
            self._ends[rate, off, power] = bins * float(places[0 if above.size == 0 else above[-1] + 1])
        return self._ends[rate, off, power]

    @cached_property
    def _rotations(self) -> tuple[Array, NDArray[np.complex128]]:
        """Ascending frequencies w, shape (k,), and ``e^(-iwY)`` at the nodes, shape (k, nodes), for :meth:`_settled`.

        From the last one on Lambda is small enough for any line. Far out: the density of Y times ``e^(-rate y / t)``
        has one maximum, so the size is at most twice the largest density of Y over the frequency. It is also at most
        the sum of the sizes of what is summed, which falls.
        """
        bins, second_moment = float(self.bins), exp(self.mu**2)
        most = exp(SMALLEST_POWER / bins) - (COMMON_RATE / bins if bins >= FEW_BINS else 0.0)
        far = 2.0 * second_moment / (self.mu * sqrt(2.0 * pi)) / most * (1.0 + 1e-9)
        near = sqrt(2.0 * -expm1(LARGEST_POWER / bins) / second_moment)
        falls = np.geomspace(near, far, ceil(log2(far / near)) + 1)
        by_sizes = np.exp(-sin(self.turn) * np.multiply.outer(falls, np.abs(self.ratios))) @ np.abs(self.weights)
        enough = np.flatnonzero(by_sizes * (1.0 + 1e-9) + self.error <= most)
        far = far if enough.size == 0 else float(falls[enough[0]])
        # The straight lines between few of them suffice where Lambda may be far from 1.
        ratio = 1.0 + min(max(sqrt(4.0 / bins), LEAST_STEP), MOST_STEP)
        places = np.geomspace(near, far, ceil(log(far / near) / log(ratio)) + 2)
        return places, 1.0 + self._less_one(1j * places, np.zeros(1))


def _place(epsilon: float, direction: Direction) -> tuple[float, float]:
    """Where delta is read, and where o is asked in its stead."""
    exact = exp(epsilon) if direction is Direction.REMOVE else exp(-epsilon)
    return exact, max(exact, LOWEST)


def _sides(epsilon: float, direction: Direction, lower: float, upper: float, *, far: bool) -> Sides:
    """Both bounds on delta from those on o; one large ratio allows for the rounding of places itself."""
    exact, place = _place(epsilon, direction)
    factor = 1.0 if direction is Direction.REMOVE else 1.0 / place
    # A place is off by a few roundings of its exponent, and o changes by at most as much as the place.
    moved = 0.0 if far else factor * place * 4.0 * UNIT_ROUNDOFF * (1.0 + epsilon)
    return Sides(
        max(factor * lower * (1.0 - 1e-14) - moved, 0.0) if place == exact else 0.0,
        min(factor * upper * (1.0 + 1e-14) + moved, 1.0),
    )


def _log1p(values: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """``log(1 + x)``, to some roundings of x near 0, and to some roundings of 1 + x, relatively, elsewhere."""
    whole, small = 1.0 + values, np.abs(values) <= 0.5
    near = np.where(small, values, 0.0)
    sizes = np.where(
        small, 0.5 * np.log1p(2.0 * near.real + np.abs(near) ** 2), np.log(np.maximum(np.abs(whole), 1e-300))
    )
    return np.asarray(sizes + 1j * np.angle(whole))


def _summed(values: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Over the last axis, in blocks, whose partial sums keep the rounding of the whole small."""
    return np.asarray(values.reshape(*values.shape[:-1], -1, BLOCK).sum(axis=-1).sum(axis=-1))
