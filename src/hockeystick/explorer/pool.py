"""Worker processes of the server: a bounded number of them, replaced when they hang or die."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

MOST_LINE = 1 << 22
"""Bytes of one reply."""
CANCEL_SECONDS = 2.0
"""A worker that has not stopped after a cancellation for so long is ended."""
BUSY = {"error": "The server is busy; try again in a moment.", "kind": "busy"}
DIED = {"error": "The computation ended without a result, perhaps for lack of memory.", "kind": "none"}
TOO_LONG = {"error": "It takes longer than a quick answer may; ask for a certificate.", "kind": "slow"}
CANCELLED = {"error": "It was cancelled.", "kind": "cancelled"}

Progress = Callable[[int, float], None]


class Worker:
    """One process, which computes one request at a time."""

    def __init__(self, nice: int) -> None:
        self.nice = nice
        self.process: asyncio.subprocess.Process | None = None
        self.ids = count()
        self.starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, unless it runs, and wait until it has imported what it needs."""
        async with self.starting:
            if self.process is not None and self.process.returncode is None:
                return
            path = os.pathsep.join(
                folder for folder in sys.path if folder
            )  # as here, but without the working directory
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "hockeystick.explorer.worker",
                str(self.nice),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                limit=MOST_LINE,
            )
            await self._reply()

    async def run(
        self, task: str, body: dict[str, Any], *, limit: float | None, cancel: asyncio.Event, progress: Progress
    ) -> dict[str, Any]:
        """The reply to one request: a ``result``, or an ``error`` with its ``kind``.

        Args:
            limit: seconds after which the process is ended, for work that does not look at its deadline.
            cancel: set by whoever no longer wants the result.
            progress: called with the steps done and the seconds.
        """
        number = next(self.ids)
        answer = asyncio.ensure_future(self._answer(number, task, body, progress))
        stop = asyncio.ensure_future(cancel.wait())
        try:
            done, _ = await asyncio.wait({answer, stop}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if stop in done and answer not in done and self.process is not None:
                self._send({"cancel": number})
                done, _ = await asyncio.wait({answer}, timeout=CANCEL_SECONDS)
            if answer in done:
                return answer.result()
            await self.end()
            return CANCELLED if cancel.is_set() else TOO_LONG
        except (OSError, EOFError):
            await self.end()
            return DIED
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            stop.cancel()
            answer.cancel()

    async def end(self) -> None:
        """End the process at once; the next request starts another."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.process = None

    async def _answer(self, number: int, task: str, body: dict[str, Any], progress: Progress) -> dict[str, Any]:
        await self.start()
        self._send({"id": number, "task": task, "body": body})
        while True:
            reply = await self._reply()
            if reply.get("id") != number:
                continue
            if "progress" not in reply:
                return reply
            progress(reply["progress"], reply["seconds"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(message) + "\n").encode())

    async def _reply(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise EOFError
        reply: dict[str, Any] = json.loads(line)
        return reply


class Pool:
    """Workers that take requests in turn; a bounded number of requests may wait.

    Args:
        size: workers.
        most_waiting: requests that may wait for one; others are refused.
        nice: by how much the workers give way to other processes.
    """

    def __init__(self, size: int, most_waiting: int, nice: int = 0) -> None:
        self.workers = [Worker(nice) for _ in range(size)]
        self.idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()  # the one that worked last has its matrices at hand
        for worker in self.workers:
            self.idle.put_nowait(worker)
        self.waiting, self.most_waiting = 0, most_waiting

    async def start(self) -> None:
        """Start all workers now, not at their first requests."""
        await asyncio.gather(*(worker.start() for worker in self.workers))

    async def run(
        self,
        task: str,
        body: dict[str, Any],
        *,
        limit: float | None = None,
        cancel: asyncio.Event | None = None,
        started: Callable[[], None] = lambda: None,
        progress: Progress = lambda steps, seconds: None,
    ) -> dict[str, Any]:
        """The reply of a worker, when one is free; ``started`` is called when it begins."""
        cancel = cancel or asyncio.Event()
        if self.waiting >= self.most_waiting:
            return BUSY
        self.waiting += 1
        try:
            worker = await self.idle.get()
        finally:
            self.waiting -= 1
        try:
            if cancel.is_set():
                return CANCELLED
            started()
            return await worker.run(task, body, limit=limit, cancel=cancel, progress=progress)
        finally:
            self.idle.put_nowait(worker)

    async def end(self) -> None:
        """End all workers."""
        await asyncio.gather(*(worker.end() for worker in self.workers))
