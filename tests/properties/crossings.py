"""Where a bound is on the wrong side of the truth."""

from bins_oracle import Truth

from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.pairs.base import DominatingPair
from hockeystick.settings import Settings
from hockeystick.strategies.matrix.base import Array
from hockeystick.types import Direction, Side


def violations(profile: Profile, side: Side, direction: Direction, exact: Truth, at: Array) -> list[str]:
    """The epsilons at which a bound is on the wrong side of the truth, beyond the oracle's error."""
    value, error = (exact.remove, exact.remove_error) if direction is Direction.REMOVE else (exact.add, exact.add_error)
    texts = []
    for epsilon, true, off in zip(at, value, error, strict=True):
        bound = profile(float(epsilon))
        wrong = not bound >= true - off if side is Side.UPPER else not bound <= true + off
        if wrong:
            texts.append(f"{side} {direction} eps={epsilon:.6g}: {bound!r} against {true!r} +- {off:.2g}")
    return texts


def all_violations(
    accountant: Accountant, pair: DominatingPair, exact: Truth, at: Array, settings: Settings
) -> tuple[list[str], int]:
    """Those of both sides and directions, and how many profiles were looked at."""
    texts, profiles = [], 0
    for side in Side:
        if accountant.why_not(pair, side) is not None:
            continue
        try:
            bound = accountant.bound(pair, side, settings)
        except UnsupportedError:
            continue
        for direction, profile in bound.profiles.items():
            profiles += 1
            texts += [f"{accountant.name}: {text}" for text in violations(profile, side, direction, exact, at)]
    return texts, profiles
