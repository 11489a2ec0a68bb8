"""The noise multipliers behind Figures 4 and 5, whose training runs are not repeated here.

Nothing that rests on Theorem 6.1 becomes a bound: what the paper would claim for users who share examples is shown
beside the valid bound, as refuted.
"""

from collections.abc import Callable, Sequence
from math import ceil, sqrt

import hockeystick as hs
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.mechanism import Unit
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.reproduction.papers import Check, Output
from hockeystick.settings import DEFAULT_WORK

LENGTH, STEPS, EXAMPLES = 300, 1500, 90_000
"""Figure 4: CINIC-10 has 90,000 training images; the paper gives the other numbers."""
BANDS, EPSILONS = (2, 4, 8, 16, 32, 64), (0.5, 1.0, 2.0, 4.0, 8.0)
BINS_BANDS, FAR = 16, 150
"""Of the strategies for balls-in-bins and b-min-sep, and the min_sep of the latter."""
PAPERS, BATCH, RUN, PER_USER, PAPERS_DELTA = 300_000, 1024, 1000, 2, 2e-6
"""Figure 5."""
PAPERS_EPSILONS, PAPERS_BANDS = (1.0, 2.0, 4.0, 8.0, 16.0), (2, 4, 8, 16, 32)
APART, PARTICIPATIONS = 128, 7
"""Of BandMF without amplification."""
BUDGET = 20.0
"""Seconds of work for the noise multiplier of balls-in-bins."""
SEED = 2026
"""Of the samples that verify b-min-sep. A run that is released draws its own."""


def learning_noise(
    output: Output,
    epsilons: Sequence[float] = EPSILONS,
    bands: Sequence[int] = BANDS,
    papers: Sequence[float] = PAPERS_EPSILONS,
    budget: float = BUDGET,
    sampled: bool = True,
) -> None:
    """Certified noise for columns of norm 1, by sampling scheme; that of b-min-sep is verified by samples."""
    delta, rows = 1.0 / (2.0 * EXAMPLES), []
    for epsilon in epsilons:
        for scheme, mechanism, method in runs(bands):
            samples = hs.MonteCarlo(seed=SEED) if sampled and method == "monte_carlo" else None

            def noise(
                mechanism: hs.Mechanism = mechanism,
                epsilon: float = epsilon,
                method: str | None = method if samples or method != "monte_carlo" else None,
                samples: hs.MonteCarlo | None = samples,
            ) -> tuple[float, str]:
                seconds = None if method else budget
                certificate = hs.calibrate_and_certify(
                    mechanism, epsilon=epsilon, delta=delta, method=method, budget=seconds, monte_carlo=samples
                )
                return certificate.mechanism.sigma, rests_on(certificate)

            name = f"noise by method {scheme} {epsilon:g} {budget:g} {samples is not None}"
            needed, status = output.kept.value(name, noise)
            rows.append(["figure-4", scheme, f"{epsilon:g}", f"{needed:.4f}", status])
    for epsilon in papers:
        for scheme, sigma, status in users_noise(epsilon):
            output.deadline.tick()
            rows.append(["figure-5", scheme, f"{epsilon:g}", f"{sigma:.4f}", status])
    output.table("learning-noise", ["figure", "scheme", "epsilon", "noise_multiplier", "status"], rows)
    output.lines += ["  ".join(row) for row in rows]


def rests_on(certificate: hs.Certificate) -> str:
    """What the noise multiplier rests on; where samples would take too long, the least budget with which they help."""
    if certificate.monte_carlo is not None:
        return "certified by samples"
    needed = [left.seconds for left in certificate.cut_off if left.method == "monte_carlo"]
    return f"certified; samples need a budget of about {DEFAULT_WORK + max(needed):.0f} s" if needed else "certified"


