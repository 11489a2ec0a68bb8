"""The numbers that sum up bounds on a profile: what attackers gain, the mu of Gaussian DP, and what that mu loses."""

from collections.abc import Callable
from math import exp, inf, isfinite
from typing import Any

import numpy as np

from hockeystick.attacks.measures import TOLERANCE, advantage, bayes_error, expect_bound, true_positive_rate
from hockeystick.attacks.samples import SampledProfile
from hockeystick.bounds import Bound
from hockeystick.calls import called
from hockeystick.errors import InvalidInputError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.normal import log_ndtr, ndtri
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.spec import real_number
from hockeystick.types import Side

UNEXPLAINED = 1e-10
"""The part of delta that mu need not explain, unless said otherwise."""
ACCURACY = 1e-7
"""Relative width to which mu is bracketed."""
FIRST, MOST = 129, 6000
"""Samples of the profile before and after refinement."""
SMALLEST_MU, LARGEST_MU = 1e-9, 1e3
REGRET_TOLERANCE = 1e-8
ROUNDING = 1e-11
"""More than the rounding of a closed form of the Gaussian, which is at most 1e-12 times delta here."""
FALSE_POSITIVE_RATES = {"tpr_at_fpr_0_1": 0.1, "tpr_at_fpr_0_01": 0.01, "tpr_at_fpr_0_001": 0.001}
EPSILONS = tuple(0.02 * 1.1 ** (place / 3.0) for place in range(192))
"""Where the profile is read for the rates of a certificate, up to 8.6 and as far as that helps; every one of them gives
a bound."""
GROWN, SHRUNK = (np.array([exp(sign * at) for at in EPSILONS]) for sign in (1.0, -1.0))
"""``e^epsilon`` and ``e^-epsilon`` of each of them."""
ROOM = 1e-14
"""More than the rounding of a few operations on numbers of at most 1, or on at most 5,600 times 0.1, relatively."""
JUMP = 1e-9
"""Relative distance, as that at which searches end, between which a bound falls to delta in a jump."""
POINTS = 129
"""Epsilons at which the profile is read for mu, evenly from 0 to where it falls to the certified delta."""
LARGEST_UNEXPLAINED = 0.1
"""Above it no mu is stated: so much of delta is no remainder."""
REGRET_ROUNDING = 1e-5
"""Added to the regret, a difference of two numbers whose last digits depend on the machine."""


@called("hs.attacks.summary(upper, lower)")
def summary(upper: Bound, lower: Bound, *, tolerance: float = TOLERANCE) -> dict[str, tuple[float, float]]:
    """What two bounds on the same profile say of attackers: (at least, at most) for each number.

    ``mu`` and ``regret`` are those of :func:`gdp_mu` and :func:`gdp_regret`, the regret that of the upper end of mu;
    ``advantage``; ``tpr_at_fpr_0.1``, ``..._0.01`` and ``..._0.001``, which are also the limits on reconstruction from
    baselines of the same size; ``bayes_error``, of a guess between two runs that are equally likely.

    Args:
        upper, lower: bounds on one profile.
        tolerance: of the true positive rates; affects tightness and speed only.

    Raises: InvalidInputError when the sides of the bounds are not those.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> both = [hs.bound(run, "gaussian", side=side) for side in hs.Side]
    >>> [round(end, 5) for end in hs.attacks.summary(*both)["bayes_error"]]
    [0.40129, 0.40129]
    """
    expect_bound(upper)
    expect_bound(lower)
    if upper.side is not Side.UPPER or lower.side is not Side.LOWER:
        raise InvalidInputError(
            f"The 'upper' and 'lower' arguments must be bounds on these sides. "
            f"Got bounds on the sides {upper.side.value!r} and {lower.side.value!r} instead."
        )
    mu = gdp_mu(upper)
    rates = np.array(list(FALSE_POSITIVE_RATES.values()))
    least, most = (np.asarray(true_positive_rate(bound, rates, tolerance=tolerance)) for bound in (lower, upper))
    numbers = {
        "mu": (gdp_mu(lower), mu),
        "regret": (gdp_regret(upper, mu), gdp_regret(lower, mu)) if mu <= LARGEST_MU else (0.0, inf),
        "advantage": (advantage(lower), advantage(upper)),
    }
    for k, rate in enumerate(FALSE_POSITIVE_RATES.values()):
        numbers[f"tpr_at_fpr_{rate:g}"] = (float(least[k]), float(most[k]))
    numbers["bayes_error"] = (float(bayes_error(upper, 0.5)), float(bayes_error(lower, 0.5)))
    return numbers


