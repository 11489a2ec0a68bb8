"""The mechanisms of the figures and their epsilons. Nothing is computed twice: the statements judge what is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt

import numpy as np

import hockeystick as hs
from hockeystick.errors import UnsupportedError
from hockeystick.reproduction.curves import PLOT_NODES
from hockeystick.reproduction.papers import Output

from .printed import printed_epsilon

DELTA = 1e-6
"""Of Figures 2 and 8; the other figures do not say theirs."""
UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER


def epsilon_of(mechanism: hs.Mechanism, method: str, side: hs.Side, output: Output, delta: float = DELTA) -> float:
    """One accountant's epsilon, on the grids of plots; nan where it gives none or an infinite one. Computed once."""

    def compute() -> float:
        output.deadline.tick()
        settings = hs.Settings(hs.Resolution(PLOT_NODES, delta), output.deadline)
        try:
            epsilon = hs.bound(mechanism, method, side=side, settings=settings).epsilon(delta)
        except UnsupportedError:
            epsilon = nan
        return epsilon if isfinite(epsilon) else nan

    return float(output.kept.value(f"{method} {side} {delta:g} {mechanism.model_dump_json()}", compute))


def printed(mechanism: hs.Mechanism, output: Output, delta: float = DELTA) -> float:
    """epsilon by the paper's algorithm as printed; nan where it is infinite. Computed once."""

    def compute() -> float:
        sampler = mechanism.sampler
        groups = sampler.groups if isinstance(sampler, hs.CyclicPoisson) else 1
        entries = mechanism.strategy.matrix(sampler.steps).materialize()
        rate = sampler.sampling_prob / groups
        epsilon = printed_epsilon(entries, mechanism.sigma, rate, delta, output.deadline.tick, groups)
        return epsilon if isfinite(epsilon) else nan

    return float(output.kept.value(f"as printed {delta:g} {mechanism.model_dump_json()}", compute))


def poisson(
    strategy: hs.BinaryTree | hs.SquareRoot | hs.TreeRestart, rate: float, steps: int, sigma: float
) -> hs.Mechanism:
    """Poisson sampling with correlated noise."""
    sampler = hs.Poisson(sampling_prob=rate, steps=steps)
    return hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma)


# --- Figures 2 and 8 --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """A strategy, the values of c, and the exponents i of n = 2^i."""

    strategy: hs.BinaryTree | hs.SquareRoot
    multipliers: tuple[float, ...]
    exponents: tuple[int, ...]


FAMILIES = {
    "figure-2": Family(hs.BinaryTree(), (5.0, 10.0, 20.0, 40.0), tuple(range(1, 11))),
    "figure-8": Family(hs.SquareRoot(), (10.0, 20.0, 40.0), tuple(range(1, 8))),
}
"""Those of Figure 8 are printed. Of Figure 2 only the exponents are, and that Figure 8's c are larger: c is ours."""


@dataclass(frozen=True)
class Amplified:
    """n = 2^exponent steps at rate 1 / n and ``sigma = c |C e_1|``, beside one participation without sampling.

    Attributes:
        upper, lower: bounds on epsilon with Poisson sampling, by ``mmcc`` and by ``linear_statistic``.
        alone_upper, alone_lower: the same without amplification, exact but for rounding.
        split: an upper bound by ``split_noise``, which is not in the paper.
        printed: by Algorithm 2 as printed; not certified.
    """

    exponent: int
    upper: float
    lower: float
    alone_upper: float
    alone_lower: float
    split: float = nan
    printed: float = nan

    @property
    def place(self) -> float:
        """The horizontal axis, sqrt(log2(n) + 1)."""
        return sqrt(self.exponent + 1.0)

    @property
    def at_least(self) -> float:
        """By how much ``mmcc`` improves epsilon; the true improvement is not smaller."""
        return self.alone_lower / self.upper

    @property
    def split_at_least(self) -> float:
        """By how much ``split_noise`` improves epsilon."""
        return self.alone_lower / self.split

    @property
    def printed_improvement(self) -> float:
        """By how much Algorithm 2 improves epsilon, as printed."""
        return self.alone_lower / self.printed

    @property
    def at_most(self) -> float:
        """No analysis can show a larger improvement."""
        return self.alone_upper / self.lower


