"""Checkpoints of the Trainer: with the run, whole or not at all, and secret."""

import shutil
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from hockeystick.errors import InvalidInputError
from hockeystick.training.huggingface.processes import check_saved

UNFINISHED = ".unfinished-checkpoint"
"""The folder in which a checkpoint is written, beside the finished ones."""
STATE = "trainer_state.json"


class Checkpoints:
    """Comes before ``transformers.Trainer``, or a subclass of it."""

    accelerator: Any
    args: Any
    engine: Any
    is_world_process_zero: Any
    state: Any

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """As transformers does; weights without the run that they came from are refused."""
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None and self.engine.run.step != self.state.global_step:
            raise InvalidInputError(
                f"The checkpoint is of step {self.state.global_step} and has no run of that step; continue from one "
                "that this Trainer saved whole, without save_only_model=True."
            )
        if checkpoint is not None:
            check_saved(checkpoint, self.accelerator)

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
