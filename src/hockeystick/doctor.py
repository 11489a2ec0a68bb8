"""Is this installation fit for use: versions, extras, cores, the cache of the kernels, and bounds that are known."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from math import erfc, exp, expm1, log1p, sqrt
from pathlib import Path
from platform import machine, python_version, system
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

from packaging.requirements import Requirement

from hockeystick._version import __version__
from hockeystick.certification.issue import certify
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Deterministic, Poisson

NAME = "hockeystick"
TOOLS = ("browser", "dev", "docs", "peers", "release")
"""Extras for work on hockeystick itself, which are not reported."""
LARGEST_GAP = 2e-3
"""Relative, between both bounds of a closed form: certify stops at 1e-3, and issuing a certificate adds to that."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that hockeystick needs, or that an extra needs.

    Attributes:
        installed: its version; None where it is missing.
        supported: the versions that are supported, as a specifier like ``>=1.26``.
        fits: whether the installed version is one of them.
    """

    name: str
    installed: str | None
    supported: str
    fits: bool


@dataclass(frozen=True, kw_only=True)
class Check:
    """A certified interval beside what is known from elsewhere.

    Attributes:
        source: where the known number comes from.
        quantity: what is bounded.
        known: the exact value, or a published upper bound.
        exact: whether ``known`` is the exact value.
        lower, upper: what this installation certifies.
    """

    name: str
    source: str
    quantity: str
    known: float
    exact: bool
    lower: float
    upper: float
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the interval contains the exact value and is narrow, or is below the published bound."""
        if not 0.0 < self.lower <= self.upper:
            return False
        if self.exact:
            return self.lower <= self.known <= self.upper <= self.lower * (1.0 + LARGEST_GAP)
        return self.upper <= self.known


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found.

    Attributes:
        core: the packages that hockeystick always needs.
        extras: the packages of every extra.
        cores: processor cores that this process may use.
        cache: where compiled kernels are kept; None where they cannot be.
        checks: the self-check; empty where the kernels cannot be cached, without which they do not load.
        warnings: what limits the installation and leaves its bounds valid.
        problems: what makes it unfit.
    """

    core: tuple[Package, ...]
    extras: dict[str, tuple[Package, ...]]
    cores: int
    cache: Path | None
    checks: tuple[Check, ...]
    version: str = __version__
    python: str = field(default_factory=python_version)
    platform: str = field(default_factory=lambda: f"{system()} {machine()}")
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def examine() -> Findings:
    """Look at the installation and recompute known bounds: seconds, and the first compilation of kernels."""
    core, extras = packages()
    cache = kernel_cache()
    checks = () if cache is None else tuple(self_check())
    return Findings(
        core=core,
        extras=extras,
        cores=usable_cores(),
        cache=cache,
        checks=checks,
        warnings=tuple(warnings_of(extras)),
        problems=tuple(problems_of(core, cache, checks)),
    )


def packages() -> tuple[tuple[Package, ...], dict[str, tuple[Package, ...]]]:
    """The packages that hockeystick states in its metadata: those it always needs, and those of every extra."""
    try:
        stated = [Requirement(line) for line in requires(NAME) or ()]
    except PackageNotFoundError:  # run from its source
        return (), {}
    core: list[Package] = []
    extras: dict[str, dict[str, Package]] = {}
    names = set(metadata(NAME).get_all("Provides-Extra") or ()) - set(TOOLS)
    for requirement in stated:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            core.append(_package(requirement))
            continue
        for name in names:
            if requirement.marker.evaluate({"extra": name}) and requirement.name != NAME:
                extras.setdefault(name, {})[requirement.name] = _package(requirement)
    return tuple(core), {name: tuple(extras[name].values()) for name in sorted(extras)}


def _package(requirement: Requirement) -> Package:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        installed = None
    fits = installed is not None and requirement.specifier.contains(installed, prereleases=True)
    return Package(name=requirement.name, installed=installed, supported=str(requirement.specifier), fits=fits)


def usable_cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def kernel_cache() -> Path | None:
    """The folder of the compiled kernels of the laws, if files can be written there; None otherwise.

    The setting NUMBA_CACHE_DIR moves the folders of all kernels.
    """
    try:
        from hockeystick.laws.mixture_kernels import polynomial

        compiled: Any = polynomial
        folder = Path(str(compiled.stats.cache_path))
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # numba raises RuntimeError where it finds no folder that it may write to
        return None


def self_check() -> Iterator[Check]:
    """Certify mechanisms whose privacy is known from elsewhere; the known numbers use no code of hockeystick."""
    run = Mechanism(sampler=Deterministic(bins=10, epochs=4), noise_multiplier=2.0)
    yield _delta(run, 1.0, gaussian_delta(1.0, 1.0), "four visits, fixed batches", "Balle and Wang 2018, Theorem 8")
    run = Mechanism(sampler=Poisson(sampling_prob=0.1, steps=1), noise_multiplier=0.8)
    known = 0.1 * gaussian_delta(1.25, log1p(expm1(0.5) / 0.1))
    yield _delta(run, 0.5, known, "one Poisson batch", "Li, Qardaji and Su 2012, Theorem 1; Balle and Wang 2018")
    run = Mechanism(sampler=Poisson(sampling_prob=0.01, steps=10_000), noise_multiplier=4.0)
    started = monotonic()
    bounds = certify(run, delta=1e-5).bounds
    yield Check(
        name="10,000 Poisson batches, below the moments accountant",
        source="Abadi et al. 2016, Section 3.2",
        quantity="epsilon at delta 1e-05",
        known=1.26,
        exact=False,
        lower=bounds.lower or 0.0,
        upper=bounds.upper,
        seconds=monotonic() - started,
    )


def _delta(mechanism: Mechanism, epsilon: float, known: float, name: str, source: str) -> Check:
    started = monotonic()
    bounds = certify(mechanism, epsilon=epsilon).bounds
    return Check(
        name=name,
        source=source,
        quantity=f"delta at epsilon {epsilon:g}",
        known=known,
        exact=True,
        lower=bounds.lower or 0.0,
        upper=bounds.upper,
        seconds=monotonic() - started,
    )


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of N(mu, 1) against N(0, 1), from the error function: Balle and Wang (2018, Theorem 8)."""
    above, below = (erfc((epsilon / mu + sign * 0.5 * mu) / sqrt(2.0)) / 2.0 for sign in (-1.0, 1.0))
    return above - exp(epsilon) * below


def warnings_of(extras: dict[str, tuple[Package, ...]]) -> Iterator[str]:
    for name, needed in extras.items():
        for package in needed:
            if package.installed is not None and not package.fits:
                yield (
                    f"{package.name} {package.installed} is installed; the extra {name!r} supports {package.supported}."
                )


def problems_of(core: tuple[Package, ...], cache: Path | None, checks: tuple[Check, ...]) -> Iterator[str]:
    for package in core:
        if not package.fits:
            have = "is missing" if package.installed is None else f"{package.installed} is installed"
            yield f"{package.name} {have}; hockeystick supports {package.supported}."
    if cache is None:
        yield "No folder for compiled kernels can be written; set NUMBA_CACHE_DIR to one that can."
    for check in checks:
        if not check.passed:
            relation = "the exact value" if check.exact else "a published upper bound"
            yield (
                f"{check.name}: {check.quantity} is in [{check.lower!r}, {check.upper!r}] here, but {relation} is "
                f"{check.known!r} ({check.source})."
            )
