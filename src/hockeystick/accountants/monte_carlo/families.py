"""All families of tilts: one line each."""

from hockeystick.accountants.monte_carlo import bins, renewal, shuffles, subsets, truncated
from hockeystick.accountants.monte_carlo.tilt import Family
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.base import DominatingPair

FAMILIES: dict[type[DominatingPair], Family] = {
    family.pair: family
    for family in (
        bins.FAMILY,
        bins.EQUAL_FAMILY,
        renewal.FAMILY,
        truncated.FAMILY,
        subsets.FAMILY,
        subsets.CYCLIC_FAMILY,
        shuffles.FAMILY,
    )
}


def family_of(pair: DominatingPair) -> Family:
    """The family that samples this pair; raises UnsupportedError where there is none."""
    for kind in type(pair).__mro__:
        if kind in FAMILIES:
            return FAMILIES[kind]
    raise UnsupportedError(f"There is no way to sample a {type(pair).__name__}.")
