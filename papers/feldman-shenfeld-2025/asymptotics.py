"""Section 3.3 and Appendix C: Corollary 3.12, Remark 3.10, Lemma 3.13, Corollary 3.14 and Claim C.1.

The proofs, and why two of the statements are false for every choice of their constants, are in
docs/theory/allocation.md, "Asymptotic statements".
"""

from dataclasses import dataclass
from math import cosh, exp, log, log1p, pi, sqrt

import numpy as np
from scipy.stats import norm

import hockeystick as hs
from hockeystick.reproduction.curves import judge, precise
from hockeystick.reproduction.papers import Check, Output
from hockeystick_papers.renyi import averaged_moments

UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER
EPSILONS = (0.0, 0.01, 0.05, 0.2)
"""Where profiles are compared; the noise of Corollary 3.12 leaves little beyond."""


def poisson(sigma: float, rate: float, steps: int) -> hs.Mechanism:
    """Poisson sampling at any rate."""
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=min(rate, 1.0), steps=steps), noise_multiplier=sigma)


def allocation(sigma: float, steps: int, visits: int = 1) -> hs.Mechanism:
    """Random allocation: ``visits`` of the steps."""
    return hs.Mechanism(sampler=hs.RandomAllocation(bins=steps, participations=visits), noise_multiplier=sigma)


# --- Corollary 3.12, second part --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """k of t steps at a delta, with the least noise that the second part of Corollary 3.12 allows."""

    steps: int
    visits: int
    delta: float

    @property
    def sigma(self) -> float:
        """The least noise, a little above the printed strict bound."""
        logarithm = log(self.steps / self.delta)
        return 8.0 * max(sqrt(logarithm), sqrt(self.visits / self.steps) * logarithm) * (1.0 + 1e-9)

    @property
    def printed_gamma(self) -> float:
        """gamma of the first part with the printed eps0, and cosh where the printed proof computes sinh."""
        step = sqrt(2.0 * log(1.25 * self.steps / self.delta)) / self.sigma
        return cosh(step) * sqrt(2.0 * self.visits / self.steps * log(self.visits / self.delta))


SETTINGS = (Setting(100, 1, 1e-6), Setting(80, 1, 1e-6), Setting(1000, 200, 1e-8), Setting(60, 20, 1e-6))


def failure(sigma: float, steps: int, gamma: float) -> float:
    """At least the chance, under Q, that some posterior of one visit in ``steps`` steps is above 1/(steps (1 - gamma)).

    ``sum_{j<=i} (1 - X_j) <= -sum log X_j``, a normal walk with the drift ``1/(2 sigma^2)`` and steps of deviation
    1/sigma; Doob's inequality for its exponential gives the bound.
    """
    room = gamma * sigma - 0.5 / sigma
    return exp(-0.5 * steps * room * room) if room > 0.0 else 1.0


def corollary_3_12_checks(output: Output) -> list[Check]:
    """gamma of the printed proof, the chance that our proof needs, and the certified profiles."""
    checks = []
    for setting in SETTINGS:
        output.deadline.tick()
        where = f"t={setting.steps}, k={setting.visits}, delta={setting.delta:g}, sigma={setting.sigma:.4g}"
        gamma = setting.printed_gamma
        why = "the printed proof has sinh for cosh; the statement does not need it"
        what = f"Corollary 3.12, gamma of the printed proof, {where}"
        checks.append(Check(what, "<=", 0.5, gamma, gamma <= 0.5, why))
        block = setting.steps // setting.visits
        spent = setting.visits * failure(setting.sigma, block, 0.5 * (block - 1.0) / block)
        share = spent / setting.delta
        what = f"Corollary 3.12, chance of our bad events / delta, {where}"
        checks.append(Check(what, "<=", 1.0, share, share <= 1.0))
        ours = precise(allocation(setting.sigma, setting.steps, setting.visits), "direct", output, UPPER)
        rate = 2.0 * setting.visits / setting.steps
        theirs = precise(poisson(setting.sigma, rate, setting.steps), "direct", output, LOWER)
        excess = max(ours.delta(epsilon) - theirs.delta(epsilon) for epsilon in EPSILONS) / setting.delta
        checks.append(
            judge(f"Corollary 3.12: (delta_A - delta_P at 2k/t) / delta, largest, {where}", "<=", "2", upper=excess)
        )
    return checks


