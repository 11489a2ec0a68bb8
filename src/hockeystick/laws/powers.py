"""The law of many steps, each with its number of copies."""

from collections.abc import Callable, Iterable

from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import Law, point_mass_at_one
from hockeystick.laws.operations import compose
from hockeystick.types import Side


def composed_powers(steps: Iterable[tuple[Law, int]], resolution: Resolution, tick: Callable[[], None]) -> Law:
    """The law of all steps together, each with its number of copies: all powers share their squarings.

    The laws of one binary place are composed as a balanced tree, so that few projections follow one another.
    Compositions: one for each digit 1 of the copies and for each place.
    """
    steps = list(steps)
    result = None
    for place in range(max((count for _, count in steps), default=0).bit_length() - 1, -1, -1):
        if result is not None:
            result = compose(result, result, resolution, tick=tick)
        factors = [law for law, count in steps if count >> place & 1]
        if result is not None:
            factors.append(result)
        while len(factors) > 1:
            pairs = [compose(a, b, resolution, tick=tick) for a, b in zip(factors[::2], factors[1::2], strict=False)]
            factors = pairs + factors[2 * len(pairs) :]
        result = factors[0] if factors else None
    return point_mass_at_one(Side.UPPER) if result is None else result
