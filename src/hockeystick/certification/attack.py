"""What an attacker can gain, from a bound on the privacy profile."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, isfinite
from typing import Any

import numpy as np

from hockeystick.accountants.registry import ACCOUNTANTS, accountant
from hockeystick.attacks.gaussian import covering_mu, gaussian_profile
from hockeystick.bounds import Bound, Profile, Question, best_of
from hockeystick.certificate import AttackNumbers
from hockeystick.certification.chords import tabulated
from hockeystick.certification.schedule import Outcome
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Array
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

FALSE_POSITIVE_RATES = {"tpr_at_fpr_0_1": 0.1, "tpr_at_fpr_0_01": 0.01, "tpr_at_fpr_0_001": 0.001}
EPSILONS = tuple(0.02 * 1.1 ** (place / 3.0) for place in range(192))
"""Where the profile is read for the rates, up to 8.6 and as far as that helps; every one of them gives a bound."""
ROUNDING = 1e-14
"""More than the rounding of a few operations on numbers of at most 1, or on at most 5,600 times 0.1, relatively."""
POINTS = 129
"""Epsilons at which the profile is read for mu, evenly from 0 to where it falls to the certified delta."""
LARGEST_UNEXPLAINED = 0.1
"""Above it no mu is stated: so much of delta is no remainder."""
REGRET_ROUNDING = 1e-5
"""Added to the regret, a difference of two numbers whose last digits depend on the machine."""
KNOTS = 17
"""Epsilons at which a profile that is slow to evaluate is read; the bound between them is their chords."""
SMALL_DELTA = 1e-4
"""The knots go at least to where the profile is this small."""
MOST_REACH = 100.0
"""But to no larger epsilon than this."""


def attack_numbers(bound: Bound, delta: float, near: float | None = None) -> AttackNumbers:
    """What any attack gains at most, from an UPPER bound; every number errs upward.

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
    >>> numbers = attack_numbers(bound, 1e-5)
    >>> round(numbers.advantage, 4), round(numbers.gdp_mu, 2)
    (0.3829, 1.0)
    """
    reach = _reach(bound, delta, near)
    early = [0.0, *(at for at in EPSILONS if at <= reach)] if reach <= MAX_EPSILON else [0.0]
    deltas = dict(zip(early, bound.delta(early).tolist(), strict=True))
    advantage = deltas[0.0]
    least = {name: advantage + false for name, false in FALSE_POSITIVE_RATES.items()}
    for at in EPSILONS:
        # Both bounds at delta = 0, which grow with epsilon: no later epsilon helps where they are not below the least.
        if all(min(exp(at) * r, 1.0 - exp(-at) * (1.0 - r)) >= least[name] for name, r in FALSE_POSITIVE_RATES.items()):
            break
        known = deltas[at] if at in deltas else bound.delta(at)
        for name, false in FALSE_POSITIVE_RATES.items():
            most = min(known + exp(at) * false, 1.0 - exp(-at) * max(1.0 - known - false, 0.0))
            least[name] = min(least[name], most)
    rates: dict[str, Any] = {name: min(most * (1.0 + ROUNDING) + ROUNDING, 1.0) for name, most in least.items()}
    mu, regret = _gaussian_dp(bound, delta, reach)
    return AttackNumbers(
        advantage=advantage,
        bayes_success=min(0.5 * (1.0 + advantage) + ROUNDING, 1.0),
        gdp_mu=mu,
        gdp_regret=regret,
        **rates,
    )


def _reach(bound: Bound, delta: float, near: float | None = None) -> float:
    """Where an upper bound falls to ``delta``; infinite where no mu is stated."""
    return bound.epsilon(delta, near) if 0.0 < delta <= LARGEST_UNEXPLAINED else float("inf")


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
    """The regret of this mu, as :func:`attack_numbers` states it of its own mu; None where no mu is stated."""
    samples = _samples(bound, delta, _reach(bound, delta))
    return None if samples is None else _regret(*samples, mu)


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


def implied_bound(pair: DominatingPair, question: Question, end: Outcome, upper: float, settings: Settings) -> Bound:
    """The smaller of what a certified pair of numbers implies and the unamplified Gaussian, at every epsilon.

    It has the confidence of the certified pair of numbers.

    Args:
        end: what the method that certified them said.
        upper: the certified epsilon, or delta, that answers the question.
    """
    epsilon, delta = question.claimed(upper)

    def at_least(at: float) -> float:
        return implied_delta(epsilon, delta, at)

    gaussian = ACCOUNTANTS["gaussian"]
    profiles: dict[Direction, Profile] = dict.fromkeys(Direction, at_least)
    bound = Bound(end.method, Side.UPPER, end.kind, end.confidence, "docs/theory/certificates.md", profiles)
    if gaussian.why_not(pair, Side.UPPER) is not None:
        return bound
    return tighter(bound, gaussian.bound(pair, Side.UPPER, Settings(settings.resolution)))


def tighter(bound: Bound, other: Bound) -> Bound:
    """At every epsilon the smaller of two upper bounds; the first one says what is claimed and may have no slack.

    The second one is read once at each epsilon: attack numbers and their regret are of the same epsilons.
    """
    paying = {profile: _Paying(other, profile) for profile in dict.fromkeys(other.profiles.values())}
    profiles = {
        direction: best_of(min, bound.profiles[direction], paying[profile])
        for direction, profile in other.profiles.items()
    }
    return replace(bound, profiles=profiles)


def whole_profile(
    pair: DominatingPair, question: Question, end: Outcome, upper: float, settings: Settings
) -> Bound | None:
    """The upper bound on the whole profile by the method that certified, with its slack; None where it has none.

    Monte Carlo has none: the failure probability of a certificate is that of one epsilon at one delta, and covers no
    curve. A profile that is slow to evaluate is read at ``KNOTS`` epsilons, between which its chords are a bound.

    Args:
        end: what the method said, which holds its bound.
        upper: the certified epsilon, or delta.
        settings: those of the certificate; their question is left out, with which a bound may be good there alone.

    Raises: BudgetExceededError when the deadline passes, MemoryError.
    """
    certifier = accountant(end.method)
    if certifier.kind is Kind.MONTE_CARLO:
        return None
    if not certifier.plans_effort:
        return end.bound
    deadline = settings.deadline
    try:
        alone = Settings(settings.resolution, deadline, effort=settings.effort, claimed=settings.claimed)
        bound = certifier.bound(pair, Side.UPPER, alone)
    except UnsupportedError:
        return None
    epsilon, delta = question.claimed(upper)
    reach = epsilon if delta <= SMALL_DELTA else bound.epsilon(SMALL_DELTA)
    reach = min(max(reach, 1e-3), MOST_REACH)
    return tabulated(bound, bound, [reach * (knot / (KNOTS - 1.0)) for knot in range(KNOTS)], deadline)


class _Paying:
    """A profile of a bound with the slack of the bound in it."""

    def __init__(self, bound: Bound, profile: Profile) -> None:
        self.alone = replace(bound, profiles=dict.fromkeys(Direction, profile))
        self.known: dict[float, float] = {}

    def __call__(self, epsilon: float) -> float:
        if epsilon not in self.known:
            self.known[epsilon] = self.alone.delta(epsilon)
        return self.known[epsilon]

    def each(self, epsilons: Sequence[float]) -> list[float]:
        fresh = [at for at in epsilons if at not in self.known]
        self.known |= zip(fresh, self.alone.delta(fresh).tolist(), strict=True)
        return [self.known[at] for at in epsilons]
