"""Sums of independent sequences against quadrature, against chains of one sequence, and steps made many at a time."""

from collections.abc import Callable

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import independent_sequences, repeated_steps
from hockeystick.sequences.comparable_chain import comparable_chain, loss_of, sensitivity
from hockeystick.sequences.hidden_chain import LATTICE_ERROR, HiddenChain
from hockeystick.sequences.hidden_chain_transform import chain_profiles
from hockeystick.sequences.independent_sequences import IndependentSequences
from hockeystick.sequences.repeated_steps import repeated
from hockeystick.types import Direction, Side
from tests.sequences.test_hidden_chain import EPSILONS, truth


def profile(chain: HiddenChain | IndependentSequences, side: Side, near: float = 0.8) -> Array:
    found = chain_profiles(chain, side, 1e-4, near, True, Deadline()).profiles()
    return np.array([[found[direction](at) for at in EPSILONS] for direction in Direction])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_random_sequences_against_quadrature(count: int) -> None:
    """Two or three bins with one to three sequences, gains and white noise that differ; both sides and directions."""
    rng = np.random.default_rng(count)
    for _ in range(1 if count == 3 else 2):
        bins = int(rng.integers(2, 4))
        chain = IndependentSequences(
            rng.uniform(0.0, 0.8 if count < 3 else 0.1, count),
            rng.uniform(0.1, 0.7 if count < 3 else 0.2, count),
            float(rng.uniform(0.7, 0.9)),
            rng.uniform(0.5, 1.2, bins),
            rng.uniform(0.0, 0.3, bins),
        )
        exact = truth(chain.products)
        error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
        upper, lower = (profile(chain, side) for side in Side)
        assert (upper >= exact - error).all()
        assert (lower <= exact + error).all()
        assert (upper[0, :4] <= exact[0, :4] * 1.02 + 2e-4).all()
        assert (lower[0, :4] >= exact[0, :4] * 0.98 - 4e-4).all()


@pytest.mark.parametrize(("poles", "amounts", "white"), [((0.1, 0.1), (1.0, 1.0), 0.4), ((0.3, 0.9), (0.7, 1.1), 0.4)])
def test_lattices_change_densities_by_no_more_than_they_may(
    poles: tuple[float, ...], amounts: tuple[float, ...], white: float
) -> None:
    """One bin, where the lattices are as fine as for three: a sum over both against the normal density."""
    chain = IndependentSequences(np.array(poles), np.array(amounts), white, np.ones(1))
    lines = [h * np.arange(-int(12.0 / h), int(12.0 / h) + 1) for h in chain.spacings]
    weights = [h * np.exp(-0.5 * line**2) / np.sqrt(2.0 * np.pi) for h, line in zip(chain.spacings, lines, strict=True)]
    seen = np.add.outer(amounts[0] * lines[0], amounts[1] * lines[1])
    mass = np.multiply.outer(*weights)
    variance = float(chain.products[0, 0])
    for z in np.linspace(-3.0, 3.0, 41):
        found = float((mass * np.exp(-0.5 * ((z - seen) / white) ** 2)).sum()) / white
        assert found * np.sqrt(variance) == pytest.approx(np.exp(-0.5 * z * z / variance), rel=LATTICE_ERROR)


def test_spacings_keep_every_eigenvalue_below_what_the_lemma_needs() -> None:
    """The quadratic form of all bins and sequences, written out for 40 bins, in units of the lattices."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        count, bins = int(rng.integers(1, 4)), 40
        chain = IndependentSequences(
            rng.uniform(0.0, 0.95, count), rng.uniform(0.0, 1.5, count), float(rng.uniform(0.2, 1.0)), np.ones(bins)
        )
        lags = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))
        form = np.kron(np.outer(chain.amounts, chain.amounts) / chain.white**2, np.eye(bins))
        for s, pole in enumerate(chain.poles):
            block = slice(s * bins, (s + 1) * bins)
            form[block, block] += np.linalg.inv(pole**lags)
        scale = np.repeat(chain.spacings, bins)
        kappa = float(np.linalg.eigvalsh(scale[:, None] * form * scale)[-1])
        share = np.exp(-2.0 * np.pi**2 / kappa)
        assert (1.0 + 2.0 * share + 3.0 * share**4) ** (count * bins) - 1.0 <= LATTICE_ERROR


@pytest.mark.parametrize("most", [4, 8, 48])
def test_many_steps_at_a_time_are_within_their_error(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random complex steps, some contractions; few vectors give large errors, which have to be stated."""
    monkeypatch.setattr(repeated_steps, "MOST", most)
    monkeypatch.setattr(repeated_steps, "FEWEST", min(most, repeated_steps.FEWEST))
    rng = np.random.default_rng(most)
    for _ in range(10):
        n = 60
        chances = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 3.0)
        chances /= chances.sum(axis=1, keepdims=True)
        factor = np.exp(-1e-3 * np.arange(n) * rng.random()) * np.exp(1e-3j * np.arange(n) * rng.random((3, 1)))

        def step(rows: np.ndarray, chances: Array = chances, factor: np.ndarray = factor) -> np.ndarray:
            return np.asarray(factor * (rows @ chances.T))

        start = rng.standard_normal((3, n)) + 1j * rng.standard_normal((3, n))
        plain = start
        for _ in range(120):
            plain = step(plain)
        found, error = repeated(step, start, 120, 1.0, 300.0 * 2.0**-53)
        assert (np.abs(found - plain).max(axis=1) <= error + 1e-13).all()
        assert most < 48 or float(error.max()) < 1e-8

        def inexact(rows: np.ndarray, exact: Callable[[np.ndarray], np.ndarray] = step) -> np.ndarray:
            return np.asarray(exact(rows) + 1e-7 * np.abs(rows).max(axis=1, keepdims=True))

        found, error = repeated(inexact, start, 120, 1.0, 1e-7)
        assert (np.abs(found - plain).max(axis=1) <= error + 1e-13).all()


