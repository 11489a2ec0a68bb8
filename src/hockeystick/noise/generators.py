"""Normal numbers of other libraries: where they end, and the delta that no run with them goes below.

A generator of N(0, 1) numbers in floating point has a largest and a smallest value. Noise plus one clipping norm takes
values beyond them, which noise alone never takes, so delta has a floor at every epsilon. The floor is a lower bound: it
can refuse a claim and proves none. What is missing between the two ends costs privacy too, and is not in it
(docs/theory/generators.md, which has the proofs).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, erfc, expm1, log, log1p, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import called, made_by
from hockeystick.misspelt import one_of

if TYPE_CHECKING:
    from hockeystick.mechanism import Mechanism

Chance = Callable[[float], float]
"""At least the chance of a number above t, as a function of t that falls."""

SINGLE, HALF, BRAIN, DOUBLE = 2.0**-16, 2.0**-8, 2.0**-6, 2.0**-40
"""Relative room for rounding, by type: for the formulas of a library, its products with the noise multiplier and the
clipping norm, and the sum with the gradients. Several times what was seen of each."""
SAFE = 1.0 - 1e-9
"""What the rounding of this module's own arithmetic may take off a lower bound."""
FIRST_CELLS = 4096
"""Cells of the uniform number of a radius that are summed one by one; larger blocks of them follow."""
BLOCK_GROWTH = 1.0 + 2.0**-9


@made_by('hs.noise.GENERATORS["jax-float32"]')
@dataclass(frozen=True)
class KnownGenerator:
    """The normal numbers that a library makes, in units of one standard deviation.

    Attributes:
        name: the library, perhaps the device, and the type.
        lowest, highest: all numbers lie between them, up to the relative ``rounding``.
        values: how many different numbers there are; None where nobody counted.
        established: how the ends were found, and with which versions.
        rounding: relative room for the rounding of the library and of the run.
        above, below: at least the chance of a number above t, and of one below -t.
    """

    name: str
    lowest: float
    highest: float
    values: int | None
    established: str
    rounding: float
    above: Chance
    below: Chance

    def leaves(self, shift: float) -> float:
        """At least the chance that a number leaves the interval between the ends when ``shift`` moves it.

        The shift moves it up or down, whichever end is nearer; it is in standard deviations. All roundings count
        against leaving.

        >>> 1.21e-5 < GENERATORS["jax-float32"].leaves(1.0) < 1.22e-5
        True
        """
        wide, narrow = 1.0 + self.rounding, 1.0 - self.rounding
        over = self.above((self.highest * wide - shift * narrow) / narrow)
        under = self.below((-self.lowest * wide - shift * narrow) / narrow)
        return max(over, under) * SAFE


@called('hs.noise.floor(run, "jax-float32")')
def floor(mechanism: "Mechanism", generator: str) -> float:
    """A lower bound on delta, at every epsilon, of a mechanism whose z comes from this generator.

    The example moves one coordinate of z by C_tt clipping norms at every step t that it is in; the bound is the chance
    that any of them leaves the interval between the ends, which the noise alone never does. It errs downward: a
    gradient that is spread over many coordinates usually shows more. 0 says nothing; it is the answer for trees, whose
    runs do not release every row of ``C x + z``.

    Args:
        mechanism: has a noise multiplier.
        generator: a key of ``GENERATORS``.

    Raises: InvalidInputError for a generator that is not known.
    Reference: docs/theory/generators.md, Theorems 1 and 2.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=1000), noise_multiplier=1.0)
    >>> 1.21e-4 < floor(run, "jax-float32") < 1.22e-4
    True
    """
    from hockeystick.mechanism import expect_mechanism  # not where generators are only listed

    expect_mechanism(mechanism)
    chance, sampler = _chance(mechanism, known(generator)), mechanism.sampler
    if sampler.independent_rate is not None:  # 1 - (1 - q p)^n
        return -expm1(sampler.steps * log1p(-sampler.independent_rate * chance)) * SAFE
    most = sampler.most_participations
    # 1 - (1 - p)^J is concave in J and 0 at 0, so on [0, most] it is at least its chord.
    return sampler.mean_participations / most * -expm1(most * log1p(-chance)) * SAFE


def floor_of_known_batches(mechanism: "Mechanism", generator: str) -> float:
    """The same bound for an adversary who knows the batches, and an example that is in as many as one can be."""
    return -expm1(mechanism.sampler.most_participations * log1p(-_chance(mechanism, known(generator)))) * SAFE


def known(name: str) -> KnownGenerator:
    """The generator of this name; raises InvalidInputError for one that is not known."""
    return GENERATORS[one_of("generator", name, GENERATORS, "argument")]


def _chance(mechanism: "Mechanism", generator: KnownGenerator) -> float:
    """At least the chance that one participation leaves the interval."""
    matrix = mechanism.matrix
    if matrix.rows != matrix.steps:
        return 0.0
    shift = float(matrix.diagonal_entries.min()) * (1.0 - matrix.rounding) / mechanism.sigma
    return generator.leaves(shift)


def _inverse(bits: int, gap: int) -> Chance:
    """Of ``sqrt(2) erfinv(u)`` for 2^bits equally likely u, which are 2^(1-bits) apart.

    Args:
        gap: from 1, in units of 2^(-1-bits), of the u nearest to it.
    """
    nearest, cell = gap * 2.0 ** (-1 - bits), 2.0 ** (1 - bits)

    def chance(t: float) -> float:
        room = erfc(max(t, 0.0) / sqrt(2.0)) * SAFE  # u > erf(t / sqrt 2) where 1 - u < room
        return max(ceil((room - nearest) / cell), 0) * 2.0**-bits

    return chance


