"""A run and the arrays that were trained with it, in one file."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.training.state_file import load_arrays, save_arrays

LEAF, RUN, STRUCTURE = "leaf_", "run_", "structure"
"""How the entries of a checkpoint are named."""


def save_tree(path: str | Path, tree: Any, run: dict[str, Any]) -> None:
    """Write a tree of arrays and the state of a run, whole or not at all; only the owner can read the file."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = {f"{LEAF}{at}": _as_numpy(leaf) for at, leaf in enumerate(leaves)}
    state = {f"{RUN}{name}": value for name, value in run.items()}
    save_arrays(path, {STRUCTURE: _described(leaves, structure)} | arrays | state)


def load_tree(path: str | Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """The tree and the state of a run that :func:`save_tree` wrote.

    Raises: InvalidInputError for a file that is no checkpoint, and for a tree of another structure than ``like``.
    """
    name = f"checkpoint {shortened(str(path))}"
    arrays = load_arrays(path, name)
    leaves, structure = jax.tree.flatten(like)
    if STRUCTURE not in arrays:
        raise InvalidInputError(f"The {name} does not hold a run with a tree of arrays.")
    if str(arrays[STRUCTURE]) != _described(leaves, structure):
        raise InvalidInputError(
            f"The {name} has a tree of another structure, or with other shapes or types, than the 'like' argument."
        )
    read = [_as_leaf(arrays[f"{LEAF}{at}"], leaf) for at, leaf in enumerate(leaves)]
    state = {key.removeprefix(RUN): value for key, value in arrays.items() if key.startswith(RUN)}
    return jax.tree.unflatten(structure, read), state


def _described(leaves: list[Any], structure: Any) -> str:
    """The structure of a tree with the shapes and types of its leaves."""
    return " ".join([str(structure), *(f"{np.shape(leaf)}{jnp.result_type(leaf)}" for leaf in leaves)])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_numpy(leaf: Any) -> Any:
    """An array that numpy writes and reads again: keys as their words, and types that numpy has not as bytes."""
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return np.ascontiguousarray(array).view(np.uint8) if array.dtype.kind == "V" else array


def _as_leaf(array: Any, like: Any) -> Any:
    """The way back from :func:`_as_numpy`."""
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
    dtype = jnp.result_type(like)
    return jnp.asarray((array.view(dtype) if array.dtype == np.uint8 else array).reshape(np.shape(like)), dtype)
