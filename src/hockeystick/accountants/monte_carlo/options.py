"""What a caller decides about Monte Carlo accounting."""

from dataclasses import dataclass, field
from secrets import randbits

from hockeystick.accountants.monte_carlo.ledger import Executor, Ledger, MemoryLedger, in_this_process

DEFAULT_FAILURE = 1e-9
"""Probability with which a Monte Carlo bound may fail, unless said otherwise."""
SEED_BITS = 64


def fresh_seed() -> int:
    """A seed from the system's entropy."""
    return randbits(SEED_BITS)


@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """How Monte Carlo accountants may work.

    Attributes:
        failure_probability: of all claims together, both sides; in (0, 1).
        ratio: the run ends when upper / lower - 1 in delta is at most this.
        seed: of all streams; fresh from the system by default.
        ledger: keeps the chunks, so that a run can be resumed, shared and verified.
        executor: computes chunks.
    """

    failure_probability: float = DEFAULT_FAILURE
    ratio: float = 0.05
    seed: int = field(default_factory=fresh_seed)
    ledger: Ledger = field(default_factory=MemoryLedger)
    executor: Executor = in_this_process
