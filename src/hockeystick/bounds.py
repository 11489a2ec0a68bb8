"""A bound on a privacy profile that knows its side, its kind and where it comes from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import exp, isnan
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.profile import MAX_EPSILON, each, smallest_epsilon
from hockeystick.laws.profile import Profile as Profile
from hockeystick.notebook import table
from hockeystick.spec import real_number
from hockeystick.types import Direction, Kind, Side, as_side

Numbers = Sequence[float] | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]

SMALLEST_UPPER = 1e-300
"""No upper bound on delta is below this, as smaller values may have been rounded to subnormal numbers or to zero."""

SHOWN = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Epsilons of the table in notebooks."""
_MEANS = {Side.UPPER: "delta is at most this", Side.LOWER: "delta is at least this"}


def falling(profile: Profile, epsilon: float, side: Side) -> Profile:
    """The same bound, made monotone in epsilon around one point.

    As delta falls with epsilon, the bound at ``epsilon`` holds at every larger epsilon (UPPER), or at every smaller one
    (LOWER); it is used there wherever it is tighter than the profile.
    """
    known = profile(epsilon)
    if side is Side.UPPER:
        return lambda at: min(profile(at), known) if at >= epsilon else profile(at)
    return lambda at: max(profile(at), known) if at <= epsilon else profile(at)


def best_of(pick: Callable[[Iterable[float]], float], *profiles: Profile) -> Profile:
    """At each epsilon the smallest (``pick`` is min) or the largest (max) of some profiles."""
    return _BestOf(pick, profiles)


def when_asked(make: Callable[[], Profile]) -> Profile:
    """A profile that is made when it is first read, and once."""
    made = cache(make)
    return lambda epsilon: made()(epsilon)


@dataclass(frozen=True, eq=False)
class _BestOf:
    pick: Callable[[Iterable[float]], float]
    profiles: Sequence[Profile]

    def __call__(self, epsilon: float) -> float:
        return self.pick(profile(epsilon) for profile in self.profiles)

    def each(self, epsilons: Sequence[float]) -> list[float]:
        columns = [each(profile, epsilons) for profile in self.profiles]
        return list(map(self.pick, zip(*columns, strict=True)))


@made_by("hs.Question(delta=1e-5)")
@dataclass(frozen=True)
class Question:
    """Asks for epsilon at a delta, or for delta at an epsilon.

    >>> Question(delta=1e-5)
    Question(delta=1e-05, epsilon=None)

    Attributes:
        delta: from 1e-30 to below 1.
        epsilon: from 0 to 700, where doubles end.

    Raises: InvalidInputError unless exactly one of them is given, and is a number in its range.
    """

    delta: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.epsilon is None):
            raise InvalidInputError("Exactly one of 'delta' and 'epsilon' must be given.")
        name = "epsilon" if self.delta is None else "delta"
        object.__setattr__(self, name, real_number(name, getattr(self, name)))
        if self.delta is not None and not 1e-30 <= self.delta < 1.0:
            raise InvalidInputError(f"The 'delta' field must be from 1e-30 to below 1. Got {self.delta!r} instead.")
        if self.epsilon is not None and not 0.0 <= self.epsilon <= MAX_EPSILON:
            raise InvalidInputError(
                f"The 'epsilon' field must be from 0 to {MAX_EPSILON:g}. Got {self.epsilon!r} instead."
            )

    def answer(self, bound: "Bound", near: float | None = None) -> float:
        """The bound's answer, on its side; ``near`` is a guess of epsilon, which affects speed only."""
        if self.delta is not None:
            return bound.epsilon(self.delta, near)
        return bound.delta(self.epsilon or 0.0)

    def claimed(self, upper: float) -> tuple[float, float]:
        """The pair (epsilon, delta) of which this question has ``upper`` as its answer.

        >>> Question(delta=1e-5).claimed(2.0)
        (2.0, 1e-05)
        """
        return (upper if self.epsilon is None else self.epsilon, upper if self.delta is None else self.delta)


