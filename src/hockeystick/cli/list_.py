"""hockeystick list: strategies, samplers, accountants, generators, and what supports what."""

from typing import Annotated

import typer

from hockeystick.cli import common

TOPICS = ("strategies", "samplers", "accountants", "support", "generators")


def command(
    topic: Annotated[str, typer.Argument(metavar=f"{{{','.join(TOPICS)}}}", help="What to list.", show_default=False)],
    json: common.JsonOption = False,
) -> None:
    """List strategies, samplers, accountants or generators.

    'support' lists which accountant supports which sampler and strategy; 'generators' are those of other libraries.
    """
    from hockeystick.misspelt import one_of
    from hockeystick.report.listing import listing

    one_of("topic", topic, TOPICS, "argument")
    rows = listing(topic)
    if json:
        common.emit_json({topic: rows})
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        common.emit(f"{row['name']!s:<{width}}  {row['summary']}")
