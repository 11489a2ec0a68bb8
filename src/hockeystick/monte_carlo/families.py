"""All families of proposals: one line each."""

from hockeystick.errors import UnsupportedError
from hockeystick.monte_carlo.allocations import family as allocations
from hockeystick.monte_carlo.bins import family as bins
from hockeystick.monte_carlo.fresh_bins import family as fresh_bins
from hockeystick.monte_carlo.proposals import Family
from hockeystick.monte_carlo.renewal import family as renewal
from hockeystick.monte_carlo.renewal import truncated
from hockeystick.monte_carlo.shuffles import family as shuffles
from hockeystick.monte_carlo.subsets import family as subsets
from hockeystick.pairs.base import DominatingPair

FAMILIES: dict[type[DominatingPair], Family] = {
    family.pair: family
    for family in (
        bins.FAMILY,
        allocations.FAMILY,
        fresh_bins.FAMILY,
        renewal.FAMILY,
        truncated.FAMILY,
        subsets.FAMILY,
        shuffles.FAMILY,
    )
}


def has_family(pair: DominatingPair) -> bool:
    """Whether pairs of this type are sampled."""
    return any(kind in FAMILIES for kind in type(pair).__mro__)


def family_of(pair: DominatingPair) -> Family:
    """The family that samples this pair; raises UnsupportedError where there is none."""
    for kind in type(pair).__mro__:
        if kind in FAMILIES:
            return FAMILIES[kind]
    raise UnsupportedError(f"The pair {type(pair).__name__} of this mechanism is not one that is sampled.")
