"""Numba kernels for random allocations: outputs, their likelihood ratio, and outputs of several weighted copies.

An epoch has ``bins`` steps, of which an example visits ``visits``; ``sizes`` are bins, visits and epochs. Outputs are
those of one coordinate, in units of what a visit adds to it.

Proof: docs/theory/monte-carlo/allocations.md.
"""

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.monte_carlo.arrays import Array, Integers
from hockeystick.monte_carlo.sums import added
from hockeystick.monte_carlo.weight_bounds import ENDLESS

Sizes = tuple[int, int, int]

LEAST_MASS = 1e-250
"""Below this the chance of so many visits is too small to be known: the ratio is not a number."""
COARSE = 2.0**-20
"""Chances below this are drawn in stages, as a single random number is too coarse for them."""
ROUNDS = 60


@kernel
def draw_outputs(rng: np.random.Generator, sizes: Sizes, sigma: float, visited: bool, drift: float, out: Array) -> None:
    """Fill ``out``, shape (samples, 2), with log X of outputs and the sum of these over ``sigma^2``. O(bins visits).

    Args:
        visited: whether the example takes part: P, else Q.
        drift: what is added to every output.
    """
    bins, visits, epochs = sizes
    y, masses = np.empty(bins), np.empty(visits + 1)
    seen, counts = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    tag = 0
    for sample in range(out.shape[0]):
        out[sample] = 0.0
        for _ in range(epochs):
            counts[:] = 0
            if visited:
                tag += 1
                add_visits(rng, visits, tag, seen, counts)
            for step in range(bins):
                y[step] = counts[step] + drift + sigma * rng.standard_normal()
            out[sample, 0] += log_ratio(y, visits, sigma, masses)
            out[sample, 1] += y.sum() / sigma**2


@kernel
def draw_copies(
    rng: np.random.Generator, sizes: Sizes, sigma: float, order: int, more: Array, kept: Array, share: float, out: Array
) -> None:
    """Fill ``out`` with log X of outputs: of P, or of the tilted part with the chance ``share``.

    A tilted sample that is given up has the loss ``-ENDLESS`` and no value. O(bins visits) for each epoch, and at most
    O(order) for each of the order visits participations of joined copies.

    Args:
        order: copies.
        more: ``more[i]``, the chance that more than i copies are joined at a step where at least i are, i not 1; shape
            (order + 1,).
        kept: ``kept[m]``, the chance that a copy visits m given steps relative to ``(visits / bins)^m``; shape
            (visits + 1,).
    """
    bins, visits, epochs = sizes
    y, masses = np.empty(bins), np.empty(visits + 1)
    seen, counts = np.zeros(bins, np.int64), np.zeros((epochs, bins), np.int64)
    steps, owners = np.empty(order * visits, np.int64), np.empty(order * visits, np.int64)
    joined = np.empty(order, np.int64)
    work = seen, steps, owners, joined
    tag = 0
    for sample in range(out.shape[0]):
        tilted = rng.random() < share
        given_up = False
        counts[:] = 0
        for epoch in range(epochs):
            if tilted:
                if not add_copies(rng, visits, order, more, kept, tag, work, counts[epoch]):
                    given_up = True
                    break
                tag += order
            else:
                tag += 1
                add_visits(rng, visits, tag, seen, counts[epoch])
        out[sample] = 0.0
        if given_up:
            out[sample] = -ENDLESS
            continue
        for epoch in range(epochs):
            for step in range(bins):
                y[step] = counts[epoch, step] + sigma * rng.standard_normal()
            out[sample] += log_ratio(y, visits, sigma, masses)


@kernel
def add_visits(rng: np.random.Generator, visits: int, tag: int, seen: Integers, counts: Integers) -> None:
    """Add a uniform set of so many steps to ``counts``, among those whose ``seen`` is not ``tag``."""
    bins = counts.size
    for _ in range(visits):
        step = int(rng.random() * bins)
        while seen[step] == tag:
            step = int(rng.random() * bins)
        seen[step] = tag
        counts[step] += 1


