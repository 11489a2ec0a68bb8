#!/bin/bash
# Expected: a private count is as often below as above the true one, and no answer is impossible for a count that is one smaller or larger.
# Happens: the noise is a geometric number, never negative, where the mechanism needs the difference of two. A count of n is
# answered with n exactly with probability 1 - exp(-epsilon), which n + 1 never is: with that probability the answer proves that a
# person is not in the table. It is reported with delta 0.
# Truth inside: 200,000 answers for two counts that differ by one person.
# Who is hurt: whoever publishes a count: at epsilon 1, delta is .63 at least, whatever epsilon is claimed beside it. The least of several
# answers is the true count.
# Version: diffpriv-pure 0.1.0. Source: diffpriv_pure/__init__.py, geometric_noise, private_count.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check diffpriv-pure==0.1.0
"$room/venv/bin/python" - <<'PYTHON'
import json
import math
import random
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO

from diffpriv_pure import main, private_count

random.seed(0)
ANSWERS = 200_000
print(f"diffpriv-pure {version('diffpriv-pure')}")
for epsilon in (0.1, 1.0, 3.0):
    without = [private_count(100, epsilon) for _ in range(ANSWERS)]
    with_person = [private_count(101, epsilon) for _ in range(ANSWERS)]
    proofs = without.count(100) / ANSWERS
    print(f"epsilon {epsilon}: {proofs:.3f} of the answers for 100 persons are 100; for 101 the smallest of {ANSWERS} is {min(with_person)}")
    assert min(without) == 100 and min(with_person) == 101
    assert abs(proofs - (1 - math.exp(-epsilon))) < 0.01
with redirect_stdout(StringIO()) as out:
    assert main(["count", "--epsilon", "1.0", "--value", "100"]) == 0
answer = json.loads(out.getvalue())
print(f"the command says: {answer['mechanism']}, epsilon {answer['epsilon']}, delta {answer['delta']}")
assert answer["delta"] == 0.0
PYTHON
