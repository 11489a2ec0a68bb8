"""Hidden chains whose covariance reveals more, or less, than that of the bins; both are proved entry by entry.

Which chain is chosen only decides how good the bound is: a linear programme minimises what epsilon changes in first
order, which a small simulation with a fixed seed estimates. Whether it is on its side is checked afterwards, for the
chain that is used and with room for rounding.

Proof: docs/theory/hidden-chains.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

import numpy as np

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences.coordinate_chain import Chain
from hockeystick.sequences.hidden_chain import HiddenChain
from hockeystick.sequences.independent_sequences import IndependentSequences
from hockeystick.types import Side

SomeChain = TypeVar("SomeChain", bound=Chain)

SAMPLES, SAMPLED_AT_ONCE, SEED = 12_000, 2_000, 0
TILTS = (1.0, 1.5, 2.0)
"""How far the drawn bin's mean is moved, as multiples of what the mixture moves it."""
LOG_WIDTH = 0.1
"""Of the window around the threshold in which the simulation looks at log X."""
MOST_LAGS = 80
LEAST_WHITE = 0.04
"""Of the variance: less white noise would need a finer lattice."""
RADII, ANGLES = (0.4, 0.5, 0.6, 0.7, 0.8), (0.1, 0.2, 0.4, 0.6, 0.8)
SINGLE = (0.0, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.83, 0.86, 0.88, 0.9, 0.93, 0.96)
PAIRS = ((-0.3, 0.0), (0.0, 0.3), (0.0, 0.6), (0.0, 0.8), (0.15, 0.6), (0.15, 0.8), (0.3, 0.9), (0.45, 0.8), (0.6, 0.8))
FAST, SLOW = (0.2, 0.3, 0.4, 0.6), (0.86, 0.88, 0.9, 0.92, 0.95, 0.97, 0.98)
"""Poles of two independent sequences, one of each kind."""
REFINED, NEAR = 1, (0.05, 0.005)
"""How often poles beside those of the best pair are tried, and how far they are from them."""
WORTHWHILE = 0.8
"""They are looked for where all of them together lose less than this share of what a single chain loses."""
FREQUENCIES = 61
MOST_SHARED_LAGS, SYMBOL_PLACES = 48, 1 << 17
"""Of the semidefinite part of the difference that all bins share; where its symbol is looked at."""
MOST_CHANGE = 50.0
"""Of a covariance: beyond it a loss is hopeless, and exponentials would overflow."""
ROUNDS = 3
"""Linear programmes for each pair of poles, each with the weights that the changes of the last one deserve."""
WRAP = 1e-3
"""Where the entry of first and last bin is a larger share of the diagonal, upper bounds close the chain to a ring."""
TYPICAL, ORDINARY = 0.5, 0.95
"""Chains follow covariances that are no less than this share of those at a lag; gains do what differs."""
SAME = 1e-3
"""Of the diagonal: covariances that differ by less are not followed separately."""
FORGOTTEN = 1e-11
"""Of what a sequence was at a bin: no more may be left of it once around a ring."""
MOST_CUT = 0.1
"""Of the bins: a ring that loses more of them where it is cut open is left closed."""
ROOM = 1e-9
"""Of the diagonal, beyond what the errors of all entries need."""
ADJUSTMENTS = 60
GAIN_STEP, EXTRA_STEP, LEAST_EXTRA = 0.005, 0.002, 1e-5
"""Gains are rounded to multiples of this on a log scale, and additional variances to this share of the variance, as
few different kinds of bins take less time."""
SMALLEST_GAIN, LEAST_LOG_GAIN, MOST_LOG_GAIN, GAIN_SWEEPS = 1e-6, -1.0, 0.03, 3
MOST_GAIN_LAGS, NEGLIGIBLE = 16, (0.02, 0.3)
"""Entries at more lags than this, or that are a smaller share of the diagonal, are left to the diagonal; both shares
are tried."""


