"""Several processes of torch's distributed training that share out the batches of one run.

Each has a copy of the model and its part of every batch. Parts are clipped and summed where they are, sums are added up
over the processes, and the first adds the noise; see ``docs/theory/runs.md``. In one process, none of it has an effect.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from accelerate.utils import gather_object
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.trainer_utils import set_seed

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.huggingface.private_names import keep_model_whole
from hockeystick.training.huggingface.shards import is_sharded

LOOKED_AT = 64
"""Examples of the data that are compared."""
GATHERING = ("gather", "gather_for_metrics", "reduce")
"""Methods of an accelerator by which losses of Trainers gather figures for their log."""


def shared(model: torch.nn.Module, accelerator: Any) -> torch.nn.Module:
    """What the engine takes for a model of several processes, with the weights of the first of them in all.

    Models of ``fully_shard`` stay as they are: each process has made the weights of its shards.

    Raises: UnsupportedError for a model that is in shards otherwise.
    """
    sharded = any(isinstance(parameter, DTensor) for parameter in model.parameters())
    if getattr(model, "is_distributed_loading_by_transformers", False) or (sharded and not is_sharded(model)):
        raise UnsupportedError(
            "The 'model' argument must be whole in every process, or be sharded by fully_shard as a whole: load it "
            "without distributed_config, add adapters first (with get_peft_model), and then call fully_shard on all "
            "of it."
        )
    if is_sharded(model) or accelerator.num_processes > 1:
        keep_model_whole(accelerator)
    if is_sharded(model) or accelerator.num_processes == 1:
        return model
    return DifferentiallyPrivateDistributedDataParallel(model)


def seed_apart(seed: int, rank: int) -> None:
    """Give a process random numbers of its own.

    Transformers gives all of them the same. Two examples would then have one dropout mask, and which two do would
    depend on the other examples of the batch.
    """
    if rank:
        set_seed(seed + rank)


def mean_over_all(total: torch.Tensor, examples: int, accelerator: Any) -> torch.Tensor:
    """The mean loss of a batch, from the sum over the examples of each process; 0 for a batch without any."""
    if accelerator.num_processes > 1:
        own = torch.tensor([float(total), examples], dtype=torch.float64, device=total.device)
        total, number = accelerator.reduce(own, reduction="sum").to(total.dtype)
        examples = int(number)
    return total / examples if examples else total


def check_data(dataset: Any, accelerator: Any) -> None:
    """Raise InvalidInputError unless all processes have the same data in the same order, as far as some examples say.

    Otherwise a place in the data is one example here and another one there, and an example takes part in more steps
    than the plan says.
    """
    if accelerator.num_processes > 1 and len(set(gather_object([_digest(dataset)]))) > 1:
        raise InvalidInputError(
            "The 'train_dataset' argument must have the same examples in the same order in all processes. Got others "
            "in some; sort them, or shuffle them by a fixed seed."
        )


@contextmanager
def figures_of_one(accelerator: Any) -> Iterator[None]:
    """Have a loss gather the figures of this process alone, as in one process.

    Processes have other numbers of parts of a batch, so some would wait for figures that nobody sends.
    """
    with ExitStack() as patches:
        for name in GATHERING:
            patches.enter_context(patch.object(accelerator, name, _as_given))
        yield


def _as_given(figures: Any, *args: Any, **named: Any) -> Any:
    del args, named
    return figures


class Alone(TorchDispatchMode):
    """Raises UnsupportedError where a loss sends something to other processes, or waits for them.

    Args:
        name: of the Trainer whose loss it is.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        """Any operation of torch, as it is, but for collective ones."""
        del types
        if "c10d" in function.namespace:
            raise UnsupportedError(
                f"The loss of {self.name} must be computed in one process, as it calls torch.distributed "
                f"({function.name()}) in each part of a batch, and processes may have different numbers of parts."
            )
        return function(*args, **named or {})


def _digest(dataset: Any) -> str:
    """Of the number of examples and of those at places that are spread over all."""
    digest = hashlib.sha256(str(len(dataset)).encode())
    for at in np.linspace(0, len(dataset) - 1, min(len(dataset), LOOKED_AT)).astype(int).tolist():
        example = dataset[at]
        parts = example.values() if isinstance(example, Mapping) else example if isinstance(example, tuple) else ()
        for part in parts:
            digest.update(_bytes(part))
    return digest.hexdigest()


def _bytes(part: Any) -> bytes:
    """Of numbers and texts; nothing of other things."""
    if isinstance(part, torch.Tensor):
        part = part.detach().cpu()
        part = part.double() if part.is_floating_point() else part
    try:
        array = np.asarray(part)
    except ValueError:  # lists of several lengths
        return b""
    return array.tobytes() if array.dtype.kind in "biufU" else b""


def check_saved(checkpoint: str, accelerator: Any) -> None:
    """Raise InvalidInputError for a checkpoint of another number of processes.

    Steps that were taken after it would be taken again with the same noise on other sums: rounded in another order,
    and with other dropout masks.
    """
    states = len(list(Path(checkpoint).glob("rng_state*.pth")))
    saved = states or accelerator.num_processes  # where there are none, the run is missing too
    if saved != accelerator.num_processes:
        raise InvalidInputError(
            f"The checkpoint must be of a training in {accelerator.num_processes} process(es), as this one is. "
            f"Got one of {saved}, whose repeated steps would add the same noise to other sums; start as many processes."
        )
