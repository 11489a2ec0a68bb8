"""Per-sample gradients for models whose layers run a second time in the backward pass, and for layers in 16 bits.

Opacus keeps what goes into a layer in a list, which a forward hook fills and a backward hook empties. With activation
checkpointing a layer runs twice a step, so entries are left over, the counters of its parameters never come back to
zero, and the memory that checkpointing frees is taken by the list. Here every output passes through an identity that
has the inputs of its layer among the tensors that autograd saves, so that torch drops and recomputes them as others.
Which gradients belong to one pass is known from the end of that pass, and not from counts of forward calls.

Where autocast, or frozen layers in 16 bits, give a trained layer numbers in bfloat16, these are widened to the type of
its parameters before they are multiplied. So the per-sample gradient of a float32 parameter is a float32 tensor that
its own example determines, which is then clipped and summed as any other (``docs/theory/runs.md``).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from opacus.grad_sample import GradSampleHooks
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient, prepare_layer
from opacus.grad_sample.grad_sample_module import create_or_accumulate_grad_sample, promote_current_grad_sample
from opacus.layers.dp_rnn import RNNLinear
from opacus.utils.module_utils import requires_grad, trainable_parameters

from hockeystick.errors import UnsupportedError
from hockeystick.training.torch.private_names import after_backward, current_backward


class WithInputs(torch.autograd.Function):
    """The output of a layer as it is; in the backward pass, what went in and what came back go to a function."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, take: Callable[..., None], *inputs: torch.Tensor) -> torch.Tensor:
        """The output; ``inputs`` are saved as torch's hooks for saved tensors say."""
        ctx.take = take
        ctx.save_for_backward(*inputs)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, backprops: torch.Tensor) -> Any:
        """The gradient of the output as it is."""
        inputs = ctx.saved_tensors  # once, as checkpointing gives them once a pass
        with torch.no_grad(), torch.autocast(backprops.device.type, enabled=False):
            ctx.take([kept.detach() for kept in inputs], backprops.detach())
        return backprops, None, *(None for _ in inputs)


class KeepsInputs:
    """Comes before one of Opacus' hooks on a model that is not wrapped, and takes the place of both of them.

    A class that follows says what becomes of the inputs and the gradients of a layer (``take``), and of its parameters
    at the end of a backward pass (``finish``).
    """

    _module: torch.nn.Module
    loss_reduction: str
    hooks_enabled: bool
    backprop_types: set[torch.dtype]
    """Types of the gradients that came back to layers."""
    iterate_submodules: Callable[[torch.nn.Module], Iterable[Any]]
    enable_hooks: Callable[[], None]
    take: Callable[[Any, Sequence[torch.Tensor], torch.Tensor], None]
    finish: Callable[[Any], None]
    GRAD_SAMPLERS: Any

    def add_hooks(self, *, loss_reduction: str, batch_first: bool, force_functorch: bool) -> None:
        """A forward hook for every layer with trained parameters.

        Raises: UnsupportedError for recurrent layers, and for examples that are not in the first dimension.
        """
        del loss_reduction
        layers = list(self.iterate_submodules(self._module))
        if not batch_first or force_functorch or any(isinstance(layer, RNNLinear) for layer in layers):
            raise UnsupportedError(
                "Hooks without a wrapper need the examples in the first dimension, and no recurrent layers; leave out "
                "wrap_model=False."
            )
        self._backward, self.backprop_types = -1, set()
        self._module.autograd_grad_sample_hooks = self.autograd_grad_sample_hooks = []
        for layer in layers:
            if type(layer) not in self.GRAD_SAMPLERS:
                prepare_layer(layer)
            self.autograd_grad_sample_hooks.append(layer.register_forward_hook(self._keep_inputs))
        self.enable_hooks()

    def _keep_inputs(self, layer: Any, inputs: Any, output: Any) -> Any:
        """The output with the inputs behind it, in the first pass and when it is repeated."""
        if not requires_grad(layer) or not layer.training or not torch.is_grad_enabled():
            return output
        first, *rest = output if isinstance(output, tuple) else (output,)
        kept = WithInputs.apply(first, partial(self._take, layer), *inputs)
        return (kept, *rest) if isinstance(output, tuple) else kept

    def _take(self, layer: Any, inputs: Sequence[torch.Tensor], backprops: torch.Tensor) -> None:
        """What came back to a layer; all of a batch's losses in the mean, so times their number."""
        if not self.hooks_enabled:
            return
        if self._backward != current_backward():
            self._backward = current_backward()
            for _, parameter in trainable_parameters(self._module):
                vars(parameter).pop("_current_grad_sample", None)  # of a pass that was broken off
            after_backward(self._finish)
        self.backprop_types.add(backprops.dtype)
        dtype = next(trainable_parameters(layer))[1].dtype
        wide = [_widened(kept, dtype) for kept in inputs]
        examples = len(inputs[-1]) if self.loss_reduction == "mean" else 1
        self.take(layer, wide, _widened(backprops, dtype) * examples)

    def samples_of(self, layer: Any, inputs: Sequence[torch.Tensor], backprops: torch.Tensor) -> None:
        """Add per-sample gradients to those of the other uses of the parameters in this pass.

        Raises: UnsupportedError for a layer that takes more than its first input, such as that of DoRA.
        """
        sampler = self.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
        try:
            gradients = sampler(layer, inputs, backprops)
        except TypeError as error:
            name = next(name for name, part in self._module.named_modules() if part is layer)
            raise UnsupportedError(
                f"The layer {name!r} of type {type(layer).__name__} needs more than one input, and has no per-sample "
                "gradients; freeze it, or use adapters without it, such as LoRA without use_dora."
            ) from error
        for parameter, samples in gradients.items():
            create_or_accumulate_grad_sample(param=parameter, grad_sample=samples, max_batch_len=len(inputs[-1]))

    def _finish(self) -> None:
        for _, parameter in trainable_parameters(self._module):
            if hasattr(parameter, "_current_grad_sample"):
                promote_current_grad_sample(parameter)
                self.finish(parameter)


class SampleHooks(KeepsInputs, GradSampleHooks):
    """Opacus' hooks for per-sample gradients, on a model that is not wrapped."""

    grad_accumulation_allowed: bool

    def take(self, layer: Any, inputs: Sequence[torch.Tensor], backprops: torch.Tensor) -> None:
        """Per-sample gradients of the layer's parameters."""
        self.samples_of(layer, inputs, backprops)

    def finish(self, parameter: Any) -> None:
        """Per-sample gradients of two batches are refused, as Opacus does, where a batch is a step."""
        if not self.grad_accumulation_allowed and isinstance(parameter.grad_sample, list):
            raise UnsupportedError(
                "Two backward passes came before optimizer.step(), and each batch needs its own; leave the division of "
                "batches to the Trainer, or to BatchMemoryManager."
            )


def _widened(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Real numbers in a type that holds them and those of ``dtype``; whole ones as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, dtype)) if tensor.is_floating_point() else tensor
