"""Mechanisms to and from the histories of Opacus accountants: lists of ``(noise multiplier, sample rate, steps)``.

An Opacus history is what its accountants compose: Poisson sampled Gaussian steps, whatever the loader did. It does not
say how batches were drawn, so the caller has to. Opacus itself is not needed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.interop.described import checked_count
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Poisson
from hockeystick.spec import real_number

History = list[tuple[float, float, int]]


def from_opacus(history: Any, *, poisson_sampling: bool) -> tuple[Mechanism, ...]:
    """The mechanisms of an Opacus history, one for each entry, in its order; all see the same examples.

    >>> [run.sampler.steps for run in from_opacus([(1.1, 0.004, 500), (0.9, 0.004, 250)], poisson_sampling=True)]
    [500, 250]

    Args:
        history: the list ``accountant.history``, the accountant, or its ``state_dict()``.
        poisson_sampling: whether the loader drew batches by Poisson sampling, as given to ``make_private``. With False
            Opacus leaves the loader as it is, shuffled say, and its accountants account for Poisson all the same.

    Raises: UnsupportedError with ``poisson_sampling=False``; InvalidInputError for what is no history, or values that a
        mechanism does not allow.
    """
    if poisson_sampling is not True:
        raise UnsupportedError(
            "The history accounts for Poisson sampling, which a loader with poisson_sampling=False does not do; "
            "describe what the loader did with a sampler such as Shuffle instead."
        )
    entries = _entries(history)
    return tuple(
        Mechanism(
            sampler=Poisson(sampling_prob=real_number("sample_rate", rate), steps=checked_count("num_steps", steps)),
            noise_multiplier=real_number("noise_multiplier", sigma),
        )
        for sigma, rate, steps in entries
    )


def to_opacus(mechanisms: Sequence[Mechanism]) -> History:
    """The Opacus history of mechanisms that are run on the same examples, for ``accountant.history``.

    >>> import hockeystick as hs
    >>> to_opacus([hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)])
    [(1.0, 0.01, 100)]

    Raises: UnsupportedError, naming the strategy or the sampler that no history describes; InvalidInputError when
        there is no noise multiplier yet.
    """
    return [_entry(mechanism) for mechanism in mechanisms]


def _entries(history: Any) -> list[Sequence[Any]]:
    if isinstance(history, Mapping):
        history = history.get("history")
    history = getattr(history, "history", history)
    if not isinstance(history, list | tuple) or not history:
        raise InvalidInputError(
            f"The 'history' argument must be a list of (noise multiplier, sample rate, steps). "
            f"Got {shortened(history)} instead."
        )
    for entry in history:
        if not isinstance(entry, list | tuple) or len(entry) != 3:
            raise InvalidInputError(
                f"The entries of 'history' must be (noise multiplier, sample rate, steps). "
                f"Got {shortened(entry)} instead."
            )
    return list(history)


def _entry(mechanism: Mechanism) -> tuple[float, float, int]:
    if mechanism.strategy.kind != "identity":
        raise UnsupportedError(f"No Opacus history describes the strategy {mechanism.strategy.kind!r}.")
    sampler = mechanism.sampler
    if not isinstance(sampler, Poisson):
        raise UnsupportedError(f"Opacus accounts for Poisson sampling alone. Got the sampler {sampler.kind!r}.")
    if sampler.truncated_batch_size is not None:
        raise UnsupportedError("Opacus does not account for the truncation of batches ('truncated_batch_size').")
    return mechanism.sigma, sampler.sampling_prob, sampler.steps
