"""What an ordinary training loop can do against its certificate without a word from torch or Opacus."""

import hashlib
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping, DPTensorFastGradientClipping
from opacus.validators.errors import UnsupportedModuleError
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.misspelt import one_of
from hockeystick.spec import plain
from hockeystick.training.record import SLACK
from hockeystick.training.torch.layers import check_layers, check_uses
from hockeystick.training.torch.norms import SMALLEST, clip_factors, numbers_in, scaled_sum, squared_norms, total_norm
from hockeystick.training.torch.private_names import check_processed_flag, mark_as_processed

WIDE = (torch.float32, torch.float64)
"""The types in which sums of clipped gradients are known to a rounding that is nothing beside the noise."""


MODES = ("hooks", "functorch", "ghost", "ghost_fsdp")
CLIPPINGS = ("flat", "per_layer", "adaptive")


def checked_clip_norm(max_grad_norm: Any, clipping: str, parameters: int) -> Any:
    """What the user gave in Python's numbers: a norm from 2^-100, or one for every parameter where layers are clipped.

    Args:
        max_grad_norm: what the user gave.
        clipping: "flat", "per_layer" or "adaptive".
        parameters: how many tensors are trained.

    Raises: InvalidInputError for anything else, and for a way to clip that does not exist.
    """
    one_of("clipping", clipping, CLIPPINGS, "argument")
    given = plain(max_grad_norm)
    by_layer = clipping == "per_layer"
    norms = given if by_layer and isinstance(given, list | tuple) and len(given) == parameters else [given]
    sound = all(type(norm) in (int, float) and SMALLEST <= norm < math.inf for norm in norms)
    if not sound or (by_layer and norms is not given):
        allowed = f"a list of {parameters} finite numbers, each" if by_layer else "finite and"
        raise InvalidInputError(
            f"The 'max_grad_norm' argument must be {allowed} at least {SMALLEST:.3g}, for clipping={clipping!r}. "
            f"Got {shortened(max_grad_norm)} instead."
        )
    return given


def check_criterion(criterion: Any, loss_reduction: str, grad_sample_mode: str) -> None:
    """Raise InvalidInputError for a loss that divides by something that the examples of a batch decide together.

    Opacus takes the division by the number of examples back, for ``loss_reduction="mean"``. Any other divisor remains
    in the gradient of every example, which then depends on all the others, and clipping bounds nobody's influence.
    """
    reduction = getattr(criterion, "reduction", loss_reduction)
    if reduction != loss_reduction:
        raise InvalidInputError(
            f"The 'criterion' argument must have reduction={loss_reduction!r}, as loss_reduction says. "
            f"Got {reduction!r} instead."
        )
    if reduction == "mean" and getattr(criterion, "weight", None) is not None and "ghost" not in grad_sample_mode:
        raise InvalidInputError(
            "The 'criterion' argument must not have class weights with reduction='mean', which divides by the weights "
            "of the whole batch; use reduction='sum' with loss_reduction='sum'."
        )


def check_modules(module: torch.nn.Module, grad_sample_mode: str) -> None:
    """Raise UnsupportedError for layers that noise does not cover (:func:`.layers.check_layers`), and for a trained
    parameter of two layers, where norms are taken layer by layer.

    InvalidInputError for a gradient mode that does not exist.
    """
    one_of("grad_sample_mode", grad_sample_mode, MODES, "argument")
    check_layers(module, ghost="ghost" in grad_sample_mode)
    if grad_sample_mode == "ghost_fsdp":
        _check_untied(module)


def _check_untied(module: torch.nn.Module) -> None:
    """Opacus refuses a layer that is used twice. Where two layers have one parameter, it adds the squares of the norms
    of both parts of its gradient, which as a whole may be longer than that by a factor of the root of 2.
    """
    owners: dict[torch.Tensor, str] = {}
    for layer, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            full = f"{layer}.{name}" if layer else name
            if parameter.requires_grad and owners.setdefault(parameter, full) != full:
                raise UnsupportedError(
                    f"The parameter {owners[parameter]!r} is {full!r} as well, and grad_sample_mode='ghost_fsdp' takes "
                    "norms layer by layer: untie them, or freeze them by requires_grad_(False)."
                )


@contextmanager
def running_once(module: torch.nn.Module, layer: torch.nn.Module) -> Iterator[None]:
    """Opacus' refusal, in a forward pass, of a layer that has run before, as UnsupportedError with the layer's name."""
    try:
        yield
    except NotImplementedError as error:
        name = next((name for name, part in module.named_modules() if part is layer), type(layer).__name__)
        raise UnsupportedError(
            f"The layer {name!r}, or another with its parameters, has run before in this pass, and ghost clipping "
            "computes the norm of one use only: run the model once for every backward pass, and every layer once in "
            "it, or use grad_sample_mode='hooks' without fully_shard."
        ) from error


