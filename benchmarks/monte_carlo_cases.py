"""The mechanisms of ``python -m benchmarks.monte_carlo``, as plain data: nothing heavy is imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """A width that has to be reached at one epsilon.

    Attributes:
        epsilon: where.
        ratio: upper / lower - 1 of the bounds on delta.
        failure: probability with which the two bounds together may fail.
        workers: processors; with one, everything runs on one core.
        budget: seconds after which the bounds so far count; those of certify too.
        certify: whether all of ``certify`` is timed too, the deterministic methods included.
    """

    epsilon: float
    ratio: float = 0.1
    failure: float = 1e-6
    workers: int = 1
    budget: float = 900.0
    certify: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mechanism.

    Attributes:
        mechanism: our spec as plain data.
        easy: an epsilon at which delta is a few percent: there the naive estimates of all contestants can be compared.
        batch: samples that numpy and the peer hold at a time: what suits their caches.
        targets: by what they are called.
        quick: whether this is one of the small ones.
    """

    mechanism: Mapping[str, Any]
    easy: float
    batch: int
    targets: Mapping[str, Target] = field(default_factory=dict)
    quick: bool = False

    @property
    def sampler(self) -> Mapping[str, Any]:
        """The sampler as plain data."""
        sampler: Mapping[str, Any] = self.mechanism["sampler"]
        return sampler


def _mechanism(bands: int, sigma: float, **sampler: object) -> Mapping[str, Any]:
    strategy = {"kind": "banded_square_root", "bands": bands}
    return {"strategy": strategy, "sampler": sampler, "noise_multiplier": sigma}


def _bins(bins: int, epochs: int, bands: int, sigma: float) -> Mapping[str, Any]:
    return _mechanism(bands, sigma, kind="balls_in_bins", bins=bins, epochs=epochs)


def _renewal(steps: int, min_sep: int, rate: float, bands: int, sigma: float) -> Mapping[str, Any]:
    return _mechanism(bands, sigma, kind="b_min_sep", min_sep=min_sep, sampling_prob=rate, steps=steps)


def _subsets(steps: int, rate: float, bands: int, sigma: float) -> Mapping[str, Any]:
    return _mechanism(bands, sigma, kind="poisson", sampling_prob=rate, steps=steps)


HARD = 150.0
"""Seconds for targets that take far longer: their line says how far one gets."""
ONE_IN_1E5, ONE_IN_1E8 = "delta 1e-5", "delta 1e-8"

CASES: dict[str, Case] = {
    "bins n=1000 b=100 p=64 sigma=5": Case(
        mechanism=_bins(100, 10, 64, 5.0),
        easy=0.5,
        batch=1000,
        targets={
            ONE_IN_1E5: Target(epsilon=2.316),
            ONE_IN_1E8: Target(epsilon=3.137),
            "eps 2.40 to 5%": Target(epsilon=2.4, ratio=0.05, workers=2, certify=True),
        },
    ),
    "bins n=1000 b=100 p=64 sigma=10": Case(
        mechanism=_bins(100, 10, 64, 10.0),
        easy=0.25,
        batch=1000,
        targets={"eps 1.52 to 5%": Target(epsilon=1.52, ratio=0.05, workers=2, certify=True)},
    ),
    "b-min-sep n=1024 b=32 p=32 sigma=2": Case(
        mechanism=_renewal(1024, 32, 1 / 128, 32, 2.0),
        easy=1.0,
        batch=1000,
        targets={ONE_IN_1E5: Target(epsilon=3.863, budget=HARD)},
    ),
    "b-min-sep n=1024 b=32 p=32 sigma=0.8": Case(
        mechanism=_renewal(1024, 32, 1 / 256, 32, 0.8),
        easy=4.0,
        batch=1000,
        targets={ONE_IN_1E5: Target(epsilon=9.056), ONE_IN_1E8: Target(epsilon=13.026)},
    ),
    "b-min-sep n=7200 b=256 p=6 sigma=0.47": Case(
        mechanism=_renewal(7200, 256, 1793 / 14745600, 6, 0.47),
        easy=0.25,
        batch=250,
        targets={
            ONE_IN_1E5: Target(epsilon=5.845),
            ONE_IN_1E8: Target(epsilon=10.0),
            "eps 10 to 25%": Target(epsilon=10.0, ratio=0.25, failure=1e-9, workers=2, certify=True),
        },
    ),
    "poisson n=500 p=4 sigma=2": Case(
        mechanism=_subsets(500, 0.01, 4, 2.0),
        easy=0.25,
        batch=1000,
        targets={ONE_IN_1E5: Target(epsilon=1.09, budget=HARD), ONE_IN_1E8: Target(epsilon=1.47, budget=HARD)},
    ),
    "quick: bins n=30 b=10 p=4 sigma=3": Case(
        mechanism=_bins(10, 3, 4, 3.0),
        easy=0.25,
        batch=1000,
        targets={
            ONE_IN_1E5: Target(epsilon=1.621),
            "eps 2 to 20%": Target(epsilon=2.0, ratio=0.2, workers=2, certify=True),
        },
        quick=True,
    ),
    "quick: b-min-sep n=64 b=8 p=3 sigma=0.6": Case(
        mechanism=_renewal(64, 8, 1 / 128, 3, 0.6),
        easy=0.25,
        batch=1000,
        targets={ONE_IN_1E5: Target(epsilon=5.049), ONE_IN_1E8: Target(epsilon=8.506)},
        quick=True,
    ),
    "quick: poisson n=40 p=3 sigma=2": Case(
        mechanism=_subsets(40, 0.02, 3, 2.0), easy=0.1, batch=1000, targets={}, quick=True
    ),
}
"""What ``--only`` matches."""
