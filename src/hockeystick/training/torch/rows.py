"""Whether the rows of layers are those of the examples, and theirs alone, tried before a first forward pass."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from opacus.layers.dp_rnn import RNNLinear
from torch.nn.parallel import DistributedDataParallel

from hockeystick.calls import outside
from hockeystick.errors import UnsupportedError
from hockeystick.training.torch.dropout import without_dropout
from hockeystick.training.torch.mixing import (
    Replaced,
    Written,
    axes_of,
    check_written,
    mixes_backward,
    tensors_in,
    trial,
)

FAILURES = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a model may raise for another batch than it is made for."""

MOST = 3
"""Layers that a warning names."""

TAKES_NONE = "takes no batch of one example many times"
HAS_NO_ROWS = "returns no tensor with a row for each example, alone or in tuples, lists, mappings and dataclasses"
HAS_OTHER_SHAPES = "returns tensors of other shapes for a batch of one example many times"
"""Why nothing tells whether a model mixes examples."""


def watch_rows(model: Any) -> list[str]:
    """Have a wrapped model raise UnsupportedError where a row is of something else than an example, or of several.

    The gradients of a layer with rows of positions are summed over the batch before any of them is clipped. Where there
    are as many positions as examples, the numbers of rows do not tell, and batches of a fixed size are like that in
    every step. So the first batch of several examples runs forward once more, without gradients and without its last
    example: rows that are still as many are not of the examples. And once more with all but one example replaced, which
    must change nothing for that one, nor what the pass writes, and whose gradient must not depend on those of others
    (:mod:`.mixing`). Where the first of these passes ends with an error, as of a model for one size of batches, a
    warning names the layers that it did not come to, and training goes on. So it does, with a warning, where nothing
    that the model returns has a row for each example, as where it returns its loss.

    Args:
        model: as Opacus wrapped it.

    Returns: the names of these layers, or in the second case of all that are trained, once the first batch has run.
    """
    axis, untried = 0 if model.batch_first else 1, list[str]()

    def before(inner: torch.nn.Module, inputs: Any, named: Any) -> None:
        if not inner.training or not torch.is_grad_enabled():
            return
        examples = _examples([inputs, named], axis)
        if examples > 1:
            handle.remove()
            _compare(model, inputs, named, examples, axis, untried)

    handle = model._module.register_forward_pre_hook(before, with_kwargs=True)
    return untried


def _compare(model: Any, inputs: Any, named: Any, examples: int, axis: int, untried: list[str]) -> None:
    """Try a batch of so many examples without the last, and with all but one replaced, to compare what follows with.

    Args:
        untried: is given the layers that the first of these does not come to; all of them where the second tells
            nothing.
    """
    inner = model._module
    bare = inner.module if isinstance(inner, DistributedDataParallel) else inner  # which waits for other processes
    devices = sorted({p.device for p in inner.parameters() if p.device.type == "cuda"}, key=str)

    def outputs(change: Callable[[Any, int, int], Any], *, graph: bool = False) -> list[torch.Tensor] | None:
        """Those of a changed batch, with a graph or without; None where the model cannot have it."""
        try:
            with trial(devices), torch.set_grad_enabled(graph):
                return tensors_in(bare(*change(inputs, examples, axis), **change(named, examples, axis)))
        except FAILURES:
            return None

    state = Written(inner)
    layers: list[torch.Tensor] = []
    try:
        with _graph(model, layers):
            others = outputs(_alike, graph=True)
        written = state.undo()
        fewer, missed = _check_rows(model, lambda: outputs(_fewer), examples, axis)
    finally:
        state.undo()
    untried += missed
    axes = [] if others is None else axes_of(examples, others, fewer)
    if others is None or all(own is None for own in axes):
        untried += [] if missed else _untold(model, TAKES_NONE if others is None else HAS_NO_ROWS)
        return
    with _unseen(model), torch.random.fork_rng(devices):
        _check_backward(others, axes, layers, examples, axis)
    others = [other.detach() for other in others]
    replaced = Replaced(others, examples)

    def after(inner: Any, given: Any, output: Any) -> None:
        del given
        handle.remove()
        check_written(written, {key: getattr(key[0], key[2]) for key in written})
        found = tensors_in(output)
        alike = [one.shape == other.shape for one, other in zip(found, others, strict=False)]
        if not any(same and own is not None for same, own in zip(alike, axes, strict=False)):
            untried.extend([] if missed else _untold(model, HAS_OTHER_SHAPES))
        if not replaced.differ(found, axes):
            return
        state = Written(inner)
        with without_dropout():
            others_again, again = outputs(_alike), outputs(lambda whole, *_: whole)
        state.undo()
        if others_again and again and Replaced(others_again, examples).differ(again, axes):
            raise UnsupportedError(
                f"What the model computes for an example changes when the others of a batch of {examples} are "
                "replaced, so that clipping does not bound what one example changes; let no layer look across the "
                "examples, as statistics of the batch do, or attention whose first dimension is not the batch's."
            )

    handle = inner.register_forward_hook(after)


