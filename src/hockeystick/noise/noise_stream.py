"""The noise of a run, step by step, from a mechanism and a source of random numbers."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.noise.normals import SOURCES, KeyedSource, NormalSource, SeededSource
from hockeystick.noise.registry import streaming_solver
from hockeystick.noise.solver import MAX_BYTES, Reals

DTYPES: dict[str, type[np.float32] | type[np.float64]] = {"float32": np.float32, "float64": np.float64}
FORMAT = 2
"""Version of the layout of states."""


class NoiseStream:
    """Rows of ``C^{-1} z`` for ``z ~ N(0, noise_multiplier^2)``, in clipping norms: multiply by the clipping norm.

    Made by :func:`stream`, or by :meth:`from_state` from a checkpoint. Add the noise of step t, times the clipping
    norm, to the *sum* of the clipped gradients of batch t, for every step, batches without examples included.

    Guarantee: in exact arithmetic C times these rows is white (of a tree, the rows are the left inverse applied to
    white noise). The solvers and :class:`~hockeystick.noise.normals.NormalSource` state the errors of floating point.

    Cost: O(bands) operations a parameter and step, and memory for about 5/4 bands arrays of the parameters' size
    (solvers of other structures say theirs). The same seed, shape and type give the same noise on the same machine.
    """

    def __init__(
        self, mechanism: Mechanism, shape: tuple[int, ...], dtype: str, source: NormalSource, max_bytes: int
    ) -> None:
        self._sigma = mechanism.sigma
        self._matrix = mechanism.matrix
        self._fingerprint = _fingerprint(mechanism)
        self._shape = shape
        self._dtype = DTYPES[dtype]
        self._source = source
        self._solver = streaming_solver(self._matrix, size=math.prod(shape), dtype=self._dtype, max_bytes=max_bytes)
        self._step = 0

    @property
    def step(self) -> int:
        """The step that comes next, which is the number of steps given out."""
        return self._step

    @property
    def steps(self) -> int:
        """The planned steps."""
        return self._solver.steps

    @property
    def remaining(self) -> int:
        """Steps still to come."""
        return self.steps - self._step

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a step's noise."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a step's noise."""
        return np.dtype(self._dtype)

    @property
    def source(self) -> str:
        """The kind of its source of random numbers: ``seeded`` or ``keyed``."""
        return self._source.kind

    @property
    def nbytes(self) -> int:
        """Bytes kept between steps."""
        return self._solver.nbytes

    def next(self, out: Reals | None = None) -> Reals:
        """The noise of the next step, shape ``shape``, in clipping norms.

        Args:
            out: where to write it (of that shape and type, contiguous), to spare an allocation.

        Raises: InvalidInputError after the last planned step, and for an ``out`` that does not fit.
        """
        if not self.remaining:
            raise InvalidInputError(
                f"The noise of all {self.steps} planned steps was given out; a run of more steps needs a mechanism "
                "with more steps and a certificate of its own."
            )
        if out is None:
            out = np.empty(self._shape, self._dtype)
        elif not self._suits(out):
            raise InvalidInputError(
                f"The 'out' parameter must be a contiguous and writable array of shape {self._shape} and type "
                f"{self.dtype}."
            )
        if self._step == self._solver.step:
            self._solver.advance(lambda rows, _: self._source.fill(rows))
        rows = self._solver.solved()
        row = rows[self._step - self._solver.step]  # counted from the end of the block
        np.multiply(row, self._dtype(self._sigma), out=out.reshape(-1))
        self._step += 1
        return out

    def _suits(self, out: object) -> bool:
        if not isinstance(out, np.ndarray) or (out.shape, out.dtype) != (self._shape, self.dtype):
            return False
        return out.flags.c_contiguous and out.flags.writeable

    def __iter__(self) -> Iterator[Reals]:
        """The noise of the remaining steps."""
        while self.remaining:
            yield self.next()

    def state(self) -> dict[str, Any]:
        """All that is needed to continue: arrays, integers and text, which ``np.savez(file, **state)`` takes.

        Secret: whoever reads it can take the noise off the releases, past and to come.
        """
        own = {
            "format": FORMAT,
            "mechanism": self._fingerprint,
            "matrix": self._matrix.digest,
            "shape": np.array(self._shape, dtype=np.int64),
            "dtype": self.dtype.name,
            "step": self._step,
            "source": self._source.kind,
        }
        return own | _with_prefix("source", self._source.state()) | _with_prefix("solver", self._solver.state())

    @classmethod
    def from_state(cls, mechanism: Mechanism, state: Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> "NoiseStream":
        """A stream that continues, bit for bit, where :meth:`state` was taken.

        Args:
            mechanism: the same as before.
            state: as :meth:`state` returned it, or as ``np.load`` reads it.
            max_bytes: as for :func:`stream`.

        Raises: InvalidInputError for a state of another mechanism, for a matrix that differs in any bit (an optimised
        strategy may, on another machine or release: store the matrix itself, as a custom strategy, where that matters),
        and for a state that is incomplete or inconsistent.
        """
        try:
            _check(mechanism, state)
            source = SOURCES[str(state["source"])].from_state(_without_prefix("source", state))
            shape = tuple(int(length) for length in np.asarray(state["shape"]))
            resumed = cls(mechanism, _checked_shape(shape), _checked_dtype(str(state["dtype"])), source, max_bytes)
            resumed._solver.restore(_without_prefix("solver", state))
            resumed._step = int(state["step"])
        except KeyError as error:
            raise InvalidInputError(f"The {error.args[0]!r} entry of a noise state is missing or not known.") from None
        if not resumed._solver.step - resumed._solver.block_steps <= resumed._step <= resumed._solver.step:
            raise InvalidInputError("The 'step' entry of a noise state must be a step of the last block it holds.")
        return resumed

    def __repr__(self) -> str:
        return f"NoiseStream(step={self.step}, steps={self.steps}, shape={self.shape}, dtype={self.dtype})"


def stream(
    mechanism: Mechanism,
    shape: int | tuple[int, ...],
    *,
    rng: np.random.Generator | None = None,
    secure: bool = False,
    dtype: Any = np.float32,
    max_bytes: int = MAX_BYTES,
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
        dtype: float32 or float64.
        max_bytes: refuse to keep more than that between steps.

    Raises: InvalidInputError for a mechanism without noise multiplier, a bad shape or type, neither or both of
    ``rng`` and ``secure``, a ``rng`` that is not a Generator, too little memory, and a custom matrix too close
    to singular for ``dtype``; UnsupportedError where the structure of C has no streaming solver.
    """
    if secure == (rng is not None):
        raise InvalidInputError("Give either the 'rng' parameter or secure=True, so that noise has one stated source.")
    shape, name = _checked_shape(shape), _checked_dtype(dtype)
    source = KeyedSource.from_operating_system() if rng is None else SeededSource.from_generator(rng)
    return NoiseStream(mechanism, shape, name, source, max_bytes)


def _checked_shape(shape: object) -> tuple[int, ...]:
    lengths = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(lengths, tuple | list) or not all(
        isinstance(length, int | np.integer) and not isinstance(length, bool) and length >= 1 for length in lengths
    ):
        raise InvalidInputError(
            f"The 'shape' parameter must be a whole number of at least 1, or several. Got {shortened(shape)} instead."
        )
    return tuple(int(length) for length in lengths)


def _checked_dtype(dtype: Any) -> str:
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = ""
    if name not in DTYPES or dtype is None:
        raise InvalidInputError(f"The 'dtype' parameter must be float32 or float64. Got {shortened(dtype)} instead.")
    return name


def _check(mechanism: Mechanism, state: Mapping[str, Any]) -> None:
    """Refuse a state in another format, of another mechanism or of another matrix."""
    if int(state["format"]) != FORMAT:
        raise InvalidInputError(
            f"The 'format' entry of a noise state must be {FORMAT}. Got {int(state['format'])} instead."
        )
    if str(state["mechanism"]) != _fingerprint(mechanism):
        raise InvalidInputError("The noise state belongs to another mechanism; resume with the one it was taken with.")
    if str(state["matrix"]) != mechanism.matrix.digest:
        raise InvalidInputError(
            "The noise state belongs to another matrix C than the mechanism's strategy gives here; resume with the one "
            "that it was taken with (an optimised strategy may differ on another machine or release)."
        )


def _fingerprint(mechanism: Mechanism) -> str:
    """Identifies the mechanism except for its strategy, which its matrix identifies."""
    return hashlib.sha256(mechanism.model_dump_json(exclude={"strategy"}).encode()).hexdigest()


def _with_prefix(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in state.items()}


def _without_prefix(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{name}_"
    return {key.removeprefix(start): state[key] for key in state if key.startswith(start)}