@kernel(inline="always")
def add_copies(
    rng: np.random.Generator,
    visits: int,
    order: int,
    more: Array,
    kept: Array,
    tag: int,
    work: tuple[Integers, Integers, Integers, Integers],
    counts: Integers,
) -> bool:
    """Add the visits of copies in one epoch; False if they are given up.

    Sets S_1, ..., S_a are kept with their chance times ``prod_t e^(J_t (J_t - 1) / (2 sigma^2)) / zeta^bins``, J_t how
    many of them contain step t.

    Args:
        tag: at least as large as every entry of ``seen``.
        work: seen, steps, owners and joined; overwritten, but for seen.
    """
    seen, steps, owners, joined = work
    placed = 0
    joined[:] = 0
    for step in range(counts.size):
        if not chance(rng, more[0]):
            continue
        size = 2
        while size < order and chance(rng, more[size]):
            size += 1
        first = placed
        for _ in range(size):
            owner = int(rng.random() * order)
            while _holds(owners, first, placed, owner):
                owner = int(rng.random() * order)
            if joined[owner] == visits:
                return False
            joined[owner] += 1
            steps[placed], owners[placed] = step, owner
            placed += 1
    for owner in range(order):
        if not chance(rng, kept[joined[owner]]):
            return False
    for owner in range(order):
        own = tag + 1 + owner
        for place in range(placed):
            if owners[place] == owner:
                seen[steps[place]] = own
                counts[steps[place]] += 1
        add_visits(rng, visits - joined[owner], own, seen, counts)
    return True


@kernel(inline="always")
def _holds(values: Integers, begin: int, end: int, value: int) -> bool:
    """Whether one of ``values[begin:end]`` is ``value``."""
    holds = False
    for place in range(begin, end):
        holds = holds or values[place] == value
    return holds


@kernel
def chance(rng: np.random.Generator, prob: float) -> bool:
    """True with this chance, which is met with a relative error of at most 2^-33."""
    while prob < COARSE:
        if rng.random() >= COARSE:
            return False
        prob /= COARSE
    return bool(rng.random() < prob)


@kernel
def log_ratio(y: Array, visits: int, sigma: float, masses: Array) -> float:
    """log X of one epoch: the mean, over the sets of ``visits`` steps, of products of ``L = e^((y - 1/2) / sigma^2)``.

    For any z, X is the chance that independent coins with the odds ``z L_t`` show ``visits`` ones, times
    ``prod_t (1 + z L_t) / (z^visits binomial(bins, visits))``; z is where that chance is large.

    O(bins visits).
    """
    bins = y.size
    log_z = _log_odds(y, visits, sigma)
    masses[:] = 0.0
    masses[0] = 1.0
    total, lost = 0.0, 0.0
    for step in range(bins):
        odds = np.exp((y[step] - 0.5) / sigma**2 + log_z)
        with_it, without = odds / (1.0 + odds), 1.0 / (1.0 + odds)
        for count in range(min(step + 1, visits), 0, -1):
            masses[count] = without * masses[count] + with_it * masses[count - 1]
        masses[0] *= without
        total, lost = added(total, lost, np.log1p(odds))
    if not masses[visits] > LEAST_MASS:
        return float(np.nan)
    ways = 0.0
    for count in range(visits):
        ways += np.log((bins - count) / (count + 1.0))
    return float(total + np.log(masses[visits]) - visits * log_z - ways)


@kernel(inline="always")
def _log_odds(y: Array, visits: int, sigma: float) -> float:
    """log z with a mean number of ones near ``visits``, by bisection that tries Newton's steps first."""
    bins = y.size
    middle = np.log(visits / (bins - visits))
    low, high = middle - (y.max() - 0.5) / sigma**2, middle - (y.min() - 0.5) / sigma**2
    log_z = min(max(middle, low), high)
    for _ in range(ROUNDS):
        mean, variance = 0.0, 0.0
        for step in range(bins):
            odds = np.exp((y[step] - 0.5) / sigma**2 + log_z)
            prob = odds / (1.0 + odds)
            mean += prob
            variance += prob / (1.0 + odds)
        if abs(mean - visits) <= 0.5:
            break
        if mean > visits:
            high = log_z
        else:
            low = log_z
        log_z += (visits - mean) / max(variance, 1e-300)
        if not low < log_z < high:
            log_z = 0.5 * (low + high)
    return float(log_z)
