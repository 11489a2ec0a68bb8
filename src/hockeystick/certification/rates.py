"""How often an example takes part, for each sampler: the rates that a certificate prints."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hockeystick.certificate import Rates
from hockeystick.errors import UnsupportedError
from hockeystick.samplers import Sampler


@dataclass(frozen=True)
class _Participation:
    """The chance of an example to be in a batch, the same where it is available, and the most batches it can be in."""

    rate: float
    most: int
    when_available: float | None = None


def _epochs(sampler: Any) -> _Participation:
    return _Participation(sampler.rate, sampler.epochs)


def _min_separated(sampler: Any) -> _Participation:
    return _Participation(sampler.rate, -(-sampler.steps // sampler.min_sep), sampler.participation_prob)


_PARTICIPATIONS: dict[str, Callable[[Any], _Participation]] = {
    "deterministic": _epochs,
    "shuffle": _epochs,
    "balls_in_bins": _epochs,
    "poisson": lambda one: _Participation(one.rate, one.steps),
    "random_allocation": lambda one: _Participation(one.rate, one.participations * one.epochs),
    "cyclic_poisson": lambda one: _Participation(one.rate, -(-one.steps // one.groups), one.sampling_prob),
    "b_min_sep": _min_separated,
    "multi_attribution": _min_separated,
}
"""One line for each sampler."""


def rates(sampler: Sampler, num_examples: int | None = None) -> Rates:
    """How often one example takes part in the batches of a sampler.

    Args:
        num_examples: for the expected batch size; None where it is not known.

    Raises: UnsupportedError for a sampler that has no line here.

    >>> import hockeystick as hs
    >>> rates(hs.Poisson(sampling_prob=0.01, steps=50), 2000).expected_batch_size
    20.0
    """
    if sampler.kind not in _PARTICIPATIONS:
        raise UnsupportedError(f"The rates of the sampler {sampler.kind!r} are not known.")
    found = _PARTICIPATIONS[sampler.kind](sampler)
    return Rates(
        steps=sampler.steps,
        rate=found.rate,
        rate_when_available=found.when_available,
        most_participations=found.most,
        expected_batch_size=None if num_examples is None else num_examples * found.rate,
    )
