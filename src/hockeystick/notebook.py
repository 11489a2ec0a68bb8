"""What notebooks show: plain HTML in which every string is escaped."""

from collections.abc import Iterable
from html import escape


def preformatted(text: str) -> str:
    """Text as it stands, in a fixed-width font.

    >>> preformatted("epsilon < 2")
    '<pre>epsilon &lt; 2</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values.

    >>> table("a & b", [("x", "1")])
    '<table><caption>a &amp; b</caption><tr><th>x</th><td>1</td></tr></table>'
    """
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"
