"""b-min-sep subsampling of examples that are attributed to several users."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError
from hockeystick.samplers.attribution import Attribution
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.bernoulli import bernoulli_successes
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Count, Probability
from hockeystick.types import Adjacency

WarmUp = Annotated[int, Field(ge=0, le=10**9)]
Exclusion = Literal["sampled", "participating", "example"]


class MultiAttributionPromises(Promises):
    """No user, or with exclusion by example no example, takes part twice within ``min_sep`` steps."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Promises.meanings,
        "min_separation": "Nobody took part twice within the minimum separation.",
    }

    def begin(self) -> None:
        super().begin()
        own = np.arange(self.num_examples)
        self.graph = self.attribution or Attribution.from_pairs(own, own)
        if self.sampler.exclusion == "example":
            self.graph = Attribution.from_pairs(own, own)
        self.last = np.full(self.graph.num_users, -self.sampler.min_sep, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        users = self.graph.of_examples(batch)[0]
        expect(bool(np.all(step - self.last[users] >= self.sampler.min_sep)), "min_separation")
        self.last[users] = step


class MultiAttribution(BatchSampler):
    """b-min-sep subsampling of users' examples: a user, or each of its examples, takes part at most once in b steps.

    >>> import numpy as np
    >>> sampler = MultiAttribution(min_sep=5, sampling_prob=0.1, steps=4, examples_per_user=1)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [91, 84, 85, 82]

    Formal guarantee of batches: at every step t each example is sampled with probability ``sampling_prob``, by a coin
    of its own that is independent of everything else; S_t are the examples sampled at step t. With
    ``exclusion`` = "sampled" the batch of step t is S_t without every example that shares a user (itself included)
    with an example of S_j for any of the steps j = t - min_sep + 1, ..., t - 1. With "participating" the batches of
    these steps take the place of the S_j. With "example" nobody looks at users: the batch of step t is S_t without the
    examples that are themselves in one of the batches of these steps, so all examples are independent of one another.
    The run makes ``warm_up_steps`` + ``steps`` such steps from a start in which
    nothing is excluded, and passes on the last ``steps`` batches. With "sampled" and "participating" the examples of
    one user are in at most one of any min_sep consecutive batches, though several of them may be in that one; with
    "example" each of them is in at most one of these batches.

    The unit of privacy is a user: a certificate is about all examples of one user becoming ghosts of zero gradient in
    the same graph, and covers users of 1 to ``examples_per_user`` examples (those with the most are not always the
    worst). If ``users_per_example`` and ``examples_per_user`` both exceed 1, the bounds on "sampled" and
    "participating" are without amplification by sampling: each batch of a user keeps other users' examples out of the
    next ones, so the absence of these reveals when the user took part. So are those on "participating" after a warm-up
    unless C is Toeplitz. With "example" nothing reveals it, however users share examples: all examples of one user are
    k_u runs of b-min-sep sampling with coins of their own, and the user may also be added or removed.

    Fields:
        min_sep: b, the least distance between two batches with examples of the same user.
        sampling_prob: chance q of each example to be *sampled* at each step. Batches are smaller than q times the
            number of examples, because sampled examples are excluded: with "sampled" and at least min_sep - 1 steps
            before, example e is in a batch with probability q (1 - q)^((min_sep - 1) m), where m counts the examples,
            e included, that share a user with e.
        steps: batches in the run.
        examples_per_user: k_u, the most examples that one user may have.
        users_per_example: k_e, the most users that one example may have.
        warm_up_steps: steps that are made and thrown away first. With "sampled", min_sep - 1 of them make the rate of
            every example the same at all steps. 0 with "example"; ``BMinSep`` draws the stationary start of such a run.
        exclusion: what keeps the examples of a user out: "sampled" ones (Algorithm 3) or "participating" ones
            (Algorithm 4) of the same users; or "example", only their own last batch.

    Memory and time: O(users) memory besides the graph, and time in proportion to the edges of the sampled examples.

    Raises: InvalidInputError from ``batches`` when the graph is about another number of examples, a user has more
    than ``examples_per_user``, or an example more than ``users_per_example``.

    Reference: Dong and Ganesh (2026), Algorithms 3 and 4; what holds of their Theorem 6.1 and Conjecture 6.2 is in
    docs/theory/monte-carlo/samplers.md.
    """

    PROMISES: ClassVar[type[Promises]] = MultiAttributionPromises

    kind: Literal["multi_attribution"] = "multi_attribution"
    min_sep: Count
    sampling_prob: Probability
    steps: Count
    examples_per_user: Count
    users_per_example: Count = 1
    warm_up_steps: WarmUp = 0
    exclusion: Exclusion = "sampled"

    @model_validator(mode="after")
    def _starts_where_it_is_analysed(self) -> Self:
        if self.exclusion == "example" and self.warm_up_steps:
            raise InvalidInputError(
                f"The 'warm_up_steps' field must be 0 for exclusion = 'example'. Got {self.warm_up_steps} instead; the "
                f"sampler 'b_min_sep' draws a stationary start, and a plan with unit.kind = 'user' certifies it"
            )
        return self

    @property
    def rate(self) -> float:
        """The long-run chance of an example whose user has no other to be in a batch; others are kept out more often,
        unless by themselves alone.
        """
        chance, wait = self.sampling_prob, self.min_sep - 1
        if self.exclusion == "sampled":
            return chance * (1.0 - chance) ** wait
        return chance / (1.0 + wait * chance)  # as in b-min-sep sampling

    @property
    def participation_prob(self) -> float:
        """The chance of an example that is not excluded to be in a batch: the same as ``sampling_prob``."""
        return self.sampling_prob

    @property
    def most_participations(self) -> int:
        """One in ``min_sep`` steps."""
        return -(-self.steps // self.min_sep)

    @property
    def mean_participations(self) -> float:
        """Of the only example of a user, or less: after a warm-up it may have to wait at first."""
        waits = self.min_sep - 1 if self.exclusion == "participating" and self.warm_up_steps else 0
        return max(self.steps - waits, 0) * self.rate

    @property
    def rate_when_available(self) -> float:
        """That of an example that has waited long enough."""
        return self.participation_prob

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out of all examples of one user; add and remove too where examples are independent of one another."""
        if self.exclusion == "example":
            return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
        return (Adjacency.ZERO_OUT,)

    @property
    def users_are_revealed(self) -> bool:
        """Whether batches of others tell when a user took part: users share examples and keep one another's out."""
        return self.exclusion != "example" and min(self.users_per_example, self.examples_per_user) > 1

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        start = f" throw away the batches of the first {self.warm_up_steps} step(s)," if self.warm_up_steps else ""
        end, leave_out = "", f"those that share a user with an example {self.exclusion}"
        if self.exclusion == "example":
            leave_out = "those that are themselves in the batch"
        elif self.users_are_revealed:
            end = (
                "; the bounds are without amplification by sampling, and hold even if the batches are known, because "
                "the examples that a user's batch keeps out of the next ones reveal when the user took part"
            )
        return (
            f"Attribute at most {self.examples_per_user} example(s) to each user and at most {self.users_per_example} "
            f"user(s) to each example, sample every example independently with probability {self.sampling_prob!r} at "
            f"each step, leave out {leave_out} in one of the {self.min_sep - 1} step(s) before,{start} and use the "
            f"next {self.steps} batch(es); the unit of privacy "
            f"is a user, all of whose examples become ghosts of zero gradient in the same attribution graph{end}."
        )

    @called("sampler.batches(num_examples=50_000, rng=np.random.default_rng(), attribution=attribution)")
    def batches(
        self, num_examples: int, rng: np.random.Generator, *, attribution: Attribution | None = None
    ) -> Iterator[Batch]:
        """Draw the batches of one run, as every sampler does, for this attribution of examples to users.

        Args:
            attribution: the graph; None where every example has one user, which has no other example.

        Raises: InvalidInputError at the call for wrong arguments: also when the graph has another number of examples,
        a user with more than ``examples_per_user``, an example with more than ``users_per_example``, or when there is
        no graph though ``examples_per_user`` is not 1.
        """
        own = super().batches(num_examples, rng)  # checks both arguments, and draws nothing yet
        if attribution is None:
            if self.examples_per_user != 1:
                raise InvalidInputError(
                    f"The 'attribution' argument has to be given for examples_per_user = {self.examples_per_user}; "
                    f"without it, every example belongs to a user of its own."
                )
            return own
        if not isinstance(attribution, Attribution):
            raise InvalidInputError(
                f"The 'attribution' argument must be an Attribution, such as Attribution.from_pairs makes. "
                f"Got an object of type {type(attribution).__name__!r} instead."
            )
        if attribution.num_examples != num_examples:
            raise InvalidInputError(
                f"The 'num_examples' argument must be the attribution's number of examples, "
                f"{attribution.num_examples}. Got {num_examples} instead."
            )
        if attribution.examples_per_user > self.examples_per_user:
            raise InvalidInputError(
                f"The 'attribution' argument must have at most examples_per_user = {self.examples_per_user} example(s) "
                f"for each user. Got a user with {attribution.examples_per_user} instead."
            )
        if attribution.users_per_example > self.users_per_example:
            raise InvalidInputError(
                f"The 'attribution' argument must have at most users_per_example = {self.users_per_example} user(s) "
                f"for each example. Got an example with {attribution.users_per_example} instead."
            )
        return self._draw_attributed(attribution, rng)

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        own = np.arange(num_examples)
        return self._draw_attributed(Attribution.from_pairs(own, own), rng)

    def _draw_attributed(self, attribution: Attribution, rng: np.random.Generator) -> Iterator[Batch]:
        long_ago = -self.min_sep
        if self.exclusion == "example":  # every example excludes itself alone, as if it were its own user's only one
            own = np.arange(attribution.num_examples)
            attribution = Attribution.from_pairs(own, own)
        last = np.full(attribution.num_users, long_ago, dtype=np.int64)  # the step that keeps each user out
        for step in range(self.warm_up_steps + self.steps):
            sampled = bernoulli_successes(attribution.num_examples, self.sampling_prob, rng)
            users, starts = attribution.of_examples(sampled)
            if sampled.size:
                latest = np.maximum.reduceat(last[users], starts)
                batch = sampled[latest <= step - self.min_sep]
            else:
                batch = sampled
            blocking = users if self.exclusion == "sampled" else attribution.of_examples(batch)[0]
            last[blocking] = step
            if step >= self.warm_up_steps:
                yield batch


class MultiAttributionOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with examples that are attributed to several users."""

    kind: Literal["multi_attribution"] = "multi_attribution"
    min_sep: Count
    examples_per_user: Count
    users_per_example: Count = 1
    warm_up_steps: WarmUp = 0
    exclusion: Exclusion = "sampled"

    def sampler(self, data: Data) -> MultiAttribution:
        """The sampler for these data: batch_size is the expected number of *sampled* examples at a step."""
        return MultiAttribution(
            min_sep=self.min_sep,
            sampling_prob=float(data.rate),
            steps=data.total_steps(self.kind),
            examples_per_user=self.examples_per_user,
            users_per_example=self.users_per_example,
            warm_up_steps=self.warm_up_steps,
            exclusion=self.exclusion,
        )
