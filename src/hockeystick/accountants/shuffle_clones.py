"""Amplification by shuffling whole batches: hiding among the clones (Feldman, McMillan and Talwar 2021).

A step is a local randomiser of a whole batch, which has to hide among *other batches*: their sums differ by up to
``2 batch_size`` clipping norms, and the local guarantee must hold at that sensitivity. So it helps only for tiny
batches and large noise. With the step (eps1, delta1)-DP at sensitivity 1, (eps0, delta0)-DP against other batches,
n = ``bins``, ``p = e^-eps0``, ``mu = (n-1) p``, ``eta = tanh(eps1 / 2)``, an epoch has

    delta(eps) <= 2 eta e^-L + (1 + e^eps) tv,    tv = delta1 + (n - 1) p (delta0 + delta1),

for every (eps0, eps1, L) with ``1 + eta x <= e^eps``, ``x = (2s + 1) / (c/2 - s)``, ``c = mu - sqrt(2 mu L)``,
``s = sqrt(c L / 2)``; the smallest over a grid is taken. Epochs by basic composition (k eps, k delta).

Proof, for batches that react to what was released before and in both directions: docs/theory/shuffle-clones.md. Errs
upward throughout; the Gaussian deltas are rounded up.
"""

from collections.abc import Mapping
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.laws.law import Array
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

LOCAL_DELTAS = tuple(10.0**-power for power in np.arange(2.0, 60.0, 1.5))
"""Grid for delta0 and delta1: the bound depends on their logarithms."""
LARGEST_EPOCH_EPSILONS = (0.25, 1.0, 4.0)
"""delta(eps) is also at most the bound at these smaller epsilons (it matters where ``e^eps tv`` grows)."""
LOOSEST_DELTA = 0.01
"""The theorem counts as applicable if it can say something at this delta."""
ROUNDING = 1e-9
BISECTIONS = 45


def sensitivity_to_others(pair: ShuffledBatches) -> float:
    """Largest distance between the sums of two batches, in clipping norms."""
    return 2.0 * pair.batch_size


def counting_exponent(mu: Array, x: Array) -> Array:
    """The largest L (rounded down) for which the ratio of counts stays below ``1 + x`` up to ``2 e^-L``; 0 if none."""

    def too_large(exponent: Array) -> NDArray[np.bool_]:
        count = mu - np.sqrt(2.0 * mu * exponent)
        spread = np.sqrt(0.5 * np.maximum(count, 0.0) * exponent)
        room = 0.5 * count - spread
        bad: NDArray[np.bool_] = (room <= 0.0) | (2.0 * spread + 1.0 > x * room * (1.0 - ROUNDING))
        return bad

    low, high = np.zeros_like(mu), 0.5 * mu
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        bad = too_large(middle)
        low, high = np.where(bad, low, middle), np.where(bad, middle, high)
    return np.where(too_large(low), 0.0, low)


def _epoch_delta(local: tuple[Array, Array, Array, Array], bins: int, epsilon: float) -> float:
    """The smallest bound of one epoch over all pairs of local guarantees."""
    epsilon0, delta0, epsilon1, delta1 = local
    if epsilon <= 0.0 or epsilon0.size == 0:
        return 1.0
    clone = np.exp(-epsilon0)
    eta = np.tanh(0.5 * epsilon1)
    exponent = counting_exponent((bins - 1) * clone, np.expm1(min(epsilon, 50.0)) / eta)
    moved = delta1 + (bins - 1) * clone * (delta0 + delta1)
    total = 2.0 * eta * np.exp(-exponent) + (1.0 + exp(min(epsilon, 100.0))) * moved
    return float(np.where(exponent > 0.0, total, 1.0).min()) * (1.0 + ROUNDING)


def _local_guarantees(pair: ShuffledBatches) -> tuple[Array, Array, Array, Array]:
    """All pairs of an (eps0, delta0) that lets batches hide and an (eps1, delta1): four flat arrays."""

    def guarantees(sensitivity: float, largest: float) -> tuple[list[float], list[float]]:
        def profile(epsilon: float) -> float:
            return gaussian_delta(pair.noise_multiplier, sensitivity, epsilon, Side.UPPER)

        # a local epsilon of 0 would make eta vanish; any larger epsilon is as valid
        points = [(max(smallest_epsilon(profile, delta, Side.UPPER), 1e-6), delta) for delta in LOCAL_DELTAS]
        kept = [point for point in points if point[0] <= largest]
        return [epsilon for epsilon, _ in kept], [delta for _, delta in kept]

    hiding = guarantees(sensitivity_to_others(pair), log(pair.bins))
    own = guarantees(1.0, 300.0)
    epsilon0, epsilon1 = np.meshgrid(hiding[0], own[0], indexing="ij")
    delta0, delta1 = np.meshgrid(hiding[1], own[1], indexing="ij")
    return epsilon0.ravel(), delta0.ravel(), epsilon1.ravel(), delta1.ravel()


def _analyse(pair: ShuffledBatches, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    local = _local_guarantees(pair)
    settings.deadline.tick()

    def profile(epsilon: float) -> float:
        share = epsilon / pair.epochs * (1.0 - ROUNDING)
        epsilons = {min(share, largest) for largest in LARGEST_EPOCH_EPSILONS} | {share}
        return min(pair.epochs * min(_epoch_delta(local, pair.bins, each) for each in epsilons), 1.0)

    return dict.fromkeys(Direction, profile)


def _refusal(pair: ShuffledBatches, side: Side) -> str | None:
    largest = log(pair.bins / (16.0 * log(2.0 / LOOSEST_DELTA)))
    needed = LOOSEST_DELTA / pair.bins
    sensitivity = sensitivity_to_others(pair)
    if largest > 0.0 and gaussian_delta(pair.noise_multiplier, sensitivity, largest, Side.UPPER) <= needed:
        return None
    return (
        f"whole batches are shuffled, so one step must be (eps0, delta0)-DP at sensitivity 2 * batch_size = "
        f"{sensitivity:g} with eps0 <= ln(bins / (16 ln(2/delta))) and bins * delta0 below delta, which "
        f"noise_multiplier = {pair.noise_multiplier:g} and bins = {pair.bins} do not give even for delta = "
        f"{LOOSEST_DELTA:g}"
    )


ACCOUNTANT = Accountant(
    name="shuffle_clones",
    summary="amplification by shuffling whole batches; only for tiny batches and large noise",
    sides=(Side.UPPER,),
    errs="upward by the clone reduction, tail bounds and basic composition of epochs",
    reference="Feldman, McMillan and Talwar 2021 (Hiding among the clones), Theorems 3.1, 3.2 and 3.8",
    analyses={ShuffledBatches: _analyse},
    refusal=_refusal,
    cost=lambda pair: 0.3,
)
