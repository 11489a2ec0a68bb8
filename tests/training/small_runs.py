"""Small runs for the tests of runs and of their states."""

import numpy as np
from sampler_laws import RUN_EXAMPLES

import hockeystick as hs
from hockeystick.training import Run

EXAMPLES = RUN_EXAMPLES
OTHER = hs.Poisson(sampling_prob=0.2, steps=12)


def mechanism_of(sampler, strategy=None):
    return hs.Mechanism(sampler=sampler, strategy=strategy or hs.Identity(), noise_multiplier=2.0)


def run_of(sampler=None, seed=0, **options):
    options = {"num_examples": EXAMPLES, "shape": 3, "rng": np.random.default_rng(seed)} | options
    return Run(mechanism_of(sampler or hs.Poisson(sampling_prob=0.1, steps=12)), **options)


def finished(run):
    """All batches and rows of noise from here."""
    return [(batch, run.noise(batch)) for batch in run.batches()]


def same(left, right):
    return len(left) == len(right) and all(
        np.array_equal(a, c) and np.array_equal(b, d) for (a, b), (c, d) in zip(left, right, strict=True)
    )
