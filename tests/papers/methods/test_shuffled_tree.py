"""The shuffled binary tree with gradients fixed beforehand: every lemma by brute force, then the bound among others."""

import re
from collections import Counter
from fractions import Fraction
from itertools import permutations, product
from math import cosh, exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from hockeystick import Direction, Mechanism, Resolution, Side, calibrate, certify, compare, verify
from hockeystick.accountants import comparison, direct, gaussian, shuffle_thresholds
from hockeystick.errors import UnsupportedError, VerificationError
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.pairs.shuffled_tree import ShuffledTree
from hockeystick.samplers import Shuffle
from hockeystick.settings import Settings
from hockeystick.strategies import BinaryTree
from hockeystick_papers import shuffled_tree

PAGE = Path(__file__).resolve().parents[3] / "docs" / "theory" / "subsets" / "shuffled-tree.md"
COARSE = Settings(Resolution(20, 1e-8))


def tree(bins: int, noise: float, *, epochs: int = 1, batch_size: int = 1) -> ShuffledTree:
    matrix = BinaryTree().matrix(bins * epochs)
    return ShuffledTree(noise_multiplier=noise, matrix=matrix, batch_size=batch_size, bins=bins, epochs=epochs)


# ---- the pair


@pytest.mark.parametrize(("bins", "epochs"), [(1, 5), (2, 6), (3, 1), (3, 3), (4, 3), (5, 2), (8, 1), (7, 1)])
def test_the_sensitivity_covers_every_choice_of_steps(bins: int, epochs: int) -> None:
    pair = tree(bins, 1.0, epochs=epochs)
    columns = pair.matrix.materialize()
    steps = product(*(range(epoch * bins, (epoch + 1) * bins) for epoch in range(epochs)))
    truth = max(float(np.linalg.norm(columns[:, list(chosen)].sum(axis=1))) for chosen in steps)
    assert truth <= pair.full_sensitivity * (1.0 + pair.sensitivity_error)
    assert pair.full_sensitivity <= truth * (1.05 if min(bins, epochs) > 1 else 1.0 + 1e-12)


def test_the_pair_of_a_mechanism() -> None:
    sampler = Shuffle(batch_size=3, bins=8, epochs=2)
    pair = dominating_pair(Mechanism(strategy=BinaryTree(), sampler=sampler, noise_multiplier=2.5))
    assert isinstance(pair, ShuffledTree)
    assert (pair.noise_multiplier, pair.batch_size, pair.bins, pair.epochs) == (2.5, 3, 8, 2)
    assert pair.matrix.steps == 16
    assert not pair.batches_are_public
    assert tree(1, 1.0, epochs=3).batches_are_public


# ---- lemmas


def test_swapping_with_a_clone_leaves_the_permutation_uniform() -> None:
    """Four examples, two subtrees of two places: drawn places, arrangement, coins and swap, enumerated."""
    probability = Fraction(1, 3)
    weights: Counter[tuple[int, ...]] = Counter()
    for drawn in product((0, 1), (2, 3)):
        arrangements = [permutation for permutation in permutations(range(4)) if permutation.index(0) in drawn]
        for arrangement, coin in product(arrangements, (False, True)):
            other = next(arrangement[place] for place in drawn if arrangement[place] != 0)
            swappable = [0, other] if coin else [0]
            for partner in swappable:
                result = list(arrangement)
                home, away = result.index(0), result.index(partner)
                result[home], result[away] = partner, 0
                weight = (probability if coin else 1 - probability) / (4 * len(arrangements) * len(swappable))
                weights[tuple(result)] += weight
    assert weights == {permutation: Fraction(1, 24) for permutation in permutations(range(4))}


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
def test_the_variance_proxy_covers_the_moments(mu: float) -> None:
    """``E cosh(x tanh(l/2))`` under N(mu, 1) is the moment generating function under the half-way mixture."""

    def moment(x: float) -> float:
        def density(z: float) -> float:
            return cosh(x * np.tanh(0.5 * (mu * z + 0.5 * mu * mu))) * norm.pdf(z)

        return quad(density, -12.0, 12.0, epsabs=0.0, epsrel=1e-11, limit=200)[0]

    proxy = shuffled_tree.variance_proxy(mu)
    for x in (0.01, 0.5, 2.0, 10.0):
        assert log(moment(x)) <= 0.5 * proxy * x * x * (1.0 + 1e-9) + 1e-11
    if mu < 0.5:  # no proxy is below the variance, and this one comes close
        assert log(moment(0.1 / mu)) >= 0.5 * 0.9 * proxy * (0.1 / mu) ** 2


