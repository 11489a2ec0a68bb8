"""What a user could change for a better answer, in one line each, where the user's choice is what limits it."""

from dataclasses import dataclass
from math import ceil

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.calibration.estimate_verify_release import METHOD, estimated_noise
from hockeystick.calibration.search import whole_certificate
from hockeystick.certificate import Certificate, CertificateBase, Interval, number
from hockeystick.certification.issue import certify_with
from hockeystick.deadline import Deadline
from hockeystick.errors import HockeystickError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import FixedSize, Poisson, RandomAllocation, Sampler
from hockeystick.samplers.epochs import EpochSampler
from hockeystick.settings import DEFAULT_WORK, SearchPolicy
from hockeystick.types import Side

WORTH_SAYING = 1e-2
"""A two-sided gap in epsilon below this needs no hint, and neither does another sampler that gains no more."""
LOOK_SECONDS = 30.0
"""Most seconds for a number in a hint; without it the hint is given all the same."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command was asked, as far as hints depend on it.

    Attributes:
        epsilon: the target of a calibration; None for other commands.
        sampling: whether Monte Carlo bounds were allowed.
        method: the only method that was allowed, if any.
        budget: the seconds that were allowed, if any.
    """

    epsilon: float | None = None
    sampling: bool = False
    method: str | None = None
    budget: float | None = None


def hints(certificate: CertificateBase, asked: Asked) -> list[str]:
    """What to change for a better answer, one sentence each; most often nothing.

    Numbers that a hint gives are bounds only where it says "certified"; the others are rough and no part of a claim.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Shuffle(batch_size=5, bins=40), noise_multiplier=2.0)
    >>> hints(hs.certify(run, delta=1e-5), Asked())[0].split(":")[0]
    'No amplification is proved for shuffled batches'
    """
    sentences = [
        _of_sampling(certificate, asked),
        _of_the_sampler(certificate, asked),
        _of_time(certificate, asked),
        _of_delta(certificate),
    ]
    return [hint for hint in sentences if hint is not None]


def _of_sampling(certificate: CertificateBase, asked: Asked) -> str | None:
    """Monte Carlo would close a gap and is not allowed."""
    gap = certificate.bounds.gap
    if asked.sampling or asked.method is not None or (gap is not None and gap <= WORTH_SAYING):
        return None
    pair = dominating_pair(certificate.mechanism)
    if asked.epsilon is not None and pair.slack > 0.0:  # verification by sampling does not cover truncated batches
        return None
    if ACCOUNTANTS[METHOD].why_not(pair, Side.UPPER) is not None:
        return None
    if gap is not None and isinstance(certificate.epsilon, Interval):
        most = ceil(1000.0 * gap / (1.0 + gap)) / 10.0
        return f"--allow monte-carlo may lower epsilon further, by {most:g} percent at most."
    if certificate.method.upper != "gaussian":
        return "--allow monte-carlo may give a better bound."
    start = "--allow monte-carlo may give a far better bound, as no other method found any amplification"
    if asked.epsilon is None or not isinstance(certificate.delta, float):
        return f"{start}."
    try:
        near = estimated_noise(certificate.mechanism, asked.epsilon, certificate.delta, Deadline(_seconds(asked)))
    except HockeystickError:
        return f"{start}."
    rough = "an estimate from few samples that tends to be too low"
    return f"{start}: a noise multiplier of about {near:.2g} may be enough, {rough}."


_UNAMPLIFIED = {
    "shuffle": "No amplification is proved for shuffled batches",
    "deterministic": "Batches that are fixed beforehand have no amplification",
    "balls_in_bins": "Bins that come back in every epoch lose most of the amplification without correlated noise",
}
"""Samplers by epochs whose batches could as well be drawn afresh at random in every one."""
ONE_SIZE = (
    "In batches of exactly one size an example takes the place of another, which costs noise: with sampler.kind = "
    "'poisson', whose batches vary in size,"
)
CUT = (
    "Batches that are cut to {size} examples cost noise, because one example can push another out: without "
    "sampler.truncated_batch_size, to which a larger one comes close,"
)


