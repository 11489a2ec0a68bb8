"""Kernels of :mod:`.ring`: weighted sums over how often every bin of a ring is drawn, with 30 digits.

A way to draw m of the bins 0..b-1, bin i taken r_i times, weighs

    prod_i exp(S_ii r_i (r_i - 1) / 2) / r_i!  prod_(i<j) exp(S_ij r_i r_j),      S_ij = 0 at ring distance > reach.

A gap is ``reach`` bins in a row that are not drawn, a cluster a run of bins that begins and ends with a drawn one and
contains no gap. Clusters are summed by first bin, mass m and length, bin by bin (:func:`next_bin`) or draw by draw
(:func:`add_chains`); then they are joined along the ring (:func:`close_shared`, :func:`close_from`).

Numbers are pairs (:mod:`.double_double`), all >= 0: relative errors are those of the longest chain of operations that
one way to draw goes through, as counted in ``docs/theory/moment-majorants/ring.md``.

``factors`` holds, for row i (one row for all bins where they are alike), ``exp(S_(i,i+d))`` at column d = 0..reach;
``wrapped``, for draws that go round the whole ring, ``exp(S_(i,i-d))`` at column t, ``d = wrapped.shape[1] - t``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.moments.double_double import RECIPROCALS, Pairs, accumulate, add_positive, gather, multiply

Counts = NDArray[np.int64]


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
def powers_of(bases: Pairs, largest: int) -> Pairs:
    """``bases[i] ** n`` for n = 0..largest by repeated products; shape (bases, largest + 1)."""
    result = np.ones((bases.size, largest + 1), dtype=np.complex128)
    for i in range(bases.size):
        for n in range(1, largest + 1):
            result[i, n] = multiply(result[i, n - 1], bases[i])
    return result


@kernel
def own_weights(powers: Pairs) -> Pairs:
    """``e^(r (r-1) / 2) / r!`` for r = 0..largest from the powers of e; shape (largest + 1,)."""
    result = np.ones(powers.size, dtype=np.complex128)
    for r in range(1, powers.size):
        result[r] = multiply(result[r - 1], multiply(powers[r - 1], RECIPROCALS[r]))
    return result


# Bin by bin. A state is a window (r_1, ..., r_reach) of the last counts, latest first, with sum v, and the mass k drawn
# before it: in lexicographic order of the window, then by k = 0..largest - v. So the update reads its source once in
# order and writes to ``largest + 1`` places that move in order.


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


@kernel(inline="always")
def _following(counts: Counts, partial: Pairs, total: int, largest: int, powers: Pairs) -> int:
    """The next tuple with a sum of at most ``largest`` in lexicographic order, in place; its sum, or -1 at the end.

    ``partial[j + 1] = partial[j] powers[j, counts[j]]`` is kept up to date.
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
        partial[j + 1] = multiply(partial[j], powers[j, counts[j]])
    return total + 1


@kernel
def first_bin(state: Pairs, clusters: Pairs, own: Pairs) -> None:
    """Clusters of length 1: into ``state``, shape (states,), and ``clusters``, shape (largest + 1, lengths)."""
    largest = own.size - 1
    state[:] = 0.0
    place = 0
    for r in range(1, largest + 1):
        place += largest - r + 2  # the states with a latest count r - 1
        state[place] = clusters[r, 0] = own[r]


@kernel
def next_bin(old: Pairs, new: Pairs, clusters: Pairs, length: int, powers: Pairs, own: Pairs, chunk_size: int) -> None:
    """Clusters one bin longer: draws the bin 0, 1, ... times; windows that become all zero are dropped.

    Args:
        old, new: shape (states,), of runs of ``length`` bins, and overwritten with those of ``length + 1``.
        clusters: shape (largest + 1, lengths); its column ``length`` gets the sums over states whose latest count
            is positive.
        powers: of the factors between the new bin and those 1..reach before it, shape (reach, largest + 1).
        own: the new bin's own weights, shape (largest + 1,).
        chunk_size: of prefixes whose states are added up before the sum goes to the total, for short chains.
    """
    reach = powers.shape[0]
    # of the bins before the window the first is drawn, and of any reach in a row at least one: k >= before, so states
    # are kept at k - before, and v <= largest - before
    before, shift = (length - 1) // reach, length // reach - (length - 1) // reach
    step = Step(before, shift, min(length, reach - 1), length >= reach, False)
    sums = _advance(old, new, powers, own, chunk_size, step)
    # One by one, here and below: for a whole array numba compiles for seconds what its message about shapes needs.
    for r in range(sums.size):
        clusters[r, length] = sums[r]


