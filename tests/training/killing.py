"""Kill a training at random moments: ``python killing.py MODULE FOLDER TIMES SECONDS``.

Leaves FOLDER/alone by ``MODULE.train``, undisturbed, and FOLDER/often by one that was killed so many times, each at a
uniformly random moment of its first SECONDS, and then ended. Prints how many were alive to be killed.
"""

import importlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np


def main() -> None:
    name, folder, times, seconds = sys.argv[1:]
    train = importlib.import_module(name).train
    alone, often = Path(folder) / "alone", Path(folder) / "often"
    alone.mkdir()
    often.mkdir()
    train(alone)  # here, so that all is compiled when the process is copied
    rng, killed = np.random.default_rng(0), 0
    for moment in rng.uniform(0.0, float(seconds), int(times)):
        child = os.fork()
        if child == 0:
            train(often)
            os._exit(0)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    train(often)
    print(killed)  # noqa: T201


if __name__ == "__main__":
    main()
