"""What every request has to pass before the explorer looks at it, and the headers of every reply.

A page of another site must not use the explorer of a user who visits it: neither by a request of its own (``Origin``,
``Sec-Fetch-Site``, and a token that it does not know), nor under a name of its own that it makes lead to this machine
(``Host``).
"""

import secrets
import sys
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 1 << 16
"""Bytes of a request; a plan takes less than one thousand."""
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLargeError(HTTPException):
    """The body of a request is larger than MOST_BODY; the application answers it as it does every such refusal."""

    def __init__(self) -> None:
        super().__init__(413, f"A request must be at most {MOST_BODY} bytes.")


class Guard:
    """Refuses requests that do not come from the explorer's own page.

    Args:
        app: what is guarded.
        port: where the server listens on the loopback interface.
        token: what every request below ``/api/`` has to have in its ``Authorization`` header.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token.encode()
        self.hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self.hosts |= {b"127.0.0.1", b"localhost"}
        self.origins = {b"http://" + host for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _said(*refusal)(scope, receive, guarded)
            return
        try:
            await self.app(scope, _limited(receive), guarded)
        except TooLargeError as error:
            if not begun:
                await _said(error.status_code, error.detail)(scope, receive, guarded)
        except Exception as error:
            sys.stderr.write(f"hockeystick: internal error of the explorer: {type(error).__name__}\n")
            if not begun:
                await _said(500, "An internal error.")(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason for a request that is refused, or None."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]

        def values(name: bytes) -> list[bytes]:
            return [value for key, value in headers if key == name]

        if len(values(b"host")) != 1 or values(b"host")[0] not in self.hosts:
            return 421, "The host of a request must be 127.0.0.1 or localhost, with the explorer's port."
        if any(origin not in self.origins for origin in values(b"origin")):
            return 403, "Requests of other origins are refused."
        if any(site not in (b"same-origin", b"none") for site in values(b"sec-fetch-site")):
            return 403, "Requests of other sites are refused."
        if scope["method"] not in ("GET", "HEAD", "POST", "DELETE"):
            return 405, "This method is not allowed."
        if _declared(values(b"content-length")) > MOST_BODY:
            return 413, f"A request must be at most {MOST_BODY} bytes."
        if scope["path"].startswith("/api/") and not self._has_token(values(b"authorization")):
            return 401, "The token is missing or wrong; open the address that 'hockeystick explore' printed."
        return None

    def _has_token(self, given: list[bytes]) -> bool:
        expected = b"Bearer " + self.token
        return len(given) == 1 and secrets.compare_digest(given[0], expected)


def _declared(lengths: Iterable[bytes]) -> int:
    return max((int(length) for length in lengths if length.isdigit() and len(length) < 20), default=0)


def _limited(receive: Receive) -> Receive:
    """The same messages, until their bodies are too large together."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY:
            raise TooLargeError
        return message

    return limited


def _said(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status_code=status)
