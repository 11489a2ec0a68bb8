"""An example that took part waits b - 1 steps; otherwise every step is a coin flip."""

from collections import deque
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.bernoulli import bernoulli_successes
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.grouping import draw_bins
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.samplers.truncation import TruncatedPromises, TruncatedSampler
from hockeystick.spec import Count, Probability


class BMinSepPromises(TruncatedPromises):
    """Nobody takes part twice within ``min_sep`` steps."""

    meanings: ClassVar[Mapping[str, str]] = {
        **TruncatedPromises.meanings,
        "min_separation": "Nobody took part twice within the minimum separation.",
    }

    def begin(self) -> None:
        super().begin()
        self.last = np.full(self.num_examples, -self.sampler.min_sep, dtype=np.int64)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        expect(bool(np.all(step - self.last[batch] >= self.sampler.min_sep)), "min_separation")
        self.last[batch] = step


class BMinSep(TruncatedSampler):
    """b-min-sep subsampling: Poisson subsampling of the examples that have not been taken in the last b - 1 steps.

    >>> import numpy as np
    >>> sampler = BMinSep(min_sep=5, sampling_prob=0.1, steps=4)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [108, 103, 106, 97]

    Formal guarantee of batches: at every step each available example is taken with probability
    ``participation_prob`` = q, independently of all other examples and of the past; an example that is taken at
    step t is unavailable at the steps t + 1, ..., t + min_sep - 1, and available again at t + min_sep. The examples
    are independent of one another. In a cold start all examples are available at the first step. In a warm start
    each example, independently, is available from step u on for the first time, where u = 1 has probability
    1 / (1 + (min_sep - 1) q) and each u in 2, ..., min_sep has probability q / (1 + (min_sep - 1) q): this is the
    stationary state, and every example is in every batch with probability ``sampling_prob``. With
    ``truncated_batch_size`` = B, a step at which more than B examples are taken passes on a uniformly random subset
    of exactly B of them; the others count as taken all the same, and wait like those that stayed. Examples are then
    no longer independent.

    With min_sep = 1 this is Poisson subsampling. With q = 1 (sampling_prob = 1 / min_sep) a warm start is
    balls-in-bins over min_sep bins, and a cold start puts every example in the batches 1, 1 + min_sep,
    1 + 2 min_sep, ...: nothing is random, and there is no amplification at all.

    Fields:
        min_sep: b, the least distance between two batches with the same example.
        sampling_prob: long-run rate of each example, at most 1 / min_sep. Exact at every step of a warm start; a
            cold start begins at the higher rate q and approaches it.
        steps: batches in the run.
        warm_start: whether the first steps are in the stationary state.
        truncated_batch_size: largest batch that is passed on; None for no cap.
        num_examples: size of the dataset; needed with ``truncated_batch_size``, and checked by ``batches`` where
            it is given.

    Memory and time: O(num_examples) for the draw of the start, then O(batch log batch) for each batch.

    Raises: InvalidInputError at construction when ``sampling_prob`` exceeds 1 / min_sep, or
    ``truncated_batch_size`` comes without ``num_examples`` or exceeds it; from ``batches`` when the number of
    examples is not the declared one.

    Reference: Dong and Ganesh (2026), Algorithms 1 and 2; their Appendix D for truncation.
    """

    PROMISES: ClassVar[type[Promises]] = BMinSepPromises

    kind: Literal["b_min_sep"] = "b_min_sep"
    min_sep: Count
    sampling_prob: Probability
    steps: Count
    warm_start: bool = True

    @model_validator(mode="after")
    def _rate_is_feasible(self) -> Self:
        if self.sampling_prob <= 1.0 / self.min_sep:
            return self
        why = ""
        if Fraction(self.sampling_prob) * (self.min_sep - 1) >= 1:
            why = "; sampling_prob * (min_sep - 1) must stay below 1, or the waiting alone takes longer than the rate"
        raise InvalidInputError(
            f"The 'sampling_prob' field must be at most 1 / min_sep = {1.0 / self.min_sep:.10g}. "
            f"Got {self.sampling_prob!r} instead{why}"
        )

    @property
    def participation_prob(self) -> float:
        """The chance q = p0 / (1 - p0 (b - 1)) of an available example to be taken at a step, with p0 the rate.

        The nearest double. It is exactly 1 when ``sampling_prob`` is the nearest double to 1 / min_sep.
        """
        if self.sampling_prob >= 1.0 / self.min_sep:
            return 1.0
        rate = Fraction(self.sampling_prob)
        return float(rate / (1 - rate * (self.min_sep - 1)))

    @property
    def most_participations(self) -> int:
        """One in ``min_sep`` steps."""
        return -(-self.steps // self.min_sep)

    @property
    def mean_participations(self) -> float:
        """The long-run number, which a cold start only exceeds, after truncation.

        At a step of a cold start the rate is some u <= q. What is kept is concave in u, so it is at least u / q times
        what is kept at q.
        """
        if self.warm_start:
            return super().mean_participations
        return self.steps * self.rate * self._kept(self.participation_prob) / self.participation_prob

    @property
    def rate_when_available(self) -> float:
        """That of an example that has waited long enough."""
        return self.participation_prob

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        wait = self.min_sep - 1
        return (
            f"{self._beginning}, take each available example independently with probability "
            f"{self.participation_prob!r} at every one of {self.steps} step(s), and let an example that was taken wait "
            f"for {wait} step(s) before it is available again{self._cut}{self._extreme}."
        )

    @property
    def _beginning(self) -> str:
        if not self.warm_start or self.min_sep == 1:
            return "Start with all examples available"
        return (
            f"Start each example independently in the stationary state, available from step 1 on with probability "
            f"1 / (1 + {self.min_sep - 1} * {self.participation_prob!r}) and else from a uniformly random one of the "
            f"steps 2 to {self.min_sep} on"
        )

    @property
    def _cut(self) -> str:
        if self.truncated_batch_size is None:
            return ""
        return (
            f"; whenever more than {self.truncated_batch_size} of the {self.num_examples} examples are taken, keep a "
            f"uniformly random {self.truncated_batch_size} of them, and let the others wait as well"
        )

    @property
    def _extreme(self) -> str:
        if self.participation_prob < 1.0 or self.min_sep == 1 or self.truncated_batch_size is not None:
            return ""
        if self.warm_start:
            return f" (which is balls-in-bins with {self.min_sep} bins)"
        return (
            f" (which puts every example in the first batch and every {self.min_sep} steps on, without amplification)"
        )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        prob = self.participation_prob
        pool = _Pool(num_examples, self.min_sep, prob if self.warm_start else 0.0, rng)
        for step in range(self.steps):
            yield self._truncated(pool.take(step, prob, rng), rng)


class _Pool:
    """The available examples, in no particular order, and when the others come back.

    ``members[:size]`` are the available examples. ``waiting`` holds the examples that were taken and the step of
    their return, for each of the last min_sep steps that took any; ``late`` the examples that a warm start has
    unavailable at first, in the order of ``until``, the steps of their return.
    """

    def __init__(self, num_examples: int, min_sep: int, prob: float, rng: np.random.Generator) -> None:
        """All examples available for ``prob`` = 0, else the stationary state for this probability of being taken."""
        self.waiting: deque[tuple[int, NDArray[np.int32]]] = deque()
        self.min_sep = min_sep
        self.members = np.arange(num_examples, dtype=np.int32)
        self.late, self.until = np.empty(0, np.int32), np.empty(0, np.int64)
        waiting_prob = (min_sep - 1) * prob / (1.0 + (min_sep - 1) * prob)
        if waiting_prob > 0.0:
            late = bernoulli_successes(num_examples, waiting_prob, rng)
            until = draw_bins(min_sep - 1, late.size, rng)
            order = np.argsort(until, kind="stable")
            self.late, self.until = late[order].astype(np.int32), until[order].astype(np.int64) + 1
            self.members[: num_examples - late.size] = np.delete(self.members, late)
        self.size = num_examples - self.late.size

    def take(self, step: int, prob: float, rng: np.random.Generator) -> Batch:
        """Take each available example with this probability, at step 0, 1, ... in turn; ascending."""
        if self.waiting and self.waiting[0][0] == step:
            self._put_back(self.waiting.popleft()[1])
        first, end = np.searchsorted(self.until, (step, step + 1))
        self._put_back(self.late[first:end])
        at = bernoulli_successes(self.size, prob, rng)
        taken = np.sort(self.members[at])
        if self.min_sep > 1 and at.size:
            self._remove(at)
            self.waiting.append((step + self.min_sep, taken))
        return taken.astype(np.int64)

    def _put_back(self, examples: NDArray[np.int32]) -> None:
        self.members[self.size : self.size + examples.size] = examples
        self.size += examples.size

    def _remove(self, at: NDArray[np.int64]) -> None:
        """Remove the members at these ascending positions: members from the end fill the places that get free."""
        self.size -= at.size
        holes = at[: np.searchsorted(at, self.size)]
        stays = np.ones(at.size, dtype=np.bool_)
        stays[at[holes.size :] - self.size] = False
        self.members[holes] = self.members[self.size : self.size + at.size][stays]


class BMinSepOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with b-min-sep subsampling."""

    kind: Literal["b_min_sep"] = "b_min_sep"
    min_sep: Count
    warm_start: bool = True
    truncated_batch_size: Count | None = None

    def sampler(self, data: Data) -> BMinSep:
        """The sampler for these data, of long-run rate batch_size / num_examples.

        Raises: InvalidInputError when that rate exceeds 1 / min_sep.
        """
        data.at_most_every(self.kind, "min_sep", self.min_sep)
        return BMinSep(
            min_sep=self.min_sep,
            sampling_prob=float(data.rate),
            steps=data.total_steps(self.kind),
            warm_start=self.warm_start,
            truncated_batch_size=self.truncated_batch_size,
            num_examples=None if self.truncated_batch_size is None else data.num_examples,
        )
