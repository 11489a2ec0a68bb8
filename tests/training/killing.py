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

STATES = ("state.npz", "state.pt", "checkpoint-*[0-9]")
"""What trainings that are copied save; whole files and folders have these names and no others."""


def last_step(module, left: int) -> int:
    """The step after which a training waits to be killed, so that ``left`` more can take a part after it each."""
    return module.STEPS - (left + 1) * module.EVERY


def killed_copy(module, folder: Path, moment: float, left: int) -> bool:
    """Train in a copy of this process, which has all compiled, and kill it; whether it was alive.

    However slow or fast the machine is, the copy does not end, and the last one is not killed before there is a state.
    It is killed with the workers that load its batches: as orphans they could keep standard output open.
    """

    def saved(step: int) -> None:
        while step >= last_step(module, left):
            signal.pause()

    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        module.train(folder, saved)
        os._exit(0)
    time.sleep(moment)
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while not left and not any(any(folder.glob(name)) for name in STATES) and not os.waitid(os.P_PID, child, ended):
        time.sleep(0.001)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # there was no time to form a group, or all have ended
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def killed_process(name: str, folder: Path, moment: float, left: int) -> bool:
    """The same in a new process, for frameworks with threads, which cannot be copied; counts from its first state.

    However slow or fast the machine is, that process has saved a state when it is killed, and cannot have ended.
    """
    code = f"import killing; killing.train_until_killed({name!r}, {str(folder)!r}, {left})"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, **pipes) as child:
        assert child.stdout is not None
        began = child.stdout.readline()
        time.sleep(moment)
        child.kill()
        return bool(began) and child.wait() < 0


def train_until_killed(name: str, folder: str, left: int = 0) -> None:
    """Train; a line says that there is a state, and at its last step the training waits while its input is open.

    A training that went farther before it was killed would leave nothing to continue.
    """
    module = importlib.import_module(name)
    said = False

    def saved(step: int) -> None:
        nonlocal said
        if not said:
            print(step, flush=True)  # noqa: T201
        said = True
        if step >= last_step(module, left):
            sys.stdin.read()

    module.train(Path(folder), saved)


def main() -> None:
    name, folder, times = sys.argv[1:]
    module = importlib.import_module(name)
    train = module.train
    alone, again, often = (Path(folder) / name for name in ("alone", "again", "often"))
    for place in (alone, again, often):
        place.mkdir()
    saved: list[float] = []
    train(alone, lambda step: saved.append(time.monotonic()))  # here, so that all is compiled when it is copied
    longest = saved[-1] - saved[0]
    copies = getattr(module, "COPIES", True)
    if copies:
        began = time.monotonic()
        train(again)
        longest = 3.0 / int(times) * (time.monotonic() - began)
    rng, killed = np.random.default_rng(0), 0
    for copy, moment in enumerate(rng.uniform(0.0, longest, int(times)), 1):
        left = int(times) - copy
        if copies:  # on a busy machine all but the last may be killed before their first state
            killed += killed_copy(module, often, moment, left)
        else:
            killed += killed_process(name, often, moment, left)
    train(often)
    print(killed)  # noqa: T201


if __name__ == "__main__":
    main()
