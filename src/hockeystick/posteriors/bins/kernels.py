"""Hot loops of the hazard bounds, on plain arrays."""

from math import erfc, exp, inf, isnan, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array

Indices = NDArray[np.int64]

ENOUGH = 0.9
"""A threshold that spends at least this share of its probability is not improved further."""
AIM = 0.96
MOST_TRIALS = 60
SAFETY = 1e-9
"""Relative allowance for rounding in sums of probabilities and in what follows from a threshold."""
UNDERFLOW = 1e-300


@kernel
def reference_families(
    gram: Array, level: Indices, bounded: Indices, temperatures: Array
) -> tuple[Array, Array, Array, Array]:
    """The distributions psi for every bounded bin: uniform, then one softmax for each temperature.

    Args:
        gram: shape (bins, bins), prefix inner products.
        level, bounded: levels of all bins; the bins that need a bound.

    Returns: psi, shape (bounded, families, bins), zero outside O; KL(psi | uniform on O), shape (bounded, families);
        |O| and c, shape (bounded,): how many bins below have an informative likelihood ratio, and how many have 1.
    """
    bins, families = level.size, temperatures.size + 1
    psi = np.zeros((bounded.size, families, bins))
    divergence = np.zeros((bounded.size, families))
    informative, alike = np.zeros(bounded.size), np.zeros(bounded.size)
    members, distance = np.empty(bins, dtype=np.int64), np.empty(bins)
    for p in range(bounded.size):
        i = bounded[p]
        size, nearest = 0, inf
        for j in range(bins):
            if level[j] >= level[i]:
                continue
            if gram[i, i] == 0.0 and gram[j, j] == 0.0:  # equal, or so small that SAFETY covers the ratio
                alike[p] += 1.0
                continue
            distance[size] = max(gram[i, i] + gram[j, j] - 2.0 * gram[i, j], 0.0)
            nearest = min(nearest, distance[size])
            members[size] = j
            size += 1
        informative[p] = size
        if size == 0:
            continue
        for m in range(size):
            psi[p, 0, members[m]] = 1.0 / size
        for f in range(1, families):
            total, mean = 0.0, 0.0
            for m in range(size):
                exponent = (distance[m] - nearest) / temperatures[f - 1]
                weight = exp(-exponent)
                psi[p, f, members[m]] = weight
                total += weight
                mean += weight * exponent
            for m in range(size):
                psi[p, f, members[m]] /= total
            divergence[p, f] = log(size / total) - mean / total
    return psi, divergence, informative, alike


@kernel(inline="always")
def failure(threshold: float, centres: Array, deviation: Array, best: Array, slope: Array) -> tuple[float, float]:
    """``mean over k of min_psi Phi((t - nu) / xi)``, rounded up, and its derivative (which steers only).

    Args:
        centres: shape (families, components), nu. deviation: shape (families,), xi > 0.
        best, slope: work space of shape (components,).
    """
    count = centres.shape[1]
    best[:] = 1e300
    for f in range(deviation.size):
        inverse = 1.0 / deviation[f]
        for k in range(count):
            score = (threshold - centres[f, k]) * inverse
            if score < best[k]:
                best[k] = score
                slope[k] = inverse
    total, derivative = 0.0, 0.0
    for k in range(count):
        if best[k] >= 0.0:
            total += 1.0  # nu was lowered and xi raised, which is the safe side below the centre only
        else:
            total += 0.5 * erfc(-best[k] * 0.7071067811865476)
            derivative += 0.3989422804014327 * exp(-0.5 * best[k] * best[k]) * slope[k]
    return total / count * (1.0 + SAFETY) + UNDERFLOW, derivative / count


@kernel(inline="always")
def threshold_within(
    allowed: float, start: float, centres: Array, deviation: Array, best: Array, slope: Array
) -> float:
    """A threshold at which :func:`failure` was found to be at most ``allowed``; -inf if none was found.

    Newton's method on log failure inside a bracket. The result has been evaluated.
    """
    low, high = -inf, inf
    at = start
    target = log(AIM * allowed)
    for _ in range(MOST_TRIALS):
        value, derivative = failure(at, centres, deviation, best, slope)
        if value <= allowed:
            low = max(low, at)
            if value >= ENOUGH * allowed or high - low < 1e-7:
                break
        else:
            high = min(high, at)
        move = (target - log(value)) * value / derivative if derivative > 0.0 else inf
        widest = 4.0 * deviation.max()
        at += min(max(move, -widest), widest)
        if not low < at < high:
            at = 0.5 * (low + high)
        if not low < at < high:
            break
    return low


@kernel
def thresholds(
    centres: Array, deviation: Array, own: Indices, allowed: Array, informative: Array, level: Indices, scores: Array
) -> Array:
    """Thresholds for every bounded bin and every try, shape (tries, bounded).

    Args:
        centres: shape (bounded, families, components); ``own`` says which component is typical.
        allowed: shape (tries, bounded), probabilities. A bin without an informative ratio needs none.
        level: levels of the bounded bins.
        scores: shape (tries, levels), standard scores found at earlier rows, used as starts and updated.
    """
    tries, bounded = allowed.shape
    families, components = centres.shape[1], centres.shape[2]
    best, slope = np.empty(components), np.empty(components)
    cuts = np.full((tries, bounded), -inf)
    for p in range(bounded):
        if informative[p] == 0.0:
            continue
        for a in range(tries):
            if not allowed[a, p] > 4.0 * UNDERFLOW:
                continue
            score = scores[a, level[p]]
            if isnan(score):
                score = sqrt(2.0 * log(1.0 / allowed[a, p]))
            start = -inf
            for f in range(families):
                start = max(start, centres[p, f, own[p]] - score * deviation[p, f])
            at = threshold_within(allowed[a, p], start, centres[p], deviation[p], best, slope)
            cuts[a, p] = at
            if at > -inf:
                score = -inf
                for f in range(families):
                    score = max(score, (centres[p, f, own[p]] - at) / deviation[p, f])
                scores[a, level[p]] = score
    return cuts


@kernel
def level_tails(threshold: Array, informative: Array, alike: Array, level: Indices, lowest: int, levels: int) -> Array:
    """From thresholds of a row's bins to bounds on the posterior probability of each level or a higher one.

    Rounded up. Shape (levels,); 1 up to the row's lowest level.
    """
    odds = np.zeros(levels)
    for p in range(threshold.size):
        below = alike[p]
        if informative[p] > 0.0:
            below += informative[p] * exp(min(threshold[p], 700.0))
        odds[level[p]] += (1.0 + SAFETY) / below if below > 0.0 else inf
    tails = np.ones(levels)
    above = 0.0
    for reached in range(levels - 1, lowest, -1):
        hazard = odds[reached] / (1.0 + odds[reached]) if odds[reached] < inf else 1.0
        above = min(above + (1.0 - above) * hazard * (1.0 + 1e-12), 1.0)
        tails[reached] = above
    return tails
