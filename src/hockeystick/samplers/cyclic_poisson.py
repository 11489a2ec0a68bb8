"""The groups of a partition take turns; each is Poisson sampled at its own steps."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.bernoulli import bernoulli_successes
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.grouping import draw_bins, group_by_bin
from hockeystick.samplers.promises import Batch, Promises, expect
from hockeystick.spec import Count, Probability
from hockeystick.types import Adjacency


class CyclicPoissonPromises(Promises):
    """Every example has one group, and takes part at its group's turns alone."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Promises.meanings,
        "one_group_an_example": "Every example took part only at the steps of one group.",
    }

    def begin(self) -> None:
        super().begin()
        equal = self.sampler.partition == "equal"
        self.group = np.arange(self.num_examples) % self.sampler.groups if equal else np.full(self.num_examples, -1)

    def check(self, step: int, batch: Batch) -> None:
        super().check(step, batch)
        turn = step % self.sampler.groups
        known = self.group[batch]
        expect(bool(np.all((known == turn) | (known == -1))), "one_group_an_example")
        self.group[batch] = turn


class CyclicPoisson(BatchSampler):
    """Cyclic Poisson subsampling: at step t the examples of group ``t mod groups`` alone flip their coins.

    >>> import numpy as np
    >>> sampler = CyclicPoisson(groups=2, sampling_prob=0.5, steps=4)
    >>> [batch.size for batch in sampler.batches(1000, np.random.default_rng(0))]
    [234, 250, 261, 253]

    Formal guarantee of batches: every example belongs to one of the groups 0, ..., groups - 1 for the whole run. Given
    the groups of all examples, the events "example e is in batch t", over all e and all the steps t = 0, 1, ... with
    ``t mod groups`` equal to the group of e, are independent and have probability ``sampling_prob`` each; at no other
    step is e in a batch. With ``partition`` = "equal" example e is in group ``e mod groups``, e its index from 0, so
    that the sizes of the groups differ by at most one. With "independent" the group of each example is drawn
    uniformly, independently of all else.

    With "equal" the groups are public, and a certificate is about the worst of them. With "independent" they have to be
    kept as secret as the coins, and a certificate is about an example whose group the adversary does not know.

    With groups = 1 this is Poisson subsampling. With sampling_prob = 1 the batches are fixed for "equal", and those of
    balls in bins for "independent".

    Fields:
        groups: number of groups b; an example can take part at every b-th step only.
        sampling_prob: chance of each example of the group whose turn it is, so its rate over the run is
            ``sampling_prob / groups``.
        steps: batches in the run.
        partition: "equal", a public rule by index, or "independent", drawn once in the beginning.

    Memory and time: O(batch) for each batch with "equal"; O(num_examples + groups) memory and time for the draw of the
    groups before that with "independent".

    Raises: InvalidInputError from ``batches`` when "equal" would leave a group without examples.

    Reference: Choquette-Choo, Ganesh, Steinke and Thakurta (2024), "Privacy amplification for matrix mechanisms",
    Appendix D, there called b-min-sep sampling; Choquette-Choo et al. (2023), "(Amplified) banded matrix
    factorization".
    """

    PROMISES: ClassVar[type[Promises]] = CyclicPoissonPromises

    kind: Literal["cyclic_poisson"] = "cyclic_poisson"
    groups: Count
    sampling_prob: Probability
    steps: Count
    partition: Literal["equal", "independent"] = "equal"

    @property
    def rate(self) -> float:
        """The rate within a group, over the number of groups that take turns."""
        return self.sampling_prob / self.groups

    @property
    def most_participations(self) -> int:
        """One each time that the turn of the first group comes."""
        return -(-self.steps // self.groups)

    @property
    def rate_when_available(self) -> float:
        """That of the example's own turns."""
        return self.sampling_prob

    @property
    def holds_for(self) -> tuple[Adjacency, ...]:
        """Zero-out; add-remove as well where the group of one example does not depend on how many others there are.

        A rule by index would move all later examples to the next group when one is removed.
        """
        if self.partition == "independent":
            return (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
        return (Adjacency.ZERO_OUT,)

    @property
    def groups_are_secret(self) -> bool:
        """Whether certificates are about an adversary who does not know the group of an example."""
        return self.partition == "independent" and self.groups > 1

    @property
    def requirement(self) -> str:
        """One sentence: what the run has to do."""
        if self.partition == "equal":
            split = f"Put the example of index e, counted from 0, in group e mod {self.groups} for the whole run"
        else:
            split = f"Put each example independently in one of {self.groups} groups uniformly at random, once"
        secrecy = "keep the groups secret" if self.groups_are_secret else "the groups may be public"
        return (
            f"{split}, and draw the batch of every step t = 0 to {self.steps - 1} by including each example of group "
            f"t mod {self.groups} independently with probability {self.sampling_prob!r}, afresh at every step, and no "
            f"example of another group; {secrecy}."
        )

    def _check_num_examples(self, num_examples: int) -> None:
        if self.partition == "equal" and num_examples < self.groups:
            raise InvalidInputError(
                f"The 'num_examples' argument must be at least the sampler's groups = {self.groups}. "
                f"Got {num_examples} instead."
            )

    def _draw(self, num_examples: int, rng: np.random.Generator) -> Iterator[Batch]:
        if self.partition == "equal":
            for step in range(self.steps):
                group = step % self.groups
                size = (num_examples - 1 - group) // self.groups + 1
                yield group + self.groups * bernoulli_successes(size, self.sampling_prob, rng)
            return
        order, starts = group_by_bin(draw_bins(self.groups, num_examples, rng), self.groups)
        for step in range(self.steps):
            group = step % self.groups
            members = order[starts[group] : starts[group + 1]]
            yield members[bernoulli_successes(members.size, self.sampling_prob, rng)].astype(np.int64)


class CyclicPoissonOptions(SchemeOptions):
    """The ``[sampler]`` table of a plan with cyclic Poisson subsampling."""

    kind: Literal["cyclic_poisson"] = "cyclic_poisson"
    groups: Count
    partition: Literal["equal", "independent"] = "equal"

    def sampler(self, data: Data) -> CyclicPoisson:
        """The sampler for these data, of rate groups * batch_size / num_examples within a group.

        Raises: InvalidInputError when that rate exceeds 1, or some groups would never have a turn.
        """
        data.at_most_every(self.kind, "groups", self.groups)
        steps = data.total_steps(self.kind)
        if self.groups > steps:
            raise InvalidInputError(
                f"The 'sampler.groups' field must be at most the number of steps, {steps}: others would never "
                f"have a turn. Got {self.groups} instead; sampler.groups = {steps} would do."
            )
        return CyclicPoisson(
            groups=self.groups,
            sampling_prob=float(self.groups * data.rate),
            steps=steps,
            partition=self.partition,
        )
