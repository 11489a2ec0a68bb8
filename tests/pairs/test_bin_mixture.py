"""The pair of balls-in-bins with correlated noise: what it is made of, and what it refuses to be made of."""

from fractions import Fraction

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.certification.issue import PORTABLE
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.pairs.bin_mixture import MAX_BINS, BinMixture
from hockeystick.pairs.known_batches import KnownBatches
from hockeystick.pairs.registry import dominating_pair
from hockeystick.strategies.matrix.dense import DenseMatrix


def test_means_are_sums_of_the_columns_of_a_bin() -> None:
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=5), sampler=hs.BallsInBins(bins=4, epochs=3), noise_multiplier=2.0
    )
    pair = dominating_pair(run)
    assert isinstance(pair, BinMixture)
    dense = run.matrix.materialize()
    means = dense[:, :4] + dense[:, 4:8] + dense[:, 8:]
    assert np.allclose(pair.means(), means, rtol=1e-13)
    assert np.allclose(pair.gram, means.T @ means, rtol=1e-13)
    assert pair.epochs == 3
    assert pair.full_sensitivity == pytest.approx(np.linalg.norm(means, axis=0).max(), rel=1e-13)


def test_entries_are_within_the_stated_rounding_of_exact_fractions() -> None:
    """The error that is stated is needed: some entry is off by a rounding or more."""
    entries = np.tril(np.random.default_rng(3).random((12, 12))) + np.eye(12)
    pair = BinMixture(noise_multiplier=1.0, matrix=DenseMatrix(entries), bins=4)
    exact = [[sum(Fraction(entry) for entry in row[i::4]) for i in range(4)] for row in entries.tolist()]
    worst = Fraction(0)
    for i in range(4):
        for row in range(12):
            if exact[row][i]:
                worst = max(worst, abs(Fraction(float(pair.means()[row, i])) / exact[row][i] - 1))
        for j in range(4):
            product = sum(exact[row][i] * exact[row][j] for row in range(12))
            worst = max(worst, abs(Fraction(float(pair.gram[i, j])) / product - 1))
    assert 0 < worst <= pair.rounding == pair.sensitivity_error


def test_known_batches_have_the_norm_of_the_worst_bin() -> None:
    strategy = hs.BandedInverseSquareRoot(bands=3)
    fixed = hs.Mechanism(strategy=strategy, sampler=hs.Deterministic(bins=4, epochs=3), noise_multiplier=2.0)
    hidden = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=4, epochs=3), noise_multiplier=2.0)
    pair = dominating_pair(fixed)
    assert isinstance(pair, KnownBatches)
    assert pair.full_sensitivity == pytest.approx(dominating_pair(hidden).full_sensitivity, rel=1e-12)
    certificate = hs.certify(fixed, delta=1e-5)
    lower, upper = certificate.epsilon.lower, certificate.epsilon.upper  # each charged for other machines
    assert lower <= upper <= lower * (1.0 + 1e-8 + 2.0 * PORTABLE)
    assert hs.certify(hidden, delta=1e-5).epsilon.upper < certificate.epsilon.upper


def test_more_bins_than_a_gram_matrix_holds_still_have_the_gaussian() -> None:
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=8), sampler=hs.BallsInBins(bins=MAX_BINS + 1), noise_multiplier=4.0
    )
    certificate = hs.certify(run, delta=1e-5)
    assert certificate.method.upper == "gaussian"
    with pytest.raises(UnsupportedError, match=f"inner products of more than {MAX_BINS} bins"):
        hs.bound(run, "comparison")


def test_more_steps_than_memory_are_refused_by_name() -> None:
    sampler = hs.Deterministic(bins=1000, epochs=100_000)
    with pytest.raises(
        InvalidInputError, match=r"'strategy\.kind' field can be 'square_root' for at most 10000000 steps"
    ):
        hs.Mechanism(strategy=hs.SquareRoot(), sampler=sampler)
    assert hs.Mechanism(sampler=sampler).sampler.steps == 10**8


def test_shapes_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'strategy\.bands' field must be at most the 12 steps\. Got 13"):
        hs.Mechanism(strategy=hs.BandedSquareRoot(bands=13), sampler=hs.BallsInBins(bins=4, epochs=3))
