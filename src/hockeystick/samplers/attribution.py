"""The attribution of examples to users."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError
from hockeystick.spec import checked_count, expect_kind

MAX_ATTRIBUTED = 10**9
"""The largest dataset whose examples are attributed to users."""


@made_by("hs.Attribution.from_pairs(users=[0, 0, 1], examples=[0, 1, 1])")
@dataclass(frozen=True, eq=False)
class Attribution:
    """A bipartite graph of users and examples: an edge for each user that an example is attributed to.

    The graph is public: neighbouring datasets have the same graph, and differ in the content of all examples of one
    user. Every example has at least one user, and every user at least one example. Make one with ``from_pairs`` or
    ``from_csr``, which copy and check.

    >>> graph = Attribution.from_pairs(users=[0, 0, 1], examples=[0, 1, 1])
    >>> (graph.num_examples, graph.num_users, graph.examples_per_user, graph.users_per_example)
    (2, 2, 2, 2)

    Attributes:
        offsets: shape (num_examples + 1,), ``int64``: where the users of each example begin in ``users``.
        users: shape (edges,), ``int32``: ``users[offsets[e] : offsets[e + 1]]`` are the users of example e, ascending.
        num_users: users are 0 to num_users - 1.

    Memory: 8 bytes for each example and 4 for each edge. Both arrays are read-only.
    """

    offsets: NDArray[np.int64]
    users: NDArray[np.int32]
    num_users: int

    @classmethod
    @called("hs.Attribution.from_pairs(users=[0, 0, 1], examples=[0, 1, 1])")
    def from_pairs(
        cls, users: ArrayLike, examples: ArrayLike, *, num_users: int | None = None, num_examples: int | None = None
    ) -> Self:
        """The graph with the edges ``(users[k], examples[k])``, in any order.

        Args:
            users, examples: whole numbers from 0, one of each for every edge.
            num_users, num_examples: how many there are; by default one more than the largest index.

        Raises: InvalidInputError for arrays that are not whole numbers, not of one length, or empty; for an index out
        of range; for an edge given twice; for a user without examples or an example without users.
        """
        of_user, of_example = _indices(users, "users"), _indices(examples, "examples")
        if of_user.size != of_example.size:
            raise InvalidInputError(
                f"The 'examples' argument must have one entry for each of the {of_user.size} users. "
                f"Got {of_example.size} instead."
            )
        if of_user.size == 0:
            raise InvalidInputError("The attribution must have at least one pair of a user and an example. Got none.")
        user_count = _count_of(of_user, num_users, "users")
        example_count = _count_of(of_example, num_examples, "examples")
        order = np.lexsort((of_user, of_example))
        of_user, of_example = of_user[order], of_example[order]
        _check_each_has_one(of_example, example_count, "example", "users")
        _check_each_has_one(of_user, user_count, "user", "examples")
        again = np.flatnonzero((np.diff(of_example) == 0) & (np.diff(of_user) == 0))
        if again.size:
            raise InvalidInputError(
                f"The attribution must name each pair of a user and an example once. Got user {of_user[again[0]]} and "
                f"example {of_example[again[0]]} twice."
            )
        offsets = np.zeros(example_count + 1, dtype=np.int64)
        np.cumsum(np.bincount(of_example, minlength=example_count), out=offsets[1:])
        narrow = of_user.astype(np.int32)
        offsets.setflags(write=False)
        narrow.setflags(write=False)
        return cls(offsets, narrow, user_count)

    @classmethod
    @called("hs.Attribution.from_csr(offsets=[0, 1, 3], users=[0, 0, 1])")
    def from_csr(cls, offsets: ArrayLike, users: ArrayLike, *, num_users: int | None = None) -> Self:
        """The graph in which ``users[offsets[e] : offsets[e + 1]]`` are the users of example e, in any order.

        Args:
            offsets: whole numbers, ascending from 0 to the length of ``users``; one more than there are examples.
            users: whole numbers from 0.
            num_users: how many there are; by default one more than the largest index.

        Raises: InvalidInputError for offsets of another form, and as ``from_pairs``.
        """
        starts, of_user = _indices(offsets, "offsets"), _indices(users, "users")
        if starts.size < 2 or starts[0] != 0 or starts[-1] != of_user.size or np.any(np.diff(starts) < 0):
            raise InvalidInputError(
                f"The 'offsets' argument must have an entry for each example and one more, and ascend from 0 to the "
                f"number of users given, {of_user.size}. Got {np.array2string(starts, threshold=6)} instead."
            )
        examples = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        return cls.from_pairs(of_user, examples, num_users=num_users, num_examples=starts.size - 1)

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return self.offsets.size - 1

    @property
    def examples_per_user(self) -> int:
        """The largest number of examples of one user, k_u."""
        return int(np.bincount(self.users).max())

    @property
    def users_per_example(self) -> int:
        """The largest number of users of one example, k_e."""
        return int(np.diff(self.offsets).max())

    def of_examples(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The users of these examples in a row, and where the users of each begin: shapes (edges,), (examples,)."""
        counts = self.offsets[examples + 1] - self.offsets[examples]
        ends = np.cumsum(counts)
        starts = ends - counts
        at = np.arange(ends[-1] if ends.size else 0) + np.repeat(self.offsets[examples] - starts, counts)
        return self.users[at], starts

    def restricted_to(self, examples: ArrayLike) -> "Attribution":
        """The graph of these examples alone: example ``examples[k]`` becomes k, and users without examples go.

        Raises: InvalidInputError when there are none, or they are not ascending indices of examples.
        """
        kept = _indices(examples, "examples")
        if kept.size == 0 or kept[-1] >= self.num_examples or np.any(np.diff(kept) <= 0):
            raise InvalidInputError(
                f"The 'examples' argument must be at least one index, ascending, each from 0 to "
                f"{self.num_examples - 1}. Got {np.array2string(kept, threshold=6)} instead."
            )
        users, starts = self.of_examples(kept)
        renumbered = np.unique(users, return_inverse=True)[1]
        return Attribution.from_csr(np.append(starts, users.size), renumbered)


