"""Section 7.4: a production run with a C of 256 bands, without and with truncated batches: what is known of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import exp, log, log1p
from time import process_time

import numpy as np
from scipy.optimize import brentq, minimize_scalar

import hockeystick as hs
from hockeystick.accountants.deletion import cuts, with_cuts
from hockeystick.bounds import Question
from hockeystick.execution import executor
from hockeystick.monte_carlo.renewal.family import NaiveRenewal
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check, Output
from hockeystick.settings import MonteCarlo

from .runs import FAILURE, SEED, strategy

STEPS, MIN_SEP, BATCH, TRUNCATED, EXAMPLES = 7200, 256, 1793, 2048, 14_745_600
RATE = BATCH / EXAMPLES
EPSILON, DELTA, SIGMA = 10.0, 1.301e-8, 0.47
CYCLIC_SIGMA, POISSON_SIGMA = 0.627, 0.368
CYCLIC_RATE = RATE * MIN_SEP
"""Of a group of cyclic Poisson sampling, when it has its turn."""
PUBLISHED_SAMPLES, PUBLISHED_CPU_DAYS = 7.5e9, 300.0
BANDS = 256
"""Of the banded Toeplitz C that is optimal without amplification, which is the paper's objective, with columns of norm
1. Whether theirs is scaled so is not published."""
REACHABLE = 1.0
"""An epsilon at which samples find bounds. They find none at EPSILON, where delta is tiny and C has many bands."""
WORK = 5.0
"""Standard seconds of sampling for a side: the table does not depend on the machine or its load."""
SIMPLE = "split_noise"
"""The deterministic accountant that bounds this run."""


def run(*, truncated: bool = False) -> hs.Mechanism:
    """The production run at the printed noise."""
    cut = {"truncated_batch_size": TRUNCATED, "num_examples": EXAMPLES} if truncated else {}
    sampler = hs.BMinSep(min_sep=MIN_SEP, sampling_prob=RATE, steps=STEPS, **cut)
    return hs.Mechanism(strategy=strategy(BANDS), sampler=sampler, noise_multiplier=SIGMA)


@dataclass(frozen=True)
class Found:
    """Bounds on delta at one epsilon, by direction from above, and the samples behind them."""

    epsilon: float
    lower: float
    remove: float
    add: float
    samples: int = 0

    @property
    def upper(self) -> float:
        """Of both directions."""
        return max(self.remove, self.add)

    def with_cuts(self, mechanism: hs.Mechanism) -> "Found":
        """The upper bounds of the same run with truncated batches; nothing follows from below."""
        profiles = {hs.Direction.REMOVE: lambda epsilon: self.remove, hs.Direction.ADD: lambda epsilon: self.add}
        covered = with_cuts(profiles, dominating_pair(mechanism))
        ends = [covered[direction](self.epsilon) for direction in (hs.Direction.REMOVE, hs.Direction.ADD)]
        return Found(self.epsilon, 0.0, *ends, self.samples)


def deterministic(mechanism: hs.Mechanism, epsilon: float) -> Found:
    """Without sampling."""
    settings = hs.Settings(hs.Resolution(24, 0.1 * DELTA), question=Question(epsilon=epsilon))
    upper = hs.bound(mechanism, SIMPLE, side=hs.Side.UPPER, settings=settings)
    lower = hs.bound(mechanism, "linear_statistic", side=hs.Side.LOWER, settings=settings)
    return Found(epsilon, lower.delta(epsilon), *by_direction(upper, epsilon))


def sampled(mechanism: hs.Mechanism, epsilon: float, work: float, output: Output) -> Found:
    """By sampling, both sides together with probability 1 - FAILURE."""
    options = MonteCarlo(failure_probability=FAILURE, ratio=0.3, seed=SEED, executor=executor("local"))
    settings = hs.Settings(hs.Resolution(24, DELTA), output.deadline, Question(epsilon=epsilon), options, work=work)
    upper, lower = (hs.bound(mechanism, "monte_carlo", side=side, settings=settings) for side in SIDES)
    samples = sum(claimed.chunks * claimed.run.chunk_size for claimed in upper.claim.runs) if upper.claim else 0
    return Found(epsilon, lower.delta(epsilon), *by_direction(upper, epsilon), samples)


SIDES = (hs.Side.UPPER, hs.Side.LOWER)


def by_direction(bound: hs.Bound, epsilon: float) -> tuple[float, float]:
    """(remove, add)."""
    return bound.profiles[hs.Direction.REMOVE](epsilon), bound.profiles[hs.Direction.ADD](epsilon)


def seconds_of_a_sample(mechanism: hs.Mechanism, samples: int = 512) -> float:
    """Processor seconds of one core for a naive sample, which is what the paper draws; compiled already."""
    pair = dominating_pair(mechanism)
    assert isinstance(pair, RenewalMixture)
    proposal = NaiveRenewal(direction=hs.Direction.REMOVE, pair=pair)
    rng = np.random.Generator(np.random.SFC64(SEED))
    log_weights, losses = np.empty(samples), np.empty(samples)
    proposal.draw(rng, log_weights[:4], losses[:4])
    started = process_time()
    proposal.draw(rng, log_weights, losses)
    return (process_time() - started) / samples


def production(output: Output, work: float = WORK, calibrated: bool = True) -> None:
    """What is certain of the run with and without truncated batches, at the printed noise.

    Args:
        calibrated: whether to look for a noise that is enough, too.
    """
    plain, truncated = run(), run(truncated=True)
    rows: list[list[str]] = []

    def add(form: str, what: str, lower: str, upper: str, rests_on: str) -> None:
        rows.append([form, what, lower, upper, rests_on])

    def of_delta(interval: Found, rests_on: str) -> None:
        what = f"delta at epsilon = {interval.epsilon:g}, sigma = {SIGMA:g}"
        add("plain", what, f"{interval.lower:.3g}", f"{interval.upper:.3g}", rests_on)
        covered = interval.with_cuts(truncated)
        add("truncated", what, "", f"{covered.upper:.3g}", f"{rests_on}, and what cuts cost")

    pair = dominating_pair(truncated)
    assert isinstance(pair, TruncatedRenewal)
    chance, expected = cuts(pair)
    cost = chance + max(chance, min(exp(EPSILON) * chance, expected))
    add("truncated", f"delta at epsilon = {EPSILON:g} beyond that of plain batches", "", f"{cost:.3g}", "theorem")
    of_delta(deterministic(plain, EPSILON), f"linear_statistic, {SIMPLE}")
    key = f"production {REACHABLE:g} {work:g}"
    interval = Found(**output.kept.value(key, lambda: asdict(sampled(plain, REACHABLE, work, output))))
    of_delta(interval, f"{interval.samples} samples, fails with probability {FAILURE:g}")
    if calibrated:
        for form, mechanism in (("plain", plain), ("truncated", truncated)):
            output.deadline.tick()
            enough = hs.calibrate(mechanism, epsilon=EPSILON, delta=DELTA, method=SIMPLE).sigma
            add(form, f"sigma for ({EPSILON:g}, {DELTA:g})", "", f"{enough:.4g}", f"certified by {SIMPLE}")
    header = ["form", "what", "at_least", "at_most", "rests_on"]
    output.table("production", header, rows)
    output.lines += ["  ".join(text for text in row if text) for row in rows]
    days = seconds_of_a_sample(plain) * PUBLISHED_SAMPLES / 86400.0
    output.lines.append(
        f"C: optimal without amplification, {BANDS} bands, columns of norm 1; the paper does not publish its C. Its "
        f"{PUBLISHED_SAMPLES:g} samples would take {days:.0f} processor days here; it says {PUBLISHED_CPU_DAYS:g}."
    )


# --- printed numbers --------------------------------------------------------------------------------------------------


def verification_samples(delta: float, fraction: float) -> float:
    """The fewest samples for Algorithm 5 with delta' = fraction * delta and the Chernoff-KL bound to end at delta."""

    def total(samples: float) -> float:
        def at(level: float) -> float:
            failure = exp(-samples * divergence(fraction * delta, level * delta))
            return (level * delta + failure * (1.0 - level * delta)) / delta

        return float(minimize_scalar(at, bounds=(fraction, 1.0), method="bounded", options={"xatol": 1e-9}).fun)

    return float(brentq(lambda samples: total(samples) - 1.0, 1.0 / delta, 1e5 / delta, rtol=1e-6))


