"""Section 7.4: a production run, without and with truncated batches."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, log1p
from time import monotonic

import numpy as np
from scipy.optimize import brentq, minimize_scalar

import hockeystick as hs
from hockeystick.deadline import Deadline
from hockeystick.execution import executor
from hockeystick.monte_carlo.confidence import samples_needed
from hockeystick.monte_carlo.families import family_of
from hockeystick.pairs.registry import dominating_pair
from hockeystick.reproduction.curves import judge
from hockeystick.reproduction.papers import Check, Output
from hockeystick.settings import MonteCarlo

from .runs import FAILURE, SEED

STEPS, MIN_SEP, BATCH, TRUNCATED, EXAMPLES = 7200, 256, 1793, 2048, 14_745_600
RATE = BATCH / EXAMPLES
EPSILON, DELTA, SIGMA = 10.0, 1.301e-8, 0.47
CYCLIC_SIGMA, POISSON_SIGMA = 0.627, 0.368
CYCLIC_RATE = RATE * MIN_SEP
"""Of a group of cyclic Poisson sampling, when it has its turn."""
PUBLISHED_SAMPLES, PUBLISHED_CPU_DAYS = 7.5e9, 300.0
BANDS = 6
"""The paper does not give C, only that it has 256 bands: here the first six coefficients of the square root of the
prefix sums, not normalised."""
REACHABLE = 1.0
"""An epsilon at which delta is about 0.01: the naive proposal, the only one for truncated batches, settles it in
about a minute."""
SECONDS = 60.0


@dataclass(frozen=True)
class Case:
    """A production run, and the epsilon at which its delta is bounded."""

    name: str
    sampler: hs.BMinSep
    epsilon: float
    ratio: float

    @property
    def mechanism(self) -> hs.Mechanism:
        return hs.Mechanism(strategy=hs.BandedSquareRoot(bands=BANDS), sampler=self.sampler, noise_multiplier=SIGMA)


PLAIN = Case(
    name="plain",
    sampler=hs.BMinSep(min_sep=MIN_SEP, sampling_prob=RATE, steps=STEPS),
    epsilon=EPSILON,
    ratio=0.3,
)
CAPPED = Case(
    name="truncated",
    sampler=hs.BMinSep(
        min_sep=MIN_SEP, sampling_prob=RATE, steps=STEPS, truncated_batch_size=TRUNCATED, num_examples=EXAMPLES
    ),
    epsilon=REACHABLE,
    ratio=1.0,
)


@dataclass(frozen=True)
class Found:
    """Bounds on delta, and what they took."""

    lower: float
    upper: float
    samples: int
    seconds: float
    proposals: str


def account(case: Case, deadline: Deadline, seconds: float = SECONDS) -> Found:
    """Monte Carlo bounds; whatever they are when the time is over."""
    options = MonteCarlo(failure_probability=FAILURE, ratio=case.ratio, seed=SEED, executor=executor("local"))
    share, started = Deadline(min(seconds, deadline.remaining()), deadline.on_tick), monotonic()
    certificate = hs.certify(
        case.mechanism, method="monte_carlo", monte_carlo=options, deadline=share, epsilon=case.epsilon
    )
    lower, upper = certificate.bounds.lower or 0.0, certificate.bounds.upper
    runs = () if certificate.monte_carlo is None else certificate.monte_carlo.runs
    proposals = " + ".join(dict.fromkeys(f"{one.run.proposal} ({one.run.direction.value})" for one in runs))
    samples = sum(one.chunks * one.run.chunk_size for one in runs)
    return Found(lower, upper, samples, monotonic() - started, proposals)


def naive_rate(case: Case, deadline: Deadline, seconds: float = 2.0) -> float:
    """Samples a second that the naive proposal draws on one core, compiled already."""
    pair = dominating_pair(case.mechanism)
    proposal = family_of(pair).propose(pair, hs.Direction.REMOVE, EPSILON)[-1]
    rng = np.random.Generator(np.random.SFC64(SEED))
    log_weights, losses = np.empty(256), np.empty(256)
    proposal.draw(rng, log_weights[:4], losses[:4])
    started, drawn = monotonic(), 0
    while monotonic() - started < seconds:
        proposal.draw(rng, log_weights, losses)
        drawn += losses.size
        deadline.tick()
    return drawn / (monotonic() - started)


def production(output: Output, seconds: float = SECONDS) -> None:
    """Bounds, samples and seconds of both forms, beside what the naive estimator would take for the same."""
    rows = []
    for case in (PLAIN, CAPPED):
        rate, found = naive_rate(case, output.deadline), account(case, output.deadline, seconds)
        naive = naive_samples(found)
        rows.append(
            [
                case.name,
                f"delta at epsilon = {case.epsilon:g}",
                f"{found.lower:.4g}",
                f"{found.upper:.4g}",
                f"{FAILURE:g}",
                found.samples,
                f"{found.seconds:.1f}",
                found.proposals,
                f"{rate:.0f}",
                f"{naive:.2g}",
                f"{naive / rate / 86400.0:.2g}",
            ]
        )
    header = [
        "form",
        "what",
        "lower",
        "upper",
        "failure_probability",
        "samples",
        "seconds",
        "proposals",
        "naive_samples_per_second_and_core",
        "naive_samples_for_the_same",
        "naive_core_days_for_the_same",
    ]
    output.table("production", header, rows)
    for row in rows:
        output.lines += [f"{name:<36}{value}" for name, value in zip(header, row, strict=True)]
    output.lines.append(
        f"assumed: C = the first {BANDS} square-root coefficients, not normalised; the paper does not publish its C. "
        f"Truncated batches have the naive proposal alone, so that delta is bounded at epsilon = {REACHABLE:g}."
    )


def naive_samples(found: Found) -> float:
    """Samples that the naive estimator would need for an interval as narrow: its variables are at most 1."""
    if not 0.0 < found.lower < found.upper < 1.0:
        return float("nan")
    width = (found.upper / found.lower) ** 0.5 - 1.0
    return float(samples_needed(1.0 / found.upper, 1.0 / found.upper, width, 0.5 * FAILURE))


# --- printed numbers --------------------------------------------------------------------------------------------------


def verification_samples(delta: float, fraction: float) -> float:
    """The fewest samples for Algorithm 5 with delta' = fraction * delta and the Chernoff-KL bound to end at delta."""

    def total(samples: float) -> float:
        def at(level: float) -> float:
            failure = exp(-samples * divergence(fraction * delta, level * delta))
            return (level * delta + failure * (1.0 - level * delta)) / delta

        return float(minimize_scalar(at, bounds=(fraction, 1.0), method="bounded", options={"xatol": 1e-9}).fun)

    return float(brentq(lambda samples: total(samples) - 1.0, 1.0 / delta, 1e5 / delta, rtol=1e-6))


