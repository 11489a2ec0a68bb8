"""One shuffled binary tree, for gradients that are fixed beforehand (choquette-choo-2024, section 5).

**Non-adaptive only.** What an example contributes to a step must not depend on anything that the run has released. For
training, where it does, this is no bound; ``gaussian`` is one.

The run is compared with the hybrid run whose ``low`` levels, nearest to the leaves, leave the example out and whose
``top`` levels do not: ``delta(eps) <= low(a) + e^a top(eps - a)`` for every split, number of low levels, eps0 and
failure. The smallest over grids that do not depend on eps is taken, so the profile falls. Both directions: every step
is symmetric.

Proofs, and what does not hold in the paper's own: docs/theory/subsets/shuffled-tree.md. Errs upward; at small noise it
is worse than the unamplified Gaussian. Cost: O(log(bins)) tables of some 10^5 numbers.
"""

from collections.abc import Mapping
from math import exp, expm1, log, log1p, sqrt

import numpy as np

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import Array
from hockeystick.pairs.shuffled_tree import ShuffledTree
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

REACHES = np.linspace(0.5, 14.0, 20)
"""Grid for eps0, in standard deviations of the privacy loss between two other examples."""
SMALLEST_EPSILON0 = 1e-6
"""Below it the share of examples that are no clones loses digits; a larger eps0 is as valid."""
FAILURES = tuple(10.0**-power for power in np.arange(1.0, 37.0, 1.5).tolist())
"""Grid for the probability of each of the three bad events."""
SPLITS = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 100)])
"""Grid for the part of epsilon that the low levels get, in units of 1 / noise_multiplier."""
LARGEST_SPLIT = 40.0
MOST_MOVED = 3.0
"""Largest shift of the mean of a top level, in clipping norms, as the example changes its place."""
ROUNDING = 1e-9
BISECTIONS = 36


def variance_proxy(mu: float) -> float:
    """v1 with ``E e^{x t} <= e^{v1 x^2 / 2}``, ``t = tanh(l/2)``, l the privacy loss of N(mu, 1) against N(0, 1)."""
    return min(1.0, 0.25 * mu * mu * (1.0 + 0.25 * mu * mu))


def moved(slots: int, mu: float, epsilon0: float) -> float:
    """Total variation by which calling all other examples clones with probability ``e^-epsilon0`` moves a run."""
    hidden = gaussian_delta(1.0, 2.0 * mu, epsilon0, Side.UPPER) + gaussian_delta(1.0, mu, epsilon0, Side.UPPER)
    return 0.5 * (slots - 1) * exp(-epsilon0) * hidden


def fewest_clones(others: int, epsilon0: float, failure: float) -> float:
    """c with ``Pr(Bin(others, e^-epsilon0) < c) <= failure``, by Chernoff's bound, rounded down; at least 0."""
    probability, log_rest = exp(-epsilon0), log(-expm1(-epsilon0))

    def surprise(share: float) -> float:
        """The relative entropy of ``share`` to the probability: Pr(Bin <= share * others) <= e^(-others * surprise)."""
        rest = (1.0 - share) * (log1p(-share) - log_rest)
        return rest + (share * (log(share) + epsilon0) if share > 0.0 else 0.0)

    needed = -log(failure) * (1.0 + ROUNDING) / others + ROUNDING * 1e-3
    low, high = 0.0, probability
    if surprise(0.0) < needed:
        return 0.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if surprise(middle) >= needed else (low, middle)
    return low * others * (1.0 - ROUNDING)


def unevenness(noise_multiplier: float, top: int, slots: int, failure: float) -> float:
    """s such that no posterior weight exceeds ``e^s`` over the number of places, but with probability ``2 failure``.

    Args:
        top: levels whose outputs the posterior is given.
        slots: at least the number of places.
        failure: at most 1/2.
    """
    from scipy.special import ndtri

    reach = MOST_MOVED * sqrt(top) / noise_multiplier
    widest, mean = -float(ndtri(failure / slots)), -float(ndtri(failure))
    return (reach * (widest + mean) + 2.0 * reach * reach) * (1.0 + ROUNDING)


