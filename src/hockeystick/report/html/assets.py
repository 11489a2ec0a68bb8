"""The scripts and the style of a page, its security policy, and data that is safe inside a script element."""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from hockeystick.report.document import visible

D3 = ("path", "array", "color", "interpolate", "format", "scale", "selection", "shape", "axis")
"""The modules of d3 in ``vendor/``, each after those that it needs."""


def asset(name: str) -> str:
    """The text of a file of this folder."""
    return (files("hockeystick.report.html") / name).read_text(encoding="utf-8")


@cache
def plots() -> str:
    """d3 and ``plots.js``, as one script; it makes ``globalThis.hockeystick``."""
    return "\n;\n".join([*(asset(f"vendor/d3-{name}.min.js") for name in D3), asset("plots.js")])


@cache
def style() -> str:
    """The style sheet of reports and explorer."""
    return asset("style.css")


def digest(content: str) -> str:
    """The hash by which a Content-Security-Policy allows an inline script or style."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def policy(*, scripts: tuple[str, ...], styles: tuple[str, ...], connect: str = "'none'") -> str:
    """A Content-Security-Policy that allows these inline scripts and styles, and nothing else.

    Args:
        connect: where scripts may send requests to; nowhere by default.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(digest, scripts))}",
            f"style-src {' '.join(map(digest, styles))}",
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def embedded(value: Any) -> str:
    r"""Plain data as JSON that is safe inside a ``<script>`` element, whatever its strings are.

    Characters that would change the direction of text are written out; no number may be infinite.

    >>> embedded({"name": "</script>&\u202e"})
    '{"name": "\\u003c/script\\u003e\\u0026\\\\u202e"}'
    """
    text = json.dumps(_shown(value), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(value: Any) -> Any:
    """Plain data with its strings as they are shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(name): _shown(inner) for name, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value