def _of_the_sampler(certificate: CertificateBase, asked: Asked) -> str | None:
    """The batches are fixed, shuffled, replayed, cut or of one size, and others would be amplified (more)."""
    mechanism = certificate.mechanism
    sampler, plain = mechanism.sampler, mechanism.strategy.kind == "identity"
    if asked.method is not None:
        return None
    if isinstance(sampler, FixedSize) and plain and sampler.cohort_steps == 1 and sampler.rate < 1.0:
        return _rather(ONE_SIZE, Poisson(sampling_prob=sampler.rate, steps=sampler.steps), certificate, asked)
    if isinstance(sampler, Poisson) and plain and sampler.truncated_batch_size is not None:
        uncut = Poisson(sampling_prob=sampler.sampling_prob, steps=sampler.steps)
        return _rather(CUT.format(size=sampler.truncated_batch_size), uncut, certificate, asked)
    if sampler.kind not in _UNAMPLIFIED:
        return None
    assert isinstance(sampler, EpochSampler)
    replayed = sampler.kind == "balls_in_bins"
    if sampler.bins == 1 or (replayed and (sampler.epochs == 1 or not plain)):
        return None
    if not replayed and certificate.method.upper != "gaussian":
        return None
    start = _UNAMPLIFIED[sampler.kind]
    if not plain:
        return f"{start}: sampler.kind = 'balls_in_bins' draws the batches at random, once, and is amplified."
    other = f"{start}: with sampler.kind = 'random_allocation', which draws one batch of every epoch for each example,"
    return _rather(other, RandomAllocation(bins=sampler.bins, epochs=sampler.epochs), certificate, asked)


def _rather(start: str, sampler: Sampler, certificate: CertificateBase, asked: Asked) -> str | None:
    """What is certified with another sampler, for the same unit and noise; None where it is hardly better."""
    mechanism = certificate.mechanism
    drawn = Mechanism(sampler=sampler, noise_multiplier=mechanism.sigma, unit=mechanism.unit)
    try:
        better = _with_direct(drawn, certificate, asked)
    except HockeystickError:
        return f"{start} less noise may be enough."
    return None if better is None else f"{start} {better}"


def _with_direct(drawn: Mechanism, certificate: CertificateBase, asked: Asked) -> str | None:
    """What is certified for a mechanism that has a law, for the question of the certificate; None where hardly less.

    No kernel is compiled ahead: most often none is needed.
    """
    deadline = Deadline(_seconds(asked))
    delta = certificate.delta if isinstance(certificate.delta, float) else None
    if asked.epsilon is not None and delta is not None:
        less = whole_certificate(drawn, epsilon=asked.epsilon, delta=delta, method="direct", deadline=deadline)
        if less.mechanism.sigma >= (1.0 - WORTH_SAYING) * certificate.mechanism.sigma:
            return None
        return f"a noise multiplier of {number(less.mechanism.sigma)} is certified."
    epsilon = certificate.epsilon if isinstance(certificate.epsilon, float) else None
    question = Question(delta=delta, epsilon=epsilon)
    best = certify_with(drawn, question, deadline, ["direct"], None, SearchPolicy(), whole=False)
    if best.bounds.upper >= (1.0 - WORTH_SAYING) * certificate.bounds.upper:
        return None
    return f"{'delta' if delta is None else 'epsilon'} {number(best.bounds.upper)} is certified for this noise."


def _of_time(certificate: CertificateBase, asked: Asked) -> str | None:
    """There was no time for a method."""
    if not certificate.cut_off:
        return None
    allowed = DEFAULT_WORK if asked.budget is None else asked.budget
    seconds = ceil(allowed + sum(cut.seconds for cut in certificate.cut_off))
    names = ", ".join(dict.fromkeys(cut.method for cut in certificate.cut_off))
    return (
        f"--budget {seconds} or more may leave time for what was left out or cut off ({names}), and improve the bound."
    )


def _of_delta(certificate: CertificateBase) -> str | None:
    """Publishing an example drawn at random would meet a delta above 1/n."""
    examples = certificate.statements.num_examples if isinstance(certificate, Certificate) else None
    delta = certificate.delta
    if examples is None or not isinstance(delta, float) or delta * examples <= 1.0:
        return None
    return (
        f"delta = {delta:g} is above 1/{examples}, which allows publishing an example drawn at random; choose a delta "
        f"well below that."
    )


def _seconds(asked: Asked) -> float:
    return LOOK_SECONDS if asked.budget is None else min(LOOK_SECONDS, 0.25 * asked.budget)
