"""Mechanisms to and from the histories of Opacus accountants: lists of ``(noise multiplier, sample rate, steps)``.

An Opacus history is what its accountants compose: Poisson sampled Gaussian steps, whatever the loader did. It does not
say how batches were drawn, so the caller has to. Opacus itself is not needed.

The rate of a history is not the rate of the run. A loader of L batches is drawn at the rate 1 / L, by comparing numbers
of 24 bits with it, and has int(1 / (1 / L)) batches, which is L - 1 for some lengths, the least of them 93. Its engine
accounts for the inverse of *that* number. :func:`from_opacus` converts the rate that is drawn, so that both sides of a
certificate are about the run.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.interop.described import check_unit, checked_count
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Poisson
from hockeystick.spec import real_number

History = list[tuple[float, float, int]]

EXACT = "hockeystick"
"""The name of the accountant whose history has the rate of the loader itself."""
GRID = 2**24
"""The number of values that torch draws a float32 from, uniformly, on a CPU: the multiples of 1 / GRID below 1."""

SMALLEST_RATE = 1e-30
"""The smallest rate that is read; in float32 rates below 1e-45 are 0, and no example is drawn."""


def from_opacus(
    history: Any, *, poisson_sampling: bool, steps_in_epoch: int | None = None, sample_rate: float | None = None
) -> tuple[Mechanism, ...]:
    """The mechanisms of an Opacus history, one for each entry, in its order; all see the same examples.

    >>> [run.sampler.steps for run in from_opacus([(1.1, 0.004, 500), (0.9, 0.004, 250)], poisson_sampling=True)]
    [500, 250]
    >>> (run,) = from_opacus([(1.0, 1 / 92, 920)], poisson_sampling=True, steps_in_epoch=93)
    >>> 1 / 93 <= run.sampler.sampling_prob < 1 / 93 + 2**-24
    True

    Formal guarantee: the mechanisms have the rate that Opacus 1.6 draws at (:func:`drawn_rate`), so that an upper bound
    for them is one for the run, and a lower bound is, too.

    Assumptions: every batch that the loader drew was used in one step, whether it had examples or not, and no step used
    two; the coins were float32 numbers on a CPU, torch's default. ``docs/reference/conversions.md`` lists what else.

    A history does not say whose noise was added: pass the name, such as ``torch-cpu-float32``, to
    :func:`hockeystick.certify` as its ``generator``.

    Args:
        history: the list ``accountant.history``, the accountant, or its ``state_dict()``.
        poisson_sampling: whether the loader drew batches by Poisson sampling, as given to ``make_private``. With False
            Opacus leaves the loader as it is, shuffled say, and its accountants account for Poisson all the same.
        steps_in_epoch: the length of the loader that ``make_private`` got, as ``len`` said *before*. Needed where
            loaders of two lengths have the same history; otherwise it is checked.
        sample_rate: that of a ``DPDataLoader`` of your own, for a run that used it as it is.

    Raises: UnsupportedError with ``poisson_sampling=False``; InvalidInputError for what is no history, for a history
        that does not say at which rate it was drawn, for one of another loader than the one that is described, and for
        values that a mechanism does not allow.
    """
    if poisson_sampling is not True:
        raise UnsupportedError(
            "The history accounts for Poisson sampling, which a loader with poisson_sampling=False does not do; "
            "describe what the loader did with a sampler such as Shuffle instead."
        )
    if steps_in_epoch is not None and sample_rate is not None:
        raise InvalidInputError("Only one of 'steps_in_epoch' and 'sample_rate' may be given; both are of the loader.")
    entries, exact = _entries(history)
    if steps_in_epoch is not None:
        sample_rate = 1 / checked_count("steps_in_epoch", steps_in_epoch)
    return tuple(
        Mechanism(
            sampler=Poisson(
                sampling_prob=_drawn(_checked_rate(accounted), sample_rate, exact),
                steps=checked_count("num_steps", steps),
            ),
            noise_multiplier=real_number("noise_multiplier", sigma),
        )
        for sigma, accounted, steps in entries
    )


def drawn_rate(sample_rate: float) -> float:
    """The chance that Opacus' Poisson loader draws an example with, for its ``sample_rate``, exactly.

    >>> drawn_rate(0.25), drawn_rate(1e-8) * 2**24
    (0.25, 1.0)

    Opacus 1.6 draws the examples for which ``torch.rand(n) < sample_rate``. The numbers are multiples of 2^-24, and
    the comparison takes place in float32. So it counts the multiples below the float32 next to the rate.
    """
    return ceil(float(np.float32(sample_rate)) * GRID) / GRID


def to_opacus(mechanisms: Sequence[Mechanism]) -> History:
    """The Opacus history of mechanisms that are run on the same examples, for ``accountant.history``.

    >>> import hockeystick as hs
    >>> to_opacus([hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)])
    [(1.0, 0.01, 100)]

    Raises: UnsupportedError, naming the strategy, the sampler or the unit that no history describes; InvalidInputError
        when there is no noise multiplier yet.
    """
    return [_entry(mechanism) for mechanism in mechanisms]


def _drawn(accounted: float, sample_rate: float | None, exact: bool) -> float:
    """The rate that a step was drawn at.

    Args:
        accounted: the rate of the history.
        sample_rate: that of the loader, if the caller knows it.
        exact: whether the history has the loader's rate itself.
    """
    if sample_rate is not None:
        if accounted not in _accounted(_checked_rate(sample_rate)):
            raise InvalidInputError(
                f"The history is accounted at the rate {accounted!r}, and a loader of the rate {sample_rate!r} is "
                f"accounted at {_accounted(sample_rate)[0]!r}; convert the entries of other loaders by themselves."
            )
        return drawn_rate(sample_rate)
    if exact:
        return drawn_rate(accounted)
    nearest = round(1 / accounted)
    lengths = [length for length in (nearest, nearest + 1) if accounted in _accounted(1 / length)]
    rates = {drawn_rate(1 / length) for length in lengths}
    if not rates:
        raise InvalidInputError(
            f"The history is accounted at the rate {accounted!r}, which no loader of make_private has; give the "
            "'sample_rate' of your own DPDataLoader, or describe the run with the sampler Poisson."
        )
    if len(rates) > 1:
        raise InvalidInputError(
            f"The 'steps_in_epoch' argument has to be given, the length of the loader that make_private got: loaders "
            f"of {lengths[0]} and of {lengths[1]} batches are both accounted at the rate {accounted!r}, and draw at "
            "different ones."
        )
    return rates.pop()


def _accounted(sample_rate: float) -> tuple[float, float]:
    """What accountants record for a loader of a rate: Opacus' own, and ours."""
    return 1 / int(1 / sample_rate), sample_rate


