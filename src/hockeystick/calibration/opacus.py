"""get_noise_multiplier: calibration under the name and with the arguments that Opacus has for it."""

import warnings
from fractions import Fraction
from math import ceil

from hockeystick.calibration.search import calibrate
from hockeystick.calls import called, outside
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.misspelt import one_of
from hockeystick.samplers import Poisson
from hockeystick.spec import LARGEST_EPSILON, real_number

OURS = "hockeystick"
THEIRS = ("rdp", "gdp", "prv")
"""Accountants of Opacus, which scripts ask for by name."""


@called("hs.get_noise_multiplier(target_epsilon=2.0, target_delta=1e-5, sample_rate=0.01, epochs=20)")
def get_noise_multiplier(
    *,
    target_epsilon: float,
    target_delta: float,
    sample_rate: float,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: str | None = None,
    epsilon_tolerance: float = 0.01,
) -> float:
    """The smallest noise multiplier that is certified for Poisson batches, to 0.1 percent from above.

    Takes the place of ``opacus.accountants.utils.get_noise_multiplier``, and so of what a script asks of Opacus.

    >>> 1.0 < get_noise_multiplier(target_epsilon=2.0, target_delta=1e-5, sample_rate=0.05, steps=40) < 1.5
    True

    Args:
        target_epsilon, target_delta: epsilon > 0 and delta in (0, 1).
        sample_rate: chance of one example to be in one batch.
        epochs, steps: exactly one of them; ``epochs / sample_rate`` steps, rounded up.
        accountant: one of Opacus' names, or "hockeystick"; whatever it says, the accounting is hockeystick's.
        epsilon_tolerance: how far below the target epsilon may be, above 0; it is always closer than 0.01.

    Raises: InvalidInputError, naming the argument; CannotCertifyError when no noise multiplier is certified.
    """
    check_accountant(accountant)
    if (steps is None) == (epochs is None):
        raise InvalidInputError("Exactly one of 'epochs' and 'steps' must be given.")
    if not real_number("epsilon_tolerance", epsilon_tolerance) > 0.0:
        raise InvalidInputError(f"The 'epsilon_tolerance' field must be above 0. Got {epsilon_tolerance!r} instead.")
    rate, epsilon = real_number("sample_rate", sample_rate), real_number("target_epsilon", target_epsilon)
    delta = real_number("target_delta", target_delta)
    if not 0.0 < rate <= 1.0:
        raise InvalidInputError(f"The 'sample_rate' field must be above 0 and at most 1. Got {rate!r} instead.")
    if not 0.0 < epsilon <= LARGEST_EPSILON:
        raise InvalidInputError(
            f"The 'target_epsilon' field must be above 0 and at most {LARGEST_EPSILON:g}. Got {epsilon!r} instead."
        )
    if not 1e-30 <= delta < 1.0:
        raise InvalidInputError(f"The 'target_delta' field must be from 1e-30 to below 1. Got {delta!r} instead.")
    if steps is None:
        passes = real_number("epochs", epochs)
        if not 0.0 < passes < float("inf"):
            raise InvalidInputError(f"The 'epochs' field must be positive. Got {epochs!r} instead.")
        # A rate such as 1 / 93 is not quite what it was rounded from; a step more costs less than one too few.
        steps = max(1, ceil(Fraction(passes / rate).limit_denominator(10**4)))
    sampler = Poisson.parse({"sampling_prob": rate, "steps": steps})
    return calibrate(Mechanism(sampler=sampler), epsilon=epsilon, delta=delta).sigma


def check_accountant(name: str | None) -> None:
    """Warn, in one line, that another accountant than ours is not used; raises InvalidInputError for an unknown one."""
    if name is None or one_of("accountant", name, (OURS, *THEIRS), "argument") == OURS:
        return
    warnings.warn(
        f"accountant={name!r} is not used: epsilon is hockeystick's, a certified upper bound.", stacklevel=outside()
    )
