"""An accountant for Opacus' own engine: ``opacus.PrivacyEngine(accountant="hockeystick")``."""

import sys
from collections.abc import Callable
from typing import Any

from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizerFastGradientClipping

from hockeystick.certificate import Interval
from hockeystick.certification.issue import certify
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.samplers import Poisson
from hockeystick.training.torch.guards import WIDE, parts_of
from hockeystick.training.torch.norms import float32_excess

NAME = "hockeystick"
COIN = 2.0**-24
"""Opacus flips its coins by comparing a float32 in [0, 1) with the rate, which adds up to this much to the rate."""


class Accountant(IAccountant):
    """Steps of Opacus that are Poisson subsampled, with one noise multiplier and one rate; anything else is refused.

    Errs upward: epsilon is a certified upper bound, and the rate it is computed for is at least the one of the coins.
    Opacus clips by float32 norms, which are short for long tensors, so the noise multiplier is divided by the most that
    a clipped gradient can be too long, for the longest tensor of the model and any order of summation: 1.0003 for
    10,000 numbers, 1.03 for a million, and 3.2 for the token embedding of GPT-2.

    >>> accountant = Accountant()
    >>> for _ in range(100):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> 0.6 < accountant.get_epsilon(1e-5) < 1.0
    True
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.excess = 1.0
        """How many clipping norms a clipped gradient may have had, of the steps that a hook counted."""

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
        mechanism = Mechanism(sampler=sampler, noise_multiplier=noise_multiplier / self.excess)
        epsilon = certify(mechanism, delta=delta, **options).epsilon
        return epsilon.upper if isinstance(epsilon, Interval) else epsilon

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The hook that counts steps, for the loader of the ``make_private`` that asks for it.

        Opacus does not say which loader it made, so this looks at its caller; one that cannot be seen is refused too.

        Raises: UnsupportedError unless the loader draws Poisson batches, in one process. The hook raises it for
        gradients whose norms Opacus computes with an error that nothing bounds: see :func:`clipped_length`.
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
        count: Callable[[Any], None] = super().get_optimizer_hook_fn(sample_rate)

        def counted(optimizer: Any) -> None:
            self.excess = max(self.excess, clipped_length(optimizer))
            count(optimizer)

        return counted

    def state_dict(self, destination: Any = None) -> Any:
        """Opacus' state, with how long clipped gradients may have been."""
        state = super().state_dict(destination)
        state["excess"] = self.excess
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue; raises InvalidInputError for a state that does not say how long clipped gradients may have been."""
        if not float(state_dict.get("excess", 0.0)) >= 1.0:
            raise InvalidInputError("The 'excess' entry of the accountant's state must be a number of at least 1.")
        super().load_state_dict(state_dict)
        self.excess = float(state_dict["excess"])

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return NAME


def clipped_length(optimizer: Any) -> float:
    """How many clipping norms a gradient may have that one of Opacus' optimizers clipped, by its float32 norms.

    Raises: UnsupportedError for ghost clipping, where the rounding of a norm is relative to the norms of the tokens and
    may be all of it, and for parameters or gradients in types narrower than float32.
    """
    parameters = optimizer.params
    tensors = (part for p in parameters for part in (p, *parts_of(getattr(p, "grad_sample", None))))
    narrow = [tensor.dtype for tensor in tensors if tensor.dtype not in WIDE]
    if isinstance(optimizer, DPOptimizerFastGradientClipping) or narrow:
        what = f"computes norms in {narrow[0]}" if narrow else "computes norms from products of tokens in float32"
        raise UnsupportedError(
            f"Opacus {what}, with an error that nothing bounds; use hockeystick.torch.PrivacyEngine, or "
            "grad_sample_mode='hooks' with parameters in float32."
        )
    norms = getattr(optimizer, "max_grad_norms", [float(optimizer.max_grad_norm)])
    longest = max(parameter.numel() for parameter in parameters)
    return float32_excess(longest, len(parameters), min(norms))


register_accountant(NAME, Accountant, force=True)