@contextmanager
def _graph(model: Any, layers: list[torch.Tensor]) -> Iterator[None]:
    """Passes keep a graph, of which Opacus sees nothing; the outputs of trained layers are added to a list."""
    parts = [part for part in _trained(model) if not isinstance(part, RNNLinear)]
    handles = [part.register_forward_hook(lambda *seen: layers.extend(tensors_in(seen[-1]))) for part in parts]
    try:
        with _unseen(model):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _unseen(model: Any) -> Iterator[None]:
    """Opacus' hooks see nothing."""
    enabled = model.hooks_enabled
    model.disable_hooks()
    try:
        yield
    finally:
        if enabled:
            model.enable_hooks()


def _check_backward(
    outputs: Sequence[torch.Tensor],
    axes: Sequence[int | None],
    layers: Sequence[torch.Tensor],
    examples: int,
    axis: int,
) -> None:
    """Raise UnsupportedError where the backward pass mixes examples; models that have no way back here pass."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook is firing")  # Opacus' hooks, which see nothing here
            mixed = mixes_backward(outputs, axes, layers, examples, axis)
    except FAILURES:
        return
    if mixed:
        raise UnsupportedError(
            f"The gradient that comes back for an example of a batch of {examples} changes with the gradients "
            "of the others, so that clipping does not bound what one example changes; let no backward pass look across "
            "the examples, as one that normalises or centres gradients over the batch does."
        )


def _trained(model: Any) -> list[torch.nn.Module]:
    """The layers that have trained parameters themselves."""
    return [
        part
        for part in model.iterate_submodules(model._module)
        if any(parameter.requires_grad for parameter in part.parameters(recurse=False))
    ]


def _check_rows(
    model: Any, run: Callable[[], list[torch.Tensor] | None], before: int, axis: int
) -> tuple[list[torch.Tensor] | None, list[str]]:
    """Run a model on one example less than ``before``; raise for a layer that has that many rows all the same.

    Returns: the outputs, or None; and the layers that the model did not come to because it raised an error, of which a
        warning tells.
    """
    inner, still, seen = model._module, [], set[str]()

    def see(name: str, given: Any) -> None:
        seen.add(name)
        rows = [part.shape[axis] for part in given if isinstance(part, torch.Tensor) and part.dim() > axis]
        if rows and set(rows) == {before}:
            still.append(name)

    names = {part: name for name, part in inner.named_modules()}
    # the rows of packed sequences are those of each place
    layers = [part for part in _trained(model) if not isinstance(part, RNNLinear)]
    handles = [part.register_forward_pre_hook(lambda part, given: see(names[part], given)) for part in layers]
    try:
        outputs = run()
    finally:
        for handle in handles:
            handle.remove()
    if still:
        raise UnsupportedError(
            f"The layer {still[0]!r} has {before} rows both for {before - 1} examples and for {before}, so its rows "
            "are not examples and its gradient cannot be clipped per example; the first dimension of what every layer "
            "gets must be that of the examples, position ids included."
        )
    untried = [] if outputs is not None else [names[layer] for layer in layers if names[layer] not in seen]
    if untried:
        warnings.warn(
            f"The model takes no batch of {before - 1} examples, so whether the rows of "
            f"{_listed(untried)} are those of the examples was not tried, and records have the promise 'norms' as "
            "asserted, not as checked; see that the first dimension of what they get is that of the examples.",
            stacklevel=outside(),
        )
    return outputs, untried


def _untold(model: Any, reason: str) -> list[str]:
    """Warn that nothing tells whether the model mixes the examples; the names of its trained layers."""
    warnings.warn(
        f"The model {reason}, so whether it mixes the examples of a batch was not tried, and records have the promise "
        "'norms' as asserted, not as checked; let the model return its outputs, and compute the loss outside of it.",
        stacklevel=outside(),
    )
    trained = set(_trained(model))
    return [name for name, part in model._module.named_modules() if part in trained]


def _listed(names: Sequence[str]) -> str:
    """The first of some layers, and how many others there are."""
    more = f" and {len(names) - MOST} others" if len(names) > MOST else ""
    return f"{', '.join(map(repr, names[:MOST]))}{more}"


def _examples(given: Any, axis: int) -> int:
    """The rows of the first tensor that has some; 0 where none has."""
    if isinstance(given, torch.Tensor):
        return given.shape[axis] if given.dim() > axis else 0
    parts = given.values() if isinstance(given, Mapping) else given if isinstance(given, Sequence) else ()
    return next((rows for rows in (_examples(part, axis) for part in parts if not isinstance(part, str)) if rows), 0)


def _fewer(given: Any, examples: int, axis: int) -> Any:
    """The same without the last of so many examples, as far as tensors, lists, tuples and mappings go."""
    return _changed(given, examples, axis, lambda whole: whole.narrow(axis, 0, examples - 1))


def _alike(given: Any, examples: int, axis: int) -> Any:
    """The same with the example in the middle in the place of all of so many, as far as these go."""

    def alike(whole: torch.Tensor) -> torch.Tensor:
        middle = torch.full((examples,), examples // 2, device=whole.device)
        return whole.index_select(axis, middle)

    return _changed(given, examples, axis, alike)


def _changed(given: Any, examples: int, axis: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(given, torch.Tensor):
        return change(given) if given.dim() > axis and given.shape[axis] == examples else given
    if isinstance(given, Mapping):
        return {name: _changed(part, examples, axis, change) for name, part in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_changed(part, examples, axis, change) for part in given)
    return given
