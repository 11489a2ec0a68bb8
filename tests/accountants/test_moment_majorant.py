"""The accountant as a whole: what it keeps, when it stops, and that certificates of it can be made again."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants import moment_majorant, moment_majorant_cells
from hockeystick.accountants.comparison import ACCOUNTANT as COMPARISON
from hockeystick.accountants.moment_majorant import ACCOUNTANT, WHOLE_SHARE, exact_moments, moments_cost, relaxations
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.moments import exact_gram
from hockeystick.moments.exact import ExactGram, ExactMoments
from hockeystick.moments.exact_gram import proved_gram
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.banded import BandedMatrix
from hockeystick.types import Direction, Side


def raised(pair: BinMixture) -> ExactGram:
    return proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, Side.UPPER)


def lowered(pair: BinMixture) -> ExactGram:
    return proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, Side.LOWER)


def pair_of(bands: int, bins: int, epochs: int, sigma: float) -> BinMixture:
    column = np.cumprod(np.append(1.0, 1.0 - 0.5 / np.arange(1.0, bands)))
    matrix = BandedMatrix(np.tile(column, (bins * epochs, 1)))
    return BinMixture(noise_multiplier=sigma, matrix=matrix, bins=bins)


def epsilon_of(pair: BinMixture, side: Side, delta: float, effort: float) -> float:
    return ACCOUNTANT.bound(pair, side, Settings(Resolution(68, delta), effort=effort)).epsilon(delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_independent_bins_are_near_exact(delta: float) -> None:
    """C = I, b = 100, sigma = 2: the comparison is exact there, from both sides; at most order 8 is used here."""
    pair = BinMixture(noise_multiplier=2.0, matrix=BandedMatrix(np.ones((100, 1))), bins=100)
    exact = {
        side: COMPARISON.bound(pair, side, Settings(Resolution(200, delta))).epsilon(delta)
        for side in (Side.UPPER, Side.LOWER)
    }
    effort = 1.1 * moments_cost(raised(pair), 8) / WHOLE_SHARE
    assert max(relaxation.degree for relaxation in relaxations(raised(pair), Side.LOWER, delta, effort)) == 8
    upper, lower = (epsilon_of(pair, side, delta, effort) for side in (Side.UPPER, Side.LOWER))
    assert exact[Side.LOWER] <= upper <= exact[Side.UPPER] * 1.002
    assert exact[Side.LOWER] * 0.998 <= lower <= exact[Side.UPPER]


@pytest.mark.parametrize(
    ("bands", "bins", "epochs", "sigma"),
    [(4, 40, 3, 3.0), (12, 30, 2, 4.0), pytest.param(30, 30, 1, 3.0, marks=pytest.mark.weekly)],
)
def test_the_two_sides_meet_and_agree_with_the_comparison(bands: int, bins: int, epochs: int, sigma: float) -> None:
    pair = pair_of(bands, bins, epochs, sigma)
    upper, lower = (epsilon_of(pair, side, 1e-5, 3.0) for side in (Side.UPPER, Side.LOWER))
    loose = {side: COMPARISON.bound(pair, side, Settings(Resolution(48, 1e-5))).epsilon(1e-5) for side in Side}
    assert 0.0 < lower <= upper <= 1.02 * lower
    assert loose[Side.LOWER] <= upper <= loose[Side.UPPER]
    assert loose[Side.LOWER] <= lower <= loose[Side.UPPER]


def test_more_effort_reaches_higher_orders_and_never_loosens() -> None:
    pair, efforts = pair_of(8, 40, 2, 2.0), (0.01, 0.2, 2.0)
    gram = raised(pair)
    degrees = [
        max(relaxation.degree for relaxation in relaxations(gram, Side.LOWER, 1e-5, effort) if relaxation.whole)
        for effort in efforts
    ]
    assert degrees[0] < degrees[-1]
    bounds = [epsilon_of(pair, Side.UPPER, 1e-5, effort) for effort in efforts]
    assert bounds[0] >= bounds[1] * (1 - 1e-6) >= bounds[2] * (1 - 2e-6)


def test_lower_bounds_come_from_the_whole_alone() -> None:
    below = list(relaxations(lowered(pair_of(12, 60, 2, 2.0)), Side.LOWER, 1e-5, 5.0))
    assert below
    assert all(relaxation.whole for relaxation in below)


def test_without_affordable_moments_it_refuses() -> None:
    pair = pair_of(4, 40, 2, 3.0)
    with pytest.raises(UnsupportedError, match="affordable"):
        ACCOUNTANT.bound(pair, Side.UPPER, Settings(Resolution(24, 1e-5), effort=1e-9))


def test_moments_without_the_common_factor_have_mean_one() -> None:
    gram = raised(pair_of(4, 40, 2, 3.0))
    moments = exact_moments(gram, 6, Deadline())
    assert moments.values[0] == 1
    assert abs(float(moments.values[1]) - 1.0) < 1e-15
    whole = float((np.exp(gram.scale * gram.entries)).mean())
    assert float(moments.values[2]) == pytest.approx(whole * np.exp(-gram.variance), rel=1e-12)


def test_a_certificate_with_little_effort_says_so_and_can_be_made_again() -> None:
    mechanism = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=4), sampler=hs.BallsInBins(bins=12, epochs=2), noise_multiplier=4.0
    )
    usual = hs.certify(mechanism, delta=1e-5, method="moment_majorant")
    assert usual.accuracy.effort is None
    hasty = hs.certify(mechanism, delta=1e-5, method="moment_majorant", budget=20.0)
    assert hasty.accuracy.effort is not None
    assert hasty.accuracy.effort < 10.0
    for certificate in (usual, hasty):
        assert hs.verify(certificate).bounds == certificate.bounds
    assert hasty.digest == hasty.content_digest()
    other = hasty.origin.model_copy(update={"accuracy": hasty.accuracy.model_copy(update={"effort": 9.0})})
    changed = hasty.model_copy(update={"origin": other})
    assert changed.content_digest() != hasty.digest


@pytest.mark.parametrize("module", [moment_majorant, moment_majorant_cells])
@pytest.mark.parametrize("side", Side)
def test_the_gram_matrix_is_rounded_to_the_side_of_the_bound(
    module: ModuleType, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound from the other side's matrix differs by rounding only, which no comparison of bounds would show."""
    pair, seen = pair_of(4, 20, 2, 2.0), []

    def recorded(*arguments: object) -> None:
        seen.append(arguments)
        raise UnsupportedError("enough")

    monkeypatch.setattr(exact_gram, "proved_gram", recorded)
    with pytest.raises(UnsupportedError, match="enough"):
        module.ACCOUNTANT.bound(pair, side)
    assert seen == [(pair.gram, pair.rounding, pair.noise_multiplier, side)]


