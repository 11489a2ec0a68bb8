"""Gradients clipped to a proved norm, rounded to integers, and summed without error.

A clipping norm has K grid steps. The gradients g of one example become integers q with ``|q| <= K``, and the sum of the
integers of a batch is exact: in any order, over any physical batches and processes. ``docs/theory/exact-sums.md`` has
the proof.

* The squared norm S is added in float64, in an order that :func:`squared_norms` fixes: the same bits on every device.
* ``F = min(K / C, (K / sqrt(S)) (1 - (d + 8) 2^-53))`` for d numbers and the clipping norm C.
* ``q = trunc(g F)``, the product in float64. Truncation never makes a negative number longer, as floor would.
* The sum of ``q^2`` is compared with ``K^2`` in integers. By the proof it is never above; if it were, F is lowered by a
  fixed rule (:func:`lowered`) until it is not.

A gradient that is not finite, or whose squares are too large for float64, counts as zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import repeat
from math import ceil, floor, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import called
from hockeystick.compiling import kernel
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.samplers.dealt import DealtPromises
from hockeystick.samplers.fixed_size import FixedSizePromises
from hockeystick.samplers.promises import Promises
from hockeystick.spec import real_number

Reals = NDArray[Any]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

LANES = 1 << 12
"""Running sums of squares; a power of two. They stay in the first cache of a processor."""
RUN = 1 << 18
"""Numbers that go through the lanes before these are added to those of earlier runs; a GPU takes all runs at once."""
BLOCK = 1 << 11
"""Numbers whose squares are added before their sum is limited, at most."""
MOST_STEPS = 1 << 28
"""Largest K."""
MOST_NUMBERS = 1 << 40
"""Largest d of the proof."""
SMALLEST = 2.0**-100
"""Smallest clipping norm of the proof."""
PARTS = 4
"""Physical batches in a batch of expected size, by default, where sizes are random."""
MULTIPLE = 32
"""Of which the rows are a multiple, by default: with fewer, or an odd number, some kernels on CPUs round the last rows
in another way than the first (``docs/theory/exact-sums.md``)."""
UNIT = 2.0**-53
"""Half a unit in the last place of 1."""
CAP = np.int64(1 << 61)
"""Above every squared K; sums of squares stop there."""


@called("hs.training.exact_sum(gradients, clip_norm=1.0, steps=noise.steps)")
def exact_sum(rows: Reals | Sequence[Reals], clip_norm: float, steps: int) -> list[Integers]:
    """The sum over the examples of their clipped and rounded gradients, in grid steps, an array for each given one.

    >>> [total] = exact_sum(np.array([[3.0, -4.0], [0.25, 0.0], [np.inf, 0.0]]), clip_norm=1.0, steps=1024)
    >>> total
    array([ 870, -819])

    The integers of one example, over all arrays together, have norm at most ``steps``. They depend on its own gradient
    alone, so sums of parts of a batch add up to that of the whole.

    Args:
        rows: the gradients of a model with one array for each parameter: of float32 or float64, shape (examples, ...),
            in grid steps times ``clip_norm / steps``.
        clip_norm: C, at least ``2^-100`` and finite.
        steps: K, grid steps in a clipping norm, from 1 to ``2^28``.

    Raises: InvalidInputError for arguments out of range, other types, and arrays of different numbers of examples.
    """
    arrays = [rows] if isinstance(rows, np.ndarray) or not isinstance(rows, Iterable) else list(rows)
    check_steps(steps)
    scale = scale_of(clip_norm, steps)
    flat = [_flat(array) for array in arrays]
    totals = [np.zeros(array.shape[1:], np.int64) for array in arrays]
    if len({len(array) for array in arrays}) != 1:
        raise InvalidInputError("The 'rows' argument must have arrays of the same number of examples, at least one.")
    add_clipped(flat, [total.reshape(-1) for total in totals], scale, steps)
    return totals


def check_steps(steps: int) -> None:
    """Raise InvalidInputError for a K that the integers do not hold."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= MOST_STEPS:
        raise InvalidInputError(
            f"The 'steps' argument must be a whole number from 1 to {MOST_STEPS}. Got {shortened(steps)} instead."
        )


def scale_of(clip_norm: float, steps: int) -> float:
    """K / C, what short gradients are multiplied by; raises InvalidInputError for a clipping norm out of range."""
    if not SMALLEST <= real_number("clip_norm", clip_norm) < np.inf:
        raise InvalidInputError(
            f"The 'clip_norm' argument must be finite and at least {SMALLEST:.3g}. Got {shortened(clip_norm)} instead."
        )
    return steps / clip_norm


def refuse_exact(exact: bool, what: str) -> None:
    """Raise UnsupportedError where the noise is in whole numbers and ``what`` sums in floating point."""
    if exact:
        raise UnsupportedError(
            f"{what} sums gradients in floating point, and the noise of an exact mechanism is in whole numbers: use "
            "hockeystick.torch.PrivacyEngine, or hockeystick.training.exact_sum in a loop of your own."
        )


