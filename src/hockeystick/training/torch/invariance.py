"""Whether the gradient of an example depends on its place in a physical batch, or on the other examples there.

A certificate that covers the bits needs every clipped and rounded gradient to depend on the released state and on its
own example alone (``docs/theory/exact-sums.md``). In floating point that is a property of kernels: the order in which a
matrix product adds may change with the number of rows. This audit tries it out.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.gsm_base import AbstractGradSampleModule
from opacus.validators.errors import UnsupportedModuleError

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.training.invariance import LARGE, Invariance, LayerChange, ShapeChange, beside, check_numbers, spread
from hockeystick.training.torch.guards import in_our_words
from hockeystick.training.torch.layers import check_normalisation, check_writes
from hockeystick.training.torch.private_names import DropoutNd, NormBase

Example = tuple[Any, Any]
"""What goes into the model, and the target: tensors without a dimension for the examples."""


@called("hs.audit.invariance(model, criterion, (x, y), batch=32)")
def invariance(
    model: torch.nn.Module,
    criterion: Callable[[Any, Any], torch.Tensor],
    example: Example,
    *,
    batch: int,
    neighbours: Sequence[Example] = (),
    places: Sequence[int] | None = None,
    shapes: Sequence[int] | None = None,
    grad_sample_mode: Literal["hooks", "functorch"] = "hooks",
    loss_reduction: Literal["mean", "sum"] = "mean",
    seed: int = 0,
) -> Invariance:
    """Compute the gradient of one example at each place of a physical batch, beside other examples, and compare bits.

    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    >>> example = torch.ones(6), torch.tensor(2)
    >>> found = invariance(model, torch.nn.CrossEntropyLoss(), example, batch=4)
    >>> found.comparisons, len(found.layers)
    (15, 4)

    The neighbours are zeros, random numbers as large as the example's and 1,000 times as large, the example itself, and
    the given ones. Whole numbers, such as labels and tokens, are drawn from 0 to the largest of the example's. The
    model and the state of torch's generator stay as they are.

    Args:
        model: in training mode, as ``make_private`` takes it; a copy of it is used.
        criterion: of the model's output and the target; the mean or the sum of the losses of the examples.
        example: a pair of what goes into the model (a tensor, a tuple of positional arguments or a mapping of named
            ones) and the target. No tensor has a dimension for the examples.
        batch: examples in a physical batch, at least 2.
        neighbours: other examples of the same form, to stand beside this one.
        places: of the example in the batch, from 0; by default all of them, or 16 that include the ends.
        shapes: other numbers of examples to compare with; by default 1, 3 and twice the batch.
        grad_sample_mode, loss_reduction: as ``make_private`` has them.
        seed: of the random neighbours, and of torch's generator in every pass.

    Raises: UnsupportedError for a layer that takes statistics from whole batches, which it names, and for a model that
    Opacus cannot handle; InvalidInputError for a model that is wrapped or in evaluation mode or has no trained
    parameters, for arguments out of range and for an example whose gradient is zero or not finite.
    """
    _check(model, batch, places, shapes, grad_sample_mode)
    dropout = tuple(dict.fromkeys(drawing_layers(model)))
    tried = spread(batch) if places is None else [int(place) for place in places]
    contrast = [number for number in (1, 3, 2 * batch) if number != batch] if shapes is None else list(shapes)
    private = deepcopy(model)
    try:
        wrapped = GradSampleModule(
            private, loss_reduction=loss_reduction, force_functorch=grad_sample_mode == "functorch"
        )
    except (NotImplementedError, UnsupportedModuleError) as error:
        raise _words_of(error) from error
    parameters = {name: parameter for name, parameter in private.named_parameters() if parameter.requires_grad}
    company = _company(example, neighbours, seed)
    device = next(iter(parameters.values())).device

    def gradients(rows: Sequence[Example]) -> dict[str, torch.Tensor]:
        """Per-sample gradients of every parameter for a batch of these examples, shape (examples, numbers)."""
        for parameter in parameters.values():
            parameter.grad = parameter.grad_sample = None
        torch.manual_seed(seed)
        output = _called(wrapped, _stacked([inputs for inputs, _ in rows]))
        criterion(output, _stacked([target for _, target in rows])).backward()
        return {name: _samples(name, parameter, len(rows)) for name, parameter in parameters.items()}

    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        first = {name: rows[0] for name, rows in gradients(beside(example, company[0], 0, batch)).items()}
        norm = _norm(first, {name: torch.zeros_like(row) for name, row in first.items()})
        if not 0.0 < norm < sys.float_info.max:
            raise InvalidInputError(
                f"The 'example' argument must have a gradient that is finite and not zero. Got one of norm {norm!r}."
            )
        seen: list[dict[str, torch.Tensor]] = []
        for others in company:
            for place in tried:
                rows = gradients(beside(example, others, place, batch))
                seen.append({name: row[place] for name, row in rows.items()})
        alone = gradients([example] * batch)
        seen += [{name: row[place] for name, row in alone.items()} for place in tried]
        contrasts = {
            number: {name: row[0] for name, row in gradients(beside(example, company[0], 0, number)).items()}
            for number in contrast
        }
    seen = seen[1:] if tried[0] == 0 else seen  # the first one is what the others are compared with
    layers = [_layer(name, first[name], [gradient[name] for gradient in seen], norm) for name in parameters]
    return Invariance(
        batch=batch,
        mode=grad_sample_mode,
        device=f"{device}, {torch.get_num_threads()} thread(s)" if device.type == "cpu" else str(device),
        comparisons=len(seen),
        layers=tuple(sorted(layers, key=lambda layer: (-layer.change, -layer.changed))),
        shapes=tuple(
            ShapeChange(examples=number, change=min(_norm(gradient, first) / norm, sys.float_info.max))
            for number, gradient in contrasts.items()
        ),
        dropout=dropout,
    )


def drawing_layers(model: torch.nn.Module) -> Iterator[str]:
    """Names of the layers in training mode that draw dropout masks for whole batches."""
    for name, part in model.named_modules():
        if draws(part):
            yield name or type(part).__name__


def draws(part: torch.nn.Module) -> bool:
    """Whether a layer itself, in the mode it is in, draws a dropout mask for a whole batch."""
    chance = part.p if isinstance(part, DropoutNd) else 0.0
    if isinstance(part, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        chance = part.dropout
    return bool(part.training and chance > 0.0)


def _check(
    model: torch.nn.Module,
    batch: int,
    places: Sequence[int] | None,
    shapes: Sequence[int] | None,
    grad_sample_mode: str,
) -> None:
    """Raise for arguments that no audit can be made of."""
    if isinstance(model, AbstractGradSampleModule) or not isinstance(model, torch.nn.Module):
        raise InvalidInputError(
            "The 'model' argument must be a torch module as it was before make_private. "
            f"Got an object of type {type(model).__name__!r} instead."
        )
    if grad_sample_mode not in ("hooks", "functorch"):
        raise InvalidInputError(
            f"The 'grad_sample_mode' argument must be 'hooks' or 'functorch'. Got {grad_sample_mode!r} instead."
        )
    check_numbers(batch, places, shapes)
    for name, part in model.named_modules():
        if isinstance(part, NormBase):
            check_normalisation(part, name)
        check_writes(part, name)
    if not model.training or not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInputError(
            "The 'model' argument must be in training mode, as by model.train(), and have parameters that are trained."
        )


def _words_of(error: Exception) -> UnsupportedError:
    if isinstance(error, UnsupportedModuleError):
        return in_our_words(error)
    return UnsupportedError(f"Opacus cannot make this model private: {shortened(str(error))}.")


def _company(example: Example, neighbours: Sequence[Example], seed: int) -> list[list[Example]]:
    """Lists of examples to stand beside this one: zeros, random ones, large ones, and the given ones."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        [example_of(example, torch.zeros_like)],
        [example_of(example, lambda tensor: _random(tensor, 1.0, generator)) for _ in range(5)],
        [example_of(example, lambda tensor: _random(tensor, LARGE, generator)) for _ in range(5)],
    ]
    return [*made, *([list(neighbours)] if neighbours else [])]