def runs(bands: Sequence[int]) -> list[tuple[str, hs.Mechanism, str | None]]:
    """Figure 4's schemes. Of a C with as many groups as bands only the norm of the columns matters."""
    schemes: list[tuple[str, hs.Mechanism, str | None]] = [
        ("DP-SGD, Poisson", hs.Mechanism(sampler=hs.Poisson(sampling_prob=1 / LENGTH, steps=STEPS)), "direct")
    ]
    for count in bands:
        turns = hs.Poisson(sampling_prob=count / LENGTH, steps=ceil(STEPS / count))
        schemes.append((f"cyclic Poisson, {count} bands", hs.Mechanism(sampler=turns), "direct"))
    strategy = hs.BandedToeplitz(bands=BINS_BANDS)
    bins = hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=LENGTH, epochs=STEPS // LENGTH))
    apart = hs.BMinSep(min_sep=FAR, sampling_prob=1 / LENGTH, steps=STEPS)
    schemes.append((f"balls-in-bins, {BINS_BANDS} bands", bins, None))
    schemes.append(
        (f"{FAR}-min-sep, {BINS_BANDS} bands", hs.Mechanism(strategy=strategy, sampler=apart), "monte_carlo")
    )
    return schemes


def users_noise(epsilon: float) -> list[tuple[str, float, str]]:
    """Figure 5's schemes for users who share examples: what is certified for each."""
    schemes = [(f"DP-SGD, groups of {PER_USER}", group_noise(epsilon), "certified")]
    alone = gaussian_noise(sqrt(PARTICIPATIONS), epsilon)
    schemes.append((f"BandMF without amplification, {APART} apart, {PARTICIPATIONS} times", alone, "certified"))
    for count in PAPERS_BANDS:
        unamplified = gaussian_noise(PER_USER * sqrt(ceil(RUN / count)), epsilon)
        schemes.append(
            (f"{count}-min-sep by user, Algorithm 3, shared examples", unamplified, "certified, unamplified")
        )
    return schemes


def gaussian_noise(sensitivity: float, epsilon: float) -> float:
    """The least noise without amplification, to 1e-4."""
    return least(lambda sigma: gaussian_delta(sigma, sensitivity, epsilon, hs.Side.UPPER) <= PAPERS_DELTA)


def group_noise(epsilon: float) -> float:
    """The least noise of Poisson sampling for a group of PER_USER examples."""
    unit = Unit(kind="user", examples_per_user=PER_USER)
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=BATCH / PAPERS, steps=RUN), unit=unit)
    return hs.calibrate(run, epsilon=epsilon, delta=PAPERS_DELTA, method="direct").sigma


def least(enough: Callable[[float], bool], low: float = 1e-2, high: float = 1e3) -> float:
    """Bisection in logarithms, from above."""
    while high > low * (1.0 + 1e-3):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --- as published, refuted --------------------------------------------------------------------------------------------


def published_checks(sigma: float = 2.0, bands: int = 16) -> list[Check]:
    """Figure 5's guarantee by Theorem 6.1, which is refuted, beside the valid bound for the same noise."""
    run = hs.Mechanism(
        strategy=hs.BandedToeplitz(bands=bands),
        sampler=hs.MultiAttribution(
            min_sep=bands,
            sampling_prob=BATCH / PAPERS,
            steps=RUN,
            examples_per_user=PER_USER,
            users_per_example=PER_USER,
        ),
        noise_multiplier=sigma,
    )
    valid = hs.certify(run, delta=PAPERS_DELTA).epsilon.upper
    published = hs.privacy(as_published(run), delta=PAPERS_DELTA)
    what = f"AS PUBLISHED, REFUTED: epsilon of Algorithm 3 by Theorem 6.1, shared examples, b={bands}, sigma={sigma:g}"
    note = f"no guarantee; published from {published.lower:.4g} to {published.upper:.4g}, valid: at most {valid:.4g}"
    return [Check(what, "<=", published.upper, valid, False, note)]


def as_published(run: hs.Mechanism) -> RenewalMixture:
    """The pair of Theorem 6.1. It is refuted for users who share examples: no certificate can be made of a pair."""
    sampler = run.sampler
    assert isinstance(sampler, hs.MultiAttribution)
    return RenewalMixture(
        noise_multiplier=run.sigma,
        matrix=run.matrix,
        min_sep=sampler.min_sep,
        participation_prob=sampler.sampling_prob,
        warm_start=False,
        examples_per_user=sampler.examples_per_user,
    )
