"""Samplers: how the batches of a run are formed, one scheme a file.

A scheme is registered by one line in each of the two unions below. Everything else is derived from them and from what
the file of the scheme declares; ``docs/how-to/add-a-sampler.md`` has all the steps.
"""

from typing import Annotated, get_args

from pydantic import Field

from hockeystick.lazily import loaded
from hockeystick.samplers.attribution import Attribution, bound_contributions
from hockeystick.samplers.b_min_sep import BMinSep, BMinSepOptions
from hockeystick.samplers.balls_in_bins import BallsInBins, BallsInBinsOptions
from hockeystick.samplers.base import BatchSampler
from hockeystick.samplers.cyclic_poisson import CyclicPoisson, CyclicPoissonOptions
from hockeystick.samplers.data import Data, SchemeOptions
from hockeystick.samplers.deterministic import Deterministic, DeterministicOptions
from hockeystick.samplers.fixed_size import FixedSize, FixedSizeOptions
from hockeystick.samplers.multi_attribution import MultiAttribution, MultiAttributionOptions
from hockeystick.samplers.poisson import Poisson, PoissonOptions
from hockeystick.samplers.promises import Batch
from hockeystick.samplers.random_allocation import RandomAllocation, RandomAllocationOptions
from hockeystick.samplers.shuffle import Shuffle, ShuffleOptions

Sampler = Annotated[
    Deterministic  # one line for each kind, in the order of listings
    | Shuffle
    | Poisson
    | RandomAllocation
    | BallsInBins
    | BMinSep
    | MultiAttribution
    | CyclicPoisson
    | FixedSize,
    Field(discriminator="kind"),
]
"""Any sampler, told apart by ``kind``."""

SamplerOptions = Annotated[
    DeterministicOptions
    | ShuffleOptions
    | PoissonOptions
    | RandomAllocationOptions
    | BallsInBinsOptions
    | BMinSepOptions
    | MultiAttributionOptions
    | CyclicPoissonOptions
    | FixedSizeOptions,
    Field(discriminator="kind"),
]
"""What a plan says about any sampler, told apart by ``kind``."""

SAMPLERS: dict[str, type[BatchSampler]] = {c.model_fields["kind"].default: c for c in get_args(get_args(Sampler)[0])}
"""The class of each registered kind of sampler."""
SAMPLER_OPTIONS: dict[str, type[SchemeOptions]] = {
    c.model_fields["kind"].default: c for c in get_args(get_args(SamplerOptions)[0])
}
"""The class of a plan's options for each registered kind of sampler."""

__all__ = [
    "SAMPLERS",
    "SAMPLER_OPTIONS",
    "Attribution",
    "BMinSep",
    "BMinSepOptions",
    "BallsInBins",
    "BallsInBinsOptions",
    "Batch",
    "BatchSampler",
    "CyclicPoisson",
    "CyclicPoissonOptions",
    "Data",
    "Deterministic",
    "DeterministicOptions",
    "FixedSize",
    "FixedSizeOptions",
    "MultiAttribution",
    "MultiAttributionOptions",
    "Poisson",
    "PoissonOptions",
    "RandomAllocation",
    "RandomAllocationOptions",
    "Sampler",
    "SamplerOptions",
    "SchemeOptions",
    "Shuffle",
    "ShuffleOptions",
    "bound_contributions",
]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