def divergence(rate: float, other: float) -> float:
    """Between coins with these probabilities."""
    return rate * log(rate / other) + (1.0 - rate) * (log1p(-rate) - log1p(-other))


def production_checks(calibrate: Callable[..., hs.Mechanism] = hs.calibrate) -> list[Check]:
    """The printed numbers that do not depend on C."""
    poisson = hs.Mechanism(sampler=hs.Poisson(sampling_prob=RATE, steps=STEPS))
    sigma = calibrate(poisson, epsilon=EPSILON, delta=DELTA).sigma
    samples = verification_samples(DELTA, 0.5)
    gap = (CYCLIC_SIGMA - SIGMA) / (CYCLIC_SIGMA - POISSON_SIGMA)
    why = "more by the paper's Appendix A with delta' = delta / 2 and a Chernoff bound in relative entropy"
    quotient = samples / PUBLISHED_SAMPLES
    return [
        judge("production: sigma of DP-SGD with Poisson sampling", "~", "0.368", upper=sigma, lower=sigma * (1 - 1e-3)),
        judge("production: noise saved over cyclic Poisson", "~", "0.25", **both(1.0 - SIGMA / CYCLIC_SIGMA)),
        judge("production: part of the gap to Poisson that is closed", "~", "0.6", **both(gap)),
        judge("production: samples of a verification / 7.5e9", "<=", "1", upper=quotient, lower=quotient, why=why),
    ]


