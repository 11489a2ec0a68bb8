"""Random allocation bounded by Poisson sampling conditioned on at least one visit (feldman-shenfeld-2025, Theorem 4.1).

Poisson sampling of n steps at rate ``lambda`` visits with probability ``lambda' = 1 - (1 - lambda)^n``; on the level
of likelihood ratios ``X_Poisson = (1 - lambda') + lambda' X_+``, where X_+ is the ratio given a visit. More visits are
worse, so X_+ dominates 1-of-n allocation and both profiles follow from the one law of
``X_+ = (X_Poisson - (1 - lambda')) / lambda'``, for any lambda. Spelled out:

* remove: ``delta(eps) <= delta_Poisson(eps') / lambda'``, ``e^eps' = 1 + lambda' (e^eps - 1)``: Theorem 4.1;
* add: ``delta(eps) <= (d / lambda') delta_Poisson(eps - ln d)``, ``d = lambda' + e^eps (1 - lambda')``.

The printed theorem has the first formula for the worse of the two directions; its proof covers remove only. It is false
in general (papers/feldman-shenfeld-2025: randomised response), and with the add profiles on both sides it is false for
Gaussians too (one step, sigma = 1, lambda = 1/2, eps = 1: the truth is 0.1269, the formula says 0.0007).

**More visits are worse (Lemma 4.2), in both directions.** Let X_1..X_n be independent, non-negative, of mean 1, and
``e_k`` the mean over the k-subsets S of ``X_S = prod_{j in S} X_j``: the ratio of k-of-n allocation. For any mixture
``M = sum_l w_l e_l`` over l >= k and any convex f, ``E f(M) >= E f(e_k) + E f'(e_k)(M - e_k)``, and ``e_l - e_k`` is
the mean, over disjoint S and T of sizes k and l - k, of ``X_S (X_T - 1)``. Given the X_j outside T, ``f'(e_k)`` and
``X_T - 1`` both increase in the independent X_j of T and ``E(X_T - 1) = 0``; by Harris the mean of their product is at
least 0. So ``E f(M) >= E f(e_k)`` for every convex f: both hockey-stick divergences. (The paper argues step by step
with posterior probabilities; these depend on the view, so its composition argument does not close.)

**The smaller lambda, the better.** The number of visits given a visit grows stochastically with lambda, and a mixture
M' with stochastically more visits has ``M' - M = sum_m c_m (e_m - e_{m-1})`` with c_m >= 0, to which the same argument
applies. For lambda -> 0 the bound becomes 1-of-n itself; what stops there is rounding, since dividing by lambda'
magnifies the error of places. Every lambda is valid.

k-of-t is split into k blocks of floor(t/k) or one more steps, visited once each (Lemma 3.11), epochs are composed,
exactly as in the ``direct`` accountant. Errs upward: by the theorem, and because every law is an upper law.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp, expm1, log1p

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.direct import independent_steps_law
from hockeystick.bounds import Profile
from hockeystick.laws.law import Law
from hockeystick.laws.operations import compose, power, unthin
from hockeystick.laws.profile import law_delta, smallest_epsilon
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

EXPECTED_VISITS = (1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0)
"""Candidates for lambda n: the smallest that rounding allows is best, and is found on coarse grids."""
COARSE_NODES_PER_UNIT = 16
BROAD_TARGET = 1e-6
"""The profile is also tuned for this delta when the target is far smaller."""


def visited_block_law(noise_multiplier: float, steps: int, expected_visits: float, settings: Settings) -> Law:
    """The upper law of ``steps`` Poisson steps, ``expected_visits`` visits on average, given at least one visit."""
    sampling_prob = min(expected_visits / steps, 1.0)
    pair = IndependentSteps(noise_multiplier=noise_multiplier, sampling_prob=sampling_prob, steps=steps)
    law = independent_steps_law(pair, Side.UPPER, settings)
    if sampling_prob == 1.0:
        return law
    return unthin(law, -expm1(steps * log1p(-sampling_prob)))


def allocation_law(pair: AveragedSteps, expected_visits: float, settings: Settings) -> Law:
    """An upper law of the whole pair; ``expected_visits`` is lambda times the steps of a block."""
    resolution, tick = settings.resolution, settings.deadline.tick
    tick()
    size, longer = divmod(pair.bins, pair.participations)
    block = visited_block_law(pair.visit_noise, size, expected_visits, settings)
    epoch = power(block, pair.participations - longer, resolution, tick=tick)
    if longer:
        block = visited_block_law(pair.visit_noise, size + 1, expected_visits, settings)
        epoch = compose(epoch, power(block, longer, resolution, tick=tick), resolution, tick=tick)
    return power(epoch, pair.epochs, resolution, tick=tick)


def best_expected_visits(pair: AveragedSteps, settings: Settings) -> tuple[float, ...]:
    """The candidates with the smallest epsilon at the target deltas, judged on coarse grids (any choice is valid)."""
    target = settings.resolution.smallest_delta
    targets = (target, BROAD_TARGET) if target < 1e-6 * BROAD_TARGET else (target,)
    coarse = replace(settings, resolution=replace(settings.resolution, nodes_per_unit=COARSE_NODES_PER_UNIT))
    laws = {visits: allocation_law(pair, visits, coarse) for visits in EXPECTED_VISITS}
    best = {min(laws, key=lambda visits: smallest_epsilon(_profile([laws[visits]]), at, Side.UPPER)) for at in targets}
    return tuple(sorted(best))


def _profile(laws: list[Law], directions: tuple[Direction, ...] = tuple(Direction)) -> Profile:
    """The smallest of the laws' profiles, each the larger of the given directions."""

    def profile(epsilon: float) -> float:
        return min(max(law_delta(law, epsilon, direction) for direction in directions) for law in laws)

    return profile


def printed_formula(poisson: Profile, steps: int, sampling_prob: float, epsilon: float) -> float:
    """The right-hand side of Theorem 4.1 as printed. Valid for the remove direction only; kept for comparison."""
    rate = -expm1(steps * log1p(-sampling_prob))
    return poisson(log1p(rate * (exp(epsilon) - 1.0))) / rate


def _analyse(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    laws = [allocation_law(pair, visits, settings) for visits in best_expected_visits(pair, settings)]
    return {direction: _profile(laws, (direction,)) for direction in Direction}


ACCOUNTANT = Accountant(
    name="decomposition",
    summary="random allocation as Poisson sampling given at least one visit",
    sides=(Side.UPPER,),
    errs="upward by allowing more than one visit; the laws are upper laws",
    reference="feldman-shenfeld-2025, Theorem 4.1 and Lemma 4.2; proof for both directions in the module",
    analyses={AveragedSteps: _analyse},
    cost=lambda pair: 0.5 + 0.15 * log1p(pair.bins * pair.epochs),
    no_better_than=("direct",),
)