@called("hs.training.steps_within(steps, rho=1e-3)")
def steps_within(steps: int, rho: float) -> int:
    """The grid steps that gradients are clipped to where the integers of all others change by up to rho of that.

    >>> steps_within(1024, 0.001)
    1022

    The most whole steps that are at most ``steps`` when they are multiplied by ``1 + rho``, in rational arithmetic. So
    the steps of a clipping norm get coarser, and the noise, which is in steps, ``1 + rho`` times as large.

    Args:
        steps: K, of the noise (``Run.norm_steps``).
        rho: from 0 to 1.

    Raises: InvalidInputError for steps or a rho out of range.
    """
    if isinstance(rho, bool) or not isinstance(rho, int | float | np.floating) or not 0.0 <= rho <= 1.0:
        raise InvalidInputError(f"The 'rho' argument must be a number from 0 to 1. Got {shortened(rho)} instead.")
    check_steps(steps)
    return floor(steps / (1 + Fraction(float(rho))))


def layer_steps(clip_norms: Sequence[float], steps: int) -> list[int]:
    """The K of every layer, where layers are clipped to norms of their own: in proportion to these, rounded down.

    >>> layer_steps([3.0, 4.0], 1000)
    [600, 800]

    The sum of their squares is at most ``steps^2``, in rational arithmetic.

    Args:
        clip_norms: positive and finite.
        steps: K, of all layers together.
    """
    squares = [Fraction(norm) ** 2 for norm in clip_norms]
    total = sum(squares)
    return [isqrt(int(steps * steps * square / total)) for square in squares]


def rows_of(given: int | None, promises: Promises, world_size: int) -> int:
    """Rows of a physical batch: the given number, or one that suits the sampler.

    Raises: InvalidInputError for a number that is not whole and positive.
    """
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InvalidInputError(
                f"The 'physical_batch_size' argument must be a whole number of at least 1. Got {given!r} instead."
            )
        return given
    if isinstance(promises, DealtPromises | FixedSizePromises):
        wanted: float = promises.whole_batch
    else:
        wanted = promises.expected_batch_size / PARTS
    return MULTIPLE * ceil(wanted / (world_size * MULTIPLE))


def add_clipped(rows: Sequence[Reals], totals: Sequence[Integers], scale: float, steps: int) -> None:
    """Add to ``totals`` the integers of every example, which have norm at most ``steps`` over all arrays together.

    Args:
        rows: of float32 or float64, shapes (examples, numbers), each row contiguous; at least one array.
        totals: shapes (numbers,), contiguous.
        scale: what gradients that are not clipped are multiplied by.
        steps: K of these arrays.
    """
    squares = sum(squared_norms(array) for array in rows)
    assert isinstance(squares, np.ndarray)
    add_scaled(rows, totals, factors(squares, sum(array.shape[1] for array in rows), scale, steps), steps)


