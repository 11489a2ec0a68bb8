"""Which dominating pair belongs to which combination of strategy and sampler: one line each.

A sampler without any line has the pair of ``counted_visits``, which needs no proof of its own. Users with several
examples have lines by sampler.
"""

from collections.abc import Callable, Mapping
from typing import cast, get_args, get_type_hints

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism, Unit
from hockeystick.pairs import (
    averaged_steps,
    bin_mixture,
    counted_visits,
    fixed_size,
    fresh_bins,
    independent_steps,
    known_batches,
    min_separated,
    secret_groups,
    shuffled_batches,
    shuffled_tree,
    subset_mixture,
    truncated_steps,
    users,
)
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.users import Users
from hockeystick.samplers import MultiAttribution

ANY = "every other strategy"
"""Stands for every strategy that has no line of its own with a sampler."""
UNKNOWN = "every other sampler"
"""Stands for every sampler that has no line at all."""

PAIRS: dict[tuple[str, str], Callable[[Mechanism], DominatingPair]] = {
    ("identity", "deterministic"): independent_steps.from_deterministic,
    ("identity", "poisson"): truncated_steps.from_poisson,
    ("identity", "random_allocation"): averaged_steps.from_random_allocation,
    ("identity", "balls_in_bins"): averaged_steps.from_balls_in_bins,
    ("identity", "shuffle"): shuffled_batches.from_shuffle,
    ("binary_tree", "shuffle"): shuffled_tree.from_shuffle,
    ("identity", "cyclic_poisson"): secret_groups.from_cyclic_poisson,
    ("identity", "fixed_size"): fixed_size.from_fixed_size,
    (ANY, "deterministic"): known_batches.from_deterministic,
    (ANY, "balls_in_bins"): bin_mixture.from_balls_in_bins,
    (ANY, "random_allocation"): fresh_bins.from_random_allocation,
    (ANY, "poisson"): subset_mixture.from_poisson,
    (ANY, "cyclic_poisson"): subset_mixture.from_cyclic_poisson,
    (ANY, "b_min_sep"): min_separated.from_b_min_sep,
    (ANY, "multi_attribution"): min_separated.from_multi_attribution,
    (ANY, "fixed_size"): counted_visits.from_any,
    (ANY, UNKNOWN): counted_visits.from_any,
}

OfUsers = Callable[[Mechanism, DominatingPair], DominatingPair | None]
"""From a mechanism for users and the pair of one example; None where there is no such pair."""
COPIES: dict[str, OfUsers] = {
    "deterministic": users.from_deterministic,
    "poisson": users.from_poisson,
    "cyclic_poisson": users.from_cyclic_poisson,
    "balls_in_bins": users.from_balls_in_bins,
    "random_allocation": users.from_random_allocation,
    "shuffle": users.from_shuffle,
    "b_min_sep": users.from_b_min_sep,
    "multi_attribution": users.from_multi_attribution,
}
"""The pair of k copies for each kind of sampler; a kind without a line is left to the chain."""
BELOW: dict[str, OfUsers] = {
    "balls_in_bins": users.below_balls_in_bins,
    "random_allocation": users.below_random_allocation,
    "b_min_sep": users.below_separated,
    "multi_attribution": users.below_separated,
}
"""Pairs from below, where the law of the copies has no lower bound of its own."""
OPPOSED: dict[str, OfUsers] = {"deterministic": users.opposed}
"""Pairs from below where the examples are replaced by others of opposite gradients."""
REPLACED: dict[str, OfUsers] = {"fixed_size": fixed_size.replaced}
"""The pair of one example that is replaced; a kind without a line is left to the chain of two links. Of several
examples one after the other is replaced."""


def pair_types(strategy: str, sampler: str) -> tuple[type[DominatingPair], ...]:
    """The types of pair that a registered combination may lead to, depending on the options of the sampler."""
    kind = get_type_hints(PAIRS[strategy, sampler])["return"]
    return cast(tuple[type[DominatingPair], ...], get_args(kind) or (kind,))


def registered(strategy: str, sampler: str) -> tuple[str, str] | None:
    """The line of the registry for this combination, or None."""
    if all(sampler != known for _, known in PAIRS):
        return (ANY, UNKNOWN)
    return next((key for key in ((strategy, sampler), (ANY, sampler)) if key in PAIRS), None)


def dominating_pair(mechanism: Mechanism) -> DominatingPair:
    """The pair that an adversary against this mechanism has to tell apart, when its unit is zeroed out.

    Raises: UnsupportedError naming the combination when nobody has analysed it; InvalidInputError when the
    mechanism has no noise multiplier yet.
    """
    return of_unit(mechanism, PAIRS[check_registered(mechanism)](mechanism))


def of_unit(mechanism: Mechanism, single: DominatingPair) -> DominatingPair:
    """The pair for the mechanism's unit, from that of one example.

    Raises: UnsupportedError where the sampler has users of its own, with another number of examples.
    """
    unit, sampler = mechanism.unit, mechanism.sampler
    replaced, examples = unit.neighbours == "replace", unit.examples
    if isinstance(sampler, MultiAttribution):
        if unit.kind == "user" and sampler.examples_per_user != unit.examples:
            raise UnsupportedError(
                f"The 'unit.examples_per_user' field must be the sampler's examples_per_user = "
                f"{sampler.examples_per_user} for kind = 'multi_attribution'. Got {unit.examples} instead."
            )
        # the pair is that of a user already, unless examples know nothing of one another
        examples = sampler.examples_per_user if sampler.exclusion == "example" else 1
    if replaced and (other := _of_kind(REPLACED, mechanism, single)) is not None:
        single, replaced = other, False  # a link of the chain replaces an example: none is removed first
    if examples == 1 and not replaced:
        return single
    if examples != unit.examples:
        mechanism = mechanism.model_copy(update={"unit": Unit(kind="user", examples_per_user=examples)})
    copies = _of_kind(COPIES, mechanism, single) if examples > 1 else None
    below = _of_kind(BELOW, mechanism, single) if examples > 1 else None
    if replaced:
        below = _of_kind(OPPOSED, mechanism, single) or below
    return Users(
        noise_multiplier=mechanism.sigma,
        slack=single.slack,
        single=single,
        examples=examples,
        copies=copies,
        below=below,
        replaced=replaced,
    )


def _of_kind(table: Mapping[str, OfUsers], mechanism: Mechanism, single: DominatingPair) -> DominatingPair | None:
    make = table.get(mechanism.sampler.kind)
    return None if make is None else make(mechanism, single)


def check_registered(mechanism: Mechanism) -> tuple[str, str]:
    """The line of the registry for a mechanism; raises UnsupportedError, naming the combination, when there is none."""
    strategy, sampler = mechanism.strategy.kind, mechanism.sampler.kind
    key = registered(strategy, sampler)
    if key is None:
        known = ", ".join(repr(other) for kind, other in PAIRS if kind in (strategy, ANY) and other != UNKNOWN)
        raise UnsupportedError(
            f"The strategy {strategy!r} with the sampler {sampler!r} has not been analysed; the samplers that go "
            f"with this strategy are {known}."
        )
    return key
