"""Kernels of :mod:`.ring`: weighted sums over how often every bin of a ring is drawn, with 30 digits.

**What is summed.** Bins 0..b-1 lie on a ring. A way to draw m bins, bin i taken r_i times, weighs

    prod_i exp(S_ii r_i (r_i - 1) / 2) / r_i!  prod_(i<j) exp(S_ij r_i r_j),      S_ij = 0 at ring distance > reach.

A bin is drawn if r_i > 0, a gap is ``reach`` bins in a row that are not, a cluster a run of bins that begins and ends
with a drawn one and contains no gap. Clusters are summed by first bin, mass m and length: bin by bin
(:func:`next_bin`, few states of the last ``reach`` counts) or draw by draw (:func:`add_chains`, few draws); then they
are joined along the ring (:func:`close_shared`, :func:`close_from`).

**Numbers** are pairs of doubles (:mod:`.double_double`); an array of them has a first axis of 2, the high parts before
the low ones, so that loops over the last axis read and write consecutive doubles. All are >= 0, and only sums, products
and powers are formed: relative errors are those of the longest chain of operations that one way to draw goes through.
They are counted in ``docs/theory/moment-majorants/ring.md``. Nothing is scaled: every weight of mass m is at least
``1 / m!`` and at most what the caller has checked.

``factors`` holds, for row i (one row for all bins where they are alike), ``exp(S_(i,i+d))`` at column d = 0..reach;
``wrapped``, for draws that go round the whole ring, ``exp(S_(i,i-d))`` at column t, ``d = wrapped.shape[2] - t``.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hockeystick.laws.law import Array
from hockeystick.moments.double_double import add_positive, multiply

Counts = NDArray[np.int64]


@njit(cache=True)
def _gather(total: Array, total_low: Array, weight: float, weight_low: float, source: Array, source_low: Array) -> None:
    """``total += weight source``, element by element."""
    for k in range(total.size):
        p, p_low = multiply(source[k], source_low[k], weight, weight_low)
        total[k], total_low[k] = add_positive(total[k], total_low[k], p, p_low)


@njit(cache=True)
def _add(total: Array, total_low: Array, source: Array, source_low: Array) -> None:
    """``total += source``."""
    for k in range(total.size):
        total[k], total_low[k] = add_positive(total[k], total_low[k], source[k], source_low[k])


@njit(cache=True)
def _clear(high: Array, low: Array) -> None:
    for k in range(high.size):
        high[k], low[k] = 0.0, 0.0


@njit(cache=True)
def inverses(largest: int) -> Array:
    """``1 / r`` at r = 1..largest within 2^-103; shape (2, largest + 1)."""
    result = np.zeros((2, largest + 1))
    for r in range(1, largest + 1):
        high = 1.0 / r
        p, p_low = multiply(high, 0.0, float(r), 0.0)
        result[0, r], result[1, r] = high, ((1.0 - p) - p_low) / r
    return result


@njit(cache=True)
def powers_of(bases: Array, largest: int) -> Array:
    """``bases[:, i] ** n`` for n = 0..largest by repeated products; shape (2, bases, largest + 1)."""
    result = np.zeros((2, bases.shape[1], largest + 1))
    for i in range(bases.shape[1]):
        result[0, i, 0] = 1.0
        for n in range(1, largest + 1):
            result[0, i, n], result[1, i, n] = multiply(
                result[0, i, n - 1], result[1, i, n - 1], bases[0, i], bases[1, i]
            )
    return result


@njit(cache=True)
def own_weights(powers: Array, reciprocals: Array) -> Array:
    """``e^(r (r-1) / 2) / r!`` for r = 0..largest from the powers of e; shape (2, largest + 1)."""
    result = np.zeros(powers.shape)
    result[0, 0] = 1.0
    for r in range(1, powers.shape[1]):
        high, low = multiply(powers[0, r - 1], powers[1, r - 1], reciprocals[0, r], reciprocals[1, r])
        result[0, r], result[1, r] = multiply(result[0, r - 1], result[1, r - 1], high, low)
    return result


# Bin by bin. A state is a window (r_1, ..., r_reach) of the last counts, latest first, with sum v, and the mass k drawn
# before it: in lexicographic order of the window, then by k = 0..largest - v. Windows with the same ``reach - 1``
# latest counts are neighbours, and so are, for a fixed new count, the windows they turn into: the update reads its
# source once in order and writes to ``largest + 1`` places that move in order.


@njit(cache=True)
def first_states(budget: int, window: int) -> Counts:
    """Of the states with v + k <= budget, how many have a latest count below r: shape (budget + 2,), the last all."""
    first = np.zeros(budget + 2, dtype=np.int64)
    for r in range(budget + 1):
        ways = 1  # as many non-negative numbers as the window has counts, with a sum of at most budget - r
        for j in range(1, window + 1):
            ways = ways * (budget - r + j) // j
        first[r + 1] = first[r] + ways
    return first


@njit(cache=True)
def _following(counts: Counts, partial: Array, total: int, largest: int, powers: Array) -> int:
    """The next tuple with a sum of at most ``largest`` in lexicographic order, in place; its sum, or -1 at the end.

    ``partial[:, j + 1] = partial[:, j] powers[:, j, counts[j]]`` is kept up to date.
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
        n = counts[j]
        partial[0, j + 1], partial[1, j + 1] = multiply(partial[0, j], partial[1, j], powers[0, j, n], powers[1, j, n])
    return total + 1


