"""opake: its samplers, and its noise with and without correlation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from opake.dpftrl.noise import bsr_strategy, mf_gaussian_noise
from opake.dpftrl.sampling import BallsInBinsSampler, BMinSepSampler, CyclicPoissonSampler
from opake.dpftrl.sampling.types import PartitionType
from opake.dpsgd.noise import gaussian_noise
from opake.dpsgd.sampling import KOutOfTSampler, PoissonSampler
from opake.random import key
from opake.types import clipped

import hockeystick as hs
from benchmarks.audited import BSR, NUMBERS, ROWS, SIGMA, SIZE, Case, Outcome, of_batches, of_noise, of_steps

DISTRIBUTION = "opake"
DATA = range(SIZE)


def drawn(make: Any, claimed: Any) -> Outcome:
    """Two runs of a sampler, from a function of the key."""
    return of_batches(lambda run: iter(make(key(run))), claimed)


def rows(noise: Any, state: Any, dtype: torch.dtype = torch.float32) -> Iterator[np.ndarray]:
    """What is added to gradients of zero, in clipping norms."""
    zero = clipped(torch.zeros(NUMBERS, dtype=dtype), max_norm=0.5)
    for _ in range(ROWS):
        noisy, state = noise(zero, state)
        yield noisy.pytree.double().numpy() / 0.5


def white(dtype: torch.dtype) -> Outcome:
    """The noise of DP-SGD."""
    return of_noise(rows(*gaussian_noise(noise_multiplier=SIGMA, key=key(1)), dtype), of_steps())


def correlated() -> Outcome:
    """The noise of a banded square root."""
    made = mf_gaussian_noise(
        torch.zeros(NUMBERS),
        bsr_strategy(bandwidth=8, alpha=1.0, beta=0.0),
        n_steps=ROWS,
        noise_multiplier=SIGMA,
        key=key(1),
    )
    return of_noise(rows(*made), of_steps(BSR))


CASES = {
    "opake-poisson": Case(
        "PoissonSampler",
        "Poisson, q = 0.05",
        lambda: drawn(lambda key: PoissonSampler(DATA, 0.05, 100, key=key), hs.Poisson(sampling_prob=0.05, steps=100)),
    ),
    "opake-k-out-of-t-block": Case(
        "KOutOfTSampler(allocation='block')",
        "random allocation, 1 of 20 steps, 5 epochs",
        lambda: drawn(
            lambda key: KOutOfTSampler(DATA, k=5, t=100, allocation="block", key=key),
            hs.RandomAllocation(bins=20, epochs=5),
        ),
    ),
    "opake-k-out-of-t-total": Case(
        "KOutOfTSampler(allocation='total')",
        "random allocation, 5 of 100 steps",
        lambda: drawn(
            lambda key: KOutOfTSampler(DATA, k=5, t=100, allocation="total", key=key),
            hs.RandomAllocation(bins=100, participations=5),
        ),
    ),
    "opake-cyclic-poisson": Case(
        "CyclicPoissonSampler(partition_type=INDEPENDENT)",
        "cyclic Poisson with secret groups, q = 0.3",
        lambda: drawn(
            lambda key: CyclicPoissonSampler(DATA, 0.3, 10, 100, PartitionType.INDEPENDENT, key=key),
            hs.CyclicPoisson(groups=10, sampling_prob=0.3, steps=100, partition="independent"),
        ),
    ),
    "opake-balls-in-bins": Case(
        "BallsInBinsSampler",
        "balls in 20 bins, 5 epochs",
        lambda: drawn(lambda key: BallsInBinsSampler(DATA, 20, 100, key=key), hs.BallsInBins(bins=20, epochs=5)),
    ),
    "opake-b-min-sep": Case(
        "BMinSepSampler",
        "b-min-sep with a warm start, b = 10, p = 0.05",
        lambda: drawn(
            lambda key: BMinSepSampler(DATA, 10, 0.05, 100, key=key),
            hs.BMinSep(min_sep=10, sampling_prob=0.05 / 1.45, steps=100),
        ),
    ),
    "opake-noise": Case("gaussian_noise, float32", "white noise", lambda: white(torch.float32)),
    "opake-noise-bfloat16": Case("gaussian_noise, bfloat16", "white noise", lambda: white(torch.bfloat16)),
    "opake-noise-correlated": Case("mf_gaussian_noise(bsr_strategy)", "C^-1 z for C = BSR(8)", correlated),
}
