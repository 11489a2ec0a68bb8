"""Tests whether what a mechanism releases is as private as its certificate says."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hockeystick.audit.betting import Bets
from hockeystick.audit.ratios import Ratio, ratio_of
from hockeystick.audit.sampling import check_level
from hockeystick.audit.verdict import EpsilonInterval, Finding, Verdict
from hockeystick.calls import called
from hockeystick.certificate import Certificate, Interval
from hockeystick.certification.issue import certify
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError, shortened
from hockeystick.mechanism import Mechanism, expect_mechanism
from hockeystick.spec import real_number
from hockeystick.training.run import Run

Steps = Iterable[tuple[ArrayLike, ArrayLike]]
LOOKS = 100
"""How often the bets are looked at, about."""
MOST_AT_ONCE = 10_000
"""Pairs that are drawn between two looks, at most, or one run if that has more: a deadline loses no more."""
Source = Callable[[int, np.random.Generator], Steps]
"""From a number of examples and a generator to the batch and the noise of every step of one run: noise for as many
parameters as there are examples, in clipping norms."""


@called("hs.audit.mechanism(run, certificate=certificate)")
def mechanism(
    mechanism: Mechanism,
    *,
    certificate: Certificate | None = None,
    delta: float | None = None,
    samples: int = 20_000,
    level: float = 1e-3,
    rng: np.random.Generator | None = None,
    examples: int | None = None,
    source: Source | None = None,
    deadline: Deadline | None = None,
) -> Verdict:
    """Audit a certificate with the sampler and the noise that run, without a model.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
    >>> verdict = hs.audit.mechanism(run, delta=0.01, samples=20_000, rng=np.random.default_rng(0))
    >>> verdict.refuted
    False
    >>> 0.5 * verdict.epsilon.upper < verdict.epsilon.audited < verdict.epsilon.upper
    True

    Every example has a parameter of its own, on which its gradient is 1, and the examples of one user share theirs: the
    worst case of the dominating pair. One run with all of them and one in which all are ghosts give an output with, and
    one without, each example. The optimal log-likelihood ratio of the pair tells them apart, and bets on it test every
    epsilon in turn. Where batches are cut, it is that of a run without cuts in which nobody else has a gradient, and a
    bet is on the mean over all examples of a run, which are not independent.

    Formal guarantee: except with probability ``level``, the audited epsilon is a lower bound on that of what was run,
    at this delta, however many samples were drawn (docs/theory/audits.md). This assumes that examples are treated alike
    and independently of one another, as all mechanisms that can be audited claim; with ``examples=1`` it assumes
    nothing but independent runs. It stops as soon as the bound reaches the certificate's upper end. A bound that stays
    below shows only what so many samples can show: small deltas need many.

    Args:
        mechanism: has a noise multiplier.
        certificate: of this mechanism, about epsilon; one is issued where it is None.
        delta: for that certificate; given exactly where there is none.
        samples: pairs of outputs to draw, at most.
        level: between 0 and 1.
        rng: seeds the runs; None for a fresh seed of the operating system.
        examples: in every run, rounded up to what the sampler takes; None for some hundreds, or as many as the sampler
            says. Memory is steps times that, or times 4,000 if that is less.
        source: the sampler and the noise of other code, in place of :class:`hockeystick.training.Run`.
        deadline: ends drawing early, with what was drawn so far.

    Raises: UnsupportedError, naming the pair, where no likelihood ratio is available; InvalidInputError for a
    certificate of another mechanism, or about delta, and for arguments out of range.
    """
    check_level(level)
    expect_mechanism(mechanism)
    for name, value in (("samples", samples), ("examples", examples)):
        if value is not None and real_number(name, value) < 1:
            raise InvalidInputError(f"The {name!r} argument must be at least 1. Got {shortened(value)} instead.")
    ratio = ratio_of(mechanism)
    claim = _certificate(mechanism, certificate, delta)
    generator = np.random.default_rng() if rng is None else rng
    runs = _watched(source or _own(mechanism), deadline)
    driver = _Driver(mechanism, ratio, ratio.fitting(examples), runs, generator)
    bets = Bets(claim.upper, claim.delta, level)
    while bets.pairs < samples and not bets.refuted:
        try:
            if ratio.size is not None:
                bets.observe_mean(driver.run(True), driver.run(False))
            else:
                wanted = min(samples - bets.pairs, max(min(-(-samples // LOOKS), MOST_AT_ONCE), len(driver.who)))
                bets.observe(driver.log_ratios(True, wanted), driver.log_ratios(False, wanted))
        except BudgetExceededError:
            break
    says = "What is released reveals more than its certificate says."
    return Verdict(
        about="mechanism",
        claimed=mechanism.model_dump(mode="json"),
        level=level,
        samples=bets.pairs,
        findings=(Finding(name="certificate", broken=bets.refuted, evidence=bets.evidence, says=says),),
        epsilon=EpsilonInterval(audited=bets.audited, lower=claim.lower, upper=claim.upper, delta=claim.delta),
    )


@dataclass(frozen=True)
class _Claim:
    lower: float | None
    upper: float
    delta: float


def _certificate(mechanism: Mechanism, certificate: Certificate | None, delta: float | None) -> _Claim:
    """The claimed interval."""
    if (certificate is None) == (delta is None):
        raise InvalidInputError("Give either the 'certificate' or the 'delta' argument.")
    if certificate is None:
        certificate = certify(mechanism, delta=delta)
    elif certificate.mechanism != mechanism.pinned():
        raise InvalidInputError("The 'certificate' argument must be about this mechanism; it is about another one.")
    interval, at = certificate.epsilon, certificate.delta
    if not isinstance(interval, Interval) or isinstance(at, Interval):
        raise InvalidInputError("The 'certificate' argument must bound epsilon at a delta, not delta at an epsilon.")
    return _Claim(lower=interval.lower, upper=interval.upper, delta=at)


def _own(mechanism: Mechanism) -> Source:
    """The batches and the noise of this library, as a training loop gets them."""

    def steps(examples: int, rng: np.random.Generator) -> Steps:
        run = Run(mechanism, num_examples=examples, shape=examples, rng=rng)
        for batch in run.batches():
            noise = run.noise(batch)
            assert noise is not None  # the run has a shape
            yield batch, noise / (run.norm_steps or 1)

    return steps


def _watched(source: Source, deadline: Deadline | None) -> Source:
    """The same runs, each of whose steps is reported to the deadline."""

    def steps(examples: int, rng: np.random.Generator) -> Steps:
        for step in source(examples, rng):
            if deadline is not None:
                deadline.tick()
            yield step

    return steps


@dataclass(frozen=True, eq=False)
class _Driver:
    """Runs with all examples, or with ghosts, the examples of each user on a parameter of its own."""

    mechanism: Mechanism
    ratio: Ratio
    examples: int
    source: Source
    rng: np.random.Generator

    @cached_property
    def who(self) -> NDArray[np.int64]:
        """The examples that the pair is about, shape (users, examples of one user)."""
        return self.ratio.who(self.examples)

    @cached_property
    def user(self) -> NDArray[np.int64]:
        """The row of each example in ``who``, or the number of rows if it is in none."""
        rows = np.full(self.examples, len(self.who))
        rows[self.who] = np.arange(len(self.who))[:, None]
        return rows

    def log_ratios(self, present: bool, count: int) -> NDArray[np.float64]:
        """``log P/Q`` of so many outputs, each a parameter of a user whom the pair is about."""
        runs = [self.run(present) for _ in range(-(-count // len(self.who)))]
        return np.concatenate(runs)[:count]

    def run(self, present: bool) -> NDArray[np.float64]:
        """``log P/Q`` of the outputs of one run, shape (users,)."""
        users = len(self.who)
        released = np.zeros((self.mechanism.matrix.steps, users))
        step = -1
        for step, (batch, noise) in enumerate(self.source(self.examples, self.rng)):
            if step == len(released):
                break
            released[step] = np.asarray(noise, dtype=np.float64)[self.who[:, 0]]
            if present:
                taken = self.user[np.asarray(batch, dtype=np.int64)]
                released[step] += np.bincount(taken, minlength=users + 1)[:users]
        if step != len(released) - 1:
            raise InvalidInputError(
                f"The 'source' argument must make runs of {len(released)} steps, as many as the mechanism has."
            )
        return self.ratio.log_ratios(self.mechanism.matrix.dot(released) / self.mechanism.sigma)