@called("hs.bound_contributions(attribution, 10, rng=rng)")
def bound_contributions(
    attribution: Attribution,
    examples_per_user: int,
    users_per_example: int | None = None,
    *,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Choose examples such that no user has more than ``examples_per_user`` of them.

    Greedy: the examples are visited in uniformly random order, and each is kept if every one of its users has fewer
    than ``examples_per_user`` kept examples so far. Examples with more than ``users_per_example`` users are left out
    from the start. Nothing can be added to the result without breaking a bound. The choice looks at the graph alone,
    which is public, so it costs no privacy.

    >>> graph = Attribution.from_pairs(users=[0, 0, 0, 1], examples=[0, 1, 2, 2])
    >>> kept = bound_contributions(graph, examples_per_user=1, rng=np.random.default_rng(0))
    >>> graph.restricted_to(kept).examples_per_user
    1

    Returns: the kept examples, ascending, at least one. ``attribution.restricted_to`` gives their graph.

    Time and memory: O(edges).

    Raises: InvalidInputError when a bound is not a whole number from 1, when every example has more than
    ``users_per_example`` users, or when ``rng`` is not a ``numpy.random.Generator``.
    """
    from hockeystick.samplers.greedy import keep_while_below  # compiled code, which samplers do without otherwise

    bound = checked_count("examples_per_user", examples_per_user, MAX_ATTRIBUTED)
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
            f"Got an object of type {type(rng).__name__!r} instead."
        )
    expect_kind(
        "attribution", attribution, Attribution, "an Attribution, such as Attribution.from_pairs makes", optional=False
    )
    counts = np.diff(attribution.offsets)
    order = rng.permutation(attribution.num_examples)
    if users_per_example is not None:
        cap = checked_count("users_per_example", users_per_example, MAX_ATTRIBUTED)
        if cap < counts.min():
            raise InvalidInputError(
                f"The 'users_per_example' argument must be at least {counts.min()}, the fewest users of any example. "
                f"Got {cap} instead."
            )
        order = order[counts[order] <= cap]
    kept = keep_while_below(order, attribution.offsets, attribution.users, attribution.num_users, bound)
    return np.flatnonzero(kept)


def _indices(values: ArrayLike, name: str) -> NDArray[np.int64]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInputError(
            f"The {name!r} argument must be a row of whole numbers. Got nested rows instead."
        ) from None
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidInputError(
            f"The {name!r} argument must be a row of whole numbers. "
            f"Got an array of shape {array.shape} and type {array.dtype} instead."
        )
    if array.size and (array.min() < 0 or array.max() >= MAX_ATTRIBUTED):
        wrong = array.min() if array.min() < 0 else array.max()
        raise InvalidInputError(
            f"The {name!r} argument must hold numbers from 0 to {MAX_ATTRIBUTED - 1}. Got {wrong} instead."
        )
    return array.astype(np.int64)


def _count_of(indices: NDArray[np.int64], count: int | None, name: str) -> int:
    largest = int(indices.max())
    if count is None:
        return largest + 1
    known = checked_count(f"num_{name}", count, MAX_ATTRIBUTED)
    if largest >= known:
        raise InvalidInputError(
            f"The {name!r} argument must hold numbers from 0 to {known - 1}. Got {largest} instead."
        )
    return known


def _check_each_has_one(indices: NDArray[np.int64], count: int, kind: str, others: str) -> None:
    present = np.unique(indices)
    if present.size < count:
        gaps = np.flatnonzero(present != np.arange(present.size))
        first = int(gaps[0]) if gaps.size else present.size
        raise InvalidInputError(
            f"The attribution must connect every {kind} to some of the {others}. Got {count - present.size} of {count} "
            f"{kind}s without {others}, the first of them {first}."
        )