def alike(sigma: float) -> BinMixture:
    """Bins that are much alike, whose add direction is the worse one until the order is even."""
    matrix = BandedMatrix(np.tile(np.arange(1.0, 27.0) ** -0.3, (400, 1)))
    return BinMixture(noise_multiplier=sigma, matrix=matrix, bins=40)


LIGHT = Settings(Resolution(68, 1e-5), effort=0.16)
"""Enough for moments of order 5 at first, and for those of order 6."""


def test_classes_of_its_own_bins_settle_the_add_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the remove direction is settled the highest order of all bins is not needed; nothing much is lost."""
    asked: list[tuple[int, int]] = []

    def recorded(gram: ExactGram, degree: int, deadline: Deadline) -> ExactMoments:
        asked.append((gram.bins, degree))
        return exact_moments(gram, degree, deadline)

    monkeypatch.setattr(moment_majorant, "exact_moments", recorded)
    early = ACCOUNTANT.bound(alike(10.0), Side.UPPER, LIGHT).epsilon(1e-5)
    assert asked == [(40, 5), (20, 6), (20, 6)]
    monkeypatch.setattr(moment_majorant, "own_classes", lambda gram, highest, effort: None)
    late = ACCOUNTANT.bound(alike(10.0), Side.UPPER, LIGHT).epsilon(1e-5)
    assert (40, 6) in asked
    assert early == pytest.approx(late, rel=1e-7)
    lower = ACCOUNTANT.bound(alike(10.0), Side.LOWER, LIGHT).epsilon(1e-5)
    assert lower <= early <= 1.01 * lower


def test_classes_that_do_not_settle_it_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = BandedMatrix(np.ones((400, 26)))
    pair = BinMixture(noise_multiplier=18.0, matrix=matrix, bins=40)
    epsilon = ACCOUNTANT.bound(pair, Side.UPPER, LIGHT).epsilon(1e-5)
    monkeypatch.setattr(moment_majorant, "own_classes", lambda gram, highest, effort: None)
    assert epsilon <= ACCOUNTANT.bound(pair, Side.UPPER, LIGHT).epsilon(1e-5) * (1.0 + 1e-9)


def test_a_claim_that_needed_the_highest_order_is_confirmed() -> None:
    """Certificates of versions that always went on to it where the add direction was not settled yet."""
    pair = alike(8.0)
    gram = raised(pair)
    whole = next(
        relaxation
        for relaxation in relaxations(gram, Side.UPPER, 1e-5, LIGHT.effort)
        if relaxation.whole and relaxation.degree == 6
    )
    profile = whole.prepare(Deadline())(Direction.REMOVE, Side.UPPER)
    claimed = smallest_epsilon(profile, 1e-5, Side.UPPER)
    assert ACCOUNTANT.bound(pair, Side.UPPER, LIGHT).delta(claimed) > 1e-5
    assert ACCOUNTANT.bound(pair, Side.UPPER, replace(LIGHT, claimed=claimed)).delta(claimed) <= 1e-5
