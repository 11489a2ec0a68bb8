"""Batches without examples, of whatever form a collation gives the others."""

import dataclasses
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hockeystick.errors import InvalidInputError

FIXED = (str, bytes, bool, float, type(None))
"""Types of what belongs to a batch as a whole."""


class CollateWithEmpty:
    """The user's ``collate_fn``, and for a batch without examples what it would give for none.

    That is learned once, in the main process, so that all workers know it, whatever batch they see first: one example
    is collated alone, and twice. What grows from one to two is as much shorter for none; what stays belongs to the
    batch, and stays.

    Args:
        given: the user's loader.
        rows: fill every batch up to so many examples, with zeros in what grows.

    Raises: InvalidInputError for a collation that gives other objects, or nothing that grows.
    """

    def __init__(self, given: DataLoader[Any], rows: int | None = None) -> None:
        collate: Any = given.collate_fn
        self.collate: Callable[[list[Any]], Any] = collate.collate if isinstance(collate, CollateWithEmpty) else collate
        example = given.dataset[0]
        one, two = (self.collate([_copy(example) for _ in range(number)]) for number in (1, 2))
        shrinking = Shrinking()
        self.empty = shrinking.of(one, two)
        if not shrinking.grows:
            raise InvalidInputError(
                "The 'collate_fn' of the data loader must give tensors or lists that grow with the number of examples. "
                f"Got an object of type {type(one).__name__!r} instead, which is as large for two examples as for one."
            )
        self.filling = None if rows is None else Filling(rows)
        self.forms: tuple[Any, Any] = (one, two)

    def __call__(self, examples: list[Any]) -> Any:
        """The batch of these examples."""
        batch = self.collate(examples) if examples else deepcopy(self.empty)
        return batch if self.filling is None else self.filling.of(batch, *self.forms)


class Shrinking:
    """Batches of one and of two examples continued to none.

    Attributes:
        grows: whether anything in them is larger for two examples.
    """

    def __init__(self) -> None:
        self.grows = False

    def of(self, one: Any, two: Any) -> Any:
        """What ``one`` and ``two`` are for no example; raises InvalidInputError for what has no such form."""
        if type(one) is not type(two):
            raise _unknown(one)
        if isinstance(one, torch.Tensor | np.ndarray):
            return self._array(one, two)
        if isinstance(one, Mapping):
            if set(one) != set(two):
                raise _unknown(one)
            parts = {name: self.of(part, two[name]) for name, part in one.items()}
            return parts if type(one) is dict else type(one)(parts)  # type: ignore[call-arg]
        if isinstance(one, list | tuple):
            return self._sequence(one, two)
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            fields = [field.name for field in dataclasses.fields(one) if field.init]
            return dataclasses.replace(
                one, **{name: self.of(getattr(one, name), getattr(two, name)) for name in fields}
            )
        if isinstance(one, FIXED):
            return one
        if isinstance(one, int):  # which may be the number of examples
            return 2 * one - two
        raise _unknown(one)

    def _array(self, one: Any, two: Any) -> Any:
        if one.ndim != two.ndim:
            raise _unknown(one)
        sizes = [self._length(short, long) for short, long in zip(one.shape, two.shape, strict=True)]
        whole = not np.issubdtype(one.dtype, np.inexact) if isinstance(one, np.ndarray) else _is_whole(one)
        if not one.ndim and whole:  # a count
            return 2 * one - two
        kept = one[tuple(slice(size) for size in sizes)]
        return kept.clone() if isinstance(kept, torch.Tensor) else kept.copy()

    def _sequence(self, one: Any, two: Any) -> Any:
        if len(one) != len(two):  # an entry for each example
            kept = one[: self._length(len(one), len(two))]
            return kept if type(kept) is type(one) else type(one)(kept)
        parts = [self.of(short, long) for short, long in zip(one, two, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else type(one)(parts)

    def _length(self, one: int, two: int) -> int:
        self.grows |= one != two
        return max(2 * one - two, 0)


class Filling:
    """Batches filled up to a number of examples.

    Args:
        rows: that number.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def of(self, batch: Any, one: Any, two: Any) -> Any:
        """The batch with zeros after its examples, in every dimension that is longer in ``two`` than in ``one``.

        Raises: InvalidInputError for what grows and is no tensor or array.
        """
        if isinstance(batch, torch.Tensor | np.ndarray):
            return self._array(batch, one, two)
        if isinstance(batch, Mapping):
            parts = {name: self.of(part, one[name], two[name]) for name, part in batch.items()}
            return parts if type(batch) is dict else type(batch)(parts)  # type: ignore[call-arg]
        if isinstance(batch, list | tuple):
            if len(one) != len(two):
                raise InvalidInputError(
                    "The 'collate_fn' of the data loader must give tensors or arrays for exact sums, which pad "
                    f"batches with zeros. Got a {type(batch).__name__} with an entry for each example."
                )
            entries = [self.of(*of_entry) for of_entry in zip(batch, one, two, strict=True)]
            return type(batch)(*entries) if hasattr(batch, "_fields") else type(batch)(entries)
        if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
            names = [field.name for field in dataclasses.fields(batch) if field.init]
            filled = {name: self.of(getattr(batch, name), getattr(one, name), getattr(two, name)) for name in names}
            return dataclasses.replace(batch, **filled)
        return batch

    def _array(self, batch: Any, one: Any, two: Any) -> Any:
        sizes = [
            short + (self.rows - 1) * (long - short) if short != long else now
            for now, short, long in zip(batch.shape, one.shape, two.shape, strict=True)
        ]
        if sizes == list(batch.shape):
            return batch
        filled = batch.new_zeros(sizes) if isinstance(batch, torch.Tensor) else np.zeros(sizes, batch.dtype)
        filled[tuple(slice(size) for size in batch.shape)] = batch
        return filled


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool


def _copy(example: Any) -> Any:
    """A copy, as the collation may change what it gets; the example itself where it cannot be copied."""
    try:
        return deepcopy(example)
    except Exception:  # whatever an object of the user's raises
        return example


def _unknown(batch: Any) -> InvalidInputError:
    return InvalidInputError(
        "The 'collate_fn' of the data loader must give tensors, arrays, numbers, text, mappings, lists, tuples or "
        "dataclasses, of one structure for any number of examples, as there are batches without examples. "
        f"Got an object of type {type(batch).__name__!r} instead."
    )
