"""Which dominating pair belongs to which combination of strategy and sampler: one line each."""

from collections.abc import Callable
from typing import cast, get_type_hints

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs import averaged_steps, independent_steps, shuffled_batches
from hockeystick.pairs.base import DominatingPair

PAIRS: dict[tuple[str, str], Callable[[Mechanism], DominatingPair]] = {
    ("identity", "deterministic"): independent_steps.from_deterministic,
    ("identity", "poisson"): independent_steps.from_poisson,
    ("identity", "random_allocation"): averaged_steps.from_random_allocation,
    ("identity", "balls_in_bins"): averaged_steps.from_balls_in_bins,
    ("identity", "shuffle"): shuffled_batches.from_shuffle,
}


def pair_type(strategy: str, sampler: str) -> type[DominatingPair]:
    """The type of pair that a registered combination leads to."""
    kind = get_type_hints(PAIRS[strategy, sampler])["return"]
    return cast(type[DominatingPair], kind)


def dominating_pair(mechanism: Mechanism) -> DominatingPair:
    """The pair that an adversary against this mechanism has to tell apart, under zero-out adjacency.

    Raises: UnsupportedError naming the combination when nobody has analysed it; InvalidInputError when the
    mechanism has no noise multiplier yet.
    """
    key = (mechanism.strategy.kind, mechanism.sampler.kind)
    if key not in PAIRS:
        known = ", ".join(f"{strategy} with {sampler}" for strategy, sampler in PAIRS)
        raise UnsupportedError(
            f"The strategy {key[0]!r} with the sampler {key[1]!r} has not been analysed; analysed are {known}."
        )
    return PAIRS[key](mechanism)
