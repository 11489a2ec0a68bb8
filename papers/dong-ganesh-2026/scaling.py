"""Section 7.4: which C of 256 bands has the printed noise, and truncated batches at the printed (epsilon, delta).

The paper names its C by its bands and its objective. What its noise multiplier of 0.627 for cyclic Poisson sampling
depends on, besides the numbers that are printed, is how C is scaled, and how the run was accounted for. Neither is
published; this is a search for what is consistent with it.
"""

import hockeystick as hs
from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check, Output

from .production import CYCLIC_RATE, CYCLIC_SIGMA, DELTA, EPSILON, EXAMPLES, MIN_SEP, STEPS, TRUNCATED, first_one

TURNS = -(-STEPS // MIN_SEP)
GROUP = EXAMPLES // MIN_SEP
"""Examples of a group of cyclic Poisson sampling."""
FULL_RATE = TRUNCATED / GROUP
"""The rate of a group if batches were drawn to have the truncated size on average."""


def cyclic(rate: float, turns: int = TURNS, truncated: bool = False) -> hs.Mechanism:
    """A group of cyclic Poisson sampling: independent turns, as 256 bands and 256 groups share no row."""
    cut = {"truncated_batch_size": TRUNCATED, "num_examples": GROUP} if truncated else {}
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=turns, **cut))


CANDIDATES: tuple[tuple[str, hs.Mechanism, str], ...] = (
    ("exact accounting", cyclic(CYCLIC_RATE), "direct"),
    ("exact accounting, 28 turns", cyclic(CYCLIC_RATE, TURNS - 1), "direct"),
    ("exact accounting, truncated batches", cyclic(CYCLIC_RATE, truncated=True), "direct"),
    ("exact accounting at the rate of the truncated size", cyclic(FULL_RATE), "direct"),
    ("Renyi accounting", cyclic(CYCLIC_RATE), "renyi"),
    ("Renyi accounting at the rate of the truncated size", cyclic(FULL_RATE), "renyi"),
)
"""For columns of norm 1. sigma is proportional to the norm."""


def scaling(output: Output) -> None:
    """sigma of every candidate, and the norm of the columns that would make it the printed one."""
    rows = []
    for what, mechanism, method in CANDIDATES:
        output.deadline.tick()
        sigma = hs.calibrate(mechanism, epsilon=EPSILON, delta=DELTA, method=method).sigma
        rows.append([what, f"{sigma:.4f}", f"{CYCLIC_SIGMA / sigma:.3f}"])
    header = ["candidate", "sigma_at_norm_1", "norm_for_printed_sigma"]
    output.table("scaling", header, rows)
    output.lines += [f"{what}: sigma = {sigma} at norm 1; 0.627 at norm {norm}" for what, sigma, norm in rows]
    output.lines += [f"the optimal C of 256 bands, scaled to first coefficient 1, has norm {first_one():.3f}"]


def truncated_check() -> Check:
    """What cut batches cost cyclic Poisson sampling at (10, 1.301e-8), without samples: the ratio of the noise.

    For 0.627 to be the noise of columns of norm 1, it would have to be 1.091.
    """
    plain, cut = (
        hs.calibrate(cyclic(CYCLIC_RATE, truncated=truncated), epsilon=EPSILON, delta=DELTA, method="direct").sigma
        for truncated in (False, True)
    )
    quotient = cut / plain
    return judge(
        "production: noise of truncated over untruncated cyclic Poisson sampling, exact accounting",
        "~",
        f"{CYCLIC_SIGMA / plain:.3f}",
        upper=quotient * 1.001,
        lower=quotient * 0.999,
        why="truncation alone cannot explain 0.627: C has columns of another norm, or the accounting is another",
    )