def check_target(epsilon: float) -> float:
    """A target epsilon as a float of Python's; raises InvalidInputError for one that no noise can be asked for."""
    target = real_number("epsilon", epsilon)  # a float32 of NumPy's would make float32 of all that it is compared with
    if not 0.0 < target <= MAX_EPSILON:
        raise InvalidInputError(
            f"The 'epsilon' field must be above 0 and at most {MAX_EPSILON:g}. Got {target!r} instead."
        )
    return target


@made_by('hs.bound(run, "direct")')
@dataclass(frozen=True)
class Bound:
    """One side of a privacy profile delta(epsilon), for both directions together.

    An UPPER bound is at least the true profile everywhere, a LOWER one at most. ``slack`` is the total-variation
    distance between the run and the pair that was analysed; it costs ``(1 + e^epsilon) slack`` on either side.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    >>> bound = hs.bound(run, "gaussian")
    >>> round(bound.epsilon(1e-5), 3)
    4.377
    >>> bound.delta([0.0, 1.0, 2.0]).round(4).tolist()
    [0.3829, 0.1269, 0.0209]

    Attributes:
        method: name of the accountant.
        side, kind, confidence: what is claimed; the confidence of a deterministic bound is 1.
        reference: where the proof stands.
        profiles: one profile for each direction. The profile of a mechanism is the larger of its two directions, so
            an upper bound needs both; a lower bound may leave one out.
        claim: for a Monte Carlo bound, the samples that it rests on, as certificates state them.
    """

    method: str
    side: Side
    kind: Kind
    confidence: float
    reference: str
    profiles: dict[Direction, Profile]
    slack: float = 0.0
    claim: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "side", as_side(self.side))
        if self.side is Side.UPPER and set(self.profiles) != set(Direction):
            raise InvalidInputError("An upper bound must cover both directions, remove and add.")
        checked = {profile: _Checked(profile, self.side) for profile in dict.fromkeys(self.profiles.values())}
        profiles = {direction: checked[profile] for direction, profile in self.profiles.items()}
        object.__setattr__(self, "profiles", profiles)

    def _repr_html_(self) -> str:
        """What notebooks show: what is claimed, and delta at some epsilons."""
        rows = [
            ("side", f"{self.side.value}: {_MEANS[self.side]}"),
            ("kind", self.kind.value if self.confidence == 1.0 else f"{self.kind.value}, {self.confidence!r} sure"),
            ("reference", self.reference),
            *((f"delta at epsilon = {epsilon:g}", repr(self.delta(epsilon))) for epsilon in SHOWN),
        ]
        return table(f"Bound by {self.method}", rows)

    @overload
    def delta(self, epsilon: float) -> float: ...
    @overload
    def delta(self, epsilon: Numbers) -> NDArray[np.float64]: ...
    @called("bound.delta(2.0)")
    def delta(self, epsilon: float | Numbers) -> float | NDArray[np.float64]:
        """delta at ``epsilon`` >= 0, in [0, 1], on the side of the bound; for an array, an array of its shape.

        Raises: InvalidInputError for anything but numbers from 0 to 700.
        """
        return for_all(self._deltas, "epsilon", epsilon)

    def _deltas(self, epsilons: Sequence[float]) -> list[float]:
        for epsilon in epsilons:
            if not 0.0 <= epsilon <= MAX_EPSILON:
                raise InvalidInputError(
                    f"The 'epsilon' field must be from 0 to {MAX_EPSILON:g}. Got {epsilon!r} instead."
                )
        columns = [each(profile, epsilons) for profile in self._distinct]
        largest = columns[0] if len(columns) == 1 else list(map(max, zip(*columns, strict=True)))
        if self.slack:
            return [self._with_slack(value, at) for at, value in zip(epsilons, largest, strict=True)]
        least = self._least
        return [min(max(value, least), 1.0) for value in largest]

    @property
    def _distinct(self) -> list[Profile]:
        return list(dict.fromkeys(self.profiles.values()))  # both directions may have the same

    def _largest(self, profiles: list[Profile], epsilon: float) -> float:
        return self._with_slack(max(profile(epsilon) for profile in profiles), epsilon)

    def _with_slack(self, value: float, epsilon: float) -> float:
        if self.slack:
            change = (1.0 + exp(epsilon)) * self.slack
            value += change if self.side is Side.UPPER else -change
        return min(max(value, self._least), 1.0)

    @property
    def _least(self) -> float:
        return SMALLEST_UPPER if self.side is Side.UPPER else 0.0

    @overload
    def epsilon(self, delta: float, near: float | None = None) -> float: ...
    @overload
    def epsilon(self, delta: Numbers, near: float | None = None) -> NDArray[np.float64]: ...
    @called("bound.epsilon(1e-5)")
    def epsilon(self, delta: float | Numbers, near: float | None = None) -> float | NDArray[np.float64]:
        """The epsilon at which the profile reaches ``delta``, on the side of the bound; for an array, an array.

        Upper: an epsilon with ``self.delta(epsilon) <= delta``, or infinity. Lower: one with
        ``self.delta(epsilon) > delta``, or 0. ``near`` is a guess, which affects speed only.

        Raises: InvalidInputError for anything but numbers between 0 and 1, both excluded.
        """
        guess = None if near is None else real_number("near", near)
        return for_each(lambda at: self._epsilon(at, guess), "delta", delta)

    def _epsilon(self, delta: float, near: float | None) -> float:
        if not 0.0 < delta < 1.0:
            raise InvalidInputError(f"The 'delta' field must be between 0 and 1, both excluded. Got {delta!r} instead.")
        if near is None:
            near = max(map(partial(_expected, delta=delta), self._distinct), default=0.0)
        profiles = [_about(profile, delta) for profile in self._distinct]
        return smallest_epsilon(partial(self._largest, profiles), delta, self.side, near=near)


