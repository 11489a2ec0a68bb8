"""Inner products of rows of complex numbers for numba, by vectors also where rows are short.

Loops over some twenty numbers are left half scalar by the compiler; here what is left of a row is one masked vector.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 8
"""Numbers of a vector, and how many more each array must have than rows reach."""
FAST = ("contract", "reassoc")


def _typed(typingctx: Any, x: Any, y: Any, u: Any, v: Any, at: Any, place: Any, count: Any) -> Any:
    """What numba compiles a call to: the type of the function, and what writes its code."""
    rows = [kind for kind in (x, y, u, v) if isinstance(kind, types.Array)]
    if len(rows) < 4 or any((kind.dtype, kind.ndim, kind.layout) != (types.float64, 1, "C") for kind in rows):
        raise TypingError("Rows of complex numbers must be contiguous arrays of float64.")
    signature = types.Tuple((types.float64, types.float64))(x, y, u, v, at, place, count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole, short = ir.IntType(64), ir.IntType(32)
        vector, wide = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(whole, LANES)
        pointers = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:4], args[:4], strict=True)
        ]
        at, place, count = args[4:]
        zero, lanes = ir.Constant(vector, [0.0] * LANES), ir.Constant(whole, LANES)
        real, imaginary = (cgutils.alloca_once_value(builder, zero) for _ in range(2))

        def add(first: Any, kept: Any) -> None:
            a, b, c, d = (
                builder.load(
                    builder.bitcast(builder.gep(pointer, [builder.add(start, first)]), vector.as_pointer()), align=8
                )
                for pointer, start in zip(pointers, (at, at, place, place), strict=True)
            )
            if kept is not None:
                a, b = builder.select(kept, a, zero), builder.select(kept, b, zero)
            for total, factors, others, join in (
                (real, (a, c), (b, d), builder.fsub),
                (imaginary, (a, d), (b, c), builder.fadd),
            ):
                more = builder.fadd(builder.load(total), builder.fmul(*factors, flags=FAST), flags=FAST)
                builder.store(join(more, builder.fmul(*others, flags=FAST), flags=FAST), total)

        rounds = builder.sdiv(count, lanes)
        with cgutils.for_range(builder, rounds) as loop:
            add(builder.mul(loop.index, lanes), None)
        done = builder.mul(rounds, lanes)
        left = builder.sub(count, done)
        with builder.if_then(builder.icmp_signed(">", left, ir.Constant(whole, 0))):
            same = ir.Constant(ir.VectorType(short, LANES), [0] * LANES)
            lefts = builder.insert_element(ir.Constant(wide, [0] * LANES), left, ir.Constant(short, 0))
            lefts = builder.shuffle_vector(lefts, lefts, same)
            add(done, builder.icmp_signed("<", ir.Constant(wide, list(range(LANES))), lefts))
        sums = []
        for total in (real, imaginary):
            folded, size = builder.load(total), LANES
            while size > 1:
                size //= 2
                halves = (range(size), range(size, 2 * size))
                low, high = (
                    builder.shuffle_vector(folded, folded, ir.Constant(ir.VectorType(short, size), list(half)))
                    for half in halves
                )
                folded = builder.fadd(low, high, flags=FAST)
            sums.append(builder.extract_element(folded, ir.Constant(short, 0)))
        return context.make_tuple(builder, signature.return_type, sums)

    return signature, codegen


complex_dot: Callable[..., tuple[float, float]] = intrinsic(_typed)
"""``complex_dot(x, y, u, v, at, place, count)``: the sum over ``j < count`` of
``(x + i y)[at + j] (u + i v)[place + j]``, real part and imaginary one.

The arrays are contiguous and have ``LANES`` more finite numbers beyond what is summed.
"""
