"""One running explorer."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A client of a running server, and its address with the token."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from benchmarks.explorer import serving

    with serving() as (client, address, process):
        yield client, address, process
