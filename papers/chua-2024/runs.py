"""The three ways to form batches."""

import hockeystick as hs

UPPER, LOWER = hs.Side.UPPER, hs.Side.LOWER


def deterministic(steps: int, sigma: float) -> hs.Mechanism:
    """One epoch of fixed batches (Algorithm 2)."""
    return hs.Mechanism(sampler=hs.Deterministic(bins=steps), noise_multiplier=sigma)


def poisson(steps: int, sigma: float) -> hs.Mechanism:
    """One epoch, in expectation, of Poisson batches (Algorithm 4)."""
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=1.0 / steps, steps=steps), noise_multiplier=sigma)


def shuffle(steps: int, sigma: float, batch_size: int = 1) -> hs.Mechanism:
    """One epoch of shuffled batches (Algorithm 3). The lower bound is the same for every batch size."""
    return hs.Mechanism(sampler=hs.Shuffle(batch_size=batch_size, bins=steps), noise_multiplier=sigma)
