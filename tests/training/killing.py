"""Kill a training at random moments.

Leaves FOLDER/alone by ``MODULE.train``, undisturbed, and FOLDER/often by one that was killed so many times, each at a
uniformly random moment of the first part of a training, and then ended. FOLDER/killed has how many were alive to be
killed.
"""

import importlib
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import numpy as np

STATES = ("state.npz", "state.pt", "checkpoint-*[0-9]")
"""What trainings that are killed save; whole files and folders have these names and no others."""


def last_step(module: ModuleType, left: int) -> int:
    """The step after which a training waits to be killed, so that ``left`` more can take a part after it each."""
    return module.STEPS - (left + 1) * module.EVERY


def copy(module: ModuleType, folder: Path, stop: int | None = None) -> tuple[int, int]:
    """Train in a copy of this process, which has all that this one has compiled; its number and where it says it.

    It leads a group of processes, with the workers that load its batches, and says one byte for each saved state. From
    step ``stop`` on it waits.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reads)

        def saved(step: int) -> None:
            os.write(writes, b".")
            while stop is not None and step >= stop:
                signal.pause()

        module.train(folder, saved)
        os._exit(0)
    os.close(writes)
    return child, reads


def killed_copy(module: ModuleType, folder: Path, moment: float, left: int, warm: bool) -> bool:
    """Kill a copy; whether it was alive.

    However slow or fast the machine is, the copy does not end, and the last one is not killed before there is a state.
    One that has to compile first, as this process is not warm, is not killed before it saved a state itself.
    """
    child, reads = copy(module, folder, last_step(module, left))
    if not warm:
        os.read(reads, 1)
    time.sleep(moment)
    if not left and not any(any(folder.glob(name)) for name in STATES):
        os.read(reads, 1)
    try:
        os.killpg(child, signal.SIGKILL)  # as orphans, the workers would go on
    except ProcessLookupError:  # there was no time to form a group, or all have ended
        os.kill(child, signal.SIGKILL)
    os.close(reads)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def train_until_killed(name: str, folder: Path, says: Connection) -> None:
    """Train, and say each step that has a state; at the last but one the training waits while there is a parent.

    A training that went farther before it was killed would leave nothing to continue.
    """
    module = importlib.import_module(name)

    def saved(step: int) -> None:
        says.send(step)
        if step >= last_step(module, 0):
            parent_process().join()

    module.train(folder, saved)


def first_to_last(module: ModuleType, folder: Path) -> float:
    """Train in a copy to the end; seconds from its first state to its last."""
    child, reads = copy(module, folder)
    os.read(reads, 1)
    began = time.monotonic()
    while os.read(reads, 1):
        ended = time.monotonic()
    os.close(reads)
    assert os.waitpid(child, 0)[1] == 0
    return ended - began


def seconds(train: Callable[[Path], None], folder: Path) -> float:
    began = time.monotonic()
    train(folder)
    return time.monotonic() - began


def main(name: str, folder: Path, times: int) -> None:
    """Do it; a module with ``COPIES = False`` makes threads when it trains, and is trained in copies alone."""
    module = importlib.import_module(name)
    alone, again, often = (folder / name for name in ("alone", "again", "often"))
    for place in (alone, again, often):
        place.mkdir()
    warm = getattr(module, "COPIES", True)
    if warm:
        module.train(alone)  # here, so that all is compiled when it is copied
        longest = 3.0 / times * seconds(module.train, again)
    else:
        longest = first_to_last(module, alone)
    rng, killed = np.random.default_rng(0), 0
    for number, moment in enumerate(rng.uniform(0.0, longest, times), 1):
        killed += killed_copy(module, often, moment, times - number, warm)
    module.train(often)
    (folder / "killed").write_text(str(killed))
