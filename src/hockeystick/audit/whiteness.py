"""Is C times these rows white noise of the claimed scale?"""

from collections.abc import Callable, Iterable
from math import log
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.linalg import cholesky, solve_triangular
from scipy.special import ndtr

from hockeystick.audit.sampling import check_level
from hockeystick.audit.verdict import Finding, Verdict
from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.mechanism import Mechanism, expect_mechanism
from hockeystick.noise import NoiseStream
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.base import BLOCK

Array = NDArray[np.float64]

MOST_NUMBERS = 1 << 28
"""Rows of more numbers would take more than two gigabytes here, or one in float32."""
AT_A_TIME = 1 << 21
"""Numbers that are looked at together, in so many coordinates of all rows."""
MOST_TREE_STEPS = 2048
"""The noise of a longer tree needs a matrix of all pairs of steps."""
REPEAT_COORDINATES = 64
"""Numbers of a row that tell whether it repeats another row: a repeat of so many numbers is unmistakable."""
REPEAT_SPREAD = 0.1
"""A repeated number is expected within this many standard deviations."""
MOST_AT_DISTANCES = 1 << 22
"""Numbers, of the first rows, that are compared with those at every distance."""
_SIZES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
SCALES: Array = np.array([1.0 - s for s in _SIZES] + [1.0 + s for s in _SIZES] + [0.01, 0.1, 0.25, 2.0, 4.0, 10.0])
"""Standard deviations that the bets on the scale believe in, in units of the claimed one."""
_SHIFTS = np.array([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9])
SHIFTS: Array = np.concatenate([_SHIFTS, -_SHIFTS])
"""Means, and correlations, that the other bets believe in."""
ODDS: Array = np.log(np.array([0.25, 0.5, 0.7, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.5, 2.0, 4.0]))
"""Logarithms of how much likelier the bets on the shape believe a range to be."""
ENDS: Array = 2.01 + 0.05 * np.arange(69.0)
"""Thresholds, up to 5.41, beyond which the bets on an end believe in next to no values. Round ends, and what rounding
adds to them, are just below one."""
NEARLY_NONE = log(0.01)
"""Logarithm of the odds of these bets: a single value beyond the end does not lose everything."""
NEXT_TO_ZERO = 2.0**-12
"""Coordinates without noise have all their numbers below this size, of which a standard normal has one in 5,000."""
MANY_ZEROS: Array = np.log([8.0, 64.0])
"""Odds of the bets on them. Grids as coarse as 1e-3 standard deviations do not multiply the share by three."""
LAGS = (1, 2, 3, 4, 8, 16, 32, 64, 128)
SAYS = {
    "scale": "The standard deviation of the noise is not the claimed one.",
    "mean": "The noise is not zero on average.",
    "earlier_rows": "C times the noise is correlated with its earlier rows.",
    "coordinates": "The noise of one parameter is correlated with that of the next.",
    "middle": "C times the noise has more, or fewer, small values than a Gaussian.",
    "tails": "C times the noise has more, or fewer, large values than a Gaussian.",
    "ends": "C times the noise has next to no values as large as a Gaussian takes so often, on one side or on both.",
    "repeated_blocks": "C times the noise is correlated with itself at some distance, as where a block is used twice.",
    "repeated_rows": "A row of the noise, or of C times the noise, repeats an earlier row or minus it, or is zero.",
    "not_finite": "The noise has a value that is not a finite number.",
}


