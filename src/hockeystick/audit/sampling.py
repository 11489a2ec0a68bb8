"""Do these batches come from the sampler that is claimed?"""

from collections.abc import Callable, Iterable
from itertools import islice
from math import log

import numpy as np
from numpy.typing import ArrayLike

from hockeystick.audit.chances import CHANCES, Array, Chances, check_supported
from hockeystick.audit.habits import BETS, STRENGTHS, Habits, settle
from hockeystick.audit.verdict import Finding, Verdict
from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.promises import Batch, BrokenPromiseError
from hockeystick.spec import real_number
from hockeystick.training.record import MEANINGS

Batches = Iterable[ArrayLike]


@called("hs.audit.sampler(batches, hs.Poisson(sampling_prob=0.05, steps=100), num_examples=1000)")
def sampler(
    batches: Batches | Callable[[int], Batches],
    claimed: BatchSampler,
    *,
    num_examples: int,
    runs: int = 1,
    level: float = 1e-3,
) -> Verdict:
    """Test batches against the sampler that they are claimed to come from.

    >>> import hockeystick as hs
    >>> claimed = hs.Poisson(sampling_prob=0.1, steps=40)
    >>> def shuffled(rng):
    ...     for _ in range(4):
    ...         yield from rng.permutation(200).reshape(10, 20)
    >>> hs.audit.sampler(shuffled(np.random.default_rng(0)), claimed, num_examples=200).refuted
    True
    >>> hs.audit.sampler(claimed.batches(200, np.random.default_rng(0)), claimed, num_examples=200).refuted
    False

    The audit checks what the scheme promises in every run (separations, counts, sizes, bins that stay the same), the
    rate, the sizes of batches, whether examples are used evenly, whether they come back at once or after a period (so
    reuse across epochs), pairs of neighbouring examples and of earlier companions, and repeats of an earlier run. It
    stops at the first broken promise, or as soon as the evidence suffices.

    Formal guarantee: batches with exactly the claimed distribution, from independent runs, are found broken with
    probability at most ``level``, however many are looked at and whenever the test stops (docs/theory/audits.md). A
    pass proves nothing: dependences of other kinds, and small ones, stay unseen. Rounding of the bets is far below
    the level for less than 10^12 coins.

    Args:
        batches: the index batches of one run in order, in any order within a batch; see
            :func:`~hockeystick.audit.batches_of` for loaders. Or a function from the number of a run, from 0, to such
            batches, for ``runs`` independent runs.
        claimed: the sampler; not a truncated one, and not multi-attribution, whose batches do not show whom they left
            out.
        num_examples: size of the dataset.
        runs: how many runs are looked at, at most.
        level: false-alarm probability, between 0 and 1.

    Cost: 200 products for each example and batch; O(num_examples) memory.

    Raises: UnsupportedError for a sampler that cannot be audited; InvalidInputError for batches that are not whole
    numbers, or arguments out of range.
    """
    _check(batches, claimed, runs, level)
    claimed.batches(num_examples, np.random.default_rng(0))  # refuses a number that does not suit, and draws nothing
    logs = np.zeros((len(BETS), STRENGTHS.size))
    highest = np.full(len(BETS), -np.inf)
    habits = Habits(num_examples, CHANCES[type(claimed)](claimed, num_examples).period)
    seen, broken, refuted = 0, None, False
    for run in range(runs):
        habits.begin()
        chances = CHANCES[type(claimed)](claimed, num_examples)
        promises = claimed.promises(num_examples)
        made = batches(run) if callable(batches) else batches
        step = 0
        for batch in islice(made, claimed.steps + 1):
            if step == claimed.steps:
                broken = f"Run {run} has more than the {claimed.steps} batches that are claimed."
                break
            indices = _sorted(batch)
            try:
                promises.check(step, indices)
            except BrokenPromiseError as error:
                broken = f"Batch {step} of run {run} breaks what the sampler promises: {MEANINGS[error.promise]}"
                break
            _observe(step, indices, chances, habits, logs)
            step, seen = step + 1, seen + 1
            # logs are the logarithms of wealths, of each bet at each strength. Under the claim the mean of them all is
            # a martingale that begins at 1, so it ever reaches 1 / level with probability at most level (Ville).
            np.maximum(highest, np.logaddexp.reduce(logs, axis=1) - log(STRENGTHS.size), out=highest)
            refuted = bool(np.logaddexp.reduce(logs, axis=None) - log(logs.size) >= -log(level))
            if refuted:
                break
        if broken is None and not refuted and step < claimed.steps:
            broken = f"Run {run} has {step} batches, and {claimed.steps} are claimed."
        if broken or refuted:
            break
    findings = _findings(highest, -log(level) if refuted else np.inf)
    if broken:
        findings = [Finding(name="promises", broken=True, says=broken), *findings]
    return Verdict(
        about="sampler",
        claimed=claimed.model_dump(mode="json"),
        level=level,
        samples=seen,
        findings=tuple(findings),
    )


def _observe(step: int, indices: Batch, chances: Chances, habits: Habits, logs: Array) -> None:
    """Settle the bets on the coins of a batch, which were placed before it was seen, and add it to what is known."""
    present = np.zeros(chances.size, dtype=np.bool_)
    present[indices] = True
    coins = chances.advance(step, present)
    settle(coins, present, habits.weights(step, coins, present), STRENGTHS, logs)
    habits.observe(step, coins, present)


def _findings(highest: Array, enough: float) -> list[Finding]:
    """The bets by their evidence. Where their mean reached a value, so did the best one, which is named."""
    names = list(BETS)
    return [
        Finding(
            name=names[bet],
            broken=bool(highest[bet] >= enough),
            evidence=max(float(highest[bet]), 0.0),
            says=BETS[names[bet]][1],
        )
        for bet in np.argsort(-highest)
    ]


def _sorted(batch: ArrayLike) -> Batch:
    """The indices of a batch in order; raises InvalidInputError for what is no row of whole numbers."""
    indices = np.asarray(batch)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise InvalidInputError(f"Every batch must be a row of whole numbers. Got {shortened(batch)} instead.")
    return np.sort(indices).astype(np.int64)


def _check(batches: object, claimed: object, runs: int, level: float) -> None:
    if not isinstance(claimed, BatchSampler):
        raise InvalidInputError(
            f"The 'claimed' argument must be a sampler. Got an object of type {type(claimed).__name__!r} instead."
        )
    check_supported(claimed)
    check_level(level)
    if runs < 1 or (runs > 1 and not callable(batches)):
        raise InvalidInputError(
            "The 'runs' argument must be at least 1, and 1 unless 'batches' is a function from the number of a run to "
            f"its batches. Got {shortened(runs)} instead."
        )


def check_level(level: float) -> None:
    """Raise InvalidInputError unless the level is a probability between 0 and 1."""
    if not 0.0 < real_number("level", level) < 1.0:
        raise InvalidInputError(f"The 'level' argument must be between 0 and 1. Got {shortened(level)} instead.")
