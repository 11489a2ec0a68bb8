"""Whether the loss of an example has a derivative by the examples beside it.

In a batch of both, the derivative of one example's loss by what the other puts into the model has to be zero. It is
exactly zero where nothing mixes them, in any precision and with any kernel: the backward pass starts from zeros in the
rows of the other example, and multiplies zeros by finite numbers. So there is no tolerance, and a dependence is seen
whatever its size, unless its floating-point derivative underflows. A saturated softmax does that, so a second pass has
layers with small outputs. Inputs of tokens have no derivatives; the outputs of the layers that take them, embeddings,
do.

What acts through whole numbers (counts of tokens, positions, routes to experts), through values without derivatives or
through what is kept from one batch to the next is not seen here. See ``docs/theory/runs.md``.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import torch

LossesOf = Callable[[list[Any]], torch.Tensor | None]
"""From some examples, computed in one batch, to a loss for each; None where there is only one for all."""
Place = tuple[str, int]
"""A layer, or an input of the model, by name, and which of its calls."""
ByExample = tuple[torch.Tensor, int]
"""A tensor, and which of its dimensions is that of the examples: not the first in models that turn batches around."""
SMALL = 0.1
"""The largest entry of a layer's outputs in the second pass."""


class Pass:
    """A forward pass of some examples in one batch, and the tensors on the way to their losses.

    A context, which has to last until derivatives are taken, as checkpointed layers run again for them.

    Args:
        model: without hooks for per-sample gradients.
        small: whether outputs of layers are multiplied by a constant that makes their entries at most ``SMALL``.
        layers: whether ``outputs`` are kept, which takes memory.

    Attributes:
        losses: one for each example, or None.
        sources: by place, what enters the model: floating-point inputs, and the outputs of layers that are given
            whole numbers alone. They are leaves, so that derivatives exist also where embeddings are frozen.
        outputs: by place and in the order of calls, what layers without layers of their own give.
        shapes: by place, of each of them.
    """

    def __init__(self, model: torch.nn.Module, *, small: bool = False, layers: bool = False) -> None:
        self.model, self.small, self.layers = model, small, layers
        self.losses: torch.Tensor | None = None
        self.sources: dict[Place, torch.Tensor] = {}
        self.outputs: dict[Place, torch.Tensor] = {}
        self.shapes: dict[Place, torch.Size] = {}
        self._over = False
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        layers = [(name, part) for name, part in self.model.named_modules() if not list(part.children())]
        self._handles = [
            part.register_forward_hook(partial(self._after_layer, name), with_kwargs=True) for name, part in layers
        ]
        self._handles.append(self.model.register_forward_pre_hook(self._before_model, with_kwargs=True))
        return self

    def __exit__(self, *unused: object) -> None:
        for handle in self._handles:
            handle.remove()

    def run(self, examples: Sequence[Any], losses_of: LossesOf) -> None:
        self.losses = losses_of(list(examples))
        self._over = True

    def by_example(self, tensors: Mapping[Place, torch.Tensor], longer: "Pass") -> dict[Place, ByExample]:
        """Those that have one row for each example, and that have one more in a batch with one example more."""
        examples = 0 if self.losses is None else len(self.losses)
        chosen: dict[Place, ByExample] = {}
        for place, tensor in tensors.items():
            shape, other = self.shapes[place], longer.shapes.get(place, ())
            grown = [axis for axis in range(min(len(shape), len(other))) if shape[axis] != other[axis]]
            if len(grown) == 1 and (shape[grown[0]], other[grown[0]]) == (examples, examples + 1):
                chosen[place] = tensor, grown[0]
        return chosen

    def _before_model(self, model: Any, inputs: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        del model
        return inputs, {
            name: self._source((name, 0), entry) if _is_floating(entry) else entry for name, entry in named.items()
        }

    def _after_layer(self, name: str, layer: Any, inputs: Any, named: dict[str, Any], output: Any) -> Any:
        del layer
        if not _is_floating(output):
            return output
        place = (name, self._calls[name])
        self._calls[name] += 1
        given = [entry for entry in (*inputs, *named.values()) if isinstance(entry, torch.Tensor)]
        if given and not any(map(_is_floating, given)):
            output = self._source(place, output)
        if self.small:
            largest = float(output.detach().abs().max()) if output.numel() else 0.0
            if SMALL < largest < math.inf:
                output = output * (SMALL / largest)
        if not self._over:
            self.shapes[place] = output.shape
            if self.layers:
                self.outputs[place] = output.clone()  # as it is before any operation in place
        return output

    def _source(self, place: Place, entry: torch.Tensor) -> torch.Tensor:
        leaf = entry.detach().requires_grad_()
        if not self._over:
            self.sources[place], self.shapes[place] = leaf, leaf.shape
        return leaf.clone()  # so that operations in place are allowed


def dependence(model: torch.nn.Module, examples: Sequence[Any], losses_of: LossesOf) -> str | None:
    """Whose loss depends on another example, and the first layer that mixes them; None where no loss does.

    None also where it cannot be known: the examples have no losses of their own, or enter the model otherwise than by
    layers that take whole numbers alone and by floating-point inputs.
    """
    with torch.no_grad(), Pass(model) as longer:
        longer.run([*examples, examples[0]], losses_of)
    for small in (False, True):
        with Pass(model, small=small) as together:
            together.run(examples, losses_of)
            if together.losses is None:
                return None
            sources = list(together.by_example(together.sources, longer).values())
            reaches = [_reach(loss, sources, at) for at, loss in enumerate(together.losses)]
        for at, reach in enumerate(reaches):
            if reach != 0:
                with Pass(model, small=small, layers=True) as again:
                    again.run(examples, losses_of)
                    layer = _first_that_mixes(again, longer, at)
                return (
                    "the derivative of a loss by the embeddings or inputs of another example must be zero and is up to "
                    f"{reach:.2g}; {layer}"
                )
    return None


def _reach(result: torch.Tensor, sources: Sequence[ByExample], at: int) -> float:
    """The largest derivative of a number by the sources of examples other than the one at the place; may be nan."""
    if not sources or not result.requires_grad:
        return 0.0
    leaves, axes = zip(*sources, strict=True)
    parts = torch.autograd.grad(result, leaves, retain_graph=True, allow_unused=True)
    rows = [part.movedim(axis, 0) for part, axis in zip(parts, axes, strict=True) if part is not None and part.numel()]
    others = [torch.cat([row[:at], row[at + 1 :]]).abs().max().double() for row in rows]
    return float(torch.stack(others).max()) if others else 0.0


def _first_that_mixes(whole: Pass, longer: Pass, at: int) -> str:
    sources = list(whole.by_example(whole.sources, longer).values())
    for (name, _), (output, axis) in whole.by_example(whole.outputs, longer).items():
        own = output.select(axis, at)
        weights = torch.randn_like(own)  # a plain sum of normalised numbers has no derivative
        if _reach((own * weights).sum(), sources, at) != 0:
            kind = type(whole.model.get_submodule(name)).__name__
            return f"the first layer that mixes them is {name!r} of type {kind}"
    return "no layer mixes them, so the loss does"


def _is_floating(entry: Any) -> bool:
    return isinstance(entry, torch.Tensor) and entry.is_floating_point() and entry.dim() > 0
