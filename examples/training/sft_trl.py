"""Fine-tune a small language model with TRL's SFTTrainer, one class changed, and leave a certificate.

    python examples/training/sft_trl.py --out sft
    torchrun --nproc-per-node 2 examples/training/sft_trl.py --out sft

Nothing is downloaded. Needs ``pip install '.[trl]'``; takes some seconds.
"""

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

import trl
import trl_data
from peft import LoraConfig

import hockeystick as hs

SFTTrainer = hs.huggingface.private(trl.SFTTrainer)  # in place of trl.SFTTrainer
PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))


def main() -> None:
    """Train adapters for two epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sft"))
    out = parser.parse_args().out
    sampler = hs.Poisson(sampling_prob=0.1, steps=20)
    plan = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=8.0, delta=1e-5)

    trainer = SFTTrainer(
        plan=plan,
        model=trl_data.network(),
        args=trl.SFTConfig(
            str(out),
            max_steps=20,
            per_device_train_batch_size=30,
            gradient_accumulation_steps=math.ceil(60 / (30 * PROCESSES)),  # batches have about 60 examples
            learning_rate=1e-2,
            max_grad_norm=0.5,  # of each example
            **trl_data.QUIET,
        ),
        train_dataset=trl_data.texts(),
        processing_class=trl_data.tokenizer(),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(out / "adapters")

    if not trainer.is_world_process_zero():
        return
    certificate = trainer.certificate(1e-5)
    certificate.save(out / "sft.certificate.json")
    trainer.record(certificate).save(out / "sft.run.json")
    print(trainer.artefacts())
    subprocess.run([sys.executable, "-m", "hockeystick", "verify", str(out / "sft.certificate.json")], check=True)


if __name__ == "__main__":
    main()
