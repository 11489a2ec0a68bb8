"""Random allocation bounded by Poisson sampling at a slightly larger rate (feldman-shenfeld-2025, Theorem 3.2).

Outside a bad event a step's posterior is at most ``eta = 1 / (n (1 - gamma))``; its probability is added to delta.
``theorem_rate`` is the paper's bound of it, ``bennett_rate`` a sharper one; the smaller rate is taken. k-of-t is split
into k blocks of at least ``n = floor(t/k)`` steps (Lemma 3.11).

Proofs, for both directions: docs/theory/allocation.md. Errs upward: in the theorem, in the upper Poisson laws, and in
the rates, which are rounded up.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import cosh, expm1, log, log1p, sqrt

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.direct import independent_steps_law
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import Law
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

SLACK_SHARE = 0.03
"""Share of the target delta that goes to the bad event: the rate depends only on its logarithm."""
BROAD_SLACKS = (1e-8, 1e-14)
"""Slacks for the part of the profile far above the target; each costs one more law."""
BAD_EVENT_SHARES = (0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Tried divisions of the slack between delta' and t delta0."""
ROUNDING = 1e-12

Rate = Callable[[AveragedSteps, float], float]
"""A Poisson rate that is large enough when the bad events of the whole run have at most this probability."""


def theorem_rate(pair: AveragedSteps, slack: float) -> float:
    """eta of Theorem 3.2 and Corollary 3.12 with (eps0, delta0, delta') chosen well; 1 where the theorem says nothing.

    ``slack`` is ``epochs (t delta0 + delta')``. Errs upward: delta0 is the Gaussian profile rounded up.
    """
    visits, smallest = pair.participations, 1.0
    step = partial(gaussian_delta, pair.visit_noise, 1.0, side=Side.UPPER)
    for share in BAD_EVENT_SHARES:
        bad_event = share * slack / pair.epochs
        delta0 = (1.0 - share) * slack / (pair.epochs * pair.bins)
        epsilon0 = smallest_epsilon(step, delta0, Side.UPPER)
        if epsilon0 < 300.0:  # cosh overflows later; gamma would be 1 long before
            gamma = cosh(epsilon0) * sqrt(2.0 * log(visits / bad_event) / (pair.bins // visits))
            smallest = min(smallest, _rate(pair, gamma))
    return smallest


def bennett_rate(pair: AveragedSteps, slack: float) -> float:
    """The rate from Bennett's inequality for the likelihood ratios themselves; at most 1."""
    steps = pair.bins // pair.participations
    if pair.visit_noise**-2 > 300.0:
        return 1.0
    variance = expm1(pair.visit_noise**-2)
    needed = log(pair.epochs * pair.participations / slack) * (1.0 + ROUNDING)

    def exponent(gamma: float) -> float:
        u = gamma / variance
        if u < 1e-3:  # h(u) >= u^2/2 - u^3/6, free of cancellation
            return steps * variance * u * u * (0.5 - u / 6.0) * (1.0 - ROUNDING)
        return steps * variance * ((1.0 + u) * log1p(u) - u) * (1.0 - 1e-8)

    low, high = 0.0, 1.0
    if exponent(high) < needed:
        return 1.0
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if exponent(middle) >= needed else (middle, high)
    return _rate(pair, high)


def _rate(pair: AveragedSteps, gamma: float) -> float:
    """``1 / (n (1 - gamma))``, rounded up and clipped at 1; n is the shortest block."""
    steps = pair.bins // pair.participations
    return 1.0 if gamma >= 1.0 else min((1.0 + ROUNDING) / (steps * (1.0 - gamma)), 1.0)


def profiles(pair: AveragedSteps, settings: Settings, rates: tuple[Rate, ...]) -> Mapping[Direction, Profile]:
    """Both profiles: the smallest of the bounds over a few slacks, each with the smallest of the given rates.

    Cost: one Poisson law of ``bins * epochs`` steps for each slack (at most three).
    """
    target = settings.resolution.smallest_delta
    slacks = [SLACK_SHARE * target] + [slack for slack in BROAD_SLACKS if slack > 100.0 * target]
    laws: list[tuple[float, Law]] = []
    for slack in slacks:
        eta = min(rate(pair, slack) for rate in rates)
        if eta < 1.0:
            steps = IndependentSteps(
                noise_multiplier=pair.visit_noise, sampling_prob=eta, steps=pair.bins * pair.epochs
            )
            settings.deadline.tick()
            laws.append((slack, independent_steps_law(steps, Side.UPPER, settings)))
    return {direction: partial(_delta, pair, laws, direction) for direction in Direction}


def _delta(pair: AveragedSteps, laws: list[tuple[float, Law]], direction: Direction, epsilon: float) -> float:
    # Rate 1 needs no bad event: every step sees the example, one Gaussian of sensitivity sqrt(bins * epochs).
    whole = gaussian_delta(pair.visit_noise, sqrt(pair.bins * pair.epochs), epsilon, Side.UPPER)
    bounds = [law_delta(law, epsilon, direction) + slack * (1.0 + ROUNDING) for slack, law in laws]
    return min([whole, *bounds])


ACCOUNTANT = Accountant(
    name="analytic",
    summary="random allocation as Poisson sampling at a slightly larger rate, plus a small delta",
    sides=(Side.UPPER,),
    errs="upward by the larger rate and the added delta; the Poisson laws are upper laws",
    reference="feldman-shenfeld-2025, Theorem 3.2 and Corollary 3.12; docs/theory/allocation.md",
    analyses={AveragedSteps: lambda pair, side, settings: profiles(pair, settings, (theorem_rate, bennett_rate))},
    cost=lambda pair: 0.3 + 0.1 * log(pair.bins * pair.epochs),
    no_better_than=("direct",),
)
