"""Checkpoints of the Trainer: with the run, whole or not at all, and secret."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from hockeystick.errors import InvalidInputError
from hockeystick.training.huggingface.processes import check_saved
from hockeystick.training.huggingface.shards import is_sharded, load_shard, load_weights, save_shard, whole_state

UNFINISHED = ".unfinished-checkpoint"
"""The folder in which a checkpoint is written, beside the finished ones."""
STATE = "trainer_state.json"
SCHEDULER = "scheduler.pt"


class Checkpoints:
    """Comes before ``transformers.Trainer``, or a subclass of it."""

    accelerator: Any
    args: Any
    engine: Any
    lr_scheduler: Any
    model: Any
    optimizer: Any
    _save: Any
    is_world_process_zero: Any
    state: Any

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """As transformers does; weights without the run that they came from are refused."""
        if checkpoint is not None:
            check_saved(checkpoint, self.accelerator)
        if checkpoint is not None and is_sharded(self.model):
            self.optimizer.load_state_dict(load_shard(checkpoint, self.args.process_index)["optimizer"])
            self.lr_scheduler.load_state_dict(torch.load(os.path.join(checkpoint, SCHEDULER), weights_only=True))
        else:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None and self.engine.run.step != self.state.global_step:
            raise InvalidInputError(
                f"The checkpoint is of step {self.state.global_step} and has no run of that step; continue from one "
                "that this Trainer saved whole, without save_only_model=True."
            )

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        """As transformers does; of a model of ``fully_shard``, each process its own shards."""
        if not is_sharded(self.model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        check_saved(resume_from_checkpoint, self.accelerator)  # whose shards are not the ones of other processes
        load_weights(resume_from_checkpoint, self.args.process_index, self.model)

    def save_model(self, output_dir: Any = None, _internal_call: bool = False) -> None:
        """As transformers does; a model of ``fully_shard`` is put together, so all processes have to call this."""
        if is_sharded(self.model):
            self._save(output_dir or self.args.output_dir, state_dict=whole_state(self.model))
        else:
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: Any) -> None:
        """As transformers does; of a model of ``fully_shard``, each process what it has."""
        if not is_sharded(self.model):
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
            return
        self.accelerator.wait_for_everyone()  # until the first has made the folder
        save_shard(output_dir, self.args.process_index, self.model, self.optimizer)
        if self.is_world_process_zero():
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As transformers does, whole or not at all; only the owner can read it. Of processes, the first makes it."""
        target = Path(self.args.output_dir)
        folder = target / UNFINISHED
        if self.is_world_process_zero():
            shutil.rmtree(folder, ignore_errors=True)  # of a training that was killed
            folder.mkdir(mode=0o700, parents=True)
        self.accelerator.wait_for_everyone()
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self.args.output_dir = str(folder)
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self.args.output_dir = str(target)
        best = self.state.best_model_checkpoint
        if best is not None and Path(best).parent == folder:
            self.state.best_model_checkpoint = str(target / name)
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            self._finish_checkpoint(target, folder, name)
        self.accelerator.wait_for_everyone()

    def _finish_checkpoint(self, target: Path, folder: Path, name: str) -> None:
        """Put a checkpoint that is whole in its place, beside the others."""
        if self.state.best_model_checkpoint == str(target / name):
            self.state.save_to_json(str(folder / name / STATE))
        (folder / name).chmod(0o700)
        if (target / name).exists():
            (target / name).rename(folder / "replaced")
        (folder / name).rename(target / name)
        shutil.rmtree(folder)
        rotate_checkpoints(
            output_dir=str(target),
            save_total_limit=self.args.save_total_limit,
            best_model_checkpoint=self.state.best_model_checkpoint,
            use_mtime=True,
        )
