"""Norms of gradients whose error is proved, and factors that leave room for it.

torch's float32 norm of one long row may be short: on a CPU by 1e-5 for 1e6 random numbers, by 2.7e-3 for 3.9e7, and by
1.3e-2 for 3.9e7 equal ones. Here every number is squared and added in float64, piece by piece, so that no copy of a
gradient is made.

The proof. Let ``v = 2^-53``, let g have n numbers and norm N, and let C be the norm to clip to. The square of a float32
is exact in float64, and that of a float64 is off by a factor of at most ``1 - v``. A sum of n terms that are not
negative is, in any order, at least ``(1 - v)^(n - 1)`` times the true one, so the computed norm is at least ``N (1 - (n
+ 3) v / 2)``. With ``r = room(n) = 2^-21 + n v``, the factor is ``min(1, C (1 - r) / norm)``, rounded *down* to the
type of g. If it is 1, the computed norm is at most ``C (1 - r)``, and N at most C. Otherwise a product of the factor
and a number of g is rounded once, by a factor of at most ``1 + 2^-24``, or, where it is subnormal, by ``2^-150``. The
products together have norm at most

    C (1 - r) (1 + 2^-24) (1 + 4 v) / (1 - (n + 3) v / 2) + sqrt(n) 2^-150,

which is at most C for n up to 2^40 and C of at least 2^-100. Flushing subnormal numbers to zero makes products shorter.
It loses squares of numbers below 2^-126, at most ``n 2^-252`` together, which the difference covers too.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from hockeystick.errors import InvalidInputError

PIECE = 1 << 17
"""Numbers that are widened at a time, on the CPU: what stays in its caches."""
LARGE = 1 << 22
"""The same on other devices, where every call costs."""
FEW = 1 << 12
"""Up to so many numbers an example, products of all examples are made before they are summed."""
SMALLEST = 2.0**-100
"""Below this clipping norm, subnormal numbers are too coarse for the proof."""


def room(numbers: int) -> float:
    """The part of a clipping norm that is left to the rounding of norm, factor and products, for so many numbers."""
    return 2.0**-21 + numbers * 2.0**-53


def squared_norms(rows: torch.Tensor) -> torch.Tensor:
    """The squared norm of every row, in float64, short by a factor of at most ``1 - (numbers + 1) 2^-53``.

    It is inf or nan for a row that is not finite.

    Args:
        rows: of any floating type, shape (examples, ...).
    """
    flat = _flat(rows)
    if flat.device.type == "cuda":  # widens number by number, and adds in float64
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square()
    squares = [torch.linalg.vector_norm(_wide(piece), dim=1).square() for _, piece in _pieces(flat)]
    if len(squares) == 1:
        return squares[0]
    device = _wide(flat[:0]).device
    return torch.stack(squares).sum(dim=0) if squares else torch.zeros(len(flat), dtype=torch.float64, device=device)


def total_norm(tensors: Iterable[torch.Tensor]) -> float:
    """The norm of all numbers of these tensors together, by :func:`squared_norms`."""
    return math.sqrt(sum(float(squared_norms(tensor.detach()[None])) for tensor in tensors))


def clip_factors(norms: torch.Tensor, clip_norm: float, numbers: int, dtype: torch.dtype) -> torch.Tensor:
    """What to multiply gradients by, so that the products, rounded to float32 or float64, have norm at most
    ``clip_norm``.

    Rounded down. Where the norm is inf, the factor is 0, and where it is nan, so is the factor.

    Args:
        norms: of the gradients, roots of :func:`squared_norms`.
        clip_norm: at least ``2^-100``.
        numbers: in a gradient, over all tensors together.
        dtype: of the factors and of the products, float32 or float64.

    Raises: InvalidInputError for a smaller clipping norm.
    """
    if not clip_norm >= SMALLEST:
        raise InvalidInputError(f"The clipping norm must be at least {SMALLEST:.3g}. Got {clip_norm!r} instead.")
    exact = (clip_norm * (1.0 - room(numbers)) / norms).clamp(max=1.0)
    factors = exact.to(dtype)
    return torch.where(factors.to(exact.dtype) > exact, torch.nextafter(factors, torch.zeros_like(factors)), factors)


def scaled_sum(rows: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The sum of the rows, each times its factor, in the type of the factors or a wider one; shape ``rows.shape[1:]``.

    Every product is rounded in that type. Matrix products are not used: where TF32 or bfloat16 is allowed for them,
    they round each factor and each number by ``2^-11`` or more.

    Args:
        rows: of any floating type, shape (examples, ...).
        factors: shape (examples,).
    """
    flat, dtype = _flat(rows), torch.promote_types(rows.dtype, factors.dtype)
    factors = factors.to(flat.device, dtype)
    total = torch.zeros(flat.shape[1], dtype=dtype, device=flat.device)
    if flat.shape[1] > FEW and flat.device.type == "cpu":
        for row, factor in zip(flat, factors.tolist(), strict=True):
            total.add_(row, alpha=factor)
        return total.view(rows.shape[1:])
    for start, piece in _pieces(flat):
        torch.sum(piece * factors[:, None], dim=0, out=total[start : start + piece.shape[1]])
    return total.view(rows.shape[1:])


def float32_excess(longest: int, tensors: int, clip_norm: float) -> float:
    """How many clipping norms a gradient may have that was clipped by float32 norms, in whatever order they were
    summed.

    An upper bound, for tensors of at most ``longest`` numbers: a sum of d squares is at least ``(1 - 2^-24)^d`` times
    the true one, as is the sum over the tensors. Eight roundings cover roots, quotient, factor and product, and what
    underflows in a square is at most ``2^-126``.
    """
    roundings = (longest + tensors) / 2.0 + 8.0
    lost = math.sqrt(longest * tensors) * 2.0**-63 / clip_norm
    return math.exp(-roundings * math.log1p(-(2.0**-24))) * (1.0 + lost)


def numbers_in(parameters: Sequence[Any]) -> int:
    """How many numbers these tensors have together."""
    return sum(parameter.numel() for parameter in parameters)


def _flat(rows: torch.Tensor) -> torch.Tensor:
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def _wide(piece: torch.Tensor) -> torch.Tensor:
    """In float64; on the CPU where the device has no such type."""
    return piece.to("cpu" if piece.device.type == "mps" else piece.device, torch.float64)


def _pieces(flat: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Neighbouring columns, with the number of the first of them."""
    width = max(1, (PIECE if flat.device.type == "cpu" else LARGE) // max(1, len(flat)))
    for start in range(0, flat.shape[1], width):
        yield start, flat[:, start : start + width]
