"""Ghost clipping with norms whose error is proved: upper bounds, from activations and gradients of outputs.

A layer's gradient for one example is the sum of T products ``b_t a_t^T`` of what came back to it and what went into it,
with T = 1 without tokens. Let p be the sum of ``|b_t| |a_t|``. In float32, in whatever order the terms are added, every
entry of the gradient is within ``w / (1 - w)`` of the sum of the absolute terms, with ``w = T 2^-24``, so the gradient
is within ``w / (1 - w) p`` of the true one. Where tokens cancel, p is far above the norm, and a backward pass may give
far more than the true gradient. So that much of p, with ``T + 2`` for T, is part of every norm here.

The squared norm itself is a sum of T^2 products of inner products, whose rounding is relative to ``p^2`` and not to the
result: in float64 by at most ``(T^2 + i + o + 8) 2^-53`` for i inputs and o outputs. Twice as much is added, which also
covers the rounding of p.

What is bounded is the gradient of the first backward pass. The second one starts from scaled losses, so its gradients
of outputs are the scaled ones of the first up to the rounding of the layers between: that is not bounded here, and a
record does not say that it was checked. See ``docs/theory/runs.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from opacus.grad_sample import GradSampleHooksFastGradientClipping, GradSampleModuleFastGradientClipping
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from opacus.grad_sample.grad_sample_module import create_or_accumulate_grad_sample, promote_current_grad_sample
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping_fsdp import (
    GradSampleHooksFastGradientClippingFSDP,
    GradSampleModuleFastGradientClippingFSDP,
)
from opacus.grad_sample.gsm_base import AbstractGradSampleModule
from opacus.utils.module_utils import trainable_parameters

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.torch.guards import WIDE, running_once
from hockeystick.training.torch.kept_inputs import KeepsInputs
from hockeystick.training.torch.norms import clip_factors, squared_norms
from hockeystick.training.torch.shards import local

PIECE = 1 << 20
"""Numbers in float64 that are in memory at a time, as far as one example allows."""
DOUBLE = 2.0**-53
Norms = dict[Any, torch.Tensor]


def _rounding(tokens: int) -> float:
    """What float32 may add to a sum of so many products, in units of the sum of their absolute values."""
    relative = (tokens + 2) * 2.0**-24
    if relative >= 0.5:
        raise UnsupportedError(f"Ghost clipping sums up to {2**22} tokens per example in float32. Got {tokens}.")
    return relative / (1.0 - relative)


def linear_norms(layer: Any, inputs: torch.Tensor, outputs: torch.Tensor) -> Norms:
    """Upper bounds on the norms of the gradients of a ``torch.nn.Linear``, in float64, shape (examples,).

    Args:
        layer: whose weight or bias are trained.
        inputs, outputs: what went in and the gradients of what came out, shape (examples, ..., features); at least one
            example.
    """
    ins, outs = (part.reshape(len(part), -1, part.shape[-1]) for part in (inputs, outputs))
    tokens, features = outs.shape[1], ins.shape[2] + outs.shape[2]
    number = max(1, PIECE // (tokens * (tokens + features)))
    chunks = list(zip(ins.split(number), outs.split(number), strict=True))
    norms = {}
    if layer.weight.requires_grad:
        norms[layer.weight] = torch.cat([_of_products(i.double(), o.double()) for i, o in chunks])
    if layer.bias is not None and layer.bias.requires_grad:
        norms[layer.bias] = torch.cat([_of_sums(o.double()) for _, o in chunks])
    return norms


def _of_products(ins: torch.Tensor, outs: torch.Tensor) -> torch.Tensor:
    """Upper bounds on the norms of the sums of the tokens' outer products."""
    tokens = ins.shape[1]
    squares = ins.new_zeros(len(ins))
    rows = max(1, PIECE // (tokens * len(ins)))  # of the matrices of inner products, at a time
    for some_ins, some_outs in zip(ins.split(rows, dim=1), outs.split(rows, dim=1), strict=True):
        squares += ((some_ins @ ins.mT) * (some_outs @ outs.mT)).sum(dim=(1, 2))
    length = (torch.linalg.vector_norm(ins, dim=2) * torch.linalg.vector_norm(outs, dim=2)).sum(dim=1)
    error = 2.0 * (tokens * tokens + ins.shape[2] + outs.shape[2] + 8) * DOUBLE * length.square()
    return (squares.clamp(min=0.0) + error).sqrt() + _rounding(tokens) * length


def _of_sums(outs: torch.Tensor) -> torch.Tensor:
    """Upper bounds on the norms of the sums over the tokens."""
    lengths = torch.linalg.vector_norm(outs, dim=2).sum(dim=1)
    return torch.linalg.vector_norm(outs.sum(dim=1), dim=1) + _rounding(outs.shape[1]) * lengths


def embedding_norms(layer: Any, inputs: torch.Tensor, outputs: torch.Tensor) -> Norms:
    """Upper bounds on the norms of the gradients of a ``torch.nn.Embedding``, in float64, shape (examples,).

    Args:
        layer: whose weight may be trained.
        inputs: the indices, shape (examples, ...).
        outputs: the gradients of their vectors, shape (examples, ..., features); at least one example.
    """
    if not layer.weight.requires_grad:
        return {}
    indices, outs = inputs.reshape(len(inputs), -1), outputs.reshape(len(outputs), -1, outputs.shape[-1])
    number = max(1, PIECE // (outs.shape[1] * outs.shape[2]))
    chunks = zip(indices.split(number), outs.split(number), strict=True)
    return {layer.weight: torch.cat([_of_rows(i, o.double(), layer.num_embeddings) for i, o in chunks])}


def _of_rows(indices: torch.Tensor, outs: torch.Tensor, rows: int) -> torch.Tensor:
    """Upper bounds on the norms of gradients whose rows are sums over the tokens with their index."""
    examples = torch.arange(len(indices), device=indices.device)
    used, row = torch.unique(examples[:, None] * rows + indices, return_inverse=True)
    row = row.reshape(-1)
    sums = outs.new_zeros(len(used), outs.shape[2]).index_add_(0, row, outs.flatten(0, 1))
    lengths = outs.new_zeros(len(used)).index_add_(0, row, torch.linalg.vector_norm(outs, dim=2).flatten())
    whose = torch.div(used, rows, rounding_mode="floor")
    squares = (torch.linalg.vector_norm(sums, dim=1).square(), lengths.square())
    norm, length = (outs.new_zeros(len(indices)).index_add_(0, whose, part).sqrt() for part in squares)
    return norm + _rounding(outs.shape[1]) * length


NORMS: Mapping[type[Any], Callable[[Any, torch.Tensor, torch.Tensor], Norms]] = {
    torch.nn.Linear: linear_norms,
    torch.nn.Embedding: embedding_norms,
}
"""The layers whose norms need no gradients; those of all others are computed from per-sample gradients, one layer at
once."""


def norms_of(layer: Any, kind: type[Any], inputs: Sequence[torch.Tensor], outputs: torch.Tensor) -> Norms:
    """Upper bounds on the norms of a layer's gradients, by :data:`NORMS`; none for no examples."""
    if len(outputs):
        return NORMS[kind](layer, inputs[0], outputs)
    trained = (parameter for _, parameter in trainable_parameters(layer))
    return {parameter: torch.zeros(0, dtype=torch.float64, device=outputs.device) for parameter in trained}


class ProvedNorms:
    """Comes before one of Opacus' classes for ghost clipping: norms in float64, factors that leave room for
    rounding."""

    max_grad_norm: float
    backprop_types: set[torch.dtype]
    """Types of the gradients that norms were computed from in this backward pass."""
    hooks_enabled: bool
    trainable_parameters: list[Any]
    rearrange_grad_samples: Callable[..., tuple[Any, Any]]
    _module: Any
    _get_module_type: Callable[[Any], Any]
    GRAD_SAMPLERS: Mapping[Any, Any]

    def __init__(self, module: Any, **options: Any) -> None:
        super().__init__(module, **options)  # type: ignore[call-arg]
        self.backprop_types = set()

    def get_clipping_coef(self) -> torch.Tensor:
        """The factor of every example, in float32, rounded down."""
        numbers = sum(parameter.numel() for parameter in self.trainable_parameters)
        return clip_factors(self.get_norm_sample(), self.max_grad_norm, numbers, torch.float32)

    def get_norm_sample(self) -> torch.Tensor:
        """The norm of every example's gradient, in float64."""
        norms = self._norms_of_parameters()
        squares = torch.stack([of_parameter.to(norms[0]).square() for of_parameter in norms])
        self.per_sample_gradient_norms = squares.sum(dim=0).sqrt()
        return self.per_sample_gradient_norms

    def _norms_of_parameters(self) -> list[torch.Tensor]:
        return [parameter._norm_sample for parameter in self.trainable_parameters]

    def capture_activations_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
        """As Opacus does; raises UnsupportedError under autocast, and for a layer that has run in this pass."""
        refuse_autocast(module)
        with running_once(self._module, module):
            super().capture_activations_hook(module, inputs, outputs)  # type: ignore[misc]

    def capture_backprops_hook(
        self, module: Any, _inputs: Any, outputs: Any, loss_reduction: str, batch_first: bool
    ) -> None:
        """As Opacus does, when the gradients of a layer's outputs are known."""
        if not self.hooks_enabled:
            return
        activations, backprops = self.rearrange_grad_samples(
            module=module, backprops=outputs[0].detach(), loss_reduction=loss_reduction, batch_first=batch_first
        )
        self.backprop_types.add(backprops.dtype)
        inputs, kind = [local(part) for part in activations], self._get_module_type(module)
        if kind in NORMS:
            self._keep(module, norms_of(module, kind, inputs, backprops))
        else:
            sampler = self.GRAD_SAMPLERS.get(kind, ft_compute_per_sample_gradient)
            self._keep_samples(module, sampler(module, inputs, backprops))
        if not module.activations and hasattr(module, "max_batch_len"):
            del module.max_batch_len

    def _keep(self, module: Any, norms: Norms) -> None:
        """Norms of a layer that is used once in a pass."""
        del module
        for parameter, of_parameter in norms.items():
            parameter._norm_sample = of_parameter
            parameter._forward_counter -= 1

    def _keep_samples(self, module: Any, samples: Mapping[Any, torch.Tensor]) -> None:
        """Gradients of a layer, which are added up over its uses in a pass before their norms are taken."""
        for parameter, sample in samples.items():
            create_or_accumulate_grad_sample(param=parameter, grad_sample=sample, max_batch_len=module.max_batch_len)
        for _, parameter in trainable_parameters(module):
            parameter._forward_counter -= 1
            if parameter._forward_counter == 0:
                promote_current_grad_sample(parameter)
                parameter._norm_sample = squared_norms(parameter.grad_sample).sqrt()
                parameter.grad_sample = None


class ProvedNormsFSDP(ProvedNorms):
    """The same where parameters are shared out: the norms are with the modules, until all of them are known."""

    iterate_submodules: Callable[[Any], Any]

    def __init__(self, module: Any, **options: Any) -> None:
        super().__init__(module, **options)
        self.shared_out = {
            part: [parameter for _, parameter in trainable_parameters(part)]
            for part in self.iterate_submodules(self._module)
        }

    def _norms_of_parameters(self) -> list[torch.Tensor]:
        for part, parameters in self.shared_out.items():
            for parameter, norms in zip(parameters, getattr(part, "norm_sample", ()), strict=False):
                parameter._norm_sample = norms
            part.norm_sample = []
        return super()._norms_of_parameters()

    def _keep(self, module: Any, norms: Norms) -> None:
        module._forward_counter -= 1
        module.norm_sample = list(norms.values())

    def _keep_samples(self, module: Any, samples: Mapping[Any, torch.Tensor]) -> None:
        trained = {parameter: sample for parameter, sample in samples.items() if parameter.requires_grad}
        self._keep(module, {parameter: squared_norms(sample).sqrt() for parameter, sample in trained.items()})


class GhostModule(ProvedNorms, GradSampleModuleFastGradientClipping):
    """Opacus' wrapper of a model."""


class GhostHooks(KeepsInputs, ProvedNorms, GradSampleHooksFastGradientClipping):
    """Opacus' hooks on a model that is not wrapped, whose layers may run again in the backward pass."""

    def _keep_inputs(self, layer: Any, inputs: Any, output: Any) -> Any:
        refuse_autocast(layer)
        return super()._keep_inputs(layer, inputs, output)

    def take(self, layer: Any, inputs: Sequence[torch.Tensor], backprops: torch.Tensor) -> None:
        """Norms of the gradients of a layer, at once or at the end of the pass."""
        if type(layer) not in NORMS:
            self.samples_of(layer, inputs, backprops)
            return
        for parameter, of_parameter in norms_of(layer, type(layer), inputs, backprops).items():
            self._set_norms(parameter, of_parameter)

    def finish(self, parameter: Any) -> None:
        """Norms of the gradients that were added up over the uses of a parameter."""
        self._set_norms(parameter, squared_norms(parameter.grad_sample).sqrt())
        parameter.grad_sample = None

    def _set_norms(self, parameter: Any, norms: torch.Tensor) -> None:
        """Once a pass: the norm of a sum of gradients is not known from theirs."""
        if getattr(parameter, "_norm_sample", None) is not None:
            raise UnsupportedError(
                "Ghost clipping has no norms for weights that several layers share, such as tied embeddings; use "
                "grad_sample_mode='hooks', or tie_word_embeddings=False."
            )
        parameter._norm_sample = norms


class GhostModuleFSDP(ProvedNormsFSDP, GradSampleModuleFastGradientClippingFSDP):
    """Opacus' wrapper of a model of ``fully_shard``."""


class GhostHooksFSDP(ProvedNormsFSDP, GradSampleHooksFastGradientClippingFSDP):
    """Opacus' hooks on a model of ``fully_shard`` that is not wrapped."""


CLASSES: Mapping[tuple[str, bool], type[Any]] = {
    ("ghost", True): GhostModule,
    ("ghost", False): GhostHooks,
    ("ghost_fsdp", True): GhostModuleFSDP,
    ("ghost_fsdp", False): GhostHooksFSDP,
}
"""The class for a gradient mode, and whether the model is to be wrapped."""


def refuse_autocast(layer: torch.nn.Module) -> None:
    """Raise UnsupportedError where a layer is trained under autocast, whose 16 bits the second pass rounds to."""
    device = next(layer.parameters()).device.type
    if layer.training and torch.is_grad_enabled() and torch.is_autocast_enabled(device):
        raise UnsupportedError(
            f"Ghost clipping cannot be used under autocast to {torch.get_autocast_dtype(device)}, as its second "
            "backward pass would round each clipped gradient separately; use grad_sample_mode='hooks'."
        )


def check_types(module: torch.nn.Module) -> None:
    """Raise UnsupportedError for layers in 16 bits, frozen ones too, in which the second pass rounds by itself."""
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and parameter.dtype not in WIDE:
            raise UnsupportedError(
                "Ghost clipping needs parameters in float32 or float64, as in other types the second backward pass "
                f"rounds clipped gradients to 8 or 11 bits. Got {parameter.dtype} in {name!r}; use "
                "grad_sample_mode='hooks'."
            )


def ghost_model(kind: type[Any], module: Any, **options: Any) -> Any:
    """The model for ghost clipping, or the hooks on it; a model that was made here stays as it is.

    Args:
        kind: one of ``CLASSES``, or of those of exact sums.
        module: to be trained, or what this function made of it.
        options: as Opacus' ``prepare_module`` has them.

    Raises: InvalidInputError for a model that was wrapped in another way; UnsupportedError for layers in 16 bits.
    """
    if kind in CLASSES.values():
        check_types(module)
    if not isinstance(module, AbstractGradSampleModule):
        return kind(module, **options)
    for name in ("batch_first", "loss_reduction"):
        if type(module) is not kind or getattr(module, name) != options[name]:
            raise InvalidInputError(
                f"The 'module' argument is wrapped already, as a {type(module).__name__}, for other arguments; give "
                "the model as it was before."
            )
    return module
