"""Lower bounds on epsilon from guesses about which canaries were in the data, in one run."""

from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hockeystick.audit.chances import CHANCES
from hockeystick.audit.guessing import (
    LARGEST_MU,
    Guesses,
    covering_mu,
    gaussian_epsilon,
    largest_epsilon,
    largest_rejected,
)
from hockeystick.audit.sampling import check_level
from hockeystick.audit.verdict import EpsilonInterval, Finding, Verdict
from hockeystick.calls import called
from hockeystick.certificate import AnyCertificate, Interval
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.samplers import BatchSampler, Shuffle
from hockeystick.spec import real_number

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_CANARIES = 100_000


@dataclass(frozen=True)
class Rule:
    """Guess that the canaries with the largest scores were included, and those with the smallest were not."""

    top: int
    bottom: int

    @property
    def guessed(self) -> int:
        """Guesses of both kinds."""
        return self.top + self.bottom

    def right(self, scores: Array, included: Flags) -> int:
        """How many guesses are right; of equal scores the later one counts as larger."""
        order = np.argsort(scores, kind="stable")
        high, low = order[order.size - self.top :], order[: self.bottom]
        return int(included[high].sum() + (~included[low]).sum())


@called("hs.audit.guesses(scores, included, certificate=certificate)")
def guesses(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    certificate: AnyCertificate | None = None,
    delta: float | None = None,
    level: float = 1e-3,
    independent: bool = False,
    guessed: tuple[int, int] | None = None,
) -> Verdict:
    """Bound epsilon from below by how well scores tell the canaries that were in the data from those that were not.

    >>> rng = np.random.default_rng(0)
    >>> included = rng.random(1000) < 0.5
    >>> scores = rng.normal(size=1000) + 3.0 * included  # the loss before the run less the loss after it, say
    >>> verdict = guesses(scores, included, delta=1e-6)
    >>> 1.5 < verdict.epsilon.audited < 3.5
    True

    Every canary was in the data, or had no gradient, by a fair coin of its own. If the run is (epsilon, delta)-DP, then
    however its outputs and the scores depend on one another, hardly more than ``e^epsilon / (1 + e^epsilon)`` of a
    fixed number of guesses are right. So more right guesses reject this epsilon.

    Formal guarantee: except with probability ``level`` the audited epsilon is a lower bound on that of the run, at this
    delta. This needs: coins that are fair, independent of one another and of all else (exactly half of the canaries
    would not do); scores that depend on the coins through what the run releases alone; and an (epsilon, delta) that is
    about the same difference as a coin. A canary whose coin is tails keeps its place and has a zero gradient
    (zero-out), or is left out where the certificate also holds for add_remove, or has another gradient if it holds for
    replace. The proof, and what "independent" adds, are in docs/theory/audits.md.

    Args:
        scores: shape (canaries,), larger where the canary looks included; no NaN.
        included: shape (canaries,), booleans: the coins.
        certificate: about epsilon; the verdict compares with its interval, and takes its delta. Its number of examples
            has to count all canaries.
        delta: without a certificate. The bound is trivial unless canaries times delta is well below the level, times
            the square root of the number of guesses.
        level: between 0 and 1.
        independent: the outputs about one canary tell nothing about the coin of another one, as where canaries have
            fixed orthogonal gradients and the mechanism is that of the certificate, which has to be given. Then the
            bound is closer to the truth, and for fixed batches as close as the number of canaries allows. Of code that
            is not that mechanism only a refutation counts, and not the number.
        guessed: how many canaries with the largest scores, and with the smallest, are guessed; fixed before the coins
            are known. By default four such rules share the level.

    Raises: InvalidInputError for arguments of other shapes or out of range; UnsupportedError for ``independent`` where
    the sampler does not draw examples independently.

    Source: after Steinke, Nasr and Jagielski 2023, Privacy auditing with one (1) training run. The term with delta is
    another one, with a proof of its own.
    """
    check_level(level)
    values, coins = _checked(scores, included)
    at, interval = _claim(certificate, delta)
    gaussian = certificate is not None and certificate.mechanism.sampler.batches_are_public
    if independent:
        if certificate is None:
            raise InvalidInputError(
                "The 'independent' argument needs a 'certificate', whose mechanism has to imply it."
            )
        check_independent(certificate.mechanism.sampler)
    rules = _rules(values.size) if guessed is None else [_given(guessed, values.size)]
    upper = None if interval is None else interval.upper
    outcomes = [_outcome(rule, values, coins, independent, gaussian, at, level / len(rules), upper) for rule in rules]
    findings = sorted(
        (finding for _, finding in outcomes), key=lambda finding: (not finding.broken, -(finding.evidence or 0.0))
    )
    return Verdict(
        about="canaries",
        claimed={
            "certificate": None if certificate is None else certificate.digest,
            "independent": independent,
            "gaussian": gaussian,
        },
        level=level,
        samples=int(values.size),
        findings=tuple(findings),
        epsilon=EpsilonInterval(
            audited=max(bound for bound, _ in outcomes),
            lower=None if interval is None else interval.lower,
            upper=upper,
            delta=at,
        ),
    )


