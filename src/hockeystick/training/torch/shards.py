"""Which numbers of the parameters this process holds, where they are shared out by ``fully_shard``."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor, Shard

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.torch.guards import WIDE
from hockeystick.training.torch.norms import total_norm
from hockeystick.training.torch.private_names import reductions


def part_of(parameters: Sequence[Any]) -> list[tuple[int, int]]:
    """The ranges of this process in the numbers of all parameters, flat and joined.

    ``fully_shard`` gives each of R processes the next of R runs of rows, all of ceil(rows / R) rows but the last ones.

    Raises: UnsupportedError for parameters that are shared out in another way, or not at all; InvalidInputError, in
    all processes, where one of them would hold no row of any parameter.
    """
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    rows = [parameter.shape[0] if parameter.dim() else 1 for parameter in parameters]
    needed = max(-(-size // -(-size // ranks)) for size in rows)
    if needed < ranks:
        raise InvalidInputError(
            f"Every process must hold rows of the trained parameters, which have at most {max(rows)} rows: {needed} of "
            f"{ranks} processes would hold some; use fewer processes."
        )
    ranges, before = [], 0
    for parameter, size in zip(parameters, rows, strict=True):
        each = -(-size // ranks)
        first, last = min(rank * each, size), min((rank + 1) * each, size)
        whole = isinstance(parameter, DTensor) and parameter.placements == (Shard(0),)
        if not whole or parameter.device_mesh.size() != ranks or len(parameter.to_local()) != last - first:
            raise UnsupportedError(
                "Noise for FSDP needs every trained parameter sharded by rows over all processes, as fully_shard does "
                "with one mesh of all of them."
            )
        row = parameter.numel() // size
        if first < last:
            ranges.append((before + first * row, before + last * row))
        before += parameter.numel()
    return ranges


def check_reductions(module: Any) -> None:
    """Raise UnsupportedError unless ``fully_shard`` takes means of gradients over processes, in float32 or float64.

    Means are what the share of the noise in each shard is made for. Sums that are rounded to 16 bits before the noise
    differ by more than a clipping norm with an example, and so do gradients of outputs that are, in the second backward
    pass.
    """
    for name, policy, factor in reductions(module):
        narrow = narrow_types(policy)
        if narrow:
            raise UnsupportedError(
                f"Gradients of fully_shard are computed and added up in {narrow[0]} in {name!r}, before the noise is "
                "added; its mp_policy must have param_dtype, reduce_dtype and output_dtype None, torch.float32 or "
                "torch.float64."
            )
        if factor is not None:
            raise UnsupportedError(
                f"Gradients of fully_shard must be means over the processes, for which the noise is made; {name!r} has "
                f"set_gradient_divide_factor({factor!r}), which must be left out."
            )


def narrow_types(policy: Any) -> list[torch.dtype]:
    """The types of 16 bits, or fewer, in a ``mp_policy`` of ``fully_shard``."""
    dtypes = (policy.param_dtype, policy.reduce_dtype, policy.output_dtype)
    return [dtype for dtype in dtypes if dtype not in (None, *WIDE)]


def local(tensor: Any) -> Any:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def joined(row: Any, like: Any) -> Any:
    """The tensor that is shared out like another one and of which this process holds ``row``."""
    if not isinstance(like, DTensor):
        return row
    return DTensor.from_local(row, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def norms_of_all(tensors: Iterable[Any]) -> list[float]:
    """The norm of each tensor, by :func:`.norms.total_norm`; of those that processes share out, over all shards."""
    given = list(tensors)
    norms = [total_norm([local(tensor)]) for tensor in given]
    shared = [at for at, tensor in enumerate(given) if isinstance(tensor, DTensor)]
    if shared:
        squares = [norms[at] * norms[at] for at in shared]
        total = torch.tensor(squares, dtype=torch.float64, device=local(given[shared[0]]).device)
        distributed.all_reduce(total)
        for at, square in zip(shared, total.sqrt().tolist(), strict=True):
            norms[at] = square
    return norms