# --- Remark 3.10 ------------------------------------------------------------------------------------------------------


def reverse_gamma(sigma: float, steps: int, slack: float) -> float:
    """gamma with ``delta_P <= delta_A + slack`` for Poisson sampling at 1/(t (1 + gamma)), in both directions.

    Ratios above ``c`` have the chance slack/3 under either law, over all steps; ratios that are cut there are at most
    c, and Hoeffding's maximal inequality has the last third.
    """
    third = slack / 3.0
    visited = 0.5 / sigma**2 + float(norm.isf(third)) / sigma
    unvisited = -0.5 / sigma**2 + float(norm.isf(third / steps)) / sigma
    largest = exp(max(visited, unvisited))
    return largest * (sqrt(-log(third) / (2.0 * steps)) + 1.0 / steps)


def remark_checks(output: Output) -> list[Check]:
    """The reverse bound at an explicit rate, which tends to 1/t."""
    checks, slack, gammas = [], 1e-7, []
    for steps, sigma in ((10_000, 3.0), (1_000_000, 3.0)):
        output.deadline.tick()
        gamma = reverse_gamma(sigma, steps, slack)
        gammas.append(gamma)
        lower = precise(allocation(sigma, steps), "direct", output, LOWER)
        upper = precise(poisson(sigma, 1.0 / (steps * (1.0 + gamma)), steps), "direct", output, UPPER)
        excess = max(
            upper.profiles[direction](epsilon) - lower.profiles[direction](epsilon)
            for direction in hs.Direction
            for epsilon in (0.0, 0.001, 0.01)
        )
        what = f"Remark 3.10: (delta_P at 1/(t (1 + gamma)) - delta_A) / {slack:g}, t={steps}, sigma={sigma:g}"
        checks.append(judge(f"{what}, gamma={gamma:.3g}", "<=", "1", upper=excess / slack))
    what = "Remark 3.10: gamma at t=1e6 / at t=1e4; 1/sqrt(100) but for logarithms"
    return [*checks, Check(what, "<", 0.2, gammas[1] / gammas[0], gammas[1] < 0.2 * gammas[0])]


# --- Lemma 3.13 and Corollary 3.14 ------------------------------------------------------------------------------------


def lemma_constant(steps: int, rate: float, sigma: float, delta: float, epsilon: float) -> float:
    """The c2 that Lemma 3.13 needs where this epsilon is the true one."""
    root = sqrt(steps * -log(delta))
    return epsilon / max(rate * root / sigma, rate**2 * root)


def corollary_constant(steps: int, delta: float, first: float = 1.0) -> float:
    """At least the c2 that Corollary 3.14 needs for k = t/16, c1 = ``first`` and the least noise allowed; 0 if unknown.

    The sum of all outputs is normal around k or around 0 with deviation ``sigma sqrt(t)``, so delta is at least that of
    one Gaussian of shift ``mu = k / (sigma sqrt(t))``. At ``epsilon = mu^2/2`` that is at least
    ``1/2 - 1/(mu sqrt(2 pi))``.
    """
    visits = steps // 16
    share = visits / steps
    third = sqrt(steps * -log(delta) * -log(share)) / visits
    sigma = first * max(sqrt(log(steps / delta)), sqrt(share) * log(steps / delta), third)
    shift = visits / (sigma * sqrt(steps))
    known = delta < 0.5 - 1.0 / (shift * sqrt(2.0 * pi))
    return lemma_constant(steps, share, sigma, delta, 0.5 * shift * shift) if known else 0.0


FAR_STEPS = (10**4, 10**5, 5 * 10**5)
"""Of Lemma 3.13; epsilon is some hundreds at the last."""
FAR_DELTA, FAR_RATE, FAR_SIGMA = 1e-5, 1.0 / 16.0, 2.0