def cyclic_checks(calibrate: Callable[..., hs.Mechanism] = hs.calibrate) -> list[Check]:
    """sigma of cyclic Poisson sampling without truncation: of C it depends on the norms of the columns alone.

    There are no more bands than groups, so the turns of a group share no row (docs/theory/subsets/reductions.md,
    Theorem 1). The last turn of the first group, the 29th, is cut after 32 of 256 rows. With columns of norm 1 sigma is
    therefore between those of DP-SGD with 28 and with 29 turns, whatever the coefficients, and in proportion to the
    norm. The printed sigma is that of truncated batches, and can only be larger.
    """
    turns = -(-STEPS // MIN_SEP)
    fewest, most = (
        hs.Mechanism(sampler=hs.Poisson(sampling_prob=CYCLIC_RATE, steps=steps)) for steps in (turns - 1, turns)
    )
    low, high = noise_needed(fewest, calibrate)[0], noise_needed(most, calibrate)[1]
    checks = []
    for norm, scaled in ((1.0, "columns of norm 1"), (first_one(), "first coefficient 1")):
        lower, upper = low * norm, high * norm
        what = f"production: sigma of cyclic Poisson sampling without truncation, {BANDS} bands, {scaled}"
        why = f"from {lower:.4g} to {upper:.4g}: the paper's C is not the optimal one, or not scaled so"
        checks.append(judge(what, "<=", f"{CYCLIC_SIGMA}", upper=upper, lower=lower, why=why))
    return checks


def first_one(bands: int = BANDS) -> float:
    """The column norm of the optimal banded Toeplitz matrix when its first coefficient is 1."""
    column = strategy(bands).matrix(4 * bands).toeplitz_column
    assert column is not None
    return float(np.linalg.norm(column)) / float(column[0])


def noise_needed(mechanism: hs.Mechanism, calibrate: Callable[..., hs.Mechanism]) -> tuple[float, float]:
    """Certified bounds on the least noise for EPSILON and DELTA: too little by a lower bound, and enough."""
    enough = calibrate(mechanism, epsilon=EPSILON, delta=DELTA).sigma
    for less in (1e-3, 3e-3, 1e-2):
        lower = hs.certify(mechanism.with_noise(enough * (1.0 - less)), epsilon=EPSILON, method="direct").bounds.lower
        if lower is not None and lower > DELTA:
            return enough * (1.0 - less), enough
    return 0.0, enough


def both(value: float) -> dict[str, float]:
    """A number that is computed, as its own bounds."""
    return {"upper": value, "lower": value}
