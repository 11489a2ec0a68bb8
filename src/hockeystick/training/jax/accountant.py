"""What an execution plan says of its privacy in the words of dp_accounting, and the accountant that answers for it."""

from typing import Any

import attr
from dp_accounting import NeighboringRelation, PrivacyAccountant
from dp_accounting.dp_event import DpEvent, NoOpDpEvent

from hockeystick.calls import made_by
from hockeystick.certificate import Certificate, Interval
from hockeystick.mechanism import Mechanism
from hockeystick.training.progress import certify_shown
from hockeystick.types import Adjacency

RELATIONS = {
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE: NeighboringRelation.REPLACE_ONE,
}
"""The words of dp_accounting for neighbours."""


def relation_of(mechanism: Mechanism) -> NeighboringRelation:
    """The neighbours that a mechanism's certificate is about."""
    return RELATIONS[Adjacency(mechanism.unit.neighbours)]


@made_by("hs.jax.MechanismDpEvent(run)")
@attr.s(frozen=True, slots=True, auto_attribs=True)
class MechanismDpEvent(DpEvent):
    """All steps of a mechanism of hockeystick, as one event.

    No other event says what a sampler and a correlated noise do together, so other accountants refuse this one. For
    DP-SGD with Poisson batches, ``hockeystick.interop.to_dp_event`` gives the event that they know.

    Attributes:
        mechanism: has a noise multiplier.
    """

    mechanism: Mechanism


@made_by("hs.jax.Accountant()")
class Accountant(PrivacyAccountant):
    """Certified upper bounds for the ``dp_event`` of a hockeystick execution plan; every other event is refused.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> 0.6 < Accountant().compose(MechanismDpEvent(mechanism)).get_epsilon(1e-5) < 1.0
    True

    Errs upward. One event is composed, once; :func:`hockeystick.compose` is for several runs.

    Args:
        neighboring_relation: one for which the mechanism's certificate holds.
    """

    def __init__(self, neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_SPECIAL) -> None:
        super().__init__(neighboring_relation)
        self._mechanism: Mechanism | None = None

    def _maybe_compose(self, event: DpEvent, count: int, do_compose: bool) -> Any:
        """Dp_accounting's hook: what is wrong with the event, or None."""
        if isinstance(event, NoOpDpEvent):
            return None
        wrong = self._wrong_with(event, count)
        if wrong:
            return self.CompositionErrorDetails(event, wrong)
        if do_compose and count:
            self._mechanism = event.mechanism
        return None

    def _wrong_with(self, event: DpEvent, count: int) -> str | None:
        if not isinstance(event, MechanismDpEvent):
            return "the accountant of hockeystick.jax accounts for the dp_event of its own execution plans"
        if count > 1 or self._mechanism is not None:
            return "one run of one mechanism is accounted for; hockeystick.compose composes several"
        own = Adjacency(event.mechanism.unit.neighbours)
        also = event.mechanism.sampler.holds_for if own is Adjacency.ZERO_OUT else ()
        if self.neighboring_relation not in [RELATIONS[relation] for relation in (own, *also)]:
            return f"its certificate does not hold for {self.neighboring_relation.name}"
        return None

    def get_epsilon(self, target_delta: float, **options: Any) -> float:
        """A certified upper bound on epsilon; ``options`` are those of :func:`hockeystick.certify`."""
        if self._mechanism is None:
            return 0.0
        return _upper(self._certified(self._mechanism, delta=target_delta, **options).epsilon)

    def get_delta(self, target_epsilon: float, **options: Any) -> float:
        """A certified upper bound on delta; ``options`` are those of :func:`hockeystick.certify`."""
        if self._mechanism is None:
            return 0.0
        return _upper(self._certified(self._mechanism, epsilon=target_epsilon, **options).delta)

    def _certified(self, mechanism: Mechanism, **options: Any) -> Certificate:
        return certify_shown(mechanism, f"all {mechanism.sampler.steps} planned steps", **options)


def _upper(number: Interval | float) -> float:
    return number.upper if isinstance(number, Interval) else number
