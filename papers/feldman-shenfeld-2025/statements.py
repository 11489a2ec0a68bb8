"""Corollary 4.5 exactly and by laws; Lemma D.1 by the simulation that the paper describes."""

from fractions import Fraction
from itertools import product
from math import expm1, log, log1p, prod, sqrt

import numpy as np

import hockeystick as hs
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import Law
from hockeystick.laws.operations import average, thin
from hockeystick.laws.profile import law_delta
from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check, Output

from .randomisers import Gaussian, Laplace, RandomisedResponse, Randomiser, direct, epsilon_of, poisson

UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER
ODDS, STEPS = 10, 5
"""Of the capped Poisson schemes whose outputs are enumerated."""
SAMPLES, SEED, FAILURE = 200_000, 20250502, 1e-9
"""Of a simulation of Lemma D.1: its interval fails with probability FAILURE."""
BATCH = 2_000


# --- Corollary 4.5: Poisson sampling with a capped number of participations -------------------------------------------

Participations = dict[tuple[int, ...], Fraction]


def capped(steps: int, rate: Fraction, most: int, first: bool) -> Participations:
    """Which steps, with which probability, when at most ``most`` of the sampled ones count.

    Those that count are the first ones or a uniformly random subset: the corollary does not say which, its proof uses
    the second.
    """
    chances: Participations = {}
    for coins in product((0, 1), repeat=steps):
        sampled = [step for step, coin in enumerate(coins) if coin]
        chance = prod(rate if coin else 1 - rate for coin in coins)
        kept = [tuple(sampled[:most])] if first else [tuple(s) for s in _subsets(sampled, most)]
        for participations in kept:
            chances[participations] = chances.get(participations, Fraction(0)) + chance / len(kept)
    return chances


def _subsets(sampled: list[int], most: int) -> list[list[int]]:
    """All subsets of this size, or the whole if it is no larger."""
    if len(sampled) <= most:
        return [sampled]
    return [
        [step for step, keep in zip(sampled, chosen, strict=True) if keep]
        for chosen in product((False, True), repeat=len(sampled))
        if sum(chosen) == most
    ]


def response_deltas(which: Participations, odds: int, steps: int, level: Fraction) -> tuple[Fraction, Fraction]:
    """(remove, add) of randomised response in these steps at e^epsilon = ``level``, exactly."""
    remove = add = Fraction(0)
    for bits in product((True, False), repeat=steps):
        ratios = [Fraction(odds) if bit else Fraction(1, odds) for bit in bits]
        chance = Fraction(prod(1 if bit else odds for bit in bits), (1 + odds) ** steps)
        ratio = sum(
            weight * prod((ratios[step] for step in steps_of), start=Fraction(1)) for steps_of, weight in which.items()
        )
        remove += chance * max(ratio - level, Fraction(0))
        add += chance * max(1 - level * ratio, Fraction(0))
    return remove, add


def corollary_checks(output: Output) -> list[Check]:
    """Capping never hurts: the largest delta of a capped scheme over that of Poisson sampling, exactly; and by laws."""
    rate, levels = Fraction(1, 3), [Fraction(9, 8), Fraction(3, 2), Fraction(2), Fraction(4)]
    whole = capped(STEPS, rate, STEPS, first=True)
    largest = Fraction(0)
    for level in levels:
        of_all = response_deltas(whole, ODDS, STEPS, level)
        for most in range(1, STEPS):
            for first in (True, False):
                output.deadline.tick()
                of_capped = response_deltas(capped(STEPS, rate, most, first), ODDS, STEPS, level)
                largest = max(
                    [largest, *(ours / theirs for ours, theirs in zip(of_capped, of_all, strict=True) if theirs)]
                )
    what = f"largest delta of capped/uncapped Poisson, odds {ODDS} : 1, t={STEPS}, rate {rate}, caps 1 to {STEPS - 1}"
    checks = [judge(f"Corollary 4.5: {what}", "<=", "1", upper=float(largest), lower=float(largest))]
    steps, delta, resolution = 1000, 1e-6, hs.Resolution(96, 1e-6)
    for randomiser in (RandomisedResponse(3.0), Laplace(1.0), Gaussian(1.0)):
        output.deadline.tick()
        ours = {side: epsilon_of(capped_at_one(randomiser, steps, side, resolution), delta) for side in hs.Side}
        theirs = {
            side: epsilon_of(poisson(randomiser, steps, 1.0 / steps, side, resolution), delta) for side in hs.Side
        }
        what = f"eps({delta:g}), t={steps}, rate 1/t, capped at 1 participation over uncapped, {randomiser.name}"
        upper, lower = ours[UPPER] / theirs[LOWER], ours[LOWER] / theirs[UPPER]
        checks.append(judge(f"Corollary 4.5: {what}", "<=", "1", upper=upper, lower=lower))
    return checks


