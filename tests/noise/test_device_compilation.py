"""The kernels compile for a GPU, and fuse what they say and nothing else: none is needed for that."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs triton")

SCRIPT = """
import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hockeystick.noise.devices import kernels

reals = dict.fromkeys(("table", "scales", "numbers", "doubts"), "*fp64")
types = dict.fromkeys(kernels.CHANGING, "i32") | reals | {"key": "*u32", "flags": "*i64", "tile": "i64", "shift": "i64"}
rows = dict.fromkeys(("out", "total", "ring", "weights", "over"), "*fp32")
whole = {"ring": "*i32", "units": "*i32"}
rounded = {"out": "*i32", "ring": "*fp64", "weights": "*fp64"}
found = {}
for name, own, constants in (
    ("normals", rows, {}),
    ("accumulate", rows, {}),
    ("substitute", rows, {}),
    ("feed_back", whole, {}),
    ("combine", rounded, {"ROUNDED": True}),
):
    kernel, constants = getattr(kernels, name), {"LANES": 128, **constants}
    signature = {one: "constexpr" if one in constants else (types | own)[one] for one in kernel.arg_names}
    places = {(kernel.arg_names.index(one),): value for one, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False}).asm["ptx"]
    found[name] = [text.count(f"fma.rn.{type}") for type in ("f32", "f64")]
print(json.dumps(found))
"""


def test_kernels_compile_for_a_gpu(tmp_path):
    """Eight vectors, each with four fused steps of a polynomial, and of a sum one in the body of its loop."""
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "normals": [0, 32],
        "accumulate": [8, 32],
        "substitute": [8, 32],
        "feed_back": [0, 32],
        "combine": [0, 1],
    }