@njit(cache=True)
def first_bin(state: Array, clusters: Array, own: Array) -> None:
    """Clusters of length 1: into ``state``, shape (2, states), and ``clusters``, shape (2, largest + 1, lengths)."""
    largest = own.shape[1] - 1
    _clear(state[0], state[1])
    place = 0
    for r in range(1, largest + 1):
        place += largest - r + 2  # the states with a latest count r - 1
        for part in range(2):
            state[part, place] = own[part, r]
            clusters[part, r, 0] = own[part, r]


@njit(cache=True, nogil=True)
def next_bin(old: Array, new: Array, clusters: Array, length: int, powers: Array, own: Array, chunk_size: int) -> None:
    """Clusters one bin longer: draws the bin 0, 1, ... times; windows that become all zero are dropped.

    Args:
        old: states of runs of ``length`` bins, shape (2, states).
        new: overwritten with those of runs of ``length + 1``.
        clusters: shape (2, largest + 1, lengths); its column ``length`` gets the sums over states whose latest count
            is positive.
        powers: of the factors between the new bin and those 1..reach before it, shape (2, reach, largest + 1).
        own: the new bin's own weights, shape (2, largest + 1).
        chunk_size: of prefixes whose states are added up before the sum goes to the total: keeps the chains of
            additions short.
    """
    largest, reach = own.shape[1] - 1, powers.shape[1]
    # of the bins before the window the first is drawn, and of any reach in a row at least one: k >= before, so states
    # are kept at k - before, and v <= largest - before
    before, shift = (length - 1) // reach, length // reach - (length - 1) // reach
    kept, drops = min(length, reach - 1), length >= reach
    budget, new_budget = largest - before, largest - before - shift
    place = first_states(new_budget, kept + 1)
    _clear(new[0, : place[-1]], new[1, : place[-1]])
    prefix = np.zeros(kept, dtype=np.int64)
    partial = np.zeros((2, kept + 1))
    for j in range(kept + 1):
        partial[0, j] = 1.0
    grown, chunk, waiting = np.zeros((2, largest + 1)), np.zeros((2, largest + 1)), 0
    source, mass = 0, prefix.sum()
    while mass >= 0:
        room = budget - mass
        for x in range(room + 1 if drops else 1):
            last = room - x  # largest kept k of the source row
            start = max(shift - x, 0)
            row, row_low = old[0, source : source + last + 1], old[1, source : source + last + 1]
            if mass > 0:
                target = place[0] + x - shift
                _add(
                    new[0, target + start : target + last + 1],
                    new[1, target + start : target + last + 1],
                    row[start:],
                    row_low[start:],
                )
            factor, factor_low = partial[0, kept], partial[1, kept]
            if drops:
                factor, factor_low = multiply(factor, factor_low, powers[0, kept, x], powers[1, kept, x])
            power, power_low = 1.0, 0.0
            for r in range(1, last - start + 1):
                power, power_low = multiply(power, power_low, factor, factor_low)
                weight, weight_low = multiply(power, power_low, own[0, r], own[1, r])
                target = place[r] + x - shift
                _gather(
                    new[0, target + start : target + last - r + 1],
                    new[1, target + start : target + last - r + 1],
                    weight,
                    weight_low,
                    row[start : last - r + 1],
                    row_low[start : last - r + 1],
                )
            source += last + 1
        room = new_budget - mass
        for r in range(1, room + 1):
            first, count = largest - room + r, room - r + 1
            _add(
                chunk[0, first:],
                chunk[1, first:],
                new[0, place[r] : place[r] + count],
                new[1, place[r] : place[r] + count],
            )
        for r in range(room + 1):
            place[r] += room - r + 1
        waiting += 1
        if waiting == chunk_size:
            _add(grown[0], grown[1], chunk[0], chunk[1])
            _clear(chunk[0], chunk[1])
            waiting = 0
        mass = _following(prefix, partial, mass, budget, powers)
    _add(grown[0], grown[1], chunk[0], chunk[1])
    for m in range(largest + 1):
        clusters[0, m, length], clusters[1, m, length] = grown[0, m], grown[1, m]


