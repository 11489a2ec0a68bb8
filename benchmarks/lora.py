"""``python -m benchmarks.lora``: what privacy costs a step of fine-tuning by low-rank adapters, in time and memory.

The model, the data and the adapters are those of ``examples/training/lora_text.py``, in batches of 100 docstrings of at
most 64 letters. Transformers' own Trainer stands beside that of hockeystick with white noise, with correlated noise (a
banded square root) and with ghost clipping. Each contestant runs in a process of its own, on one core; they take turns,
and 'ratio' is the median over the rounds of the CPU time of a step over that of the first. The first steps of a process
warm up. 'memory' is the most that the process has at a time, less what it had before training.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.runner import ONE_THREAD, ROOT

BATCH, BINS, WARM_UP = 100, 35, 5
CONTESTANTS = ("transformers", "hockeystick", "hockeystick, bands", "hockeystick, ghost")
"""The first is what others are compared with."""


def trainer_of(name: str, folder: str, steps: int, bands: int) -> Any:
    """The Trainer of a contestant, on the example's model and data."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    import hockeystick as hs

    sys.path.insert(0, str(ROOT / "examples" / "training"))
    example = import_module("lora_text")
    torch.manual_seed(0)
    adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    options = {
        "model": get_peft_model(example.network(), adapters),
        "args": example.arguments(Path(folder), max_steps=steps, per_device_train_batch_size=BATCH),
        "train_dataset": [example.example(text) for text in example.docstrings()[: BATCH * BINS]],
    }
    if name == "transformers":
        return transformers.Trainer(**options)
    strategy = hs.BandedSquareRoot(bands=bands) if name.endswith("bands") else hs.Identity()
    sampler = hs.Deterministic(bins=BINS, epochs=-(-steps // BINS))
    mode = "ghost" if name.endswith("ghost") else "hooks"
    plan = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=1.0)
    return hs.huggingface.Trainer(plan=plan, grad_sample_mode=mode, **options)


def measure(name: str, steps: int, bands: int) -> dict[str, float]:
    """CPU seconds of a step, and megabytes that the training takes."""
    import transformers

    class Clock(transformers.TrainerCallback):
        times: list[float] = []

        def on_step_end(self, *unused: Any, **named: Any) -> None:
            self.times.append(time.process_time())

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(name, folder, WARM_UP + steps, bands)
        trainer.add_callback(Clock)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trainer.train()
    taken = [later - earlier for earlier, later in zip(Clock.times[WARM_UP - 1 :], Clock.times[WARM_UP:], strict=False)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu": median(taken), "memory": (peak - before) / 1024, "peak": peak / 1024}


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lora", description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="that are measured in each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bands", type=int, default=8)
    parser.add_argument("--one", choices=CONTESTANTS, help="measure one contestant here; print JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one, options.steps, options.bands)))
        return 0
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(options.rounds):
        for name, records in rounds.items():
            records.append(_elsewhere(name, options))
    print(f"{'a step':22}{'CPU ms':>9}{'ratio':>8}{'memory MB':>11}{'ratio':>8}{'peak MB':>9}")
    first = rounds[CONTESTANTS[0]]
    for name, records in rounds.items():
        times, sizes = (
            median(record[key] / other[key] for record, other in zip(records, first, strict=True))
            for key in ("cpu", "memory")
        )
        cpu, memory, peak = (median(record[key] for record in records) for key in ("cpu", "memory", "peak"))
        print(f"{name:22}{1e3 * cpu:9.1f}{times:8.2f}{memory:11.0f}{sizes:8.2f}{peak:9.0f}")
    return 0


def _elsewhere(name: str, options: argparse.Namespace) -> dict[str, float]:
    """What a process of its own measures."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.lora", "--one", name]
    command += ["--steps", str(options.steps), "--bands", str(options.bands)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=True)
    record: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    sys.exit(main())