def test_vectors_whose_squares_underflow_are_followed_like_others() -> None:
    """Transforms at high frequencies are that small where a second run of equal bins begins, or 0."""
    rng = np.random.default_rng(4)
    chances = rng.dirichlet(np.ones(20), 20)
    start = rng.standard_normal((1, 20)) + 1j * rng.standard_normal((1, 20))
    sizes = np.array([[1.0], [1e-160], [1e-250], [1e-320], [0.0]])
    rows = start * sizes

    def step(rows: np.ndarray) -> np.ndarray:
        return np.asarray((0.99 + 0.1j) * (rows @ chances.T))

    found, error = repeated(step, rows, 60, 1.0, 100.0 * 2.0**-53)
    plain = start
    for _ in range(60):
        plain = step(plain)
    assert (np.abs(found - plain * sizes).max(axis=1) <= error + 1e-300).all()
    assert (error <= 1e-9 * sizes[:, 0] + 1e-300).all()


def test_runs_of_equal_bins_give_what_single_steps_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 bins, the last ones with smaller gains; bases that are too small move the bounds apart."""
    gains = np.ones(50)
    gains[-3:] = 0.9
    chain = IndependentSequences(np.array([0.2, 0.7]), np.array([0.4, 0.5]), 0.8, gains)
    quick = [profile(chain, side, 1.0)[0, 3] for side in Side]
    monkeypatch.setattr(independent_sequences, "WORTH", 1000)
    plain = [profile(chain, side, 1.0)[0, 3] for side in Side]
    assert quick == pytest.approx(plain, abs=1e-8)
    monkeypatch.setattr(independent_sequences, "WORTH", 40)
    for name in ("FEWEST", "MOST"):
        monkeypatch.setattr(repeated_steps, name, 9)
    rough = [profile(chain, side, 1.0)[0, 3] for side in Side]
    between = 0.5 * (plain[0] + plain[1])
    assert max(rough) - between > 1e-6
    assert rough[list(Side).index(Side.UPPER)] >= between >= rough[list(Side).index(Side.LOWER)]


def test_one_sequence_is_a_chain_of_order_one() -> None:
    """A second sequence that is not seen changes nothing either."""
    gains = np.linspace(0.8, 1.1, 12)
    chain = HiddenChain(0.8, 0.0, 0.9, 0.0, 0.7, gains)
    for poles, amounts in (([0.8], [0.9]), ([0.2, 0.8], [0.0, 0.9])):
        same = IndependentSequences(np.array(poles), np.array(amounts), 0.7, gains)
        assert same.products == pytest.approx(chain.products, rel=1e-12)
        for side in Side:
            # levels of what is seen, and ends of lattices, lie elsewhere
            assert profile(same, side)[:, :4] == pytest.approx(profile(chain, side)[:, :4], rel=2e-3, abs=1e-8)


def test_two_sequences_lose_less_than_one_where_overlaps_fall_slowly() -> None:
    """The overlaps of 16 bands of BSR, the same for all of 100 bins at low noise."""
    band = np.zeros(100)
    band[:16] = np.cumprod(np.concatenate([[1.0], (np.arange(1, 16) - 0.5) / np.arange(1, 16)]))
    overlaps = np.array([float(band[: 100 - lag] @ band[lag:]) for lag in range(100)])
    covariance = 0.8 * overlaps[np.abs(np.subtract.outer(np.arange(100), np.arange(100)))]
    weights = sensitivity(covariance, 1e-5, Deadline()).weights

    def of_order_one(chain: HiddenChain | IndependentSequences) -> bool:
        return isinstance(chain, IndependentSequences) or chain.second == chain.before == 0.0

    losses = []
    for independent in (False, True):
        found = comparable_chain(covariance, 1e-12, Side.UPPER, weights, of_order_one, np.inf, Deadline(), independent)
        assert found is not None
        assert isinstance(found, IndependentSequences) == independent
        losses.append(loss_of(found, covariance, Side.UPPER, weights))
    assert losses[1] < 0.7 * losses[0]