# Draw by draw. A chain is a sequence of bins 0 = p_1 <= p_2 <= ..., counted from its start, with steps of at most
# ``reach``; ``field[x]`` is the product of the factors between x and the draws so far, and the n-th time that a bin is
# drawn divides by n.


@njit(cache=True)
def _draw(
    level: int,
    p: int,
    place: Counts,
    repeats: Counts,
    weight: Array,
    field: Array,
    start: int,
    bins: int,
    factors: Array,
    wrapped: Array,
    reciprocals: Array,
) -> None:
    """Make a chain of ``level + 1`` draws of one of ``level``: the next draw is p. Weights have shape (2, levels)."""
    reach, most = factors.shape[2] - 1, field.shape[2]
    old, new = field[level], field[level + 1]
    high, low = multiply(weight[0, level], weight[1, level], old[0, p], old[1, p])
    count = 1
    if level > 0 and p == place[level]:
        count = repeats[level] + 1
        high, low = multiply(high, low, reciprocals[0, count], reciprocals[1, count])
    weight[0, level + 1], weight[1, level + 1] = high, low
    place[level + 1], repeats[level + 1] = p, count
    row = (start + p) % factors.shape[1]
    last = min(p + (reciprocals.shape[1] - 2 - level) * reach, most - 1)  # as far as the remaining draws go
    middle = min(p + reach, last)
    for x in range(middle + 1, last + 1):
        new[0, x], new[1, x] = old[0, x], old[1, x]
    _multiply_field(new, old, p, middle + 1, factors[0, row], factors[1, row])
    # from here on p is near the other way round; always beyond ``middle``
    _multiply_field(new, old, p + bins - wrapped.shape[2], last + 1, wrapped[0, row], wrapped[1, row])


@njit(cache=True)
def _multiply_field(new: Array, old: Array, begin: int, end: int, factor: Array, factor_low: Array) -> None:
    """``new = old factor`` at the places begin..end-1, where ``factor`` starts with that of ``begin``."""
    for k in range(end - begin):
        new[0, begin + k], new[1, begin + k] = multiply(old[0, begin + k], old[1, begin + k], factor[k], factor_low[k])