def capped_at_one(randomiser: Randomiser, steps: int, side: hs.Side, resolution: hs.Resolution) -> Law:
    """Poisson sampling at rate 1/t of which at most one sampled step, any of them, counts: an allocation or nothing."""
    visited = -expm1(steps * log1p(-1.0 / steps))
    return thin(average(randomiser.law(side, resolution), steps, resolution), visited)


# --- Lemma D.1 --------------------------------------------------------------------------------------------------------


def simulated(
    randomiser: Randomiser, steps: int, epsilon: float, samples: int, rng: np.random.Generator
) -> tuple[float, float]:
    """An interval for the remove direction's delta, by the paper's advice in footnote 11: means of [0, 1] variables.

    Outputs of the allocation itself; by symmetry the visited step is the first. Maurer and Pontil's empirical
    Bernstein bound at either end, together with probability 1 - FAILURE.
    """
    values = []
    for first in range(0, samples, BATCH):
        shape = (min(BATCH, samples - first), steps)
        ratios = _log_ratios(randomiser, rng, shape)
        largest = ratios.max(axis=1, keepdims=True)
        logs = np.log(np.mean(np.exp(ratios - largest), axis=1)) + largest[:, 0]
        values.append(-np.expm1(np.minimum(epsilon - logs, 0.0)))
    all_values = np.concatenate(values)
    term = log(4.0 / FAILURE)
    room = sqrt(2.0 * float(all_values.var(ddof=1)) * term / samples) + 7.0 * term / (3.0 * (samples - 1))
    mean = float(all_values.mean())
    return max(mean - room, 0.0), min(mean + room, 1.0)


def _log_ratios(randomiser: Randomiser, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """``log X`` of every step, the element being in the first."""
    shift = np.zeros(shape)
    shift[:, 0] = 1.0
    if isinstance(randomiser, Gaussian):
        outputs = shift + randomiser.sigma * rng.standard_normal(shape)
        return np.asarray((2.0 * outputs - 1.0) / (2.0 * randomiser.sigma**2))
    if isinstance(randomiser, Laplace):
        outputs = shift + rng.laplace(scale=randomiser.scale, size=shape)
        return np.asarray((np.abs(outputs) - np.abs(outputs - 1.0)) / randomiser.scale)
    assert isinstance(randomiser, RandomisedResponse)
    says_yes = rng.random(shape) < np.where(shift > 0.0, randomiser.odds, 1.0) / (1.0 + randomiser.odds)
    return np.asarray(np.where(says_yes, log(randomiser.odds), -log(randomiser.odds)))


def log_normal_delta(sigma: float, steps: int, epsilon: float) -> float:
    """The approximation that Appendix D mentions: one log-normal variable with the same mean and variance. No bound."""
    spread = sqrt(log1p(expm1(sigma**-2) / steps))
    return gaussian_delta(1.0 / spread, 1.0, epsilon, UPPER)


def lemma_checks(output: Output, samples: int = SAMPLES) -> list[Check]:
    """Simulated delta against the direct method's two sides, and what the log-normal approximation says."""
    rng, resolution, checks = np.random.default_rng(SEED), hs.Resolution(96, 1e-6), []
    cases: list[tuple[Randomiser, int, float]] = [
        (Gaussian(1.0), 10, 0.5),
        (Gaussian(0.5), 100, 1.0),
        (Laplace(0.5), 10, 0.5),
        (RandomisedResponse(5.0), 10, 0.3),
    ]
    for randomiser, steps, epsilon in cases:
        low, high = simulated(randomiser, steps, epsilon, samples, rng)
        output.deadline.tick()
        lower, upper = (
            law_delta(direct(randomiser, steps, side, resolution), epsilon, hs.Direction.REMOVE)
            for side in (LOWER, UPPER)
        )
        note = f"simulated [{low:.4g}, {high:.4g}], failing with probability {FAILURE:g}"
        note += f"; direct [{lower:.6g}, {upper:.6g}]"
        if isinstance(randomiser, Gaussian):
            note += f"; the log-normal approximation says {log_normal_delta(randomiser.sigma, steps, epsilon):.4g}"
        what = f"Lemma D.1 simulated: delta({epsilon:g}), t={steps}, {randomiser.name}"
        inside = low <= upper and lower <= high
        checks.append(Check(what, "~", 0.5 * (low + high), upper, inside, note))
    return checks