def excess(proxy: Array, threshold: float) -> Array:
    """At least ``E (V - threshold)_+`` for every sub-Gaussian V with this variance proxy.

    ``(V - c)_+ <= exp(l (V - c)) / (e l)`` for every l > 0; the l that is best is taken.
    """
    slope = 0.5 * (threshold + np.sqrt(threshold * threshold + 4.0 * proxy)) / proxy
    best: Array = np.exp(0.5 * slope * slope * proxy - slope * threshold - 1.0) / slope
    return best


def low_levels(noise_multiplier: float, low: int, top: int, slots: int, splits: Array) -> Array:
    """Bounds on the divergence of step 1 at the epsilons ``splits``, shape (splits,), rounded up.

    Args:
        low: nodes of one subtree above its free place.
        top: levels above the subtrees.
        slots: subtrees, at least two.
    """
    mu = sqrt(low) / noise_multiplier * (1.0 + ROUNDING)
    proxies, losses, bad = [], [], []
    for epsilon0 in np.maximum(2.0 * mu * (REACHES + mu), SMALLEST_EPSILON0).tolist():
        loss = moved(slots, mu, epsilon0)
        if loss >= 0.5:
            continue
        for failure in FAILURES:
            clones = fewest_clones(slots - 1, epsilon0, failure)
            uneven = unevenness(noise_multiplier, top, slots, failure)
            proxies.append(variance_proxy(mu) / max((clones + 1.0) * exp(-uneven), 1.0))
            losses.append(loss)
            bad.append(3.0 * failure)
    if not proxies:
        return np.ones(splits.size)
    proxy, lost, failing = np.array(proxies) * (1.0 + ROUNDING), np.array(losses), np.array(bad)
    bounds = np.ones(splits.size)
    for at, split in enumerate(splits):
        threshold = np.tanh(0.5 * split) * (1.0 - ROUNDING)
        worst = gaussian_delta(1.0, mu, float(split), Side.UPPER)
        total = (1.0 + exp(split)) * (excess(proxy, threshold) + lost) + failing * worst
        bounds[at] = min(float(total.min()) * (1.0 + ROUNDING), worst)
    return bounds


def _analyse(pair: ShuffledTree, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    levels = pair.bins.bit_length()
    splits = np.minimum(SPLITS * sqrt(levels) / pair.noise_multiplier, LARGEST_SPLIT)
    ways: list[tuple[float, Array]] = []
    for low in range(1, levels):
        slots, rest = divmod(pair.bins, 1 << (low - 1))
        if rest:
            break
        settings.deadline.tick()
        sensitivity = sqrt(levels - low) * (1.0 + ROUNDING)
        ways.append((sensitivity, low_levels(pair.noise_multiplier, low, levels - low, slots, splits)))

    def profile(epsilon: float) -> float:
        best = 1.0
        for sensitivity, below in ways:
            for split, bound in zip(splits, below, strict=True):
                if split <= epsilon and bound < best:
                    above = gaussian_delta(pair.noise_multiplier, sensitivity, epsilon - float(split), Side.UPPER)
                    best = min(best, (float(bound) + exp(split) * above) * (1.0 + ROUNDING))
        return best

    return dict.fromkeys(Direction, profile)


def _refusal(pair: ShuffledTree, side: Side) -> str | None:
    if pair.epochs > 1:
        return "it is proved for a single epoch"
    return "a single batch leaves nothing to shuffle" if pair.bins < 2 else None


ACCOUNTANT = Accountant(
    name="shuffled_tree",
    summary="one shuffled binary tree with gradients that are fixed beforehand (not for training)",
    sides=(Side.UPPER,),
    errs="upward by the clone reduction, tail bounds and the triangle inequality between low and top levels",
    reference="docs/theory/subsets/shuffled-tree.md; after choquette-choo-2024, section 5",
    analyses={ShuffledTree: _analyse},
    refusal=_refusal,
    cost=lambda pair: 0.2,
    assumes="Fix what every example contributes to every step beforehand: it must not depend on anything that the run "
    "releases, as the gradients of a training run do.",
)
