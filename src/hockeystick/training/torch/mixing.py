"""Whether a model mixes the examples of a batch, or writes what they are: tried once, with all but one replaced.

The pass of the training is compared with one in which the example in the middle stands in the place of all others. Both
draw the same random numbers and have the same shapes, so what is computed for that example is the same wherever it
depends on nothing else. Masks of dropout may be drawn for numbers of tokens that differ, so a difference has to be
there without dropout as well. That pass then runs backward twice, from random gradients of all examples and of the one
in the middle alone: what comes back for that one is the same, unless an operation mixes gradients. That they agree on
one batch, with the weights of the beginning, is no proof.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from hockeystick.errors import UnsupportedError

TOLERANCE, COARSE = 1e-3, 2.0**-4
"""The change of an output, over its norm, that is let go: kernels may choose another order of summation by what a batch
has in it. The second number is for types of less than 32 bits."""


Key = tuple[torch.nn.Module, str, str]
"""A tensor of a model: the layer that has it, whether it is a parameter or a buffer, and its name there."""


class Written:
    """The parameters and buffers of a model, and what a pass leaves in them.

    Of frozen weights, which may be most of the memory, there is no copy but two sums.

    Args:
        model: whose tensors are kept, those of ``fully_shard`` excepted.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.kept: dict[Key, tuple[torch.Tensor, torch.Tensor]] = {}
        self.sums: dict[Key, tuple[float, ...]] = {}
        for part in model.modules():
            for name, buffer in part.named_buffers(recurse=False):
                self.kept[part, "buffer", name] = buffer, buffer.detach().clone()
            for name, parameter in part.named_parameters(recurse=False):
                if isinstance(parameter, DTensor | torch.nn.parameter.UninitializedTensorMixin):
                    continue
                if parameter.requires_grad:
                    self.kept[part, "parameter", name] = parameter, parameter.detach().clone()
                else:
                    self.sums[part, "parameter", name] = _sums(parameter)

    def undo(self) -> dict[Key, torch.Tensor | None]:
        """Put back what was there, and return what stood in its place; None for frozen weights that were changed.

        Buffers that a pass made stay, as the model may remember that it has them.
        """
        changed: dict[Key, torch.Tensor | None] = {
            (part, "buffer", name): buffer.detach().clone()
            for part in self.model.modules()
            for name, buffer in part.named_buffers(recurse=False)
            if (part, "buffer", name) not in self.kept
        }
        for key, (tensor, copy) in self.kept.items():
            part, _, name = key
            now = getattr(part, name)
            if now is tensor and same(now, copy):
                continue
            changed[key] = now.detach().clone()
            if tensor.shape == copy.shape:
                tensor.data.copy_(copy)
            else:
                tensor.data = copy.clone()
            setattr(part, name, tensor)
        for key, sums in self.sums.items():
            part, _, name = key
            if _sums(getattr(part, name)) != sums:
                changed[key] = None
        return changed


def check_written(first: Mapping[Key, torch.Tensor | None], second: Mapping[Key, torch.Tensor | None]) -> None:
    """Raise UnsupportedError for a tensor of the model in which passes over other examples leave something else.

    Args:
        first, second: what each of two passes changed, as :meth:`Written.undo` returns it.
    """
    for key in [*first, *second]:
        value, other = first.get(key), second.get(key)
        if value is None or other is None or not same(value, other):
            part, kind, name = key
            raise UnsupportedError(
                f"A forward pass writes what the examples of a batch are to the {kind} {name!r} of a layer of type "
                f"{type(part).__name__}, without noise; remove that, or compute it from public data beforehand."
            )


