"""Whether the rows that go into layers are those of the examples, tried in a first forward pass."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from opacus.layers.dp_rnn import RNNLinear

from hockeystick.errors import UnsupportedError


def watch_rows(model: Any) -> None:
    """Have a wrapped model raise UnsupportedError where a layer has rows of something else, as of positions.

    Such a layer's gradients are summed over the batch before any of them is clipped. Where there are as many positions
    as examples, the numbers of rows do not tell, and batches of a fixed size are like that in every step. So the first
    batch of several examples runs forward once more, without gradients and without its last example: rows that are
    still as many are not of the examples. Errors of that pass, as of models for one size of batches, are let go.

    Args:
        model: as Opacus wrapped it.
    """
    axis = 0 if model.batch_first else 1

    def before(inner: torch.nn.Module, inputs: Any, named: Any) -> None:
        if not inner.training or not torch.is_grad_enabled():
            return
        examples = _examples([inputs, named], axis)
        if examples > 1:
            handle.remove()
            _check_rows(model, _fewer(inputs, examples, axis), _fewer(named, examples, axis), examples, axis)

    handle = model._module.register_forward_pre_hook(before, with_kwargs=True)


def _check_rows(model: Any, inputs: Any, named: Any, before: int, axis: int) -> None:
    """Run a model on one example less than ``before``; raise for a layer that has that many rows all the same."""
    inner, still = model._module, []

    def see(name: str, given: Any) -> None:
        rows = [part.shape[axis] for part in given if isinstance(part, torch.Tensor) and part.dim() > axis]
        if rows and set(rows) == {before}:
            still.append(name)

    names = {part: name for name, part in inner.named_modules()}
    layers = [
        part
        for part in model.iterate_submodules(inner)
        if not isinstance(part, RNNLinear)  # the rows of packed sequences are those of each place
        and any(parameter.requires_grad for parameter in part.parameters(recurse=False))
    ]
    handles = [part.register_forward_pre_hook(lambda part, given: see(names[part], given)) for part in layers]
    devices = sorted({p.device for p in inner.parameters() if p.device.type == "cuda"}, key=str)
    try:
        with (
            torch.random.fork_rng(devices),
            torch.no_grad(),
            suppress(ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError),
        ):
            inner(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    if still:
        raise UnsupportedError(
            f"The layer {still[0]!r} has {before} rows for {before - 1} examples as for {before}, so that they are of "
            "something else and its gradient cannot be clipped by example; the first dimension of what every layer "
            "gets must be that of the examples, position ids included."
        )


def _examples(given: Any, axis: int) -> int:
    """The rows of the first tensor that has some; 0 where none has."""
    if isinstance(given, torch.Tensor):
        return given.shape[axis] if given.dim() > axis else 0
    parts = given.values() if isinstance(given, Mapping) else given if isinstance(given, Sequence) else ()
    return next((rows for rows in (_examples(part, axis) for part in parts if not isinstance(part, str)) if rows), 0)


def _fewer(given: Any, examples: int, axis: int) -> Any:
    """The same without the last of so many examples, as far as tensors, lists, tuples and mappings go."""
    if isinstance(given, torch.Tensor):
        whole = given.dim() > axis and given.shape[axis] == examples
        return given.narrow(axis, 0, examples - 1) if whole else given
    if isinstance(given, Mapping):
        return {name: _fewer(part, examples, axis) for name, part in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_fewer(part, examples, axis) for part in given)
    return given