def factors(squares: NDArray[np.float64], numbers: int, scale: float, steps: int) -> NDArray[np.float64]:
    """F of every example: with ``q = trunc(g F)``, ``|q| <= steps``. It is 0 where a squared norm is not finite.

    Args:
        squares: of the gradients, by :func:`squared_norms`, added over their arrays in order.
        numbers: in a gradient, over its arrays together.
        scale: the largest F.
        steps: K.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        longest = (steps / np.sqrt(squares)) * margin(numbers)
        return np.where(np.isfinite(squares), np.minimum(scale, longest), 0.0)


def margin(numbers: int) -> float:
    """``1 - (d + 8) 2^-53``, exactly; raises InvalidInputError for more numbers than the proof is for."""
    if numbers > MOST_NUMBERS:
        raise InvalidInputError(f"A gradient must have at most 2^40 numbers. Got {numbers}.")
    return 1.0 - (numbers + 8) * UNIT


def add_scaled(
    rows: Sequence[Reals], totals: Sequence[Integers], scales: NDArray[np.float64], steps: int
) -> NDArray[np.float64]:
    """Add ``trunc(g F)`` to the totals, with an F that is lowered where the integers would be longer than ``steps``.

    Args:
        rows, totals, steps: as for :func:`add_clipped`.
        scales: F of every example.

    Returns: the F that was taken.
    """
    taken = scales.copy()
    squares = _added(rows, totals, taken, steps, 1)
    for share in lowered():  # by the proof none is needed, with the factors of this module
        over = squares > steps * steps
        if not over.any():
            break
        again = [array[over] for array in rows]
        _added(again, totals, taken[over], steps, -1)
        taken[over] *= share
        squares[over] = _added(again, totals, taken[over], steps, 1)
    return taken


def add_within(rows: Reals, total: Integers, scales: NDArray[np.float64], steps: int, left: Integers) -> Integers:
    """Add the integers of one array, but of no example whose squares are above what it has left; returns what is left.

    Args:
        rows: shape (examples, numbers), each row contiguous; the gradients of one array of several.
        total: shape (numbers,), contiguous.
        scales: F of every example.
        steps: K.
        left: ``K^2`` less the squares of the integers that were added for the arrays before, shape (examples,).
    """
    squares = _added([rows], [total], scales, steps, 1)
    over = squares > left
    if over.any():  # by the proof never, where the gradients are those that the factors were made of
        _added([rows[over]], [total], scales[over], steps, -1)
    return np.where(over, left, left - squares)


def lowered() -> Iterator[float]:
    """What an F that is too large is multiplied by, one after the other: ``1 - 2^-20``, ``1 - 2^-19``, ..., 1/2, 1/2,
    ...
    """
    yield from (1.0 - 2.0**-bits for bits in range(20, 0, -1))
    yield from repeat(0.5)


def _added(
    rows: Sequence[Reals], totals: Sequence[Integers], scales: NDArray[np.float64], steps: int, sign: int
) -> Integers:
    """Add the integers, or take them away; the sum of their squares for every example, or ``2^61`` if it is larger."""
    squares = np.zeros(len(scales), np.int64)
    for array, total in zip(rows, totals, strict=True):
        _add_integers(array, scales, float(steps), sign, total, squares, _block(steps))
    return squares


def _block(steps: int) -> int:
    """Numbers of at most K whose squares add up to at most ``2^62``; a power of two."""
    return min(BLOCK, 1 << (62 - 2 * (steps - 1).bit_length()))


def squared_norms(rows: Reals) -> NDArray[np.float64]:
    """The squared norm of every row, in float64, in an order of additions that depends on the length alone.

    Numbers are taken in runs of ``2^18``. In a run, number j goes to lane j modulo ``2^12``, from the first to the
    last; the lanes of the runs are added, from the first to the last; then the second half of the lanes is added to the
    first until one is left. Elementwise additions in this order give the same bits on any device.

    Guarantee: at least ``(1 - 2^-53)^d`` times the true squared norm, less ``d 2^-1022``.

    Args:
        rows: of float32 or float64, shape (examples, d).
    """
    squares = np.zeros(len(rows))
    width = min(LANES, width_of(rows.shape[1]))
    _square(rows, np.empty(width), np.empty(width), squares)
    return squares


def width_of(numbers: int) -> int:
    """The smallest power of two that is at least that."""
    return 1 << max(numbers - 1, 0).bit_length()


def _flat(array: Reals) -> Reals:
    """The gradients of one parameter as rows; raises InvalidInputError for anything but numpy's reals."""
    if not isinstance(array, np.ndarray):
        raise InvalidInputError(
            "The 'rows' argument must be an array of numpy, or a list of one for each parameter. "
            f"Got {shortened(array)} instead."
        )
    if array.dtype not in (np.float32, np.float64) or array.ndim < 1:
        raise InvalidInputError(
            f"The 'rows' argument must have arrays of float32 or float64, one row for each example. Got {array.dtype} "
            f"of shape {array.shape} instead."
        )
    return np.ascontiguousarray(array).reshape(len(array), -1)


@kernel
def _square(rows: Reals, lanes: Floats, total: Floats, squares: Floats) -> None:
    """See :func:`squared_norms`; ``lanes`` and ``total`` are overwritten, and as wide as is needed."""
    width = lanes.shape[0]
    for example in range(rows.shape[0]):
        _fill_lanes(rows[example, :RUN], total)
        for first in range(RUN, rows.shape[1], RUN):
            _fill_lanes(rows[example, first : first + RUN], lanes)
            total += lanes
        half = width // 2
        while half:
            for at in range(half):
                total[at] += total[at + half]
            half //= 2
        squares[example] = total[0]


@kernel
def _fill_lanes(row: Reals, lanes: Floats) -> None:
    """The sums of the squares of a run in its lanes."""
    width = lanes.shape[0]
    piece = row[:width]
    for at in range(piece.shape[0]):
        number = np.float64(piece[at])
        lanes[at] = number * number
    lanes[piece.shape[0] :] = 0.0
    for start in range(width, row.shape[0], width):
        piece = row[start : start + width]
        for at in range(piece.shape[0]):
            number = np.float64(piece[at])
            lanes[at] += number * number


@kernel
def _add_integers(
    rows: Reals, scales: Floats, steps: float, sign: int, totals: Integers, squares: Integers, block: int
) -> None:
    """Add ``sign * trunc(g F)`` to the totals, and its squares to those of its example, a block of numbers at a time.

    No product is beyond ``steps`` by more than rounding, so the limits there change nothing but what a fault could do:
    the squares of a block, and that sum beside what was added before, stay within 64 bits.
    """
    for start in range(0, rows.shape[1], block):
        total = totals[start : start + block]
        for example in range(rows.shape[0]):
            scale = scales[example]
            if scale == 0.0:  # not finite, and 0 times infinity is no number
                continue
            row = rows[example, start : start + block]
            square = np.int64(0)
            for at in range(row.shape[0]):
                product = np.float64(row[at]) * scale
                product = min(max(product, -steps), steps)
                whole = np.int64(np.int32(product))  # towards zero
                square += whole * whole
                total[at] += sign * whole
            squares[example] = min(squares[example] + square, CAP)
