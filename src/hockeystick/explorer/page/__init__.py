"""The files of the explorer's page; the plots and the style are those of the reports."""

from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files

from hockeystick.report.html.assets import plots, style


@cache
def text(name: str) -> str:
    """The text of a file of this folder."""
    return (files("hockeystick.explorer.page") / name).read_text(encoding="utf-8")


PAGES: dict[str, tuple[Callable[[], str], str]] = {
    "/": (partial(text, "index.html"), "text/html"),
    "/explorer.js": (partial(text, "explorer.js"), "text/javascript"),
    "/address.js": (partial(text, "address.js"), "text/javascript"),
    "/controls.js": (partial(text, "controls.js"), "text/javascript"),
    "/complaints.js": (partial(text, "complaints.js"), "text/javascript"),
    "/explorer.css": (partial(text, "explorer.css"), "text/css"),
    "/plots.js": (plots, "text/javascript"),
    "/style.css": (style, "text/css"),
}
"""What the server hands out without a token: a loader and a media type for each path. There are no other files."""
