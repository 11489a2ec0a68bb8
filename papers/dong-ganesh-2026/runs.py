"""The mechanisms of the paper, and how much noise they need: estimated, bracketed with proofs, or exact."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from scipy.optimize import brentq

import hockeystick as hs
from hockeystick.bounds import Question
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.execution import executor
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.renewal.family import NaiveRenewal
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.settings import MonteCarlo
from hockeystick.strategies.error import mean_error, prefix_sums

STEPS, DELTA = 1024, 1e-3
"""Section 7.1."""
SEED = 20260209
FAILURE = 1e-6
"""Of each certified interval."""
RATIO = 0.5
"""Of an interval's ends in delta."""
DRAFT, REFINED = 16_000, 120_000
"""Samples of a draft, and of the draft that is shown."""
AIM = 0.72
"""Noise is sought where delta is about this multiple of the target, or the target this multiple of delta."""
TRIES = 8

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


ISSUED = 1e-6
"""Far above the share of delta by which the bound of a certificate may be larger: other lines, and its rounding."""


@dataclass(frozen=True)
class Bracket:
    """``lower`` is shown not to be enough noise, ``upper`` to be enough; each fails with probability FAILURE."""

    lower: float
    upper: float


def cyclic_noise(bands: int, length: int, epsilon: float, steps: int = STEPS) -> Bracket:
    """The least noise for (epsilon, DELTA) from both sides, by laws: a fraction of a percent apart."""
    run = cyclic_poisson(bands, length, steps)

    def excess(log_sigma: float, side: hs.Side) -> float:
        settings = hs.Settings(hs.Resolution(48, DELTA))
        delta = hs.bound(run(exp(log_sigma)), "direct", side=side, settings=settings).delta(epsilon)
        return log(max(delta, 1e-12) / DELTA)

    middle = brentq(lambda at: excess(at, hs.Side.UPPER), log(0.02), log(100.0), xtol=1e-4)
    low, high = middle, middle
    while excess(high, hs.Side.UPPER) > -ISSUED:
        high += 1e-4
    while excess(low, hs.Side.LOWER) <= 0.0:
        low -= 5e-4
    return Bracket(exp(low), exp(high))


def draft_delta(mechanism: hs.Mechanism, epsilon: float, samples: int = DRAFT) -> float:
    """An estimate of delta in the remove direction by naive samples, which cannot miss what matters: no bound."""
    pair = dominating_pair(mechanism)
    if isinstance(pair, RenewalMixture):
        proposal: Proposal = NaiveRenewal(direction=hs.Direction.REMOVE, pair=pair)
    else:
        proposal = family_of(pair).propose(pair, hs.Direction.REMOVE, epsilon)[-1]
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(np.random.Generator(np.random.SFC64(SEED)), log_weights, losses)
    return float(np.mean(-np.expm1(np.minimum(epsilon - losses, 0.0))))


@dataclass(frozen=True)
class Draft:
    """A noise multiplier that should do, and how delta changes with it: ``-d log delta / d log sigma``."""

    sigma: float
    slope: float


def draft_noise(run: Run, epsilon: float, start: Draft, deadline: Deadline) -> Draft:
    """Where the drafts say that delta is DELTA, to about a percent, by secants in logarithms. Nothing is proved."""
    sigma, slope = start.sigma, start.slope
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


def refined(run: Run, epsilon: float, draft: Draft, deadline: Deadline) -> float:
    """A draft's noise multiplier by more samples: its error is a half to one percent, mostly."""
    deadline.tick()
    delta = draft_delta(run(draft.sigma), epsilon, REFINED)
    return draft.sigma * exp(log(max(delta, 0.1 * DELTA) / DELTA) / draft.slope)


def interval(
    mechanism: hs.Mechanism, epsilon: float, deadline: Deadline, *, ratio: float = RATIO
) -> tuple[float, float]:
    """Monte Carlo bounds on delta, both together with probability 1 - FAILURE. No clock cuts them off."""
    options = MonteCarlo(failure_probability=FAILURE, ratio=ratio, seed=SEED, executor=executor("local"))
    settings = hs.Settings(hs.Resolution(24, DELTA), deadline, Question(epsilon=epsilon), options)
    return bounds_of(mechanism, epsilon, settings)


def bounds_of(mechanism: hs.Mechanism, epsilon: float, settings: hs.Settings) -> tuple[float, float]:
    """The lower and the upper bound of one estimation."""
    lower, upper = (
        hs.bound(mechanism, "monte_carlo", side=side, settings=settings).delta(epsilon)
        for side in (hs.Side.LOWER, hs.Side.UPPER)
    )
    return lower, upper


def bracketed_noise(run: Run, epsilon: float, draft: Draft, deadline: Deadline) -> Bracket:
    """Certified ends around a draft, a few percent apart.

    Raises: UnsupportedError where TRIES were not enough for an end.
    """
    low, high = 0.0, inf
    for side, aim in ((hs.Side.UPPER, AIM * DELTA), (hs.Side.LOWER, DELTA / AIM)):
        sigma = draft.sigma * exp(log(DELTA / aim) / draft.slope)
        for _ in range(TRIES):
            if (high if side is hs.Side.UPPER else low) not in (0.0, inf):
                break
            below, above = interval(run(sigma), epsilon, deadline)
            if above <= DELTA:
                high = min(high, sigma)
            if below >= DELTA:
                low = max(low, sigma)
            sigma *= exp(log((below * above) ** 0.5 / aim) / draft.slope)
    if not 0.0 < low < high < inf:
        raise UnsupportedError(f"The noise could not be bracketed in {TRIES} tries: from {low:g} to {high:g}.")
    return Bracket(low, high)
