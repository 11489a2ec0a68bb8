#!/bin/bash
# Expected: the norm of a row in float32 has a relative error of some 1e-7.
# Happens: on a CPU `norm(2, dim=-1)` of one long row adds squares one after the other in float32, and falls short: by
# 9e-6 at a million numbers, 3.7e-4 at ten million, and 2.7e-3 at 38.6 million (the token embedding of GPT-2).
# Who is hurt: gradients that are divided by such a norm are longer than the clipping norm; noise does not know.
# Version: torch 2.13.0 on a CPU. Source: torch.linalg.vector_norm, its reduction over a contiguous dimension.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
"$room/venv/bin/python" - <<'PYTHON'
import torch

shortfalls = {}
print(f"torch {torch.__version__}: shortfall of float32 norms of one row")
for size in (1_000_000, 10_000_000, 38_597_376):
    row = torch.randn(1, size, generator=torch.Generator().manual_seed(0))
    shortfalls[size] = 1 - row.norm(2, dim=-1).item() / row.double().norm().item()
    print(f"{size:>10,} numbers: {shortfalls[size]:.2e}")
assert shortfalls[10_000_000] > 1e-4
assert shortfalls[38_597_376] > 1e-3
print("A gradient that is clipped by this norm is longer than it may be.")
PYTHON
