"""The worst of several pairs, any of which the adversary may face."""

from dataclasses import dataclass

from hockeystick.pairs.base import DominatingPair


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstOf(DominatingPair):
    """A mechanism that is dominated by one of several pairs, each of which may be the one.

    Its profile is the largest of theirs, in each direction: an upper bound has to cover all, a lower bound one.

    Attributes:
        parts: the pairs, all with this noise multiplier, the likeliest to be the worst last.
    """

    parts: tuple[DominatingPair, ...]

    @property
    def members(self) -> tuple[DominatingPair, ...]:
        """The parts."""
        return self.parts

    @property
    def full_sensitivity(self) -> float:
        """The largest of theirs, rounded up."""
        return max(part.full_sensitivity * (1.0 + part.sensitivity_error) for part in self.parts)

    @property
    def batches_are_public(self) -> bool:
        """True when they are in all parts."""
        return all(part.batches_are_public for part in self.parts)
