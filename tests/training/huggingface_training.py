"""A training with the Trainer of transformers that can be killed at any moment; dropout and Adam have states.

One process of several where the environment says so, as torchrun does.
"""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.trainer_utils import get_last_checkpoint

import hockeystick as hs

STEPS, EVERY = 18, 3
"""Of a training, and from one checkpoint to the next."""
PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4),
    sampler=hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=STEPS),
    noise_multiplier=1.0,
)
FIXED = hs.Mechanism(sampler=hs.Deterministic(bins=12), noise_multiplier=2.0)
"""Twelve batches of five of the sixty sentences."""
QUIET = {"use_cpu": True, "logging_strategy": "no", "report_to": "none", "disable_tqdm": True}


def sentences(count=60, length=6):
    """Random tokens, of which some are no labels, as in sentences of several lengths."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for index in range(count):
        words = torch.randint(16, (length,), generator=generator)
        labels = words.clone()
        labels[length - index % 4 :] = -100
        found.append({"input_ids": words, "labels": labels})
    return found


def model_of(seed=0, **options):
    """A transformer of 1,000 parameters with dropout."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    given = {"vocab_size": 16, "attention_dropout": 0.2, "bos_token_id": 0, "eos_token_id": 0} | sizes | options
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**given))


def shared_out(model):
    """A model of ``fully_shard``, as torch's documentation has it: each layer of the transformer, then the rest."""
    mesh = init_device_mesh("cpu", (PROCESSES,))
    for part in model.modules():
        if isinstance(part, LlamaDecoderLayer):
            fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Saved(transformers.TrainerCallback):
    """Says the step of every checkpoint that was saved."""

    def __init__(self, said) -> None:
        self.said = said

    def on_save(self, args, state, control, **more):
        self.said(state.global_step)


def train(folder: Path, saved=lambda step: None, shards=False) -> None:
    """``saved`` is called with the step of every checkpoint that was saved; with ``shards``, of a model of ``fsdp``."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=math.ceil(3 / PROCESSES),
        max_steps=STEPS,
        save_steps=EVERY,
        fsdp=shards,
        **QUIET,
    )
    trainer = hs.huggingface.Trainer(
        plan=MECHANISM,
        model=model_of(),
        args=arguments,
        train_dataset=sentences(),
        rng=np.random.default_rng(1),
        grad_sample_mode="ghost" if shards else "hooks",
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(Saved(saved))
    trainer.train(get_last_checkpoint(str(folder)))
    trainer.save_model()
    if not trainer.is_world_process_zero():
        return
    torch.save(trainer.optimizer.state_dict(), folder / "optimizer.pt")
    trainer.record(trainer.certificate(1e-5, method="gaussian")).save(folder / "run.json")
