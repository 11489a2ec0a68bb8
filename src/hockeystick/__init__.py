"""hockeystick: the privacy of differentially private training, bounded from both sides.

The public names load on first use, so ``import hockeystick`` is quick.
"""

from importlib import import_module

from hockeystick._version import __version__ as __version__
from hockeystick.lazily import loaded

TYPE_CHECKING = False  # the one of typing, whose import would take longer than all else here
if TYPE_CHECKING:
    from hockeystick import attacks as attacks
    from hockeystick import audit as audit
    from hockeystick import noise as noise
    from hockeystick import training as training
    from hockeystick.bounds import Bound, Question
    from hockeystick.calibration.opacus import get_noise_multiplier
    from hockeystick.calibration.search import calibrate, calibrate_and_certify
    from hockeystick.certificate import Certificate, Interval
    from hockeystick.certification.building_blocks import (
        group_privacy_fixed,
        group_privacy_poisson,
        last_iterate,
        privacy,
    )
    from hockeystick.certification.issue import bound, certify, compare
    from hockeystick.certification.profiles import profile
    from hockeystick.certification.schedule import Outcome
    from hockeystick.composition.compose import compose
    from hockeystick.composition.composition import Composition
    from hockeystick.composition.phases import Phases
    from hockeystick.composition.tuning import Tuning, tuning
    from hockeystick.composition.verification import verify
    from hockeystick.deadline import Deadline
    from hockeystick.laws.grid import Resolution
    from hockeystick.mechanism import Mechanism, Unit
    from hockeystick.pairs.mixture_steps import MixtureStep, MixtureSteps
    from hockeystick.plan import Plan
    from hockeystick.recommendation.candidates import Limits
    from hockeystick.recommendation.recommend import Recommendation, recommend
    from hockeystick.recommendation.workload import Workload
    from hockeystick.samplers import (
        Attribution,
        BallsInBins,
        BMinSep,
        CyclicPoisson,
        Deterministic,
        FixedSize,
        MultiAttribution,
        Poisson,
        RandomAllocation,
        Shuffle,
        bound_contributions,
    )
    from hockeystick.settings import MonteCarlo, SearchPolicy, Settings
    from hockeystick.strategies import (
        BandedInverse,
        BandedInverseFractionalRoot,
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
    from hockeystick.training import flower as flower
    from hockeystick.training import huggingface as huggingface
    from hockeystick.training import jax as jax
    from hockeystick.training import torch as torch
    from hockeystick.types import Adjacency, Direction, Kind, Side

_HOMES = {
    "Adjacency": "types",
    "Attribution": "samplers",
    "BMinSep": "samplers",
    "BallsInBins": "samplers",
    "BandedInverse": "strategies",
    "BandedInverseFractionalRoot": "strategies",
    "BandedInverseSquareRoot": "strategies",
    "BandedSquareRoot": "strategies",
    "BandedToeplitz": "strategies",
    "BinaryTree": "strategies",
    "Bound": "bounds",
    "BufferedToeplitz": "strategies",
    "Certificate": "certificate",
    "ColumnNormalizedBanded": "strategies",
    "Composition": "composition.composition",
    "Custom": "strategies",
    "CyclicPoisson": "samplers",
    "Dense": "strategies",
    "Deterministic": "samplers",
    "Direction": "types",
    "FixedSize": "samplers",
    "Identity": "strategies",
    "Interval": "certificate",
    "Kind": "types",
    "Limits": "recommendation.candidates",
    "Mechanism": "mechanism",
    "MixtureStep": "pairs.mixture_steps",
    "MixtureSteps": "pairs.mixture_steps",
    "MonteCarlo": "settings",
    "MultiAttribution": "samplers",
    "Outcome": "certification.schedule",
    "Phases": "composition.phases",
    "Plan": "plan",
    "Poisson": "samplers",
    "Question": "bounds",
    "RandomAllocation": "samplers",
    "Recommendation": "recommendation.recommend",
    "Resolution": "laws.grid",
    "Settings": "settings",
    "SearchPolicy": "settings",
    "Shuffle": "samplers",
    "Side": "types",
    "Statements": "certificate",
    "SquareRoot": "strategies",
    "TreeRestart": "strategies",
    "Tuning": "composition.tuning",
    "Unit": "mechanism",
    "Workload": "recommendation.workload",
    "Deadline": "deadline",
    "bound": "certification.issue",
    "bound_contributions": "samplers",
    "calibrate": "calibration.search",
    "calibrate_and_certify": "calibration.search",
    "certify": "certification.issue",
    "compare": "certification.issue",
    "compose": "composition.compose",
    "get_noise_multiplier": "calibration.opacus",
    "group_privacy_fixed": "certification.building_blocks",
    "group_privacy_poisson": "certification.building_blocks",
    "last_iterate": "certification.building_blocks",
    "privacy": "certification.building_blocks",
    "state": "certification.description",
    "profile": "certification.profiles",
    "recommend": "recommendation.recommend",
    "tuning": "composition.tuning",
    "verify": "composition.verification",
}

_ROOMS = {
    "attacks": "hockeystick.attacks",
    "jax": "hockeystick.training.jax",
    "audit": "hockeystick.audit",
    "flower": "hockeystick.training.flower",
    "huggingface": "hockeystick.training.huggingface",
    "interop": "hockeystick.interop",
    "noise": "hockeystick.noise",
    "torch": "hockeystick.training.torch",
    "training": "hockeystick.training",
}

_ELSEWHERE = {
    "BLT": "BufferedToeplitz",
    "BandInvMF": "BandedInverse",
    "BandMF": "ColumnNormalizedBanded",
    "ExecutionPlanConfig": "jax.ExecutionPlanConfig",
    "PrivacyEngine": "torch.PrivacyEngine",
    "Run": "training.Run",
    "Strategy": "flower.Strategy",
    "Trainer": "huggingface.Trainer",
    "compute_dp_sgd_privacy": "certify",
    "compute_epsilon": "certify",
    "delta": "certify",
    "epsilon": "certify",
    "get_epsilon": "certify",
    "load": "Plan.load",
    "stream": "noise.stream",
}
"""What is looked for here, and has another name or is in a room."""

__all__ = [
    "Adjacency",
    "Attribution",
    "BMinSep",
    "BallsInBins",
    "BandedInverse",
    "BandedInverseFractionalRoot",
    "BandedInverseSquareRoot",
    "BandedSquareRoot",
    "BandedToeplitz",
    "BinaryTree",
    "Bound",
    "BufferedToeplitz",
    "Certificate",
    "ColumnNormalizedBanded",
    "Composition",
    "Custom",
    "CyclicPoisson",
    "Deadline",
    "Dense",
    "Deterministic",
    "Direction",
    "FixedSize",
    "Identity",
    "Interval",
    "Kind",
    "Limits",
    "Mechanism",
    "MixtureStep",
    "MixtureSteps",
    "MonteCarlo",
    "MultiAttribution",
    "Outcome",
    "Phases",
    "Plan",
    "Poisson",
    "Question",
    "RandomAllocation",
    "Recommendation",
    "Resolution",
    "SearchPolicy",
    "Settings",
    "Shuffle",
    "Side",
    "SquareRoot",
    "Statements",
    "TreeRestart",
    "Tuning",
    "Unit",
    "Workload",
    "attacks",
    "audit",
    "bound",
    "bound_contributions",
    "calibrate",
    "calibrate_and_certify",
    "certify",
    "compare",
    "compose",
    "get_noise_multiplier",
    "group_privacy_fixed",
    "group_privacy_poisson",
    "last_iterate",
    "noise",
    "privacy",
    "profile",
    "recommend",
    "state",
    "training",
    "tuning",
    "verify",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    globals()[name] = value = loaded(__name__, _HOMES, name, rooms=_ROOMS, elsewhere=_ELSEWHERE)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS} - {"TYPE_CHECKING", "import_module", "loaded"})
