"""Models that processes share out by ``fully_shard`` (FSDP2), in the Trainer.

Each layer gathers its weights from all processes when it runs, so all of them have to run the model equally often. A
process whose part of a batch is used up, or empty, keeps the others company: it runs an example of the same batch, of
which nothing is counted, with a loss that is multiplied by zero. Its gradient is exactly zero, unless that example has
numbers that are not finite, which end the run wherever it is counted.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import Module

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.huggingface.private_names import whole_layers
from hockeystick.training.torch.shards import local

SHARD = "optimizer_shard_{}.pt"
"""The file of a checkpoint with weights, optimizer and run of one process."""


def is_sharded(model: Any) -> bool:
    """Whether ``fully_shard`` was called on the whole model."""
    return isinstance(model, FSDPModule)


def share_out_again(model: Any) -> None:
    """Have every parameter be a shard, as an optimizer needs it: a forward pass alone leaves some of them whole."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def share_out(model: Any, arguments: Any) -> Any:
    """The model, shared out by ``fully_shard`` over all processes, as the training argument ``fsdp`` has it.

    Layers are those of the classes in ``fsdp_config["transformer_layer_cls_to_wrap"]``, or else those that transformers
    does not split. This is before there are hooks and an optimizer; accelerate would do it after.

    Raises: InvalidInputError for a model without such layers.
    """
    if is_sharded(model):
        return model
    names = arguments.fsdp_config.get("transformer_layer_cls_to_wrap") or whole_layers(model)
    layers = [part for part in model.modules() if type(part).__name__ in names] if isinstance(model, Module) else []
    if not layers:
        raise InvalidInputError(
            "The 'fsdp_config' training argument must have the names of the classes of the model's layers in "
            f"'transformer_layer_cls_to_wrap'. Got {list(names)} for a model of type {type(model).__name__!r}."
        )
    mesh = init_device_mesh(arguments.device.type, (arguments.world_size,))
    again = bool(arguments.fsdp_plugin_args["reshard_after_forward"])
    for layer in reversed(layers):  # those inside others come first
        fully_shard(layer, mesh=mesh, reshard_after_forward=again)
    return fully_shard(model, mesh=mesh)


@contextmanager
def making(name: str, model: Any) -> Iterator[None]:
    """Raise UnsupportedError where a Trainer cannot be made of a model of ``fully_shard``, as TRL's of pairs cannot.

    Args:
        name: of the Trainer.
        model: that it gets.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_sharded(model):
            raise
        raise UnsupportedError(
            f"{name} cannot be made of a model of fully_shard; give it one that is whole in every process. It failed "
            f"with {str(error)!r}."
        ) from error


def mode_of(model: Any, grad_sample_mode: str, arguments: Any) -> str:
    """The engine's name for a gradient mode of a model.

    Raises: UnsupportedError for what a model of ``fully_shard`` cannot have.
    """
    if not is_sharded(model):
        return grad_sample_mode
    if grad_sample_mode != "ghost":
        raise UnsupportedError(
            "The 'grad_sample_mode' argument must be 'ghost' for a model of fully_shard, as gradients of single "
            f"examples are kept in no process. Got {grad_sample_mode!r} instead."
        )
    if arguments.activation_checkpointing or any(
        getattr(part, "gradient_checkpointing", 0) for part in model.modules()
    ):
        raise UnsupportedError(
            "The 'activation_checkpointing' training argument must be False for a model of fully_shard, whose norms "
            "are taken from layers that run once in a pass."
        )
    if arguments.load_best_model_at_end:
        raise UnsupportedError(
            "The 'load_best_model_at_end' training argument must be False for a model of fully_shard, whose "
            "checkpoints are loaded to continue the run alone."
        )
    return "ghost_fsdp"


def passes_of_all(parts: int, first: Mapping[str, Any], device: torch.device) -> tuple[int, Mapping[str, Any]]:
    """How often every process has to run the model in a step, and what to run where its own parts are used up.

    Args:
        parts: of this process.
        first: its first example, as a batch; without rows where it has none.
        device: on which numbers are sent.
    """
    extremes = torch.tensor([parts, -parts], device=device)
    distributed.all_reduce(extremes, distributed.ReduceOp.MAX)
    most, fewest = int(extremes[0]), -int(extremes[1])
    if most and not fewest:  # the first process has an example of every batch that has any
        sent = [first]
        broadcast_object_list(sent)
        first = first if parts else sent[0]
    return most, first


def whole_state(model: Any) -> dict[str, Any]:
    """The weights of all shards, in the first process; called by all of them."""
    state: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return state


def save_shard(folder: Path | str, rank: int, model: Any, optimizer: Any) -> None:
    """Write what this process needs to continue; of adapters, without the weights below them."""
    state = {"weights": _own_weights(model), "optimizer": optimizer.state_dict()}
    torch.save(state, os.path.join(folder, SHARD.format(rank)))


def load_weights(folder: Path | str, rank: int, model: Any) -> None:
    """Take the weights of this process's shards; raises InvalidInputError where there are none, or of other shapes."""
    saved, own = load_shard(folder, rank)["weights"], _own_weights(model)
    shapes = [{name: tuple(tensor.shape) for name, tensor in state.items()} for state in (saved, own)]
    if shapes[0] != shapes[1]:
        raise InvalidInputError(
            f"The checkpoint in {str(folder)!r} must be of this model, shared out in the same way. Got other shards."
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])


def load_shard(folder: Path | str, rank: int) -> dict[str, Any]:
    """What :func:`save_shard` wrote; raises InvalidInputError where it wrote nothing."""
    path = Path(folder) / SHARD.format(rank)
    if not path.is_file():
        raise InvalidInputError(
            f"The checkpoint in {str(folder)!r} must have the shard of process {rank}, {path.name!r}; continue from "
            "one that this Trainer saved of a model of fully_shard, without save_only_model=True."
        )
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _own_weights(model: Any) -> dict[str, torch.Tensor]:
    """What this process holds of the weights; of adapters, of the trained ones alone."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    state = model.state_dict()
    names = [name for name in state if name in trained] if hasattr(model, "peft_config") else list(state)
    return {name: local(state[name]) for name in names}
