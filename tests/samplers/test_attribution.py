"""Attribution graphs and contribution bounding."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import Attribution, bound_contributions

FALSE_FAILURE = 1e-9  # of the test, by a union bound; the seed is fixed besides
PAIRS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=30)


def graph_of(pairs: set[tuple[int, int]]) -> tuple[Attribution, list[set[int]]]:
    """The graph of (user, example) pairs, numbered without holes, and the users of each example."""
    users, examples = (np.unique(side, return_inverse=True)[1] for side in zip(*sorted(pairs), strict=True))
    rows: list[set[int]] = [set() for _ in range(int(examples.max()) + 1)]
    for user, example in zip(users.tolist(), examples.tolist(), strict=True):
        rows[example].add(user)
    return Attribution.from_pairs(users, examples), rows


def rows_of(graph: Attribution) -> list[set[int]]:
    return [set(graph.users[a:b].tolist()) for a, b in zip(graph.offsets, graph.offsets[1:], strict=False)]


@given(PAIRS, st.randoms(use_true_random=False))
def test_pairs_and_rows_make_the_same_graph(pairs: set[tuple[int, int]], random: Any) -> None:
    graph, rows = graph_of(pairs)
    assert rows_of(graph) == rows
    assert graph.num_examples == len(rows)
    assert graph.num_users == len(set().union(*rows))
    assert graph.users_per_example == max(map(len, rows))
    assert graph.examples_per_user == max(Counter(user for row in rows for user in row).values())
    shuffled = [random.sample(sorted(row), len(row)) for row in rows]
    offsets = np.cumsum([0, *map(len, rows)])
    again = Attribution.from_csr(offsets, [user for row in shuffled for user in row])
    np.testing.assert_array_equal(again.users, graph.users)
    np.testing.assert_array_equal(again.offsets, graph.offsets)
    kept = sorted(random.sample(range(len(rows)), random.randint(1, len(rows))))
    part = graph.restricted_to(kept)
    names = sorted(set().union(*(rows[e] for e in kept)))
    assert [{names[user] for user in row} for row in rows_of(part)] == [rows[e] for e in kept]
    with pytest.raises(ValueError, match="read-only"):
        graph.users[0] = 0


@pytest.mark.parametrize(
    ("users", "examples", "more", "message"),
    [
        ([], [], {}, r"at least one pair of a user and an example. Got none\.$"),
        (
            [0, 2],
            [0, 1],
            {},
            r"every user to some of the examples. Got 1 of 3 users without examples, the first .* 1\.$",
        ),
        ([0, 1], [0, 3], {}, r"every example to some of the users. Got 2 of 4 examples without users, the .* 1\.$"),
        ([0, 1], [0, 1], {"num_examples": 3}, r"Got 1 of 3 examples without users, the first of them 2\.$"),
        ([0, 1], [0, 1], {"num_users": 5}, r"Got 3 of 5 users without examples, the first of them 2\.$"),
        ([0, 1], [0, 1], {"num_examples": 1}, r"'examples' argument must hold numbers from 0 to 0\. Got 1 instead\.$"),
        ([0, 7], [0, 1], {"num_users": 2}, r"'users' argument must hold numbers from 0 to 1\. Got 7 instead\.$"),
        ([0, -1], [0, 1], {}, r"'users' argument must hold numbers from 0 to 999999999\. Got -1 instead\.$"),
        ([0, 0], [0, 10**9], {}, r"'examples' argument must hold .* Got 1000000000 instead\.$"),
        ([0, 1, 0], [1, 0, 1], {}, r"each pair of a user and an example once. Got user 0 and example 1 twice\.$"),
        ([0, 1], [0], {}, r"'examples' argument must have one entry for each of the 2 users. Got 1 instead\.$"),
        ([0.0, 1.0], [0, 1], {}, r"'users' argument must be a row of whole numbers\. Got .* float64 instead\.$"),
        ([[0, 1]], [0, 1], {}, r"'users' argument must be a row of whole numbers\. Got .*\(1, 2\).* instead\.$"),
        ([True], [0], {}, r"'users' argument must be a row of whole numbers\. Got .* bool instead\.$"),
        ([0], [0], {"num_users": 0}, r"'num_users' argument must be a whole number from 1 .* Got 0 instead\.$"),
        ([0], [0], {"num_examples": 1.0}, r"'num_examples' argument must be a whole number from 1 .* Got 1.0 instead"),
    ],
)
def test_wrong_pairs(users: Any, examples: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Attribution.from_pairs(users, examples, **more)


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 1], [0, 2, 1, 2], [0, 3]])
def test_wrong_offsets(offsets: list[int]) -> None:
    with pytest.raises(
        InvalidInputError, match=r"'offsets' argument must .* number of users given, 2\. Got .* instead"
    ):
        Attribution.from_csr(offsets, [0, 1])


def test_rows_without_users_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Got 1 of 3 examples without users, the first of them 1"):
        Attribution.from_csr([0, 1, 1, 2], [0, 1])


@pytest.mark.parametrize("examples", [[], [1, 0], [0, 0], [3]])
def test_wrong_restriction(examples: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="'examples' argument must be at least one index, ascending, each from"):
        Attribution.from_pairs([0, 1, 2], [0, 1, 2]).restricted_to(examples)


@given(PAIRS, st.integers(1, 4), st.none() | st.integers(1, 7), st.integers(0, 2**32))
def test_bounding_agrees_with_the_obvious_way(
    pairs: set[tuple[int, int]], k_user: int, k_example: int | None, seed: int
) -> None:
    graph, rows = graph_of(pairs)
    cap = max(k_example or 7, min(map(len, rows)))
    kept = bound_contributions(graph, k_user, cap, rng=np.random.default_rng(seed)).tolist()
    expected, used = [], Counter[int]()
    for example in np.random.default_rng(seed).permutation(len(rows)).tolist():
        row = rows[example]
        if len(row) <= cap and all(used[user] < k_user for user in row):
            expected.append(example)
            used.update(row)
    assert kept == sorted(expected)
    assert max(used.values()) <= k_user
    part = graph.restricted_to(kept)
    assert part.examples_per_user <= k_user
    assert part.users_per_example <= cap
    for example in set(range(len(rows))) - set(kept):  # nothing can be added
        assert len(rows[example]) > cap or any(used[user] >= k_user for user in rows[example])


def test_the_order_is_random() -> None:
    """On a path of three examples the middle one stays alone exactly when it comes first."""
    graph, rng, runs = Attribution.from_pairs([0, 0, 1, 1], [0, 1, 1, 2]), np.random.default_rng(11), 3_000
    drawn = Counter(tuple(bound_contributions(graph, 1, rng=rng).tolist()) for _ in range(runs))
    assert set(drawn) == {(1,), (0, 2)}
    assert binomtest(drawn[(1,)], runs, 1 / 3).pvalue > FALSE_FAILURE


def test_wrong_bounds() -> None:
    graph, rng = Attribution.from_pairs([0, 1, 1, 2], [0, 0, 1, 1]), np.random.default_rng(0)
    for bound in (0, True, 1.0, None):
        with pytest.raises(InvalidInputError, match="'examples_per_user' argument must be a whole number from 1"):
            bound_contributions(graph, bound, rng=rng)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'users_per_example' argument must be a whole number from 1"):
        bound_contributions(graph, 1, 0, rng=rng)
    with pytest.raises(InvalidInputError, match=r"at least 2, the fewest users of any example. Got 1 instead\.$"):
        bound_contributions(graph, 1, 1, rng=rng)
    with pytest.raises(InvalidInputError, match=r"'rng' argument must be a numpy\.random\.Generator"):
        bound_contributions(graph, 1, rng=None)  # type: ignore[arg-type]