def constants_checks(output: Output) -> list[Check]:
    """No c1, c2 exist: the c2 that is needed grows without bound, unless ``t lambda^2 <= sigma^2 ln(1/delta)``."""
    needed = []
    for steps in FAR_STEPS:
        output.deadline.tick()
        run = poisson(FAR_SIGMA, FAR_RATE, steps)
        epsilon = precise(run, "direct", output, LOWER, FAR_DELTA).epsilon(FAR_DELTA)
        needed.append(lemma_constant(steps, FAR_RATE, FAR_SIGMA, FAR_DELTA, epsilon))
    note = "refuted: needed at t = " + ", ".join(
        f"{steps:g}: {value:.3g}" for steps, value in zip(FAR_STEPS, needed, strict=True)
    )
    where = f"lambda=1/16, sigma={FAR_SIGMA:g}, delta={FAR_DELTA:g}"
    growth = needed[-1] / needed[0]
    checks = [Check(f"Lemma 3.13: the least c2 at t=5e5 / at t=1e4, {where}", "~", 1.0, growth, growth < 1.5, note)]
    least = {power: corollary_constant(16 * 10**power, FAR_DELTA) for power in (3, 5, 7, 9, 11)}
    note = "refuted: needed at t = " + ", ".join(f"1.6e{power + 1}: {value:.3g}" for power, value in least.items())
    growth = least[11] / least[7]
    what = "Corollary 3.14: the least c2 at t=1.6e12 / at t=1.6e8, k=t/16, c1=1"
    checks.append(Check(what, "~", 1.0, growth, growth < 1.5, note))
    largest = max(premise_constants(output))
    what = "Lemma 3.13 where t lambda^2 <= sigma^2 ln(1/delta) as well: the largest c2 needed, c1=1, on a grid"
    return [*checks, Check(what, "<=", 2.0, largest, largest <= 2.0)]


def premise_constants(output: Output) -> list[float]:
    """At least the c2 that is needed under the further premise, over a grid of t, lambda, sigma and delta."""
    needed = []
    for steps, rate, delta in ((1000, 1 / 16, 1e-5), (10_000, 1 / 64, 1e-5), (10**6, 1e-3, 1e-9), (10**4, 1e-3, 1e-3)):
        logarithm = -log(delta)
        least = max(1.0, sqrt(logarithm / steps) / rate, rate * sqrt(steps / logarithm))
        for sigma in (least, 3.0 * least, 30.0 * least):
            output.deadline.tick()
            epsilon = precise(poisson(sigma, rate, steps), "direct", output, UPPER, delta).epsilon(delta)
            needed.append(lemma_constant(steps, rate, sigma, delta, epsilon))
    return needed


# --- Claim C.1 --------------------------------------------------------------------------------------------------------


def conversion(order: float, delta: float) -> float:
    """What Lemma 2.4 adds to a divergence of this order: not negative up to 1/(e delta), negative from 1/(2 delta)."""
    return (-log(delta) - log(order - 1.0) + order * log1p(-1.0 / order)) / (order - 1.0)


def claim_checks(output: Output) -> list[Check]:
    """Claim C.1: an order whose divergence is above a known bound on epsilon is above the best order.

    Let P be the half of Q on which the ratio is 2: all divergences are ln 2, and epsilon at delta = 0.1 is
    ``ln(2 (1 - 0.1))``, which the conversion reaches at order 10 alone. So the claim, at order 2, says that 10 < 2.
    """
    delta, divergence = 0.1, log(2.0)
    truth = divergence + log1p(-delta)
    orders = np.arange(2.0, 41.0)
    each = np.array([divergence + conversion(order, delta) for order in orders])
    best = float(orders[int(np.argmin(each))])
    note = f"R_2 = {divergence:.4g} is above epsilon = {truth:.4g}, and order {best:g} gives {each.min():.4g}"
    what = "Claim C.1: the best order where R_2 > eps, P uniform on half of Q's support, delta=0.1"
    checks = [Check(what, "<", 2.0, best, best < 2.0, f"refuted for orders above 1/(e delta): {note}")]
    held, steps, delta = True, 10**6, 1e-10
    for sigma in (0.4, 0.5, 0.7, 1.0, 2.0):
        output.deadline.tick()
        moments = averaged_moments(sigma, steps, 60)
        divergences = moments.values / (moments.orders - 1.0)
        each = divergences + np.array([conversion(float(order), delta) for order in moments.orders])
        best = float(moments.orders[int(np.argmin(each))])
        held = held and all(best < order for order in moments.orders[divergences > each.min()])
    what = f"Claim C.1 for orders up to 60, below 1/(e delta), t={steps:g}, delta={delta:g}: holds, 1 if so"
    return [*checks, Check(what, ">=", 1.0, float(held), held)]


def asymptotics(output: Output) -> None:
    """Every check of this module."""
    groups = (corollary_3_12_checks, remark_checks, constants_checks, claim_checks)
    output.checks("asymptotics", [check for group in groups for check in group(output)])
