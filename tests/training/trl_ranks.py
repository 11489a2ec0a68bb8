"""One process of some, as torchrun starts them: ``python trl_ranks.py FOLDER KIND...`` trains adapters with TRL.

KIND is "sft" or "dpo". FOLDER/KIND/RANK holds the adapters and the record, or the error.
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
from peft import LoraConfig

import hockeystick as hs
from hockeystick.errors import InvalidInputError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "training"))
import trl_data

RANK = int(os.environ.get("RANK", "0"))
CLASSES = {"sft": (trl.SFTTrainer, trl.SFTConfig), "dpo": (trl.DPOTrainer, trl.DPOConfig)}
EXAMPLES = {
    "sft": [{"text": "abc def"[: 3 + at % 4] + " x"} for at in range(60)],
    "dpo": [{"prompt": "ab", "chosen": "cd" + "e" * (at % 3), "rejected": "f" * (1 + at % 4)} for at in range(60)],
}


def train(folder: Path, kind: str):
    """The Trainer after its training, with its adapters in the folder."""
    base, arguments = CLASSES[kind]
    trainer = hs.huggingface.private(base)(
        plan=FIXED,
        model=trl_data.network(),
        args=arguments(
            str(folder),
            max_steps=12,
            per_device_train_batch_size=-(-5 // PROCESSES),
            optim="sgd",
            learning_rate=0.5,
            bf16=False,
            logging_strategy="no",
            **trl_data.QUIET,
        ),
        train_dataset=datasets.Dataset.from_list(EXAMPLES[kind]),
        processing_class=trl_data.tokenizer(),
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        rng=np.random.default_rng(0),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    trainer.save_model(folder)
    return trainer


def main() -> None:
    warnings.simplefilter("ignore")
    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    folder, *kinds = sys.argv[1:]
    for kind in kinds:
        here = Path(folder) / kind / str(RANK)
        here.mkdir(parents=True)
        try:
            trainer = train(here, kind)
        except InvalidInputError as error:
            (here / "error").write_text(str(error))
        else:
            trainer.record().save(here / "run.json")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
