"""Which of transformers' training arguments a private training can have, and why not the others."""

import math
import os
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

from transformers.training_args import ParallelMode

from hockeystick.errors import InvalidInputError


class Refusal(NamedTuple):
    """An argument with values that would make another mechanism of the training, or an unprotected one."""

    name: str
    breaks: Callable[[Any], bool]
    reason: str


def _is_set(value: Any) -> bool:
    return bool(value)


def _updates_early(optimizer: Any) -> bool:
    name = str(getattr(optimizer, "value", optimizer))
    return name.endswith("layerwise") or name in ("lomo", "adalomo")


def _is_reentrant(options: Any) -> bool:
    return bool((options or {}).get("use_reentrant"))


SCALED = "scaled losses have scaled gradients to clip, and steps that overflow are left out"
REFUSALS = (
    Refusal("deepspeed", _is_set, "gradients would be reduced before they are clipped"),
    Refusal("parallelism_config", _is_set, "gradients would be reduced before they are clipped"),
    Refusal("fp16", _is_set, SCALED),
    Refusal("mixed_precision", lambda value: value not in ("no", "bf16"), SCALED),  # as accelerate launch sets it
    Refusal("torch_compile", _is_set, "compiled layers give no per-sample gradients"),
    Refusal("use_liger_kernel", _is_set, "fused layers give no per-sample gradients"),
    Refusal("activation_checkpointing_kwargs", _is_reentrant, "its layers run backward in passes of their own"),
    Refusal("auto_find_batch_size", _is_set, "a training that starts again takes the steps of the plan again"),
    Refusal("dataloader_drop_last", _is_set, "every batch of the plan counts"),
    Refusal("dataloader_in_order", lambda value: value is False, "every batch has its own step of the plan"),
    Refusal("train_sampling_strategy", lambda value: value != "random", "the plan's sampler forms the batches"),
    Refusal("label_smoothing_factor", _is_set, "its mean is over the tokens of a whole batch; use 'example_losses'"),
    Refusal("neftune_noise_alpha", _is_set, "its noise depends on the longest example of the batch"),
    Refusal("push_to_hub", _is_set, "checkpoints hold the secret state of the run; push the model after the training"),
    Refusal("optim", _updates_early, "it updates parameters during the backward pass, before any noise"),
    Refusal("max_grad_norm", lambda value: not (value or 0.0) > 0.0, "it is the norm to which each example is clipped"),
)
"""What is refused, whatever the plan."""


SHARDS = {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "state_dict_type": "FULL_STATE_DICT"}
"""The values that options of accelerate's plugin for FSDP must have, where they are not left out."""
ANY = ("reshard_after_forward", "transformer_cls_names_to_wrap")
"""The options of it that may have any value."""

LAUNCHED = (
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_MEGATRON_LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)
"""What ``accelerate launch`` sets for ways to share a model out."""


def checked_arguments(given: Any) -> Any:
    """A copy of transformers' arguments for the Trainer's own loop, in which every batch is a whole step.

    Raises: InvalidInputError, naming the argument and why, for one that would break the mechanism.
    """
    for refusal in REFUSALS:
        value = getattr(given, refusal.name, None)
        if refusal.breaks(value):
            raise InvalidInputError(
                f"The {refusal.name!r} training argument cannot be {value!r} in private training: {refusal.reason}."
            )
    for name in LAUNCHED:
        if os.environ.get(name, "false").lower() == "true":
            raise InvalidInputError(
                f"The {name} environment variable must be unset, as accelerate would change the model after its "
                "optimizer was made; start with torchrun, and shard a model with the training argument fsdp=True."
            )
    if given.n_gpu > 1:
        raise InvalidInputError(
            f"The Trainer needs at most one device per process; this process has {given.n_gpu}, which would split the "
            "batches: start it with torchrun, one process for each device, or set CUDA_VISIBLE_DEVICES."
        )
    if given.world_size > 1 and given.parallel_mode != ParallelMode.DISTRIBUTED:
        raise InvalidInputError(
            "Several processes must be those of torch.distributed, as torchrun starts them. "
            f"Got {given.parallel_mode.value!r} instead."
        )
    if given.fsdp:
        _check_shards(given)
    if given.world_size > 1 and given.save_on_each_node:
        raise InvalidInputError(
            "The 'save_on_each_node' training argument cannot be True in several processes: the first one has the "
            "noise, and writes the checkpoints that all of them continue from."
        )
    arguments = copy(given)
    arguments.gradient_accumulation_steps = 1  # transformers would add up several batches of the plan
    arguments.ignore_data_skip = True  # the run knows where it is
    arguments.fsdp = arguments.fsdp_plugin_args = None  # the model is shared out before transformers has it
    arguments.activation_checkpointing_kwargs = {"use_reentrant": False} | (given.activation_checkpointing_kwargs or {})
    return arguments


