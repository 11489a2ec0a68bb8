"""What torch and Opacus do not promise to keep, all of it, so that a release that moves a name fails here alone."""

from collections.abc import Callable

import torch
from opacus.optimizers.optimizer import _check_processed_flag as check_processed_flag
from opacus.optimizers.optimizer import _mark_as_processed as mark_as_processed
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.dropout import _DropoutNd as DropoutNd

__all__ = [
    "BatchNorm",
    "DropoutNd",
    "NormBase",
    "after_backward",
    "check_processed_flag",
    "current_backward",
    "mark_as_processed",
]


def current_backward() -> int:
    """The number of the backward pass that is under way in this thread, -1 outside one."""
    return torch._C._current_graph_task_id()


def after_backward(function: Callable[[], None]) -> None:
    """Have a function called at the end of the backward pass that is under way."""
    torch.autograd.Variable._execution_engine.queue_callback(function)