def divergence(one: float, other: float) -> float:
    """Between coins with these probabilities."""
    return one * log(one / other) + (1.0 - one) * (log1p(-one) - log1p(-other))


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
    therefore between those of DP-SGD with 28 and with 29 turns, whatever the coefficients. The printed sigma is that
    of truncated batches, and can only be larger.
    """
    turns = -(-STEPS // MIN_SEP)
    fewest, most = (
        hs.Mechanism(sampler=hs.Poisson(sampling_prob=CYCLIC_RATE, steps=steps)) for steps in (turns - 1, turns)
    )
    assumed = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=BANDS),
        sampler=hs.CyclicPoisson(groups=MIN_SEP, sampling_prob=CYCLIC_RATE, steps=STEPS),
    )
    length = float(np.linalg.norm(assumed.with_noise(1.0).matrix.toeplitz_column[:BANDS]))
    of_one = noise_needed(fewest, calibrate)[0], noise_needed(most, calibrate)[1]
    checks = []
    for norm, (lower, upper) in ((1.0, of_one), (length, noise_needed(assumed, calibrate))):
        what = f"production: sigma of cyclic Poisson sampling without truncation, columns of norm {norm:.4g}"
        why = f"from {lower:.4g} to {upper:.4g}: the C assumed here is not the paper's, or not scaled like it"
        checks.append(judge(what, "<=", f"{CYCLIC_SIGMA}", upper=upper, lower=lower, why=why))
    return checks


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
