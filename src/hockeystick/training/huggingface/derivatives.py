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
from typing import Any, Self, cast

import torch

from hockeystick.training.huggingface.shards import is_sharded

LossOf = Callable[[list[Any]], torch.Tensor]
"""From some examples, computed in one batch, to the mean of their losses."""
LossesOf = Callable[[list[Any]], torch.Tensor | None]
"""From some examples, computed in one batch, to a loss for each; None where there is only one for all."""
Place = tuple[str, int]
"""A layer, or an input of the model, by name, and which of its calls."""
ByExample = tuple[torch.Tensor, int]
"""A tensor, and which of its dimensions is that of the examples: not the first in models that turn batches around. Of
examples with several rows (``rows.py``), it has the first rows of all before the second ones."""
SMALL = 0.1
"""The largest entry of a layer's outputs in the second pass."""
TINY = 1e-30
"""Derivatives below this are none."""


class Pass:
    """A forward pass of some examples in one batch, and the tensors on the way to their losses.

    A context, which has to last until derivatives are taken, as checkpointed layers run again for them.

    Args:
        model: without hooks for per-sample gradients.
        rows: the number of rows of an example in what goes through the model, where it is not one.
        small: whether outputs of layers are multiplied by a constant that makes their entries at most ``SMALL``.
        layers: whether ``outputs`` are kept, which takes memory.

    Attributes:
        losses: one for each example, or None.
        sources: by place, what enters the model: floating-point inputs, and the outputs of layers that are given
            whole numbers alone. They are leaves, so that derivatives exist also where embeddings are frozen.
        outputs: by place and in the order of calls, what layers without layers of their own give.
        shapes: by place, of each of them.
    """

    def __init__(self, model: torch.nn.Module, rows: int = 1, *, small: bool = False, layers: bool = False) -> None:
        self.model, self.rows, self.small, self.layers = model, rows, small, layers
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
        """Those with the rows of each example, of which a batch with one example more has more."""
        examples = 0 if self.losses is None else len(self.losses)
        chosen: dict[Place, ByExample] = {}
        for place, tensor in tensors.items():
            shape, other = self.shapes[place], longer.shapes.get(place, ())
            grown = [axis for axis in range(min(len(shape), len(other))) if shape[axis] != other[axis]]
            sizes = [(rows * examples, rows * (examples + 1)) for rows in (1, self.rows)]
            if len(grown) == 1 and (shape[grown[0]], other[grown[0]]) in sizes:
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


def dependence(model: torch.nn.Module, examples: Sequence[Any], losses_of: LossesOf, rows: int = 1) -> str | None:
    """Whose loss depends on another example, and the first layer that mixes them; None where no loss does.

    None also where it cannot be known: the examples have no losses of their own, or enter the model otherwise than by
    layers that take whole numbers alone and by floating-point inputs.
    """
    with torch.no_grad(), Pass(model, rows) as longer:
        longer.run([*examples, examples[0]], losses_of)
    for small in (False, True):
        with Pass(model, rows, small=small) as together:
            together.run(examples, losses_of)
            if together.losses is None:
                return None
            sources = list(together.by_example(together.sources, longer).values())
            reaches = [_reach(loss, sources, at, len(examples)) for at, loss in enumerate(together.losses)]
        for at, reach in enumerate(reaches):
            if reach != 0:
                if is_sharded(model):  # weights are there in backward passes from its outputs alone
                    layer = "which layer mixes them is not looked for in a model of fully_shard"
                else:
                    with Pass(model, rows, small=small, layers=True) as again:
                        again.run(examples, losses_of)
                        layer = _first_that_mixes(again, longer, at)
                return (
                    "the derivative of a loss by the embeddings or inputs of another example must be zero and is up to "
                    f"{reach:.2g}; {layer}"
                )
    return None


def dependence_of_mean(
    model: torch.nn.Module, examples: Sequence[Any], loss_of: LossOf, tolerance: float, rows: int = 1
) -> str | None:
    """Whether the derivative of a mean loss by some examples changes with another one; None where it does not.

    For losses that are not known by example. In batches of three, the first and the last of the examples are beside
    each of the others in turn. A mean of losses that each depend on an example alone has one derivative by those two,
    and all batches have one shape and the same rows in the same places, so that rounding is the same too.

    Args:
        model: without hooks for per-sample gradients.
        examples: the last of them the longest, so that all batches are padded to its length.
        loss_of: from some examples, computed in one batch, to the mean of their losses.
        tolerance: the change that is allowed, over the largest derivative.
        rows: of an example, as for :class:`Pass`.
    """

    def losses_of(batch: list[Any]) -> torch.Tensor:
        return loss_of(batch).expand(len(batch))

    first, *others, last = examples
    with torch.no_grad(), Pass(model, rows) as longer:
        longer.run([first, first, first, last], losses_of)
    before: list[torch.Tensor] = []
    for other in others:
        with Pass(model, rows) as together:
            together.run([first, other, last], losses_of)
            sources = together.by_example(together.sources, longer)
            leaves = [leaf for leaf, _ in sources.values()]
            loss = cast(torch.Tensor, together.losses)[0]
            parts = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves and loss.requires_grad else ()
        axes = [axis for _, axis in sources.values()]
        now = [_split(part, axis, 3)[:, ::2] for part, axis in zip(parts, axes, strict=False) if part is not None]
        for part, former in zip(now, before, strict=False):
            change = float((part - former).abs().max() / former.abs().max().clamp(min=TINY))
            if not change <= tolerance:
                return (
                    "the derivative of their loss by the embeddings or inputs of one changes by "
                    f"{change:.2g} of it with the examples beside it"
                )
        before = now
    return None


def _reach(result: torch.Tensor, sources: Sequence[ByExample], at: int, examples: int) -> float:
    """The largest derivative of a number by the sources of examples other than the one at the place; may be nan."""
    if not sources or not result.requires_grad:
        return 0.0
    leaves, axes = zip(*sources, strict=True)
    parts = torch.autograd.grad(result, leaves, retain_graph=True, allow_unused=True)
    split = [_split(p, axis, examples) for p, axis in zip(parts, axes, strict=True) if p is not None and p.numel()]
    others = [torch.cat([part[:, :at], part[:, at + 1 :]], dim=1).abs().max().double() for part in split]
    return float(torch.stack(others).max()) if others else 0.0


def _first_that_mixes(whole: Pass, longer: Pass, at: int) -> str:
    sources = list(whole.by_example(whole.sources, longer).values())
    for (name, _), (output, axis) in whole.by_example(whole.outputs, longer).items():
        examples = 0 if whole.losses is None else len(whole.losses)
        own = _split(output, axis, examples)[:, at]
        weights = torch.randn_like(own)  # a plain sum of normalised numbers has no derivative
        if _reach((own * weights).sum(), sources, at, examples) != 0:
            kind = type(whole.model.get_submodule(name)).__name__
            return f"the first layer that mixes them is {name!r} of type {kind}"
    return "no layer mixes them, so the loss does"


def _split(tensor: torch.Tensor, axis: int, examples: int) -> torch.Tensor:
    """With the rows of an example in the first dimension, and the examples in the second."""
    return tensor.movedim(axis, 0).unflatten(0, (-1, examples))


def _is_floating(entry: Any) -> bool:
    return isinstance(entry, torch.Tensor) and entry.is_floating_point() and entry.dim() > 0
