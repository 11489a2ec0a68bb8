"""b-min-sep and multi-attribution subsampling, beyond the sizes whose law can be enumerated."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.samplers import Attribution, BatchSampler, BMinSep, BMinSepOptions, Data, MultiAttribution
from hockeystick.types import Adjacency

FALSE_FAILURE = 1e-9  # of each test, by a union bound over its exact binomial tests; the seeds are fixed besides


def table(sampler: BatchSampler, num_examples: int, seed: int, **more: Attribution) -> NDArray[np.bool_]:
    """Who is in which batch: shape (steps, num_examples)."""
    rng = np.random.default_rng(seed)
    present = np.zeros((sampler.steps, num_examples), dtype=np.bool_)
    for step, batch in enumerate(sampler.batches(num_examples, rng, **more)):
        present[step, batch] = True
    return present


def assert_rate(count: int, trials: int, rate: float, tests: int) -> None:
    assert binomtest(int(count), trials, rate).pvalue > FALSE_FAILURE / tests


def least_gap(present: NDArray[np.bool_]) -> int:
    """The least number of steps between two batches with the same example."""
    gaps = [np.diff(np.flatnonzero(column)).min() for column in present.T if column.sum() > 1]
    return min(gaps, default=10**9)


def cold_rates(prob: float, min_sep: int, steps: int) -> list[float]:
    """P(an example is taken at step t) from a cold start, by the renewal equation."""
    available = [1.0]
    for t in range(1, steps):
        returning = available[t - min_sep] * prob if t >= min_sep else 0.0
        available.append(available[t - 1] * (1 - prob) + returning)
    return [prob * one for one in available]


# b-min-sep


@pytest.mark.parametrize(("min_sep", "rate"), [(8, 0.05), (40, 1 / 60), (2, 0.5), (25, 1 / 25), (1, 0.02), (300, 1e-3)])
def test_warm_start_has_the_rate_at_every_step(min_sep: int, rate: float) -> None:
    n, steps = 20_000, 100
    present = table(BMinSep(min_sep=min_sep, sampling_prob=rate, steps=steps), n, seed=1)
    assert min_sep == 1 or least_gap(present) >= min_sep
    for batch in present:
        assert_rate(batch.sum(), n, rate, steps)


@pytest.mark.parametrize(("min_sep", "rate"), [(8, 0.05), (40, 1 / 60), (3, 0.33)])
def test_cold_start_has_the_rates_of_the_renewal_equation(min_sep: int, rate: float) -> None:
    n, steps = 20_000, 100
    sampler = BMinSep(min_sep=min_sep, sampling_prob=rate, steps=steps, warm_start=False)
    expected = cold_rates(sampler.participation_prob, min_sep, steps)
    assert expected[0] > 1.4 * rate  # far from stationary at first
    for batch, one in zip(table(sampler, n, seed=2), expected, strict=True):
        assert_rate(batch.sum(), n, one, steps)


@pytest.mark.parametrize("warm", [True, False])
def test_examples_are_independent(warm: bool) -> None:
    """Neighbouring examples take part together, or one step apart, as often as independent ones."""
    n, steps, b = 40_000, 30, 6
    sampler = BMinSep(min_sep=b, sampling_prob=0.1, steps=steps, warm_start=warm)
    rates = [0.1] * steps if warm else cold_rates(sampler.participation_prob, b, steps)
    present = table(sampler, n, seed=3)
    left, right = present[:, ::2], present[:, 1::2]
    for lag in (0, 1, b):
        for t in range(steps - lag):
            both = (left[t] & right[t + lag]).sum()
            assert_rate(both, n // 2, rates[t] * rates[t + lag], 3 * steps)


def test_gaps_are_geometric_and_independent_of_the_start() -> None:
    n, b, steps = 30_000, 5, 40
    sampler = BMinSep(min_sep=b, sampling_prob=0.1, steps=steps, warm_start=False)
    q = sampler.participation_prob
    present = table(sampler, n, seed=4)
    first = present.argmax(axis=0)
    rest = present & (np.arange(steps)[:, None] > first)
    second = np.where(rest.any(axis=0), rest.argmax(axis=0), steps)
    cases = [(t, k) for t in (0, 1, 4, 10) for k in (0, 1, 2, 9)]
    for t, k in cases:
        count = ((first == t) & (second == t + b + k)).sum()
        assert_rate(count, n, q * (1 - q) ** t * q * (1 - q) ** k, len(cases))


@given(st.integers(1, 40), st.integers(1, 9), st.floats(0.05, 1.0), st.booleans(), st.data(), st.integers(0, 2**32))
def test_separation_and_cap_are_never_violated(
    n: int, min_sep: int, share: float, warm: bool, draw: st.DataObject, seed: int
) -> None:
    cap = draw.draw(st.none() | st.integers(1, n))
    sampler = BMinSep(
        min_sep=min_sep,
        sampling_prob=share / min_sep,
        steps=30,
        warm_start=warm,
        truncated_batch_size=cap,
        num_examples=n,
    )
    present = table(sampler, n, seed)
    assert least_gap(present) >= min_sep
    assert cap is None or present.sum(axis=1).max() <= cap


def test_the_extremes_are_balls_in_bins_and_no_amplification() -> None:
    for b in (1, 2, 3, 7, 10, 49):  # the reciprocal of some is above, of others below the true one
        warm = table(BMinSep(min_sep=b, sampling_prob=1 / b, steps=4 * b), 500, seed=5)
        np.testing.assert_array_equal(warm[:b].sum(axis=0), np.ones(500))
        np.testing.assert_array_equal(warm, np.tile(warm[:b], (4, 1)))
        cold = BMinSep(min_sep=b, sampling_prob=1 / b, steps=4 * b, warm_start=False)
        expected = np.repeat(np.arange(4 * b)[:, None] % b == 0, 5, axis=1)
        np.testing.assert_array_equal(table(cold, 5, seed=5), expected)
        if b > 1:
            assert "balls-in-bins" in BMinSep(min_sep=b, sampling_prob=1 / b, steps=4).requirement
            assert "without amplification" in cold.requirement


def test_truncation_keeps_a_uniform_subset_and_the_untruncated_sizes() -> None:
    """The same taken examples, cut: sizes are capped, and each of the taken is kept as often as any other."""
    n, cap, steps = 60, 6, 4_000
    cut = BMinSep(min_sep=5, sampling_prob=0.12, steps=steps, truncated_batch_size=cap, num_examples=n)
    sizes = table(cut, n, seed=6).sum(axis=1)
    assert sizes.max() == cap
    assert (sizes < cap).any()
    # One step from a cold start: the size is min(B, binomial), and examples are exchangeable.
    one = cut.model_copy(update={"steps": 1, "warm_start": False})
    rng = np.random.default_rng(7)
    runs = 4_000
    kept = np.zeros(n, dtype=np.int64)
    for _ in range(runs):
        kept[next(one.batches(n, rng))] += 1
    weights = np.array([float(np.exp(_log_binomial(n, k, one.participation_prob))) for k in range(n + 1)])
    rate = float(weights @ np.minimum(np.arange(n + 1), cap)) / n
    for count in kept:
        assert_rate(count, runs, rate, n)


def _log_binomial(n: int, k: int, p: float) -> float:
    terms = np.log(np.arange(1, n + 1))
    return float(terms.sum() - terms[:k].sum() - terms[: n - k].sum() + k * np.log(p) + (n - k) * np.log1p(-p))


def test_memory_does_not_grow_with_the_steps() -> None:
    n = 100_000
    tracemalloc.start()
    picks = sum(b.size for b in BMinSep(min_sep=20, sampling_prob=0.03, steps=400).batches(n, np.random.default_rng(8)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert picks > 10 * n
    assert peak < 60 * n


@given(st.integers(1, 10**9), st.floats(1e-12, 1.0))
def test_participation_probability_inverts_the_rate(min_sep: int, share: float) -> None:
    rate = share / min_sep
    sampler = BMinSep(min_sep=min_sep, sampling_prob=rate, steps=1)
    q = sampler.participation_prob
    assert 0.0 < q <= 1.0
    exact = Fraction(rate) / (1 - Fraction(rate) * (min_sep - 1))
    assert q == min(float(exact), 1.0) or (rate == 1.0 / min_sep and q == 1.0)


def test_adjacencies_and_wrong_fields() -> None:
    plain = BMinSep(min_sep=4, sampling_prob=0.1, steps=3)
    assert plain.holds_for == (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
    fields = {"min_sep": 4, "sampling_prob": 0.1, "steps": 3}
    assert BMinSep(**fields, truncated_batch_size=2, num_examples=9).holds_for == (Adjacency.ZERO_OUT,)
    wrong = [
        ({"sampling_prob": 0.26}, r"'sampling_prob' field must be at most 1 / min_sep = 0\.25\. Got 0\.26 instead\.$"),
        ({"sampling_prob": 0.4}, r"Got 0\.4 instead; sampling_prob \* \(min_sep - 1\) must stay below 1"),
        ({"sampling_prob": 0.0}, r"'sampling_prob' field must be above 0\. Got 0\.0 instead\.$"),
        ({"min_sep": 0}, r"'min_sep' field must be at least 1\. Got 0 instead\.$"),
        ({"steps": 0}, r"'steps' field must be at least 1\. Got 0 instead\.$"),
        ({"warm_start": 1}, r"'warm_start' field must be true or false\. Got 1 instead\.$"),
        ({"truncated_batch_size": 2}, r"'num_examples' field has to be given with 'truncated_batch_size'\.$"),
        (
            {"truncated_batch_size": 5, "num_examples": 4},
            r"'truncated_batch_size' field must be at most num_examples = 4\. Got 5 instead\.$",
        ),
    ]
    for change, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            BMinSep(**(fields | change))
    with pytest.raises(InvalidInputError, match=r"argument must be the sampler's num_examples = 9\. Got 8 instead\.$"):
        BMinSep(**fields, num_examples=9).batches(8, np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match=r"at most num_examples / batch_size = 2.941176471 .*min_sep = 2 "):
        BMinSepOptions(min_sep=3).sampler(Data(num_examples=100, batch_size=34, steps=5))


# Multi-attribution

COMPONENT = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 3)]  # (user, example): a path of three examples, and one alone
RELATED = [2, 3, 2, 1]  # examples that share a user with each example, itself included


def copies(count: int) -> Attribution:
    """Many components of four examples each."""
    pairs = np.array(COMPONENT)
    users = (pairs[:, 0] + 3 * np.arange(count)[:, None]).ravel()
    return Attribution.from_pairs(users, (pairs[:, 1] + 4 * np.arange(count)[:, None]).ravel())


@pytest.mark.parametrize("warm_up", [0, 2, 4, 9])
def test_rates_of_exclusion_by_sampled_examples(warm_up: int) -> None:
    """q (1-q)^(m min(t, b-1)) at step t of the whole run: the same at all steps after a warm-up of b - 1."""
    b, q, steps, many = 5, 0.15, 8, 8_000
    sampler = MultiAttribution(
        min_sep=b, sampling_prob=q, steps=steps, examples_per_user=2, users_per_example=2, warm_up_steps=warm_up
    )
    present = table(sampler, 4 * many, seed=9, attribution=copies(many)).reshape(steps, many, 4)
    for t in range(steps):
        for example, related in enumerate(RELATED):
            rate = q * (1 - q) ** (related * min(t + warm_up, b - 1))
            assert_rate(present[t, :, example].sum(), many, rate, 4 * steps)
    # Components are independent of one another.
    for t in range(steps):
        rate = q * (1 - q) ** min(t + warm_up, b - 1)
        both = (present[t, ::2, 3] & present[t, 1::2, 3]).sum()
        assert_rate(both, many // 2, rate * rate, steps)


@pytest.mark.parametrize("warm_up", [0, 50])
def test_warm_up_approaches_the_stationary_state(warm_up: int) -> None:
    """Where users have one example, exclusion by participating examples is b-min-sep, and forgets its cold start."""
    b, q, steps, n = 5, 0.2, 6, 20_000
    sampler = MultiAttribution(
        min_sep=b,
        sampling_prob=q,
        steps=steps,
        examples_per_user=1,
        warm_up_steps=warm_up,
        exclusion="participating",
    )
    expected = cold_rates(q, b, warm_up + steps)[warm_up:]
    stationary = q / (1 + (b - 1) * q)
    if warm_up:
        np.testing.assert_allclose(expected, stationary, rtol=1e-3)
    else:
        assert expected[0] > 1.5 * stationary
    for batch, rate in zip(table(sampler, n, seed=10), expected, strict=True):
        assert_rate(batch.sum(), n, rate, steps)


@given(
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=25),
    st.integers(1, 5),
    st.floats(0.05, 1.0),
    st.sampled_from(["sampled", "participating"]),
    st.integers(0, 2**32),
)
def test_no_user_takes_part_twice_within_b_steps(
    pairs: set[tuple[int, int]], min_sep: int, prob: float, exclusion: str, seed: int
) -> None:
    users, examples = (np.unique(side, return_inverse=True)[1] for side in zip(*sorted(pairs), strict=True))
    graph = Attribution.from_pairs(users, examples)
    sampler = MultiAttribution(
        min_sep=min_sep,
        sampling_prob=prob,
        steps=25,
        examples_per_user=graph.examples_per_user,
        users_per_example=graph.users_per_example,
        exclusion=exclusion,
    )
    present = table(sampler, graph.num_examples, seed, attribution=graph)
    of_user = np.zeros((sampler.steps, graph.num_users), dtype=np.bool_)
    for user, example in zip(users, examples, strict=True):
        of_user[:, user] |= present[:, example]
    assert least_gap(of_user) >= min_sep


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1),
    st.integers(1, 6),
    st.floats(0.05, 1.0),
    st.integers(0, 2**32),
)
def test_by_example_the_graph_is_not_looked_at(
    pairs: set[tuple[int, int]], min_sep: int, prob: float, seed: int
) -> None:
    """Every example keeps its own distance, and the batches are those of examples of users of their own."""
    users, examples = (np.unique(side, return_inverse=True)[1] for side in zip(*sorted(pairs), strict=True))
    graph = Attribution.from_pairs(users, examples)
    fields = {"min_sep": min_sep, "sampling_prob": prob, "steps": 25, "exclusion": "example"}
    shared = MultiAttribution(
        **fields, examples_per_user=graph.examples_per_user, users_per_example=graph.users_per_example
    )
    present = table(shared, graph.num_examples, seed, attribution=graph)
    assert least_gap(present) >= min_sep
    alone = MultiAttribution(**fields, examples_per_user=1)
    np.testing.assert_array_equal(present, table(alone, graph.num_examples, seed))
    if prob == 1.0:
        assert present[::min_sep].all()


def test_only_what_is_proved_is_covered() -> None:
    fields = {"min_sep": 3, "sampling_prob": 0.1, "steps": 5, "examples_per_user": 2}
    assert MultiAttribution(**fields).holds_for == (Adjacency.ZERO_OUT,)
    assert MultiAttribution(**(fields | {"examples_per_user": 1, "users_per_example": 9})).holds_for
    by_example = MultiAttribution(**fields, users_per_example=9, exclusion="example")
    assert by_example.holds_for == (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
    assert "leave out those that are themselves in the batch in one of the 2 step(s) before" in by_example.requirement
    assert "without amplification" not in by_example.requirement
    by_batches = MultiAttribution(**fields, exclusion="participating")
    assert by_batches.holds_for == (Adjacency.ZERO_OUT,)
    assert "share a user with an example participating in one of the 2 step(s) before" in by_batches.requirement
    assert "the unit of privacy is a user" in MultiAttribution(**fields).requirement


def test_a_certificate_says_what_it_covers() -> None:
    """Where users share examples, the certified bound is the one of known batches, and the requirement says so."""
    fields = {"min_sep": 3, "sampling_prob": 0.1, "steps": 5, "examples_per_user": 2}
    for shared, exclusion in ((1, "sampled"), (2, "sampled"), (1, "participating"), (2, "participating")):
        sampler = MultiAttribution(**fields, users_per_example=shared, exclusion=exclusion)
        certificate = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=2.0), delta=1e-5, method="gaussian")
        assert certificate.adjacency in sampler.holds_for
        assert "is certified" in str(certificate)
        assert ("without amplification" in str(certificate)) == (shared > 1)


def test_wrong_multi_attribution() -> None:
    fields = {"min_sep": 3, "sampling_prob": 0.1, "steps": 5, "examples_per_user": 2}
    for change, message in [
        ({"exclusion": "none"}, "'exclusion' field must be 'sampled', 'participating' or 'example'"),
        ({"exclusion": "example", "warm_up_steps": 2}, "'warm_up_steps' field must be 0 for exclusion = 'example'"),
        ({"warm_up_steps": -1}, "'warm_up_steps' field must be at least 0"),
        ({"examples_per_user": 0}, "'examples_per_user' field must be at least 1"),
        ({"users_per_example": 0}, "'users_per_example' field must be at least 1"),
        ({"sampling_prob": 1.5}, "'sampling_prob' field must be at most 1. Got 1.5"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            MultiAttribution(**(fields | change))
    rng, graph = np.random.default_rng(0), copies(1)
    sampler = MultiAttribution(**fields, users_per_example=2)
    with pytest.raises(InvalidInputError, match="'attribution' argument has to be given for examples_per_user = 2"):
        sampler.batches(4, rng)
    with pytest.raises(InvalidInputError, match=r"attribution's number of examples, 4\. Got 5 instead\.$"):
        sampler.batches(5, rng, attribution=graph)
    with pytest.raises(InvalidInputError, match=r"at most examples_per_user = 1 .* Got a user with 2 instead\.$"):
        sampler.model_copy(update={"examples_per_user": 1}).batches(4, rng, attribution=graph)
    with pytest.raises(InvalidInputError, match=r"at most users_per_example = 1 .* Got an example with 2 instead\.$"):
        MultiAttribution(**fields).batches(4, rng, attribution=graph)
