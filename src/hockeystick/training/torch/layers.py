"""Layers that torch and Opacus run without a word, although clipping and noise do not cover what they do."""

from collections import Counter
from typing import Any

import torch

from hockeystick.errors import UnsupportedError
from hockeystick.training.torch.private_names import BatchNorm, ConvNd, NormBase, is_leaf

ONCE = (torch.nn.Linear, torch.nn.Embedding)
"""Layers whose norms ghost clipping takes from one use in a pass."""


def check_layers(module: torch.nn.Module, *, ghost: bool) -> None:
    """Raise UnsupportedError for a layer that changes, or mixes, what no noise is added to.

    Opacus looks at layers with trained parameters alone. A normalisation in evaluation mode is fine, and raises as soon
    as it is used in training mode, as after ``model.train()``.

    Args:
        module: to be trained.
        ghost: whether norms come from a formula and sums from torch, which must then be of the same gradients.
    """
    for name, part in module.named_modules():
        if isinstance(part, NormBase):
            check_normalisation(part, name)
            part.register_forward_pre_hook(lambda part, _, name=name: check_normalisation(part, name))
        check_writes(part, name)
        if ghost and any(parameter.requires_grad for parameter in part.parameters(recurse=False)):
            _check_formula(part, name)


def check_normalisation(part: Any, name: str) -> None:
    """Raise UnsupportedError for a layer that takes statistics from the examples of a batch, as it is now."""
    without_statistics = isinstance(part, BatchNorm) and part.running_mean is None
    if without_statistics or (part.training and (isinstance(part, BatchNorm) or part.track_running_stats)):
        raise UnsupportedError(
            f"The layer {name!r} of type {type(part).__name__} takes its statistics from whole batches, in training "
            "mode: call its eval() after every model.train(), or replace it by "
            "opacus.validators.ModuleValidator.fix(model)."
        )


def check_writes(part: torch.nn.Module, name: str) -> None:
    """Raise UnsupportedError for an embedding that shortens its own rows, those that a batch looks up, without noise.

    Frozen ones do it too, and in evaluation mode.
    """
    if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.max_norm is not None:
        raise UnsupportedError(
            f"The layer {name!r} of type {type(part).__name__} has max_norm={part.max_norm!r}, by which a forward pass "
            "shortens the rows that its batch looks up, so that their lengths tell what was in it; use max_norm=None."
        )


def _check_formula(part: Any, name: str) -> None:
    """Raise UnsupportedError where Opacus' per-sample gradients are not what torch sums in the second backward pass."""
    reason = ""
    if isinstance(part, torch.nn.EmbeddingBag):
        reason = "counts an index once that a bag has several times"
    elif isinstance(part, torch.nn.Embedding) and part.scale_grad_by_freq:
        reason = "does not divide by how often a batch has an index, as scale_grad_by_freq does"
    elif isinstance(part, ConvNd) and part.padding_mode != "zeros":
        reason = f"pads with zeros, where padding_mode={part.padding_mode!r}"
    if reason:
        raise UnsupportedError(
            f"The layer {name!r} of type {type(part).__name__} cannot be used with ghost clipping, whose norm would "
            f"belong to another gradient than the sum: Opacus' formula {reason}; freeze it, or use "
            "grad_sample_mode='hooks'."
        )


def check_uses(losses: torch.Tensor, module: torch.nn.Module) -> None:
    """Raise UnsupportedError where the weight of a layer of :data:`ONCE` is used outside that layer as well.

    Ghost clipping sees what goes through layers. A second use, as an output ``F.linear(x, embedding.weight)``, adds to
    the gradient that torch sums and to no norm. The graph of the losses has one edge to a weight for every use; in a
    function that torch compiled, uses cannot be told apart.

    Args:
        losses: of the examples, before the backward pass.
        module: with the layers.
    """
    if losses.grad_fn is None:
        return
    uses: Counter[torch.Tensor] = Counter()
    seen, waiting = {losses.grad_fn}, [losses.grad_fn]
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is None or node in seen:
                continue
            if is_leaf(node):
                uses[node.variable] += 1
            else:
                seen.add(node)
                waiting.append(node)
    once = [(layer, part) for layer, part in module.named_modules() if type(part) in ONCE]
    owners = Counter(parameter for _, part in once for parameter in part.parameters(recurse=False))
    for layer, part in once:
        for name, parameter in part.named_parameters(recurse=False):
            if uses[parameter] > owners[parameter]:  # layers that share a parameter are refused where norms are taken
                raise UnsupportedError(
                    f"The parameter {name!r} of the layer {layer!r} is used {uses[parameter]} times in this pass, once "
                    "by the layer, and ghost clipping computes the norm of that use only; give each use a layer of "
                    "its own with the same parameter, and use grad_sample_mode='hooks'."
                )
