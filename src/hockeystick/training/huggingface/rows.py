"""Which rows of a batch are of which example.

Most collators make one row of an example. Those of preferences make two, the chosen answer and the rejected one, and
put all chosen ones before all rejected ones: of b examples, row j of a tensor with k b rows is of example j mod b. The
gradient of an example is then the sum of those of its k rows, and it is that sum that is clipped.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hockeystick.errors import InvalidInputError


class Rows:
    """How many rows the entries of a batch have for an example.

    Args:
        batch: of a single example; None where every entry has one row for each.

    Attributes:
        most: the number of rows in what goes through the model.
    """

    def __init__(self, batch: Any = None) -> None:
        self._of = {} if batch is None else _lengths(batch)
        self.most = max(self._of.values(), default=1)

    def examples_in(self, batch: Any) -> int:
        """The number of examples in a batch.

        Raises: InvalidInputError unless every entry has the rows of as many examples in its first dimension.
        """
        lengths = _lengths(batch)
        counts = {divmod(length, self._of.get(name, 1)) for name, length in lengths.items()}
        if len(counts) != 1 or next(iter(counts))[1]:
            raise InvalidInputError(
                "The 'data_collator' must give named tensors or lists with the examples in their first dimension. "
                f"Got {lengths}."
            )
        return next(iter(counts))[0]

    def part(self, batch: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        """The examples from ``first`` to ``last``, as a batch."""
        return {name: self._part(entry, self._of.get(name, 1), first, last) for name, entry in batch.items()}

    @staticmethod
    def _part(entry: Any, rows: int, first: int, last: int) -> Any:
        if rows == 1:
            return entry[first:last]
        if isinstance(entry, torch.Tensor):
            return entry.unflatten(0, (rows, -1))[:, first:last].flatten(0, 1)
        examples = len(entry) // rows
        last = min(last, examples)
        return [row for block in range(rows) for row in entry[block * examples + first : block * examples + last]]

    def join(self, parameters: Iterable[Any]) -> None:
        """Replace per-sample gradients of rows by those of examples, of which they are the sums.

        Opacus multiplies the gradient of a mean by the number of rows, which is ``most`` times that of the examples.
        """
        if self.most == 1:
            return
        for parameter in parameters:
            samples = parameter.grad_sample
            if samples is not None and len(samples) % self.most == 0:  # the optimizer refuses others, by their number
                parameter.grad_sample = samples.unflatten(0, (self.most, -1)).sum(dim=0) / self.most


def _lengths(batch: Any) -> dict[str, int]:
    """Of all entries, the first dimension."""
    entries = batch.items() if isinstance(batch, Mapping) else ()
    lengths = {name: len(entry) for name, entry in entries if isinstance(entry, list) or _dimensions(entry)}
    if not lengths or len(lengths) < len(batch):
        raise InvalidInputError(
            "The 'data_collator' must give named tensors or lists with the examples in their first dimension. "
            f"Got {lengths or type(batch).__name__} instead."
        )
    return lengths


def _dimensions(entry: Any) -> int:
    return entry.dim() if isinstance(entry, torch.Tensor) else 0