def check_independent(sampler: BatchSampler) -> None:
    """Raise UnsupportedError unless the sampler draws every example independently of the others."""
    if type(sampler) not in CHANCES or isinstance(sampler, Shuffle) or getattr(sampler, "truncated_batch_size", None):
        raise UnsupportedError(
            f"The sampler {sampler.kind!r} does not draw examples independently, so canaries are not independent."
        )


def _outcome(
    rule: Rule,
    scores: Array,
    included: Flags,
    independent: bool,
    gaussian: bool,
    delta: float,
    level: float,
    upper: float | None,
) -> tuple[float, Finding]:
    """The lower bound of one rule, and the finding about it."""
    right = rule.right(scores, included)
    count = Guesses(scores.size, rule.guessed, right, independent=independent)
    if gaussian:
        chances, top = count.gaussian_chances, LARGEST_MU
        target = None if upper is None else covering_mu(upper, delta)
    else:
        chances, top, target = partial(count.chances, delta=delta), largest_epsilon(rule.guessed, level), upper
    best = largest_rejected(chances, level, top) or 0.0
    chance = None if target is None else float(chances(np.array([target]))[0])
    broken = False
    if target is not None and chance is not None:
        broken = chance <= level or best >= target > 0.0
        best = max(best, target) if broken else best
    kinds = f"{rule.top} as included and {rule.bottom} as left out"
    return (gaussian_epsilon(best, delta) if gaussian else best), Finding(
        name=f"guesses_{rule.top}_{rule.bottom}",
        broken=broken,
        evidence=None if chance is None else max(-log(max(chance, 1e-300)), 0.0),
        says=f"Of {rule.guessed} guesses, {kinds}, {right} are right.",
    )


def _rules(canaries: int) -> list[Rule]:
    """Guesses about all, about those that look the clearest, and about those that look included."""
    half = canaries // 2
    quarter, few = max(canaries // 8, 1), max(canaries // 32, 1)
    rules = [Rule(canaries - half, half), Rule(quarter, quarter), Rule(few, few), Rule(quarter, 0)]
    return [rule for rule in dict.fromkeys(rules) if rule.guessed <= canaries]


def _given(guessed: tuple[int, int], canaries: int) -> Rule:
    rule = Rule(*guessed)
    if min(guessed) < 0 or not 1 <= rule.guessed <= canaries:
        raise InvalidInputError(
            f"The 'guessed' argument must be two numbers of at least 0, of 1 to {canaries} canaries together. "
            f"Got {shortened(guessed)} instead."
        )
    return rule


def reals_of(values: ArrayLike) -> Array | None:
    """The values as an array of floats; None for values that are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _checked(scores: ArrayLike, included: ArrayLike) -> tuple[Array, Flags]:
    values, coins = reals_of(scores), np.asarray(included)
    if values is None or values.ndim != 1 or not 2 <= values.size <= MOST_CANARIES or np.isnan(values).any():
        raise InvalidInputError(
            f"The 'scores' argument must be a row of 2 to {MOST_CANARIES} numbers, one for each canary. "
            f"Got {shortened(scores)} instead."
        )
    if coins.shape != values.shape or coins.dtype != np.bool_:
        raise InvalidInputError(
            f"The 'included' argument must be a row of {values.size} booleans, one for each score. "
            f"Got {shortened(included)} instead."
        )
    return values, coins


def _claim(certificate: AnyCertificate | None, delta: float | None) -> tuple[float, Interval | None]:
    """The delta, and the claimed interval if there is one."""
    if (certificate is None) == (delta is None):
        raise InvalidInputError("Give either the 'certificate' or the 'delta' argument.")
    if certificate is None:
        assert delta is not None
        if not 0.0 <= real_number("delta", delta) < 1.0:
            raise InvalidInputError(
                f"The 'delta' argument must be at least 0 and below 1. Got {shortened(delta)} instead."
            )
        return delta, None
    interval, at = certificate.epsilon, certificate.delta
    if not isinstance(interval, Interval) or isinstance(at, Interval):
        raise InvalidInputError("The 'certificate' argument must bound epsilon at a delta, not delta at an epsilon.")
    return at, interval