def certified_numbers(bound: Bound, delta: float, near: float | None = None) -> dict[str, Any]:
    """What a certificate says that any attack gains at most, from an UPPER bound; every number errs upward.

    The largest difference of true and false positive rate is the total variation distance of the two output
    distributions, which is delta at epsilon 0. A test with false positive rate a has a true positive rate of at most
    ``delta + e^epsilon a`` and of at most ``1 - e^-epsilon (1 - delta - a)``, at every epsilon; the least over
    ``EPSILONS`` is taken, which :func:`hockeystick.attacks.true_positive_rate` refines (docs/theory/certificates.md).

    Args:
        delta: the certified one, which mu need not explain.
        near: about where the bound falls to delta; affects speed only.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> bound = hs.bound(run, "gaussian")
    >>> numbers = certified_numbers(bound, 1e-5)
    >>> round(numbers["advantage"], 4), round(numbers["gdp_mu"], 2)
    (0.3829, 1.0)
    """
    reach = _reach(bound, delta, near)
    early = [0.0, *(at for at in EPSILONS if at <= reach)] if reach <= MAX_EPSILON else [0.0]
    deltas = bound.delta(early)
    gained, count = float(deltas[0]), len(early) - 1
    least = {name: gained + false for name, false in FALSE_POSITIVE_RATES.items()}
    for name, false in FALSE_POSITIVE_RATES.items():
        least[name] = min([least[name], *_rates(deltas[1:], GROWN[:count], SHRUNK[:count], false).tolist()])
    for at, grown, shrunk in zip(EPSILONS[count:], GROWN[count:].tolist(), SHRUNK[count:].tolist(), strict=True):
        # Both bounds at delta = 0, which grow with epsilon: no later epsilon helps where they are not below the least.
        if all(min(grown * r, 1.0 - shrunk * (1.0 - r)) >= least[name] for name, r in FALSE_POSITIVE_RATES.items()):
            break
        known = np.array([bound.delta(at)])
        for name, false in FALSE_POSITIVE_RATES.items():
            least[name] = min(least[name], float(_rates(known, grown, shrunk, false)[0]))
    mu, regret = _gaussian_dp(bound, delta, reach)
    return {
        "advantage": gained,
        "bayes_success": min(0.5 * (1.0 + gained) + ROOM, 1.0),
        "gdp_mu": mu,
        "gdp_regret": regret,
        **{name: min(most * (1.0 + ROOM) + ROOM, 1.0) for name, most in least.items()},
    }


def _rates(deltas: Array, grown: Array | float, shrunk: Array | float, false: float) -> Array:
    """What the deltas at some epsilons, whose exponentials are given, say that true positive rates are at most."""
    rates: Array = np.minimum(deltas + grown * false, 1.0 - shrunk * np.maximum(1.0 - deltas - false, 0.0))
    return rates


def _reach(bound: Bound, delta: float, near: float | None = None) -> float:
    """Where an upper bound falls to ``delta``; infinite where no mu is stated."""
    if not 0.0 < delta <= LARGEST_UNEXPLAINED:
        return inf
    # What one pair of numbers implies falls to delta right where it is expected, in a jump that no search is quick at.
    if near is not None and 0.0 < near <= MAX_EPSILON and bound.delta(near * (1.0 - JUMP)) > delta >= bound.delta(near):
        return near
    return bound.epsilon(delta, near)


def _gaussian_dp(bound: Bound, delta: float, reach: float) -> tuple[float | None, float | None]:
    """The mu of Gaussian DP that covers an upper bound except for ``delta``, and its regret."""
    samples = _samples(bound, delta, reach)
    if samples is None:
        return None, None
    epsilons, deltas = samples
    mu = 0.0
    if deltas[0] > delta:  # else nothing is left to cover
        mu = float(covering_mu(epsilons, deltas, delta)[1].max()) * (1.0 + 1e-9) + 1e-13
    return (mu, _regret(epsilons, deltas, mu)) if isfinite(mu) else (None, None)


def _samples(bound: Bound, delta: float, reach: float) -> tuple[Array, Array] | None:
    """The epsilons from 0 to where an upper bound falls to ``delta``, and the bound there; None where no mu is stated.

    Args:
        reach: where the bound falls to ``delta``.

    Returns: two arrays of shape (POINTS,).
    """
    if reach > MAX_EPSILON:
        return None
    epsilons = np.linspace(0.0, max(reach, 1e-6), POINTS)
    deltas = bound.delta(epsilons)
    if deltas[0] > delta:
        deltas[-1] = min(deltas[-1], delta)  # as it is at the end, but for rounding
    return epsilons, deltas