def amplified(family: Family, multiplier: float, output: Output) -> list[Amplified]:
    """All lengths for one c."""
    points = []
    for exponent in family.exponents:
        steps = 2**exponent
        sigma = multiplier * float(family.strategy.matrix(steps).max_column_norm)
        sampled = poisson(family.strategy, 1.0 / steps, steps, sigma)
        alone = sampled.model_copy(update={"sampler": hs.Deterministic(bins=steps, epochs=1)})
        points.append(
            Amplified(
                exponent,
                epsilon_of(sampled, "mmcc", UPPER, output),
                epsilon_of(sampled, "linear_statistic", LOWER, output),
                epsilon_of(alone, "gaussian", UPPER, output),
                epsilon_of(alone, "gaussian", LOWER, output),
                epsilon_of(sampled, "split_noise", UPPER, output),
                printed(sampled, output),
            )
        )
    return points


@dataclass(frozen=True)
class Fit:
    """The least-squares line through the improvements, over sqrt(log2(n) + 1).

    Attributes:
        explained: R squared of the line.
        exponent: slope of the least-squares line through the logarithms; 1 is proportional.
    """

    slope: float
    intercept: float
    explained: float
    exponent: float


def fitted(points: Sequence[Amplified], *, split: bool = False) -> Fit:
    """The fit to what ``mmcc`` certifies, or ``split_noise``."""
    places = np.array([point.place for point in points])
    values = np.array([point.split_at_least if split else point.at_least for point in points])
    slope, intercept = np.polyfit(places, values, 1)
    left = values - slope * places - intercept
    explained = 1.0 - float(left @ left) / float(np.sum((values - values.mean()) ** 2))
    exponent = float(np.polyfit(np.log(places), np.log(values), 1)[0])
    return Fit(float(slope), float(intercept), explained, exponent)


# --- Figure 4 ---------------------------------------------------------------------------------------------------------

RESTART = {"steps": 512, "height": 4, "inverse_rate": 16}
"""n, h and 1 / p."""


@dataclass(frozen=True)
class Restart:
    """Bounds on epsilon of tree restart at one sigma, with Poisson and with cyclic Poisson sampling."""

    sigma: float
    mmcc: float
    poisson_lower: float
    cyclic_upper: float
    cyclic_lower: float
    split: float = nan
    printed: float = nan


def restart(sigma: float, output: Output, steps: int = RESTART["steps"]) -> Restart:
    """Both samplers with as many participations on average.

    Trees of height h span b = 2^(h-1) steps, so cyclic Poisson sampling has b groups and the rate b p in the steps of
    the example's group. Its columns do not overlap: both bounds of ``direct`` are exact but for rounding.
    """
    strategy = hs.TreeRestart(height=RESTART["height"])
    groups, rate = 2 ** (RESTART["height"] - 1), 1.0 / RESTART["inverse_rate"]
    sampled = poisson(strategy, rate, steps, sigma)
    scheme = hs.CyclicPoisson(groups=groups, sampling_prob=groups * rate, steps=steps)
    cyclic = hs.Mechanism(strategy=strategy, sampler=scheme, noise_multiplier=sigma)
    return Restart(
        sigma,
        epsilon_of(sampled, "mmcc", UPPER, output),
        epsilon_of(sampled, "linear_statistic", LOWER, output),
        epsilon_of(cyclic, "direct", UPPER, output),
        epsilon_of(cyclic, "direct", LOWER, output),
        epsilon_of(sampled, "split_noise", UPPER, output),
        printed(sampled, output),
    )


