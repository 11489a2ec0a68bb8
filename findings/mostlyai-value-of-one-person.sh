#!/bin/bash
# Expected: the analysis of a table with differential privacy, said to have the epsilon of the Laplace mechanism, hides whether a
# value that only one person has is in the table.
# Happens: noise is added to the counts of those values alone that occur, and the threshold stays 5 however large the noise is. Epsilon 1 is
# shared by nine columns and the length of sequences, so that a value with a count of 1 passes with probability exp(-.4) / 2 = .335, and is in
# the vocabulary of the model. Beside it stands, without noise, how many values did not pass, so the statistics tell always. Only
# delta could pay for that; the configuration says 1e-5, and training alone spends it.
# Truth inside: the law of Laplace noise, and 60 analyses with and without the person: in one of them the value is impossible.
# Who is hurt: persons with a rare diagnosis, profession or name: the more columns a table has, the likelier its publication.
# Version: mostlyai-engine 2.7.3. Source: mostlyai/engine/_common.py, dp_non_rare; _encoding_types/tabular/categorical.py,
# analyze_reduce_categorical.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
# Its dependencies by hand: torchvision, torchaudio and xgrammar are not needed here.
"$room/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 opacus==1.6.0 transformers==5.24.0 peft==0.21.2 \
    accelerate==1.15.0 datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1 scikit-learn==1.9.1 psutil==5.9.8 json-repair==0.63.1 joblib==1.6.0
"$room/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps mostlyai-engine==2.7.3
"$room/venv/bin/python" - <<'PYTHON'
import json
import math
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from mostlyai import engine
from mostlyai.engine._common import dp_non_rare
from mostlyai.engine.domain import DifferentialPrivacyConfig

warnings.simplefilter("ignore")
RUNS, COLUMNS, SIZE = 60, 9, 400
rng = np.random.default_rng(0)
np.random.seed(0)
everybody = pd.DataFrame({f"column{i}": rng.choice(["a", "b"], SIZE).astype(object) for i in range(COLUMNS)})
configuration = DifferentialPrivacyConfig()
print(f"mostlyai-engine {version('mostlyai-engine')}: epsilon {configuration.value_protection_epsilon} for the analysis, "
      f"delta {configuration.delta}")


def analysed(member):
    """The statistics of one column, by the steps of the documentation."""
    table = everybody.copy()
    if member:
        table.loc[0, "column0"] = "of one person"
    with tempfile.TemporaryDirectory() as folder:
        kinds = dict.fromkeys(table.columns, "TABULAR_CATEGORICAL")
        engine.split(table, workspace_dir=folder, tgt_encoding_types=kinds)
        engine.analyze(workspace_dir=folder, differential_privacy=configuration)
        statistics = json.loads((Path(folder) / "ModelStore/tgt-stats/stats.json").read_text())
    return statistics["columns"]["column0"], statistics["value_protection_epsilon_spent"]


shown = {member: [analysed(member)[0] for _ in range(RUNS)] for member in (False, True)}
named = {member: sum("of one person" in one["codes"] for one in rows) for member, rows in shown.items()}
told = {member: sum(len(one["codes"]) + one["no_of_rare_categories"] > 3 for one in rows) for member, rows in shown.items()}
chance = math.exp(-4 * configuration.value_protection_epsilon / (COLUMNS + 1)) / 2
print(f"the value is in the vocabulary in {named[True]} of {RUNS} analyses with the person, by the law of the noise {chance:.3f} of them, "
      f"and in {named[False]} of {RUNS} without; values and rare values together tell in {told[True]} and {told[False]}")
assert named[False] == told[False] == 0 and told[True] == RUNS and 8 < named[True] < 34  # 20.1 expected, deviation 3.7
for epsilon in (1.0, 0.1, 0.02):
    seen = sum("one" in dp_non_rare({"many": 100, "one": 1}, epsilon)[0] for _ in range(10_000)) / 10_000
    print(f"epsilon {epsilon}: named in {seen:.4f} of 10,000, by the law of the noise {math.exp(-4 * epsilon) / 2:.4f}")
    assert abs(seen - math.exp(-4 * epsilon) / 2) < 0.025
PYTHON
