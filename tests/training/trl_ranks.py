"""One process of some, as torchrun starts them, trains adapters with TRL.

KIND is "sft", "dpo", "shards" for "sft" with a model that the training argument ``fsdp`` shares out, "another" for DPO
with another reference in each process, or "sent" for DPO with a loss that speaks to other processes. FOLDER/KIND/RANK
holds the adapters and the record, or the error.
"""

import os
import sys
import warnings
from pathlib import Path

import datasets
import numpy as np
import torch
import transformers
import trl
from huggingface_training import FIXED, PROCESSES
from peft import LoraConfig, get_peft_model

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "training"))
import trl_data

RANK = int(os.environ.get("RANK", "0"))
SENTENCES = [{"text": "abc def"[: 3 + at % 4] + " x"} for at in range(60)]
PAIRS = [{"prompt": "ab", "chosen": "cd" + "e" * (at % 3), "rejected": "f" * (1 + at % 4)} for at in range(60)]


class Sends(trl.DPOTrainer):
    """Its loss counts the pairs of all processes."""

    def compute_loss(self, model, inputs, *given, **options):
        torch.distributed.all_reduce(torch.tensor(len(inputs["input_ids"])))
        return super().compute_loss(model, inputs, *given, **options)


def reference(seed: int) -> transformers.PreTrainedModel:
    """Of the size of the model that is trained; its last layer is frozen."""
    config = trl_data.network().config
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(config)
    model.lm_head.requires_grad_(False)
    return model


def train(folder: Path, kind: str):
    """The Trainer after its training, with its adapters in the folder."""
    sentences, shards = kind in ("sft", "shards"), kind == "shards"
    base, arguments = (trl.SFTTrainer, trl.SFTConfig) if sentences else (trl.DPOTrainer, trl.DPOConfig)
    adapters = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    models = {"model": trl_data.network(), "peft_config": adapters}
    if kind == "another":
        models = {"model": reference(0), "ref_model": reference(RANK)}
    if shards:
        models = {"model": get_peft_model(trl_data.network(), adapters), "grad_sample_mode": "ghost"}
    base = Sends if kind == "sent" else base
    trainer = hs.huggingface.private(base)(
        plan=FIXED,
        args=arguments(
            str(folder),
            max_steps=12,
            per_device_train_batch_size=1 if kind == "dpo" else -(-5 // PROCESSES),
            gradient_accumulation_steps=-(-5 // PROCESSES) if kind == "dpo" else 1,
            optim="sgd",
            learning_rate=0.5,
            bf16=False,
            logging_strategy="no",
            gradient_checkpointing=not shards,
            fsdp=shards and PROCESSES > 1,
            **trl_data.QUIET,
        ),
        train_dataset=datasets.Dataset.from_list(SENTENCES if sentences else PAIRS),
        processing_class=trl_data.tokenizer(),
        rng=np.random.default_rng(0),
        **models,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    trainer.save_model(folder)
    return trainer


def main(folder: Path, *kinds: str) -> None:
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    for kind in kinds:
        here = folder / kind / str(RANK)
        here.mkdir(parents=True)
        try:
            trainer = train(here, kind)
        except (InvalidInputError, UnsupportedError) as error:
            (here / "error").write_text(str(error))
        else:
            trainer.record().save(here / "run.json")
    torch.distributed.destroy_process_group()
