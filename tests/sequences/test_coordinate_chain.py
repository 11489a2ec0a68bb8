"""Chains whose numbers are drawn one after the other: against quadrature, chains of order one, and what is left out."""

import dataclasses

import numpy as np
import pytest

from hockeystick.deadline import Deadline
from hockeystick.laws.law import Array
from hockeystick.sequences import comparable_chain as chains
from hockeystick.sequences import coordinate_fits
from hockeystick.sequences.comparable_chain import comparable_chain, loss_of, sensitivity
from hockeystick.sequences.coordinate_chain import COARSE_ERROR, CoordinateChain
from hockeystick.sequences.coordinate_fits import coordinate_chain
from hockeystick.sequences.hidden_chain import HiddenChain
from hockeystick.sequences.hidden_chain_transform import chain_profiles
from hockeystick.types import Direction, Side
from tests.sequences.test_hidden_chain import EPSILONS, truth


def profile(chain: HiddenChain | CoordinateChain, side: Side, near: float = 0.8) -> Array:
    found = chain_profiles(chain, side, 1e-4, near, True, Deadline()).profiles()
    return np.array([[found[direction](at) for at in EPSILONS] for direction in Direction])


def random_chain(rng: np.random.Generator, count: int, bins: int) -> CoordinateChain:
    coefficients = rng.uniform(-0.35, 0.35, (count, count)) + np.diag(rng.uniform(0.0, 0.4, count))
    return CoordinateChain(
        coefficients,
        rng.uniform(0.7, 1.0, count),
        rng.uniform(-0.5, 0.5, count) if count > 1 else np.array([0.6]),
        float(rng.uniform(0.7, 0.9)),
        rng.uniform(0.6, 1.1, bins),
        rng.uniform(0.0, 0.3, bins),
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_random_chains_against_quadrature(count: int) -> None:
    """Three bins with gains and white noise that differ, from above, both directions."""
    chain = random_chain(np.random.default_rng(count), count, 3)
    exact = truth(chain.products)
    error = 1e-9 + 3e-5 * exact  # of the trapezoidal rule
    upper = profile(chain, Side.UPPER)
    assert (upper >= exact - error).all()
    assert (upper[0, :4] <= exact[0, :4] * 1.02 + 2e-4).all()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_covariances_are_those_of_the_draws(count: int) -> None:
    """The joint covariance of 6 bins, built draw by draw from a long past."""
    chain = random_chain(np.random.default_rng(10 + count), count, 6)
    past, n = 60, count
    steps = []
    rows = np.zeros((n, n * (past + 6)))
    for at in range(past + 6):
        for number in range(n):
            rows[number] = chain.coefficients[number] @ rows
            rows[number, n * at + number] += np.sqrt(chain.variances[number])
        steps.append(chain.seen @ rows)
    seen = np.array(steps[past:])
    expected = np.multiply.outer(chain.gains, chain.gains) * (seen @ seen.T + np.diag(chain.whites**2))
    assert chain.products == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_lattices_change_densities_by_no_more_than_they_may() -> None:
    """Two bins of two numbers: the sum over all states at once against the normal density of z."""
    base = random_chain(np.random.default_rng(5), 2, 2)
    for white, seen in ((0.8, (0.5, 0.4)), (0.35, (1.0, -0.6))):
        chain = CoordinateChain(base.coefficients, base.variances, np.array(seen), white, np.ones(2))
        lines = [h * np.arange(-int(7.0 / h), int(7.0 / h) + 1) for h in chain.spacings]
        x, y, u, v = np.meshgrid(*lines, *lines, indexing="ij")
        place = np.stack([x.ravel(), y.ravel()])
        distance = np.einsum("is,ij,js->s", place, np.linalg.inv(chain.covariances[0]), place)
        mass = np.exp(-0.5 * distance) / (2.0 * np.pi * np.sqrt(np.linalg.det(chain.covariances[0])))
        (a, c), (q, r) = chain.coefficients, chain.variances
        first, second = u.ravel(), v.ravel()
        mass *= np.exp(-0.5 * (first - a @ place) ** 2 / q - 0.5 * (second - c @ np.stack([first, place[1]])) ** 2 / r)
        mass *= np.prod(chain.spacings) ** 2 / (2.0 * np.pi * np.sqrt(q * r))
        shown = chain.seen @ place, chain.seen @ np.stack([first, second])
        precision = np.linalg.inv(chain.products)
        for z in np.random.default_rng(6).multivariate_normal(np.zeros(2), chain.products, 12):
            found = float(mass @ np.exp(-0.5 * sum((z[i] - shown[i]) ** 2 for i in range(2)) / white**2))
            density = np.sqrt(np.linalg.det(precision)) * np.exp(-0.5 * z @ precision @ z) * white**2
            assert found == pytest.approx(density, rel=COARSE_ERROR)


def test_what_is_left_out_is_less_than_what_is_charged() -> None:
    """20 bins: the kept mass and the kept mean of X, on lattices so fine that all of them have 1 but for 1e-6."""
    rng = np.random.default_rng(7)
    for _ in range(3):
        one = random_chain(rng, 2, 20)
        chain = CoordinateChain(one.coefficients, one.variances, np.sign(one.seen) + one.seen, 0.2, one.gains)
        assert chain.crowding - COARSE_ERROR < 1.0 + 1e-6
        for lost in (1e-2, 1e-4):
            states = chain.states(lost)
            total, mean = np.ones(states.seen.size), np.zeros(states.seen.size)
            for place, gain in enumerate(chain.gains[::-1]):
                if place:
                    total, mean = states.averaged(total), states.averaged(mean)
                mean += total * np.exp(gain * states.seen - 0.5 * gain**2 * chain.seen_variance) / chain.bins
            for kept in (total, mean):
                assert 1e-4 * lost <= 1.0 - float(states.start @ kept) + 1e-6 <= states.lost + 2e-6


def test_one_number_is_a_chain_of_order_one() -> None:
    gains = np.linspace(0.8, 1.1, 12)
    chain = HiddenChain(0.8, 0.0, 0.9, 0.0, 0.7, gains)
    same = CoordinateChain(np.array([[0.8]]), np.array([0.36]), np.array([0.9]), 0.7, gains)
    assert same.products == pytest.approx(chain.products, rel=1e-12)
    assert profile(same, Side.UPPER)[:, :3] == pytest.approx(profile(chain, Side.UPPER)[:, :3], rel=0.04)


def test_three_numbers_lose_less_than_others_for_many_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlaps of 16 bands of BSR, the same for all of 60 bins at low noise, against chains of order one."""
    for name, places in (("POLES", (0.8,)), ("RADII", (0.8,)), ("ANGLES", (0.2, 0.3)), ("REFINED", 5)):
        monkeypatch.setattr(coordinate_fits, name, places)
    for name in ("RADII", "PAIRS"):
        monkeypatch.setattr(chains, name, ())
    band = np.zeros(60)
    band[:16] = np.cumprod(np.concatenate([[1.0], (np.arange(1, 16) - 0.5) / np.arange(1, 16)]))
    overlaps = np.array([float(band[: 60 - lag] @ band[lag:]) for lag in range(60)])
    covariance = 0.5 * overlaps[np.abs(np.subtract.outer(np.arange(60), np.arange(60)))]
    weights = sensitivity(covariance, 1e-5, Deadline()).weights
    other = comparable_chain(covariance, 1e-12, Side.UPPER, weights, lambda _: True, np.inf, Deadline())
    assert other is not None
    loss = loss_of(other, covariance, Side.UPPER, weights)
    chain = coordinate_chain(covariance, 1e-12, weights, lambda one: one.volume < 5e4, loss, Deadline())
    assert chain is not None
    assert loss_of(chain, covariance, Side.UPPER, weights) < 0.5 * loss
    assert float(np.expm1(chain.products).mean()) >= float(np.expm1(covariance).mean())
    assert coordinate_chain(covariance, 1e-12, weights, lambda one: one.volume < 50.0, loss, Deadline()) is None


def test_chains_whose_states_crowd_on_their_lattice_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of poles at a right angle, followed exactly; for many bins the bound on chances is beyond all floats."""
    poles, shares = (0.417, 0.351, 1.634), np.array([0.2, 0.366, 0.434, -0.043])
    chain = coordinate_fits._realised(np.array(poles), shares, 40, 1.7)
    assert chain is not None
    assert 1e20 < chain.crowding < np.inf
    assert dataclasses.replace(chain, gains=np.ones(1024)).crowding == np.inf
    for name, place in zip(("POLES", "RADII", "ANGLES"), poles, strict=True):
        monkeypatch.setattr(coordinate_fits, name, (place,))
    monkeypatch.setattr(coordinate_fits, "REFINED", 5)
    covariance = np.maximum(chain.products, 0.0)
    weights = sensitivity(covariance, 1e-5, Deadline()).weights
    assert coordinate_chain(covariance, 1e-12, weights, lambda _: True, np.inf, Deadline()) is None