@kernel
def sweep_bin(old: Pairs, new: Pairs, total: Pairs, powers: Pairs, own: Pairs, chunk_size: int) -> None:
    """All draws on one bin more: the bin is drawn 0, 1, ... times, and windows may become all zero.

    ``total``, shape (largest + 1,), grows by the draws whose last bin is the new one. The rest is as for
    :func:`next_bin`; windows always have ``reach`` counts, those of bins before the first are 0.
    """
    accumulate(total, _advance(old, new, powers, own, chunk_size, Step(0, 0, powers.shape[0] - 1, True, True)))


@kernel(inline="always")
def _advance(
    old: Pairs,
    new: Pairs,
    powers: Pairs,
    own: Pairs,
    chunk_size: int,
    step: Step,
) -> Pairs:
    """Draw the next bin 0, 1, ... times: ``new`` from ``old``.

    Args:
        step: from the old window to the new one.

    Returns: for every total mass the weight of new states whose latest count is positive, shape (largest + 1,).
    """
    before, shift, kept, drops, empty = step
    largest = own.size - 1
    budget, new_budget = largest - before, largest - before - shift
    place = first_states(new_budget, kept + 1)
    for i in range(place[-1]):
        new[i] = 0.0
    prefix = np.zeros(kept, dtype=np.int64)
    partial = np.ones(kept + 1, dtype=np.complex128)
    grown, chunk = np.zeros(largest + 1, dtype=np.complex128), np.zeros(largest + 1, dtype=np.complex128)
    source, mass, waiting = 0, 0, 0
    while mass >= 0:
        room = budget - mass
        for x in range(room + 1 if drops else 1):
            last = room - x  # largest kept k of the source row
            start = max(shift - x, 0)
            row = old[source : source + last + 1]
            if mass > 0 or empty:
                target = place[0] + x - shift
                accumulate(new[target + start : target + last + 1], row[start:])
            factor, power = partial[kept], complex(1.0, 0.0)
            if drops:
                factor = multiply(factor, powers[kept, x])
            for r in range(1, last - start + 1):
                power = multiply(power, factor)
                target = place[r] + x - shift
                gather(new[target + start : target + last - r + 1], multiply(power, own[r]), row[start:])
            source += last + 1
        room = new_budget - mass
        for r in range(1, room + 1):
            accumulate(chunk[largest - room + r :], new[place[r] : place[r] + room - r + 1])
        for r in range(room + 1):
            place[r] += room - r + 1
        waiting += 1
        if waiting == chunk_size:
            accumulate(grown, chunk)
            for m in range(largest + 1):
                chunk[m] = 0.0
            waiting = 0
        mass = _following(prefix, partial, mass, budget, powers)
    accumulate(grown, chunk)
    return grown


# Draw by draw. A chain is a sequence of bins 0 = p_1 <= p_2 <= ..., counted from its start, with steps of at most
# ``reach``; ``field[x]`` is the product of the factors between x and the draws so far, and the n-th time that a bin is
# drawn divides by n.


@kernel
def _multiply_field(new: Pairs, old: Pairs, begin: int, end: int, factor: Pairs) -> None:
    """``new = old factor`` at the places begin..end-1, where ``factor`` starts with that of ``begin``."""
    for k in range(end - begin):
        new[begin + k] = multiply(old[begin + k], factor[k])


class _Chain(NamedTuple):
    """By number of draws: where a chain ends, how often in a row, its weight and its field."""

    place: Counts
    repeats: Counts
    weight: Pairs
    field: Pairs


@kernel
def _draw(level: int, p: int, chain: _Chain, start: int, bins: int, factors: Pairs, wrapped: Pairs) -> None:
    """Make a chain of ``level + 1`` draws of one of ``level``: the next draw is p."""
    place, repeats, weight, field = chain
    reach, most, largest = factors.shape[1] - 1, field.shape[1], weight.size
    old, new = field[level], field[level + 1]
    weight[level + 1] = multiply(weight[level], old[p])
    count = 1
    if level > 0 and p == place[level]:
        count = repeats[level] + 1
        weight[level + 1] = multiply(weight[level + 1], RECIPROCALS[count])
    place[level + 1], repeats[level + 1] = p, count
    row = (start + p) % factors.shape[0]
    last = min(p + (largest - 1 - level) * reach, most - 1)  # as far as the remaining draws go
    middle = min(p + reach, last)
    for r in range(middle + 1, last + 1):
        new[r] = old[r]
    _multiply_field(new, old, p, middle + 1, factors[row])
    # from here on p is near the other way round; always beyond ``middle``
    _multiply_field(new, old, p + bins - wrapped.shape[1], last + 1, wrapped[row])


