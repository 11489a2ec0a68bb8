"""Requests that are not of the explorer's own page are refused before anything looks at them."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("starlette")

from hockeystick.explorer.guard import HEADERS, MOST_BODY, Guard

PORT, TOKEN = 4321, "secret-token"
HOST = (b"host", b"127.0.0.1:4321")
BEARER = (b"authorization", b"Bearer secret-token")


async def greeting(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the whole body, greets, and fails on request."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/api/fail":
        raise RuntimeError("a secret of the inside")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b'"hello"'})


def ask(
    *headers: tuple[bytes, bytes],
    path: str = "/api/quick",
    method: str = "POST",
    body: tuple[bytes, ...] = (b"",),
    app: Any = None,
):
    """Status, headers and JSON that a guarded application replies, once."""
    parts, sent = list(body), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": list(headers), "query_string": b""}
    asyncio.run((app or Guard(greeting, PORT, TOKEN))(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return sent[0]["status"], sent[0]["headers"], json.loads(sent[1]["body"])


@pytest.mark.parametrize("origin", [(), ((b"origin", b"http://127.0.0.1:4321"), (b"sec-fetch-site", b"same-origin"))])
@pytest.mark.parametrize("host", [b"127.0.0.1:4321", b"localhost:4321"])
def test_the_explorers_own_page_is_served(host, origin):
    status, headers, content = ask((b"host", host), BEARER, *origin)
    assert (status, content) == (200, "hello")
    assert set(HEADERS) <= set(headers)


@pytest.mark.parametrize(
    "host",
    [b"evil.example:4321", b"127.0.0.1", b"127.0.0.1:80", b"127.0.0.1.evil.example:4321", b"10.0.0.2:4321", b""],
)
def test_other_hosts_are_refused(host):
    """A name of a stranger's may lead to this machine (DNS rebinding)."""
    assert ask((b"host", host), BEARER)[0] == 421
    assert ask((b"host", host), path="/", method="GET")[0] == 421


@pytest.mark.parametrize("hosts", [(), (HOST, HOST), (HOST, (b"host", b"evil.example:4321"))])
def test_there_is_exactly_one_host(hosts):
    assert ask(*hosts, BEARER)[0] == 421


@pytest.mark.parametrize(
    "header",
    [
        (b"origin", b"http://evil.example"),
        (b"origin", b"null"),
        (b"origin", b"https://127.0.0.1:4321"),
        (b"origin", b"http://127.0.0.1:9999"),
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-site", b"same-site"),
    ],
)
def test_other_sites_are_refused(header):
    assert ask(HOST, BEARER, header)[0] == 403
    assert ask(HOST, header, path="/", method="GET")[0] == 403


@pytest.mark.parametrize(
    "tokens",
    [
        (),
        ((b"authorization", b"Bearer "),),
        ((b"authorization", b"Bearer secret-toke"),),
        ((b"authorization", b"Bearer secret-token "),),
        ((b"authorization", b"Basic secret-token"),),
        ((b"authorization", "Bearer sécret".encode("latin-1")),),
        (BEARER, BEARER),
        ((b"cookie", b"token=secret-token"),),
    ],
)
@pytest.mark.parametrize("path", ["/api/quick", "/api/jobs/some", "/api/unknown"])
def test_the_api_needs_the_token(path, tokens):
    assert ask(HOST, *tokens, path=path)[0] == 401


@pytest.mark.parametrize("path", ["/", "/explorer.js"])
def test_pages_need_no_token(path):
    assert ask(HOST, path=path, method="GET")[0] == 200


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(method):
    """OPTIONS too: no other origin gets leave to ask."""
    status, headers, _ = ask(HOST, BEARER, method=method)
    assert status == 405
    assert not any(name.startswith(b"access-control") for name, _ in headers)


def test_large_bodies_are_refused():
    assert ask(HOST, BEARER, (b"content-length", b"%d" % (MOST_BODY + 1)))[0] == 413
    assert ask(HOST, BEARER, body=(b"x" * MOST_BODY, b"x"))[0] == 413  # whatever its header says
    assert ask(HOST, BEARER, (b"content-length", b"5"), body=(b"x" * MOST_BODY,))[0] == 200


def test_large_bodies_without_a_length_are_refused_by_the_explorer():
    pytest.importorskip("uvicorn")
    from hockeystick.explorer.app import application

    app = application({"plan": {}, "ask": "epsilon"}, PORT, TOKEN)
    status, headers, content = ask(HOST, BEARER, path="/api/plan", body=(b"x" * MOST_BODY, b"x"), app=app)
    assert (status, content) == (413, {"error": f"A request must be at most {MOST_BODY} bytes."})
    assert set(HEADERS) <= set(headers)


def test_errors_inside_stay_inside(capsys):
    status, headers, content = ask(HOST, BEARER, path="/api/fail")
    assert (status, content) == (500, {"error": "An internal error."})
    assert set(HEADERS) <= set(headers)
    assert "a secret" not in capsys.readouterr().err