@njit(cache=True)
def _last_two(
    table: Array,
    inner: Array,
    field: Array,
    weight: Array,
    q: int,
    repeats: int,
    least: int,
    start: int,
    factors: Array,
    reciprocals: Array,
) -> None:
    """Both draws after a chain of all but two that ends with ``repeats`` draws of q.

    ``inner[x]`` sums, over the one before last p, its weight times its factor with x; then ``field[x]`` multiplies.
    """
    largest, reach, rows = table.shape[1] - 1, factors.shape[2] - 1, factors.shape[1]
    most = table.shape[2]
    first, end = max(q, least - 1 - reach), min(q + 2 * reach, most - 1)
    for p in range(first, min(q + reach, most - 1) + 1):
        w, w_low = multiply(weight[0], weight[1], field[0, p], field[1, p])
        count = 1
        if p == q:
            count = repeats + 1
            w, w_low = multiply(w, w_low, reciprocals[0, count], reciprocals[1, count])
        table[0, largest - 1, p], table[1, largest - 1, p] = add_positive(
            table[0, largest - 1, p], table[1, largest - 1, p], w, w_low
        )
        row = (start + p) % rows
        again, again_low = multiply(w, w_low, reciprocals[0, count + 1], reciprocals[1, count + 1])
        again, again_low = multiply(again, again_low, factors[0, row, 0], factors[1, row, 0])
        inner[0, p], inner[1, p] = add_positive(inner[0, p], inner[1, p], again, again_low)
        last = min(p + reach, most - 1)
        _gather(
            inner[0, p + 1 : last + 1],
            inner[1, p + 1 : last + 1],
            w,
            w_low,
            factors[0, row, 1 : last - p + 1],
            factors[1, row, 1 : last - p + 1],
        )
    for x in range(q, end + 1):
        w, w_low = multiply(inner[0, x], inner[1, x], field[0, x], field[1, x])
        table[0, largest, x], table[1, largest, x] = add_positive(table[0, largest, x], table[1, largest, x], w, w_low)
    _clear(inner[0, q : end + 1], inner[1, q : end + 1])


@njit(cache=True, nogil=True)
def add_chains(
    table: Array,
    steps: Counts,
    least: int,
    start: int,
    bins: int,
    factors: Array,
    wrapped: Array,
    reciprocals: Array,
) -> None:
    """``table[:, m, x] +=`` all chains of m draws from ``start`` to ``start + x`` that begin with the given steps.

    Args:
        table: shape (2, largest + 1, lengths), largest >= 3; chains that leave it are cut.
        steps: differences of the first draws, at most ``largest - 3`` of them. A chain that is shorter is counted
            where the steps that it lacks are 0.
        least: chains of fewer bins are not wanted: they may be missing.
        reciprocals: :func:`inverses` up to largest.

    Each chain's weight is added up with those of the same beginning first, level by level.
    """
    largest, reach, most = table.shape[1] - 1, factors.shape[2] - 1, table.shape[2]
    root = steps.size + 1
    # by number of draws: where a chain ends, how often in a row, where the next draw comes, its weight and field
    counts = np.zeros((3, largest), dtype=np.int64)
    place, repeats, upcoming = counts[0], counts[1], counts[2]
    weight, field = np.zeros((2, largest)), np.zeros((largest, 2, most))
    weight[0, 0] = 1.0
    for x in range(most):
        field[0, 0, x] = 1.0
    partial = np.zeros((largest, 2, largest + 1, most))  # sums over what follows a chain
    inner = np.zeros((2, most))
    p = 0
    for level in range(root):
        if level > 0:
            p += steps[level - 1]
        if p >= most or p + (largest - 1 - level) * reach < least - 1:
            return
        _draw(level, p, place, repeats, weight, field, start, bins, factors, wrapped, reciprocals)
        if steps[level:].sum() == 0:
            partial[root - 1, 0, level + 1, p] = weight[0, level + 1]
            partial[root - 1, 1, level + 1, p] = weight[1, level + 1]
    level = root
    upcoming[level] = max(p, least - 1 - (largest - 1 - level) * reach)
    while level >= root:
        q, above, here = place[level], partial[level - 1], partial[level]
        p = upcoming[level]
        if level == largest - 2:
            _last_two(
                above, inner, field[level], weight[:, level], q, repeats[level], least, start, factors, reciprocals
            )
            level -= 1
        elif p > min(q + reach, most - 1):
            for m in range(level + 1, largest + 1):
                end = min(q + (m - level) * reach, most - 1) + 1
                _add(above[0, m, q:end], above[1, m, q:end], here[0, m, q:end], here[1, m, q:end])
                _clear(here[0, m, q:end], here[1, m, q:end])
            level -= 1
        else:
            upcoming[level] += 1
            _draw(level, p, place, repeats, weight, field, start, bins, factors, wrapped, reciprocals)
            level += 1
            upcoming[level] = max(p, least - 1 - (largest - 1 - level) * reach)
            here[0, level, p], here[1, level, p] = add_positive(
                here[0, level, p], here[1, level, p], weight[0, level], weight[1, level]
            )
    for m in range(1, largest + 1):
        _add(table[0, m], table[1, m], partial[root - 1, 0, m], partial[root - 1, 1, m])


