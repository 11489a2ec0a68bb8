"""Teach a small language model preferences with TRL's DPOTrainer, one class changed, and leave a certificate.

    python examples/training/dpo_trl.py --out dpo

A pair of answers is an example: the gradient of its loss, which has both in it, is clipped. Nothing is downloaded.
Needs ``pip install '.[trl]'``; takes some seconds.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import trl
import trl_data
from peft import LoraConfig

import hockeystick as hs

DPOTrainer = hs.huggingface.private(trl.DPOTrainer)  # in place of trl.DPOTrainer


def main() -> None:
    """Train adapters for two epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dpo"))
    out = parser.parse_args().out
    sampler = hs.Poisson(sampling_prob=0.1, steps=20)
    plan = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=8.0, delta=1e-5)

    trainer = DPOTrainer(
        plan=plan,
        model=trl_data.network(),
        args=trl.DPOConfig(
            str(out),
            max_steps=20,
            per_device_train_batch_size=30,
            gradient_accumulation_steps=2,  # batches have about 60 examples
            learning_rate=1e-2,
            max_grad_norm=0.5,  # of each example
            **trl_data.QUIET,
        ),
        train_dataset=trl_data.preferences(),
        processing_class=trl_data.tokenizer(),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(out / "adapters")

    certificate = trainer.certificate(1e-5)
    certificate.save(out / "dpo.certificate.json")
    trainer.record(certificate).save(out / "dpo.run.json")
    print(trainer.artefacts())
    subprocess.run([sys.executable, "-m", "hockeystick", "verify", str(out / "dpo.certificate.json")], check=True)


if __name__ == "__main__":
    main()
