"""Kernels of :mod:`.bands`: weighted sums over how often every bin of a ring is drawn, all totals in one pass.

Bin i is drawn r_i times and weighs ``exp(D_i r_i (r_i - 1) / 2) / r_i!``; two bins at ring distance ``d <= reach``
multiply by ``exp(B r_i r_j)`` with ``B = band[i, d-1]`` for the later one, i. A weight of mass m is kept times
``exp(-peak m (m-1) / 2)``, ``peak`` the largest D or B.

A state is a window ``(r_1, ..., r_reach)`` of the last counts, latest first, with sum v, and the mass k drawn before
it: in lexicographic order of the window, then by k = 0..largest - v. Windows with the same ``reach - 1`` latest counts
are neighbours, and so are, for a fixed new count, those they turn into: the update reads its source once in order and
writes to ``largest + 1`` places that move in order.

Proofs: ``docs/theory/bins-moments.md``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

Counts = NDArray[np.int64]

CHUNK = 64
"""Prefixes whose rows are added up before the sum goes to the total: keeps the chains of additions short."""


class Step(NamedTuple):
    """How the window moves on.

    Attributes:
        before, shift: every old state has k >= before and is kept at k - before; every new one has
            k >= before + shift, shift 0 or 1, and is kept likewise.
        kept, drops: the new window has ``kept`` counts of the old one, which had one more if it drops its oldest.
        empty: whether windows that become all zero are kept.
    """

    before: int
    shift: int
    kept: int
    drops: bool
    empty: bool


@kernel
def first_states(budget: int, window: int) -> Counts:
    """How many of the states with v + k <= budget have a latest count below r = 0..budget + 1; shape (budget + 2,)."""
    first = np.zeros(budget + 2, dtype=np.int64)
    for r in range(budget + 1):
        ways = 1  # as many non-negative numbers as the window has counts, with a sum of at most budget - r
        for j in range(1, window + 1):
            ways = ways * (budget - r + j) // j
        first[r + 1] = first[r] + ways
    return first


@kernel
def decay_table(largest: int, peak: float) -> Array:
    """``exp(-peak r k)``, shape (largest + 1, largest + 1)."""
    table = np.empty((largest + 1, largest + 1))
    for r in range(largest + 1):
        for k in range(largest + 1):
            table[r, k] = np.exp(-peak * r * k)
    return table


@kernel
def _own_weights(largest: int, diagonal: float, peak: float) -> Array:
    """``exp((D - peak) r (r-1) / 2) / r!`` for r = 0..largest."""
    weights = np.empty(largest + 1)
    factorial = 1.0
    for r in range(largest + 1):
        factorial *= max(r, 1)
        weights[r] = np.exp(0.5 * (diagonal - peak) * r * (r - 1.0)) / factorial
    return weights


@kernel
def _following(counts: Counts, partial: Array, total: int, largest: int, band: Array) -> int:
    """The next tuple with a sum of at most ``largest`` in lexicographic order, in place; its sum, or -1 at the end.

    ``partial[j + 1] = partial[j] + band[j] counts[j]`` is kept up to date.
    """
    place = counts.size - 1
    if total == largest:
        while place >= 0 and counts[place] == 0:
            place -= 1
        if place >= 0:
            total -= counts[place]
            counts[place] = 0
        place -= 1
    if place < 0:
        return -1
    counts[place] += 1
    for j in range(place, counts.size):
        partial[j + 1] = partial[j] + band[j] * counts[j]
    return total + 1


@kernel(inline="always")
def _advance(
    old: Array,
    new: Array,
    decay: Array,
    step: Step,
    diagonal: float,
    band: Array,
    peak: float,
    ahead: float,
) -> Array:
    """Draw the next bin 0, 1, ... times: ``new`` from ``old``.

    Args:
        old, new: states; ``new`` is overwritten.
        step: from the old window to the new one; v + k <= largest in all states.
        diagonal, band: D and the row of B of the new bin, shape (reach,), reach > kept.
        ahead: the new bin's interaction with bins after it whose counts are fixed, the factor ``exp(ahead r)``.

    Returns: for every total mass the weight of new states whose latest count is positive, shape (largest + 1,).
    """
    before, shift, kept, drops, empty = step
    largest = decay.shape[0] - 1
    budget, new_budget = largest - before, largest - before - shift
    place = first_states(new_budget, kept + 1)
    for i in range(place[-1]):
        new[i] = 0.0
    own = _own_weights(largest, diagonal, peak)
    oldest = np.empty(budget + 1)
    for x in range(budget + 1):
        oldest[x] = np.exp((band[kept] - peak) * x)
    prefix = np.zeros(kept, dtype=np.int64)
    partial = np.zeros(kept + 1)
    grown, chunk, waiting = np.zeros(largest + 1), np.zeros(largest + 1), 0
    source, mass = 0, 0 * kept  # a plain 0 is a type of its own, for which _following would be compiled again
    while mass >= 0:
        room = budget - mass
        shared = np.exp(partial[kept] - peak * mass)
        for x in range(room + 1 if drops else 1):
            last = room - x  # largest kept k of the source row
            start = max(shift - x, 0)
            if mass > 0 or empty:
                target = place[0] + x - shift
                for k in range(start, last + 1):
                    new[target + k] += old[source + k]
            factor, power = shared * oldest[x], 1.0
            for r in range(1, last - start + 1):
                power *= factor
                target = place[r] + x - shift
                if ahead == 0.0:
                    weight = own[r] * power
                    for k in range(start, last - r + 1):
                        new[target + k] += old[source + k] * (weight * decay[r, k + before])
                else:
                    pull = partial[kept] + band[kept] * x + ahead
                    for k in range(start, last - r + 1):
                        exponent = r * (pull - peak * (mass + x + k + before))
                        # positive by rounding, or where old is 0
                        new[target + k] += old[source + k] * (own[r] * np.exp(min(exponent, 0.0)))
            source += last + 1
        room = new_budget - mass
        for r in range(1, room + 1):
            for k in range(room - r + 1):
                chunk[largest - room + r + k] += new[place[r] + k]
        for r in range(room + 1):
            place[r] += room - r + 1
        waiting += 1
        if waiting == CHUNK:
            for m in range(largest + 1):
                grown[m] += chunk[m]
                chunk[m] = 0.0
            waiting = 0
        mass = _following(prefix, partial, mass, budget, band)
    for m in range(largest + 1):
        grown[m] += chunk[m]
    return grown


@kernel
def grow_clusters(
    clusters: Array, start: int, bins: int, decay: Array, diagonals: Array, bands: Array, peak: float
) -> None:
    """Fill ``clusters[start, L-1, m]``: all clusters of length L and mass m whose first bin is ``start``.

    A cluster begins and ends with a drawn bin and has no ``reach`` bins in a row inside that are not drawn.
    ``diagonals`` and ``bands`` have one row for each bin, or a single one for all.
    """
    largest, reach, rows = decay.shape[0] - 1, bands.shape[1], diagonals.size
    states = first_states(largest, reach)[-1]
    old, new = np.zeros(states), np.zeros(states)
    own = _own_weights(largest, diagonals[start % rows], peak)
    # One by one, here and below: for a whole array numba compiles for seconds what its message about shapes needs.
    place = 0
    for r in range(1, largest + 1):
        place += largest - r + 2  # the states with a latest count r - 1
        old[place] = own[r]
    for r in range(largest + 1):
        clusters[start, 0, r] = own[r] if r > 0 else 0.0
    for length in range(1, clusters.shape[1]):
        # of the bins before the window the first is drawn, and of any reach in a row at least one
        before, after = (length - 1) // reach, length // reach
        kept, row = min(length, reach - 1), (start + length) % bins % rows
        step = Step(before, after - before, kept, length >= reach, False)
        sums = _advance(old, new, decay, step, diagonals[row], bands[row], peak, 0.0)
        for r in range(largest + 1):
            clusters[start, length, r] = sums[r]
        old, new = new, old


@kernel
def sweep_bin(old: Array, new: Array, total: Array, decay: Array, diagonal: float, band: Array, peak: float) -> None:
    """All draws on one bin more: ``new`` from ``old``, and ``total``, by mass, grows by those whose last bin it is.

    Windows have ``reach`` counts from the start, those of bins before the first are 0 and have a ``band`` of 0.
    """
    total += _advance(old, new, decay, Step(0, 0, band.size - 1, True, True), diagonal, band, peak, 0.0)


@kernel
def _join(total: Array, weight: float, clusters: Array, length: int, reach: int, rest: Array, decay: Array) -> None:
    """total[m] += weight * sum over n of cluster[n] rest[m - n], scaled; the sum over n is formed first."""
    cluster, least = clusters[length - 1], 1 + (length - 1 + reach - 1) // reach  # fewest draws
    for m in range(least, total.size):
        value = 0.0
        for n in range(least, m + 1):
            value += cluster[n] * rest[m - n] * decay[n, m - n]
        total[m] += weight * value


@kernel(inline="always")
def _chain(clusters: Array, origin: int, steps: int, reach: int, decay: Array, result: Array) -> None:
    """``result[n, m]``: all counts on the bins origin..origin+n-1 after and before ``reach`` bins that are not drawn.

    The last ``reach`` bins of the n count as such; ``result[0]`` is the empty one. The bins must not pass the seam.
    """
    for n in range(steps + 1):
        for m in range(decay.shape[0]):
            result[n, m] = 0.0
    result[0, 0] = 1.0
    for n in range(1, steps + 1):
        for length in range(1, min(clusters.shape[1], n - reach) + 1):
            begin = n - reach - length
            _join(result[n], 1.0, clusters[(origin + begin) % clusters.shape[0]], length, reach, result[begin], decay)
        for m in range(decay.shape[0]):
            result[n, m] += result[n - 1, m]


@kernel
def close_shared(clusters: Array, bins: int, reach: int, decay: Array) -> Array:
    """All counts on the ring with ``reach`` bins in a row that are not drawn; ``clusters`` has a single first row."""
    chain = np.empty((bins + 1, decay.shape[0]))
    _chain(clusters, 0, bins, reach, decay, chain)
    total: Array = chain[bins].copy()
    for length in range(1, clusters.shape[1] + 1):
        jump = length + reach
        if jump <= bins:
            _join(total, jump - 1.0, clusters[0], length, reach, chain[bins - jump], decay)
    return total


@kernel
def close_from(clusters: Array, origin: int, bins: int, reach: int, decay: Array) -> Array:
    """What :func:`close_shared` sums, for one place p = origin, where every bin has a row of clusters of its own."""
    chain, total = np.empty((bins + 1, decay.shape[0])), np.zeros(decay.shape[0])
    _chain(clusters, origin, bins if origin == 0 else bins - origin - 1, reach, decay, chain)
    if origin == 0:
        for m in range(total.size):
            total[m] = chain[bins, m]
        return total
    for done in range(bins - origin):
        length = bins - done - reach
        if 1 <= length <= clusters.shape[1]:
            _join(total, 1.0, clusters[origin + done], length, reach, chain[done], decay)
    return total


@kernel
def without_gap(bins: int, decay: Array, diagonals: Array, bands: Array, peak: float) -> Array:
    """All counts on the ring with no ``reach`` bins in a row that are not drawn, shape (largest + 1,).

    One chain of ``bins - reach`` bins for each window, not all zero, of the last ``reach`` bins before the seam.
    ``2 reach <= bins``; where they are equal, a pair of opposite bins is met from both sides, and ``bands`` must hold
    half of its interaction.
    """
    largest, reach, rows = decay.shape[0] - 1, bands.shape[1], diagonals.size
    result, closed = np.zeros(largest + 1), np.empty(largest + 1)
    states = first_states(largest, reach)[-1]
    old, new = np.empty(states), np.empty(states)
    window, final = np.zeros(reach, dtype=np.int64), np.zeros(reach, dtype=np.int64)
    unused, none = np.zeros(reach + 1), np.zeros(reach)
    row, mass = 0, 0
    while mass >= 0:
        if mass > 0:
            log_weight, log_ways = -0.5 * peak * mass * (mass - 1.0), 0.0
            for i in range(reach):
                bin_row = (bins - 1 - i) % rows
                log_weight += 0.5 * diagonals[bin_row] * window[i] * (window[i] - 1.0)
                for r in range(2, window[i] + 1):
                    log_ways += np.log(r)
                for j in range(i + 1, reach):
                    log_weight += bands[bin_row, j - i - 1] * window[i] * window[j]
            old[:] = 0.0
            old[row] = np.exp(log_weight - log_ways)
            for i in range(bins - reach):
                ahead = 0.0
                for j in range(reach):
                    distance = bins - 1 - j - i
                    if distance <= reach:
                        ahead += window[j] * bands[(bins - 1 - j) % rows, distance - 1]
                step = Step(0, 0, reach - 1, True, False)
                _advance(old, new, decay, step, diagonals[i % rows], bands[i % rows], peak, ahead)
                old, new = new, old
            gap = 0  # undrawn bins where the window begins
            while window[reach - 1 - gap] == 0:
                gap += 1
            final[:] = 0
            closed[:] = 0.0
            position, content = 0, 0
            while content >= 0:
                if final[: reach - gap].any():
                    for k in range(largest - content + 1):
                        closed[content + k] += old[position + k]
                position += largest - content + 1
                content = _following(final, unused, content, largest, none)
            result += closed
        row += largest - mass + 1
        mass = _following(window, unused, mass, largest, none)
    return result


@kernel
def log_product(a: Array, b: Array) -> Array:
    """Logs of the coefficients of a product of two power series from the logs of theirs, cut to the same length."""
    result = np.empty(a.size)
    terms = np.empty(a.size)
    for n in range(a.size):
        top = -np.inf
        for r in range(n + 1):
            terms[r] = a[r] + b[n - r]
            top = max(top, terms[r])
        total = 0.0
        for r in range(n + 1):
            total += np.exp(terms[r] - top)
        result[n] = top + np.log(total)
    return result
