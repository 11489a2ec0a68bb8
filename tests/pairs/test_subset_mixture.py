"""The pair of Poisson sampling with correlated noise: what it is made of."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.pairs import independent_steps
from hockeystick.pairs.subset_mixture import SubsetMixture, from_poisson
from hockeystick.strategies import Strategy
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.banded import BandedMatrix


def run(strategy: Strategy, **sampler: object) -> hs.Mechanism:
    return hs.Mechanism(
        strategy=strategy, sampler=hs.Poisson(sampling_prob=0.25, steps=12, **sampler), noise_multiplier=2.0
    )


@pytest.mark.parametrize(
    "strategy", [hs.Identity(), hs.BandedSquareRoot(bands=4), hs.BandedInverseSquareRoot(bands=3), hs.SquareRoot()]
)
def test_columns_are_those_of_the_matrix(strategy: Strategy) -> None:
    pair = from_poisson(run(strategy))
    dense = pair.matrix.materialize()
    for i in range(12):
        for d in range(pair.matrix.bands):
            assert band_of(pair.matrix)[i, d] == pytest.approx(
                dense[i + d, i] if i + d < 12 else 0.0, rel=1e-12, abs=0.0
            )
    assert pair.full_sensitivity == pytest.approx(np.linalg.norm(dense.sum(axis=1)), rel=1e-12)
    assert pair.noise_multiplier == 2.0
    assert pair.sampling_prob == 0.25
    assert pair.slack == 0.0
    assert not pair.batches_are_public


def test_columns_that_differ_are_told_apart() -> None:
    band = np.random.default_rng(5).random((7, 3)) + 0.1
    band[-1, 1:] = band[-2, 2] = 0.0
    pair = SubsetMixture(noise_multiplier=1.0, matrix=BandedMatrix(band), sampling_prob=0.5)
    assert np.array_equal(band_of(pair.matrix), band)


def test_truncation_costs_what_it_costs_without_correlation() -> None:
    cut = run(hs.BandedSquareRoot(bands=4), num_examples=100, truncated_batch_size=35)
    assert from_poisson(cut).slack == independent_steps.from_poisson(cut).slack > 1e-3
    whole = run(hs.BandedSquareRoot(bands=4), num_examples=100, truncated_batch_size=100)
    assert from_poisson(whole).slack == 0.0


def test_truncation_costs_the_tail_of_every_step() -> None:
    """The binomial tail in exact fractions, once for each of the 12 steps."""
    rate = Fraction(1, 4)
    for cap in (35, 60, 99):
        tail = (comb(100, size) * rate**size * (1 - rate) ** (100 - size) for size in range(cap + 1, 101))
        exact = 12 * sum(tail, Fraction(0))
        slack = Fraction(from_poisson(run(hs.Identity(), num_examples=100, truncated_batch_size=cap)).slack)
        assert exact <= slack <= exact * (1 + Fraction(1, 10**5))


def test_without_subsampling_the_batches_are_public() -> None:
    sampler = hs.Poisson(sampling_prob=1.0, steps=12)
    assert from_poisson(hs.Mechanism(sampler=sampler, noise_multiplier=1.0)).batches_are_public