@kernel(inline="always")
def _last_two(table: Pairs, inner: Pairs, chain: _Chain, least: int, start: int, factors: Pairs) -> None:
    """Both draws after a chain of all but two.

    ``inner[x]`` sums, over the one before last p, its weight times its factor with x; then ``field[x]`` multiplies.
    """
    largest, reach, rows, most = table.shape[0] - 1, factors.shape[1] - 1, factors.shape[0], table.shape[1]
    level = largest - 2
    q, repeats, weight, field = chain.place[level], chain.repeats[level], chain.weight[level], chain.field[level]
    first, end = max(q, least - 1 - reach), min(q + 2 * reach, most - 1)
    for p in range(first, min(q + reach, most - 1) + 1):
        w = multiply(weight, field[p])
        count = 1
        if p == q:
            count = repeats + 1
            w = multiply(w, RECIPROCALS[count])
        table[largest - 1, p] = add_positive(table[largest - 1, p], w)
        factor = factors[(start + p) % rows]
        inner[p] = add_positive(inner[p], multiply(multiply(w, RECIPROCALS[count + 1]), factor[0]))
        gather(inner[p + 1 : min(p + reach, most - 1) + 1], w, factor[1:])
    for x in range(q, end + 1):
        table[largest, x] = add_positive(table[largest, x], multiply(inner[x], field[x]))
        inner[x] = 0.0


class Workspace(NamedTuple):
    """What :func:`add_chains` works in, for ``largest`` draws and ``most`` places.

    Attributes:
        counts: shape (3, largest).
        weight, field: 1 where a chain begins; shapes (largest,) and (largest, most).
        partial: zeros, shape (largest, largest + 1, most); sums over what follows a chain.
        inner: zeros, shape (most,).
    """

    counts: Counts
    weight: Pairs
    field: Pairs
    partial: Pairs
    inner: Pairs


def workspace(largest: int, most: int) -> Workspace:
    """For one call of :func:`add_chains`."""
    return Workspace(
        np.zeros((3, largest), dtype=np.int64),
        np.ones(largest, dtype=np.complex128),
        np.ones((largest, most), dtype=np.complex128),
        np.zeros((largest, largest + 1, most), dtype=np.complex128),
        np.zeros(most, dtype=np.complex128),
    )


def add_chains(
    table: Pairs, steps: Counts, least: int, start: int, bins: int, factors: Pairs, wrapped: Pairs, work: Workspace
) -> None:
    """``table[m, x] +=`` all chains of m draws from ``start`` to ``start + x`` that begin with the given steps.

    Args:
        table: shape (largest + 1, lengths), largest >= 3; chains that leave it are cut.
        steps: differences of the first draws, at most ``largest - 3`` of them. A chain that is shorter is counted
            where the steps that it lacks are 0.
        least: chains of fewer bins are not wanted: they may be missing.

    Each chain's weight is added up with those of the same beginning first, level by level.
    """
    largest, reach, most = table.shape[0] - 1, factors.shape[1] - 1, table.shape[1]
    chain = _Chain(work.counts[0], work.counts[1], work.weight, work.field)
    sums, p = work.partial[steps.size], 0
    for level in range(steps.size + 1):
        if level > 0:
            p += int(steps[level - 1])
        if p >= most or p + (largest - 1 - level) * reach < least - 1:
            return
        _draw(level, p, chain, start, bins, factors, wrapped)
        if not steps[level:].any():
            sums[level + 1, p] = work.weight[level + 1]
    _add_continued(steps.size + 1, least, start, bins, factors, wrapped, chain, work)
    accumulate(np.ravel(table), np.ravel(sums))


@kernel
def _add_continued(
    root: int,
    least: int,
    start: int,
    bins: int,
    factors: Pairs,
    wrapped: Pairs,
    chain: _Chain,
    work: Workspace,
) -> None:
    """Add to ``work.partial[root - 1]`` all chains that go on from the given one of ``root`` draws."""
    partial, inner, upcoming = work.partial, work.inner, work.counts[2]  # upcoming: where the next draw comes
    largest, reach, most = partial.shape[0], factors.shape[1] - 1, partial.shape[2]
    place, weight = chain.place, chain.weight
    level = root
    upcoming[level] = max(place[level], least - 1 - (largest - 1 - level) * reach)
    while level >= root:
        q, p = place[level], upcoming[level]
        if level == largest - 2:
            _last_two(partial[level - 1], inner, chain, least, start, factors)
            level -= 1
        elif p > min(q + reach, most - 1):
            for m in range(level + 1, largest + 1):
                for x in range(q, min(q + (m - level) * reach, most - 1) + 1):
                    partial[level - 1, m, x] = add_positive(partial[level - 1, m, x], partial[level, m, x])
                    partial[level, m, x] = 0.0
            level -= 1
        else:
            upcoming[level] += 1
            _draw(level, p, chain, start, bins, factors, wrapped)
            partial[level, level + 1, p] = add_positive(partial[level, level + 1, p], weight[level + 1])
            level += 1
            upcoming[level] = max(p, least - 1 - (largest - 1 - level) * reach)