@pytest.mark.parametrize(("mu", "epsilon0"), [(0.05, 0.2), (0.3, 1.0), (1.0, 2.0)])
def test_clones_cost_no_more_than_is_charged(mu: float, epsilon0: float) -> None:
    """The mass of ``(p/2)(P + Q)`` above R, for every place of another example on the line through P and Q."""
    p, charged = exp(-epsilon0), shuffled_tree.moved(2, mu, epsilon0)

    def lacking(other: float) -> float:
        def density(z: float) -> float:
            mixture = 0.5 * p * (norm.pdf(z - mu) + norm.pdf(z))
            return max(mixture - norm.pdf(z - other), 0.0)

        return quad(density, -14.0, 14.0, epsabs=1e-13, limit=400)[0]

    others = [lacking(mu * place) for place in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    assert max(others) <= charged * (1.0 + 1e-6) + 1e-12
    too_near = 0.5 * p * 2.0 * gaussian_delta(1.0, mu, epsilon0, Side.UPPER)
    assert max(others) > too_near  # two other examples are up to two norms apart, not one
    assert shuffled_tree.moved(11, mu, epsilon0) == pytest.approx(10 * charged)


@pytest.mark.parametrize("others", [1, 15, 1023, 10**6])
@pytest.mark.parametrize("epsilon0", [1e-6, 0.1, 1.0, 4.0])
def test_the_number_of_clones(others: int, epsilon0: float) -> None:
    for failure in (0.1, 1e-6, 1e-20):
        fewest = shuffled_tree.fewest_clones(others, epsilon0, failure)
        assert 0.0 <= fewest <= others
        assert binom.cdf(np.ceil(fewest) - 1.0, others, exp(-epsilon0)) <= failure
        spread = sqrt(others * exp(-epsilon0) * -np.expm1(-epsilon0))
        assert fewest >= others * exp(-epsilon0) - sqrt(-2.0 * log(failure)) * spread - 2.0 * -log(failure) - 1.0


def test_an_exponential_majorant_of_the_excess() -> None:
    for proxy, threshold in product((1e-8, 1e-3, 0.5), (0.0, 1.0, 4.0, 9.0)):
        s, c = sqrt(proxy), threshold * sqrt(proxy)
        exact = s * (norm.pdf(threshold) - threshold * norm.sf(threshold))
        excess = float(shuffled_tree.excess(np.array([proxy]), c)[0])
        assert exact <= excess <= (2.0 + threshold) * exact
    weights = np.array([0.3, 0.25, 0.2, 0.15, 0.1])  # signs: sub-Gaussian with the sum of squares
    sums = np.array(list(product((-1.0, 1.0), repeat=5))) @ weights
    for c in (0.0, 0.3, 0.8):
        exact = float(np.maximum(sums - c, 0.0).mean())
        assert exact <= shuffled_tree.excess(np.array([np.square(weights).sum()]), c)[0]


@pytest.mark.parametrize("noise", [1.0, 4.0, 20.0])
def test_the_posterior_of_the_place_is_as_even_as_is_claimed(noise: float) -> None:
    """Top levels of a tree over 16 subtrees; one-dimensional contributions that are extreme, or depend on the place."""
    slots, top, failure, rounds = 16, 4, 0.05, 4000
    rng = np.random.default_rng(7)
    nodes = np.concatenate([np.kron(np.eye(slots >> level), np.ones(1 << level)) for level in range(1, top + 1)])
    claimed = shuffled_tree.unevenness(noise, top, slots, failure)
    for pattern in ("opposite", "nothing", "random", "by place"):
        own, others = np.ones(slots), np.ones((slots, slots))  # others[k, i]: what the clone from k gives on place i
        if pattern == "opposite":
            others = -others
        elif pattern == "nothing":
            others = 0.0 * others
        elif pattern == "random":
            others = np.repeat(rng.choice((-1.0, 1.0), slots)[:, None], slots, axis=1)
        elif pattern == "by place":
            own, others = rng.choice((-1.0, 1.0), slots), rng.choice((-1.0, 1.0), (slots, slots))
        home = int(rng.integers(slots))
        shifts = np.array(
            [nodes[:, i] * (own[i] - others[i, i]) + nodes[:, home] * others[i, home] for i in range(slots)]
        )
        shifts[home] = nodes[:, home] * own[home]
        true = rng.integers(slots, size=rounds)
        outputs = shifts[true] + noise * rng.standard_normal((rounds, nodes.shape[0]))
        logs = (outputs @ shifts.T - 0.5 * np.square(shifts).sum(axis=1)) / noise**2
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        exceeded = np.log(slots * posterior.max(axis=1)) > claimed
        assert exceeded.mean() <= 2.0 * failure
        assert posterior.max() * slots > 1.0 + 0.1 / noise  # it is uneven


# ---- the low levels alone


def low_epsilon(slots: int, mu: float, delta: float) -> float:
    splits = mu * np.geomspace(1e-3, 10.0, 300)
    bounds = shuffled_tree.low_levels(1.0 / mu, 1, 0, slots, splits)
    assert (np.diff(bounds) <= 1e-12).all()
    return float(splits[np.flatnonzero(bounds <= delta)[0]])


@pytest.mark.parametrize(("slots", "mu"), [(256, 0.01), (4096, 0.05), (4096, 0.2)])
def test_the_leaves_alone_are_above_random_allocation(slots: int, mu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all other examples at 0 and nothing known, the leaves are 1-of-t allocation, whose law is known."""
    allocation = AveragedSteps(noise_multiplier=1.0 / mu, bins=slots)
    below = direct.ACCOUNTANT.bound(allocation, Side.LOWER, COARSE).epsilon(1e-6)
    assert below <= low_epsilon(slots, mu, 1e-6) <= 6.0 * below
    proxy = shuffled_tree.variance_proxy
    monkeypatch.setattr(shuffled_tree, "variance_proxy", lambda mu: 0.01 * proxy(mu))
    assert low_epsilon(slots, mu, 1e-6) < below


# ---- the whole bound


@pytest.mark.parametrize(("bins", "noise"), [(8, 5.0), (64, 100.0), (256, 30.0), (256, 300.0), (96, 50.0)])
def test_above_the_profiles_that_known_data_attain(bins: int, noise: float) -> None:
    """All others at 0: the mixture of the tree's columns. All others opposite: its leaves, and the sum of all."""
    pair = tree(bins, noise)
    above = shuffled_tree.ACCOUNTANT.bound(pair, Side.UPPER)
    alone = BinMixture(noise_multiplier=noise, matrix=pair.matrix, bins=bins)
    opposite = ShuffledBatches(noise_multiplier=noise, batch_size=1, bins=bins)
    lower = [
        comparison.ACCOUNTANT.bound(alone, Side.LOWER, COARSE),
        shuffle_thresholds.ACCOUNTANT.bound(opposite, Side.LOWER, COARSE),
    ]
    for epsilon in np.array([0.0, 0.1, 0.5, 1.0, 2.0, 5.0]) / noise:
        for direction in Direction:
            upper = above.profiles[direction](float(epsilon))
            for below in lower:
                assert below.profiles[direction](float(epsilon)) <= upper <= 1.0


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_above_a_simulation_with_others_of_one_sign(sign: float) -> None:
    """All others at ``sign``: then arrangements differ by the place of the example alone, and the ratio is exact."""
    bins, noise, rounds = 64, 20.0, 20_000
    rng = np.random.default_rng(11)
    pair = tree(bins, noise)
    columns = pair.matrix.materialize()
    above = shuffled_tree.ACCOUNTANT.bound(pair, Side.UPPER)

    def log_density(outputs: np.ndarray, shift: float) -> np.ndarray:
        logs = (shift * outputs @ columns - 0.5 * np.square(shift * columns).sum(axis=0)) / noise**2
        return np.logaddexp.reduce(logs, axis=1) - log(bins)

    # relative to the run where all places hold ``sign``: the example at 1 with P, at 0 with Q
    present, absent = 1.0 - sign, -sign
    for direction, first, second in ((Direction.REMOVE, present, absent), (Direction.ADD, absent, present)):
        means = first * columns[:, rng.integers(bins, size=rounds)].T
        outputs = means + noise * rng.standard_normal((rounds, columns.shape[0]))
        ratio = log_density(outputs, second) - log_density(outputs, first)
        for epsilon in (0.0, 0.02, 0.1):
            values = np.maximum(-np.expm1(epsilon + ratio), 0.0)
            error = values.std() / sqrt(rounds)
            assert values.mean() > 4.0 * error
            assert values.mean() - 4.0 * error <= above.profiles[direction](epsilon)


def test_profiles_fall_and_both_directions_agree() -> None:
    bound = shuffled_tree.ACCOUNTANT.bound(tree(512, 80.0), Side.UPPER)
    values = [bound.profiles[Direction.REMOVE](epsilon) for epsilon in np.linspace(0.0, 0.5, 60)]
    assert (np.diff(values) <= 0.0).all()
    assert 0.0 < values[-1] < values[0] < 1.0
    assert bound.profiles[Direction.ADD](0.05) == bound.profiles[Direction.REMOVE](0.05)


def test_the_size_of_the_batches_does_not_matter_and_odd_trees_are_covered() -> None:
    of_single, of_many = (
        shuffled_tree.ACCOUNTANT.bound(tree(256, 80.0, batch_size=size), Side.UPPER) for size in (1, 500)
    )
    assert of_single.epsilon(1e-6) == of_many.epsilon(1e-6)
    odd = shuffled_tree.ACCOUNTANT.bound(tree(1023, 300.0), Side.UPPER).epsilon(1e-6)
    assert odd > shuffled_tree.ACCOUNTANT.bound(tree(1024, 300.0), Side.UPPER).epsilon(1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="single epoch"):
        shuffled_tree.ACCOUNTANT.bound(tree(8, 1.0, epochs=2), Side.UPPER)
    with pytest.raises(UnsupportedError, match="nothing to shuffle"):
        shuffled_tree.ACCOUNTANT.bound(tree(1, 1.0), Side.UPPER)
    with pytest.raises(UnsupportedError, match="no lower bounds"):
        shuffled_tree.ACCOUNTANT.bound(tree(8, 1.0), Side.LOWER)


def test_nobody_gets_it_without_asking() -> None:
    """It would be better here, and it does not hold for training."""
    mechanism = Mechanism(strategy=BinaryTree(), sampler=Shuffle(batch_size=4, bins=4096), noise_multiplier=200.0)
    pair = dominating_pair(mechanism)
    known = gaussian.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-6)
    assert shuffled_tree.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-6) < 0.9 * known
    certificate = certify(mechanism, delta=1e-6)
    assert certificate.method.upper == "gaussian"
    assert certificate.bounds.upper == pytest.approx(known, rel=1e-6)
    assert not any("beforehand: it must not depend" in requirement for requirement in certificate.requirements)
    assert "shuffled_tree" not in {outcome.method for outcome in compare(mechanism, delta=1e-6)}


