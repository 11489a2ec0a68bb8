"""The explorer's server: on the loopback interface only, with a token, until Ctrl-C."""

import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from hockeystick.errors import InvalidInputError
from hockeystick.explorer.app import application

ADDRESS = "127.0.0.1"
MOST_CONNECTIONS = 512
LAST_SECONDS = 1
"""Seconds that open requests have when the server stops."""


class _Server(uvicorn.Server):
    """A server whose usual end is Ctrl-C, which is then no interruption."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the signals that ask for it."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(start: Mapping[str, Any], port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        start: the ``plan`` that the page begins with, as plain data, and what it asks for: ``ask``.
        port: 0 for any that is free.
        announce: called with the address, token included, once the server listens.

    Raises: InvalidInputError when the port is taken.
    """
    token = secrets.token_urlsafe(32)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise InvalidInputError(f"The '--port' option cannot be {port}: {error.strerror}.") from None
        port = listening.getsockname()[1]
        listening.listen(MOST_CONNECTIONS)
        announce(f"http://{ADDRESS}:{port}/?token={token}")
        config = uvicorn.Config(
            application(start, port, token),
            http="h11",
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=LAST_SECONDS,
        )
        _Server(config).run(sockets=[listening])
