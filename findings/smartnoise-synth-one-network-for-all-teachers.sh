#!/bin/bash
# Expected: in PATECTGAN every teacher is a network of its own, trained on its part of the table, so that a row changes at most one of
# their votes; a student learns from noisy votes, and the generator from the student alone.
# Happens: the list of teachers is one network, as often as there are teachers, and the student is that network too. All parts of the table
# train it, without noise, and the generator follows its gradients. One row changes the votes of many "teachers" (which differ by dropout
# alone), where the accountant counts one.
# Truth inside: the first votes of two runs from the same random numbers, before any noise is drawn, on tables that differ in one row, for
# which independent teachers differ in one vote; and the networks themselves.
# Who is hurt: every table that is released by this synthesizer: what it tells is bounded by nothing, at any epsilon.
# Version: smartnoise-synth 1.0.8, torch 2.13.0. Source: snsynth/pytorch/nn/patectgan.py, PATECTGAN.train.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check smartnoise-synth==1.0.8 packaging==26.4 torch==2.13.0
"$room/venv/bin/python" - <<'PYTHON'
import inspect
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
import torch
from snsynth.pytorch.nn import patectgan

warnings.simplefilter("ignore")
torch.set_num_threads(1)
TEACHERS = 20
count_votes = patectgan.pate
rng = np.random.default_rng(0)
TABLE = pd.DataFrame({name: rng.integers(0, 4, 30 * TEACHERS - 1) for name in "abc"})


class FirstVotes(Exception):
    """Ends a run once the teachers have voted, so before noise has changed anything."""


def first_votes(table):
    """The votes of all teachers on the first batch, the teachers and the student."""

    def stop(data, teachers, scale, device):
        student = inspect.currentframe().f_back.f_locals["student_disc"]
        raise FirstVotes(count_votes(data, teachers, scale, device=device)[1].flatten().numpy(), teachers, student)

    np.random.seed(1)
    torch.manual_seed(1)
    patectgan.pate = stop
    synthesizer = patectgan.PATECTGAN(epsilon=1.0, batch_size=200, sample_per_teacher=30, cuda=False, verbose=False)
    try:
        synthesizer.fit(table, categorical_columns=list(table.columns), preprocessor_eps=0.1)
    except FirstVotes as end:
        return end.args


other = TABLE.copy()
other.iloc[0] = (other.iloc[0] + 1) % 4
votes, teachers, student = first_votes(TABLE)
again = first_votes(TABLE)[0]
changed = np.abs(votes - first_votes(other)[0])
print(f"smartnoise-synth {version('smartnoise-synth')}, torch {version('torch')}: {len(teachers)} teachers")
print(f"{len({id(teacher) for teacher in teachers})} network among them; the student is it: {teachers[0] is student}")
print(f"one row changes up to {changed.max():.0f} of {len(teachers)} votes, more than one for {(changed > 1).sum()} of {len(votes)} questions")
assert len(teachers) == TEACHERS and (votes == again).all()
assert all(teacher is student for teacher in teachers)
assert changed.max() >= 3 and (changed > 1).sum() >= 10
PYTHON
