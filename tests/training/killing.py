"""Kill a training at random moments: ``python killing.py MODULE FOLDER TIMES``.

Leaves FOLDER/alone by ``MODULE.train``, undisturbed, and FOLDER/often by one that was killed so many times, each at a
uniformly random moment of the first part of a training, and then ended. Prints how many were alive to be killed.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def copied(train, folder: Path) -> int:
    """The process id of a training in a copy of this process, which has all compiled."""
    child = os.fork()
    if child == 0:
        train(folder)
        os._exit(0)
    return child


def started(name: str, folder: Path) -> int:
    """The process id of a training in a new process, for frameworks with threads, which cannot be copied."""
    code = f"import {name}, pathlib; {name}.train(pathlib.Path({str(folder)!r}), began=lambda: print(flush=True))"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()  # all is compiled
    return child.pid


def main() -> None:
    name, folder, times = sys.argv[1:]
    module = importlib.import_module(name)
    train = module.train
    alone, again, often = (Path(folder) / name for name in ("alone", "again", "often"))
    for place in (alone, again, often):
        place.mkdir()
    train(alone)  # here, so that all is compiled when the process is copied
    began = time.monotonic()
    train(again)
    copies = getattr(module, "COPIES", True)
    longest = (6.0 / int(times) if copies else 0.4) * (time.monotonic() - began)
    rng, killed = np.random.default_rng(0), 0
    for moment in rng.uniform(0.0, longest, int(times)):
        child = copied(train, often) if copies else started(name, often)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    train(often)
    print(killed)  # noqa: T201


if __name__ == "__main__":
    main()
