#!/bin/bash
# Expected: a linear layer computes equal rows of a batch alike, so the gradient of an example does not depend on its
# place in the batch.
# Happens: on a CPU of Intel, three equal rows give outputs with different bits for most inputs of a layer of 40 inputs and 3
# outputs: the last rows, which fill no register, are added up in another order. The size of the batch is the same.
# Who is hurt: whoever rounds per-example gradients to whole numbers so that sums are exact: the integers of one example
# change with its neighbours' places. 32 rows and their multiples changed no bit on one processor (AVX-512 of Intel); on
# another (AMD EPYC, Zen 5) half of 32 equal rows of 6 inputs differ, unless MKL_CBWR=AUTO is set.
# Version: torch 2.13.0, CPU build, x86-64. Source: torch.nn.functional.linear, the matrix products of its CPU library.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0
for mode in "" AUTO; do
  OMP_NUM_THREADS=1 MKL_CBWR=$mode "$room/venv/bin/python" - <<'PYTHON'
import os

import torch

torch.manual_seed(0)
tried, mode = 60, os.environ["MKL_CBWR"]


def differ(inputs, outputs, rows):
    """Of how many inputs not all rows have the same output."""
    layer = torch.nn.Linear(inputs, outputs)
    made = [layer(torch.randn(1, inputs).expand(rows, inputs).contiguous()) for _ in range(tried)]
    return sum(int((output != output[0]).any()) for output in made)


few, many = differ(40, 3, 3), differ(6, 8, 32)
print(f"torch {torch.__version__}, MKL_CBWR={mode!r}: equal rows have different outputs for {few} of {tried} inputs "
      f"with 3 rows of 40 numbers, and for {many} with 32 rows of 6")
assert mode or few + many > 0
assert not mode or many == 0
PYTHON
done
