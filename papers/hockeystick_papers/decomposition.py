"""Random allocation bounded by Poisson sampling conditioned on at least one visit (feldman-shenfeld-2025, Theorem 4.1).

With ``lambda'`` the probability of a visit in n Poisson steps, ``X_+ = (X_Poisson - (1 - lambda')) / lambda'``
dominates 1-of-n allocation for any rate, and the closer the smaller the rate; dividing by lambda' magnifies the error
of places, which is what stops it. k-of-t is split into blocks as in ``direct``.

Proofs for both directions, of which the printed theorem has one: docs/theory/allocation.md. Errs upward: by the
theorem, and because every law is an upper law.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import expm1, log1p

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.direct import independent_steps_law, law_of_blocks
from hockeystick.bounds import Profile
from hockeystick.laws.law import Law
from hockeystick.laws.operations import unthin
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
    settings.deadline.tick()
    return law_of_blocks(
        pair, lambda size: visited_block_law(pair.visit_noise, size, expected_visits, settings), settings
    )


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


def _analyse(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    laws = [allocation_law(pair, visits, settings) for visits in best_expected_visits(pair, settings)]
    return {direction: _profile(laws, (direction,)) for direction in Direction}


ACCOUNTANT = Accountant(
    name="decomposition",
    summary="random allocation as Poisson sampling given at least one visit",
    sides=(Side.UPPER,),
    errs="upward by allowing more than one visit; the laws are upper laws",
    reference="feldman-shenfeld-2025, Theorem 4.1 and Lemma 4.2; docs/theory/allocation.md",
    analyses={AveragedSteps: _analyse},
    cost=lambda pair: 0.5 + 0.15 * log1p(pair.bins * pair.epochs),
    no_better_than=("direct",),
)
