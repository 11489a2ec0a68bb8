"""What an attacker can gain, from a bound on the privacy profile."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, isfinite

import numpy as np

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.attacks.gaussian import covering_mu, gaussian_profile
from hockeystick.bounds import Bound, Profile, Question
from hockeystick.certificate import AttackNumbers
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

FALSE_POSITIVE_RATES = {"tpr_at_fpr_0_1": 0.1, "tpr_at_fpr_0_01": 0.01, "tpr_at_fpr_0_001": 0.001}
EPSILONS = tuple(0.02 * 1.1**place for place in range(64))
"""Where the profile is read for the rates, up to 8.1; every one of them gives a bound."""
ROUNDING = 1e-14
"""More than the rounding of a few operations on numbers of at most 1, or on at most 4,000 times 0.1, relatively."""
POINTS = 129
"""Epsilons at which the profile is read for mu, evenly from 0 to where it falls to the certified delta."""
LARGEST_UNEXPLAINED = 0.1
"""Above it no mu is stated: so much of delta is no remainder."""
REGRET_ROUNDING = 1e-5
"""Added to the regret, a difference of two numbers whose last digits depend on the machine."""
CHEAP = 0.5
"""Standard seconds: the own profile of a costlier method is not computed for these numbers."""


def attack_numbers(bound: Bound, delta: float) -> AttackNumbers:
    """What any attack gains at most, from an UPPER bound; every number errs upward.

    The largest difference of true and false positive rate is the total variation distance of the two output
    distributions, which is delta at epsilon 0. A test with false positive rate a has a true positive rate of at most
    ``delta + e^epsilon a`` and of at most ``1 - e^-epsilon (1 - delta - a)``, at every epsilon; the least over
    ``EPSILONS`` is taken, which :func:`hockeystick.attacks.true_positive_rate` refines (docs/theory/certificates.md).

    Args:
        delta: the certified one, which mu need not explain.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> bound = hs.bound(run, "gaussian")
    >>> found = attack_numbers(bound, 1e-5)
    >>> round(found.advantage, 4), round(found.gdp_mu, 2)
    (0.3829, 1.0)
    """
    advantage = bound.delta(0.0)
    deltas = [(at, bound.delta(at)) for at in EPSILONS]
    rates = {}
    for name, false in FALSE_POSITIVE_RATES.items():
        most = [advantage + false]
        for at, known in deltas:
            most += [known + exp(at) * false, 1.0 - exp(-at) * max(1.0 - known - false, 0.0)]
        rates[name] = min(min(most) * (1.0 + ROUNDING) + ROUNDING, 1.0)
    mu, regret = _gaussian_dp(bound, delta)
    return AttackNumbers(
        advantage=advantage,
        bayes_success=min(0.5 * (1.0 + advantage) + ROUNDING, 1.0),
        gdp_mu=mu,
        gdp_regret=regret,
        **rates,
    )


def _gaussian_dp(bound: Bound, delta: float) -> tuple[float | None, float | None]:
    """The mu of Gaussian DP that covers an upper bound but for ``delta``, and its regret.

    Where the bound has fallen to ``delta``, nothing is left to cover.
    """
    reach = bound.epsilon(delta) if 0.0 < delta <= LARGEST_UNEXPLAINED else float("inf")
    if reach > MAX_EPSILON:
        return None, None
    epsilons = np.linspace(0.0, max(reach, 1e-6), POINTS)
    deltas = np.array([bound.delta(float(at)) for at in epsilons])
    if deltas[0] <= delta:
        return 0.0, 0.0
    deltas[-1] = min(deltas[-1], delta)
    mu = float(covering_mu(epsilons, deltas, delta)[1].max()) * (1.0 + 1e-9) + 1e-13
    if not isfinite(mu):
        return None, None
    lost = (gaussian_profile(mu, epsilons) - deltas) / (1.0 + np.exp(epsilons))
    return mu, min(max(float(lost.max()), 0.0) + REGRET_ROUNDING, 1.0)


def implied_delta(epsilon: float, delta: float, at: float) -> float:
    """The delta at the epsilon ``at`` that (epsilon, delta) implies for every mechanism, rounded up.

    ``delta + (1 - delta) (e^epsilon - e^at) / (1 + e^epsilon)`` below epsilon and ``delta`` above: the profile of the
    worst mechanism (docs/theory/certificates.md; Kairouz, Oh and Viswanath 2017, Theorem 3.1).

    >>> implied_delta(0.0, 1e-5, 0.0)
    1e-05
    """
    if at >= epsilon:
        return delta
    share = (1.0 - exp(at - epsilon)) / (1.0 + exp(-epsilon))  # both between 0 and 1, no overflow
    return min(delta + (1.0 - delta) * share * (1.0 + 32.0 * UNIT_ROUNDOFF) + 8.0 * UNIT_ROUNDOFF, 1.0)


def guaranteed(
    pair: DominatingPair,
    question: Question,
    method: str,
    upper: float,
    settings: Settings,
) -> Bound:
    """The upper bound on the whole profile that a certificate has at hand.

    The best of three at every epsilon: what the certified pair of numbers implies, the unamplified Gaussian, and the
    profile of the certifying method where that is cheap. Costs are formulas, so it is the same on every machine. The
    bound has the confidence of the certified pair of numbers.

    Args:
        upper: the certified epsilon, or delta, that answers the question.
    """
    epsilon, delta = question.claimed(upper)

    def implied(at: float) -> float:
        return implied_delta(epsilon, delta, at)

    found: list[dict[Direction, Profile]] = [dict.fromkeys(Direction, implied)]
    plain = Settings(settings.resolution, effort=settings.effort)  # no deadline, on which the numbers would depend
    for name in dict.fromkeys(("gaussian", method)):
        one = ACCOUNTANTS[name]
        if one.kind is not Kind.DETERMINISTIC or one.why_not(pair, Side.UPPER) is not None or one.seconds(pair) > CHEAP:
            continue
        try:
            known = one.bound(pair, Side.UPPER, plain)
        except UnsupportedError:
            continue
        found.append({direction: _paying(known, profile) for direction, profile in known.profiles.items()})
    profiles = {direction: _least([one[direction] for one in found]) for direction in Direction}
    kind = ACCOUNTANTS[method].kind
    return Bound(method, Side.UPPER, kind, settings.confidence(kind), "docs/theory/certificates.md", profiles)


def _paying(bound: Bound, profile: Profile) -> Profile:
    """A profile of a bound with the slack of the bound in it."""
    alone = replace(bound, profiles=dict.fromkeys(Direction, profile))
    return lambda at: alone.delta(at)


def _least(profiles: Sequence[Profile]) -> Profile:
    return lambda at: min(profile(at) for profile in profiles)