@runtime_checkable
class Focused(Protocol):
    """A profile that need not be close where it is far from a delta."""

    def about(self, delta: float) -> Profile:
        """The profile for comparisons with this delta: a bound everywhere, and close where it is about as large.

        Not where the bound in the other direction is larger.
        """

    def expected(self, delta: float) -> float:
        """About the epsilon at which the profile reaches this delta; a guess, from 0 to infinity."""


@dataclass(frozen=True, eq=False)
class _Checked:
    """A profile whose values are numbers: a value that is not a number becomes the trivial bound of its side."""

    profile: Profile
    side: Side

    def __call__(self, epsilon: float) -> float:
        return self._of(self.profile(epsilon))

    def each(self, epsilons: Sequence[float]) -> list[float]:
        values = each(self.profile, epsilons)
        return [self._of(value) for value in values] if any(map(isnan, values)) else values

    def _of(self, value: float) -> float:
        return (1.0 if self.side is Side.UPPER else 0.0) if isnan(value) else value

    def about(self, delta: float) -> Profile:
        return _Checked(_about(self.profile, delta), self.side)

    def expected(self, delta: float) -> float:
        return _expected(self.profile, delta)


def _about(profile: Profile, delta: float) -> Profile:
    about: Callable[[float], Profile] | None = getattr(profile, "about", None)  # isinstance takes ten times as long
    return profile if about is None else about(delta)


def _expected(profile: Profile, delta: float) -> float:
    expected: Callable[[float], float] | None = getattr(profile, "expected", None)
    return 0.0 if expected is None else expected(delta)


def for_each(function: Callable[[float], float], name: str, values: float | Numbers) -> float | NDArray[np.float64]:
    """``function`` of a number, or of every entry of an array, a list or a tuple of numbers."""
    return for_all(lambda numbers: [function(number) for number in numbers], name, values)


def for_all(
    function: Callable[[Sequence[float]], list[float]], name: str, values: float | Numbers
) -> float | NDArray[np.float64]:
    """:func:`for_each` for a function of many numbers, which returns as many."""
    if not isinstance(values, list | tuple | np.ndarray):
        return float(function([real_number(name, values)])[0])  # not a number of NumPy's, which prints otherwise
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"The {name!r} field must be a number or an array of numbers. Got {shortened(values)} instead."
        )
    answers = function(array.astype(np.float64).ravel().tolist())
    return np.array(answers, dtype=np.float64).reshape(array.shape)
