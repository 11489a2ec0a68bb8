"""The pages and answers of the explorer: routes, and what they hand to the workers."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hockeystick.explorer.choices import choices
from hockeystick.explorer.guard import Guard
from hockeystick.explorer.jobs import Jobs
from hockeystick.explorer.page import PAGES
from hockeystick.explorer.pool import Pool

STATUS = {"input": 422, "none": 422, "slow": 422, "busy": 503, "cancelled": 409, "internal": 500}
"""The status for each kind of error of a worker."""
WAITING_ANSWERS, WAITING_JOBS = 256, 32
LONGEST_ANSWER = 30.0
"""Seconds after which a worker that does not answer is replaced."""
NICE = 5
"""The niceness of certificates, which give way to quick answers."""
KEPT_ANSWERS = 1024
"""Answers that need no worker when the same is asked again, as when a slider goes back."""
BESIDE = ("patience", "near")
"""Fields of a question that do not change what a complete answer says."""
LOOK = 0.05
"""Seconds between looks at whether anybody still waits for an answer."""
AT_ONCE = 1.0
"""Seconds that a page waits for kernels before it is told that they are being compiled."""


class Explorer:
    """The state of one server: its workers, its jobs, and for which mechanisms the kernels are compiled.

    Args:
        start: the plan that the page begins with, and what it asks for.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = start
        cores = os.cpu_count() or 1
        self.answers = Pool(max(2, min(4, cores)), WAITING_ANSWERS)
        self.compiler = Pool(1, WAITING_ANSWERS)
        self.jobs = Jobs(Pool(max(1, min(4, cores - 1)), WAITING_JOBS, NICE))
        self.prepared: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}
        self.known: dict[str, dict[str, Any]] = {}

    @asynccontextmanager
    async def running(self, app: Starlette) -> AsyncIterator[None]:
        """Start the workers with the server, and end them with it."""
        watching = [asyncio.create_task(self.jobs.watch()), asyncio.create_task(self.answers.start())]
        self._prepare({"plan": self.start["plan"]})
        try:
            yield
        finally:
            waiting = [*watching, *self.prepared.values()]
            for task in waiting:
                task.cancel()
            await self.jobs.end()
            await asyncio.gather(*waiting, return_exceptions=True)
            for pool in (self.answers, self.compiler, self.jobs.pool):
                await pool.end()

    async def begin(self, request: Request) -> Response:
        """What the page has to know: the first plan, and which samplers and strategies there are."""
        return JSONResponse({**self.start, **choices()})

    async def quick(self, request: Request) -> Response:
        """A quick answer; 202 while the kernels that it needs are compiled."""
        return await self._answered("quick", request)

    async def details(self, request: Request) -> Response:
        """The curve of a quick answer."""
        return await self._answered("details", request)

    async def plan_file(self, request: Request) -> Response:
        """The plan as TOML."""
        return _shown(await self.answers.run("plan_file", await _body(request), limit=LONGEST_ANSWER))

    async def add_job(self, request: Request) -> Response:
        """Begin a certificate."""
        name = self.jobs.add(await _body(request))
        if name is None:
            return _error("The server is busy; try again when a certificate is done.", 503)
        return JSONResponse({"job": name}, status_code=201)

    async def job(self, request: Request) -> Response:
        """How far a certificate is, and the certificate once it is there; DELETE cancels it."""
        job = self.jobs.get(request.path_params["name"])
        if job is None:
            return _error("There is no such job.", 404)
        if request.method == "DELETE":
            job.cancel.set()
        return JSONResponse(job.shown())

    async def _answered(self, task: str, request: Request) -> Response:
        body = await _body(request)
        preparing = self._prepare(body)
        if preparing is not None:
            done, _ = await asyncio.wait({preparing}, timeout=AT_ONCE)
            if not done:
                return JSONResponse({"preparing": True}, status_code=202)
        asked = {name: value for name, value in body.items() if name not in BESIDE}
        question = json.dumps([task, asked], sort_keys=True)
        if question in self.known:
            return JSONResponse(self.known[question])
        if self.answers.waiting and body.get("patience") != "still":
            body = body | {"patience": "hurried"}
        cancel = asyncio.Event()
        leaving = asyncio.create_task(_left(request, cancel))
        try:
            reply = await self.answers.run(task, body, limit=LONGEST_ANSWER, cancel=cancel)
        finally:
            leaving.cancel()
        if reply.get("result", {}).get("complete", False):
            if len(self.known) >= KEPT_ANSWERS:
                del self.known[next(iter(self.known))]
            self.known[question] = reply["result"]
        return _shown(reply)

    def _prepare(self, body: Mapping[str, Any]) -> "asyncio.Task[dict[str, Any]] | None":
        """The compilation of the kernels for a plan; None for what is no plan, which is refused when it is read."""
        kinds = _kinds(body.get("plan"))
        if kinds is None:
            return None
        known = self.prepared.get(kinds)
        if known is None or (known.done() and "result" not in known.result()):  # the last plan was refused
            self.prepared[kinds] = asyncio.create_task(self.compiler.run("prepare", dict(body)))
        return self.prepared[kinds]


def application(start: Mapping[str, Any], port: int, token: str) -> Guard:
    """The guarded application."""
    explorer = Explorer(start)
    pages = [Route(path, _page(*content)) for path, content in PAGES.items()]
    routes = [
        *pages,
        Route("/api/start", explorer.begin),
        Route("/api/quick", explorer.quick, methods=["POST"]),
        Route("/api/details", explorer.details, methods=["POST"]),
        Route("/api/plan", explorer.plan_file, methods=["POST"]),
        Route("/api/jobs", explorer.add_job, methods=["POST"]),
        Route("/api/jobs/{name}", explorer.job, methods=["GET", "DELETE"]),
    ]
    app = Starlette(
        routes=routes, lifespan=explorer.running, exception_handlers={HTTPException: _refused, Exception: _failed}
    )
    return Guard(app, port, token)


def _page(load: Callable[[], str], kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return Response(load(), media_type=kind)

    return page


def _shown(reply: Mapping[str, Any]) -> Response:
    """A worker's reply, or its error."""
    if "result" in reply:
        return JSONResponse(reply["result"])
    return _error(reply["error"], STATUS[reply["kind"]])


async def _left(request: Request, cancel: asyncio.Event) -> None:
    """Cancel a question whose page has asked another one meanwhile, or was closed."""
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK)
    cancel.set()


async def _refused(request: Request, error: Exception) -> Response:
    """Errors of the framework: unknown paths and methods, and bodies that are no JSON object."""
    assert isinstance(error, HTTPException)
    return _error(error.detail, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours: the guard reports it on the terminal."""
    return _error("An internal error of the explorer.", 500)


def _error(sentence: str, status: int) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HTTPException(400, "The body of a request must be a JSON object.")
    return body


def _kinds(plan: object) -> tuple[str, str] | None:
    """The kinds of strategy and sampler of a plan, as far as they can be read."""
    if not isinstance(plan, dict):
        return None
    tables = [plan.get(name, {}) for name in ("strategy", "sampler")]
    strategy, sampler = (table.get("kind", "identity") if isinstance(table, dict) else None for table in tables)
    known = choices()
    if isinstance(strategy, str) and isinstance(sampler, str) and strategy in known["strategies"]:
        return (strategy, sampler) if sampler in known["samplers"] else None
    return None
