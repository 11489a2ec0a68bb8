"""What the Trainer takes over of transformers, accelerate and TRL without a promise that it stays, all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import transformers

from hockeystick.errors import UnsupportedError

OVERRIDDEN = (
    "_clip_grad_norm",
    "_get_grad_norm",
    "_get_num_items_in_batch",
    "_load_from_checkpoint",
    "_load_optimizer_and_scheduler",
    "_run_epoch",
    "_save_checkpoint",
    "_save_optimizer_and_scheduler",
)
"""Methods of ``transformers.Trainer`` that must do something else here. Overrides that nothing calls are void."""
CALLED = ("_get_collator_with_removed_columns", "_remove_unused_columns", "_save")
"""Methods of it that are called as they are."""
FIGURES = ("_metrics", "_total_train_tokens")
"""Where Trainers of TRL gather what they log."""


def check_names(trainer: type[Any] = transformers.Trainer) -> None:
    """Raise UnsupportedError where a release of transformers has lost one of these methods."""
    lost = [name for name in (*OVERRIDDEN, *CALLED) if not callable(getattr(trainer, name, None))]
    if lost:
        raise UnsupportedError(
            f"The Trainer needs the method {lost[0]!r} of transformers.Trainer, which transformers "
            f"{transformers.__version__} does not have; install a release that is named in docs/how-to/"
            "train-with-hugging-face.md."
        )


def keep_from_accelerate(optimizer: Any) -> None:
    """Have accelerate take an optimizer as it is: its wrapper would save and load the run for its devices."""
    optimizer._is_accelerate_prepared = True
    optimizer.step_was_skipped = False


def keep_model_whole(accelerator: Any) -> None:
    """Have accelerate place a model and cast its layers, without torch's wrapper for several processes.

    That wrapper adds up gradients over the processes in every backward pass, which is not once a step.
    """
    accelerator.prepare_model = partial(accelerator.prepare_model, evaluation_mode=True)


def whole_layers(model: Any) -> list[str]:
    """The names of the classes of layers that transformers does not split, by which it shares out a model."""
    return sorted(getattr(model, "_no_split_modules", None) or ())


@contextmanager
def figures_kept(trainer: Any) -> Iterator[None]:
    """Leave the figures that a Trainer of TRL gathers for its log as they are, for losses that are no step's."""
    kept = {name: deepcopy(vars(trainer)[name]) for name in FIGURES if name in vars(trainer)}
    try:
        yield
    finally:
        vars(trainer).update(kept)
