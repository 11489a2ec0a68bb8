"""Canaries: gradients of known directions that a fair coin includes in a run, and what their traces reveal."""

import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hockeystick.audit.canary_scores import CanaryScores, coins
from hockeystick.audit.one_run import MOST_CANARIES, reals_of
from hockeystick.audit.ratios import ratio_of
from hockeystick.audit.tape import numbers_of
from hockeystick.audit.verdict import Verdict
from hockeystick.calls import called, made_by
from hockeystick.certificate import AnyCertificate
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.spec import real_number

Array = NDArray[np.float64]

WIDEST = 256
"""Parameters that a canary is spread over, at most."""
DRAWS = 64
"""Draws of the sampler, to see when a canary takes part."""
PLACES = 0xD1AC
"""Tells the generator of the directions from others with the same seed."""


@made_by("hs.audit.canaries(100, num_examples=1000, size=10)")
class Canaries:
    """Canaries beside the real examples of one run, each included by a fair coin, and what is observed of them.

    >>> import hockeystick as hs
    >>> made = canaries(200, num_examples=100, size=600, seed=1)
    >>> plan = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=4), noise_multiplier=1.0)
    >>> run = hs.training.Run(plan, num_examples=made.total, shape=600, rng=np.random.default_rng(0))
    >>> for batch in run.batches():
    ...     made.observe(made.sum_of(batch) + run.noise(batch))  # and the clipped gradients of the real examples
    >>> verdict = made.verdict(hs.certify(plan, delta=1e-5))
    >>> 0.3 * verdict.epsilon.upper < verdict.epsilon.audited < verdict.epsilon.upper
    True

    The real examples have the indices below ``num_examples``, the canaries those from there to ``total``. Plan, run and
    certificate are about ``total`` examples: all canaries count, whatever their coins say. A canary that is included
    has a gradient of the clipping norm in a direction of its own, in every step in which it takes part; one that is
    left out has none, and keeps its place in the batches. The directions are orthogonal: every canary has parameters
    of its own, with random signs.

    Attributes:
        num_examples: of the real data.
        count: how many canaries there are.
        size: how many parameters are trained.
        clip_norm: what the gradients are clipped to.
        seed: of the coins and the directions. Nothing else may be drawn from it, and whoever chose it among several
            chose the verdict.
        included: the coins, shape (count,). Keep them from the training.
    """

    def __init__(self, count: int, num_examples: int, size: int, clip_norm: float, seed: int) -> None:
        self.count = count
        self.num_examples = num_examples
        self.size = size
        self.clip_norm = clip_norm
        self.seed = seed
        self.included = coins(seed, count)
        self._seen: list[Array] = []

    @property
    def total(self) -> int:
        """The size of the data set: real examples and all canaries."""
        return self.num_examples + self.count

    @property
    def weights(self) -> Array:
        """1 for real examples and included canaries and 0 for the others, shape (total,): factors of their losses."""
        return np.concatenate([np.ones(self.num_examples), self.included.astype(np.float64)])

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The parameters of each canary, shape (count, width)."""
        width = min(self.size // self.count, WIDEST)
        rng = np.random.default_rng([PLACES, self.seed])
        return rng.choice(self.size, size=(self.count, width), replace=False).astype(np.int64)

    @cached_property
    def _values(self) -> Array:
        """What the direction of each canary is there: the rows have norm 1."""
        rng = np.random.default_rng([PLACES, self.seed, 1])
        signs = np.where(rng.random(self._places.shape) < 0.5, -1.0, 1.0)
        values: Array = signs / np.sqrt(signs.shape[1])
        return values

    def sum_of(self, batch: ArrayLike) -> Array:
        """The gradients of a batch's canaries together, shape (size,): add them to the clipped gradients of the rest.

        Args:
            batch: indices of examples; those of real ones add nothing.
        """
        gradient = np.zeros(self.size)
        who = self._canaries_in(batch)
        who = who[self.included[who]]
        np.add.at(gradient, self._places[who].ravel(), self.clip_norm * self._values[who].ravel())
        return gradient

    def plant(self, parameters: Sequence[Any], batch: ArrayLike) -> None:
        """Write the gradients of a batch's canaries into the per-example gradients of torch, before they are clipped.

        Call it between ``loss.backward()`` and ``optimizer.step()``. Whatever example stood in the place of a canary
        then has no gradient but this one.

        Args:
            parameters: tensors with a ``grad_sample``, as Opacus makes them: ``optimizer.params``.
            batch: the indices of the examples in the order of the batch.

        Raises: InvalidInputError where gradients of examples are missing, or are of another number of examples or of
        parameters.
        """
        indices = np.asarray(batch, dtype=np.int64).ravel()
        rows = np.flatnonzero(indices >= self.num_examples)
        gradients = np.zeros((rows.size, self.size))
        for row, index in zip(gradients, indices[rows], strict=True):
            row += self.sum_of([index])
        if sum(int(parameter.numel()) for parameter in parameters) != self.size:
            raise InvalidInputError(f"The 'parameters' argument must have {self.size} numbers, as the canaries have.")
        start = 0
        for parameter in parameters:
            samples: Any = getattr(parameter, "grad_sample", None)
            if not hasattr(samples, "new_tensor") or len(samples) != indices.size:
                raise InvalidInputError(
                    "The 'parameters' argument must have one 'grad_sample' for every index of the batch; call plant "
                    "once after every backward pass."
                )
            part = gradients[:, start : start + parameter.numel()].reshape(rows.size, *parameter.shape)
            samples[rows.tolist()] = samples.new_tensor(part)
            start += parameter.numel()

    def observe(self, released: Any, *, normaliser: float = 1.0) -> None:
        """Record what a step released, noise included, in the order of the steps.

        Args:
            released: arrays or tensors of ``size`` numbers together, in the order of the parameters: in torch
                ``[p.grad for p in optimizer.params]`` after ``optimizer.step()``.
            normaliser: what the noisy sum was divided by, ``optimizer.expected_batch_size``, say.

        Raises: InvalidInputError for another number of parameters.
        """
        row, _ = numbers_of(released)
        if row.size != self.size:
            raise InvalidInputError(
                f"The 'released' argument must have {self.size} numbers, as the canaries have. Got {row.size} instead."
            )
        traces: Array = (row[self._places] * self._values).sum(axis=1)
        self._seen.append(traces * (normaliser / self.clip_norm))

    def scores(self, mechanism: Mechanism) -> Array:
        """How much each canary looks included, shape (count,), from what was observed of all steps.

        What was released along a canary's direction, times C, has the law of the dominating pair but for what the other
        gradients add: its log-likelihood ratio is the score. Where none is available the score is that of the
        canary's average participation.

        Raises: InvalidInputError unless exactly the steps of the mechanism were observed.
        """
        steps = mechanism.matrix.steps
        if len(self._seen) != steps:
            raise InvalidInputError(
                f"All {steps} steps of the mechanism must be observed, once. Got {len(self._seen)} instead."
            )
        outputs = mechanism.matrix.dot(np.nan_to_num(np.stack(self._seen))) / mechanism.sigma
        try:
            ratio = ratio_of(mechanism)
            if ratio.stride == 1 and ratio.batches == 1:
                return np.nan_to_num(ratio.log_ratios(outputs))
        except UnsupportedError:
            pass
        means = mechanism.matrix.dot(self._turns(mechanism)) / mechanism.sigma
        scores: Array = (means * (outputs - 0.5 * means)).sum(axis=0)
        return np.nan_to_num(scores)

    def record(self, mechanism: Mechanism, *, scores: ArrayLike | None = None) -> CanaryScores:
        """What the run says about its canaries, as plain data for a file and for ``hockeystick audit --canaries``.

        Args:
            mechanism: that ran.
            scores: of attacks on models, shape (count,), larger where a canary looks included; by default those of
                what was observed, which are taken as independent of one another where the sampler draws examples
                independently, because the gradients are fixed and orthogonal.

        Raises: InvalidInputError for scores that are not finite or of another number; and as :meth:`scores`.
        """
        values = reals_of(self.scores(mechanism) if scores is None else scores)
        if values is None or values.shape != (self.count,):
            raise InvalidInputError(
                f"The 'scores' argument must be a row of {self.count} numbers, one for each canary. "
                f"Got {shortened(scores)} instead."
            )
        return CanaryScores(
            seed=self.seed,
            num_examples=self.num_examples,
            observed=scores is None,
            scores=tuple(float(value) for value in values),
        )

    def verdict(
        self, certificate: AnyCertificate, *, scores: ArrayLike | None = None, level: float = 1e-3, **options: Any
    ) -> Verdict:
        """The verdict on a certificate of :attr:`total` examples: that of :meth:`record`."""
        return self.record(certificate.mechanism, scores=scores).verdict(certificate, level=level, **options)

    def _turns(self, mechanism: Mechanism) -> Array:
        """How often each canary takes part in each step, shape (steps, count), over some draws of the sampler."""
        turns = np.zeros((mechanism.matrix.steps, self.count))
        draws = 1 if mechanism.sampler.batches_are_public else DRAWS
        for draw in range(draws):
            batches = mechanism.sampler.batches(self.total, np.random.default_rng(draw))
            for step, batch in enumerate(batches):
                turns[step, self._canaries_in(batch)] += 1.0 / draws
        return turns

    def _canaries_in(self, batch: ArrayLike) -> NDArray[np.int64]:
        indices = np.asarray(batch, dtype=np.int64).ravel()
        who = indices[indices >= self.num_examples] - self.num_examples
        if who.size and who.max() >= self.count:
            raise InvalidInputError(
                f"The 'batch' argument must have indices below {self.total}, the number of real examples and canaries. "
                f"Got {int(indices.max())} instead."
            )
        return who


@called("hs.audit.canaries(100, num_examples=1000, size=10)")
def canaries(count: int, *, num_examples: int, size: int, clip_norm: float = 1.0, seed: int | None = None) -> Canaries:
    """Make canaries for one run, each of which a fair and secret coin includes.

    >>> made = canaries(100, num_examples=1500, size=12_010, seed=7)
    >>> made.total  # what plan, run and certificate are about
    1600
    >>> 30 < int(made.included.sum()) < 70
    True

    Args:
        count: canaries; some hundreds. The bound on epsilon gets closer to the truth with more of them, and the model
            worse.
        num_examples: of the real data.
        size: trained parameters, at least as many as canaries.
        clip_norm: of the run; the canaries' gradients have this norm.
        seed: of the coins and directions; None for a fresh one, which the verdict states.

    Raises: InvalidInputError for arguments out of range.
    """
    for name, value, least, most in (
        ("count", count, 2, MOST_CANARIES),
        ("num_examples", num_examples, 0, 10**9),
        ("size", size, count, 10**12),
        ("seed", 0 if seed is None else seed, 0, 2**63 - 1),
    ):
        number = real_number(name, value)
        if not (number.is_integer() and least <= value <= most):
            raise InvalidInputError(
                f"The {name!r} argument must be a whole number from {least} to {most}. Got {shortened(value)} instead."
            )
    if not 0.0 < real_number("clip_norm", clip_norm) < np.inf:
        raise InvalidInputError(
            f"The 'clip_norm' argument must be positive and finite. Got {shortened(clip_norm)} instead."
        )
    chosen = secrets.randbelow(2**63) if seed is None else int(seed)
    return Canaries(int(count), int(num_examples), int(size), float(clip_norm), chosen)