def example_of(example: Any, made: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same form with other tensors."""
    if isinstance(example, torch.Tensor):
        return made(example)
    if isinstance(example, Mapping):
        return {name: example_of(part, made) for name, part in example.items()}
    if isinstance(example, tuple | list):
        return type(example)(example_of(part, made) for part in example)
    raise InvalidInputError(
        "The 'example' argument must be made of tensors, tuples, lists and mappings. "
        f"Got an object of type {type(example).__name__!r} in it."
    )


def _random(tensor: torch.Tensor, scale: float, generator: torch.Generator) -> torch.Tensor:
    """Random numbers that stand in for another example's."""
    if tensor.is_floating_point():
        size = float(tensor.double().square().mean().sqrt()) or 1.0
        made = torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * size * scale
    else:
        most = int(tensor.max()) if tensor.numel() else 0
        made = torch.randint(0, max(most, 0) + 1, tensor.shape, generator=generator)
    return made.to(tensor.device, tensor.dtype)


def _stacked(parts: Sequence[Any]) -> Any:
    """Examples of one form as a batch."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(list(parts))
    if isinstance(first, Mapping):
        return {name: _stacked([part[name] for part in parts]) for name in first}
    return type(first)(_stacked(column) for column in zip(*parts, strict=True))


def _called(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def _samples(name: str, parameter: Any, number: int) -> torch.Tensor:
    """The per-sample gradients of a parameter, copied; raises InvalidInputError where there are none."""
    samples = getattr(parameter, "grad_sample", None)
    if not isinstance(samples, torch.Tensor) or len(samples) != number:
        raise InvalidInputError(
            f"The parameter {name!r} has no gradient for each of {number} examples; the first dimension of what every "
            "layer gets must be that of the examples, and the model must use it."
        )
    return samples.detach().reshape(number, -1).clone()


def _norm(gradient: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Norm of a difference; inf or nan where it is not finite."""
    return math.sqrt(sum(float((row.double() - other[name].double()).square().sum()) for name, row in gradient.items()))


def _layer(name: str, first: torch.Tensor, others: Sequence[torch.Tensor], norm: float) -> LayerChange:
    """How a parameter's gradient differs from the first one; a change to what is not finite has no size but a limit."""
    differing = [gradient for gradient in others if not torch.equal(gradient, first)]
    sizes = [_norm({name: gradient}, {name: first}) / norm for gradient in differing]
    return LayerChange(
        parameter=name,
        dtype=str(first.dtype).removeprefix("torch."),
        changed=len(differing),
        change=max((size if math.isfinite(size) else sys.float_info.max for size in sizes), default=0.0),
    )
