"""What ``hockeystick show --parameters`` says of the noise of a plan."""

from dataclasses import asdict
from typing import Any

from hockeystick.errors import counted
from hockeystick.noise.cost import NoiseCost

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def noise_text(cost: NoiseCost) -> str:
    """Memory for each place of the rows, and time, in lines."""
    single, double = (_size(cost.bytes[name]) for name in ("float32", "float64"))
    measured = "" if cost.measured == cost.parameters else f" for {cost.measured:,} of them"
    rows = [
        (
            "in memory",
            f"{single} in float32 or {double} in float64, kept between steps; each of R processes keeps 1/R of it",
        ),
        ("in a file", "the same, on disk"),
        ("replayed", f"no memory, but {cost.replay_rows:.6g} times as many random numbers on average"),
        (
            "time of a step",
            f"{cost.seconds:.2g} s in float32 from memory, measured here{measured}, "
            f"with {counted(cost.threads, 'thread')}",
        ),
    ]
    return "\n".join([f"noise of {cost.parameters:,} parameters", *(f"  {name:<16}{value}" for name, value in rows)])


def noise_json(cost: NoiseCost) -> dict[str, Any]:
    """The ``noise_cost`` of ``show --json``: bytes by place and type, the factor of replay, and measured seconds."""
    measured = asdict(cost)
    kept = measured.pop("bytes")
    return measured | {"bytes": {"memory": kept, "file": kept, "replay": dict.fromkeys(kept, 0)}}


def _size(count: int) -> str:
    """Three digits and a unit of a thousand."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000.0, unit + 1
    return f"{value:.3g} {UNITS[unit]}"
