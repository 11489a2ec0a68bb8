"""hockeystick: the true privacy of differentially private training.

The public names load on first use, so ``import hockeystick`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hockeystick.accountants.base import Settings
    from hockeystick.accountants.monte_carlo.options import MonteCarlo
    from hockeystick.bounds import Bound, Question
    from hockeystick.building_blocks import group_privacy_fixed, group_privacy_poisson, last_iterate, privacy
    from hockeystick.calibration import calibrate
    from hockeystick.certificate import Certificate, Interval
    from hockeystick.certification import Outcome, bound, certify, compare, verify
    from hockeystick.laws.grid import Resolution
    from hockeystick.mechanism import Mechanism
    from hockeystick.pairs.mixture_steps import MixtureStep, MixtureSteps
    from hockeystick.plan import Plan
    from hockeystick.samplers import (
        Attribution,
        BallsInBins,
        BMinSep,
        CyclicPoisson,
        Deterministic,
        MultiAttribution,
        Poisson,
        RandomAllocation,
        Shuffle,
        bound_contributions,
    )
    from hockeystick.strategies import (
        BandedInverse,
        BandedInverseSquareRoot,
        BandedSquareRoot,
        BandedToeplitz,
        BinaryTree,
        BufferedToeplitz,
        ColumnNormalizedBanded,
        Custom,
        Dense,
        Identity,
        SquareRoot,
        TreeRestart,
    )
    from hockeystick.types import Adjacency, Direction, Kind, Side
    from hockeystick.watch import Watch

_HOMES = {
    "Adjacency": "types",
    "Attribution": "samplers",
    "BMinSep": "samplers",
    "BallsInBins": "samplers",
    "BandedInverse": "strategies",
    "BandedInverseSquareRoot": "strategies",
    "BandedSquareRoot": "strategies",
    "BandedToeplitz": "strategies",
    "BinaryTree": "strategies",
    "Bound": "bounds",
    "BufferedToeplitz": "strategies",
    "Certificate": "certificate",
    "ColumnNormalizedBanded": "strategies",
    "Custom": "strategies",
    "CyclicPoisson": "samplers",
    "Dense": "strategies",
    "Deterministic": "samplers",
    "Direction": "types",
    "Identity": "strategies",
    "Interval": "certificate",
    "Kind": "types",
    "Mechanism": "mechanism",
    "MixtureStep": "pairs.mixture_steps",
    "MixtureSteps": "pairs.mixture_steps",
    "MonteCarlo": "accountants.monte_carlo.options",
    "MultiAttribution": "samplers",
    "Outcome": "certification",
    "Plan": "plan",
    "Poisson": "samplers",
    "Question": "bounds",
    "RandomAllocation": "samplers",
    "Resolution": "laws.grid",
    "Settings": "accountants.base",
    "Shuffle": "samplers",
    "Side": "types",
    "SquareRoot": "strategies",
    "TreeRestart": "strategies",
    "Watch": "watch",
    "bound": "certification",
    "bound_contributions": "samplers",
    "calibrate": "calibration",
    "certify": "certification",
    "compare": "certification",
    "group_privacy_fixed": "building_blocks",
    "group_privacy_poisson": "building_blocks",
    "last_iterate": "building_blocks",
    "privacy": "building_blocks",
    "verify": "certification",
}

__all__ = [
    "Adjacency",
    "Attribution",
    "BMinSep",
    "BallsInBins",
    "BandedInverse",
    "BandedInverseSquareRoot",
    "BandedSquareRoot",
    "BandedToeplitz",
    "BinaryTree",
    "Bound",
    "BufferedToeplitz",
    "Certificate",
    "ColumnNormalizedBanded",
    "Custom",
    "CyclicPoisson",
    "Dense",
    "Deterministic",
    "Direction",
    "Identity",
    "Interval",
    "Kind",
    "Mechanism",
    "MixtureStep",
    "MixtureSteps",
    "MonteCarlo",
    "MultiAttribution",
    "Outcome",
    "Plan",
    "Poisson",
    "Question",
    "RandomAllocation",
    "Resolution",
    "Settings",
    "Shuffle",
    "Side",
    "SquareRoot",
    "TreeRestart",
    "Watch",
    "bound",
    "bound_contributions",
    "calibrate",
    "certify",
    "compare",
    "group_privacy_fixed",
    "group_privacy_poisson",
    "last_iterate",
    "noise",
    "privacy",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "noise":
        return import_module("hockeystick.noise")
    if name not in _HOMES:
        raise AttributeError(f"module 'hockeystick' has no attribute {name!r}")
    value = getattr(import_module(f"hockeystick.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
