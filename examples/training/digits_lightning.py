"""Train on scikit-learn's digits with Lightning, and leave a certificate that anybody can verify.

    python examples/training/digits_lightning.py --out digits

The module gets its model and its optimizer from the engine, and ``fit`` its loader; Lightning's loop stays as it is. A
checkpoint of Lightning holds the run, so that a training that was killed continues with the same batches and noise.
Needs ``pip install '.[examples,lightning]'``; takes some seconds.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from digits_opacus import PLAN, accuracy, digits, network
from torch.utils.data import DataLoader

import hockeystick as hs


class Classifier(lightning.LightningModule):
    """Any model, with the optimizer of the engine that made it private."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.optimizer = optimizer

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The mean loss; zero, and no error, for a batch without examples."""
        x, y = batch
        return torch.nn.functional.cross_entropy(self.model(x), y, reduction="sum") / max(len(y), 1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The engine's, whose state holds the run."""
        return self.optimizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Dropout continues with the same numbers, too."""
        checkpoint["torch_random_state"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """See :meth:`on_save_checkpoint`."""
        torch.set_rng_state(checkpoint["torch_random_state"])


def main() -> None:
    """Calibrate, train and certify."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--out", type=Path, default=Path("digits"))
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    plan = hs.Plan.load(PLAN)
    training, test = digits()
    mechanism = hs.calibrate(plan.mechanism(), epsilon=given.epsilon, delta=plan.target.delta)
    torch.manual_seed(0)  # the weights to begin with; batches and noise are seeded by the operating system
    model = network()
    engine = hs.torch.PrivacyEngine(mechanism)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
        data_loader=DataLoader(training),
        max_grad_norm=0.5,
    )
    trainer = lightning.Trainer(
        max_epochs=plan.data.epochs,
        accelerator="cpu",
        devices=1,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(model, optimizer), loader)
    certificate = engine.certificate(plan.target.delta)
    certificate.save(given.out / "lightning.certificate.json")
    engine.record(certificate).save(given.out / "lightning.run.json")
    print(f"epsilon {certificate.epsilon.upper:.4f}  accuracy {accuracy(model, test):.3f}")
    subprocess.run(
        [sys.executable, "-m", "hockeystick", "verify", str(given.out / "lightning.certificate.json")], check=True
    )


if __name__ == "__main__":
    main()
