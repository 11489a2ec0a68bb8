"""Which mechanisms a certificate of a run may be about: the planned one, or that of its first steps."""

import numpy as np

from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Sampler
from hockeystick.strategies import Identity
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


def of_first_steps(planned: Mechanism, sampler: Sampler) -> Mechanism | None:
    """The planned mechanism with a sampler of its first steps; None where its matrix is not the planned one's corner.

    >>> import hockeystick as hs
    >>> plan = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=8), noise_multiplier=1.0)
    >>> of_first_steps(plan, hs.Poisson(sampling_prob=0.1, steps=3)).matrix.steps
    3

    Args:
        planned: has a noise multiplier.
        sampler: whose runs are the first steps of the planned one's.
    """
    try:
        shorter = Mechanism(
            strategy=planned.strategy,
            sampler=sampler,
            noise_multiplier=planned.sigma,
            unit=planned.unit,
            exact=planned.exact,
        )
    except InvalidInputError:  # there are more bands than steps, say
        return None
    if isinstance(planned.strategy, Identity):  # independent noise, whatever the number of steps
        return shorter
    whole, first = planned.matrix, shorter.matrix
    if not isinstance(whole, ToeplitzMatrix) or not isinstance(first, ToeplitzMatrix):
        return None
    same = np.array_equal(whole.toeplitz_column[: first.steps], first.toeplitz_column)
    return shorter if same else None


def check_early_stop(certificate: Certificate, executed: Mechanism | None, stopped_without_looking: bool) -> None:
    """Raise InvalidInputError for a certificate of another mechanism than the executed one, or without that word."""
    if executed is None or certificate.mechanism != executed.pinned():
        raise InvalidInputError(
            "The 'certificate' argument must be about this run's mechanism; it is about another (with an optimised "
            "strategy, start a run on another machine from certificate.mechanism, which holds the matrix)."
        )
    if not stopped_without_looking:
        raise InvalidInputError(
            "The 'certificate' argument is about the executed steps alone, which holds only if the number of steps "
            "depends on nothing private: confirm this with stopped_without_looking=True, or give the plan's "
            "certificate."
        )