def _regret(epsilons: Array, deltas: Array, mu: float) -> float:
    """What this mu loses of a profile that has these deltas at these epsilons, moved up."""
    if mu == 0.0:
        return 0.0
    lost = (gaussian_profile(mu, epsilons) - deltas) / (1.0 + np.exp(epsilons))
    return min(max(float(lost.max()), 0.0) + REGRET_ROUNDING, 1.0)


def regret_of(bound: Bound, delta: float, mu: float) -> float | None:
    """The regret of this mu, as :func:`certified_numbers` states it of its own mu; None where no mu is stated."""
    samples = _samples(bound, delta, _reach(bound, delta))
    return None if samples is None else _regret(*samples, mu)


@called("hs.attacks.gdp_mu(upper)")
def gdp_mu(bound: Bound, *, unexplained: float = UNEXPLAINED) -> float:
    """The smallest mu for which the mechanism is mu-GDP, up to ``unexplained``.

    The least mu with ``delta(epsilon) <= delta_mu(epsilon) + unexplained`` for all epsilon >= 0, where ``delta_mu`` is
    the profile of N(mu, 1) against N(0, 1); in terms of tests, no attacker has less type II error than
    ``G_mu(alpha) - unexplained`` at any alpha (Dong, Roth and Su 2022). Without that allowance mu would be infinite
    for every mechanism with mass at infinity, as all computed laws have, or decided by deltas that nobody asks for.

    Which side it errs on: at least the truth for an UPPER bound, infinity if there is none; at most for a LOWER
    one. Between sampled epsilons the profile is bounded from above by its chord over e^epsilon.

    Args:
        bound: on either side.
        unexplained: from 1e-12 to 0.1.

    Raises: InvalidInputError when ``unexplained`` is no number in that range.

    Reference: Gomez et al. 2025, "(epsilon, delta) considered harmful", arXiv 2503.10945; docs/theory/attacks.md.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=4), noise_multiplier=4.0)
    >>> round(gdp_mu(hs.bound(run, "gaussian")), 6)  # sqrt(epochs) / noise_multiplier
    0.5
    """
    expect_bound(bound)
    unexplained = real_number("unexplained", unexplained)
    if not 1e-12 <= unexplained <= LARGEST_UNEXPLAINED:
        raise InvalidInputError(f"The 'unexplained' field must be from 1e-12 to 0.1. Got {unexplained!r} instead.")
    reach = bound.epsilon(unexplained)
    if reach > MAX_EPSILON:
        return float("inf")
    if bound.delta(0.0) <= unexplained:
        return 0.0
    samples = SampledProfile(bound.delta)
    samples.add(np.linspace(0.0, max(reach, 1e-6), FIRST))
    while True:
        needed = _needed_mu(samples.epsilons, samples.deltas - unexplained)
        attained = float(needed.max())
        middles, covering = covering_mu(samples.epsilons, samples.deltas, unexplained)
        wide = covering > attained * (1.0 + ACCURACY)
        new = np.setdiff1d(middles[wide], samples.epsilons)
        if not new.size or samples.epsilons.size + new.size > MOST:
            break
        samples.add(new)
    if bound.side is Side.UPPER:
        return float(covering.max()) * (1.0 + 1e-9) + 1e-13
    best = int(np.argmax(needed))
    return _certainly_needed(float(samples.epsilons[best]), float(samples.deltas[best]) - unexplained, attained)


@called("hs.attacks.gdp_regret(upper, mu=0.5)")
def gdp_regret(bound: Bound, mu: float) -> float:
    """What is lost when this profile is summarised by mu-GDP: the Delta-divergence of the two trade-off functions.

    The least kappa >= 0 with ``f(alpha + kappa) - kappa <= G_mu(alpha)`` for every alpha: by so much, in both error
    rates, mu may understate what a test has to suffer (Gomez et al. 2025; Kaissis et al. 2024). It equals
    ``sup (delta_mu - delta) / (1 + e^epsilon)`` over epsilon >= 0 (docs/theory/attacks.md).

    Which side it errs on: an UPPER bound gives at most the regret of the mechanism, and what the summary loses of that
    bound; a LOWER bound gives at least the mechanism's regret, and 1e-4 or less where there is none to speak of.

    Args:
        bound: on either side.
        mu: of :func:`gdp_mu`, say, of an upper bound; from 0 to 1000.

    Raises: InvalidInputError when ``mu`` is no number in that range.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> gdp_regret(hs.bound(run, "gaussian"), 1.0) < 1e-8
    True
    """
    expect_bound(bound)
    mu = real_number("mu", mu)
    if not 0.0 <= mu <= LARGEST_MU:
        raise InvalidInputError(f"The 'mu' field must be from 0 to {LARGEST_MU:g}. Got {mu!r} instead.")

    def lost(epsilon: Array, delta: Array) -> Array:
        return np.maximum(gaussian_profile(mu, epsilon) - delta, 0.0) / (1.0 + np.exp(epsilon))

    reach = _far_enough(lambda epsilon: lost(epsilon, np.zeros(1)))
    attained, over = SampledProfile(bound.delta).supremum(lost, reach, REGRET_TOLERANCE)
    return max(attained - ROUNDING, 0.0) if bound.side is Side.UPPER else over + ROUNDING


