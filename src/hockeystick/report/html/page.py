"""A page as plain data, and its one self-contained HTML file: inline style and scripts, no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hockeystick._version import __version__
from hockeystick.report.document import Section, visible
from hockeystick.report.html.assets import asset, embedded, plots, policy, style


@dataclass(frozen=True)
class Plot:
    """One drawing of ``plots.js``.

    Attributes:
        kind: which function draws it.
        spec: what that function takes; bounds under ``lower`` and ``upper``, None where nothing is known.
    """

    kind: Literal["plot", "intervals"]
    spec: dict[str, Any]


@dataclass(frozen=True)
class Plots:
    """Drawings side by side, with a sentence that says where their numbers come from."""

    heading: str
    note: str
    plots: Sequence[Plot]


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; the first cell of each names it.

    Attributes:
        wordy: narrow windows show the cells of a row one below the other, as sentences need width.
    """

    heading: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    wordy: bool = False


@dataclass(frozen=True)
class Notice:
    """A sentence at the top of a page."""

    tone: Literal["good", "bad", "plain"]
    text: str


@dataclass(frozen=True)
class Page:
    """What a report says, from top to bottom. Every string may come from a stranger's file.

    Attributes:
        kind: what is reported.
        title: its claim, or what it is.
        notices: what a reader has to see first.
        blocks: the rest; those without rows or plots are left out.
        colophon: what was left out, and how to compute the report again.
    """

    kind: str
    title: str
    notices: Sequence[Notice]
    blocks: Sequence[Section | Plots | Table]
    colophon: Sequence[str]

    def html(self) -> str:
        """The page as one file. All of it is escaped, and its policy allows no script, style or request but its own."""
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

        drawn = [plot for block in self.blocks if isinstance(block, Plots) for plot in block.plots]
        script = f"{plots()}\n;\n{asset('report.js')}"
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
        )
        return environment.from_string(asset("report.html.jinja")).render(
            page=self,
            blocks=[(type(block).__name__.lower(), block) for block in self.blocks if _filled(block)],
            version=__version__,
            policy=policy(scripts=(script,), styles=(style(),)),
            script=Markup(script),
            style=Markup(style()),
            data=Markup(embedded([{"kind": plot.kind, "spec": plot.spec} for plot in drawn])),
        )


def _filled(block: Section | Plots | Table) -> bool:
    return bool(block.plots if isinstance(block, Plots) else block.rows)


def _shown(value: object) -> object:
    """Text that goes into the page: characters that would change its direction are written out."""
    return visible(value) if type(value) is str else value
