"""Exact sums for JAX: per-example gradients in physical batches of one shape, clipped and rounded on the host.

The integers are those of :mod:`hockeystick.training.exact_sums`, in numpy arrays of 64 bits, which JAX does not have
unless its 64-bit mode is on. They go from ``clipped_grad`` to the noise outside of compiled functions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.exact_sums import add_clipped, scale_of
from hockeystick.training.jax.arguments import check_shared, positions_of

Integers = NDArray[np.int64]


class ExactGradient:
    """The sum of the clipped and rounded gradients of a batch, in grid steps: a tree of numpy arrays of int64.

    One compiled function gives the gradients of one number of examples, whatever the batch: it is filled up with zeros
    to pieces of that size, and what fills up is left out by its place. So whether the bits of an example's gradient
    depend on the others is a question about that one function (``docs/theory/exact-sums.md``).

    Args:
        fun: as JAX Privacy's ``clipped_grad`` takes it, with ``argnums``, ``batch_argnums`` and ``keep_batch_dim``.
        rows: examples of a physical batch.
        clip_norm: to which the gradient of each example is clipped, over all leaves together.
        steps: grid steps in it.
        count: is told on the host how many examples are in a sum.

    Raises: of a call, UnsupportedError inside of functions that JAX traces; InvalidInputError for batches of several
    sizes, for examples of another shape than the first ones, and for an argument with as many rows as the first batch.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        argnums: int | Sequence[int],
        batch_argnums: int | Sequence[int],
        keep_batch_dim: bool,
        rows: int,
        clip_norm: float,
        steps: int,
        count: Callable[[int], None],
    ) -> None:
        self.argnums = argnums
        self.positions = positions_of(batch_argnums)
        self.rows, self.steps, self.scale, self.count = rows, steps, scale_of(clip_norm, steps), count
        self.shapes: list[Any] | None = None
        self.looked = False  # at the arguments beside a batch of several examples

        self._gradients = gradients_of_rows(fun, argnums, self.positions, keep_batch_dim)

    def __call__(self, *args: Any, is_padding_example: Any = None) -> Any:
        """The sum over the examples of a batch that are no padding; ``args`` are those of ``fun``."""
        refuse_traced([args, is_padding_example], "clipped_grad")
        batch = {at: jax.tree.map(np.asarray, args[at]) for at in self.positions}
        size = self._size(jax.tree.leaves(list(batch.values())))
        if size > 1 and not self.looked:
            self.looked = True  # later ones may have as many rows as anything by chance
            check_shared(args, positions_of(self.positions, self.argnums), size)
        padding = np.zeros(size, bool) if is_padding_example is None else np.asarray(is_padding_example, bool)
        examples = np.flatnonzero(~padding)
        trained = args[self.argnums] if isinstance(self.argnums, int) else tuple(args[at] for at in self.argnums)
        leaves, structure = jax.tree.flatten(trained)
        totals = [np.zeros(np.shape(leaf), np.int64) for leaf in leaves]
        for first in range(0, len(examples), self.rows):
            self._add(args, batch, examples[first : first + self.rows], totals)
        self.count(len(examples))
        return jax.tree.unflatten(structure, totals)

    def _size(self, leaves: Sequence[Any]) -> int:
        sizes = {len(leaf) for leaf in leaves}
        if len(sizes) != 1:
            raise InvalidInputError(
                f"All arrays of a batch must have the same number of rows. Got {sorted(sizes)} rows."
            )
        shapes = [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        if self.shapes not in (None, shapes):
            raise InvalidInputError(
                f"The examples of a batch must have the shapes of the first one, {self.shapes}, as all physical "
                f"batches have one shape with exact noise, sequences of one length included. Got {shapes} instead."
            )
        self.shapes = shapes
        return sizes.pop()

    def _add(self, args: Sequence[Any], batch: dict[int, Any], examples: Any, totals: Sequence[Integers]) -> None:
        """Add the integers of the examples of one physical batch."""

        def filled(leaf: Any) -> Any:
            rows = np.zeros((self.rows, *leaf.shape[1:]), leaf.dtype)
            rows[: len(examples)] = leaf[examples]
            return rows

        full = [jax.tree.map(filled, batch[at]) if at in batch else arg for at, arg in enumerate(args)]
        gradients = [np.asarray(leaf)[: len(examples)] for leaf in jax.tree.leaves(self._gradients(*full))]
        wide = [leaf if leaf.dtype in (np.float32, np.float64) else leaf.astype(np.float32) for leaf in gradients]
        flat = [np.ascontiguousarray(leaf).reshape(len(examples), -1) for leaf in wide]
        add_clipped(flat, [total.reshape(-1) for total in totals], self.scale, self.steps)


def gradients_of_rows(
    fun: Callable[..., Any], argnums: int | Sequence[int], positions: Sequence[int], keep_batch_dim: bool
) -> Callable[..., Any]:
    """The compiled function from the arguments of ``fun`` to the gradient of every example in a physical batch.

    It is compiled again for every number of examples; ``positions`` are the arguments with a dimension for them.
    """

    def of_example(*args: Any) -> Any:
        one = list(args)
        for at in positions if keep_batch_dim else ():
            one[at] = jax.tree.map(lambda leaf: leaf[None], one[at])
        return jax.grad(fun, argnums)(*one)

    def of_rows(*args: Any) -> Any:
        return jax.vmap(of_example, [0 if at in positions else None for at in range(len(args))])(*args)

    compiled: Callable[..., Any] = jax.jit(of_rows)
    return compiled


def refuse_traced(values: Any, name: str) -> None:
    """Raise UnsupportedError inside of functions that JAX traces: shapes decide about bits there, and int64 is none."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves([jnp.zeros(()), values])):
        raise UnsupportedError(
            f"With exact noise {name} works outside of functions that JAX compiles or transforms: call it without "
            "jax.jit, as it compiles the gradients of a physical batch itself."
        )


def check_whole(leaves: Sequence[Any], size: int | None) -> None:
    """Raise unless these are sums of whole numbers, as many as the noise has."""
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.dtype != np.int64:
            raise UnsupportedError(
                "With exact noise the sums must be whole numbers in numpy arrays of int64, as clipped_grad of an "
                "execution plan and hockeystick.training.exact_sum give them. "
                f"Got {getattr(leaf, 'dtype', type(leaf).__name__)} instead."
            )
    numbers = sum(leaf.size for leaf in leaves)
    if numbers != size:
        raise InvalidInputError(f"The sums must have {size} numbers, as the run's noise. Got {numbers} instead.")


def length_of(leaves: Sequence[Integers], steps: int) -> float:
    """The norm of sums of whole numbers, in clipping norms."""
    return float(np.sqrt(sum(float(np.square(leaf, dtype=np.float64).sum()) for leaf in leaves)) / steps)


def off_the_grid(total: Integers, row: Any, step: float) -> jax.Array:
    """The noisy sum in float32, whose grid step is ``step``."""
    return jnp.asarray(((total + row).astype(np.float64) * step).astype(np.float32))