# Along the ring.


@njit(cache=True, nogil=True)
def along_ring(clusters: Array, origin: int, steps: int, reach: int) -> Array:
    """``result[:, m, n]``: all counts of mass m on the bins origin..origin+n-1 after and before a gap.

    The last ``reach`` bins of the n are such a gap; n = 0 is the empty one. The bins must not pass the seam. Shape
    (2, largest + 1, steps + 1).
    """
    rows, largest, longest = clusters.shape[1], clusters.shape[2] - 1, clusters.shape[3]
    result, jumps = np.zeros((2, largest + 1, steps + 1)), np.zeros((2, longest))
    result[0, 0, 0] = 1.0
    for n in range(steps):
        for m in range(largest + 1):
            result[0, m, n + 1], result[1, m, n + 1] = add_positive(
                result[0, m, n + 1], result[1, m, n + 1], result[0, m, n], result[1, m, n]
            )
        row, room = (origin + n) % rows, min(longest, steps - n - reach)
        for m in range(1, largest + 1):
            count = max(min(room, 1 + (m - 1) * reach), 0)  # lengths of clusters of at most m draws
            _clear(jumps[0, :count], jumps[1, :count])
            for k in range(1, m + 1):
                length = max(min(room, 1 + (k - 1) * reach), 0)
                _gather(
                    jumps[0, :length],
                    jumps[1, :length],
                    result[0, m - k, n],
                    result[1, m - k, n],
                    clusters[0, row, k],
                    clusters[1, row, k],
                )
            begin = n + reach + 1
            _add(result[0, m, begin : begin + count], result[1, m, begin : begin + count], jumps[0], jumps[1])
    return result


@njit(cache=True)
def _join(cluster: Array, rest: Array) -> Array:
    """``sum_k cluster[:, k] rest[:, m - k]`` for every mass m; shape (2, largest + 1)."""
    result = np.zeros(rest.shape)
    for m in range(1, rest.shape[1]):
        for k in range(1, m + 1):
            high, low = multiply(cluster[0, k], cluster[1, k], rest[0, m - k], rest[1, m - k])
            result[0, m], result[1, m] = add_positive(result[0, m], result[1, m], high, low)
    return result


@njit(cache=True, nogil=True)
def close_shared(clusters: Array, along: Array, reach: int) -> Array:
    """All counts on the ring with a gap, by mass; ``clusters`` has a single row. Shape (2, largest + 1).

    ``along`` is :func:`along_ring` from bin 0 all the way round.

    Read round the ring from the first place p >= 0 that follows a gap. Either p = 0, or the last jump (a cluster and
    the gap after it, ell bins) goes from before the seam to p > 0: ell - 1 values of p.
    """
    bins = along.shape[2] - 1
    total = along[:, :, bins].copy()
    for length in range(1, clusters.shape[3] + 1):
        jump = length + reach
        joined = _join(clusters[:, 0, :, length - 1], along[:, :, bins - jump])
        _gather(total[0], total[1], jump - 1.0, 0.0, joined[0], joined[1])
    return total


@njit(cache=True, nogil=True)
def close_from(clusters: Array, along: Array, origin: int, reach: int) -> Array:
    """The same for one place p = origin > 0, where every bin has a row of clusters of its own.

    ``along`` is :func:`along_ring` from p to the last bin but one; the jump that passes the seam comes after it.
    """
    bins = origin + along.shape[2]
    total = np.zeros(along.shape[:2])
    for done in range(along.shape[2]):
        length = bins - done - reach
        if 1 <= length <= clusters.shape[3]:
            joined = _join(clusters[:, origin + done, :, length - 1], along[:, :, done])
            _add(total[0], total[1], joined[0], joined[1])
    return total


@njit(cache=True)
def total_of(parts: Array, weights: Array) -> Array:
    """``sum_x weights[x] parts[x]`` with weights that are exact; parts of shape (n, 2, largest + 1)."""
    result = np.zeros(parts.shape[1:])
    for x in range(parts.shape[0]):
        _gather(result[0], result[1], weights[x], 0.0, parts[x, 0], parts[x, 1])
    return result