def crossing(points: Sequence[Restart], output: Output, width: float = 0.01) -> tuple[float, float]:
    """Between which sigmas ``mmcc`` falls below cyclic Poisson sampling, to a relative width; (0, inf) if it does not.

    Args:
        points: by increasing sigma.
    """
    below = [point.mmcc < point.cyclic_lower for point in points]
    if True not in below[1:] or below[0]:
        return 0.0, float("inf")
    first = below.index(True)
    low, high = points[first - 1].sigma, points[first].sigma
    while high > (1.0 + width) * low:
        middle = sqrt(low * high)
        point = restart(middle, output)
        low, high = (low, middle) if point.mmcc < point.cyclic_lower else (middle, high)
    return low, high


# --- Figure 3 ---------------------------------------------------------------------------------------------------------

CIFAR_DELTA = 1e-5
EXAMPLES, BATCH, EPOCHS = 50_000, 500, 20
"""CIFAR-10's training set, and the batches and epochs of Choquette-Choo, McMahan, Rush, Thakurta (2023)."""
BINS = EXAMPLES // BATCH
TREES = ("one tree", "restarts")
"""Which tree was run is not printed."""


def tree(name: str, bins: int) -> hs.BinaryTree | hs.TreeRestart:
    """One tree over the whole run, or trees of as many steps as fit into an epoch of ``bins``, a power of two."""
    return hs.BinaryTree() if name == "one tree" else hs.TreeRestart(height=bins.bit_length())


@dataclass(frozen=True)
class Training:
    """One run with batches that are the same in every epoch, analysed again with Poisson sampling at the same noise.

    Attributes:
        sigma: noise multiplier that the run needs for ``before`` without amplification.
        before: its epsilon.
        upper, lower: with Poisson sampling, by ``mmcc`` and ``linear_statistic``.
        split: an upper bound by ``split_noise``.
        printed: by Algorithm 2 as printed; not certified.
    """

    sigma: float
    before: float
    upper: float
    lower: float
    split: float = nan
    printed: float = nan


def training(name: str, epsilon: float, output: Output, bins: int = BINS, epochs: int = EPOCHS) -> Training:
    """The noise for an epsilon without amplification, and the epsilons that it has with Poisson sampling."""
    strategy = tree(name, bins)
    run = hs.Mechanism(strategy=strategy, sampler=hs.Deterministic(bins=bins, epochs=epochs))
    before = hs.calibrate(run, epsilon=epsilon, delta=CIFAR_DELTA, method="gaussian", deadline=output.deadline)
    sampled = poisson(strategy, 1.0 / bins, bins * epochs, before.sigma)
    return Training(
        before.sigma,
        epsilon_of(before, "gaussian", UPPER, output, CIFAR_DELTA),
        epsilon_of(sampled, "mmcc", UPPER, output, CIFAR_DELTA),
        epsilon_of(sampled, "linear_statistic", LOWER, output, CIFAR_DELTA),
        epsilon_of(sampled, "split_noise", UPPER, output, CIFAR_DELTA),
        printed(sampled, output, CIFAR_DELTA),
    )


# --- Algorithm 4 ------------------------------------------------------------------------------------------------------

CYCLE = {"steps": 64, "groups": 4, "inverse_rate": 64}
"""n, b and 1 / p of a case in which the rounds inform about each other; not in the paper."""


@dataclass(frozen=True)
class Cyclic:
    """Cyclic Poisson sampling with the square root: Generalized-MMCC as we certify it, and as printed (refuted)."""

    sigma: float
    upper: float
    lower: float
    printed: float


def cyclic(sigma: float, output: Output, steps: int = CYCLE["steps"]) -> Cyclic:
    """All three at one sigma."""
    groups = CYCLE["groups"]
    scheme = hs.CyclicPoisson(groups=groups, sampling_prob=groups / CYCLE["inverse_rate"], steps=steps)
    run = hs.Mechanism(strategy=hs.SquareRoot(), sampler=scheme, noise_multiplier=sigma)
    return Cyclic(
        sigma,
        epsilon_of(run, "generalized_mmcc", UPPER, output),
        epsilon_of(run, "linear_statistic", LOWER, output),
        printed(run, output),
    )
