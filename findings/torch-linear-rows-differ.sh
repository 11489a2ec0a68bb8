#!/bin/bash
# Expected: a linear layer computes equal rows of a batch alike, so the gradient of an example does not depend on its
# place in the batch.
# Happens: on a CPU, three equal rows give outputs with different bits for most inputs of a layer of 40 inputs and 3
# outputs: the last rows, which fill no register, are added up in another order. The size of the batch is the same.
# Who is hurt: whoever rounds per-example gradients to whole numbers so that sums are exact: the integers of one example
# change with its neighbours' places, unless physical batches have many rows (32 and its multiples changed no bit there).
# Version: torch 2.13.0, CPU build, x86-64. Source: torch.nn.functional.linear, the matrix products of its CPU library.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0
OMP_NUM_THREADS=1 "$room/venv/bin/python" - <<'PYTHON'
import torch

torch.manual_seed(0)
layer, tried = torch.nn.Linear(40, 3), 60


def differ(rows):
    """Of how many inputs not all rows have the same output."""
    outputs = [layer(torch.randn(1, 40).expand(rows, 40).contiguous()) for _ in range(tried)]
    return sum(int((output != output[0]).any()) for output in outputs)


few, many = differ(3), differ(32)
print(f"torch {torch.__version__}: equal rows have different outputs for {few} of {tried} inputs with 3 rows, "
      f"and for {many} with 32")
assert few > 0
PYTHON
