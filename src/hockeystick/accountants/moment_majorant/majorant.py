"""Bounds on a delta from moments: a polynomial that is proved to lie on one side of the payoff, and its expectation.

Where Y has the moments, ``F <= p`` on [0, oo) gives ``delta = E F(Y) <= E p(Y)``, and ``F >= q`` gives
``delta >= E q(Y)``: a proposal of the programme is repaired until the proof accepts it, and only then its expectation
is taken, from rational moments and towards the safe side. Nothing that the programme computes is taken on trust.

Theory: ``docs/theory/moment-majorants/programme.md`` and ``proof.md``.
"""

from collections.abc import Sequence
from functools import cache
from math import inf, isfinite, isnan, nextafter

from hockeystick.accountants.moment_majorant.base import ExactMoments, Payoff
from hockeystick.accountants.moment_majorant.floor import price_below
from hockeystick.accountants.moment_majorant.payoff import LARGEST_EPSILON, SplitPayoff
from hockeystick.accountants.moment_majorant.programme import Proposal, propose
from hockeystick.accountants.moment_majorant.proof import expectation, proves, repair_needed, repaired
from hockeystick.bounds import SMALLEST_UPPER, Profile
from hockeystick.types import Direction, Side
from hockeystick.watch import Watch

CLOSE = 1e-4
"""So near, relatively, to the optimum of its own programme a bound is not improved by lower degrees."""


def majorant_delta(
    moments: ExactMoments,
    payoff: Payoff,
    side: Side,
    degrees: Sequence[int],
    floor: float = 0.0,
    watch: Watch | None = None,
) -> float:
    """The best bound on ``E F(Y)`` among the degrees, on its side.

    Optima improve with the degree, but what moments of high order are known to, and what a proof can resolve, may not
    suffice: degrees are tried from the highest down, until the best bound so far is close to the optimum of the last
    programme, and so no lower degree can give a better one.

    Formal guarantee: for every law on [0, oo) with these moments within their errors, at least E F (UPPER), provided
    that E F is at most 1, or at most E F (LOWER), provided that F >= 0; 1 or 0 where no degree gives more. Never above
    1, nor below ``SMALLEST_UPPER`` (UPPER), nor below 0 (LOWER).

    Args:
        moments: of Y, orders 0 to the largest degree at least.
        payoff: F.
        degrees: to choose from, each >= 2.
        floor: polynomials need not be on their side below it; Y is there with probability ``floor.BEYOND`` at most.
        watch: told of every programme.

    Cost: some milliseconds for each degree that is tried, which is one in most cases.
    """
    watch = watch or Watch()
    best = 1.0 if side is Side.UPPER else 0.0
    better = min if side is Side.UPPER else max
    for degree in sorted(degrees, reverse=True):
        watch.tick()
        proposal = propose(moments, payoff, side, degree=degree, start=floor)
        if proposal is None and floor > 0.0:  # a floor that is too close to all of the law
            proposal = propose(moments, payoff, side, degree=degree)
        if proposal is None:
            continue
        best = better(best, proved_expectation(proposal, moments, payoff, side, floor))
        slack = CLOSE * abs(proposal.value)
        if (best <= proposal.value + slack) if side is Side.UPPER else (best >= proposal.value - slack):
            break
    return max(best, SMALLEST_UPPER) if side is Side.UPPER else min(best, 1.0)


def proved_expectation(
    proposal: Proposal, moments: ExactMoments, payoff: Payoff, side: Side, floor: float = 0.0
) -> float:
    """The expectation of the repaired proposal; infinite, to the useless side, where its proof does not close.

    What may hide below the floor, if there is one, is charged.
    """
    useless = inf if side is Side.UPPER else -inf
    if proposal.points[0] > floor:
        return useless
    eta = repair_needed(proposal.polynomial, proposal.repair, payoff, side, proposal.points)
    if not isfinite(eta):
        return useless
    polynomial = repaired(proposal.polynomial, proposal.repair, eta, side)
    if not proves(polynomial, payoff, side, proposal.points):
        return useless
    value = expectation(polynomial, moments, side)
    if floor > 0.0:
        hidden = price_below(polynomial, floor)
        value = nextafter(value + hidden, inf) if side is Side.UPPER else nextafter(value - hidden, -inf)
    return useless if isnan(value) else value


def majorant_profile(
    moments: ExactMoments,
    variance: float,
    direction: Direction,
    side: Side,
    *,
    degrees: Sequence[int],
    floor: float = 0.0,
    watch: Watch | None = None,
) -> Profile:
    """delta as a function of epsilon, on its side, where the likelihood ratio is ``L Y``.

    Args:
        moments: of Y >= 0, whose mean is 1, without the common factor.
        variance: v >= 0, of ``ln L``: L is log-normal with mean 1 and independent of Y.
        direction: of the profile.
        degrees: to choose from, each from 2 to ``moments.degree``.
        floor: see :func:`majorant_delta`.
        watch: told of every programme.

    Cost: that of :func:`majorant_delta` for each new epsilon.
    """

    @cache
    def profile(epsilon: float) -> float:
        if epsilon > LARGEST_EPSILON and side is Side.LOWER:
            return 0.0
        # delta falls with epsilon, so beyond the largest one its upper bound there is one still
        payoff = SplitPayoff(direction, min(epsilon, LARGEST_EPSILON), variance)
        return majorant_delta(moments, payoff, side, degrees, floor, watch)

    return profile
