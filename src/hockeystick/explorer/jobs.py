"""Certificates that are being computed: their progress, their results, and their end when nobody asks about them."""

import asyncio
import secrets
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from hockeystick.explorer.pool import Pool

KEPT = 64
"""Jobs that are remembered; the oldest finished ones are forgotten."""
ABANDONED = 180.0
"""Seconds after which a job that nobody asks about is cancelled: its page was closed. A hidden page is woken once a
minute, and it has to find its certificate when it is looked at again."""


@dataclass
class Job:
    """One request for a certificate."""

    state: str = "waiting"
    steps: int = 0
    began: float | None = None
    took: float | None = None
    asked: float = field(default_factory=monotonic)
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    reply: dict[str, Any] | None = None
    task: "asyncio.Task[None] | None" = None

    def begin(self) -> None:
        """A worker has taken it."""
        self.state, self.began = "running", monotonic()

    def progress(self, steps: int, seconds: float) -> None:
        """Note how many pieces of work are done."""
        self.steps = steps

    def shown(self) -> dict[str, Any]:
        """What the page is told."""
        self.asked = monotonic()
        seconds = 0.0 if self.began is None else self.took or self.asked - self.began
        return {"state": self.state, "steps": self.steps, "seconds": round(seconds, 1), **(self.reply or {})}


class Jobs:
    """All jobs of a server."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.jobs: dict[str, Job] = {}

    def add(self, body: dict[str, Any]) -> str | None:
        """Begin a job and return its name; None when there are too many."""
        for name in [name for name, job in self.jobs.items() if job.reply is not None][: max(0, len(self.jobs) - KEPT)]:
            del self.jobs[name]
        if len(self.jobs) >= 2 * KEPT or self.pool.waiting >= self.pool.most_waiting:
            return None
        name, job = secrets.token_hex(16), Job()
        self.jobs[name] = job
        job.task = asyncio.create_task(self._run(job, body))
        return name

    async def _run(self, job: Job, body: dict[str, Any]) -> None:
        reply = await self.pool.run("certificate", body, cancel=job.cancel, started=job.begin, progress=job.progress)
        job.took = 0.0 if job.began is None else monotonic() - job.began
        job.state = "done" if "result" in reply else "cancelled" if reply["kind"] == "cancelled" else "failed"
        job.reply = {name: reply[name] for name in ("result", "error", "kind") if name in reply}

    def get(self, name: str) -> Job | None:
        """The job of this name."""
        return self.jobs.get(name)

    async def watch(self) -> None:
        """Look again and again for jobs that nobody asks about, and cancel them."""
        while True:
            await asyncio.sleep(ABANDONED / 4.0)
            for job in self.jobs.values():
                if job.reply is None and monotonic() - job.asked > ABANDONED:
                    job.cancel.set()

    async def end(self) -> None:
        """Cancel all jobs at once."""
        tasks = [job.task for job in self.jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