def in_our_words(error: UnsupportedModuleError) -> UnsupportedError:
    """What Opacus says about a model, as one error with the first sentence of each reason."""
    reasons = error.args[0] if error.args and isinstance(error.args[0], list) else [error]
    said = dict.fromkeys(str(reason).partition(". ")[0].rstrip(".") for reason in reasons)
    return UnsupportedError(f"Opacus cannot make this model private: {'; '.join(said)}.")


def check_parameters(trained: Iterable[torch.Tensor]) -> None:
    """Raise UnsupportedError for numbers that real noise does not cover."""
    for parameter in trained:
        if not parameter.is_floating_point():
            raise UnsupportedError(f"Trained parameters must be real floating-point numbers, not {parameter.dtype}.")


def check_optimizer(optimizer: torch.optim.Optimizer, module: torch.nn.Module) -> None:
    """Raise InvalidInputError for an optimizer that is private already, or has parameters that the module has not.

    And for what is no module, or no optimizer.
    """
    for name, given, kind in (("module", module, torch.nn.Module), ("optimizer", optimizer, torch.optim.Optimizer)):
        if not isinstance(given, kind):
            raise InvalidInputError(
                f"The {name!r} argument must be a torch {kind.__name__}. Got {shortened(given)} instead."
            )
    if isinstance(optimizer, DPOptimizer):
        raise InvalidInputError(
            "The 'optimizer' argument must be a plain torch optimizer; this one is private already. Give its "
            "'original_optimizer'."
        )
    known = set(module.parameters())
    others = sum(p not in known for group in optimizer.param_groups for p in group["params"])
    if others:
        raise InvalidInputError(
            f"The 'optimizer' argument must have parameters of the module alone; {others} of its parameters are not."
        )


