"""Whether the kernels can make the noise of a run, and why not."""

import os
from importlib.util import find_spec

from hockeystick.noise.normals import SeededSource


def reason_against(device: str, source: str) -> str | None:
    """Why the processor has to draw the numbers; None where the device can.

    Args:
        device: the type of a device of torch, ``"cuda"`` say.
        source: the kind of the source of random numbers, as ``NoiseStream.source`` says it.
    """
    if source != SeededSource.kind:
        return (
            f"There are kernels for the numbers of a {SeededSource.kind} source alone; those of a {source} one are AES."
        )
    if find_spec("triton") is None:
        return "The package 'triton' is not installed; it comes with torch for CUDA."
    if device != "cuda" and not interpreted():
        return f"Kernels are for devices of type 'cuda'; this one is of type {device!r}."
    return None


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on tensors of any device: as tests do, and far too slowly."""
    return os.environ.get("TRITON_INTERPRET") == "1"
