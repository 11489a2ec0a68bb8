"""The noise of a run, step by step, from a mechanism and a source of random numbers."""

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism, expect_mechanism
from hockeystick.noise.draws import Draws
from hockeystick.noise.exact.grid import grid_of
from hockeystick.noise.normals import SOURCES, KeyedSource, NormalSource, SeededSource
from hockeystick.noise.registry import exact_solver, streaming_solver
from hockeystick.noise.rows import MAX_BYTES, Memory, Rows
from hockeystick.noise.solver import Allocate, Dtype, Reals, StreamingSolver
from hockeystick.spec import expect_kind, real_number

DTYPES: dict[str, Dtype] = {"float32": np.float32, "float64": np.float64, "int32": np.int32}
FORMAT = 5
"""Version of the layout of states."""
Part = Sequence[tuple[int, int]] | None
"""Ranges of the flat numbers of a shape; None for all of them."""


@made_by("hs.noise.stream(run, shape=(10,), rng=rng)")
class NoiseStream:
    """Rows of ``C^{-1} z`` for ``z ~ N(0, noise_multiplier^2)``, in clipping norms: multiply by the clipping norm.

    Made by :func:`stream`, or by :meth:`from_state` from a checkpoint. Add the noise of step t, times the clipping
    norm, to the *sum* of the clipped gradients of batch t, for every step, batches without examples included.

    Guarantee: in exact arithmetic C times these rows is white (of a tree, the rows are the left inverse applied to
    white noise). The solvers and ``hockeystick.noise.normals`` state the errors of floating point. Of an exact
    mechanism the rows are whole numbers of grid steps instead, of type int32, and what a run releases with them is a
    rounding of the real mechanism's output, without any error (docs/theory/exact-noise.md).

    Cost: O(bands) operations a parameter and step, and memory for about 5/4 bands arrays of the parameters' size
    (solvers of other structures say theirs). It uses as many threads as ``OMP_NUM_THREADS`` says, or one for each core.
    The same seed, shape and type give the same noise on the same machine, whatever the threads and wherever the rows.
    """

    def __init__(
        self, mechanism: Mechanism, shape: tuple[int, ...], dtype: str, source: NormalSource, rows: Rows, part: Part
    ) -> None:
        self._matrix = mechanism.matrix
        self._fingerprint = _fingerprint(mechanism)
        self._held = mechanism.held_state
        self._whole = shape
        width = math.prod(shape)
        self._given_part = part
        self._part = _checked_part(part, width)
        self._shape = shape if part is None else (sum(stop - start for start, stop in self._part),)
        self._grid = grid_of(self._matrix, mechanism.sigma, width) if mechanism.exact else None
        self._dtype = DTYPES[dtype]
        self._source = source
        self._draws = Draws(source, mechanism.sigma if self._grid is None else self._grid.scale, width, self._part)
        self._steps = self._matrix.steps

        def make(size: int, allocate: Allocate) -> StreamingSolver:
            if self._grid is not None:
                return exact_solver(self._matrix, grid=self._grid, size=size, allocate=allocate)
            return streaming_solver(self._matrix, size=size, dtype=self._dtype, allocate=allocate)

        self._rows = rows.hold(make, math.prod(self._shape))
        self._step = 0
        self._process = os.getpid()

    @property
    def step(self) -> int:
        """The step that comes next, which is the number of steps given out."""
        return self._step

    @property
    def steps(self) -> int:
        """The planned steps."""
        return self._steps

    @property
    def remaining(self) -> int:
        """Steps still to come."""
        return self.steps - self._step

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a step's noise; of a part of it, one length."""
        return self._shape

    @property
    def part(self) -> tuple[tuple[int, int], ...]:
        """The ranges of the whole noise's flat numbers that it makes; of all of it, one range."""
        return tuple(self._part)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a step's noise."""
        return np.dtype(self._dtype)

    @property
    def grid(self) -> float | None:
        """Of exact noise, one grid step in clipping norms, a power of two: ``next()`` gives whole numbers of them."""
        return None if self._grid is None else self._grid.step

    @property
    def source(self) -> str:
        """The kind of its source of random numbers: ``seeded`` or ``keyed``."""
        return self._source.kind

    @property
    def nbytes(self) -> int:
        """Bytes kept between steps."""
        return self._rows.nbytes

    def next(self, out: Reals | None = None, *, copy: bool = True) -> Reals:
        """The noise of the next step, shape ``shape``, in clipping norms; exact noise, in grid steps.

        Args:
            out: where to write it (of that shape and type, contiguous), to spare an allocation.
            copy: False, without ``out``, for the stream's own row where it keeps one: good until the next step, and
                whoever writes to it changes the noise of later steps.

        Raises: InvalidInputError after the last planned step, for an ``out`` that does not fit, and in a fork of the
        process that made the stream: both would give out the same noise, and share the rows of a mapped file.
        """
        if os.getpid() != self._process:
            raise InvalidInputError(
                "A noise stream gives noise only in the process that made it, as a fork of that process would have "
                "the same noise; make it, or continue it from its state, in the process that trains."
            )
        if not self.remaining:
            raise InvalidInputError(
                f"The noise of all {self.steps} planned steps was used; a run of more steps needs a mechanism "
                "with more steps and a certificate of its own."
            )
        if out is None and copy:
            out = np.empty(self._shape, self._dtype)
        elif out is not None and not self._suits(out):
            raise InvalidInputError(
                f"The 'out' parameter must be a contiguous and writable array of shape {self._shape} and type "
                f"{self.dtype}."
            )
        row = self._rows.row(self._step, self._draws, None if out is None else out.reshape(-1))
        self._step += 1
        return row.reshape(self._shape) if out is None else out

    def _suits(self, out: object) -> bool:
        if not isinstance(out, np.ndarray) or (out.shape, out.dtype) != (self._shape, self.dtype):
            return False
        return out.flags.c_contiguous and out.flags.writeable

    def __iter__(self) -> Iterator[Reals]:
        """The noise of the remaining steps."""
        while self.remaining:
            yield self.next()

    def in_clipping_norms(self) -> Iterator[Reals]:
        """The noise of the remaining steps in clipping norms; exact noise in float64, which holds it without error."""
        for row in self:
            yield row if self._grid is None else row * self._grid.step

    def state(self) -> dict[str, Any]:
        """All that is needed to continue: arrays, integers and text, which ``np.savez(file, **state)`` takes.

        Secret: whoever reads it can take the noise off the releases, past and to come.
        """
        own = {
            "format": FORMAT,
            "mechanism": self._fingerprint,
            "matrix": self._matrix.digest,
            "shape": np.array(self._whole, dtype=np.int64),
            "part": np.array(self._given_part or (), dtype=np.int64).reshape(-1, 2),  # empty for all of it
            "dtype": self.dtype.name,
            "step": self._step,
            "source": self._source.kind,
        }
        if self._grid is not None:
            own["grid"] = self._grid.exponent
        own |= self._held()
        own |= _with_prefix("source", self._source.state()) | _with_prefix("solver", self._rows.state())
        return own | {"seal": _seal(own)}

    @classmethod
    def from_state(
        cls, mechanism: Mechanism, state: Mapping[str, Any], *, max_bytes: int = MAX_BYTES, rows: Rows | None = None
    ) -> "NoiseStream":
        """A stream that continues, bit for bit, where :meth:`state` was taken.

        Args:
            mechanism: the same as before.
            state: as :meth:`state` returned it, or as ``np.load`` reads it.
            max_bytes, rows: as for :func:`stream`; not necessarily those of before. To keep rows that were not in
                the state costs the noise of all steps so far.

        Where the mechanism leaves its matrix to an optimiser, the state's matrix is taken, which another machine or
        release may not find to the last digit.

        Raises: InvalidInputError for a state of another mechanism, for a matrix that differs in any bit, and for a
        state that is incomplete or inconsistent.
        """
        try:
            mechanism = _checked(mechanism, state)
            source = SOURCES[str(state["source"])].from_state(without_prefix("source", state))
            shape = _checked_shape(tuple(int(length) for length in np.asarray(state["shape"])))
            part = [(int(start), int(stop)) for start, stop in np.asarray(state["part"])] or None
            place = Memory(max_bytes) if rows is None else rows
            resumed = cls(mechanism, shape, _checked_dtype(str(state["dtype"]), mechanism.exact), source, place, part)
            if resumed._grid is not None and int(state["grid"]) != resumed._grid.exponent:
                raise InvalidInputError(
                    f"The 'grid' entry of a noise state must be {resumed._grid.exponent} for this mechanism and shape."
                )
            resumed._step = int(state["step"])
            if not 0 <= resumed._step <= resumed.steps:
                raise InvalidInputError(f"The 'step' entry of a noise state must be from 0 to {resumed.steps}.")
            resumed._rows.restore(resumed._step, resumed._draws, without_prefix("solver", state))
            if str(state["seal"]) != _seal(state):
                raise InvalidInputError(
                    "The noise state was altered, or put together from two of them: its seal does not match it."
                )
        except KeyError as error:
            raise InvalidInputError(f"The {error.args[0]!r} entry of a noise state is missing or not known.") from None
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"The noise state has an entry that no stream gives: {error}.") from None
        return resumed

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuses copies and pickles: both would give out the same noise, and the difference of two sums has none."""
        raise InvalidInputError(
            "A noise stream cannot be copied or pickled, as both would have the same noise; save its state()."
        )

    def __repr__(self) -> str:
        return f"NoiseStream(step={self.step}, steps={self.steps}, shape={self.shape}, dtype={self.dtype})"


@called("hs.noise.stream(run, shape=(10,), rng=rng)")
def stream(
    mechanism: Mechanism,
    shape: int | tuple[int, ...],
    *,
    rng: np.random.Generator | None = None,
    secure: bool = False,
    dtype: Any = np.float32,
    exact: bool | None = None,
    max_bytes: int = MAX_BYTES,
    rows: Rows | None = None,
    part: Part = None,
) -> NoiseStream:
    """The noise of a run of ``mechanism`` on parameters of this shape, from its first step.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=2), noise_multiplier=1.0)
    >>> noise = stream(run, (3, 4), rng=np.random.default_rng(0))
    >>> [step.shape for step in noise]
    [(3, 4), (3, 4)]

    Args:
        mechanism: has a noise multiplier.
        shape: of the parameters, all of them (flatten and join the parts of a model: one stream, not one for each).
        rng: gives the stream 256 bits to seed a generator of its own, so the same ``rng`` may also draw the batches.
            Repeatable, and not made to withstand an adversary.
        secure: take AES-256 in counter mode under a key of the operating system instead; not repeatable. Needs the
            ``cryptography`` package.
        dtype: float32 or float64; int32, whatever is said, for an exact mechanism.
        exact: whether the noise is in whole numbers of grid steps (``NoiseStream.grid``) with exactly the law that is
            accounted for; as the mechanism says, which must agree, where it is left out.
        max_bytes: refuse to keep more than that between steps in memory.
        rows: where the rows live that later steps need: ``Memory``, unless ``MappedFile`` or ``Replay`` of
            ``hockeystick.noise`` is given.
        part: ranges (start, stop) of the flat numbers, ascending: the stream then makes these columns of the whole
            noise alone, as one row, the same bits as without it. For parameters that several processes share out.

    Raises: InvalidInputError for a mechanism without noise multiplier, a bad shape or type, neither or both of
    ``rng`` and ``secure``, a ``rng`` that is not a Generator, too little memory, and a custom matrix too close
    to singular for ``dtype``; UnsupportedError where the structure of C has no streaming solver.
    """
    if secure == (rng is not None):
        raise InvalidInputError("Give either the 'rng' parameter or secure=True, so that noise has one stated source.")
    _check_exactness(mechanism, exact)
    check_options(mechanism.exact, rng=rng, secure=secure, dtype=dtype, max_bytes=max_bytes, rows=rows)
    shape, name = _checked_shape(shape), _checked_dtype(dtype, mechanism.exact)
    source = KeyedSource.from_operating_system() if rng is None else SeededSource.from_generator(rng)
    return NoiseStream(mechanism, shape, name, source, Memory(max_bytes) if rows is None else rows, part)


def check_options(exact: bool, *, rng: object, secure: bool, dtype: Any, max_bytes: Any, rows: object) -> None:
    """Refuse options that no noise has, before anything that takes long.

    Args:
        exact: whether the noise is in whole numbers.
        rng, secure, dtype, max_bytes, rows: as for :func:`stream`; neither ``rng`` nor ``secure`` need be given.
    """
    if rng is not None and secure:
        raise InvalidInputError("The 'rng' argument must not be given with secure=True, which seeds itself.")
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise InvalidInputError(
            "The 'rng' argument must be a numpy.random.Generator such as numpy.random.default_rng(seed). "
            f"Got an object of type {type(rng).__name__!r} instead."
        )
    _checked_dtype(dtype, exact)
    real_number("max_bytes", max_bytes)
    expect_kind("rows", rows, Rows, "a place for rows, such as hs.noise.Memory() or hs.noise.Replay()")


def _checked_shape(shape: object) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(lengths, tuple | list) or not all(
        isinstance(length, int | np.integer) and not isinstance(length, bool) and length >= 1 for length in lengths
    ):
        raise InvalidInputError(
            f"The 'shape' parameter must be a whole number of at least 1, or several. Got {shortened(shape)} instead."
        )
    return tuple(int(length) for length in lengths)


def _checked_part(part: Part, width: int) -> list[tuple[int, int]]:
    if part is None:
        return [(0, width)]
    ends = [0, *(end for pair in part for end in pair), width]
    if not part or any(a > b for a, b in pairwise(ends)) or any(start >= stop for start, stop in part):
        raise InvalidInputError(
            f"The 'part' parameter must be ascending, non-empty ranges within 0 and {width}. Got {shortened(part)}."
        )
    return [(int(start), int(stop)) for start, stop in part]


def _check_exactness(mechanism: Mechanism, exact: bool | None) -> None:
    """Refuse what is no mechanism, and noise of another kind than the one whose C it has, and is accounted for."""
    expect_mechanism(mechanism)
    if exact is None or exact is mechanism.exact:
        return
    if not isinstance(exact, bool):
        raise InvalidInputError(f"The 'exact' parameter must be True or False. Got {shortened(exact)} instead.")
    if exact:
        raise InvalidInputError(
            "The 'exact' parameter can be True only for a mechanism with exact=True, as exact noise belongs to a "
            "matrix of multiples of 2^-24, which must be the one that is accounted for."
        )
    raise InvalidInputError("The 'exact' parameter must be True, or left out, for a mechanism with exact=True.")


def _checked_dtype(dtype: Any, exact: bool) -> str:
    """The name of the type; whole numbers of 32 bits of an exact mechanism, which float32, the default, stands for."""
    try:
        name = str(np.dtype(dtype).name)
    except (TypeError, ValueError):
        name = ""
    if exact:
        if name not in ("float32", "int32") or dtype is None:
            raise InvalidInputError(
                f"The 'dtype' parameter must be int32, or left out, for an exact mechanism. Got {shortened(dtype)}."
            )
        return "int32"
    if name not in ("float32", "float64") or dtype is None:
        raise InvalidInputError(f"The 'dtype' parameter must be float32 or float64. Got {shortened(dtype)} instead.")
    return name


def _checked(mechanism: Mechanism, state: Mapping[str, Any]) -> Mechanism:
    """The mechanism with the state's matrix; refuses a state in another format, or of another mechanism or matrix."""
    if int(state["format"]) != FORMAT:
        raise InvalidInputError(
            f"The 'format' entry of a noise state must be {FORMAT}. Got {int(state['format'])} instead; finish the "
            "run with the release of hockeystick that saved it."
        )
    if str(state["mechanism"]) != _fingerprint(mechanism):
        raise InvalidInputError("The noise state belongs to another mechanism; resume with the one it was taken with.")
    mechanism = mechanism.with_held_state(state)
    if str(state["matrix"]) != mechanism.matrix.digest:
        raise InvalidInputError(
            "The noise state belongs to another matrix C than the mechanism's strategy gives here; resume with the "
            "strategy that it was taken with."
        )
    return mechanism


def _seal(state: Mapping[str, Any]) -> str:
    """SHA-256 over all that is counted or named in a state, its step above all; rows of noise are not looked through.

    It is no defence against somebody who can write states, but two steps that have the same noise have none together.
    """
    digest = hashlib.sha256()
    for name in sorted(state.keys() - {"seal"}):
        value = np.asarray(state[name])
        if value.dtype.kind != "f" and not (name.startswith("solver_") and value.ndim == 2):
            digest.update(f"{name}={value.tolist()!r};".encode())
    return digest.hexdigest()


def _fingerprint(mechanism: Mechanism) -> str:
    """Identifies the mechanism except for its strategy, which its matrix identifies."""
    return hashlib.sha256(mechanism.model_dump_json(exclude={"strategy"}).encode()).hexdigest()


def _with_prefix(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in state.items()}


def without_prefix(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a state whose names begin with this one, without it."""
    start = f"{name}_"
    return {key.removeprefix(start): state[key] for key in state if key.startswith(start)}
