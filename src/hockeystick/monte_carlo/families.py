"""All families of proposals: one line each. A family is imported when a pair of its type is sampled."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from hockeystick.errors import UnsupportedError
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.shuffled_batches import ShuffledBatches
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal

if TYPE_CHECKING:
    from hockeystick.monte_carlo.proposals import Family


def _of(module: str) -> "Callable[[], Family]":
    return lambda: cast("Family", import_module(f"hockeystick.monte_carlo.{module}").FAMILY)


FAMILIES: "dict[type[DominatingPair], Callable[[], Family]]" = {
    BinMixture: _of("bins.family"),
    AveragedSteps: _of("allocations.family"),
    FreshBins: _of("far.family"),
    RenewalMixture: _of("renewal.family"),
    TruncatedRenewal: _of("renewal.truncated"),
    SubsetMixture: _of("subsets.family"),
    ShuffledBatches: _of("shuffles.family"),
}


def has_family(pair: DominatingPair) -> bool:
    """Whether pairs of this type are sampled."""
    return any(kind in FAMILIES for kind in type(pair).__mro__)


def family_of(pair: DominatingPair) -> "Family":
    """The family that samples this pair; raises UnsupportedError where there is none."""
    for kind in type(pair).__mro__:
        if kind in FAMILIES:
            return FAMILIES[kind]()
    raise UnsupportedError(f"The pair {type(pair).__name__} of this mechanism is not one that is sampled.")
