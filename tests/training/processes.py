"""Processes that have the frameworks already: copies of one that has done nothing but import them.

Importing them takes several times as long as the trainings of these tests. The process that is copied has no process
group, no gradients and no random numbers; a copy is a process of its own, whose death leaves the others as they are.
"""

import importlib
import os
import runpy
import socket
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from multiprocessing import current_process, get_all_start_methods, get_context, set_start_method
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_context = get_context("forkserver")
_context.set_forkserver_preload([  # those that are missing are left out
    "torch.distributed.fsdp",
    "opacus.distributed",
    "hockeystick.training.torch",
    "transformers.models.llama.modeling_llama",
    "hockeystick.training.huggingface",
    "trl",
    "lightning",
    "hockeystick.training.jax",
])  # fmt: skip


def start(function: str, *arguments: object, folder: Path, **environment: str) -> ForkServerProcess:
    """Call ``MODULE.FUNCTION`` in a new process, which imports the module in this environment; it prints to a file."""
    said = folder / f"said-{environment.get('RANK', '0')}"
    process = _context.Process(target=_run, name=str(said), args=(function, arguments, environment))
    process.start()
    return process


def _run(function: str, arguments: Sequence[object], environment: dict[str, str]) -> None:
    with open(current_process().name, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    set_start_method(get_all_start_methods()[0], force=True)  # that of other processes, for the workers of loaders
    module, name = function.split(".")
    getattr(importlib.import_module(module), name)(*arguments)


def script(path: Path, *arguments: str) -> None:
    """Run a script; the processes that torch spawns for it are copies too."""
    from torch import multiprocessing

    multiprocessing.spawn = partial(multiprocessing.start_processes, start_method="fork")
    sys.argv = [str(path), *arguments]
    warnings.simplefilter("ignore")
    runpy.run_path(str(path), run_name="__main__")


def free_port() -> str:
    """Where processes of this machine may meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def start_two(function: str, *arguments: object, folder: Path) -> list[ForkServerProcess]:
    """The same in two, which find each other as those of torchrun do."""
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [place | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    return [start(function, *arguments, folder=folder, **rank) for rank in ranks]


def exit_codes(*processes: ForkServerProcess) -> list[int | None]:
    """Wait for them; negative for a signal, SIGKILL for those that take too long."""
    for process in processes:
        process.join(400)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def end(*processes: ForkServerProcess) -> None:
    """Wait for them; each has to end well."""
    codes = exit_codes(*processes)
    assert not any(codes), "\n".join(Path(process.name).read_text() for process in processes)
