"""Whether a Trainer that prepares its data, as those of TRL do, leaves each example an example, and at its place.

Preparation may join examples (packing), leave some out, or bring them into another order. What the sampler draws, and
what the clipping bounds, would then be another thing than what the plan protects. None of this is looked for by name:
the examples are numbered in a column of their own, and the numbers have to come out as they went in.
"""

from typing import Any

from hockeystick.errors import InvalidInputError

NUMBERS = "hockeystick_example"
"""The name of the column."""


def numbered(dataset: Any) -> Any:
    """The dataset with a number for each example; as it is, if it has no columns to add one to."""
    return dataset.add_column(NUMBERS, list(range(len(dataset)))) if hasattr(dataset, "add_column") else dataset


def in_order(prepared: Any, handed_over: Any, given: Any) -> Any:
    """What a Trainer made of a dataset, without the numbers; the dataset that was given, if it made nothing of it.

    Args:
        prepared: the dataset that the Trainer has.
        handed_over: what :func:`numbered` returned.
        given: what :func:`numbered` got.

    Raises: InvalidInputError unless there is one example for each, in the same order.
    """
    if prepared is handed_over:
        return given
    if NUMBERS in getattr(prepared, "column_names", ()) and list(prepared[NUMBERS]) == list(range(len(given))):
        return prepared.remove_columns(NUMBERS)
    raise InvalidInputError(
        "The Trainer must turn each example of 'train_dataset' into one example, and keep their order. "
        f"Got {len(prepared)} of {len(given)}, joined, left out or moved; turn off packing and shuffling, and prepare "
        "the data beforehand, so that each example of the dataset is what is protected."
    )
