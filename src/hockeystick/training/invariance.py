"""What audits of the bits of per-example gradients see, whatever the framework, and which places they try."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.spec import Count, Spec

T = TypeVar("T")
MOST_PLACES = 16
"""So many places of the example are tried, unless the caller says which."""
LARGE = 1000.0
"""How much larger than the example the numbers of some neighbours are."""
Change = Annotated[float, Field(ge=0.0)]


class LayerChange(Spec):
    """How the gradient of one parameter changed with the place of its example and with the neighbours.

    Attributes:
        parameter: its name in the model.
        dtype: of the gradient.
        changed: in how many comparisons a number of it was another one.
        change: largest norm of the change, over the norm of the example's whole gradient.
    """

    parameter: str
    dtype: str
    changed: Annotated[int, Field(ge=0)]
    change: Change


class ShapeChange(Spec):
    """How the gradient changed with the number of examples in a physical batch.

    Attributes:
        examples: that number.
        change: norm of the change, over the norm of the gradient.
    """

    examples: Count
    change: Change


class Invariance(Spec):
    """What an audit of one example saw: plain data, ``model_dump_json()`` for a file.

    No change means that this example, these neighbours and this machine showed none, not that there can be none.

    Attributes:
        batch: examples in a physical batch.
        mode: of the per-sample gradients, "hooks" or "functorch" in torch, or "jax".
        device: where they were computed, in torch with the number of threads on a CPU.
        comparisons: places beside neighbours whose gradient was compared with the first one.
        layers: every trained parameter, the ones that changed most first.
        shapes: other numbers of examples, as a contrast: exact sums use one shape alone.
        dropout: names of the layers that draw random numbers by the place in the batch.
    """

    batch: Count
    mode: Literal["hooks", "functorch", "jax"]
    device: str
    comparisons: Count
    layers: tuple[LayerChange, ...]
    shapes: tuple[ShapeChange, ...]
    dropout: tuple[str, ...] = ()

    @property
    def invariant(self) -> bool:
        """Whether no bit of the example's gradient changed, and no layer draws by place."""
        return self.worst == 0.0 and not any(layer.changed for layer in self.layers) and not self.dropout

    @property
    def worst(self) -> float:
        """The largest change of one parameter's gradient, over the norm of the whole gradient."""
        return max(layer.change for layer in self.layers)

    def text(self) -> str:
        """The result in plain English."""
        dtypes = ", ".join(dict.fromkeys(layer.dtype for layer in self.layers))
        lines = [
            f"Per-example gradients ({self.mode}, {dtypes}, {self.device}) in physical batches of {self.batch}, "
            f"{self.comparisons} comparisons:"
        ]
        changed = [layer for layer in self.layers if layer.changed]
        if changed:
            lines.append(
                f"  The gradient of an example changed with its place or its neighbours, in {len(changed)} of "
                f"{len(self.layers)} parameters:"
            )
            lines += [
                f"    {layer.parameter} ({layer.dtype}): by up to {layer.change:.2g} of the norm, in {layer.changed} "
                f"of {self.comparisons} comparisons"
                for layer in changed
            ]
        else:
            lines.append("  No bit of the example's gradient changed with its place or its neighbours.")
        if self.dropout:
            lines.append(
                f"  Dropout draws by the place in the batch, so masks depend on the other examples: "
                f"{', '.join(self.dropout)}."
            )
        if self.shapes:
            said = ", ".join(f"{shape.change:.2g} at {shape.examples}" for shape in self.shapes)
            lines.append(f"  With other numbers of examples in the batch, of the norm: {said}.")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def spread(batch: int) -> list[int]:
    """Places from the first to the last, all or some of them."""
    number = min(batch, MOST_PLACES)
    return [at * (batch - 1) // (number - 1) for at in range(number)]


def beside(example: T, others: Sequence[T], place: int, number: int) -> list[T]:
    """A batch of ``number`` examples with this one at ``place``, and the others around it, again and again."""
    around = [others[at % len(others)] for at in range(number - 1)]
    return [*around[:place], example, *around[place:]]


def check_numbers(batch: int, places: Sequence[int] | None, shapes: Sequence[int] | None) -> None:
    """Raise InvalidInputError for a batch, places in it and other shapes that no audit can be made of."""
    for name, value, least in (("batch", [batch], 2), ("shapes", shapes or [], 1)):
        if any(isinstance(number, bool) or not isinstance(number, int) or number < least for number in value):
            raise InvalidInputError(
                f"The {name!r} argument must be of whole numbers of at least {least}. Got {shortened(value)} instead."
            )
    if places is not None and (not places or any(not 0 <= place < batch for place in places)):
        raise InvalidInputError(
            f"The 'places' argument must be of whole numbers from 0 to {batch - 1}. Got {shortened(places)} instead."
        )
