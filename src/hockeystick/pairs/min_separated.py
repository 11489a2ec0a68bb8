"""The pairs of samplers with a minimum separation, by their options."""

from hockeystick.mechanism import Mechanism
from hockeystick.pairs import known_batches, renewal_mixture, truncated_renewal
from hockeystick.pairs.base import require
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.samplers import BMinSep, MultiAttribution


def from_b_min_sep(mechanism: Mechanism) -> RenewalMixture | TruncatedRenewal:
    """b-min-sep subsampling, truncated or not, with any strategy matrix."""
    truncated = require(mechanism.sampler, BMinSep).truncated_batch_size is not None
    return truncated_renewal.from_b_min_sep(mechanism) if truncated else renewal_mixture.from_b_min_sep(mechanism)


def from_multi_attribution(mechanism: Mechanism) -> RenewalMixture | WorstOf | RevealedBatches:
    """b-min-sep subsampling by user, with any strategy matrix.

    A user may have any number of examples up to k_u. Fewer are not always more private: they are sampled less often,
    and so available more often later. The pair is the worst over all numbers.

    Users who share examples with others have no proved amplification: a sampled example keeps the examples of
    all its users out of the next batches, so these tell that it was sampled (docs/theory/monte-carlo/renewal.md).
    """
    sampler = require(mechanism.sampler, MultiAttribution)
    if sampler.users_per_example > 1 and sampler.examples_per_user > 1:
        return known_batches.from_multi_attribution(mechanism)
    parts = tuple(
        renewal_mixture.from_multi_attribution(mechanism, examples)
        for examples in range(1, sampler.examples_per_user + 1)
    )
    return parts[0] if len(parts) == 1 else WorstOf(noise_multiplier=mechanism.sigma, parts=parts)
