"""No function takes more than eight positional parameters: more of them are told apart by name, or are one tuple.

Kernels of numba take a NamedTuple of arrays; those of Triton take pointers and numbers one by one, and tuples only from
releases later than the oldest that is supported, so they are left out. So are commands, whose parameters are options.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src" / "hockeystick", ROOT / "papers" / "hockeystick_papers")
MOST = 8


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many positional parameters a caller passes."""
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def of_triton(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a kernel for devices."""
    return any(ast.unparse(decorator).startswith("triton.jit") for decorator in function.decorator_list)


def too_many(text: str) -> Iterator[str]:
    """The names of the functions in a source, nested ones included, that take too many."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and positional(node) > MOST and not of_triton(node):
            yield node.name


def test_functions_take_at_most_eight_positional_parameters() -> None:
    crowded = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
        if not path.is_relative_to(source / "cli")
        for name in too_many(path.read_text())
    }
    assert not crowded


def test_what_is_counted() -> None:
    assert list(too_many("def eight(a, b, c, d, e, f, g, h, *rest, i, j): ...")) == []
    assert list(too_many("class A:\n    def eight(self, a, b, c, d, e, f, g, h): ...")) == []
    assert list(too_many("@triton.jit(x=1)\ndef nine(a, b, c, d, e, f, g, h, i): ...")) == []
    assert list(too_many("def outer():\n    async def nine(a, /, b, c, d, e, f, g, h, i=0): ...")) == ["nine"]
