"""What torch and Opacus do not promise to keep, all of it, so that a release that moves a name fails here alone."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.optimizers.optimizer import _check_processed_flag as check_processed_flag
from opacus.optimizers.optimizer import _mark_as_processed as mark_as_processed
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.dropout import _DropoutNd as DropoutNd

__all__ = [
    "BatchNorm",
    "ConvNd",
    "DropoutNd",
    "NormBase",
    "after_backward",
    "check_processed_flag",
    "current_backward",
    "is_leaf",
    "mark_as_processed",
    "reductions",
]


def current_backward() -> int:
    """The number of the backward pass that is under way in this thread, -1 outside one."""
    return torch._C._current_graph_task_id()


def after_backward(function: Callable[[], None]) -> None:
    """Have a function called at the end of the backward pass that is under way."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def is_leaf(node: Any) -> bool:
    """Whether a node of the graph of a backward pass adds to the gradient of a ``node.variable``, as of a parameter."""
    return bool(node.name() == "torch::autograd::AccumulateGrad")


def reductions(module: torch.nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """How ``fully_shard`` computes and adds up gradients over processes.

    For each of its modules, and for each of their parameters: the name of the module, a policy for types, and what was
    set in place of the mean; None where nothing was.
    """
    for name, part in module.named_modules():
        if not isinstance(part, FSDPModule):
            continue
        state: Any = part._get_fsdp_state()
        yield name, state._mp_policy, None
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for group in filter(None, groups):
            set_by = (getattr(group, "gradient_divide_factor", None), getattr(group, "reduce_scatter_reduce_op", None))
            factor = next((factor for factor in set_by if factor is not None), None)
            for parameter in group.fsdp_params:
                yield name, parameter.mp_policy, factor
