"""Every deterministic bound, in both directions, against the true profiles of more than 3,000 small random mechanisms.

Truths are further off than they say with probability at most about 4e-9 each. There are fewer than 250,000 comparisons
with fewer than 13,000 truths, so one fails by chance with a probability below 6e-5.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from monte_carlo_oracle import truth
from random_mechanisms import Case, random_case

from hockeystick.accountants.registry import every_accountant
from hockeystick.bounds import Bound
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.settings import Settings
from hockeystick.types import Direction, Kind, Side

COUNTS = {
    "balls_in_bins": 450,
    "random_allocation": 200,
    "fresh_bins": 200,
    "poisson": 450,
    "cyclic_poisson": 350,
    "b_min_sep": 550,
    "multi_attribution": 200,
    "users": 300,
    "truncated": 200,
    "longer_truncated": 80,
    "secret_groups": 150,
    "waiting_threes": 120,
    "replaced": 120,
    "shuffle": 100,
}
"""Mechanisms of each kind: 3,470."""
SOME = 3
"""As many of each kind are in the usual tests."""
SETTINGS = Settings(resolution=Resolution(nodes_per_unit=20, smallest_delta=1e-8), effort=0.05)
RARELY = {"conditional_composition": 10, "moment_majorant": 10, "moment_majorant_cells": 40}
"""Slow ones, which see one in so many mechanisms."""


def bounds_of(case: Case, number: int) -> Iterator[Bound]:
    """Of every deterministic accountant and side that applies."""
    for accountant in every_accountant().values():
        if (
            accountant.kind is not Kind.DETERMINISTIC
            or accountant.assumes is not None
            or number % RARELY.get(accountant.name, 1)
        ):
            continue
        for side in accountant.sides:
            if accountant.why_not(case.pair, side) is None:
                with suppress(UnsupportedError):
                    yield accountant.bound(case.pair, side, SETTINGS)


def wrong_of(case: Case, number: int) -> tuple[list[str], Counter[str]]:
    """Bounds on the wrong side of the truth, and how many of each method were compared."""
    wrong, seen = [], Counter[str]()
    bounds = list(bounds_of(case, number))
    for direction in Direction:
        truths = [
            truth(case.entries, case.mechanism.sigma, there, ghost, direction, case.epsilon)
            for there, ghost in case.worlds
        ]
        least, most = (
            max(truth.value - truth.error for truth in truths),
            max(truth.value + truth.error for truth in truths),
        )
        for bound in bounds:
            if direction not in bound.profiles:
                continue
            value = bound.profiles[direction](case.epsilon)
            name = f"{bound.method} {bound.side.value} {direction.value} of {case.mechanism} at {case.epsilon}"
            if bound.side is Side.UPPER:
                seen[bound.method] += 1
                if not value + case.pair.slack * (1.0 + np.exp(case.epsilon)) >= least - 1e-300:
                    wrong.append(f"{name}: {value} below {least}")
            elif case.attained:
                seen[bound.method] += 1
                if not value <= most:
                    wrong.append(f"{name}: {value} above {most}")
    return wrong, seen


def compare(kind: str, counts: int, folder: Path) -> Counter[str]:
    """All bounds of so many mechanisms of a kind."""
    rng = np.random.default_rng([17, *kind.encode()])
    wrong, seen = [], Counter[str]()
    for number in range(counts):
        broken, compared = wrong_of(random_case(kind, rng, folder), number)
        wrong += broken
        seen += compared
    assert not wrong, "\n".join(wrong)
    return seen


@pytest.mark.parametrize("kind", list(COUNTS))
def test_some_mechanisms(kind: str, tmp_path: Path) -> None:
    assert compare(kind, SOME, tmp_path).total() >= 2 * SOME


@pytest.mark.weekly
@pytest.mark.parametrize("kind", list(COUNTS))
def test_three_thousand_mechanisms(
    kind: str, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    seen = compare(kind, COUNTS[kind], tmp_path)
    record_testsuite_property(kind, dict(sorted(seen.items())))  # for --junitxml
    assert seen.total() >= 2 * COUNTS[kind]
