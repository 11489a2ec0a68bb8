"""One running explorer, and a window for it."""

from collections.abc import Iterator
from pathlib import Path
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


@pytest.fixture
def browser(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A new window of the browser, with an empty log; downloads are saved in ``tmp_path``."""
    first = browser.current_window_handle
    browser.switch_to.new_window("window")  # which has its own storage, and so no token
    browser.set_window_size(1280, 1000)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.get_log("browser")
    yield browser
    browser.close()
    browser.switch_to.window(first)
