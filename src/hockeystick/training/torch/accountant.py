"""An accountant for Opacus' own engine: ``opacus.PrivacyEngine(accountant="hockeystick")``."""

import sys
from collections.abc import Callable
from typing import Any

from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant
from opacus.data_loader import DPDataLoader

from hockeystick.certificate import Interval
from hockeystick.certification.issue import certify
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Poisson

NAME = "hockeystick"
COIN = 2.0**-24
"""Opacus flips its coins by comparing a float32 in [0, 1) with the rate, which adds up to this much to the rate."""


class Accountant(IAccountant):
    """Steps of Opacus that are Poisson subsampled, with one noise multiplier and one rate; anything else is refused.

    Errs upward: epsilon is a certified upper bound, and the rate it is computed for is at least the one of the coins.

    >>> accountant = Accountant()
    >>> for _ in range(100):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> 0.6 < accountant.get_epsilon(1e-5) < 1.0
    True
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step."""
        steps = 0
        if self.history:
            last_noise, last_rate, steps = self.history[-1]
            if (last_noise, last_rate) != (noise_multiplier, sample_rate):
                steps = 0
        if steps:
            self.history.pop()
        self.history.append((noise_multiplier, sample_rate, steps + 1))

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """A certified upper bound on epsilon; ``options`` are those of :func:`hockeystick.certify`.

        Raises: UnsupportedError when the noise multiplier or the rate changed during the run.
        """
        if not self.history:
            return 0.0
        if len(self.history) > 1:
            raise UnsupportedError(
                f"The noise multiplier or the sampling rate changed during the run, {len(self.history) - 1} time(s); "
                "the 'hockeystick' accountant needs one of each."
            )
        noise_multiplier, rate, steps = self.history[0]
        sampler = Poisson(sampling_prob=min(rate + COIN, 1.0), steps=steps)
        epsilon = certify(Mechanism(sampler=sampler, noise_multiplier=noise_multiplier), delta=delta, **options).epsilon
        return epsilon.upper if isinstance(epsilon, Interval) else epsilon

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The hook that counts steps, for the loader of the ``make_private`` that asks for it.

        Opacus does not say which loader it made, so this looks at its caller; one that cannot be seen is refused too.

        Raises: UnsupportedError unless the loader draws Poisson batches, in one process.
        """
        loader: Any = sys._getframe(1).f_locals.get("data_loader")
        if type(loader) is not DPDataLoader or loader.distributed:
            raise UnsupportedError(
                "The 'hockeystick' accountant accounts for Opacus' Poisson batches in one process. The loader of this "
                f"run, of type {type(loader).__name__!r}, makes other batches; use "
                "hockeystick.torch.PrivacyEngine with a plan that describes them."
            )
        if loader.sample_rate > sample_rate:
            raise InvalidInputError(
                f"The loader samples at the rate {loader.sample_rate!r}, above the accounted rate {sample_rate!r}."
            )
        counted: Callable[[Any], None] = super().get_optimizer_hook_fn(sample_rate)
        return counted

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return NAME


register_accountant(NAME, Accountant, force=True)
