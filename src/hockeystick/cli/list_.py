"""hockeystick list: what there is."""

from enum import StrEnum
from typing import Annotated

import typer

from hockeystick.cli import common


class Topic(StrEnum):
    """What can be listed."""

    STRATEGIES = "strategies"
    SAMPLERS = "samplers"
    ACCOUNTANTS = "accountants"
    SUPPORT = "support"


def command(
    topic: Annotated[Topic, typer.Argument(help="What to list.", show_default=False)],
    json: common.JsonOption = False,
) -> None:
    """List strategies, samplers, accountants, or which accountant supports which combination."""
    from hockeystick.report.listing import listing

    rows = listing(topic.value)
    if json:
        common.emit_json({topic.value: rows})
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        common.emit(f"{row['name']!s:<{width}}  {row['summary']}")
