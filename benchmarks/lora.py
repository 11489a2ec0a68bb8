"""``python -m benchmarks.lora``: what privacy costs a step of fine-tuning by low-rank adapters, in time and memory.

The model, the data and the adapters are those of ``examples/training/lora_text.py``, in batches of 100 docstrings of at
most 64 letters, the same for all. Transformers' own Trainer stands beside that of hockeystick with white noise, with
correlated noise (a banded square root) and with ghost clipping, and beside opake's DPTrainer (``pip install
'opake[transformers]==0.16.1'``) with white noise and with its banded square root. All train in float32 by AdamW, and
clip to ``max_grad_norm``. opake patches the model as it does by default. It accounts for correlated noise before the
first step, which is in its memory and not in its time; it accounts for nothing with white noise, as by default.

Each contestant runs in a process of its own, on one core; they take turns, and 'ratio' is the median over the rounds
of the CPU time of a step over that of the first. The first steps of a process warm up. 'memory' is the most that the
process has at a time, less what it had before training. Where opake cannot be imported it is left out.
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
CONTESTANTS = (
    "transformers",
    "hockeystick",
    "hockeystick, bands",
    "hockeystick, ghost",
    "opake",
    "opake, bands",
)
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
    if name.startswith("opake"):
        return opake_trainer(options, steps, bands if name.endswith("bands") else None)
    strategy = hs.BandedSquareRoot(bands=bands) if name.endswith("bands") else hs.Identity()
    sampler = hs.Deterministic(bins=BINS, epochs=-(-steps // BINS))
    mode = "ghost" if name.endswith("ghost") else "hooks"
    plan = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=1.0)
    return hs.huggingface.Trainer(plan=plan, grad_sample_mode=mode, **options)


def opake_trainer(options: dict[str, Any], steps: int, bands: int | None) -> Any:
    """opake's Trainer, on the batches of the others in place of those that it would draw.

    Its batches in bins are for whole epochs, so it is told the next whole number of them and stopped before.
    """
    from opake.transformers import DPTrainer, TrainingArguments
    from torch.utils.data import DataLoader

    epochs = -(-steps // BINS)

    class FixedBatches(DPTrainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            batches = [list(range(first, first + BATCH)) for first in range(0, BATCH * BINS, BATCH)]
            return DataLoader(self.train_dataset, batch_sampler=batches * epochs, collate_fn=self.data_collator)

    given = options["args"]
    noise: dict[str, Any] = {}
    if bands is not None:
        square_root = {"bandwidth": bands, "alpha": 1.0, "beta": 0.0}  # of prefix sums: no decay, no momentum
        noise = {"privacy_noise_mechanism": "mf_bsr", "privacy_noise_mechanism_kwargs": square_root}
    arguments = TrainingArguments(
        given.output_dir,
        max_steps=epochs * BINS,
        per_device_train_batch_size=BATCH,
        learning_rate=given.learning_rate,
        clipping_norm=given.max_grad_norm,
        privacy_noise_multiplier=1.0,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        **noise,
    )
    return FixedBatches(**options | {"args": arguments})


def measure(name: str, steps: int, bands: int) -> dict[str, float]:
    """CPU seconds of a step, and megabytes that the training takes."""
    import transformers

    class Clock(transformers.TrainerCallback):
        times: list[float] = []

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            self.times.append(time.process_time())
            control.should_training_stop = len(self.times) >= WARM_UP + steps

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
    reason = import_error("opake.transformers")
    if reason:
        print(f"opake is left out: {reason}")
    names = [name for name in CONTESTANTS if not (reason and name.startswith("opake"))]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
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


def import_error(module: str) -> str:
    """Why a module cannot be imported, in a process of its own: the last line of the error; empty where it can be."""
    command = [sys.executable, "-W", "ignore", "-c", f"import {module}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def _elsewhere(name: str, options: argparse.Namespace) -> dict[str, float]:
    """What a process of its own measures."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.lora", "--one", name]
    command += ["--steps", str(options.steps), "--bands", str(options.bands)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=True)
    record: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    sys.exit(main())
