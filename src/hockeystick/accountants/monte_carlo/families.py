"""All families of tilts: one line each."""

from hockeystick.accountants.monte_carlo import bins, renewal, shuffles, subsets, truncated
from hockeystick.accountants.monte_carlo.tilt import Family
from hockeystick.pairs.base import DominatingPair

FAMILIES: dict[type[DominatingPair], Family] = {
    family.pair: family
    for family in (
        bins.FAMILY,
        bins.EQUAL_FAMILY,
        renewal.FAMILY,
        truncated.FAMILY,
        subsets.FAMILY,
        shuffles.FAMILY,
    )
}


def family_of(pair: DominatingPair) -> Family:
    """The family that samples this pair."""
    return next(FAMILIES[kind] for kind in type(pair).__mro__ if kind in FAMILIES)
