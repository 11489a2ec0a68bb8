"""Proposals (ways to draw weighted samples of the privacy loss) and the families that provide them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.weight_bounds import bounded_exp
from hockeystick.pairs.base import DominatingPair
from hockeystick.types import Direction, Side


def rounded(parameter: float) -> float:
    """A parameter to three significant digits, as all that are proposed have them.

    A finer one hardly makes a better proposal, but gives whoever wants another bound from the same seed more to try.
    """
    return float(f"{parameter:.2e}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal(ABC):
    """A distribution R to draw from, for one direction of one pair.

    Every sample comes with the privacy loss ``l`` of its output in this direction (``log X`` for remove, ``-log X``
    for add) and a log-weight ``log w``, such that with ``Y(epsilon) = w (1 - e^(epsilon - l))_+``

        ``E_R Y(epsilon) = delta(epsilon)`` of this direction, and ``0 <= Y(epsilon) <= weight_bound(epsilon)`` always.

    Both are proved in docs/theory/monte-carlo; a bound is only as good as ``weight_bound``. Where ``sides`` has one
    side alone, the expectation is a bound of that side instead of the value.

    A proposal is picklable and depends on the pair, on ``parameters`` and on nothing else, so that anyone can draw its
    samples again.

    Attributes:
        direction: whose profile is sampled.
    """

    name: ClassVar[str]
    """Of the kind."""
    chosen: ClassVar[tuple[str, ...]] = ()
    """The numeric fields that make it another proposal for the same pair; :func:`rounded`, or whole, where the family
    proposes."""
    directions: ClassVar[tuple[Direction, ...]] = tuple(Direction)

    direction: Direction

    @property
    def evidence_name(self) -> str:
        """Its name in evidence: that of its kind, or of the proposal that it stands around."""
        return self.name

    @property
    def parameters(self) -> dict[str, float]:
        """What a family needs, besides the pair, direction and name, to build the same proposal again."""
        return {name: float(getattr(self, name)) for name in self.chosen}

    @property
    def whole(self) -> frozenset[str]:
        """The parameters that are whole numbers, few of which are proved; the others are :func:`rounded`."""
        return whole_numbers(type(self))

    @property
    def proved(self) -> bool:
        """Whether M is proved for these parameters and they can be drawn with."""
        return True

    @property
    @abstractmethod
    def cost(self) -> float:
        """Rough seconds per sample on one core; used to choose among proposals and the size of chunks."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """On which sides the mean of Y bounds the profile."""
        return (Side.UPPER, Side.LOWER)

    @property
    def loss_error(self) -> float:
        """Bound on the absolute rounding error of the losses and log-weights of the kernel, and of log M.

        Log-weights are relative to the law that is drawn in floating point, where tables are rounded.
        """
        return 1e-9

    def drawn_bound(self, side: Side, epsilon: float) -> float:
        """M for the law that is drawn: rounding moves log M and the log-weights by ``loss_error`` each.

        Samples for upper bounds are read at a smaller epsilon.
        """
        read_at = max(epsilon - self.loss_error, 0.0) if side is Side.UPPER else epsilon
        return self.weight_bound(read_at) * bounded_exp(2.0 * self.loss_error)

    @abstractmethod
    def weight_bound(self, epsilon: float) -> float:
        """M: proved upper bound on Y(epsilon); finite or infinite, never below the truth."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """Fill both arrays (same length) with independent samples.

        Releases the interpreter lock (``nogil`` kernels), keeps no more than a few megabytes, and uses ``rng`` alone.
        """


def whole_numbers(kind: type[Proposal]) -> frozenset[str]:
    """The parameters of a kind that are whole numbers."""
    return frozenset(field.name for field in fields(kind) if field.type is int and field.name in kind.chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plain(Proposal):
    """Outputs of P, of Q, or of Q moved away from the mean of P, which a family draws in one way."""

    @abstractmethod
    def outputs(self, rng: np.random.Generator, samples: int, beta: float | None) -> Array:
        """``log P/Q``, and ``<C E x, y> / sigma^2`` where beta is a number, of outputs y; shape (samples, 2).

        Args:
            beta: of Q moved by ``-beta C E x``; None for outputs of P.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class Naive(Plain):
    """What naive proposals share: outputs of the direction's own first distribution, so ``w = 1`` and ``M = 1``."""

    name: ClassVar[str] = "naive"

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        """A ratio that is not finite has no value."""
        of_p = self.direction is Direction.REMOVE
        log_ratios = self.outputs(rng, losses.size, None if of_p else 0.0)[:, 0]
        finite = np.isfinite(log_ratios)
        log_weights[:] = np.where(finite, 0.0, np.nan)
        losses[:] = np.where(finite, log_ratios if of_p else -log_ratios, np.nan)

    def weight_bound(self, epsilon: float) -> float:
        """1, whatever the loss."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """All proposals for one type of pair.

    Attributes:
        pair: the type.
        kinds: the types of its proposals.
        propose: proposals for a direction and an epsilon, the most promising first (smallest cost times M), and the
            naive one (w = 1, M = 1) last. Deterministic: no sampling, no clock.
        quick: the first of them without the work that the others take; None where there is no quicker way.
        fingerprint: numbers that determine the pair (Gram matrix, columns, rates ...): arrays and scalars, hashed
            bit by bit.
        known_upper: a closed-form upper bound on one direction, or None; it may spare its sampling.
        refusal: why a pair of this type cannot be sampled for a side, or None.
        make: a proposal of a kind from the pair and the other fields.
    """

    pair: type[DominatingPair]
    kinds: Sequence[type[Proposal]]
    propose: Callable[[Any, Direction, float], Sequence[Proposal]]
    quick: Callable[[Any, Direction, float], Proposal | None] = lambda pair, direction, epsilon: None
    fingerprint: Callable[[Any], Sequence[Any]]
    known_upper: Callable[[Any, Direction], Profile | None] = lambda pair, direction: None
    refusal: Callable[[Any, Side], str | None] = lambda pair, side: None
    make: Callable[..., Proposal] = lambda pair, kind, **values: kind(pair=pair, **values)

    def first(self, pair: DominatingPair, direction: Direction, epsilon: float) -> Proposal:
        """The most promising proposal."""
        quick = self.quick(pair, direction, epsilon)
        return self.propose(pair, direction, epsilon)[0] if quick is None else quick

    def build(self, pair: DominatingPair, direction: Direction, name: str, parameters: Mapping[str, float]) -> Proposal:
        """The proposal with this name and these parameters, for verification and for other machines.

        Raises: InvalidInputError for a name, a direction or parameters that no proved proposal has.
        """
        known = {kind.name: kind for kind in self.kinds if direction in kind.directions}
        kind = known.get(name)
        if kind is not None and parameters.keys() == set(kind.chosen):
            whole = whole_numbers(kind)
            if all(float(parameters[key]).is_integer() for key in whole):
                numbers = {**parameters, **{key: int(parameters[key]) for key in whole}}
                proposal = self.make(pair, kind, direction=direction, **numbers)
                if proposal.proved:
                    return proposal
        allowed = " or ".join(f"{each.name!r} with {', '.join(each.chosen) or 'nothing'}" for each in known.values())
        raise InvalidInputError(
            f"The 'proposal' field must be {allowed} in range for the direction {direction.value!r}. "
            f"Got {shortened(name)} with {shortened(dict(parameters))} instead."
        )
