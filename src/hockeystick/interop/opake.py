"""Processes of opake's accounting to and from mechanisms, read by their fields; opake itself is not needed.

================================================  =====================================================================
opake 0.16                                        hockeystick (strategy identity)
================================================  =====================================================================
``Gaussian(s)``, repeated k times                 ``Deterministic(bins=1, epochs=k)``
``Poisson(Gaussian(s), q)``, repeated T times     ``Poisson(sampling_prob=q, steps=T)``, with its truncation
``KOutOfT(Gaussian(s), k, t, "total")``           ``RandomAllocation(bins=t, participations=k)``
``KOutOfT(Gaussian(s), k, t, "block")``           ``RandomAllocation(bins=t / k, epochs=k)``, if k divides t
================================================  =====================================================================

Processes may be given as objects or as tables with the same fields and the class's name as ``type``. ``Composed``,
``Repeated`` and ``Identity`` may be nested; matrix factorisation is refused, because it needs the strategy's matrix.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.interop.described import check_unit, checked_count, kind_of, read, read_count, read_name, read_number
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Deterministic, Poisson, RandomAllocation, Sampler
from hockeystick.spec import PLAIN

_DRAWS = {"PoissonSampler": "poisson", "KOutOfTSampler": "random_allocation", "SequentialBatchSampler": "deterministic"}
"""What the samplers of opake draw."""


def from_opake(process: Any, *, sampler: Any = None) -> tuple[Mechanism, ...]:
    """The mechanisms whose composition a process accounts for, one for each different step, in order of appearance.

    >>> step = {"type": "Poisson", "inner": {"type": "Gaussian", "noise_multiplier": 1.2}, "sample_rate": 0.01}
    >>> from_opake({"type": "Repeated", "inner": step, "count": 300})[0].sampler.steps
    300

    Args:
        process: a process, or a table.
        sampler: what draws the batches: a sampler of opake, a table, or the name of a class such as
            "PoissonSampler". If given, it has to be the one that all of the process accounts for, with the same rate,
            cap or allocation as far as it says them, and no more steps.

    Raises: UnsupportedError, in one sentence, for a process without an exact counterpart and for a sampler that draws
        otherwise than the process accounts for; InvalidInputError for values that a mechanism does not allow.
    """
    counted: dict[tuple[float, Sampler], int] = {}
    for sigma, scheme, count in _steps(process, 1):
        counted[sigma, scheme] = counted.get((sigma, scheme), 0) + count
    mechanisms = tuple(
        Mechanism(sampler=_repeated(scheme, count), noise_multiplier=sigma)
        for (sigma, scheme), count in counted.items()
    )
    if not mechanisms:
        raise UnsupportedError(f"The process {shortened(process)} does nothing, so no mechanism describes it.")
    if sampler is not None:
        _check_sampler(sampler, mechanisms)
    return mechanisms


def to_opake(mechanisms: Sequence[Mechanism]) -> dict[str, Any]:
    """The process of mechanisms that are run on the same examples: nested tables with the classes' names as ``type``.

    Raises: UnsupportedError, naming the strategy, the sampler or the unit that opake has not; InvalidInputError when
        there is no mechanism, or no noise multiplier.
    """
    if not mechanisms:
        raise InvalidInputError("The 'mechanisms' argument must have at least one mechanism.")
    whole, *others = [_process(mechanism) for mechanism in mechanisms]
    for other in others:
        whole = {"type": "Composed", "left": whole, "right": other}
    return whole


def _steps(process: Any, times: int) -> list[tuple[float, Sampler, int]]:
    """(noise multiplier, sampler of one run, how often) of all leaves."""
    kind = kind_of(process)
    if kind == "Composed":
        return [*_steps(read(process, "left"), times), *_steps(read(process, "right"), times)]
    if kind == "Repeated":
        return _steps(read(process, "inner"), times * read_count(process, "count"))
    if kind == "CachedProcess":
        return _steps(read(process, "inner"), times)
    if kind == "Identity":
        return []
    if kind == "Gaussian":
        return [(read_number(process, "noise_multiplier"), Deterministic(bins=1), times)]
    if kind not in _LEAVES:
        raise UnsupportedError(f"No mechanism has exactly the meaning of opake's {shortened(kind)}.")
    inner = read(process, "inner")
    if kind_of(inner) != "Gaussian":
        raise UnsupportedError(f"Inside of opake's {kind} only a Gaussian is known. Got {shortened(kind_of(inner))}.")
    return [(read_number(inner, "noise_multiplier"), _LEAVES[kind](process), times)]


def _poisson(process: Any) -> Sampler:
    return Poisson(
        sampling_prob=read_number(process, "sample_rate"),
        steps=1,
        truncated_batch_size=read(process, "truncated_batch_size", None),
        num_examples=read(process, "dataset_size", None),
    )


def _allocation(process: Any) -> Sampler:
    picks, steps = read_count(process, "k"), read_count(process, "n_steps")
    allocation = read_name(process, "allocation")
    if allocation == "total":
        return RandomAllocation(bins=steps, participations=picks)
    if allocation != "block":
        raise InvalidInputError(
            f"The 'allocation' field must be 'block' or 'total'. Got {shortened(allocation)} instead."
        )
    if steps % picks:
        raise UnsupportedError(f"Blocks of different sizes are not known: k = {picks} does not divide {steps} steps.")
    return RandomAllocation(bins=steps // picks, epochs=picks)


_LEAVES: dict[str, Callable[[Any], Sampler]] = {"Poisson": _poisson, "KOutOfT": _allocation}


def _repeated(sampler: Sampler, count: int) -> Sampler:
    """``count`` runs of a sampler."""
    if isinstance(sampler, Poisson):
        return Poisson.parse(sampler.model_dump() | {"steps": count * sampler.steps})
    if isinstance(sampler, RandomAllocation | Deterministic):
        return type(sampler).parse(sampler.model_dump() | {"epochs": count * sampler.epochs})
    raise UnsupportedError(f"Runs of the sampler {sampler.kind!r} cannot be repeated.")


def _check_sampler(sampler: Any, mechanisms: Sequence[Mechanism]) -> None:
    name = sampler if isinstance(sampler, str) else kind_of(sampler)
    draws = _DRAWS.get(name)
    for mechanism in mechanisms:
        if draws != mechanism.sampler.kind:
            raise UnsupportedError(
                f"The process accounts for {mechanism.sampler.kind!r} but batches are drawn by {shortened(name)}."
            )
    if isinstance(sampler, str):
        return
    for mechanism in mechanisms:
        for field, accounted in _fields(mechanism.sampler, sampler):
            drawn = read(sampler, field, accounted)
            if type(drawn) not in PLAIN or drawn != accounted:
                raise UnsupportedError(
                    f"The process accounts for {field} = {shortened(accounted)} but batches are drawn with "
                    f"{shortened(drawn)}."
                )
    steps = read(sampler, "n_steps", None) if draws == "poisson" else None
    total = sum(mechanism.sampler.steps for mechanism in mechanisms)
    if steps is not None and checked_count("n_steps", steps) > total:
        raise UnsupportedError(f"The process accounts for {total} steps but {steps} batches are drawn.")


def _fields(accounted: Sampler, drawn: Any) -> list[tuple[str, Any]]:
    """Fields of opake's sampler, with the values that they have to have for what is accounted for."""
    if isinstance(accounted, Poisson):
        return [("sample_rate", accounted.sampling_prob), ("truncated_batch_size", accounted.truncated_batch_size)]
    allocation = read_name(drawn, "allocation", None)
    if not isinstance(accounted, RandomAllocation) or allocation is None:
        return []
    if allocation != "block" or accounted.participations > 1:
        return [("allocation", "total"), ("k", accounted.participations), ("t", accounted.bins)]
    blocks = min(read_count(drawn, "k"), accounted.epochs)
    return [("k", blocks), ("t", blocks * accounted.bins)]


