"""How often an example takes part: the rates that a certificate prints."""

from hockeystick.certificate import Rates
from hockeystick.samplers import Sampler


def rates(sampler: Sampler, num_examples: int | None = None) -> Rates:
    """How often one example takes part in the batches of a sampler.

    Args:
        num_examples: for the expected batch size; None where it is not known.

    >>> import hockeystick as hs
    >>> rates(hs.Poisson(sampling_prob=0.01, steps=50), 2000).expected_batch_size
    20.0
    """
    return Rates(
        steps=sampler.steps,
        rate=sampler.rate,
        rate_when_available=sampler.rate_when_available,
        most_participations=sampler.most_participations,
        expected_batch_size=None if num_examples is None else num_examples * sampler.rate,
    )
