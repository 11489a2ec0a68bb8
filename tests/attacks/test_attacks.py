"""What attackers gain: closed forms of the Gaussian on both sides, brute force on small pairs, and laws."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import hockeystick as hs
from hockeystick import attacks
from hockeystick.attacks.samples import SampledProfile
from hockeystick.bounds import Bound
from hockeystick.errors import InvalidInputError
from hockeystick.types import Direction, Kind, Side

ALPHAS = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0])
SIGMAS = [0.3, 1.0, 20.0]
CLOSE = 1e-6


def gaussian(sigma: float, side: Side) -> Bound:
    return hs.bound(hs.Mechanism(sampler=hs.Deterministic(bins=3), noise_multiplier=sigma), "gaussian", side=side)


def bound_of(side: Side, remove: object, add: object, slack: float = 0.0) -> Bound:
    profiles = {d: p for d, p in ((Direction.REMOVE, remove), (Direction.ADD, add)) if p is not None}
    return Bound("test", side, Kind.DETERMINISTIC, 1.0, "none", profiles, slack)


class Pair:
    """Two distributions on a few points: the truth, by enumerating the corners of the tests between them."""

    def __init__(self, p: list[float], q: list[float]) -> None:
        self.p, self.q = np.array(p) / sum(p), np.array(q) / sum(q)

    def remove(self, epsilon: float) -> float:
        return float(np.maximum(self.p - np.exp(epsilon) * self.q, 0.0).sum())

    def add(self, epsilon: float) -> float:
        return Pair(self.q.tolist(), self.p.tolist()).remove(epsilon)

    def profile(self, epsilon: float) -> float:
        return max(self.remove(epsilon), self.add(epsilon))

    def corners(self) -> tuple[np.ndarray, np.ndarray]:
        """(type I error, type II error) of all deterministic threshold tests of P against Q."""
        order = np.argsort(-self.p / np.maximum(self.q, 1e-300))
        return np.append(0.0, np.cumsum(self.q[order])), 1.0 - np.append(0.0, np.cumsum(self.p[order]))

    def type_two(self, alpha: float) -> float:
        return float(np.interp(alpha, *self.corners()))

    def symmetric(self, alpha: float) -> float:
        """The lower convex hull of both orders, by brute force over pairs of their corners."""
        a, b = self.corners()
        x, y = np.concatenate([a, b]), np.concatenate([b, a])
        below = x[:, None] <= alpha
        above = x[None, :] >= alpha
        width = x[None, :] - x[:, None]
        share = np.divide(alpha - x[:, None], width, out=np.zeros_like(width), where=width > 0.0)
        values = y[:, None] + share * (y[None, :] - y[:, None])
        return float(values[below & above].min())

    def bounds(self, up: float = 0.0, down: float = 0.0) -> tuple[Bound, Bound]:
        def moved(profile, by):
            return lambda epsilon: min(max(profile(epsilon) * (1.0 + by), 0.0), 1.0)

        upper = bound_of(Side.UPPER, moved(self.remove, up), moved(self.add, up))
        return upper, bound_of(Side.LOWER, moved(self.remove, -down), moved(self.add, -down))


masses = st.lists(st.integers(0, 20), min_size=3, max_size=3)
PAIRS = st.tuples(masses, masses).filter(lambda pq: sum(pq[0]) > 0 and sum(pq[1]) > 0).map(lambda pq: Pair(*pq))


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("side", list(Side))
def test_gaussian_closed_forms(sigma: float, side: Side) -> None:
    """Every number is within 1e-6 of its closed form, on the side of the bound."""
    mu, bound = 1.0 / sigma, gaussian(sigma, side)
    sign = 1.0 if side is Side.UPPER else -1.0
    type_two = np.concatenate([[1.0], norm.cdf(norm.isf(ALPHAS[1:-1]) - mu), [0.0]])
    closed_forms = [
        (attacks.advantage(bound), 2.0 * norm.cdf(mu / 2.0) - 1.0, sign),
        (attacks.type_two_error(bound, ALPHAS), type_two, -sign),
        (attacks.true_positive_rate(bound, ALPHAS), 1.0 - type_two, sign),
        (attacks.reconstruction_success(bound, ALPHAS), 1.0 - type_two, sign),
        (attacks.bayes_error(bound, [0.5]), norm.cdf(-mu / 2.0), -sign),
        (attacks.gdp_mu(bound), mu, sign),
    ]
    for computed, exact, errs in closed_forms:
        assert np.all(errs * (np.asarray(computed) - exact) >= -1e-13)
        assert np.all(np.abs(np.asarray(computed) - exact) <= CLOSE * max(1.0, mu))


@pytest.mark.parametrize("prior", [0.01, 0.2, 0.5, 0.8, 0.99])
def test_bayes_error_of_a_gaussian_is_that_of_the_best_threshold(prior: float) -> None:
    """The best guess says P above ``log((1-p)/p) / mu + mu / 2``."""
    mu = 0.5
    threshold = np.log((1.0 - prior) / prior) / mu + mu / 2.0
    exact = prior * norm.cdf(threshold - mu) + (1.0 - prior) * norm.sf(threshold)
    upper, lower = (float(attacks.bayes_error(gaussian(2.0, side), prior)) for side in (Side.UPPER, Side.LOWER))
    assert upper <= exact * (1.0 + 1e-14) <= lower * (1.0 + 2e-14)
    assert upper == pytest.approx(lower, rel=1e-9)


@given(PAIRS, st.floats(0.0, 1.0))
@settings(max_examples=25)
def test_trade_off_of_small_pairs_is_the_enumerated_one(pair: Pair, alpha: float) -> None:
    """Bounds that are the truth: both sides bracket the enumerated tests, within the tolerance."""
    upper, lower = pair.bounds()
    swapped = Pair(pair.q.tolist(), pair.p.tolist())
    cases = [
        (None, pair.symmetric(alpha)),
        (Direction.REMOVE, pair.type_two(alpha)),
        (Direction.ADD, swapped.type_two(alpha)),
    ]
    for direction, exact in cases:
        at_least = attacks.type_two_error(upper, alpha, direction=direction, tolerance=1e-4)
        at_most = attacks.type_two_error(lower, alpha, direction=direction, tolerance=1e-4)
        assert at_least - 1e-12 <= exact <= at_most + 1e-12
        if alpha > 1e-300:  # at 0 the answer is 1 - delta at an infinite epsilon, of which a lower bound says nothing
            assert at_most - at_least <= 1.1e-4
    best = 1.0 - min(pair.type_two(alpha), swapped.type_two(alpha))
    assert attacks.true_positive_rate(lower, alpha, tolerance=1e-4) <= best + 1e-12
    assert attacks.true_positive_rate(upper, alpha, tolerance=1e-4) >= best - 1e-12


@given(PAIRS, st.floats(0.01, 0.99), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
@settings(max_examples=25)
def test_loose_bounds_stay_on_their_side(pair: Pair, rate: float, up: float, down: float) -> None:
    """No number of a bound that is loose by any factor crosses the truth, and lower ends are at most upper ones."""
    upper, lower = pair.bounds(up, down)
    p, q = pair.p, pair.q
    truth = {
        "error": pair.symmetric(rate),
        "bayes": min(np.minimum(rate * a, (1.0 - rate) * b).sum() for a, b in ((p, q), (q, p))),
        "advantage": 0.5 * np.abs(p - q).sum(),
    }
    assert attacks.type_two_error(upper, rate, tolerance=1e-3) <= truth["error"] + 1e-12
    assert attacks.type_two_error(lower, rate, tolerance=1e-3) >= truth["error"] - 1e-12
    assert attacks.bayes_error(upper, rate) <= truth["bayes"] + 1e-12
    assert attacks.bayes_error(lower, rate) >= truth["bayes"] - 1e-12
    assert attacks.advantage(lower) - 1e-12 <= truth["advantage"] <= attacks.advantage(upper) + 1e-12
    assert attacks.gdp_mu(lower) <= attacks.gdp_mu(upper)
    summary = attacks.summary(upper, lower, tolerance=1e-3)
    assert all(low <= high for low, high in summary.values())


@given(PAIRS, st.sampled_from([1e-3, 1e-2, 0.1]))
@settings(max_examples=25)
def test_mu_covers_the_profile_and_is_needed(pair: Pair, unexplained: float) -> None:
    """The upper mu covers the truth at all epsilons; the lower one, made a little smaller, does not."""
    upper, lower = pair.bounds()
    most, least = (attacks.gdp_mu(bound, unexplained=unexplained) for bound in (upper, lower))
    epsilons = np.append(np.linspace(0.0, 0.2, 4001), np.linspace(0.2, 12.0, 4001))
    truth = np.array([pair.profile(epsilon) for epsilon in epsilons])
    if most < np.inf:
        assert np.all(gaussian_delta(most, epsilons) + unexplained >= truth - 1e-12)
        assert least <= most
    if least > 1e-3 and most < np.inf:
        assert np.any(gaussian_delta(0.999 * least, epsilons) + unexplained < truth)


def gaussian_delta(mu: float, epsilon: np.ndarray) -> np.ndarray:
    if mu == 0.0:
        return np.zeros_like(epsilon)
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_mu_where_mass_is_disclosed_is_infinite() -> None:
    pair = Pair([1, 99], [0, 100])
    upper, lower = pair.bounds()
    assert attacks.gdp_mu(upper) == np.inf
    assert 2.0 < attacks.gdp_mu(lower) < np.inf
    assert attacks.gdp_mu(upper, unexplained=0.02) < 0.1
    assert attacks.gdp_mu(lower, unexplained=0.02) == 0.0


def test_mu_of_a_profile_that_ends_flat_within_the_allowance() -> None:
    """delta(epsilon) = 0.3 falls to 1e-4 at once and stays there: nothing is left to explain beyond."""

    def profile(epsilon: float) -> float:
        return 1e-4 if epsilon >= 1.0 else 0.3

    bound = bound_of(Side.UPPER, profile, profile)
    assert attacks.gdp_mu(bound, unexplained=0.01) < 2.0
    assert attacks.gdp_mu(bound, unexplained=1e-5) == np.inf


@pytest.mark.parametrize(("p", "q"), [([1, 3], [3, 1]), ([1, 10], [10, 1]), ([2, 5, 3], [4, 5, 1])])
def test_regret_is_the_distance_along_the_diagonal(p: list[float], q: list[float]) -> None:
    """Against its definition: the least kappa that moves f below G_mu, by bisection on a grid of alphas."""
    pair = Pair(p, q)
    upper, lower = pair.bounds()
    mu = attacks.gdp_mu(upper, unexplained=1e-6)
    alphas = np.linspace(0.0, 1.0, 4001)
    f = np.array([pair.symmetric(alpha) for alpha in alphas])
    g = norm.cdf(norm.isf(alphas) - mu)
    low, high = 0.0, 1.0
    for _ in range(40):
        kappa = 0.5 * (low + high)
        fits = np.all(np.interp(np.minimum(alphas + kappa, 1.0), alphas, f) - kappa <= g)
        low, high = (low, kappa) if fits else (kappa, high)
    # Between the alphas of the grid the definition may ask for a little more.
    assert attacks.gdp_regret(upper, mu) == pytest.approx(high, abs=2e-4)
    assert attacks.gdp_regret(upper, mu) <= attacks.gdp_regret(lower, mu) <= attacks.gdp_regret(upper, mu) + 1e-7


def test_a_gaussian_has_no_regret() -> None:
    assert attacks.gdp_regret(gaussian(1.0, Side.UPPER), 1.0) == 0.0
    assert attacks.gdp_regret(gaussian(1.0, Side.LOWER), 1.0) <= 1e-4


def test_one_direction_is_tighter_than_both_where_they_cross() -> None:
    """With Poisson sampling the two orders differ, and no attack reaches the line between them."""
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=1), noise_multiplier=0.6)
    bound = hs.bound(run, "direct")
    remove, add = (float(attacks.type_two_error(bound, 0.5, direction=direction)) for direction in Direction)
    both = float(attacks.type_two_error(bound, 0.5))
    assert both < min(remove, add) - 0.01
    assert float(attacks.true_positive_rate(bound, 0.5)) == pytest.approx(1.0 - min(remove, add), abs=1e-12)


def test_slack_costs_on_either_side() -> None:
    slack = 1e-3
    pair = Pair([3, 1], [1, 3])
    upper = bound_of(Side.UPPER, pair.remove, pair.add, slack)
    lower = bound_of(Side.LOWER, pair.remove, pair.add, slack)
    assert attacks.advantage(upper) == pytest.approx(0.5 + 2.0 * slack)
    assert attacks.advantage(lower) == pytest.approx(0.5 - 2.0 * slack)
    for alpha in (0.01, 0.25, 0.6):
        exact = pair.symmetric(alpha)
        assert attacks.type_two_error(upper, alpha) < exact < attacks.type_two_error(lower, alpha)
        assert attacks.true_positive_rate(lower, alpha) < 1.0 - exact < attacks.true_positive_rate(upper, alpha)


def test_a_lower_bound_may_leave_a_direction_out() -> None:
    pair = Pair([3, 1], [1, 3])
    single, both = bound_of(Side.LOWER, pair.remove, None), pair.bounds()[1]
    for alpha in (0.01, 0.25, 0.6):
        assert attacks.true_positive_rate(single, alpha) <= attacks.true_positive_rate(both, alpha)
        assert attacks.type_two_error(single, alpha, direction=Direction.REMOVE) >= pair.type_two(alpha)
    assert attacks.type_two_error(single, 0.25, direction=Direction.ADD) >= pair.type_two(0.25)


def test_a_lower_bound_of_steps_is_not_read_between_them() -> None:
    """A profile that is 0 but at a few epsilons is a lower bound too; only those few points may count."""
    known = {0.0: 0.3, 0.5: 0.1}
    bound = bound_of(Side.LOWER, lambda e: known.get(e, 0.0), lambda e: known.get(e, 0.0))
    # All that is known is D(e^0) >= 0.3 and D(e^0.5) >= 0.1; the pair of points (0.7, 0.3) attains the first.
    pair = Pair([13, 7], [7, 13])
    for alpha in (0.1, 0.35, 0.5):
        assert attacks.type_two_error(bound, alpha) >= pair.symmetric(alpha) - 1e-12


def test_suprema_are_bracketed_for_any_falling_objective() -> None:
    samples = SampledProfile(lambda epsilon: np.exp(-epsilon))
    low, high = samples.supremum(lambda epsilon, delta: 1.0 - delta - 0.1 * np.exp(epsilon), 3.0, 1e-6)
    exact = 1.0 - 2.0 * np.sqrt(0.1)
    assert low <= exact <= high <= low + 1e-6
    assert all(a < b for a, b in pairwise(samples.epsilons))


def test_a_supremum_asks_for_many_epsilons_together() -> None:
    """As profiles answer them in less time than one by one."""
    asked = []

    def delta_at(epsilons):
        asked.append(epsilons.size)
        return np.exp(-epsilons)

    SampledProfile(delta_at).supremum(lambda epsilon, delta: 1.0 - delta - 0.1 * np.exp(epsilon), 3.0, 1e-6)
    assert asked[0] == 65
    assert len(asked) < 20 < sum(asked) / 10


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda b: attacks.type_two_error(b, -0.1), "alpha"),
        (lambda b: attacks.type_two_error(b, float("nan")), "alpha"),
        (lambda b: attacks.type_two_error(b, 0.5, tolerance=0.0), "tolerance"),
        (lambda b: attacks.true_positive_rate(b, 1.1), "fpr"),
        (lambda b: attacks.reconstruction_success(b, "x"), "baseline"),
        (lambda b: attacks.bayes_error(b, 0.0), "prior"),
        (lambda b: attacks.bayes_error(b, 1.0), "prior"),
        (lambda b: attacks.gdp_mu(b, unexplained=0.0), "unexplained"),
        (lambda b: attacks.gdp_regret(b, -1.0), "mu"),
        (lambda b: attacks.gdp_regret(b, float("nan")), "mu"),
        (lambda b: attacks.summary(b, b), "lower"),
    ],
)
def test_bad_input_is_refused_by_name(ask, field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        ask(gaussian(1.0, Side.UPPER))


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: attacks.type_two_error(b, 0.1),
        lambda b: attacks.true_positive_rate(b, 0.1),
        lambda b: attacks.reconstruction_success(b, 0.1),
        lambda b: attacks.bayes_error(b, 0.5),
        attacks.advantage,
        attacks.gdp_mu,
        lambda b: attacks.gdp_regret(b, 1.0),
        lambda b: attacks.summary(b, b),
    ],
)
def test_what_is_no_bound_is_told_what_is_one(ask) -> None:
    with pytest.raises(
        InvalidInputError, match=r"must be a Bound, such as hs\.profile\(mechanism\).* Got 'c' instead\.$"
    ):
        ask("c")
