"""Samplers and plain DP-SGD configurations of JAX Privacy, read by their fields; JAX Privacy itself is not needed.

=========================================  ============================================================================
JAX Privacy 2.0                            hockeystick
=========================================  ============================================================================
``CyclicPoissonSampling``                  ``Poisson`` for a cycle of 1; ``CyclicPoisson`` with as many groups
``BallsInBinsSampling``                    ``BallsInBins``, for whole cycles
``BMinSepSampling``                        ``BMinSep`` with the long-run rate ``q / (1 + (min_sep - 1) q)``
``BandMFExecutionPlanConfig``, one band    ``Poisson`` with the strategy identity
``DPExecutionPlan``                        the sampler's mechanism, if ``dp_event`` is about that sampler
=========================================  ============================================================================

Everything can be given as an object or as a table with the same fields and the class's name as ``type``.

The partition EQUAL_SPLIT is random and secret in JAX Privacy, but its accounting reveals it, as ``partition = "equal"``
does here. Upper bounds for the converted sampler hold for theirs. Lower bounds are about an adversary who knows the
groups.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.interop.described import check_unit, kind_of, read, read_count, read_name, read_number
from hockeystick.interop.dp_events import from_dp_event
from hockeystick.mechanism import Mechanism
from hockeystick.misspelt import one_of
from hockeystick.noise.generators import GENERATORS
from hockeystick.samplers import BallsInBins, BMinSep, CyclicPoisson, Poisson, Sampler
from hockeystick.spec import real_number

LARGEST_BAND = 1e6
"""JAX Privacy multiplies the noise by the size of the band and divides it again, in float32: from its inverse to this
the quotient keeps its bits."""
WIDE = ("jax-float32", "jax-float64")
"""Generators that are taken for Gaussian, but for their ends."""


def from_jax_privacy(described: Any) -> Mechanism:
    """The mechanism of a ``DPExecutionPlan`` or a ``BandMFExecutionPlanConfig``.

    >>> config = {"iterations": 1000, "strategy": [1.0], "sampling_prob": 0.01, "noise_multiplier": 1.5}
    >>> from_jax_privacy(config | {"type": "BandMFExecutionPlanConfig"}).sigma
    1.5

    The noise is JAX's: pass :func:`generator_from_jax_privacy` of the configuration to :func:`hockeystick.certify`.

    Raises: UnsupportedError, in one sentence, for noise in a type of 16 bits, whose numbers are far from Gaussian (128
        different ones in bfloat16), when a plan's sampler is not the one that its event accounts for, for
        more than one band (a plan does not say its strategy), normalised columns, substitution of examples and unknown
        classes; InvalidInputError for values that a mechanism does not allow.
    """
    kind = kind_of(described)
    if kind == "BandMFExecutionPlanConfig":
        return _from_config(described)
    if kind == "DPExecutionPlan":
        return _from_plan(described)
    raise UnsupportedError(
        f"Only a DPExecutionPlan and a BandMFExecutionPlanConfig can be converted. Got {shortened(kind)} instead."
    )


def generator_from_jax_privacy(config: Any) -> str:
    """The generator of the noise of a ``BandMFExecutionPlanConfig``: a key of ``hockeystick.noise.GENERATORS``.

    >>> generator_from_jax_privacy({"type": "BandMFExecutionPlanConfig", "dtype": "bfloat16"})
    'jax-bfloat16'

    Raises: UnsupportedError for what does not say its type, as a ``DPExecutionPlan``, and for types that are not known.
    """
    if kind_of(config) != "BandMFExecutionPlanConfig":
        raise UnsupportedError(f"Only a BandMFExecutionPlanConfig says its dtype. Got {shortened(kind_of(config))}.")
    dtype = read(config, "dtype", "float32")
    name = f"jax-{getattr(dtype, '__name__', None) or getattr(dtype, 'name', None) or dtype}"
    if name not in GENERATORS:
        raise UnsupportedError(
            f"The 'dtype' field must be a type of JAX's noise that is known. Got {shortened(dtype)}."
        )
    return name


def sampler_from_jax_privacy(described: Any, *, num_examples: int | None = None) -> Sampler:
    """The sampler of a batch selection strategy.

    >>> sampler_from_jax_privacy({"type": "BallsInBinsSampling", "iterations": 60, "cycle_length": 20}).epochs
    3

    Args:
        described: the strategy, or a table.
        num_examples: size of the data, for strategies with a ``truncated_batch_size``.

    Raises: UnsupportedError, naming it, for a strategy without an exact counterpart; InvalidInputError for values that
        a sampler does not allow.
    """
    kind = kind_of(described)
    if kind not in _SAMPLERS:
        raise UnsupportedError(
            f"No sampler draws batches as {shortened(kind)} does; only {', '.join(_SAMPLERS)} can be converted."
        )
    return _SAMPLERS[kind](described, num_examples)


def sampler_to_jax_privacy(sampler: Sampler) -> dict[str, Any]:
    """The batch selection strategy of a sampler, as a table with the class's name as ``type``.

    Raises: UnsupportedError, naming the sampler, where JAX Privacy has none that draws like it.
    """
    if isinstance(sampler, Poisson):
        return _cyclic(sampler.sampling_prob, sampler.steps, 1, sampler.truncated_batch_size, "EQUAL_SPLIT")
    if isinstance(sampler, CyclicPoisson):
        partition = "EQUAL_SPLIT" if sampler.partition == "equal" else "INDEPENDENT"
        return _cyclic(sampler.sampling_prob, sampler.steps, sampler.groups, None, partition)
    if isinstance(sampler, BallsInBins):
        return {"type": "BallsInBinsSampling", "iterations": sampler.steps, "cycle_length": sampler.bins}
    if isinstance(sampler, BMinSep):
        return {
            "type": "BMinSepSampling",
            "sampling_prob": sampler.participation_prob,
            "iterations": sampler.steps,
            "min_sep": sampler.min_sep,
            "warm_start": sampler.warm_start,
            "truncated_batch_size": sampler.truncated_batch_size,
        }
    raise UnsupportedError(f"JAX Privacy has no batch selection strategy that draws as {sampler.kind!r} does.")


def to_jax_privacy(mechanism: Mechanism) -> dict[str, Any]:
    """The ``BandMFExecutionPlanConfig`` of plain DP-SGD with Poisson sampling, as a table with its ``type``.

    Raises: UnsupportedError, naming the strategy, the sampler or the unit; InvalidInputError without a noise
        multiplier.
    """
    sampler = mechanism.sampler
    if mechanism.strategy.kind != "identity":
        raise UnsupportedError(f"Only the strategy 'identity' can be converted. Got {mechanism.strategy.kind!r}.")
    if not isinstance(sampler, Poisson):
        raise UnsupportedError(f"A BandMFExecutionPlanConfig draws Poisson batches. Got the sampler {sampler.kind!r}.")
    check_unit(mechanism)
    return {
        "type": "BandMFExecutionPlanConfig",
        "iterations": sampler.steps,
        "strategy": [1.0],
        "epsilon": None,
        "delta": None,
        "noise_multiplier": mechanism.sigma,
        "sampling_prob": sampler.sampling_prob,
        "truncated_batch_size": sampler.truncated_batch_size,
        "num_examples": sampler.num_examples,
    }


def _from_config(config: Any) -> Mechanism:
    generator = generator_from_jax_privacy(config)
    if generator not in WIDE:
        raise UnsupportedError(
            f"Noise of the generator {generator!r} is too far from Gaussian to be converted; use dtype = float32, or "
            f"noise of hockeystick."
        )
    _check_strategy(config)
    _check_relation(read(config, "accountant", None))
    truncated = read(config, "truncated_batch_size", None)
    sampler = Poisson(
        sampling_prob=read_number(config, "sampling_prob"),
        steps=read_count(config, "iterations"),
        truncated_batch_size=truncated,
        num_examples=None if truncated is None else read_count(config, "num_examples"),
    )
    noise = read(config, "noise_multiplier", None)
    return Mechanism(
        sampler=sampler, noise_multiplier=None if noise is None else real_number("noise_multiplier", noise)
    )


def _check_strategy(config: Any) -> None:
    """Refuse all but one band, whose noise is the identity's: multiplied by the band's size, and divided by it."""
    strategy = read(config, "strategy")
    if not isinstance(strategy, list | tuple) and np.ndim(strategy) == 1:
        strategy = list(strategy)
    if not isinstance(strategy, list | tuple):
        raise InvalidInputError(f"The 'strategy' field must be a list of numbers. Got {shortened(strategy)} instead.")
    if len(strategy) != 1:
        raise UnsupportedError(
            f"Only a strategy of one band can be converted. Got {len(strategy)} bands; save C with numpy and use the "
            f"strategy 'custom' with the converted sampler."
        )
    band = real_number("strategy", strategy[0])
    if not 1.0 / LARGEST_BAND <= abs(band) <= LARGEST_BAND:
        raise InvalidInputError(
            f"The 'strategy' field must have a band of size {1.0 / LARGEST_BAND:g} to {LARGEST_BAND:g}. "
            f"Got {band!r} instead."
        )
    if read(config, "column_normalize", False) is not False:
        raise UnsupportedError(
            "The 'column_normalize' field must be False, because the noise of normalised columns is multiplied by the "
            "band's size and not divided by it."
        )


def _from_plan(plan: Any) -> Mechanism:
    _check_relation(plan)
    accounted = from_dp_event(read(plan, "dp_event"))
    strategy = read(plan, "batch_selection_strategy")
    drawn = sampler_from_jax_privacy(strategy, num_examples=getattr(accounted.sampler, "num_examples", None))
    if isinstance(drawn, CyclicPoisson):
        raise UnsupportedError("A plan of several bands does not say its strategy; convert its sampler alone.")
    if drawn != accounted.sampler:
        raise UnsupportedError(
            f"The plan draws batches by {kind_of(strategy)} but its event accounts for another sampler, "
            f"{shortened(accounted.sampler)}."
        )
    return accounted


def _check_relation(described: Any) -> None:
    """Refuse substitution, for which JAX Privacy adds noise of twice the noise multiplier of its event."""
    relation = read_name(described, "neighboring_relation", None)
    if relation not in _RELATIONS:
        raise UnsupportedError(
            f"The relation {shortened(relation)} cannot be converted; only ADD_OR_REMOVE_ONE and REPLACE_SPECIAL can."
        )


def _from_cyclic(described: Any, num_examples: int | None) -> Sampler:
    groups, steps = read_count(described, "cycle_length", 1), read_count(described, "iterations")
    rate, truncated = read_number(described, "sampling_prob"), read(described, "truncated_batch_size", None)
    if groups == 1:
        size = num_examples if truncated is not None else None
        return Poisson(sampling_prob=rate, steps=steps, truncated_batch_size=truncated, num_examples=size)
    if truncated is not None:
        raise UnsupportedError("Truncated batches of cyclic Poisson sampling have not been analysed.")
    name = one_of("partition_type", read_name(described, "partition_type", "EQUAL_SPLIT"), _PARTITIONS)
    return CyclicPoisson(groups=groups, sampling_prob=rate, steps=steps, partition=_PARTITIONS[name])


def _from_bins(described: Any, num_examples: int | None) -> Sampler:
    steps, bins = read_count(described, "iterations"), read_count(described, "cycle_length")
    if steps % bins:
        raise UnsupportedError(
            f"The 'iterations' field must be a multiple of cycle_length = {bins} here. Got {steps} instead."
        )
    return BallsInBins(bins=bins, epochs=steps // bins)


def _from_min_sep(described: Any, num_examples: int | None) -> Sampler:
    chance, min_sep = read_number(described, "sampling_prob"), read_count(described, "min_sep")
    if not 0.0 < chance <= 1.0:
        raise InvalidInputError(f"The 'sampling_prob' field must be above 0, and at most 1. Got {chance!r} instead.")
    truncated = read(described, "truncated_batch_size", None)
    return BMinSep(
        min_sep=min_sep,
        sampling_prob=1.0 / min_sep if chance == 1.0 else chance / (1.0 + (min_sep - 1) * chance),
        steps=read_count(described, "iterations"),
        warm_start=read(described, "warm_start", True),
        truncated_batch_size=truncated,
        num_examples=num_examples if truncated is not None else None,
    )


def _cyclic(rate: float, steps: int, groups: int, truncated: int | None, partition: str) -> dict[str, Any]:
    return {
        "type": "CyclicPoissonSampling",
        "sampling_prob": rate,
        "iterations": steps,
        "truncated_batch_size": truncated,
        "cycle_length": groups,
        "partition_type": partition,
    }


_RELATIONS = (None, "ADD_OR_REMOVE_ONE", "REPLACE_SPECIAL")
"""None where a plan does not say it."""
_PARTITIONS: dict[str, Any] = {"EQUAL_SPLIT": "equal", "INDEPENDENT": "independent"}
_SAMPLERS: dict[str, Callable[[Any, int | None], Sampler]] = {
    "CyclicPoissonSampling": _from_cyclic,
    "BallsInBinsSampling": _from_bins,
    "BMinSepSampling": _from_min_sep,
}
