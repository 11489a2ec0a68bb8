"""hockeystick explore: a page on this machine that answers plans while its sliders move."""

from typing import Annotated, Any

import typer

from hockeystick.cli import common
from hockeystick.errors import InvalidInputError, UnsupportedError, install, shortened

EXAMPLE: dict[str, Any] = {
    "data": {"num_examples": 50_000, "batch_size": 500.0, "epochs": 20.0},
    "strategy": {"kind": "identity"},
    "sampler": {"kind": "random_allocation"},
    "target": {"epsilon": 2.0, "delta": 1e-5},
}
"""What the page begins with where no plan is given."""


def command(
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="Plan file (TOML or JSON) to begin with.", show_default=False)
    ] = None,
    port: Annotated[str, typer.Option("--port", metavar="NUMBER", help="Port on 127.0.0.1; 0 for a free one.")] = "0",
) -> None:
    """Explore plans in a browser, with sliders and quick bounds.

    The page shows up to four mechanisms side by side, and issues certificates. The command prints an address with a
    token, for the browser on this machine. Ctrl-C stops the server.
    """
    from hockeystick.plan import Plan

    number = common.number("--port", port)
    if not (number.is_integer() and 0 <= number < 1 << 16):
        raise InvalidInputError(
            f"The '--port' option must be a whole number from 0 to 65535. Got {shortened(port)} instead."
        )
    values, ask = EXAMPLE, "noise_multiplier"
    if plan is not None:
        loaded = Plan.load(plan)
        values = loaded.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
        if loaded.strategy.kind == "custom":
            raise InvalidInputError(
                "The 'strategy.kind' field must not be 'custom' for 'hockeystick explore', which opens no other files."
            )
        ask = "epsilon" if loaded.mechanism().noise_multiplier is not None and loaded.target.epsilon is None else ask
    try:
        from hockeystick.explorer.server import serve
    except ImportError:
        raise UnsupportedError(f"The explorer needs starlette and uvicorn; {install('explore')}.") from None

    def announce(address: str) -> None:
        common.emit(address)
        common.say("open this address in a browser on this machine; Ctrl-C stops")

    serve({"plan": values, "ask": ask}, int(number), announce)
    common.say("stopped")
