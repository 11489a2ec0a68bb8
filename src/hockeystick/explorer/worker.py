"""A process that computes for the explorer: requests on stdin, progress and results on stdout, a JSON object a line.

A request is cancelled by the line ``{"cancel": ID}``. The process ends when its stdin does, so that none outlives the
server. An error of ours is one sentence with a kind; of any other, one line goes to stderr and none to the page.
"""

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from time import monotonic
from typing import Any, TextIO

from hockeystick.errors import HockeystickError, InvalidInputError, UnsupportedError

BETWEEN_REPORTS = 0.25
"""Seconds."""


class Cancelled(BaseException):
    """Nobody wants the result any more."""


def main(nice: int) -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes stdin
    if nice and hasattr(os, "nice"):
        os.nice(nice)
    limit_memory()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no reply
    requests: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    cancelled: set[int] = set()
    threading.Thread(target=_read, args=(requests, cancelled), daemon=True).start()
    from hockeystick.explorer.tasks import TASKS  # noqa: F401  (imported while the server starts)

    _reply(out, {"ready": True})
    while (request := requests.get()) is not None:
        if request["id"] not in cancelled:
            _reply(out, {"id": request["id"]} | _serve(request, cancelled, out))


def limit_memory() -> None:
    """Half of the machine's memory, where the system can say and enforce it: a link may hold a plan of any size."""
    try:
        import resource

        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        _, allowed = resource.getrlimit(resource.RLIMIT_DATA)
        if allowed == resource.RLIM_INFINITY or most < allowed:
            resource.setrlimit(resource.RLIMIT_DATA, (most, allowed))
    except (ImportError, OSError, ValueError):  # not on this system
        return


def _read(requests: "SimpleQueue[dict[str, Any] | None]", cancelled: set[int]) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "cancel" in message:
            cancelled.add(message["cancel"])
        else:
            requests.put(message)
    os._exit(0)  # the server is gone, whatever is being computed


def _serve(request: dict[str, Any], cancelled: set[int], out: TextIO) -> dict[str, Any]:
    """The result of a request, or its error."""
    from hockeystick.deadline import Deadline
    from hockeystick.explorer.tasks import TASKS

    started = reported = monotonic()

    def on_tick(ticks: int) -> None:
        nonlocal reported
        if request["id"] in cancelled:
            raise Cancelled
        now = monotonic()
        if now - reported >= BETWEEN_REPORTS:
            reported = now
            _reply(out, {"id": request["id"], "progress": ticks, "seconds": round(now - started, 1)})

    try:
        return {"result": TASKS[request["task"]](request["body"], Deadline(on_tick=on_tick))}
    except Cancelled:
        return {"error": "It was cancelled.", "kind": "cancelled"}
    except (InvalidInputError, UnsupportedError) as error:
        return {"error": str(error), "kind": "input"}
    except HockeystickError as error:
        return {"error": str(error), "kind": "none"}
    except MemoryError:
        return {"error": "The memory of this machine is too small for this problem.", "kind": "none"}
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        what = f"hockeystick: internal error{place}, please report it: {type(error).__name__}: {error}"
        sys.stderr.write(" ".join(what.split()) + "\n")
        return {"error": "An internal error; the terminal of 'hockeystick explore' says where.", "kind": "internal"}


def _reply(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message, allow_nan=False) + "\n")
    out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