# Along the ring.


def along_ring(clusters: Pairs, origin: int, steps: int, reach: int) -> Pairs:
    """``result[m, n]``: all counts of mass m on the bins origin..origin+n-1 after and before a gap.

    The last ``reach`` bins of the n are such a gap; n = 0 is the empty one. The bins must not pass the seam. Shape
    (largest + 1, steps + 1).
    """
    result = np.zeros((clusters.shape[1], steps + 1), dtype=np.complex128)
    result[0, 0] = 1.0
    _along_ring(clusters, origin, reach, np.empty(clusters.shape[2], dtype=np.complex128), result)
    return result


@kernel
def _along_ring(clusters: Pairs, origin: int, reach: int, jumps: Pairs, result: Pairs) -> None:
    """:func:`along_ring`, into ``result``, which has the empty count; ``jumps``, shape (lengths,), is to work in."""
    rows, largest, longest = clusters.shape[0], clusters.shape[1] - 1, clusters.shape[2]
    steps = result.shape[1] - 1
    for n in range(steps):
        for m in range(largest + 1):
            result[m, n + 1] = add_positive(result[m, n + 1], result[m, n])
        row, room = (origin + n) % rows, min(longest, steps - n - reach)
        for m in range(1, largest + 1):
            count = max(min(room, 1 + (m - 1) * reach), 0)  # lengths of clusters of at most m draws
            for k in range(count):
                jumps[k] = 0.0
            for k in range(1, m + 1):
                length = max(min(room, 1 + (k - 1) * reach), 0)
                gather(jumps[:length], result[m - k, n], clusters[row, k])
            begin = n + reach + 1
            accumulate(result[m, begin : begin + count], jumps)


@kernel
def _join(total: Pairs, weight: float, cluster: Pairs, rest: Pairs) -> None:
    """``total[m] += weight sum_k cluster[k] rest[m - k]`` for every mass m; shape (largest + 1,)."""
    for m in range(1, rest.size):
        added = complex(0.0, 0.0)
        for k in range(1, m + 1):
            added = add_positive(added, multiply(cluster[k], rest[m - k]))
        total[m] = add_positive(total[m], multiply(added, complex(weight, 0.0)))


def close_shared(clusters: Pairs, along: Pairs, reach: int) -> Pairs:
    """All counts on the ring with a gap, by mass; ``clusters`` has a single row. Shape (largest + 1,).

    ``along`` is :func:`along_ring` from bin 0 all the way round. Read from the first place p >= 0 after a gap: p = 0,
    or one of the ell - 1 values that the last jump, of ell bins, leaves when it passes the seam.
    """
    total = along[:, -1].copy()
    _close_shared(clusters, along, reach, total)
    return total


@kernel
def _close_shared(clusters: Pairs, along: Pairs, reach: int, total: Pairs) -> None:
    """The counts of :func:`close_shared` with a jump across the seam, added to ``total``."""
    bins = along.shape[1] - 1
    for length in range(1, clusters.shape[2] + 1):
        jump = length + reach
        _join(total, jump - 1.0, clusters[0, :, length - 1], along[:, bins - jump])


def close_from(clusters: Pairs, along: Pairs, origin: int, reach: int) -> Pairs:
    """What :func:`close_shared` sums, for one place p = origin > 0, where every bin has a row of clusters of its own.

    ``along`` is :func:`along_ring` from p to the last bin but one; the jump that passes the seam comes after it.
    """
    total = np.zeros(along.shape[0], dtype=np.complex128)
    _close_from(clusters, along, origin, reach, total)
    return total


@kernel
def _close_from(clusters: Pairs, along: Pairs, origin: int, reach: int, total: Pairs) -> None:
    """:func:`close_from`, added to ``total``."""
    bins = origin + along.shape[1]
    for done in range(along.shape[1]):
        length = bins - done - reach
        if 1 <= length <= clusters.shape[2]:
            _join(total, 1.0, clusters[origin + done, :, length - 1], along[:, done])


def total_of(parts: Pairs, weights: Counts) -> Pairs:
    """``sum_x weights[x] parts[x]``, the weights exact; parts of shape (n, largest + 1)."""
    result = np.zeros(parts.shape[1], dtype=np.complex128)
    _total_of(parts, weights, result)
    return result


@kernel
def _total_of(parts: Pairs, weights: Counts, result: Pairs) -> None:
    """:func:`total_of`, added to ``result``."""
    for x in range(parts.shape[0]):
        gather(result, complex(float(weights[x]), 0.0), parts[x])