def _far_enough(falling: Callable[[Array], Array]) -> float:
    """An epsilon beyond which the function is below the tolerance."""
    reach = 1.0
    while reach < MAX_EPSILON and float(falling(np.array([reach]))[0]) > REGRET_TOLERANCE:
        reach *= 1.25
    return min(reach, MAX_EPSILON)


def gaussian_profile(mu: float | Array, epsilon: Array) -> Array:
    """delta of N(mu, 1) against N(0, 1) at these epsilons, mu > 0 elementwise or 0; rounded, of no side."""
    mu = np.maximum(mu, 1e-300)
    with np.errstate(over="ignore", invalid="ignore"):
        log_a, log_b = log_ndtr(0.5 * mu - epsilon / mu), log_ndtr(-0.5 * mu - epsilon / mu)
        gap = np.minimum(np.where(np.isfinite(log_a), epsilon + log_b - log_a, 0.0), 0.0)
        return np.exp(log_a) * -np.expm1(gap)


def _needed_mu(epsilon: Array, delta: Array) -> Array:
    """The mu at which the Gaussian's profile passes through (epsilon, delta), rounded; 0 where delta <= 0."""
    low, high = np.full(epsilon.size, np.log(SMALLEST_MU)), np.full(epsilon.size, np.log(LARGEST_MU))
    for _ in range(48):
        middle = 0.5 * (low + high)
        enough = gaussian_profile(np.exp(middle), epsilon) >= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(delta > 0.0, np.exp(low), 0.0)


def covering_mu(epsilons: Array, deltas: Array, unexplained: float) -> tuple[Array, Array]:
    """For each interval between corners of the samples' convex hull: its middle, and a mu that covers it.

    The true profile is convex in e^epsilon and so at most its chords. A chord ``c - a e^epsilon`` is covered, for all
    epsilon at once, by every mu whose trade-off function is at most ``1 - c + unexplained`` at ``alpha = a``.

    Args:
        epsilons: shape (n,), increasing, n >= 2.
        deltas: shape (n,), at least the true profile there.
        unexplained: the part of delta that mu need not explain.

    Returns: two arrays of one length, below n. Each mu errs upward.
    """
    corners = _lower_hull(np.exp(epsilons), deltas)
    epsilon, delta = epsilons[corners], deltas[corners]
    ratio = np.exp(epsilon)
    width = np.diff(epsilon)
    rounding = 8.0 * UNIT_ROUNDOFF * (1.0 + (1.0 + epsilon[1:]) / width)
    alpha = -np.diff(delta) / np.diff(ratio)
    beta = 1.0 - delta[:-1] - alpha * ratio[:-1] * (1.0 + rounding) - 8.0 * UNIT_ROUNDOFF
    alpha = alpha * (1.0 - rounding)
    # G_mu(alpha) <= beta + unexplained exactly if mu >= -ndtri(alpha) - ndtri(beta + unexplained).
    covered = np.clip(beta + unexplained, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mu = np.maximum(-ndtri(np.clip(alpha, 0.0, 1.0)) - ndtri(covered), 0.0)
    mu[covered == 1.0] = 0.0  # any mu will do; at alpha = 0 the difference would be undefined
    return 0.5 * (epsilon[:-1] + epsilon[1:]), mu


def _lower_hull(x: Array, y: Array) -> list[int]:
    """Indices of the corners of the lower convex hull, x increasing."""
    hull: list[int] = []
    u, v = x.tolist(), y.tolist()  # far quicker to read one by one
    for k in range(x.size):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            if (v[j] - v[i]) * (u[k] - u[j]) < (v[k] - v[j]) * (u[j] - u[i]):
                break
            hull.pop()
        hull.append(k)
    return hull


def _certainly_needed(epsilon: float, delta: float, mu: float) -> float:
    """A mu at most the given one, up to rounding, whose profile certainly stays below delta at epsilon."""
    step = 1e-12
    while mu > SMALLEST_MU and gaussian_delta(1.0, mu, epsilon, Side.UPPER) > delta:
        mu, step = mu * exp(-step), 2.0 * step
    return mu if mu > SMALLEST_MU else 0.0
