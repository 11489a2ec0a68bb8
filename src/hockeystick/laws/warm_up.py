"""Compiling the kernels ahead of a measured computation."""

from hockeystick.laws.discretise import gaussian_law
from hockeystick.laws.grid import Resolution
from hockeystick.laws.operations import average, power
from hockeystick.types import Side


def compile_kernels() -> None:
    """Compile the kernels, or load them from the cache: seconds the first time on a machine, then tenths."""
    coarse = Resolution(nodes_per_unit=8, smallest_delta=1e-3)
    for side in Side:
        average(power(gaussian_law(1.0, 1.0, side, coarse), 2, coarse), 2, coarse)