@called("hs.audit.noise(rows, run)")
def noise(rows: Iterable[ArrayLike], mechanism: Mechanism, *, level: float = 1e-3) -> Verdict:
    """Test rows of noise against the mechanism that they are claimed to belong to.

    >>> import hockeystick as hs
    >>> claimed = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=50), noise_multiplier=2.0)
    >>> rng = np.random.default_rng(0)
    >>> hs.audit.noise(hs.noise.stream(claimed, 100, rng=rng), claimed).refuted
    False
    >>> "scale" in hs.audit.noise(1.8 * rng.standard_normal((50, 100)), claimed).broken
    True

    The audit looks at ``C x / sigma`` for the rows x, which is standard normal and independent under the claim: its
    scale, mean and shape, whether it ends where a Gaussian does not, the correlation of its rows with earlier ones and
    of neighbouring coordinates, blocks that are used twice at any distance, with either sign, and rows that repeat an
    earlier one or its negative, before or after C, or are zero. Copies in another order are not seen.

    Formal guarantee: noise with exactly the claimed distribution is found broken with probability at most ``level``
    (docs/theory/audits.md). Noise in floating point has it up to the errors that the noise stream states, at most half
    of the smallest deviation that is bet on. A pass proves nothing.

    Args:
        rows: the noise of the steps in order, from the first, in clipping norms: as many as there are, at most the
            planned steps. Arrays of any shape, the same for all; some thousand parameters of a large model are enough.
            A :class:`~hockeystick.noise.NoiseStream` is accepted, and is used up. Their number must be fixed
            beforehand, not by looking at them: the level holds for one number of rows.
        mechanism: has a noise multiplier.
        level: false-alarm probability, between 0 and 1.

    Cost: memory for all rows, in float32 where they are; time O(rows^2) for repeats of rows, and one Fourier transform
    of the first ``MOST_AT_DISTANCES`` numbers.

    Raises: InvalidInputError for no rows, rows of different shapes, too many of them or too large ones;
    UnsupportedError for a tree of too many steps.
    """
    check_level(level)
    expect_mechanism(mechanism)
    kept = _kept(rows.in_clipping_norms() if isinstance(rows, NoiseStream) else rows, mechanism)
    numbers = len(kept) * kept[0].size
    if not all(np.isfinite(row).all() for row in kept):
        return _verdict(mechanism, level, numbers, [Finding(name="not_finite", broken=True, says=SAYS["not_finite"])])
    whitened, pivots = _whitener(mechanism.matrix, len(kept))
    bets: dict[str, Array] = {}
    paid: dict[str, Array] = {}
    width = max(AT_A_TIME // len(kept), REPEAT_COORDINATES)
    few = min(max(MOST_AT_DISTANCES // kept[0].size, 1), len(kept))
    leading = np.empty((few, min(kept[0].size, MOST_AT_DISTANCES)))
    for start in range(0, kept[0].size, width):
        x = np.stack([row[start : start + width + 1] for row in kept]).astype(np.float64) / mechanism.sigma
        u = whitened(x)
        if not bets:
            bets["repeated_rows"] = _repeats(u, x, pivots)
        place = leading[:, start : start + width]
        place[:] = u[:few, : place.shape[1]]  # a copy: views would keep all of u
        for name, logs in _payments(u, width).items():  # of a product of bets, whose numbers are independent
            paid[name] = paid[name] + logs if name in paid else logs
    bets |= {name: _best(logs) for name, logs in paid.items()}
    bets["repeated_blocks"] = np.full(len(kept), -np.inf)  # it pays after the last row alone
    bets["repeated_blocks"][-1] = _at_distances(leading.ravel())
    curves = np.stack(list(bets.values()))
    refuted = bool((np.logaddexp.reduce(curves, axis=0) - log(len(bets))).max() >= -log(level))
    highest = {name: float(curve.max()) for name, curve in bets.items()}
    findings = [
        Finding(name=name, broken=refuted and evidence >= -log(level), evidence=max(evidence, 0.0), says=SAYS[name])
        for name, evidence in sorted(highest.items(), key=lambda item: -item[1])
    ]
    return _verdict(mechanism, level, numbers, findings)


def _verdict(mechanism: Mechanism, level: float, numbers: int, findings: list[Finding]) -> Verdict:
    return Verdict(
        about="noise",
        claimed=mechanism.model_dump(mode="json"),
        level=level,
        samples=numbers,
        findings=tuple(findings),
    )


def _kept(rows: Iterable[ArrayLike], mechanism: Mechanism) -> list[NDArray[Any]]:
    """A copy of each row as an array of shape (numbers in a row,), of float32 where it is, or else float64."""
    if not isinstance(rows, Iterable):
        raise InvalidInputError(f"The 'rows' argument must hold arrays of real numbers. Got {shortened(rows)} instead.")
    kept: list[NDArray[Any]] = []
    steps = mechanism.sampler.steps
    for row in rows:
        given = np.asarray(row)
        if given.dtype.kind not in "fiu":
            raise InvalidInputError(f"The 'rows' argument must hold arrays of real numbers. Got {shortened(row)}.")
        kept.append(given.astype(np.float32 if given.dtype == np.float32 else np.float64).ravel())
        if kept[-1].size != kept[0].size or not kept[0].size or len(kept) > steps:
            raise InvalidInputError(
                f"The 'rows' argument must be at most {steps} rows of one size, as many as the mechanism has steps. "
                f"Got row {len(kept)} of {kept[-1].size} numbers after one of {kept[0].size}."
            )
        if len(kept) * kept[0].size > MOST_NUMBERS:
            raise InvalidInputError(
                f"The 'rows' argument must hold at most {MOST_NUMBERS} numbers; some of the parameters are enough."
            )
    if not kept:
        raise InvalidInputError("The 'rows' argument must have at least one row. Got none.")
    return kept


def _whitener(matrix: StrategyMatrix, count: int) -> tuple[Callable[[Array], Array], Array]:
    """From x to ``C x``, or of a tree to the innovations of x: standard normal and independent for ``x = C^-1 z``.

    Also how much x_t itself adds to row t of them, shape (rows,). The leading rows of a lower triangular C need no
    later x, so what is missing counts as zero and is cut off. Any columns of x may be whitened alone.
    """
    if matrix.rows == matrix.steps:

        def times_c(x: Array) -> Array:
            padded = np.zeros((matrix.steps, x.shape[1]))
            padded[:count] = x
            return matrix.dot(padded)[:count]

        return times_c, _diagonal(matrix)[:count]
    if matrix.steps > MOST_TREE_STEPS:
        raise UnsupportedError(
            f"The noise of a tree can be audited for at most {MOST_TREE_STEPS} steps, not {matrix.steps}."
        )
    decoder = matrix.solve(np.eye(matrix.rows))
    factor = cholesky(decoder @ decoder.T, lower=True)[:count, :count]
    return lambda x: solve_triangular(factor, x, lower=True), 1.0 / np.diagonal(factor)


def _payments(u: Array, width: int) -> dict[str, Array]:
    """The logarithm of what the first ``width`` coordinates pay in each row, shape (rows, bets), by finding.

    Args:
        u: standard normal under the claim, with the coordinate after those, where there is one.
    """
    own = u[:, :width]
    return {
        "scale": _scale(own),
        "mean": SHIFTS[None, :] * own.sum(axis=1)[:, None] - 0.5 * own.shape[1] * SHIFTS[None, :] ** 2,
        "earlier_rows": _earlier_rows(own),
        "coordinates": _correlated(u[:, :-1], u[:, 1:]),
        "middle": np.concatenate(
            [
                _share(np.abs(own) < NormalDist().inv_cdf(0.75), 0.5),
                _share(np.abs(own) < NEXT_TO_ZERO, 2.0 * NormalDist().cdf(NEXT_TO_ZERO) - 1.0, odds=MANY_ZEROS),
            ],
            axis=1,
        ),
        "tails": _share(np.abs(own) > 3.0, 2.0 * NormalDist().cdf(-3.0)),
        "ends": _ends(own),
    }


def _diagonal(matrix: StrategyMatrix) -> Array:
    """``C_tt`` of a square C."""
    column = matrix.toeplitz_column
    if column is not None:
        return np.full(matrix.steps, column[0])
    blocks = (np.arange(first, min(first + BLOCK, matrix.steps)) for first in range(0, matrix.steps, BLOCK))
    return np.concatenate([matrix.columns(which)[which, np.arange(which.size)] for which in blocks])


def _best(logs: Array) -> Array:
    """The logarithm of a mixture of bets, after each row; ``logs`` has what each row pays, shape (rows, bets).

    Half of the stake of each bet is on a fault from the first row on. The other half is spread evenly over the rows
    from which on there may be one, and waits for its row: all of it is a mixture of bets that were fixed beforehand.
    """
    count, bets = logs.shape
    stake = log(0.5 / count)
    running = np.full(bets, log(0.5))
    worth = np.empty(count)
    for t, paid in enumerate(logs):
        running = np.logaddexp(running, stake) + paid
        waiting = stake + log(count - 1.0 - t) if t < count - 1 else -np.inf
        worth[t] = np.logaddexp(np.logaddexp.reduce(running) - log(bets), waiting)
    return worth


def _scale(u: Array) -> Array:
    squares = np.einsum("ti,ti->t", u, u)[:, None]
    paid: Array = -u.shape[1] * np.log(SCALES)[None, :] + 0.5 * squares * (1.0 - SCALES**-2.0)[None, :]
    return paid


def _correlated(known: Array, next_: Array) -> Array:
    """Pays for ``next_ ~ N(rho known, 1)`` in place of N(0, 1), row by row."""
    products = np.einsum("ti,ti->t", known, next_)[:, None]
    squares = np.einsum("ti,ti->t", known, known)[:, None]
    paid: Array = SHIFTS[None, :] * products - 0.5 * SHIFTS[None, :] ** 2 * squares
    return paid


def _earlier_rows(u: Array) -> Array:
    lags = [lag for lag in LAGS if lag < len(u)] or [1]
    parts = [_correlated(np.concatenate([np.zeros_like(u[:lag]), u[:-lag]])[: len(u)], u) for lag in lags]
    return np.concatenate(parts, axis=1)


def _at_distances(u: Array) -> float:
    """The logarithm of what a mixture of bets is worth that each number is correlated with the one at some distance.

    For a distance s and a shift rho the number u_j is ``N(rho u_(j - s), 1)`` given those before it, which pays
    ``rho sum_j u_j u_(j - s) - rho^2 / 2 sum_j u_(j - s)^2`` in all. A transform has the sums of products for all s.

    Args:
        u: standard normal under the claim, rows one after the other, shape (numbers,).
    """
    if u.size < 2:
        return 0.0
    length = next_fast_len(2 * u.size, real=True)
    products = irfft(np.abs(rfft(u, length)) ** 2, length)[1 : u.size, None]
    squares = np.square(u).cumsum()[-2::-1, None]  # of all but the last s numbers
    worth = np.logaddexp.reduce([np.logaddexp.reduce(rho * products - 0.5 * rho**2 * squares) for rho in SHIFTS])
    return float(worth[0]) - log(SHIFTS.size * (u.size - 1.0))


def _share(inside: NDArray[np.bool_], chance: float, odds: Array = ODDS) -> Array:
    """Pays for another share of numbers in a range that a standard normal hits with this chance."""
    return _other_odds(inside.sum(axis=1)[:, None], np.array(chance), odds=odds, size=inside.shape[1])


def _ends(u: Array) -> Array:
    """Pays where next to no numbers are above a threshold, below minus the threshold, or both; for all ``ENDS``."""
    size, chance = u.shape[1], ndtr(-ENDS)
    above, below = _beyond(u), _beyond(-u)
    sides = ((above, chance), (below, chance), (above + below, 2.0 * chance))
    return np.concatenate([_other_odds(*side, odds=NEARLY_NONE, size=size) for side in sides], axis=1)


def _other_odds(counts: NDArray[np.integer[Any]], chance: Array, *, odds: Array | float, size: int) -> Array:
    """Pays where ``counts`` of ``size`` numbers are in a range, which is ``e^odds`` times as likely as outside it.

    For each number ``e^odds / m`` in the range and ``1 / m`` elsewhere, m its mean where the range has this chance.
    """
    paid: Array = counts * odds - size * np.log1p(chance * np.expm1(odds))
    return paid


def _beyond(u: Array) -> NDArray[np.integer[Any]]:
    """How many numbers of each row exceed each of ``ENDS``, shape (rows, thresholds)."""
    rows, columns = np.nonzero(u > ENDS[0])
    passed = np.searchsorted(ENDS, u[rows, columns])  # so many of the thresholds are below the number
    places = ENDS.size + 1
    counts = np.bincount(rows * places + passed, minlength=len(u) * places).reshape(len(u), places)
    return counts[:, :0:-1].cumsum(axis=1)[:, ::-1]


def _repeats(u: Array, x: Array, pivots: Array) -> Array:
    """The logarithm, after each row, of a mixture of bets that one row repeats one before it, or minus it, or is zero.

    Given the rows before, ``u_t = C_tt x_t + (what they add)`` is standard normal, and a bet says that it is within
    ``REPEAT_SPREAD`` of what a repeated x_t or u_t would make it. The bet on row t pays e_t, of expectation 1 given the
    rows before, and ``(sum_(s <= t) e_s + (T - t)) / T`` is the mixture over the row that repeats.
    """
    u, x = u[:, :REPEAT_COORDINATES], x[:, :REPEAT_COORDINATES]
    count, size = u.shape
    paid = np.empty(count)
    for t in range(count):
        own = 0.5 * float(u[t] @ u[t]) - size * log(REPEAT_SPREAD)
        distances = np.concatenate(
            [
                pivots[t] ** 2 * _distances(x[:t], x[t]),
                pivots[t] ** 2 * _distances(-x[:t], x[t]),
                _distances(u[:t], u[t]),
                _distances(-u[:t], u[t]),
                [pivots[t] ** 2 * float(x[t] @ x[t])],
            ]
        )
        logs = own - 0.5 * distances / REPEAT_SPREAD**2
        paid[t] = np.logaddexp.reduce(logs) - log(logs.size)
    waiting = np.log(np.maximum(count - 1.0 - np.arange(count), 1e-300))
    worth: Array = np.logaddexp(np.logaddexp.accumulate(paid), waiting) - log(count)
    return worth


def _distances(rows: Array, row: Array) -> Array:
    squares: Array = np.square(rows - row).sum(axis=1)
    return squares
