"""What is proved of b-min-sep and multi-attribution subsampling, on laws that are enumerated or integrated."""

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from sampler_laws import Law
from samplers import DECLARED
from scipy.stats import binom, norm

from hockeystick.samplers import Attribution, BallsInBins, BMinSep, MultiAttribution, Poisson


def assert_same(first: Law, second: Law) -> None:
    first, second = ({run: p for run, p in law.items() if p > 0.0} for law in (first, second))
    assert set(first) == set(second)
    for run, chance in first.items():
        assert math.isclose(chance, second[run], rel_tol=1e-12)


@pytest.mark.parametrize("warm", [True, False])
def test_no_separation_is_poisson(warm: bool) -> None:
    sampler = BMinSep(min_sep=1, sampling_prob=0.3, steps=3, warm_start=warm)
    assert_same(DECLARED["b_min_sep"].law(sampler, 3), DECLARED["poisson"].law(Poisson(sampling_prob=0.3, steps=3), 3))
    fields = {"steps": 2, "truncated_batch_size": 1, "num_examples": 3, "sampling_prob": 0.3}
    cut = BMinSep(min_sep=1, warm_start=warm, **fields)
    assert_same(DECLARED["b_min_sep"].law(cut, 3), DECLARED["poisson"].law(Poisson(**fields), 3))


def test_full_rate_is_balls_in_bins_when_warm_and_deterministic_when_cold() -> None:
    warm = BMinSep(min_sep=3, sampling_prob=1 / 3, steps=6)
    assert_same(DECLARED["b_min_sep"].law(warm, 3), DECLARED["balls_in_bins"].law(BallsInBins(bins=3, epochs=2), 3))
    cold = BMinSep(min_sep=3, sampling_prob=1 / 3, steps=7, warm_start=False)
    assert_same(DECLARED["b_min_sep"].law(cold, 2), {((0, 3, 6), (0, 3, 6)): 1.0})


def test_exclusion_by_participating_examples_of_one_user_each_is_b_min_sep() -> None:
    q, b = 0.3, 3
    cold = BMinSep(min_sep=b, sampling_prob=q / (1 + (b - 1) * q), steps=4, warm_start=False)
    several = MultiAttribution(min_sep=b, sampling_prob=q, steps=4, examples_per_user=1, exclusion="participating")
    assert_same(DECLARED["multi_attribution"].law(several, 2), DECLARED["b_min_sep"].law(cold, 2))


@pytest.mark.parametrize("min_sep", [2, 3])
@pytest.mark.parametrize(
    ("graph", "own"),
    [
        (Attribution.from_pairs([0, 0, 1], [0, 1, 2]), [0, 1]),  # one user an example
        (Attribution.from_pairs([0, 1, 2], [0, 0, 1]), [0]),  # one example a user
    ],
)
def test_participations_of_a_user_renew_themselves_and_tell_others_nothing(
    graph: Attribution, own: list[int], min_sep: int
) -> None:
    """Exclusion by participating examples from a cold start, where users share nothing: x = x', and independent."""
    steps, q = 4, 0.3
    sampler = MultiAttribution(
        min_sep=min_sep,
        sampling_prob=q,
        steps=steps,
        examples_per_user=graph.examples_per_user,
        users_per_example=graph.users_per_example,
        exclusion="participating",
    )
    joint: dict[tuple[object, object], float] = defaultdict(float)
    for run, chance in DECLARED["multi_attribution"].law(sampler, graph.num_examples, graph).items():
        counts = tuple(sum(t in run[e] for e in own) for t in range(steps))
        joint[counts, tuple(run[e] for e in range(graph.num_examples) if e not in own)] += chance
    renewals: dict[tuple[int, ...], float] = defaultdict(float)
    for counts in product(range(len(own) + 1), repeat=steps):
        renewals[tuple(participations(counts, min_sep))] += math.prod(binom.pmf(counts, len(own), q))
    others: dict[object, float] = defaultdict(float)
    for (_, seen), chance in joint.items():
        others[seen] += chance
    assert math.isclose(sum(renewals.values()), 1.0, rel_tol=1e-12)
    for counts, seen in product(renewals, others):
        assert math.isclose(joint[counts, seen], renewals[counts] * others[seen], rel_tol=1e-9)


