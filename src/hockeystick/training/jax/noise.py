"""The noise of a run as a transformation of optax."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.noise import MappedFile, Memory, Replay
from hockeystick.training.exact_sums import steps_within
from hockeystick.training.jax.exact import check_whole, length_of, off_the_grid, refuse_traced
from hockeystick.training.record import SLACK
from hockeystick.training.run import Run

WIDE = (np.dtype(np.float32), np.dtype(np.float64))
"""The types in which sums of clipped gradients are known to a rounding that is nothing beside the noise."""


class NoiseState(NamedTuple):
    """What optax carries from step to step: the number of the step that comes next.

    The noise itself is in the run, which is saved beside this; see :meth:`hockeystick.training.Run.state_dict`.
    """

    step: Any


class Noise(optax.GradientTransformationExtraArgs):
    """Adds rows of ``C^{-1} z``, times the clipping norm, to sums of clipped gradients; one step of the run an update.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    >>> params = {"weights": jnp.zeros((4, 2)), "bias": jnp.zeros(2)}
    >>> noise = Noise.of(mechanism, params, clip_norm=1.0, num_examples=100)
    >>> optimizer = optax.chain(noise, optax.scale(1 / noise.run.expected_batch_size), optax.sgd(0.1))
    >>> state = optimizer.init(params)
    >>> for batch in noise.run.batches():
    ...     total = jax.tree.map(jnp.zeros_like, params)  # the sum of the clipped gradients of this batch
    ...     updates, state = optimizer.update(total, state, params, examples=batch)
    ...     params = optax.apply_updates(params, updates)

    The numbers are those of :class:`hockeystick.training.Run` in numpy and of :class:`hockeystick.torch.Noise` for the
    same seed or state, bit for bit: one row over all leaves in the order of ``jax.tree.leaves``. They are made on the
    host, in the type of the run, and added in that type, or the wider one of the leaf. Sums are float32 or float64,
    whatever the type of the parameters, to which ``optax.apply_updates`` rounds the noisy ones: where a sum was rounded
    to a narrower type before, one example can change the rounding by many clipping norms.

    ``update`` is not a pure function, as noise must not be given out twice. It works in and under ``jax.jit``, on
    sharded arrays too, and in ``jax.lax.scan``: there it is an ordered callback to the host, so every execution takes a
    step, and tracing or compiling takes none. An update with a state that is not at the run's next step is refused, so
    a step cannot be executed again, from an older state, with new noise or the old. Under jit an error of the run
    arrives as JAX's runtime error with our sentence at its end, and nothing is released; on a GPU JAX raises it again
    until :func:`hockeystick.jax.recover` is called. Functions that are mapped, by ``jax.vmap``, ``jax.shard_map`` or
    ``jax.pmap``, are refused: one row would be added to several sums.

    Where the mechanism is exact, sums are whole numbers instead, numpy arrays of int64, as ``clipped_grad`` of an
    execution plan and :func:`hockeystick.training.exact_sum` give them for ``steps`` grid steps in a clipping norm.
    The noise is added in whole numbers, outside of compiled functions, and the result leaves in float32, divided.

    Args:
        run: has noise.
        clip_norm: to which the gradient of each example was clipped, over all leaves together.
        divisor: by which the sum was divided already; a public number. Whole numbers are divided by it here.
        rho: of exact noise, by how much of the clipping norm the whole numbers of all other examples may change with
            one of them; see :func:`hockeystick.training.steps_within`.

    Attributes:
        steps: grid steps in a clipping norm; None for noise in floating point.

    Raises: InvalidInputError for a run without noise, a clipping norm or divisor that is not a positive number, and
    float64 noise while ``jax_enable_x64`` is off; UnsupportedError where JAX runs in several processes, and for a run
    whose rows are not on the host. Of ``init`` and ``update``: InvalidInputError for other parameters
    than the run has noise for, a state that is not at the next step, and a sum over nobody knows which examples;
    UnsupportedError in ``jax.shard_map`` and ``jax.pmap``, and of ``update`` for sums in narrower types than float32,
    and for exact noise in a compiled function, or sums that are no whole numbers;
    ViolationError for sums that are longer than the clipping norms of their examples together, or not finite; and as
    :meth:`hockeystick.training.Run.noise`.
    """

    run: Run
    steps: int | None
    _rows: "_Rows"

    @called("hs.jax.Noise(run, clip_norm=1.0)")
    def __new__(cls, run: Run, *, clip_norm: float, divisor: float = 1.0, rho: float | None = None) -> "Noise":
        if not isinstance(run, Run):
            raise InvalidInputError(f"The 'run' argument must be a Run. Got an object of type {type(run).__name__!r}.")
        if run.dtype is None:
            raise InvalidInputError("The 'run' argument must be a run with noise; this one has shape=None.")
        if rho is not None and run.norm_steps is None:
            raise InvalidInputError("The 'rho' argument is for exact noise; leave it out.")
        steps = None if run.norm_steps is None else steps_within(run.norm_steps, 0.0 if rho is None else rho)
        if run.dtype == np.float64 and not jax.config.jax_enable_x64:
            raise InvalidInputError(
                "Noise in float64 needs JAX's 64-bit mode: call jax.config.update('jax_enable_x64', True), or make the "
                "run with dtype=numpy.float32."
            )
        if not isinstance(run._rows, Memory | MappedFile | Replay | None):
            raise UnsupportedError(
                "Noise for JAX comes from the host, so the 'rows' of its run must be Memory, MappedFile or Replay of "
                f"hockeystick.noise. Got an object of type {type(run._rows).__name__!r}."
            )
        if jax.process_count() > 1:
            raise UnsupportedError(
                "Noise for JAX is for one process: several would each have a run with batches and noise of its own. "
                f"Got {jax.process_count()} processes."
            )
        scale = positive("clip_norm", clip_norm) / positive("divisor", divisor)
        rows = _Rows(run)

        def init(params: Any) -> NoiseState:
            rows.check(jax.tree.leaves(params))
            return NoiseState(step=jnp.asarray(run.step, jnp.int32))

        def update(
            updates: Any, state: NoiseState, params: Any = None, *, examples: Any = None, **others: Any
        ) -> tuple[Any, NoiseState]:
            del params, others
            leaves, structure = jax.tree.flatten(updates)
            if steps is not None:
                parts = rows.take_whole(leaves, steps, state, examples)
                sums = [off_the_grid(leaf, part, scale / steps) for leaf, part in zip(leaves, parts, strict=True)]
                return jax.tree.unflatten(structure, sums), NoiseState(step=state.step + 1)
            rows.check(leaves)
            check_wide(leaves)
            parts = rows.take(leaves, scale, state, examples)
            noisy = [_sum(leaf, part, scale) for leaf, part in zip(leaves, parts, strict=True)]
            return jax.tree.unflatten(structure, noisy), NoiseState(step=state.step + 1)

        made: Noise = super().__new__(cls, init, update)
        made.run, made.steps = run, steps
        made._rows = rows
        return made

    @classmethod
    @called("hs.jax.Noise.of(run, params, clip_norm=1.0, num_examples=50_000)")
    def of(
        cls,
        mechanism: Mechanism,
        params: Any,
        *,
        clip_norm: float,
        divisor: float = 1.0,
        rho: float | None = None,
        **options: Any,
    ) -> "Noise":
        """The noise of a new run of ``mechanism``; ``options`` are those of :class:`hockeystick.training.Run`.

        Args:
            mechanism: has a noise multiplier.
            params: a tree of arrays, or of anything with their shapes.
            clip_norm, divisor, rho: as for the class.
        """
        return cls(Run(mechanism, shape=size_of(params), **options), clip_norm=clip_norm, divisor=divisor, rho=rho)

    def counted(self, number: int) -> None:
        """Say on the host that so many examples are in the sum of the next step; sums in parts add up.

        For gradient functions that know it; ``update`` need not be told then.
        """
        self._rows.counted(number)


class _Rows:
    """The rows of a run, cut into the shapes of leaves, inside and outside of compiled functions."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._count: tuple[tuple[int, int], int] | None = None
        """The step, after so many resumes, and the examples that were counted for it."""

    def check(self, leaves: Sequence[Any]) -> None:
        """Raise InvalidInputError unless these are real and as many numbers as the run has noise for."""
        if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
            raise InvalidInputError("Every leaf of the parameters must be an array of real floating-point numbers.")
        if size_of(leaves) != self.run.size:
            raise InvalidInputError(
                f"The parameters must have {self.run.size} numbers, as the run's noise. Got {size_of(leaves)} instead."
            )

    @property
    def count(self) -> int | None:
        """Examples in the sum of the next step, as far as they were counted; None before any were."""
        return None if self._count is None or self._count[0] != self._at() else self._count[1]

    def _at(self) -> tuple[int, int]:
        return (self.run.resumed, self.run.step)

    def counted(self, number: int) -> None:
        """Count examples of the next step."""
        self._count = (self._at(), (self.count or 0) + number)

    def take(self, leaves: Sequence[Any], scale: float, state: NoiseState, examples: Any) -> Sequence[Any]:
        """The next row in the shapes of the leaves, by a callback where something is traced.

        Args:
            scale: the clipping norm in units of the leaves.
        """
        shapes = [leaf.shape for leaf in leaves]
        told = () if examples is None else (examples,)
        refuse_mapped()
        # Of every leaf, so that jax.vmap over any of them, which would share one row, finds the callback too.
        length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf / scale)) for leaf in leaves))
        # Under jit a new array is traced even where all of ours are constants, whose noise must not become one.
        if not any(isinstance(array, jax.core.Tracer) for array in (jnp.zeros(()), state.step, *told, *leaves)):
            jax.effects_barrier()  # what earlier functions counted has arrived
            return self._next(shapes, True, length, state.step, *told)
        parts = [jax.ShapeDtypeStruct(shape, self.run.dtype) for shape in shapes]
        copy = jax.default_backend() != "cpu"  # which copies what a callback gives before it goes on
        callback = partial(self._next, shapes, copy)
        taken: Sequence[Any] = io_callback(callback, parts, length, state.step, *told, ordered=True)
        return taken

    def take_whole(self, leaves: Sequence[Any], steps: int, state: NoiseState, examples: Any) -> Sequence[Any]:
        """The next row of exact noise in the shapes of whole sums, in units of which a clipping norm has ``steps``."""
        refuse_traced([leaves, state, examples], "update")
        check_whole(leaves, self.run.size)
        told = () if examples is None else (examples,)
        return self._next([leaf.shape for leaf in leaves], True, length_of(leaves, steps), state.step, *told)

    def _next(self, shapes: Sequence[tuple[int, ...]], copy: bool, length: Any, step: Any, *told: Any) -> list[Any]:
        """Take the step of the run, on the host; without a copy the row is good until the next step.

        Args:
            length: of the sums together, in clipping norms.
        """
        run, at, counted = self.run, int(step), self.count
        if at != run.step:
            raise InvalidInputError(
                f"The noise state is at step {at}, but the next step of the run is {run.step}; no step is taken twice "
                "or left out, so continue from the state that the last update returned, or load the run that was "
                "saved with this state."
            )
        examples: Any = counted if not told else _indices(told[0])
        if examples is None:
            raise InvalidInputError(
                "The 'examples' argument of update has to be given, the indices or the number of the examples in the "
                "sum, unless the sum is that of an execution plan's clipped_grad."
            )
        number = examples if isinstance(examples, int) else len(examples)
        if counted is not None and counted != number:
            run.violated("number_of_examples")
        if run.remaining and not float(length) <= number * (1.0 + SLACK):
            run.violated("clipping" if np.isfinite(float(length)) else "finite_gradients")
        row: Any = run.noise(examples, copy=copy)
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(row, ends), shapes, strict=True)]