def _process(mechanism: Mechanism) -> dict[str, Any]:
    if mechanism.strategy.kind != "identity":
        raise UnsupportedError(f"Only the strategy 'identity' can be converted. Got {mechanism.strategy.kind!r}.")
    check_unit(mechanism)
    sampler = mechanism.sampler
    inner = {"type": "Gaussian", "noise_multiplier": mechanism.sigma}
    if isinstance(sampler, Deterministic):
        return _times(inner, sampler.epochs)
    if isinstance(sampler, Poisson):
        step = {
            "type": "Poisson",
            "inner": inner,
            "sample_rate": sampler.sampling_prob,
            "truncated_batch_size": sampler.truncated_batch_size,
            "dataset_size": sampler.num_examples,
        }
        return _times(step, sampler.steps)
    if isinstance(sampler, RandomAllocation):
        epoch = {
            "type": "KOutOfT",
            "inner": inner,
            "k": sampler.participations,
            "n_steps": sampler.bins,
            "allocation": "total",
        }
        return _times(epoch, sampler.epochs)
    raise UnsupportedError(f"opake has no process for the sampler {sampler.kind!r} without a strategy's matrix.")


def _times(process: dict[str, Any], count: int) -> dict[str, Any]:
    return process if count == 1 else {"type": "Repeated", "inner": process, "count": count}
