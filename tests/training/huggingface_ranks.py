"""One process of some, as torchrun starts them, trains in each mode.

MODE is of gradients, "hooks" or "ghost"; "bf16" for autocast; "exact" for sums of whole numbers; "dropout";
"shuffled" for data that are in another order in every process; or "shards" for a model of fully_shard, "adapters" for
one with adapters, "fsdp" for one that the training argument shares out. The last two can be "exact" as well, as
"exact fsdp". FOLDER/MODE/RANK holds what this process got.
"""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from huggingface_training import MECHANISM, PROCESSES, QUIET, STEPS, model_of, sentences, shared_out
from peft import LoraConfig, get_peft_model
from torch import distributed

import hockeystick as hs
from hockeystick.errors import InvalidInputError

RANK = int(os.environ.get("RANK", "0"))
SHARDS = ("shards", "adapters", "fsdp")
"""Modes of a model of ``fully_shard``, which starts as each process makes it; whole where no processes are joined."""
EXACT_SHARDS = ("exact adapters", "exact fsdp")
"""The same with sums of whole numbers."""


class Kept(hs.huggingface.Trainer):
    """Keeps the sizes of its parts, what was in ``p.grad``, and its first random numbers after those of the model."""

    def train(self, *given, **options):
        self.sizes, self.rows, self.random = [], [], []
        return super().train(*given, **options)

    def training_step(self, model, inputs, *given):
        assert model is self.model  # torch's wrapper would add up gradients on its own
        if not self.random:
            self.random = torch.random.get_rng_state()[:64].tolist()
        self.sizes.append(len(inputs["input_ids"]))
        return super().training_step(model, inputs, *given)


class Look(transformers.TrainerCallback):
    """Keeps what was in ``p.grad`` at every step."""

    def __init__(self, trainer) -> None:
        self.trainer = trainer

    def on_optimizer_step(self, args, state, control, **unused):
        gradients = [whole(p.grad).reshape(-1) for p in self.trainer.optimizer.params]
        self.trainer.rows.append(torch.cat(gradients).double().numpy())


def whole(tensor):
    """All of a tensor that processes may share out."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def model_for(mode: str):
    """Sharded in several processes, where the mode says so."""
    kind = mode.removeprefix("exact ")
    model = model_of(seed=0 if kind in SHARDS else RANK, attention_dropout=0.2 if mode == "dropout" else 0.0)
    if kind == "adapters":
        torch.manual_seed(0)
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    by_arguments = kind == "fsdp" and PROCESSES > 1
    return shared_out(model) if kind in SHARDS and distributed.is_initialized() and not by_arguments else model


def train(folder: Path, mode: str):
    """The Trainer, after its training with steps that are long beside roundings."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    exact, kind = mode.startswith("exact"), mode.removeprefix("exact ")
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=32 if exact else 1,
        gradient_accumulation_steps=1 if exact else math.ceil(3 / PROCESSES),
        max_steps=STEPS,
        save_strategy="no",
        optim="sgd",
        learning_rate=0.5,
        bf16=mode == "bf16",
        fsdp=kind == "fsdp" and PROCESSES > 1,
        **QUIET | {"logging_strategy": "steps", "logging_steps": 1},
    )
    data = sentences()
    trainer = Kept(
        plan=MECHANISM,
        model=model_for(mode),
        args=arguments,
        train_dataset=data[RANK:] + data[:RANK] if mode == "shuffled" else data,
        eval_dataset=sentences(16),
        rng=np.random.default_rng(1),
        grad_sample_mode="ghost" if kind in ("ghost", *SHARDS) else "hooks",
        exact=exact or None,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(Look(trainer))
    trainer.train()
    return trainer


def result(trainer) -> dict[str, np.ndarray]:
    """What is compared of a training."""
    return {
        "weights": torch.cat([whole(p.detach()).reshape(-1) for p in trainer.model.parameters()]).numpy(),
        "rows": np.array(trainer.rows),
        "sizes": np.array(trainer.sizes),
        "losses": np.array([log["loss"] for log in trainer.state.log_history if "loss" in log]),
        "evaluated": np.array(trainer.evaluate()["eval_loss"]),
        "random": np.array(trainer.random),
    }


def main(folder: Path, *modes: str) -> None:
    torch.set_num_threads(1)
    for mode in modes:
        here = folder / mode / str(RANK)
        here.mkdir(parents=True)
        try:
            trainer = train(here, mode)
        except InvalidInputError as error:
            (here / "error").write_text(str(error))
        else:
            np.savez(here / "trained", **result(trainer))
            trainer.record().save(here / "run.json")
            if mode.removeprefix("exact ") in SHARDS:
                trainer.save_model(here)
    distributed.destroy_process_group()
