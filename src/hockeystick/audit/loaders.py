"""Batches of other libraries' loaders and samplers as index arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError
from hockeystick.spec import checked_count
from hockeystick.training.run import Run


@called("hs.audit.batches_of(loader, epochs=2)")
def batches_of(
    source: Any, *, epochs: int = 1, num_examples: int | None = None, rng: np.random.Generator | None = None
) -> Iterator[Any]:
    """The index batches that a loader of another library makes, without loading any data.

    >>> class Loader:  # a torch DataLoader, with Opacus' sampler or any other
    ...     batch_sampler = [[0, 3], [1, 2]]
    >>> list(batches_of(Loader(), epochs=2))
    [[0, 3], [1, 2], [0, 3], [1, 2]]

    Args:
        source: a torch ``DataLoader`` (its ``batch_sampler`` is iterated ``epochs`` times, or its ``sampler`` where
            that makes the batches), such a batch sampler itself, or a batch selection strategy of jax-privacy.
        epochs: passes over a loader; 1 for the loader of a run of this library, which repeats itself without steps.
        num_examples, rng: for a strategy of jax-privacy; its padding of -1 is left out.

    Raises: InvalidInputError for an object that has neither, or a strategy without these two.
    """
    if hasattr(source, "batch_iterator"):
        if num_examples is None or rng is None:
            raise InvalidInputError(
                "The 'num_examples' and 'rng' arguments have to be given for a strategy of jax-privacy."
            )
        for batch in source.batch_iterator(num_examples, rng):
            indices = np.asarray(batch).ravel()
            yield indices[indices >= 0]
        return
    batch_sampler = getattr(source, "batch_sampler", None)
    sampler = getattr(source, "sampler", None) if batch_sampler is None and hasattr(source, "dataset") else source
    chosen: Any = sampler if batch_sampler is None else batch_sampler
    if not hasattr(chosen, "__iter__"):
        raise InvalidInputError(
            "The 'source' argument must be a DataLoader, a batch sampler or a strategy with batch_iterator. "
            f"Got an object of type {type(source).__name__!r} instead."
        )
    epochs = checked_count("epochs", epochs)
    if epochs > 1 and isinstance(getattr(chosen, "run", None), Run):
        raise InvalidInputError(
            "The 'epochs' argument must be 1 for the loader of a run, which begins at the run's next step each time; "
            f"use the run's all_batches() for more. Got {epochs!r} instead."
        )
    for _ in range(epochs):
        yield from chosen
