"""The whole privacy profile of a mechanism from both sides: the best accountant at every epsilon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from hockeystick.accountants.base import Accountant
from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT
from hockeystick.bounds import Bound, Profile, best_of
from hockeystick.calls import called
from hockeystick.certification.chords import tabulated
from hockeystick.certification.issue import prepared
from hockeystick.certification.schedule import CHEAP, DELTA_NODES, RUNS, planned
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.plan import Plan, split
from hockeystick.settings import Settings
from hockeystick.spec import real_number
from hockeystick.types import Direction, Kind, Side

GOAL, EXACT = 1e-2, 1e-6
"""Heavy accountants are not run when the two sides of delta are this close, relatively, and light ones when this."""
LEVELS = 4
"""At how many deltas that is looked at."""
KNOTS, FEWER_KNOTS = 65, 17
"""Epsilons at which a profile that is slow to evaluate is tabulated; fewer where it is very slow."""
SMALLEST_DELTA = 1e-10


@called("hs.profile(run)")
def profile(
    mechanism: Mechanism | Plan,
    *,
    smallest_delta: float = SMALLEST_DELTA,
    budget: float | None = None,
    deadline: Deadline | None = None,
) -> dict[Side, Bound]:
    """The best deterministic bounds on the whole profile: at every epsilon the tightest accountant that has run.

    Accountants run as in :func:`hockeystick.certify`, the cheapest first, until the two sides are within 1 percent in
    delta or the planned work is done. Accountants that take long for each epsilon are asked at some of them, between
    which both bounds are interpolated on their side, as delta is convex in e^epsilon.

    Args:
        mechanism: with its noise multiplier; or a plan with one.
        smallest_delta: deltas well below this may be bounded loosely; from 1e-30 to 0.5.
        budget: seconds: how much work to plan, and the deadline; None plans about a minute and sets no deadline.
        deadline: progress and deadline of the caller, in place of the budget's.

    Returns: a bound for each side; the lower one is 0 where nothing is known. ``method`` names all accountants in it.

    Raises: InvalidInputError without a noise multiplier; UnsupportedError for a mechanism that nobody has analysed;
        BudgetExceededError when the deadline passes while the strategy matrix is optimised.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> both = hs.profile(run)
    >>> lower, upper = both[hs.Side.LOWER].delta(0.5), both[hs.Side.UPPER].delta(0.5)
    >>> bool(lower <= upper <= 1.01 * lower)
    True
    """
    mechanism = split(mechanism)[0]
    smallest_delta = real_number("smallest_delta", smallest_delta)
    if not 1e-30 <= smallest_delta <= 0.5:
        raise InvalidInputError(
            f"The 'smallest_delta' field must be from 1e-30 to 0.5. Got {smallest_delta!r} instead."
        )
    policy, deadline = planned(mechanism, budget, deadline)
    pair = dominating_pair(prepared(mechanism, deadline))
    settings = Settings(Resolution(DELTA_NODES, smallest_delta), deadline, effort=policy.effort(RUNS))
    work = policy.work
    envelopes = {side: _Envelope(side, pair) for side in Side}
    for accountant, side in _in_order(pair):
        envelope = envelopes[side]
        cost = accountant.seconds(pair)
        if cost > work or accountant.is_beaten(pair, envelope.names):
            continue
        if cost > CHEAP and _close(envelopes, smallest_delta, GOAL if cost > policy.heavy else EXACT):
            break
        try:
            bound = accountant.bound(pair, side, settings)
            if accountant.plans_effort:
                upper = envelopes[Side.UPPER].bound()
                knots = _knots(upper, smallest_delta, KNOTS if cost <= policy.heavy else FEWER_KNOTS)
                bound = tabulated(bound, upper, knots, deadline)
        except (BudgetExceededError, UnsupportedError, MemoryError):
            continue
        envelope.bounds.append(bound)
        work -= cost
    return {side: envelope.bound() for side, envelope in envelopes.items()}


def _in_order(pair: DominatingPair) -> Sequence[tuple[Accountant, Side]]:
    """Accountants and sides that apply: the unamplified Gaussian first, then those of both sides, then the cheapest."""
    tasks = [
        (accountant, side)
        for accountant in (ACCOUNTANTS[name] for name in DEFAULT)
        for side in accountant.sides
        if accountant.kind is Kind.DETERMINISTIC and accountant.why_not(pair, side) is None
    ]
    return sorted(
        tasks, key=lambda task: (task[0].seconds(pair) > CHEAP, len(task[0].sides) == 1, task[0].seconds(pair))
    )


@dataclass
class _Envelope:
    """The bounds of one side so far."""

    side: Side
    pair: DominatingPair
    bounds: list[Bound] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [bound.method for bound in self.bounds]

    def bound(self) -> Bound:
        """The tightest of the bounds at every epsilon, for each direction."""
        pick, trivial = (min, 1.0) if self.side is Side.UPPER else (max, 0.0)

        def best(direction: Direction) -> Profile:
            parts = [bound.profiles[direction] for bound in self.bounds if direction in bound.profiles]
            return best_of(pick, *parts) if parts else lambda epsilon: trivial

        return Bound(
            method="+".join(self.names) or "none",
            side=self.side,
            kind=Kind.DETERMINISTIC,
            confidence=1.0,
            reference="; ".join(dict.fromkeys(bound.reference for bound in self.bounds)),
            profiles={direction: best(direction) for direction in Direction},
            slack=self.pair.slack,
        )


def _close(envelopes: Mapping[Side, _Envelope], smallest_delta: float, goal: float) -> bool:
    """Whether the two sides meet at epsilon 0 and at several deltas down to the smallest."""
    upper, lower = envelopes[Side.UPPER].bound(), envelopes[Side.LOWER].bound()
    places = [0.0, *(upper.epsilon(smallest_delta ** ((k + 1.0) / LEVELS)) for k in range(LEVELS))]
    return all(place < inf and upper.delta(place) <= (1.0 + goal) * lower.delta(place) for place in places)


def _knots(upper: Bound, smallest_delta: float, count: int) -> list[float]:
    """Epsilons from 0 to where the bound so far reaches the smallest delta."""
    reach = min(max(upper.epsilon(smallest_delta), 1e-3), 100.0)
    return [reach * (k / (count - 1.0)) for k in range(count)]
