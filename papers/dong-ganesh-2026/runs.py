"""The mechanisms of the paper, and how much noise they need: estimated, bracketed with proofs, or exact."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

import numpy as np

import hockeystick as hs
from hockeystick.bounds import Question
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.execution import executor
from hockeystick.monte_carlo.families import family_of
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import MonteCarlo
from hockeystick.strategies.error import mean_error, prefix_sums

STEPS, DELTA = 1024, 1e-3
"""Section 7.1."""
SEED = 20260209
FAILURE = 1e-6
"""Of each certified interval."""
RATIO = 0.3
"""Of an interval's ends in delta."""
SECONDS = 20.0
"""For one interval; what it has by then is still a bound."""
DRAFT = 16_000
"""Samples of a draft."""
AIM = 0.8
"""Noise is sought where delta is about this multiple of the target, or the target this multiple of delta."""
TRIES = 4

Run = Callable[[float], hs.Mechanism]


# --- mechanisms -------------------------------------------------------------------------------------------------------


def strategy(bands: int) -> hs.BandedToeplitz:
    """The banded Toeplitz matrix that minimises the error without amplification, scaled to column norm 1."""
    return hs.BandedToeplitz(bands=bands)


def error(bands: int, steps: int = STEPS) -> float:
    """Mean squared error of the prefix sums at noise multiplier 1."""
    return mean_error(strategy(bands).matrix(steps), prefix_sums(steps))


def b_min_sep(bands: int, min_sep: int, length: int, steps: int = STEPS) -> Run:
    """Warm b-min-sep subsampling at rate 1 / length; balls-in-bins, which it then is, for ``min_sep = length``."""
    sampler: hs.BMinSep | hs.BallsInBins = (
        hs.BallsInBins(bins=length, epochs=steps // length)
        if min_sep == length
        else hs.BMinSep(min_sep=min_sep, sampling_prob=1.0 / length, steps=steps)
    )
    return lambda sigma: hs.Mechanism(strategy=strategy(bands), sampler=sampler, noise_multiplier=sigma)


def cyclic_poisson(bands: int, length: int, steps: int = STEPS) -> Run:
    """What cyclic Poisson sampling over as many groups as bands amounts to, for a Toeplitz C with column norm 1.

    The first group is the worst. Its participations are ``bands`` apart, so that their columns do not overlap: each is
    a Poisson-sampled Gaussian of sensitivity at most the column norm, at ``bands`` times the rate. That is exact where
    ``bands`` divides the number of steps, as then no column of the group is cut off at the end.
    """
    sampler = hs.Poisson(sampling_prob=bands / length, steps=-(-steps // bands))
    scale = strategy(bands).matrix(steps).max_column_norm
    return lambda sigma: hs.Mechanism(sampler=sampler, noise_multiplier=sigma / scale)


# --- noise ------------------------------------------------------------------------------------------------------------


def cyclic_noise(bands: int, length: int, epsilon: float, steps: int = STEPS) -> float:
    """The noise multiplier that is certified for (epsilon, DELTA), to 0.1 percent."""
    mechanism = cyclic_poisson(bands, length, steps)(1.0)
    found = hs.calibrate(mechanism.model_copy(update={"noise_multiplier": None}), epsilon=epsilon, delta=DELTA)
    return found.sigma * strategy(bands).matrix(steps).max_column_norm


def draft_delta(mechanism: hs.Mechanism, epsilon: float) -> float:
    """An estimate of delta in the remove direction by naive samples, which cannot miss what matters: no bound."""
    pair = dominating_pair(mechanism)
    proposal = family_of(pair).propose(pair, hs.Direction.REMOVE, epsilon)[-1]
    log_weights, losses = np.empty(DRAFT), np.empty(DRAFT)
    proposal.draw(np.random.Generator(np.random.SFC64(SEED)), log_weights, losses)
    return float(np.mean(-np.expm1(np.minimum(epsilon - losses, 0.0))))


@dataclass(frozen=True)
class Draft:
    """A noise multiplier that should do, and how delta changes with it: ``-d log delta / d log sigma``."""

    sigma: float
    slope: float


def draft_noise(run: Run, epsilon: float, start: float, deadline: Deadline) -> Draft:
    """Where the drafts say that delta is DELTA, to about a percent, by secants in logarithms. Nothing is proved."""
    sigma, slope = start, 8.0
    seen: list[tuple[float, float]] = []
    for _ in range(8):
        deadline.tick()
        delta = draft_delta(run(sigma), epsilon)
        miss = log(max(delta, 1e-9) / DELTA)
        if seen:
            before, other = seen[-1]
            if before != sigma:
                slope = min(max(-(miss - other) / log(sigma / before), 2.0), 40.0)
        if abs(miss) < 0.03:
            break
        seen.append((sigma, miss))
        sigma *= exp(min(max(miss / slope, -0.35), 0.35))
    return Draft(sigma, slope)


@dataclass(frozen=True)
class Bracket:
    """``lower`` is shown not to be enough noise, ``upper`` to be enough; each fails with probability FAILURE."""

    lower: float
    upper: float


def interval(
    mechanism: hs.Mechanism, epsilon: float, deadline: Deadline, *, ratio: float = RATIO, seconds: float | None = None
) -> tuple[float, float]:
    """Monte Carlo bounds on delta, both together with probability 1 - FAILURE; (0, 1) when there was no time."""
    options = MonteCarlo(failure_probability=FAILURE, ratio=ratio, seed=SEED, executor=executor("local"))
    share = Deadline(min(SECONDS if seconds is None else seconds, deadline.remaining()), deadline.on_tick)
    settings = hs.Settings(hs.Resolution(24, DELTA), share, Question(epsilon=epsilon), options)
    try:
        lower, upper = (
            hs.bound(mechanism, "monte_carlo", side=side, settings=settings).delta(epsilon)
            for side in (hs.Side.LOWER, hs.Side.UPPER)
        )
    except BudgetExceededError:
        return 0.0, 1.0
    return lower, upper


def bracketed_noise(run: Run, epsilon: float, draft: Draft, deadline: Deadline) -> Bracket:
    """Certified ends around a draft, a few percent apart; 0 or infinity where TRIES were not enough for an end."""
    low, high = 0.0, float("inf")
    aims = {hs.Side.UPPER: AIM * DELTA, hs.Side.LOWER: DELTA / AIM}
    for side, aim in aims.items():
        sigma = draft.sigma * exp(log(DELTA / aim) / draft.slope)
        for _ in range(TRIES):
            below, above = interval(run(sigma), epsilon, deadline)
            if above <= DELTA:
                high = min(high, sigma)
            if below >= DELTA:
                low = max(low, sigma)
            if (side is hs.Side.UPPER and above <= DELTA) or (side is hs.Side.LOWER and below >= DELTA):
                break
            if below <= 0.0 or above >= 1.0:
                break
            sigma *= exp(log((below * above) ** 0.5 / aim) / draft.slope)
    return Bracket(low, high)