def _check_shards(given: Any) -> None:
    """Raise InvalidInputError for options of ``fsdp_config`` that a model of ``fully_shard`` cannot have here."""
    options = {name: value for name, value in given.fsdp_config.items() if name.startswith("xla")}
    options |= {name.removeprefix("fsdp_"): value for name, value in (given.fsdp_plugin_args or {}).items()}
    for name, value in options.items():
        if value and name not in ANY and value != SHARDS.get(name):
            raise InvalidInputError(
                f"The 'fsdp_config' training argument must have {name} = {SHARDS.get(name, False)!r} in private "
                f"training. Got {value!r} instead."
            )
    if given.world_size == 1:
        raise InvalidInputError("The 'fsdp' training argument needs several processes; start them with torchrun.")


def check_batch_size(given: Any, expected: float, planned: float | None = None) -> None:
    """Raise InvalidInputError unless the physical batches that a step is expected to need are those that are given.

    Args:
        given: the training arguments.
        expected: the batch size on average.
        planned: what the plan says, where that is not what its sampler then draws on average.
    """
    largest, stated = given.per_device_train_batch_size * given.world_size, planned or expected
    needed = math.ceil(round(stated) / largest)
    if given.gradient_accumulation_steps not in (needed, math.ceil(round(expected) / largest)):
        raise InvalidInputError(
            f"The 'gradient_accumulation_steps' training argument must be {needed}, as batches of the plan have about "
            f"{round(stated)} examples and 'per_device_train_batch_size' is {given.per_device_train_batch_size}"
            f"{f', on {given.world_size} processes' if given.world_size > 1 else ''}. "
            f"Got {given.gradient_accumulation_steps} instead."
        )


def check_steps(given: Any, steps: int, steps_per_epoch: int) -> None:
    """Raise InvalidInputError unless the training is as long as the plan, or is told to stop earlier."""
    if given.max_steps > 0:
        name, value, wanted = "max_steps", given.max_steps, given.max_steps
    else:
        name, value, wanted = (
            "num_train_epochs",
            given.num_train_epochs,
            math.ceil(given.num_train_epochs * steps_per_epoch),
        )
    if wanted > steps or (wanted < steps and name == "num_train_epochs"):
        raise InvalidInputError(
            f"The {name!r} training argument must lead to the plan's {steps} steps; set max_steps={steps}, or fewer to "
            f"stop early. Got {value!r}, {wanted} steps."
        )


def check_precision(given: Any, grad_sample_mode: str) -> None:
    """Raise InvalidInputError for 16 bits with ghost clipping, whose second backward pass rounds by itself."""
    if given.bf16 and grad_sample_mode == "ghost":
        raise InvalidInputError(
            "The 'bf16' training argument must be False with grad_sample_mode='ghost', as the second backward pass "
            "would round clipped gradients to 8 bits; use grad_sample_mode='hooks'."
        )


def check_evaluation(evaluated: Any, trained: Any, name: str = "eval_dataset") -> None:
    """Raise InvalidInputError for an evaluation on the training data, whose losses have no noise."""
    sets = list(evaluated.values()) if isinstance(evaluated, dict) else [evaluated]
    if trained is not None and any(trained is data or trained is getattr(data, "dataset", None) for data in sets):
        raise InvalidInputError(
            f"The {name!r} argument must not be the training data, or a part of them: losses on them, and what is "
            "chosen by these, are released without noise."
        )