@pytest.mark.parametrize(("min_sep", "rate"), [(2, 0.1), (3, 0.2), (5, 0.19), (9, 1 / 9)])
def test_the_warm_start_is_stationary(min_sep: int, rate: float) -> None:
    """Any window of a warm run has the law of its beginning, and each step has the rate."""
    law = DECLARED["b_min_sep"].law(BMinSep(min_sep=min_sep, sampling_prob=rate, steps=8), 1)
    for step in range(8):
        assert math.isclose(sum(p for (steps,), p in law.items() if step in steps), rate, rel_tol=1e-12)
    short = DECLARED["b_min_sep"].law(BMinSep(min_sep=min_sep, sampling_prob=rate, steps=3), 1)
    for first in range(6):
        window: Law = {}
        for (steps,), chance in law.items():
            run = (tuple(s - first for s in steps if first <= s < first + 3),)
            window[run] = window.get(run, 0.0) + chance
        assert_same(window, short)


# Multi-attribution: the coupling, and the two places where it does not reach


def participations(counts: tuple[int, ...], min_sep: int) -> list[int]:
    """x': the counts of a user's sampled examples, where it has not taken part in the last b - 1 steps."""
    taken: list[int] = []
    for t, count in enumerate(counts):
        taken.append(0 if any(taken[max(0, t - min_sep + 1) : t]) else count)
    return taken


@pytest.mark.parametrize("min_sep", [1, 2, 3])
def test_with_the_same_coins_exclusion_by_sampled_examples_participates_less(min_sep: int) -> None:
    """Examples 0 and 1 are the user's, example 2 shares a second user with example 1; any step may be warm-up."""
    steps = 4
    for sampled in product(product((0, 1), repeat=3), repeat=steps):
        batch_counts = []
        for t, (first, second, _) in enumerate(sampled):
            before = sampled[max(0, t - min_sep + 1) : t]
            hit = any(first or second for first, second, _ in before)
            outside = any(third for _, _, third in before)
            batch_counts.append(0 if hit else first + (0 if outside else second))
        for warm_up in range(steps):
            counts = tuple(first + second for first, second, _ in sampled[warm_up:])
            above = participations(counts, min_sep)
            assert all(x <= y for x, y in zip(batch_counts[warm_up:], above, strict=True))


def pair_ratio(
    prob: float, examples: int, scales: tuple[float, float], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """X = dP/dQ of two steps, b = 2, C = diag(scales), sigma = 1, for a user with this many examples."""
    counts = np.arange(1, examples + 1)
    none, weights = (1 - prob) ** examples, binom.pmf(counts, examples, prob)

    def hits(y: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        shift = scale * counts
        return np.asarray(np.exp(np.multiply.outer(y, shift) - shift**2 / 2) @ weights)

    return np.asarray(none * (none + hits(second, scales[1])) + hits(first, scales[0]))


def remove_delta(prob: float, examples: int, scales: tuple[float, float], epsilon: float) -> float:
    nodes = np.linspace(-9.0, 9.0, 1801)
    weights = norm.pdf(nodes) * (nodes[1] - nodes[0])
    ratio = pair_ratio(prob, examples, scales, nodes[:, None], nodes[None, :])
    return float(weights @ np.maximum(ratio - math.exp(epsilon), 0.0) @ weights)


def test_examples_of_several_users_reveal_participations() -> None:
    """The sensitive user's one example also belongs to 1000 others, who have one example more each: k_u = 2.

    Two steps, b = 2, C = I, sigma = 1. The others' gradients have a direction of their own. Whether their sum at the
    second step is near zero tells whether the example was sampled at the first one, in both worlds; the event "near
    zero, and the first output exceeds its threshold" alone makes delta twice as large as the published pair does.
    """
    prob, others, epsilon, near_zero = 0.1, 1000, 1.0, 45.0
    present = np.arange(others + 1)
    others_missing = float(binom.pmf(present, others, prob * (1 - prob)) @ norm.cdf(near_zero - present))
    threshold = epsilon + 0.5

    def chance(shift: float) -> float:
        sampled = prob * norm.cdf(near_zero) * norm.sf(threshold - shift)
        return float(sampled + (1 - prob) * others_missing * norm.sf(threshold))

    truth = chance(1.0) - math.exp(epsilon) * chance(0.0)
    published = max(remove_delta(prob, examples, (1.0, 1.0), epsilon) for examples in (1, 2))
    assert truth > 2 * published > 0.01
    several = MultiAttribution(
        min_sep=2, sampling_prob=prob, steps=2, examples_per_user=2, users_per_example=1 + others
    )
    assert "without amplification" in several.requirement


def test_a_user_with_fewer_examples_can_be_worse_off() -> None:
    """Where the first column of C is small, examples more make the first, harmless step take the second one's place."""
    single, double = (remove_delta(0.9, examples, (1e-3, 1.0), 0.5) for examples in (1, 2))
    assert single > 2 * double > 0.0
    single, double = (remove_delta(0.9, examples, (1.0, 1.0), 0.5) for examples in (1, 2))
    assert double > single
