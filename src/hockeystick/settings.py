"""What a caller decides: how hard to work, and whether and how Monte Carlo may be used. Plain frozen data."""

from dataclasses import dataclass, field

from hockeystick.bounds import Question
from hockeystick.by_name import by_name
from hockeystick.calls import made_by
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.laws.grid import Resolution
from hockeystick.samples import Executor, Ledger, MemoryLedger
from hockeystick.spec import plain, real_number
from hockeystick.types import Kind

DEFAULT_FAILURE = 1e-9
"""Probability with which a Monte Carlo bound may fail, unless said otherwise."""
DEFAULT_RATIO = 0.05
"""Sampling ends when the two bounds on delta come this close to each other."""


@by_name
@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """How Monte Carlo accountants may work.

    Attributes:
        failure_probability: of all claims together, both sides; in (0, 1).
        ratio: the run ends when upper / lower - 1 in delta is at most this.
        seed: of all pilots and streams; by default the ledger's, which draws one from the system when it is first
            asked. A guarantee is about a seed that was drawn once: do not try several and keep the one you like.
        ledger: keeps the chunks, so that a run can be resumed, shared and verified.
        executor: computes chunks; None for one after the other, in this process. Pilots are drawn on its threads, if it
            has some in this process.
    """

    failure_probability: float = DEFAULT_FAILURE
    ratio: float = DEFAULT_RATIO
    seed: int | None = None
    ledger: Ledger = field(default_factory=MemoryLedger)
    executor: Executor | None = None

    def __post_init__(self) -> None:
        for name in ("failure_probability", "ratio"):
            object.__setattr__(self, name, real_number(name, getattr(self, name)))
        object.__setattr__(self, "seed", plain(self.seed))
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise InvalidInputError(f"The 'seed' field must be a whole number. Got {self.seed!r} instead.")
        if not 0.0 < self.failure_probability < 1.0:
            raise InvalidInputError(
                f"The 'failure_probability' field must be between 0 and 1, both excluded. "
                f"Got {self.failure_probability!r} instead."
            )
        if not 1e-4 <= self.ratio <= 100.0:
            raise InvalidInputError(f"The 'ratio' field must be from 0.0001 to 100. Got {self.ratio!r} instead.")
        if self.seed is not None and not 0 <= self.seed < 1 << 128:
            raise InvalidInputError(f"The 'seed' field must be from 0 to 2^128 - 1. Got {self.seed!r} instead.")

    def check_part_of(self, delta: float) -> None:
        """Raise InvalidInputError unless the failure probability can be a part of this delta."""
        if not self.failure_probability < delta:
            raise InvalidInputError(
                f"The 'failure_probability' field must be below delta = {delta!r}, of which it becomes a part. "
                f"Got {self.failure_probability!r} instead."
            )

    @property
    def threads(self) -> int:
        """How many pilots may be drawn at a time."""
        return int(getattr(self.executor, "threads", 1))


DEFAULT_WORK = 60.0
"""Standard seconds that a request may plan for, unless said otherwise."""
DEFAULT_EFFORT = 10.0
"""Standard seconds that one accountant may plan for, for one side."""


@by_name
@dataclass(frozen=True, kw_only=True)
class SearchPolicy:
    """How much work a request may plan for, and when it is done. It affects speed and tightness, never soundness.

    Work is counted in standard seconds: seconds of one core of the machine on which the costs of the accountants were
    measured. Costs are fixed formulas, so a request plans the same everywhere and whatever else the machine does; only
    a :class:`~hockeystick.deadline.Deadline` looks at the clock, and what it cuts off is named.

    Attributes:
        work: standard seconds for the deterministic accountants together.
        sampling: standard seconds of sampling, where Monte Carlo is allowed; infinite to sample until the bounds are
            close or the deadline passes.
        gap_goal: the relative two-sided gap at which the search ends.
        heavy, heavy_goal: methods that cost more than ``heavy`` run only while the gap is above ``heavy_goal``.
    """

    work: float = DEFAULT_WORK
    sampling: float = DEFAULT_WORK
    gap_goal: float = 1e-3
    heavy: float = 2.0
    heavy_goal: float = 5e-3

    def effort(self, runs: float) -> float:
        """What one run of an accountant may cost, when so many heavy runs are expected.

        More than the default only where more work than by default may be planned.
        """
        share = float(f"{self.work / runs:.2g}")
        return share if self.work > DEFAULT_WORK else min(share, DEFAULT_EFFORT)


BROAD_DELTAS = (1e-5, 1e-8, 1e-14)
"""Where a whole profile should be good as well. Each costs accountants that spend a failure probability another law."""


@made_by("hs.Settings(deadline=hs.Deadline(seconds=60))")
@dataclass(frozen=True)
class Settings:
    """How one accountant works. Nothing here can make a bound wrong, only loose or slow.

    Attributes:
        resolution: grids of the law engine; its ``smallest_delta`` also tells every accountant where the bound
            has to be good.
        deadline: when to stop, and the place to report progress.
        question: the one number that is asked for, or None for the whole profile. Monte Carlo accountants then
            promise that number alone, which takes fewer samples.
        monte_carlo: how they may work; None where they are not allowed.
        effort: standard seconds that the accountant may plan for one side.
        work: standard seconds that sampling may take.
        claimed: an epsilon that an upper bound at ``smallest_delta`` should confirm if it can: methods that end where
            more work would gain next to nothing go on until it is. None where nothing is claimed.
    """

    resolution: Resolution = field(default_factory=Resolution)
    deadline: Deadline = field(default_factory=Deadline)
    question: Question | None = None
    monte_carlo: MonteCarlo | None = None
    effort: float = DEFAULT_EFFORT
    work: float = DEFAULT_WORK
    claimed: float | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of bounds that are allowed."""
        return (Kind.DETERMINISTIC,) if self.monte_carlo is None else (Kind.DETERMINISTIC, Kind.MONTE_CARLO)

    @property
    def asked_epsilon(self) -> float | None:
        """The epsilon whose delta is asked for, or None."""
        return None if self.question is None else self.question.epsilon

    @property
    def spending_deltas(self) -> tuple[float, ...]:
        """The deltas for which failure probabilities are chosen.

        It is the smallest delta alone where a single number is asked for. A whole profile has larger ones too, as what
        is spent at a tiny delta costs much at a usual delta.
        """
        smallest = self.resolution.smallest_delta
        broad = () if self.question is not None else BROAD_DELTAS
        return (smallest, *(delta for delta in broad if delta > 100.0 * smallest))

    def confidence(self, kind: Kind) -> float:
        """The confidence of a bound of this kind."""
        if kind is Kind.DETERMINISTIC or self.monte_carlo is None:
            return 1.0
        return 1.0 - self.monte_carlo.failure_probability
