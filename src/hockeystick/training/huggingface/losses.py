"""Losses with one number for each example, so that no example's gradient depends on the others of its batch."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from hockeystick.errors import InvalidInputError, UnsupportedError

ExampleLosses = Callable[[Any, Mapping[str, Any]], torch.Tensor]
"""From a model's outputs and the labels of a batch, by name, to one loss for each example."""

IGNORED = -100
"""The label of a token that does not count."""


def next_tokens(outputs: Any, labels: Mapping[str, Any]) -> torch.Tensor:
    """The mean cross entropy of an example's next tokens; each token has the label of its own position."""
    return _tokens(outputs.logits[:, :-1], labels["labels"][:, 1:])


def tokens(outputs: Any, labels: Mapping[str, Any]) -> torch.Tensor:
    """The mean cross entropy of an example's labelled tokens."""
    return _tokens(outputs.logits, labels["labels"])


def classes(outputs: Any, labels: Mapping[str, Any]) -> torch.Tensor:
    """The cross entropy of an example's class; of several labels, the mean; of one number, the squared error."""
    logits, wanted = outputs.logits.float(), labels["labels"]
    if logits.shape[1] == 1 or wanted.is_floating_point():
        distance = functional.mse_loss if logits.shape[1] == 1 else functional.binary_cross_entropy_with_logits
        return distance(logits, wanted.view_as(logits).float(), reduction="none").mean(dim=1)
    return functional.cross_entropy(logits, wanted.view(-1), reduction="none")


def _tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if logits.shape[:2] != labels.shape:
        raise InvalidInputError(
            f"The model must predict a token for each label, and no others. Got logits of shape {tuple(logits.shape)} "
            f"for labels of shape {tuple(labels.shape)}."
        )
    each = functional.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none", ignore_index=IGNORED)
    counted = (labels != IGNORED).sum(dim=1)
    return each.sum(dim=1) / counted.clamp(min=1)


LOSSES: Mapping[str, ExampleLosses] = {
    "ForCausalLM": next_tokens,
    "ForMaskedLM": tokens,
    "ForTokenClassification": tokens,
    "ForSequenceClassification": classes,
    "ForImageClassification": classes,
    "ForVideoClassification": classes,
    "ForAudioClassification": classes,
}
"""The losses of models, by the ``loss_type`` that transformers gives them."""


def losses_of(model: Any) -> ExampleLosses:
    """The losses of a model of transformers; raises UnsupportedError for one that has none here."""
    name, config = type(model).__name__, getattr(model, "config", None)
    kind = str(getattr(model, "loss_type", None))
    if kind == "None" and name.endswith("LMHeadModel") and not name.endswith("WithLMHeadModel"):
        kind = "ForCausalLM"
    several = getattr(config, "problem_type", None) == "regression" and getattr(config, "num_labels", 1) > 1
    if kind not in LOSSES or several or getattr(config, "is_encoder_decoder", False):
        raise UnsupportedError(
            f"There is no per-example loss for a model of type {name!r}; give 'example_losses', a function of the "
            "outputs and the labels that returns one loss for each example."
        )
    return LOSSES[kind]


def checked(losses: Any, examples: int) -> torch.Tensor:
    """The losses; raises InvalidInputError unless there is one for each example."""
    if not isinstance(losses, torch.Tensor) or losses.shape != (examples,):
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, torch.Tensor) else f"type {type(losses).__name__!r}"
        raise InvalidInputError(
            f"The 'example_losses' function must return one loss for each example, {examples} here. Got {got}."
        )
    return losses


def check_own_loss(
    name: str,
    *,
    has_losses_by_example: bool,
    rows: int,
    is_tried: bool,
    grad_sample_mode: str,
    processes: int,
    exact: bool,
    sharded: bool,
) -> None:
    """Raise InvalidInputError where batches have no losses by example, or several rows of one, and these are needed.

    Args:
        name: of the Trainer whose loss it is.
        rows: of an example in what goes through the model.
        is_tried: whether two examples are tried before the first step.
    """
    if rows > 1 and not is_tried:
        raise InvalidInputError(
            "The 'try_independence' argument must be True for a collator that makes several rows of an example, as "
            "only the trial says which rows are whose."
        )
    if not has_losses_by_example and processes > 1 and not is_tried:
        raise InvalidInputError(
            f"The 'try_independence' argument must be True for the loss of {name} in several processes, as only the "
            "trial says whether an example has the same loss in all of them."
        )
    if has_losses_by_example and rows == 1:
        return
    if sharded:
        raise InvalidInputError(
            f"The 'model' argument must be whole in every process for the loss of {name}, which needs "
            "grad_sample_mode='hooks'. Got a model of fully_shard instead."
        )
    if grad_sample_mode == "ghost":
        raise InvalidInputError(
            "The 'grad_sample_mode' argument must be 'hooks' for a loss of the Trainer's own, and for several rows "
            "an example. Got 'ghost' instead."
        )
    if exact:
        raise InvalidInputError(
            "The 'exact' argument must be False for a loss of the Trainer's own, and for models with several rows per "
            "example, because physical batches are padded with rows that have no loss. Got True instead."
        )
