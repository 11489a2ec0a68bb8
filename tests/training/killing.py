"""Kill a training at random moments: ``python killing.py MODULE FOLDER TIMES``.

Leaves FOLDER/alone by ``MODULE.train``, undisturbed, and FOLDER/often by one that was killed so many times, each at a
uniformly random moment of the first part of a training, and then ended. Prints how many were alive to be killed.
"""

import importlib
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np


def main() -> None:
    name, folder, times = sys.argv[1:]
    train = importlib.import_module(name).train
    alone, again, often = (Path(folder) / name for name in ("alone", "again", "often"))
    for place in (alone, again, often):
        place.mkdir()
    train(alone)  # here, so that all is compiled when the process is copied
    began = time.monotonic()
    train(again)
    longest = 6.0 * (time.monotonic() - began) / int(times)
    rng, killed = np.random.default_rng(0), 0
    for moment in rng.uniform(0.0, longest, int(times)):
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