def test_who_asks_for_it_is_told_what_it_assumes() -> None:
    mechanism = Mechanism(strategy=BinaryTree(), sampler=Shuffle(batch_size=4, bins=4096), noise_multiplier=200.0)
    certificate = certify(mechanism, delta=1e-6, method="shuffled_tree")
    assert certificate.method.upper == "shuffled_tree"
    assert shuffled_tree.ACCOUNTANT.assumes in certificate.requirements
    assert shuffled_tree.ACCOUNTANT.assumes in str(certificate)
    assert verify(certificate) == certificate
    silent = certificate.model_copy(
        update={
            "assumptions": tuple(
                assumption for assumption in certificate.assumptions if "beforehand: it" not in assumption.text
            )
        }
    ).sealed()
    with pytest.raises(VerificationError, match="assumptions"):
        verify(silent)
    plain = calibrate(mechanism, epsilon=0.05, delta=1e-6)
    asked = calibrate(mechanism, epsilon=0.05, delta=1e-6, method="shuffled_tree")
    assert asked.sigma < plain.sigma


def test_the_table_of_the_documentation() -> None:
    text = PAGE.read_text()
    noises = [float(figure) for figure in re.findall(r"s = (\d+)", re.search(r"\| T \|.*", text).group())]
    rows = re.findall(r"\| 2\^(\d+) \| (.*) \|", text)
    assert len(rows) == len(noises) == 4
    ratios = []
    for power, cells in rows:
        for noise, cell in zip(noises, cells.split(" | "), strict=True):
            printed, known, ratio = (float(figure) for figure in re.findall(r"[\d.]+", cell))
            pair = tree(1 << int(power), noise)
            epsilon = shuffled_tree.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-6)
            plain = gaussian.ACCOUNTANT.bound(pair, Side.UPPER).epsilon(1e-6)
            assert (epsilon, plain) == pytest.approx((printed, known), rel=6e-3)
            assert epsilon / plain == pytest.approx(ratio, abs=6e-3)
            ratios.append(ratio)
    assert min(ratios) < 1.0 < max(ratios)
