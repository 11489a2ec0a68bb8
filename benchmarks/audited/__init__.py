"""What other libraries draw and add, audited: one module for each library, with its cases by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hockeystick as hs

LEVEL = 1e-6
"""False-alarm probability of every audit."""
SIZE = 1000
"""Examples; with 100 batches there are 100,000 coins."""
SIGMA = 2.0
ROWS, NUMBERS = 100, 1000
BSR = hs.BandedSquareRoot(bands=8)


@dataclass(frozen=True)
class Outcome:
    """What one case found.

    Attributes:
        found: whether the code deviates from the claim.
        says: what was seen, in one line.
        figures: numbers for the page, as text by name.
    """

    found: bool
    says: str
    figures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One audit of a peer.

    Attributes:
        about: the code that is audited.
        claim: what it is compared with.
        run: the audit.
        deviates: whether a deviation is known.
        means: of a known deviation, what it does to privacy and what helps; with ``{names}`` of figures.
    """

    about: str
    claim: str
    run: Callable[[], Outcome]
    deviates: bool = False
    means: str = ""


def of_batches(batches: Any, claimed: Any, size: int = SIZE) -> Outcome:
    """The audit of the batches of one run, or of several from a function of their number."""
    runs = 2 if callable(batches) else 1
    return _of(hs.audit.sampler(batches, claimed, num_examples=size, runs=runs, level=LEVEL))


def of_noise(rows: Iterator[Any], mechanism: hs.Mechanism) -> Outcome:
    """The audit of rows of noise in clipping norms."""
    return _of(hs.audit.noise(rows, mechanism, level=LEVEL))


def _of(verdict: hs.audit.Verdict) -> Outcome:
    broken = [finding for finding in verdict.findings if finding.broken]
    units = {"sampler": "batches", "noise": "numbers"}[verdict.about]
    seen = f"{verdict.samples:,} {units}"
    if not broken:
        return Outcome(False, f"nothing in {seen}")
    names = ", ".join(f"`{finding.name}`" for finding in broken)
    return Outcome(True, f"{names} after {seen}", {"first": broken[0].says})


def of_steps(strategy: Any = None, steps: int = ROWS) -> hs.Mechanism:
    """A mechanism with this strategy and number of steps, for its noise."""
    sampler = hs.Poisson(sampling_prob=0.05, steps=steps)
    return hs.Mechanism(strategy=strategy or hs.Identity(), sampler=sampler, noise_multiplier=SIGMA)


def column(mechanism: hs.Mechanism) -> np.ndarray:
    """The non-zero entries of the first column of a banded Toeplitz C."""
    entries = mechanism.matrix.toeplitz_column
    assert entries is not None
    return np.trim_zeros(np.asarray(entries), "b")