@dataclass(frozen=True)
class Sensitivity:
    """How much epsilon changes with the covariance, near the delta that is asked for.

    Attributes:
        epsilon: an estimate.
        weights: shape (b,), the relative change of epsilon with all covariances at each lag, in first order.
    """

    epsilon: float
    weights: Array


def sensitivity(covariance: Array, delta: float, deadline: Deadline) -> Sensitivity:
    """Estimated by simulation; the derivative of ``E f(X)`` is that of the proof of Kahane's inequality."""
    bins = len(covariance)
    rng = np.random.default_rng(SEED)
    variances = covariance.diagonal()
    factor = np.linalg.cholesky(covariance + 1e-9 * float(variances.max()) * np.eye(bins))
    count = SAMPLES // len(TILTS)
    parts, tilted = [], []
    for tilt in TILTS:
        for _ in range(count // SAMPLED_AT_ONCE):
            deadline.tick()
            drawn = rng.integers(0, bins, SAMPLED_AT_ONCE)
            z = rng.standard_normal((SAMPLED_AT_ONCE, bins)) @ factor.T + tilt * covariance[drawn]
            parts.append(np.exp(np.minimum(z - 0.5 * variances, 300.0)) / bins)
            logs = np.minimum([t * z - 0.5 * t * t * variances for t in TILTS], 600.0)
            tilted.append(np.exp(logs).mean(axis=(0, 2)))
    terms, rarity = np.concatenate(parts), 1.0 / np.concatenate(tilted)
    ratios = terms.sum(axis=1)
    low, high = 0.0, 300.0
    for _ in range(40):
        epsilon = 0.5 * (low + high)
        if float((rarity * np.maximum(ratios - np.exp(epsilon), 0.0)).mean()) > delta:
            low = epsilon
        else:
            high = epsilon
    distance = (np.log(ratios) - high) / LOG_WIDTH
    near = np.abs(distance) < 4.0
    density = rarity[near] * np.exp(-0.5 * distance[near] ** 2) / ratios[near]
    terms = terms[near]
    weights = np.zeros(bins)
    for lag in range(bins):
        deadline.tick()
        weights[lag] = float(density @ np.einsum("ij,ij->i", terms[:, : bins - lag], terms[:, lag:]))
    weights[0] *= 0.5
    threshold = float(np.exp(high))
    slope = threshold * high * float(rarity[ratios > threshold].sum())
    if not slope > 0.0:
        return Sensitivity(high, np.full(bins, np.inf))
    return Sensitivity(high, weights / (slope * LOG_WIDTH * np.sqrt(2.0 * np.pi)))


def comparable_chain(
    covariance: Array,
    error: float,
    side: Side,
    weights: Array,
    affordable: Callable[[Chain], bool],
    most_loss: float,
    deadline: Deadline,
    independent: bool = False,
) -> Chain | None:
    """The best of some chains whose covariance is comparable with the given one on the asked side, or None.

    Args:
        covariance: of the bins, shape (b, b), non-negative, positive semidefinite but for its error.
        error: relative error of its entries.
        weights: of :func:`sensitivity`.
        affordable: which chains may be used.
        most_loss: relative loss of epsilon, as estimated, beyond which none is worth its time.
        independent: whether independent sequences are tried too, from above; on a ring they are all that is tried, and
            all bins are alike.
    """
    bins = len(covariance)
    ring = side is Side.UPPER and float(covariance[0, -1]) > WRAP * float(covariance[0, 0])
    largest = float(covariance.diagonal().max())
    lags = min(bins // 2 if ring else bins, MOST_LAGS)
    if not np.isfinite(weights).all():
        return None
    shares = (TYPICAL,) if side is Side.LOWER else (1.0,) if ring else (TYPICAL, ORDINARY)
    several = [_typical(covariance / largest, lags, share, ring) for share in shares]
    proved: list[tuple[float, Chain]] = []
    loss = np.inf
    different = [one for n, one in enumerate(several) if not n or float(np.abs(one - several[n - 1]).max()) >= SAME]
    kinds = (False,) if not independent or side is Side.LOWER else (True,) if ring else (False, True)
    for typical, dominant, apart in product(different, (True,) if side is Side.LOWER else (True, False), kinds):
        choices: list[tuple[complex, ...]] = list(product(FAST, SLOW) if apart else _poles(ring or not dominant))
        if ring and apart:
            choices = [one for one in [*_poles(True), *choices] if abs(one[-1]) ** bins <= FORGOTTEN]
        elif apart:  # loss is that of the best single chain; no pair does better than all sequences together
            all_of_them = _fitted(typical, largest, weights, FAST + SLOW, side, ring, dominant, True)
            if all_of_them is None or not all_of_them[0] <= WORTHWHILE * loss:
                continue
        found: list[tuple[float, Chain, Array]] = []
        tried: set[tuple[complex, ...]] = set()
        for refined in range(REFINED + 1 if apart else 1):
            if refined:
                choices = _near(min(found, key=lambda one: one[0])[1], bins) if found else []
            for poles in choices:
                deadline.tick()
                one = None if poles in tried else _fitted(typical, largest, weights, poles, side, ring, dominant, apart)
                tried.add(poles)
                if one is None:
                    continue
                chain = replace(one[1], gains=np.full(bins, np.sqrt(largest)))
                if affordable(chain):
                    found.append((one[0], chain, one[2]))
        loss, best, shared = min(found, key=lambda one: one[0], default=(np.inf, None, np.zeros(1)))
        if best is None or not loss <= most_loss:
            continue
        for negligible in NEGLIGIBLE if side is Side.UPPER else NEGLIGIBLE[:1]:
            compared = adjusted(best, covariance, error, side, deadline, typical * largest, shared, negligible)
            if compared is not None and (not apart or affordable(compared)):
                estimate = loss_of(compared, covariance, side, weights)
                proved.append((estimate / WORTHWHILE if apart else estimate, compared))
    return min(proved, key=lambda one: one[0], default=(np.inf, None))[1]


def loss_of(chain: Chain, covariance: Array, side: Side, weights: Array) -> float:
    """About what the chain loses of epsilon."""
    change = np.expm1(chain.products - covariance) * (1.0 if side is Side.UPPER else -1.0)
    return float(sum(weights[lag] * np.diagonal(change, lag).mean() for lag in range(min(chain.bins, MOST_LAGS))))


def opened_ring(covariance: Array, closed: bool = False) -> Array | None:
    """The largest covariances of bins at each distance along a ring, with a few neighbouring bins taken out of it.

    From above, the bins that are left may stand for all, as every rotation of the ring is equally likely. As many are
    taken out as keep the two ends of what is left apart; none, if it is to stay ``closed``. None where the ends do not
    touch, or too many would go.
    """
    bins, largest = len(covariance), float(covariance.diagonal().max())
    place = np.arange(bins)
    near = np.array([float(covariance[place, place - lag].max()) for lag in range(bins // 2 + 1)])
    cut = int(np.flatnonzero(near > WRAP * largest)[-1])
    if not float(covariance[0, -1]) > WRAP * largest or not (closed or cut <= MOST_CUT * bins):
        return None
    place = place if closed else place[: bins - cut]
    distance = np.abs(np.subtract.outer(place, place))
    opened: Array = near[np.minimum(distance, bins - distance)]
    return opened


def _typical(covariance: Array, lags: int, share: float, ring: bool) -> Array:
    """One number for each lag, no less than this share of the entries; on a ring the largest."""
    if ring:
        place = np.arange(len(covariance))
        return np.array([float(covariance[place, place - lag].max()) for lag in range(lags)])
    return np.array([float(np.quantile(np.diagonal(covariance, lag), share)) for lag in range(lags)])


def typical_covariances(covariance: Array, share: float) -> Array:
    """One number for each lag on a line, no less than this share of the entries."""
    return _typical(covariance, min(len(covariance), MOST_LAGS), share, False)


def _poles(single: bool) -> Iterator[tuple[complex, ...]]:
    for pole in SINGLE:
        yield (complex(pole),)
    if single:
        return
    for radius in RADII:
        for angle in ANGLES:
            pole = radius * np.exp(1j * angle)
            yield (complex(pole), complex(np.conj(pole)))
    for one, other in PAIRS:
        yield (complex(one), complex(other))


def _near(chain: Chain, bins: int) -> list[tuple[complex, ...]]:
    """Pairs of poles beside those of independent sequences, on a finer list."""
    found: list[tuple[complex, ...]] = []
    if not isinstance(chain, IndependentSequences) or chain.poles.size != 2:
        return found
    for fast, slow in product((-1, 0, 1), repeat=2):
        near = round(float(chain.poles[0]) + fast * NEAR[0], 3), round(float(chain.poles[1]) + slow * NEAR[1], 3)
        if 0.0 <= near[0] < near[1] < 1.0 and not (chain.ring and near[1] ** bins > FORGOTTEN):
            found.append(near)
    return found


def _basis(poles: tuple[complex, ...], lags: int) -> Array:
    """Covariances of the state at each lag, up to linear combinations: shape (1 or 2, lags)."""
    powers = np.arange(lags)
    if len(poles) == 1:
        return np.power(poles[0].real, powers)[None, :]
    if poles[0].imag:
        values = poles[0] ** powers
        return np.array([values.real, values.imag])
    nonzero = [pole.real for pole in poles if pole != 0.0]
    rows = [np.power(pole, powers) for pole in nonzero]
    return np.array(rows if len(rows) >= 2 else [*rows, (powers == 1).astype(float)])


def _fitted(
    typical: Array,
    variance: float,
    weights: Array,
    poles: tuple[complex, ...],
    side: Side,
    ring: bool,
    dominant: bool,
    independent: bool = False,
) -> tuple[float, Chain, Array] | None:
    """About what it loses, large changes counting as they do for the second moment, and the best chain with these poles
    that some linear programmes find, with gains of 1; and a semidefinite part of the difference as in ``shortfall``,
    none where the difference is to be dominated by its diagonal."""
    from scipy.optimize import linprog

    lags, bins, sign = typical.size, weights.size, 1.0 if side is Side.UPPER else -1.0
    basis = _basis(poles, bins)
    if ring:
        basis = basis + _basis(poles, bins + 1)[:, bins:0:-1]
    unknowns = np.vstack([np.eye(1, bins), basis])
    w = weights
    frequencies = np.linspace(0.0, np.pi, FREQUENCIES)
    many = np.arange(400)
    spectrum = np.where(many == 0, 1.0, 2.0) * np.cos(np.outer(frequencies, many)) @ _basis(poles, 400).T
    short, most = (lags, 0.0) if dominant else (min(lags, MOST_SHARED_LAGS), None)
    places = np.zeros(1) if dominant else np.linspace(0.0, np.pi, 2 * short + 1)
    shared = np.cos(np.outer(places, np.arange(short))) * np.where(np.arange(short) == 0, 1.0, 2.0)
    below = np.hstack([-sign * unknowns[:, :lags].T, np.eye(lags, short)])
    positive = np.hstack([np.zeros((FREQUENCIES, 1)), -spectrum, np.zeros((FREQUENCIES, short))])
    definite = np.hstack([np.zeros((places.size, 1 + len(basis))), -shared])
    least, growth = np.inf, np.ones(bins)
    best: tuple[Chain, Array] | None = None
    for _ in range(ROUNDS):
        result = linprog(
            np.concatenate([sign * (unknowns @ (w * growth)), np.zeros(short)]),
            A_ub=np.vstack([below, positive, definite]),
            b_ub=np.concatenate([-sign * typical, np.zeros(FREQUENCIES + places.size)]),
            bounds=[(LEAST_WHITE, None)]
            + [(0.0 if independent else None, None)] * len(basis)
            + [(None, None)]
            + [(None, most)] * (short - 1),
        )
        if result.status != 0:
            break
        shares = np.asarray(result.x, dtype=np.float64)[: 1 + len(basis)]
        change = unknowns.T @ shares
        change[:lags] -= typical
        change = np.minimum(variance * np.where(np.abs(change) > 1e-6, change, 1e-6), MOST_CHANGE)
        loss = float(sign * (w @ np.expm1(change)))
        if loss < least:
            least = loss
            chain: Chain
            if independent:
                around = np.real(poles) ** bins if ring else 0.0
                amounts = np.sqrt(np.maximum(shares[1:], 0.0) * (1.0 - around))
                chain = IndependentSequences(
                    np.real(poles), amounts, float(np.sqrt(shares[0])), np.ones(bins), ring=ring
                )
            else:
                chain = _realised(poles, float(shares[0]), _basis(poles, 4).T @ shares[1:], bins, ring)
            found = np.asarray(result.x, dtype=np.float64)[1 + len(basis) :]
            best = chain, np.zeros(1) if dominant else variance * semidefinite(found)
        growth = np.expm1(change) / change
    return None if best is None else (least, *best)


def _realised(poles: tuple[complex, ...], white: float, seen: Array, bins: int, ring: bool) -> HiddenChain:
    """The chain with these covariances at lags 0 to 3 of what is seen of the state."""
    first = float(sum(poles).real)
    second = float(-(poles[0] * poles[1]).real) if len(poles) == 2 else 0.0
    ones = np.ones(bins)
    if len(poles) == 1:
        scale = 1.0 - first**bins if ring else 1.0
        now = float(np.sqrt(max(seen[0] * scale, 0.0)))
        return HiddenChain(first, second, now, 0.0, float(np.sqrt(white)), ones, ring)
    own = np.convolve([1.0, -first, -second], [-second, -first, 1.0])[2:]
    chain = HiddenChain(first, second, 1.0, 0.0, float(np.sqrt(white)), ones)
    even = own[0] * seen[0] + 2.0 * own[1] * seen[1] + 2.0 * own[2] * seen[2]
    odd = own[0] * seen[1] + own[1] * (seen[0] + seen[2]) + own[2] * (seen[1] + seen[3])
    total, apart = (np.sqrt(max(even + 2.0 * s * odd, 0.0) / chain.innovation) for s in (1.0, -1.0))
    return replace(chain, now=float(total + apart) / 2.0, before=float(total - apart) / 2.0)


def adjusted(
    chain: SomeChain,
    covariance: Array,
    error: float,
    side: Side,
    deadline: Deadline,
    typical: Array,
    shared: Array,
    negligible: float = NEGLIGIBLE[0],
) -> SomeChain | None:
    """The chain with gains, and from above more white noise, that make it comparable, proved with room for errors.

    None where these few changes do not suffice. ``typical`` is what it was fitted to, one number for each lag,
    and ``shared`` a part of the difference, as in :func:`shortfall`.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    first = gains = chain.gains * (1.0 + sign * 1e-8)
    extra = np.zeros(chain.bins)
    alike = chain.ring and isinstance(chain, IndependentSequences)
    if side is Side.UPPER:
        gains = first * _rounded(_least_gains(covariance, typical, negligible), GAIN_STEP)
        if alike:
            gains = np.full(chain.bins, gains.max())
        shares = LEAST_EXTRA, LEAST_EXTRA if alike else EXTRA_STEP
        least, step = (share * (chain.seen_variance + chain.white**2) for share in shares)
        extra += least
    for _ in range(ADJUSTMENTS):
        deadline.tick()
        chain = replace(chain, gains=gains, extra=extra)
        products = chain.products
        missing = shortfall(products, covariance, error, side, scaled(shared, gains / first, chain.ring))
        if alike:
            missing = np.full(chain.bins, missing.max())
        if float(missing.max()) <= 0.0:
            return chain
        if side is Side.UPPER:
            needed = extra + np.maximum(missing, 0.0) / gains**2
            extra = least + step * np.ceil((needed - least) / step - 1e-9)
            continue
        changed = products.diagonal() - 1.02 * np.maximum(missing, 0.0)
        factor = gains * np.sqrt(np.maximum(changed / np.maximum(products.diagonal(), 1e-300), 0.0)) / first
        gains = first * _rounded(-np.log(np.maximum(factor, SMALLEST_GAIN)), GAIN_STEP) ** -1.0
    return None


def _rounded(logs: Array, step: float) -> Array:
    """Numbers with these logarithms rounded up."""
    found: Array = np.exp(step * np.ceil(logs / step - 1e-9))
    return found


def _least_gains(covariance: Array, typical: Array, negligible: float) -> Array:
    """Logarithms of factors of the gains with which no entry at the first lags exceeds the typical one, or this share
    of the typical diagonal."""
    bins = len(covariance)
    lags = min(typical.size, bins, MOST_GAIN_LAGS + 1)
    needed = np.full((bins, bins), LEAST_LOG_GAIN)
    for lag in range(1, lags):
        place = np.arange(bins - lag)
        logs = np.log(np.maximum(np.diagonal(covariance, lag), 1e-300) / max(typical[lag], negligible * typical[0]))
        needed[place, place + lag] = needed[place + lag, place] = np.maximum(logs, LEAST_LOG_GAIN)
    found: Array = 0.5 * needed.max(axis=1)
    for _ in range(GAIN_SWEEPS):
        for one in range(bins):
            found[one] = 0.5 * (found[one] + float((needed[one] - found).max()))
    return np.minimum(found, MOST_LOG_GAIN)


def semidefinite(shared: Array) -> Array:
    """The entries at lags 0, 1, ..., the first raised until the Toeplitz matrix of any size is semidefinite.

    The symbol is looked at on a grid, and changes by no more than its derivative allows between two places.
    """
    lags: Array = np.arange(shared.size, dtype=np.float64)
    symbol = 2.0 * np.fft.rfft(shared, SYMBOL_PLACES).real - shared[0]
    between = 2.0 * float(lags @ np.abs(shared)) * np.pi / SYMBOL_PLACES + 1e-12 * float(np.abs(shared).sum())
    found = shared.copy()
    found[0] += max(between - float(symbol.min()), 0.0)
    return found


def scaled(shared: Array, factors: Array, ring: bool = False) -> Array:
    """The Toeplitz matrix with these entries, rows and columns multiplied by the factors: semidefinite like it.

    On a ring the circulant matrix, whose eigenvalues are values of the same symbol as long as the lags stay below half
    of the bins.
    """
    place = np.arange(factors.size)
    distance = np.abs(place[:, None] - place[None, :])
    if ring:
        distance = np.minimum(distance, factors.size - distance)
    entries = np.zeros(max(factors.size, shared.size))
    entries[: shared.size] = shared
    found: Array = np.multiply.outer(factors, factors) * entries[distance]
    return found


def shortfall(products: Array, covariance: Array, error: float, side: Side, shared: Array | float = 0.0) -> Array:
    """By how much each row lacks what proves ``products`` comparable; nowhere positive if it is proved.

    Upper: ``products - covariance`` is ``shared``, a semidefinite matrix, plus a diagonally dominant one plus one
    without negative entries, for any covariance within the relative error. Lower: the difference the other way round.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    off = error * np.abs(covariance) + 1e-12 * (np.abs(products) + np.abs(covariance) + np.abs(shared))
    difference = sign * (products - covariance) - off - shared
    diagonal = difference.diagonal().copy()
    np.fill_diagonal(difference, 0.0)
    below = np.maximum(-difference, 0.0).sum(axis=1)
    largest = max(float(covariance.diagonal().max()), float(products.diagonal().max()))
    found: Array = below - diagonal + ROOM * largest
    return found