@dataclass(frozen=True)
class Replaced:
    """What a pass computed with the example in the middle in the place of all others.

    Attributes:
        outputs: tensors in the order in which they are found.
        examples: in the batch.
    """

    outputs: Sequence[torch.Tensor]
    examples: int

    def differ(self, outputs: Sequence[torch.Tensor], axes: Sequence[int | None]) -> bool:
        """Whether the example in the middle has other outputs here than in the pass with replaced examples.

        Args:
            outputs: of the examples as they are.
            axes: which dimension of each is that of the examples; None for one that has none.
        """
        for own, other, axis in zip(outputs, self.outputs, axes, strict=False):
            if axis is None or own.shape != other.shape:
                continue
            own, other = (tensor.detach().narrow(axis, self.examples // 2, 1) for tensor in (own, other))
            change = torch.where((own == other) | (own.isnan() & other.isnan()), 0.0, own.double() - other.double())
            length = torch.linalg.vector_norm(torch.where(own.isfinite(), own, 0.0).double())
            tolerance = TOLERANCE if own.dtype.itemsize >= 4 else COARSE
            if not torch.linalg.vector_norm(change) <= tolerance * length:
                return True
        return False


def mixes_backward(
    outputs: Sequence[torch.Tensor],
    axes: Sequence[int | None],
    layers: Sequence[torch.Tensor],
    examples: int,
    axis: int,
) -> bool:
    """Whether the gradient of the example in the middle depends on those of the others, in a pass with a graph.

    Raises: what autograd does where there is no way back.

    Args:
        outputs: of the model.
        axes: which dimension of each is that of the examples; None for one that has none.
        layers: outputs of layers.
        examples: in the batch.
        axis: the dimension of the examples in what layers give.
    """
    ends = [(end, own) for end, own in zip(outputs, axes, strict=True) if own is not None and end.requires_grad]
    inner = [layer for layer in layers if layer.requires_grad and layer.dim() > axis and layer.shape[axis] == examples]
    if not ends or not inner:
        return False
    whole = [torch.randn_like(end) for end, _ in ends]
    alone = [torch.zeros_like(end) for end, _ in ends]
    for part, source, (_, own) in zip(alone, whole, ends, strict=True):
        part.narrow(own, examples // 2, 1).copy_(source.narrow(own, examples // 2, 1))
    back, again = (
        torch.autograd.grad([end for end, _ in ends], inner, given, retain_graph=True, allow_unused=True)
        for given in (whole, alone)
    )
    pairs = [(one, other) for one, other in zip(back, again, strict=True) if one is not None and other is not None]
    return Replaced([other for _, other in pairs], examples).differ([one for one, _ in pairs], [axis] * len(pairs))


@contextmanager
def trial(devices: Sequence[torch.device]) -> Iterator[None]:
    """Random numbers are those of the pass of the training, and no graph is kept."""
    with torch.random.fork_rng(devices), torch.no_grad():
        yield


def tensors_in(given: Any) -> list[torch.Tensor]:
    """The tensors of real numbers in an output, in order: also in tuples, lists, mappings and dataclasses."""
    if isinstance(given, torch.Tensor):
        return [given] if given.is_floating_point() else []
    if is_dataclass(given) and not isinstance(given, Mapping):
        given = [getattr(given, part.name) for part in fields(given)]
    parts = given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


def axes_of(examples: int, whole: Sequence[torch.Tensor], fewer: Sequence[torch.Tensor] | None) -> list[int | None]:
    """For each output, the dimension of the examples: the one that is shorter by one where there is one example less.

    Args:
        examples: in the whole batch.
        whole, fewer: outputs for it, and for one example less; None where that pass failed, which leaves the first.
    """
    if fewer is None:
        return [0 if tensor.dim() and tensor.shape[0] == examples else None for tensor in whole]
    if len(fewer) != len(whole):
        return [None] * len(whole)
    return [_shorter(examples, one.shape, other.shape) for one, other in zip(whole, fewer, strict=True)]


def _shorter(examples: int, whole: Sequence[int], fewer: Sequence[int]) -> int | None:
    if len(whole) != len(fewer):
        return None
    unlike = [axis for axis, (one, other) in enumerate(zip(whole, fewer, strict=True)) if one != other]
    return unlike[0] if len(unlike) == 1 and whole[unlike[0]] == examples == fewer[unlike[0]] + 1 else None


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same numbers, or none at the same places."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _sums(frozen: torch.Tensor) -> tuple[float, ...]:
    """The sums of all numbers and of their sizes; 0 for what is no number. Of types of 8 bits, that of their bits."""
    frozen = torch.view_as_real(frozen) if frozen.is_complex() else frozen
    if frozen.dtype.itemsize == 1:  # torch adds up no float8
        frozen = frozen.view(torch.uint8)
    if not frozen.is_floating_point():
        return (float(frozen.sum(dtype=torch.int64)),)
    found = (frozen.sum(dtype=torch.float64), torch.linalg.vector_norm(frozen, 1, dtype=torch.float64))
    return tuple(float(total.nan_to_num(nan=0.0)) for total in found)
