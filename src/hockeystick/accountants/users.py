"""How every accountant bounds a user with several examples: by what it says of copies, and of a single example.

An upper bound is the smaller, at every epsilon and in each direction, of the accountant's bound on the pair of all k
examples and of k links of the chain of its bound on one example. A lower bound is the largest of those on the pair of
all k examples, on a pair that is proved to be below it, and on one example. Where examples are replaced, two links of
such bounds, removing these and adding those, make the upper bound. So no accountant needs to know of users, and none is
ever worse than group privacy makes it. Proofs: docs/theory/units.md.
"""

from collections.abc import Mapping
from typing import Protocol

from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.groups import chained
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.users import Users
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side


class Bounding(Protocol):
    """What is asked of an accountant about the parts of a user's pair; :class:`..base.Accountant` says it."""

    @property
    def name(self) -> str: ...

    @property
    def sides(self) -> tuple[Side, ...]: ...

    @property
    def plans_effort(self) -> bool: ...

    def why_not(self, pair: DominatingPair, side: Side) -> str | None: ...

    def cost(self, pair: DominatingPair) -> float: ...

    def profiles(self, pair: DominatingPair, side: Side, settings: Settings) -> Mapping[Direction, Profile]: ...


def parts_of(pair: Users, side: Side) -> list[DominatingPair]:
    """The pairs whose bounds on this side lead to one on the user, that of one example last."""
    parts = (pair.copies, pair.single) if side is Side.UPPER else (pair.copies, pair.below, pair.single)
    return [part for part in parts if part is not None]


def with_laws(pair: Users, side: Side) -> list[DominatingPair]:
    """The parts whose laws are laws of the user: from above the copies, unless others come in their place."""
    if side is Side.LOWER:
        return parts_of(pair, side)
    return [] if pair.copies is None or pair.replaced else [pair.copies]


def why_not(accountant: Bounding, pair: Users, side: Side) -> str | None:
    """Why this accountant bounds none of the parts on the side, or None if it bounds one."""
    reasons = [accountant.why_not(part, side) for part in parts_of(pair, side)]
    return None if None in reasons else reasons[-1]


def cost(accountant: Bounding, pair: Users) -> float:
    """Rough seconds for all parts that it bounds on either side."""
    parts = {
        id(part): part
        for side in accountant.sides
        for part in parts_of(pair, side)
        if accountant.why_not(part, side) is None
    }
    return sum(accountant.cost(part) for part in parts.values())


def user_profiles(accountant: Bounding, pair: Users, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Both directions of the best bound on the user that the accountant's bounds on the parts lead to.

    Raises: UnsupportedError when there is none.
    """
    found: list[Mapping[Direction, Profile]] = []
    refused: UnsupportedError | None = None
    for part in parts_of(pair, side):
        if accountant.why_not(part, side) is not None:
            continue
        try:
            profiles = accountant.profiles(part, side, settings)
        except UnsupportedError as error:
            refused = error
            continue
        if side is Side.UPPER and part is pair.single:
            profiles = {
                direction: chained(profiles, (direction,), pair.examples, slow=accountant.plans_effort)
                for direction in Direction
            }
        found.append(profiles)
    if not found:
        raise refused or UnsupportedError(f"The method {accountant.name!r} bounds no part of a user's examples.")
    choose = min if side is Side.UPPER else max

    def best_of(parts: list[Profile]) -> Profile:
        return parts[0] if len(parts) == 1 else lambda epsilon: choose(part(epsilon) for part in parts)

    by_direction = {direction: [one[direction] for one in found if direction in one] for direction in Direction}
    best = {direction: best_of(parts) for direction, parts in by_direction.items() if parts}
    if side is Side.UPPER and pair.replaced:
        replaced = chained(best, (Direction.REMOVE, Direction.ADD), slow=accountant.plans_effort)
        return dict.fromkeys(Direction, replaced)
    return best