def trained_by(optimizer: torch.optim.Optimizer, module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters that the optimizer trains; raises InvalidInputError unless they are all that the module trains."""
    trained = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if not trained:
        raise InvalidInputError("The 'optimizer' argument must have at least one parameter that requires gradients.")
    known = set(trained)
    others = [
        name for name, parameter in module.named_parameters() if parameter.requires_grad and parameter not in known
    ]
    if others:
        raise InvalidInputError(
            f"The 'optimizer' argument must have every parameter of the module that requires gradients; {len(others)} "
            f"are missing, the first of them {others[0]!r}: add them, or freeze them by requires_grad_(False)."
        )
    return trained


WATCHING: weakref.WeakSet[Any] = weakref.WeakSet()
"""The optimizers on runs that are alive."""


def watch_other_steps(optimizer: Any) -> None:
    """Call ``optimizer.check_other_step(other)`` before any torch optimizer steps, while ``optimizer`` lives."""
    WATCHING.add(optimizer)
    _watch()


@cache
def _watch() -> None:
    """Once, and for good: torch goes through its hooks while the garbage collector runs, and none may vanish."""

    def before(other: Any, *_: Any) -> None:
        for optimizer in list(WATCHING):
            optimizer.check_other_step(other)

    register_optimizer_step_pre_hook(before)


def is_used(parameter: Any) -> bool:
    """Whether what the hooks found out about this parameter's gradient is in a sum already, or there is nothing."""
    samples = parts_of(getattr(parameter, "grad_sample", None))
    return getattr(parameter, "_norm_sample", None) is None and all(hasattr(part, "_processed") for part in samples)


def parts_of(samples: Any) -> list[Any]:
    """The per-sample gradients of a parameter, one tensor for each backward pass."""
    if samples is None:
        return []
    return samples if isinstance(samples, list) else [samples]


def fault_of(sums: Iterable[torch.Tensor], examples: Any, clip_norm: float) -> str | None:
    """The promise that sums of gradients break which are not finite, or more than those of these examples can be.

    Args:
        examples: their indices, or only how many they are.
        clip_norm: the most that each of them contributes.
    """
    number = np.size(examples) if np.ndim(examples) else examples
    length = total_norm(sums)
    if not length <= number * clip_norm * (1.0 + SLACK):
        return "clipping" if math.isfinite(length) else "finite_gradients"
    return None


def clipped_sums(parameters: Sequence[Any], max_grad_norm: Any) -> list[torch.Tensor]:
    """The sums of the clipped per-sample gradients, in float32 at least, whatever types parameters and gradients have.

    No clipped gradient is longer than its norm, in the numbers that are summed: see :mod:`.norms`. In bfloat16 a norm
    is known to 0.4 percent and a sum of 256 gradients to one clipping norm, which the noise does not cover. Rounding to
    the narrow type comes after the noise. See ``docs/theory/runs.md``.

    Args:
        parameters: with their ``grad_sample``.
        max_grad_norm: one norm for all parameters together, or a list with one for each.
    """
    squares = [_squared_norms(parameter) for parameter in parameters]
    if isinstance(max_grad_norm, Sequence):
        clipped = zip(parameters, squares, max_grad_norm, strict=True)
        return [_clipped_sum(p, of_p.sqrt(), norm, p.numel()) for p, of_p, norm in clipped]
    norms, numbers = _joint(squares), numbers_in(parameters)
    return [_clipped_sum(parameter, norms, max_grad_norm, numbers) for parameter in parameters]


def _clipped_sum(parameter: Any, norms: torch.Tensor, clip_norm: float, numbers: int) -> torch.Tensor:
    """The sum for one parameter, over all its backward passes."""
    parts = parts_of(parameter.grad_sample)
    dtype = torch.promote_types(parts[0].dtype, torch.float32)
    factors = clip_factors(norms, clip_norm, numbers, dtype).split([len(part) for part in parts])
    first, *rest = (scaled_sum(part, factor) for part, factor in zip(parts, factors, strict=True))
    for total in rest:
        first += total
    return first


def add_to_sum(parameter: Any, total: torch.Tensor) -> None:
    """Add to the sum of a parameter's step, in place: a sum that was used keeps Opacus' mark, and is refused."""
    if parameter.summed_grad is None:
        parameter.summed_grad = total
    else:
        parameter.summed_grad += total


def add_no_examples(parameters: Sequence[Any]) -> None:
    """The sums of a step after a physical batch without examples: as they were, or zero.

    A new sum takes the memory of the ``p.grad`` that :func:`give` made for the step before, which is to be replaced.
    """
    for parameter in parameters:
        check_processed_flag(parameter.grad_sample)
        if parameter.summed_grad is None:
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            if hasattr(parameter.grad, "_given") and parameter.grad.dtype == dtype:
                parameter.summed_grad = parameter.grad.detach().zero_()
                parameter.grad = None  # or the next backward pass would add to the sum
            else:
                parameter.summed_grad = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        mark_as_processed(parameter.grad_sample)


def give(parameter: Any, noisy: torch.Tensor) -> None:
    """Make a noisy sum ``p.grad``, and remember that its memory is nobody else's, as of a bucket of several."""
    parameter.grad = noisy
    parameter.grad._given = True


def sample_norms(parameters: Sequence[Any]) -> torch.Tensor:
    """The norms of the per-sample gradients over all parameters together, shape (examples,), in float64."""
    return _joint([_squared_norms(parameter) for parameter in parameters])


def _squared_norms(parameter: Any) -> torch.Tensor:
    """The squared norms of every example, over all backward passes."""
    return torch.cat([squared_norms(part) for part in parts_of(parameter.grad_sample)])


def _joint(squares: Sequence[torch.Tensor]) -> torch.Tensor:
    """The norms of gradients with these squared norms for the parameters."""
    return torch.stack([of_parameter.to(squares[0].device) for of_parameter in squares]).sum(dim=0).sqrt()


def fingerprint(parameters: Iterable[torch.Tensor]) -> str:
    """SHA-256 of these numbers, bit for bit."""
    digest = hashlib.sha256()
    for parameter in parameters:
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        digest.update(local.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Tried(NamedTuple):
    """What a backward pass of ghost clipping over a few examples gives.

    Attributes:
        norms: of the gradient of every example.
        sums: of the clipped gradients, by parameter; shards of them where it is in shards.
        rounded: the most by which the sums may be off, in the norm over all parameters, beside floating point.
    """

    norms: list[float]
    sums: dict[Any, Any]
    rounded: float


class GhostLoss(DPTensorFastGradientClipping):
    """Opacus' loss for ghost clipping, which refuses a term that is not the loss of an example, and norms of the past.

    The gradient of such a term, a penalty on the weights say, would be in the sum without having been clipped.
    """

    def backward(self) -> None:
        """As Opacus does, with the norms of this pass alone."""
        self.optimizer.begin_backward()
        check_uses(self.loss_per_sample, self.module._module)
        try:
            super().backward()
        except (AttributeError, RuntimeError, TypeError):
            self.optimizer.check_norms()  # whose error says what is missing
            raise

    def _with(self, operation: Callable[[Any], Any], other: Any) -> Any:
        if isinstance(other, torch.Tensor) and other.requires_grad:
            raise InvalidInputError(
                "With ghost clipping a loss can only be combined with numbers and other losses of the criterion; the "
                "gradient of anything else would not be clipped. Use the optimizer's weight_decay for a penalty."
            )
        made = operation(other)
        made.__class__ = type(self)
        return made

    def __add__(self, other: Any) -> Any:
        return self._with(super().__add__, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(super().__sub__, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(super().__rsub__, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(super().__mul__, other)

    def __neg__(self) -> Any:
        return self * -1.0

    def __truediv__(self, other: Any) -> Any:
        return self._with(super().__truediv__, other)


class GhostCriterion(DPLossFastGradientClipping):
    """Opacus' criterion for ghost clipping, with losses that are guarded."""

    LOSS: type[GhostLoss] = GhostLoss

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The loss of every example."""
        loss = super().__call__(*args, **options)
        loss.__class__ = self.LOSS
        return loss