def _checked_rate(rate: object) -> float:
    value = real_number("sample_rate", rate)
    if not SMALLEST_RATE <= value <= 1.0:
        raise InvalidInputError(
            f"The 'sample_rate' field must be at least {SMALLEST_RATE:g}, and at most 1. Got {value!r} instead."
        )
    return value


def _entries(history: Any) -> tuple[list[Sequence[Any]], bool]:
    """The entries of a history, and whether their rates are those of the loader itself."""
    name = getattr(history, "mechanism", None)
    exact = (name() if callable(name) else name) == EXACT
    if isinstance(history, Mapping):
        exact = history.get("mechanism") == EXACT
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
    return list(history), exact


def _entry(mechanism: Mechanism) -> tuple[float, float, int]:
    if mechanism.strategy.kind != "identity":
        raise UnsupportedError(f"No Opacus history describes the strategy {mechanism.strategy.kind!r}.")
    sampler = mechanism.sampler
    if not isinstance(sampler, Poisson):
        raise UnsupportedError(f"Opacus accounts for Poisson sampling alone. Got the sampler {sampler.kind!r}.")
    if sampler.truncated_batch_size is not None:
        raise UnsupportedError("Opacus does not account for the truncation of batches ('truncated_batch_size').")
    check_unit(mechanism)
    return mechanism.sigma, sampler.sampling_prob, sampler.steps