def _indices(examples: Any) -> Any:
    """A number of examples, or their indices without the -1 that pads them; raises InvalidInputError for neither."""
    given = np.asarray(examples)
    if given.size and given.dtype.kind not in "iu":
        raise InvalidInputError(
            "The 'examples' argument must be a row of whole numbers, or one whole number. "
            f"Got {shortened(examples)} instead."
        )
    if given.ndim == 0:
        return int(given)
    return given[given != -1]


def _sum(leaf: Any, row: Any, scale: float) -> Any:
    """The leaf plus noise, made in the wider of their types."""
    wide = jnp.promote_types(leaf.dtype, row.dtype)
    return (leaf.astype(wide) + jnp.asarray(row, wide) * jnp.asarray(scale, wide)).astype(leaf.dtype)


def check_wide(leaves: Sequence[Any]) -> None:
    """Raise UnsupportedError for sums that were rounded by more than the noise covers."""
    for leaf in leaves:
        if leaf.dtype not in WIDE:
            raise UnsupportedError(
                f"Sums of gradients in {leaf.dtype} are rounded by more than the noise covers; sum in float32, "
                "whatever the type of the parameters."
            )


def refuse_mapped() -> None:
    """Raise UnsupportedError inside a function that JAX maps over devices."""
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise UnsupportedError(
            "A step of a run is for the whole sum of its batch, so it cannot be taken inside jax.shard_map or "
            "jax.pmap; sum over the devices first, and add the noise outside."
        )


def size_of(tree: Any) -> int:
    """Numbers in the leaves of a tree together; raises InvalidInputError where there are none."""
    size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))
    if size == 0:
        raise InvalidInputError("There must be at least one parameter. Got none.")
    return size


def positive(name: str, value: Any) -> float:
    """The value of an argument that has to be a positive number; raises InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < value < float("inf"):
        raise InvalidInputError(f"The {name!r} argument must be a positive number. Got {value!r} instead.")
    return float(value)
