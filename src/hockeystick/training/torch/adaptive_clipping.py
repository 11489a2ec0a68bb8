"""A clipping norm that follows a noisy count of the examples that it leaves as they are."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.misspelt import nearest
from hockeystick.training.adaptive import expect_positive, split_with_count
from hockeystick.training.torch.adaptive import IndependentAdam, ScaledAdam, Tensors
from hockeystick.training.torch.guards import add_to_sum, clipped_sums, parts_of, sample_norms
from hockeystick.training.torch.private_names import check_processed_flag, mark_as_processed

NORM = "hockeystick_clipping_norm"
"""The entry of an optimizer's state that holds the clipping norm of the next step."""
RULE = "hockeystick_clipping_rule"
"""The entry with the arguments by which it changes."""
ARGUMENTS = (
    "target_unclipped_quantile",
    "clipbound_learning_rate",
    "max_clipbound",
    "min_clipbound",
    "unclipped_num_std",
)
"""What Opacus' ``make_private`` takes for ``clipping="adaptive"``."""


class AdaptsNorm:
    """Comes before Opacus' optimizer class: every example also contributes whether it was within the clipping norm.

    At step t, with clipping norm S, an example contributes its gradient clipped to S and, in one more coordinate,
    ``(c S / a) (b - 1/2)`` with b = 1 if the gradient is no longer than S, else 0: together a vector of norm at most
    ``S / a``, by which the row of the run's noise is multiplied. The certificate stays that of the mechanism, as
    proved in ``docs/theory/adaptive-optimisers.md``, for neighbours in which an example contributes nothing at all: one
    with zero gradient would still be counted. The next norm is ``S exp(-rate (q - target))``, between its
    bounds, where q is the noisy fraction of examples that were not clipped, over the public normaliser.

    Args:
        optimizer, noise_multiplier, options: as Opacus' optimizers have them.
        target_unclipped_quantile: the fraction of examples that should not be clipped, from 0 to 1.
        clipbound_learning_rate: of the logarithm of the norm, positive.
        max_clipbound, min_clipbound: of the norm, positive.
        unclipped_num_std: standard deviation of the noise in the count for white noise; for correlated noise, times
            the norm of the step's row of ``C^-1``. More than half of the noise multiplier.
    """

    max_grad_norm: Any
    expected_batch_size: Any
    trained: Tensors
    model: Any
    ghost: bool

    def __init__(
        self,
        optimizer: Any,
        *,
        noise_multiplier: float,
        target_unclipped_quantile: float,
        clipbound_learning_rate: float,
        max_clipbound: float,
        min_clipbound: float,
        unclipped_num_std: float,
        **options: Any,
    ) -> None:
        self.target_unclipped_quantile = target_unclipped_quantile
        self.clipbound_learning_rate = clipbound_learning_rate
        self.max_clipbound = max_clipbound
        self.min_clipbound = min_clipbound
        self.unclipped_num_std = unclipped_num_std
        self.of_gradient, self.of_count = split_with_count(noise_multiplier, unclipped_num_std)
        super().__init__(optimizer, noise_multiplier=noise_multiplier, **options)  # type: ignore[call-arg]

    @cached_property
    def count(self) -> torch.Tensor:
        """One number, whose per-sample gradients are what examples contribute to the count."""
        first = self.trained[0]
        dtype = torch.promote_types(first.dtype, torch.float32)
        return torch.zeros(1, device=first.device, dtype=dtype, requires_grad=True)

    @property
    def params(self) -> Tensors:
        """The trained parameters, and then the count."""
        return [*self.trained, self.count]

    @property
    def norm_of_noise(self) -> float:
        """What the noise is multiplied by: the norm of a clipped gradient and its part of the count together."""
        norm: float = self.max_grad_norm / self.of_gradient
        return norm

    def _settings(self) -> tuple[Any, ...]:
        return (*super()._settings(), self.of_gradient, self.of_count)  # type: ignore[misc]

    def pre_step(self, closure: Any = None) -> Any:
        """Find out which examples are within the norm; then as Opacus does."""
        if self.ghost:
            norms = self.model._per_sample_gradient_norms
            if norms is not None:
                self.count.grad = self._parts(norms).sum(dim=0)
        elif all(getattr(parameter, "grad_sample", None) is not None for parameter in self.trained):
            numbers = [sum(map(len, parts_of(parameter.grad_sample))) for parameter in self.trained]
            self.check_numbers(numbers)  # type: ignore[attr-defined]
            parts = self._parts(sample_norms(self.trained))
            several = isinstance(self.trained[0].grad_sample, list)
            split = parts.split([len(part) for part in parts_of(self.trained[0].grad_sample)])
            self.count.grad_sample = list(split) if several else parts
        return super().pre_step(closure)  # type: ignore[misc]

    def _parts(self, norms: torch.Tensor) -> torch.Tensor:
        """What examples whose gradients have these norms contribute to the count, shape (examples, 1)."""
        within = norms <= self.max_grad_norm
        left = 1.0 - 4.0 * torch.finfo(self.count.dtype).eps  # to rounding: one to this type, some to float64
        return left * self.of_count * self.norm_of_noise * (within.to(self.count) - 0.5)[:, None]

    def clip_and_accumulate(self) -> None:
        """As Opacus does with the gradients; the count needs no clipping."""
        *trained, count = self.params
        for parameter in trained:
            check_processed_flag(parameter.grad_sample)
        totals = clipped_sums(trained, self.max_grad_norm)
        totals.append(torch.cat(parts_of(count.grad_sample)).sum(dim=0))
        for parameter, total in zip(self.params, totals, strict=True):
            add_to_sum(parameter, total)
            mark_as_processed(parameter.grad_sample)

    def add_noise(self) -> None:
        """Add the noise to gradients and count, and choose the norm of the next step from the noisy count."""
        super().add_noise()  # type: ignore[misc]
        assert self.count.grad is not None
        centred = float(self.count.grad) / (self.of_count * self.norm_of_noise)
        unclipped = 0.5 + centred / self.expected_batch_size
        with np.errstate(over="ignore"):
            factor = np.exp(-self.clipbound_learning_rate * (unclipped - self.target_unclipped_quantile))
            norm = float(np.clip(self.max_grad_norm * factor, self.min_clipbound, self.max_clipbound))
        self._clip_to(norm)

    def _clip_to(self, norm: float) -> None:
        """Clip the gradients of the next step to this norm."""
        self.max_grad_norm = norm
        if self.ghost:
            self.model.max_grad_norm = norm
        self.as_planned = self._settings()

    def _rule(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in ARGUMENTS}

    def state_dict(self) -> dict[str, Any]:
        """The state with the norm of the next step, and the rule by which it changes."""
        return super().state_dict() | {NORM: self.max_grad_norm, RULE: self._rule()}  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue, with the norm that was saved; raises InvalidInputError for a state without one, or another rule."""
        missing = [name for name in (NORM, RULE) if name not in state_dict]
        if missing:
            raise InvalidInputError(
                f"The {missing[0]!r} entry of the optimizer's state is missing; its clipping adapted."
            )
        for name, value in self._rule().items():
            if state_dict[RULE].get(name) != value:
                raise InvalidInputError(
                    f"The {name!r} argument must be that of the saved run, {state_dict[RULE].get(name)!r}. "
                    f"Got {value!r} instead."
                )
        norm = float(state_dict[NORM])
        expect_positive(NORM, norm)
        rest = {name: part for name, part in state_dict.items() if name not in (NORM, RULE)}
        super().load_state_dict(rest)  # type: ignore[misc]
        self._clip_to(norm)


def check_adaptive_clipping(
    options: Mapping[str, Any], noise_multiplier: float, module: Any, optimizer: Any, grad_sample_mode: str
) -> None:
    """Raise for what adaptive clipping cannot do, before anything is made.

    Args:
        options: of ``make_private``, with Opacus' arguments for adaptive clipping.
        noise_multiplier: the plan's.
        module, optimizer, grad_sample_mode: as given to ``make_private``.

    Raises: UnsupportedError for several processes, for other gradient modes than hooks and ghost and for optimisers
    that change per-sample gradients; InvalidInputError for an argument that is missing or outside its range.
    """
    several = DistributedDataParallel | DifferentiallyPrivateDistributedDataParallel | FSDPModule
    changed = isinstance(optimizer, ScaledAdam | IndependentAdam)
    if isinstance(module, several) or grad_sample_mode not in ("hooks", "ghost") or changed:
        raise UnsupportedError(
            "Adaptive clipping is for grad_sample_mode 'hooks' or 'ghost', in one process, with an optimizer that "
            f"leaves per-sample gradients as they are. Got {grad_sample_mode!r}, {type(module).__name__} and "
            f"{type(optimizer).__name__}."
        )
    for name in ARGUMENTS:
        value = options.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidInputError(
                f"The {name!r} argument must be a finite number for clipping='adaptive'. Got {shortened(value)}."
            )
    target, rate, largest, smallest, deviation = (options[name] for name in ARGUMENTS)
    if not 0.0 <= target <= 1.0:
        raise InvalidInputError(
            f"The 'target_unclipped_quantile' argument must be from 0 to 1. Got {target!r} instead."
        )
    expect_positive("clipbound_learning_rate", rate)
    expect_positive("min_clipbound", smallest)
    if largest <= smallest:
        raise InvalidInputError(
            f"The 'max_clipbound' argument must be above min_clipbound, {smallest!r}. Got {largest!r} instead."
        )
    split_with_count(noise_multiplier, deviation)


def check_options(options: Mapping[str, Any], theirs: Callable[..., Any]) -> None:
    """Raise InvalidInputError for an option of ``make_private`` that nobody has; Opacus takes and forgets any.

    Args:
        options: those that are not ours.
        theirs: Opacus' method, whose options are known; so are those of adaptive clipping.
    """
    known = [*signature(theirs).parameters, *ARGUMENTS]
    for name in options:
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant!r}?" if meant else "Opacus has no such argument either"
            raise InvalidInputError(f"The {name!r} argument of make_private is not known here ({hint}).")
