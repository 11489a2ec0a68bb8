"""The pairs of samplers with a minimum separation, by their options."""

from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import require
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.samplers import BMinSep, MultiAttribution


def from_b_min_sep(mechanism: Mechanism) -> RenewalMixture | TruncatedRenewal:
    """b-min-sep subsampling, truncated or not, with any strategy matrix; the unit of privacy is an example.

    Raises: UnsupportedError for q = 1 without truncation, which is another sampler.
    """
    sampler = require(mechanism.sampler, BMinSep)
    cap, size = sampler.truncated_batch_size, sampler.num_examples
    if cap is not None:
        assert size is not None  # a sampler with a cap has it
        return TruncatedRenewal(
            noise_multiplier=mechanism.sigma,
            matrix=mechanism.matrix,
            min_sep=sampler.min_sep,
            participation_prob=sampler.participation_prob,
            warm_start=sampler.warm_start,
            truncated_batch_size=cap,
            num_examples=size,
        )
    prob = _below_one(sampler.participation_prob, sampler.sampling_prob, sampler.min_sep, sampler.warm_start)
    return RenewalMixture(
        noise_multiplier=mechanism.sigma,
        matrix=mechanism.matrix,
        min_sep=sampler.min_sep,
        participation_prob=prob,
        warm_start=sampler.warm_start,
    )


def from_multi_attribution(mechanism: Mechanism) -> RenewalMixture | WorstOf | RevealedBatches:
    """b-min-sep subsampling by user, with any strategy matrix.

    Where every example keeps its own distance, the pair is that of one example, from a cold start; of a user with k_u
    of them :mod:`hockeystick.pairs.users` makes the pair, as for ``b_min_sep``.

    With exclusion by users, a user may have any number of examples up to k_u. Fewer are not always more private: they
    are sampled less often, and so available more often later. The pair is the worst over all numbers, from a cold
    start. That covers any warm-up where sampled examples exclude, as these only remove participations of a cold
    start, and, for Toeplitz C, where participating examples do, as a user who still waits at the first step has a
    cold start later, and the same columns, but fewer rows.

    The pair has all k_u examples of a user in the worst batches that are ``min_sep`` apart, without amplification,
    in two cases (docs/theory/monte-carlo/samplers.md). Where users share examples with others, what a user's batch
    keeps out of the next ones tells that it took part. And where participating examples exclude, after a warm-up, and
    C is not Toeplitz, a user may be likelier to take part at the steps with the longest columns than after a cold
    start.

    Raises: UnsupportedError for q = 1.
    """
    from hockeystick.strategies.sensitivity import min_separation

    sampler = require(mechanism.sampler, MultiAttribution)
    sigma, matrix, min_sep, most = mechanism.sigma, mechanism.matrix, sampler.min_sep, sampler.examples_per_user
    if sampler.exclusion == "example":
        return RenewalMixture(
            noise_multiplier=sigma,
            matrix=matrix,
            min_sep=min_sep,
            participation_prob=_below_one(sampler.sampling_prob, sampler.sampling_prob, min_sep, warm_start=False),
            warm_start=False,
        )
    exact = sampler.exclusion == "participating" and sampler.warm_up_steps == 0
    covered = exact or sampler.exclusion == "sampled" or matrix.toeplitz_column is not None
    if sampler.users_are_revealed or not covered:
        return RevealedBatches(
            noise_multiplier=sigma,
            sensitivity=most * min_separation(matrix, min_sep).value,
            error=8.0 * matrix.rounding,
        )
    prob = _below_one(sampler.sampling_prob, sampler.sampling_prob, min_sep, warm_start=False)
    parts = tuple(
        RenewalMixture(
            noise_multiplier=sigma,
            matrix=matrix,
            min_sep=min_sep,
            participation_prob=prob,
            warm_start=False,
            examples_per_user=examples,
            attained=exact,  # otherwise the run takes part less often
        )
        for examples in range(1, most + 1)
    )
    return parts[0] if len(parts) == 1 else WorstOf(noise_multiplier=sigma, parts=parts)


def _below_one(prob: float, rate: float, min_sep: int, warm_start: bool) -> float:
    if prob < 1.0:
        return prob
    if warm_start and min_sep > 1:
        what = f"balls-in-bins over {min_sep} bins: use the sampler 'balls_in_bins', whose analysis is exact"
    else:
        what = (
            f"no sampling at all: every example is in the batches 1, 1 + {min_sep}, ..., without amplification, as "
            f"with the sampler 'deterministic'"
        )
    raise UnsupportedError(
        f"The 'sampling_prob' field (batch_size / num_examples in a plan) must be smaller for this analysis. "
        f"Got {rate!r} instead, with which every available example is taken, and the scheme is {what}."
    )