@lru_cache(maxsize=8)
def _radii(bits: int, centre: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radii ``sqrt(-2 ln u)`` of u = (k - centre) / 2^bits, k = 1, 2, ..., and a share of all k for each.

    One by one first, then the smallest radius of a block stands for the block.
    """
    largest = 2.0**bits
    blocks = np.ceil(np.log(largest / FIRST_CELLS) / np.log(BLOCK_GROWTH))
    later = np.floor(FIRST_CELLS * BLOCK_GROWTH ** np.arange(1.0, blocks))
    last = np.concatenate([np.arange(1.0, FIRST_CELLS + 1.0), later[later > FIRST_CELLS], [largest]])
    radii = np.sqrt(np.maximum(-2.0 * np.log((last - centre) / largest), 0.0))
    return radii, np.diff(last, prepend=0.0) / largest


def _box_muller(bits: int, centre: float, angle: float) -> Chance:
    """Of ``r cos(a)`` and ``r sin(a)``, with the radii of :func:`_radii` and angles evenly around the circle.

    Args:
        angle: an arc of a share s of the circle holds at least the share ``s - angle`` of the angles.
    """

    def chance(t: float) -> float:
        radii, shares = _radii(bits, centre)
        reach = radii > max(t, 0.0)
        arcs = np.arccos(max(t, 0.0) / radii[reach]) / pi
        return float(shares[reach] @ np.maximum(arcs - angle, 0.0))

    return chance


def _halved_sum_of_four(chance: Chance) -> Chance:
    """Of half the sum of four numbers, which is above t where each of the four is above t / 2."""
    return lambda t: chance(t / 2.0) ** 4


def _jax(name: str, bits: int, ends: tuple[float, float], rounding: float, how: str) -> KnownGenerator:
    values = None if bits > 23 else 1 << bits
    return KnownGenerator(f"jax-{name}", *ends, values, how, rounding, _inverse(bits, 3), _inverse(bits, 1))


def _symmetric(name: str, end: float, how: str, rounding: float, chance: Chance) -> KnownGenerator:
    return KnownGenerator(name, -end, end, None, how, rounding, chance, chance)


_ENUMERATED = "sqrt(2) erfinv(u) for a grid of u, all enumerated on jax 0.10.2, on a CPU"
_OF_16 = (
    "contiguous tensors of 16 numbers or more: Box-Muller, both uniform numbers of {} bits; the numbers of torch 2.13 "
    "compared with its uniform ones"
)
_SMALL = (
    "tensors of fewer than 16 numbers, or with gaps: Box-Muller in float64, then rounded; the numbers of torch 2.13 "
    "compared with its uniform ones"
)
_ROUNDED = "the float32 numbers of the device rounded to the type, compared bit for bit on torch {}"
_CURAND = "Box-Muller, both uniform numbers of 32 bits (cuRAND); 1.6e12 draws of torch 2.11 on an H100 reached 6.76365"
_SECURE = "half the sum of four float32 numbers of the device; read in Opacus 1.6.0"
_CPU, _CPU_END = _box_muller(24, 0.0, 2.0**-24), sqrt(48.0 * log(2.0))
_CUDA, _CUDA_END = _box_muller(32, 0.5, 2.0**-22), sqrt(66.0 * log(2.0))
_WIDE, _WIDE_END = _box_muller(53, 0.0, 2.0**-50), sqrt(106.0 * log(2.0))

GENERATORS: dict[str, KnownGenerator] = {
    generator.name: generator
    for generator in (
        _jax("float32", 23, (-5.419983174916868, 5.220113060600541), SINGLE, _ENUMERATED),
        _jax("float16", 10, (-3.487104104114431, 3.181559608735369), HALF, _ENUMERATED),
        _jax("bfloat16", 7, (-2.885634912426757, 2.5205022171903596), BRAIN, _ENUMERATED),
        _jax("float64", 52, (-8.292361075813596, 8.160707840858583), DOUBLE, "the same, its ends on jax 0.10.2"),
        _symmetric("torch-cpu-float32", _CPU_END, _OF_16.format(24), SINGLE, _CPU),
        _symmetric("torch-cpu-float16", _CPU_END, _ROUNDED.format("2.13"), HALF, _CPU),
        _symmetric("torch-cpu-bfloat16", _CPU_END, _ROUNDED.format("2.13"), BRAIN, _CPU),
        _symmetric("torch-cpu-float64", _WIDE_END, _OF_16.format(53), DOUBLE, _WIDE),
        _symmetric("torch-cpu-small", _WIDE_END, _SMALL, SINGLE, _WIDE),
        _symmetric("torch-cuda-float32", _CUDA_END, _CURAND, SINGLE, _CUDA),
        _symmetric("torch-cuda-float16", _CUDA_END, _ROUNDED.format("2.11"), HALF, _CUDA),
        _symmetric("torch-cuda-bfloat16", _CUDA_END, _ROUNDED.format("2.11"), BRAIN, _CUDA),
        _symmetric("opacus-secure-cpu", 2.0 * _CPU_END, _SECURE, SINGLE, _halved_sum_of_four(_CPU)),
        _symmetric("opacus-secure-cuda", 2.0 * _CUDA_END, _SECURE, SINGLE, _halved_sum_of_four(_CUDA)),
    )
}
"""The generators that are known, by name: the library, the device where it matters, and the type."""
