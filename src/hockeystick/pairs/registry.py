"""Which dominating pair belongs to which combination of strategy and sampler: one line each.

A sampler without any line has the pair of ``counted_visits``, which needs no proof of its own.
"""

from collections.abc import Callable
from typing import cast, get_args, get_type_hints

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs import (
    averaged_steps,
    bin_mixture,
    counted_visits,
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
    (ANY, "deterministic"): known_batches.from_deterministic,
    (ANY, "balls_in_bins"): bin_mixture.from_balls_in_bins,
    (ANY, "random_allocation"): fresh_bins.from_random_allocation,
    (ANY, "poisson"): subset_mixture.from_poisson,
    (ANY, "cyclic_poisson"): subset_mixture.from_cyclic_poisson,
    (ANY, "b_min_sep"): min_separated.from_b_min_sep,
    (ANY, "multi_attribution"): min_separated.from_multi_attribution,
    (ANY, UNKNOWN): counted_visits.from_any,
}


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
    return users.of_unit(mechanism, PAIRS[check_registered(mechanism)](mechanism))


def check_registered(mechanism: Mechanism) -> tuple[str, str]:
    """The line of the registry for a mechanism; raises UnsupportedError, naming the combination, when there is none."""
    strategy, sampler = mechanism.strategy.kind, mechanism.sampler.kind
    key = registered(strategy, sampler)
    if key is None:
        known = ", ".join(repr(other) for one, other in PAIRS if one in (strategy, ANY) and other != UNKNOWN)
        raise UnsupportedError(
            f"The strategy {strategy!r} with the sampler {sampler!r} has not been analysed; the samplers that go "
            f"with this strategy are {known}."
        )
    return key
