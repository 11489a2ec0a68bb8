#!/bin/bash
# Expected: `compose(event, 7)` accounts for seven releases, as seven calls of `compose(event)` do.
# Happens: the PLD accountant ignores the count of a RandomizedResponseDpEvent: seven releases are accounted as one.
# Truth inside: the largest privacy loss of one release of two buckets is log(3) when records are replaced, and losses
# of independent releases add up.
# Who is hurt: whoever collects answers with randomised response repeatedly and composes them with a count.
# Version: dp-accounting 0.6.0. Source: pld/pld_privacy_accountant.py, PLDAccountant._maybe_compose.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check dp-accounting==0.6.0
"$room/venv/bin/python" - <<'PYTHON'
import math
from importlib.metadata import version

from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent
from dp_accounting.pld import PLDAccountant

NOISE, RELEASES, DELTA = 0.5, 7, 1e-6
event = RandomizedResponseDpEvent(noise_parameter=NOISE, num_buckets=2)
with_count = PLDAccountant(NeighboringRelation.REPLACE_ONE)
with_count.compose(event, RELEASES)
separately = PLDAccountant(NeighboringRelation.REPLACE_ONE)
for _ in range(RELEASES):
    separately.compose(event)
one, seven = with_count.get_epsilon(DELTA), separately.get_epsilon(DELTA)
# An answer is true with probability 1 - NOISE / 2. The chance that all seven are as one record makes them is .75^7,
# and .25^7 under the other record.
floor = math.log((0.75**RELEASES - DELTA) / 0.25**RELEASES)
print(f"dp-accounting {version('dp-accounting')}: {RELEASES} releases of randomised response")
print(f"compose(event, {RELEASES}): epsilon {one:.3f}; {RELEASES} times compose(event): {seven:.3f}")
print(f"A test that looks for {RELEASES} equal answers proves that epsilon is at least {floor:.3f}.")
assert one < 1.11 and seven >= floor > 7.6
print("The count is ignored.")
PYTHON
