"""Mechanisms to and from the ``DpEvent`` descriptions of dp_accounting, where the two mean exactly the same.

=====================================================================  ================================================
DpEvent                                                                Mechanism (strategy identity)
=====================================================================  ================================================
``GaussianDpEvent(s)``, composed k times                               ``Deterministic(bins=1, epochs=k)``
``PoissonSampledDpEvent(q, GaussianDpEvent(s))``, composed T times     ``Poisson(sampling_prob=q, steps=T)``
``TruncatedSubsampledGaussianDpEvent(n, q, B, s)``, composed T times   the same with ``truncated_batch_size=B``
``SampledWithoutReplacementDpEvent(n, m, GaussianDpEvent(s / 2))``     ``FixedSize(m, n, steps=T)``, examples replaced
=====================================================================  ================================================

dp_accounting takes sampling without replacement for replaced examples alone, and its noise in units of what replacing
one can move: two clipping norms.

Composition may be nested and may contain ``NoOpDpEvent``; what remains is one event, or a mechanism for each different
event (phases). An event says what is necessary for accounting and no more: disjoint fixed batches become a Gaussian for
each epoch, so ``bins`` does not survive the round trip.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.interop.described import check_unit, read_count, read_number
from hockeystick.interop.peer import load
from hockeystick.mechanism import Mechanism, Unit
from hockeystick.samplers import Deterministic, FixedSize, Poisson
from hockeystick.spec import plain

Leaf = tuple[Any, ...]
"""What is composed: (noise multiplier,), (noise, rate), (noise, size, number of examples), or (noise, rate, cap, number
of examples)."""


def from_dp_event(event: Any) -> Mechanism:
    """The mechanism that a DpEvent describes.

    Raises: UnsupportedError, naming the offending part, for events without an exact counterpart and for compositions
    of different events, of which :func:`phases_from_dp_event` makes several mechanisms; InvalidInputError for values
    that a mechanism does not allow.
    """
    leaves = _leaves_of(event)
    if len(leaves) > 1:
        first, second = list(leaves)[:2]
        raise UnsupportedError(
            f"A mechanism repeats one step, but the event composes different ones: {_told(first)} and {_told(second)}."
        )
    ((leaf, count),) = leaves.items()
    return _mechanism(leaf, count)


def phases_from_dp_event(event: Any) -> tuple[Mechanism, ...]:
    """The mechanisms whose composition a DpEvent describes, one for each different step, in the order of appearance.

    Composition does not depend on the order, so the runs of one step are counted together wherever they are in
    the tree. All phases see the same examples.

    Raises: as :func:`from_dp_event`, but for compositions of different events.
    """
    return tuple(_mechanism(leaf, count) for leaf, count in _leaves_of(event).items())


def _leaves_of(event: Any) -> Counter[Leaf]:
    leaves = _leaves(event, load("dp_accounting.dp_event"))
    if not leaves:
        raise UnsupportedError(f"The event {shortened(event)} does nothing, so no mechanism describes it.")
    return leaves


def _mechanism(leaf: Leaf, count: int) -> Mechanism:
    if len(leaf) == 1:
        return Mechanism(sampler=Deterministic(bins=1, epochs=count), noise_multiplier=leaf[0])
    if len(leaf) == 2:
        return Mechanism(sampler=Poisson(sampling_prob=leaf[1], steps=count), noise_multiplier=leaf[0])
    if len(leaf) == 3:
        fixed = FixedSize(batch_size=leaf[1], num_examples=leaf[2], steps=count)
        return Mechanism(sampler=fixed, noise_multiplier=leaf[0], unit=Unit(neighbours="replace"))
    sampler = Poisson(sampling_prob=leaf[1], steps=count, truncated_batch_size=leaf[2], num_examples=leaf[3])
    return Mechanism(sampler=sampler, noise_multiplier=leaf[0])


def phases_to_dp_event(mechanisms: Sequence[Mechanism]) -> Any:
    """The DpEvent of several mechanisms that are run on the same examples, one after the other.

    Raises: InvalidInputError when there is none; otherwise as :func:`to_dp_event`.
    """
    events = [to_dp_event(mechanism) for mechanism in mechanisms]
    if not events:
        raise InvalidInputError("The 'mechanisms' argument must have at least one mechanism.")
    return events[0] if len(events) == 1 else load("dp_accounting.dp_event").ComposedDpEvent(events)


def to_dp_event(mechanism: Mechanism) -> Any:
    """The DpEvent of a mechanism.

    Fixed batches are described for zero-out neighbours, as everywhere in hockeystick; dp_accounting calls that
    relation REPLACE_SPECIAL.

    Raises: UnsupportedError, naming the strategy, the sampler or the unit that DpEvent cannot describe;
    InvalidInputError when there is no noise multiplier yet.
    """
    dp_event = load("dp_accounting.dp_event")
    strategy, sampler = mechanism.strategy.kind, mechanism.sampler.kind
    if strategy != "identity":
        raise UnsupportedError(f"No DpEvent describes the strategy {strategy!r}; only 'identity' can be converted.")
    if sampler not in _TO_EVENT:
        raise UnsupportedError(
            f"No DpEvent describes the sampler {sampler!r}; only {' and '.join(map(repr, _TO_EVENT))} can be converted."
        )
    if isinstance(mechanism.sampler, FixedSize) and mechanism.unit != Unit(neighbours="replace"):
        raise UnsupportedError(
            "No DpEvent describes the sampler 'fixed_size' for examples that are zeroed out; only unit.neighbours = "
            "'replace' can be converted."
        )
    if not isinstance(mechanism.sampler, FixedSize):
        check_unit(mechanism)
    step, count = _TO_EVENT[sampler](mechanism.sampler, mechanism.sigma, dp_event)
    return step if count == 1 else dp_event.SelfComposedDpEvent(step, count)


def _from_deterministic(sampler: Deterministic, sigma: float, dp_event: Any) -> tuple[Any, int]:
    return dp_event.GaussianDpEvent(sigma), sampler.epochs


def _from_poisson(sampler: Poisson, sigma: float, dp_event: Any) -> tuple[Any, int]:
    if sampler.truncated_batch_size is None:
        return dp_event.PoissonSampledDpEvent(sampler.sampling_prob, dp_event.GaussianDpEvent(sigma)), sampler.steps
    step = dp_event.TruncatedSubsampledGaussianDpEvent(
        dataset_size=sampler.num_examples,
        sampling_probability=sampler.sampling_prob,
        truncated_batch_size=sampler.truncated_batch_size,
        noise_multiplier=sigma,
    )
    return step, sampler.steps


def _from_fixed_size(sampler: FixedSize, sigma: float, dp_event: Any) -> tuple[Any, int]:
    if sampler.cohort_steps > 1:
        raise UnsupportedError(f"The 'cohort_steps' field must be 1 for a DpEvent. Got {sampler.cohort_steps} instead.")
    event = dp_event.GaussianDpEvent(0.5 * sigma)
    return dp_event.SampledWithoutReplacementDpEvent(sampler.num_examples, sampler.batch_size, event), sampler.steps


_TO_EVENT: dict[str, Callable[[Any, float, Any], tuple[Any, int]]] = {
    "deterministic": _from_deterministic,
    "poisson": _from_poisson,
    "fixed_size": _from_fixed_size,
}


def _leaves(event: Any, dp_event: Any) -> Counter[Leaf]:
    """Number of runs of each elementary event."""
    readers: dict[type, Callable[[Any, Any], Counter[Leaf]]] = {
        dp_event.NoOpDpEvent: lambda event, dp_event: Counter(),
        dp_event.GaussianDpEvent: _gaussian,
        dp_event.PoissonSampledDpEvent: _poisson,
        dp_event.TruncatedSubsampledGaussianDpEvent: _truncated,
        dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
        dp_event.SelfComposedDpEvent: _self_composed,
        dp_event.ComposedDpEvent: _composed,
    }
    if type(event) not in readers:
        raise UnsupportedError(f"No mechanism has exactly the meaning of the event {shortened(event)}.")
    return readers[type(event)](event, dp_event)


def _gaussian(event: Any, dp_event: Any) -> Counter[Leaf]:
    return Counter({(read_number(event, "noise_multiplier"),): 1})


def _poisson(event: Any, dp_event: Any) -> Counter[Leaf]:
    if type(event.event) is not dp_event.GaussianDpEvent:
        raise UnsupportedError(f"Under Poisson sampling only a GaussianDpEvent is known. Got {shortened(event.event)}.")
    return Counter({(read_number(event.event, "noise_multiplier"), read_number(event, "sampling_probability")): 1})


def _truncated(event: Any, dp_event: Any) -> Counter[Leaf]:
    leaf = (
        read_number(event, "noise_multiplier"),
        read_number(event, "sampling_probability"),
        read_count(event, "truncated_batch_size"),
        read_count(event, "dataset_size"),
    )
    return Counter({leaf: 1})


def _without_replacement(event: Any, dp_event: Any) -> Counter[Leaf]:
    if type(event.event) is not dp_event.GaussianDpEvent:
        raise UnsupportedError(
            f"Under sampling without replacement only a GaussianDpEvent is known. Got {shortened(event.event)}."
        )
    noise = 2.0 * read_number(event.event, "noise_multiplier")
    size, examples = (read_count(event, name) for name in ("sample_size", "source_dataset_size"))
    return Counter({(noise, size, examples): 1})


def _self_composed(event: Any, dp_event: Any) -> Counter[Leaf]:
    count = plain(event.count)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidInputError(
            f"The 'count' field of SelfComposedDpEvent must be a whole number from 0. Got {shortened(count)} instead."
        )
    inner = _leaves(event.event, dp_event)
    return Counter({leaf: count * times for leaf, times in inner.items() if count})


def _composed(event: Any, dp_event: Any) -> Counter[Leaf]:
    total: Counter[Leaf] = Counter()
    if not isinstance(event.events, list | tuple):
        raise InvalidInputError(
            f"The 'events' field of ComposedDpEvent must be a list. Got {shortened(event.events)} instead."
        )
    for part in event.events:
        total += _leaves(part, dp_event)
    return total


def _told(leaf: Leaf) -> str:
    noise, *sampling = leaf
    if not sampling:
        return f"a Gaussian with noise {noise:g}"
    if len(sampling) == 2:
        return f"a Gaussian with noise {noise:g} in batches of {sampling[0]} out of {sampling[1]}"
    what = f"a Gaussian with noise {noise:g} at rate {sampling[0]:g}"
    return what if len(sampling) == 1 else f"{what} in batches of at most {sampling[1]}"
