"""Whether the gradient of an example depends on its place in a physical batch, or on the other examples there, in JAX.

What :func:`hockeystick.audit.invariance` does for a model of torch, for the compiled function that gives exact sums
their gradients (``docs/theory/exact-sums.md``).
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.training.invariance import LARGE, Invariance, LayerChange, ShapeChange, beside, check_numbers, spread
from hockeystick.training.jax.exact import gradients_of_rows, refuse_traced

Example = tuple[Any, ...]
"""What stands in the place of each argument that has examples: trees of arrays without a dimension for them."""
Gradient = dict[str, NDArray[Any]]
"""By the name of the leaf."""


@called("hs.jax.invariance(loss, params, x, y, batch=32, batch_argnums=(1, 2))")
def invariance(
    fun: Callable[..., Any],
    *args: Any,
    batch: int,
    argnums: int | Sequence[int] = 0,
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    neighbours: Sequence[Example] = (),
    places: Sequence[int] | None = None,
    shapes: Sequence[int] | None = None,
    seed: int = 0,
) -> Invariance:
    """Compute the gradient of one example at each place of a physical batch, beside other examples, and compare bits.

    >>> import jax.numpy as jnp
    >>> def loss(weights, x, y):
    ...     return jnp.mean((x @ weights - y) ** 2)
    >>> example = np.ones(4, np.float32), np.float32(2.0)
    >>> audit = invariance(loss, jnp.zeros(4), *example, batch=8, batch_argnums=(1, 2))
    >>> audit.mode, audit.comparisons, len(audit.layers)
    ('jax', 31, 1)

    The gradients come from the function that ``clipped_grad`` of an execution plan with exact noise compiles. The
    neighbours are zeros, random numbers as large as the example's and 1,000 times as large, the example itself, and the
    given ones. Whole numbers, such as labels and tokens, are drawn from 0 to the largest of the example's.

    Args:
        fun: the loss, with ``argnums``, ``batch_argnums`` and ``keep_batch_dim``, as ``clipped_grad`` takes it.
        args: its arguments; those of ``batch_argnums`` are of one example, without a dimension for examples.
        batch: examples in a physical batch, at least 2: the ``physical_batch_size`` of the run.
        neighbours: other examples, to stand beside this one: a tuple for each, of what stands at ``batch_argnums``.
        places: of the example in the batch, from 0; by default all of them, or 16 that include the ends.
        shapes: other numbers of examples to compare with; by default 1, 3 and twice the batch.
        seed: of the random neighbours.

    Raises: InvalidInputError for arguments out of range, and for an example whose gradient is zero or not finite;
    UnsupportedError inside of functions that JAX traces.
    """
    check_numbers(batch, places, shapes)
    refuse_traced(args, "invariance")
    positions = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    example: Example = tuple(jax.tree.map(np.asarray, args[at]) for at in positions)
    company = _company(example, [jax.tree.map(np.asarray, tuple(other)) for other in neighbours], seed)
    tried = spread(batch) if places is None else [int(place) for place in places]
    contrast = [number for number in (1, 3, 2 * batch) if number != batch] if shapes is None else list(shapes)
    compiled = gradients_of_rows(fun, argnums, positions, keep_batch_dim)

    def gradients(rows: Sequence[Example]) -> Gradient:
        """The gradient of every row, of each leaf, shape (rows, numbers)."""
        full = list(args)
        for at, column in zip(positions, zip(*rows, strict=True), strict=True):
            full[at] = jax.tree.map(lambda *leaves: np.stack(leaves), *column)
        leaves, _ = jax.tree_util.tree_flatten_with_path(compiled(*full))
        return {_name(path): np.asarray(leaf).reshape(len(rows), -1) for path, leaf in leaves}

    first = _row(gradients(beside(example, company[0], 0, batch)), 0)
    norm = _norm(list(first.values()))
    if not 0.0 < norm < sys.float_info.max:
        raise InvalidInputError(
            f"The example must have a gradient that is finite and not zero. Got one of norm {norm!r} instead."
        )
    seen = [_row(gradients(beside(example, others, place, batch)), place) for others in company for place in tried]
    alone = gradients([example] * batch)
    seen += [_row(alone, place) for place in tried]
    seen = seen[1:] if tried[0] == 0 else seen  # the first one is what the others are compared with
    layers = [_layer(name, row, [gradient[name] for gradient in seen], norm) for name, row in first.items()]
    return Invariance(
        batch=batch,
        mode="jax",
        device=jax.devices()[0].device_kind,
        comparisons=len(seen),
        layers=tuple(sorted(layers, key=lambda layer: (-layer.change, -layer.changed))),
        shapes=tuple(
            ShapeChange(
                examples=number, change=_change(first, _row(gradients(beside(example, company[0], 0, number)), 0), norm)
            )
            for number in contrast
        ),
    )


def check_invariance(audit: Invariance | None, rows: int, rho: float | None) -> None:
    """Raise for an audit of something else than the run, for one that saw changes, and for one beside a stated change.

    Raises: InvalidInputError; UnsupportedError where the audit saw changes.
    """
    if audit is None:
        return
    if not isinstance(audit, Invariance):
        raise InvalidInputError(
            "The 'invariance' argument must be what hockeystick.jax.invariance returned. "
            f"Got {shortened(audit)} instead."
        )
    if (audit.batch, audit.mode) != (rows, "jax"):
        raise InvalidInputError(
            f"The 'invariance' argument must be an audit by hockeystick.jax.invariance with batch={rows}, as the run "
            f"has. Got one of {audit.mode!r} with {audit.batch} instead."
        )
    if rho is not None:
        raise InvalidInputError(
            f"The 'rho' argument must be left out where an audit of invariance saw no change. Got {rho!r} instead."
        )
    if not audit.invariant:
        raise UnsupportedError(
            f"The gradients of this loss depend on the other examples of a batch, by {audit.worst:.2g} of the norm or "
            f"less in {audit.layers[0].parameter!r}, so exact sums do not make a certificate cover its bits. If you "
            "know a bound on how much one example changes the rounded gradients of all others, give it as 'rho', as a "
            "fraction of the clipping norm."
        )


def _name(path: Sequence[Any]) -> str:
    """Of a leaf of what is trained; that of a single array is said to be the whole."""
    return jax.tree_util.keystr(path) or "the whole"


def _row(gradients: Gradient, place: int) -> Gradient:
    return {name: rows[place] for name, rows in gradients.items()}


def _company(example: Example, neighbours: Sequence[Example], seed: int) -> list[list[Example]]:
    """Lists of examples to stand beside this one: zeros, random ones, large ones, and the given ones."""
    rng = np.random.default_rng(seed)
    made: list[list[Example]] = [
        [jax.tree.map(np.zeros_like, example)],
        [jax.tree.map(lambda leaf: _random(leaf, 1.0, rng), example) for _ in range(5)],
        [jax.tree.map(lambda leaf: _random(leaf, LARGE, rng), example) for _ in range(5)],
    ]
    return [*made, *([list(neighbours)] if neighbours else [])]


def _random(leaf: NDArray[Any], scale: float, rng: np.random.Generator) -> NDArray[Any]:
    """Random numbers that stand in for another example's."""
    if np.issubdtype(leaf.dtype, np.integer) or leaf.dtype == bool:
        most = int(leaf.max()) if leaf.size else 0
        return np.asarray(rng.integers(0, max(most, 0) + 1, leaf.shape)).astype(leaf.dtype)
    size = float(np.sqrt(np.square(leaf.astype(np.float64)).mean())) if leaf.size else 1.0
    return np.asarray(rng.normal(size=leaf.shape) * (size or 1.0) * scale).astype(leaf.dtype)


def _norm(rows: Sequence[NDArray[Any]]) -> float:
    """Of all of them together; inf or nan where it is not finite."""
    return float(np.sqrt(sum(float(np.square(row.astype(np.float64)).sum()) for row in rows)))


def _change(first: Gradient, other: Gradient, norm: float) -> float:
    """The norm of a change over that of the gradient; one to what is not finite has no size but a limit."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = _norm([other[name].astype(np.float64) - row.astype(np.float64) for name, row in first.items()]) / norm
    return size if size < sys.float_info.max else sys.float_info.max


def _layer(name: str, first: NDArray[Any], others: Sequence[NDArray[Any]], norm: float) -> LayerChange:
    """How the gradient of a leaf differs from the first one."""
    differing = [row for row in others if not np.array_equal(row, first)]
    return LayerChange(
        parameter=name,
        dtype=str(first.dtype),
        changed=len(differing),
        change=max((_change({name: first}, {name: row}, norm) for row in differing), default=0.0),
    )
