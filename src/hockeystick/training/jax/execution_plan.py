"""JAX Privacy's execution plan for a plan: its batches, its noise, its divisor, and the certificate of what was run."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax_privacy.clipping import BoundedSensitivityCallable, clipped_grad

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise.noise_stream import check_options
from hockeystick.noise.rows import MAX_BYTES, Rows
from hockeystick.plan import Plan
from hockeystick.samplers import Attribution
from hockeystick.training.engine import Engine
from hockeystick.training.exact_sums import rows_of
from hockeystick.training.invariance import Invariance
from hockeystick.training.jax.accountant import MechanismDpEvent, relation_of
from hockeystick.training.jax.arguments import check_shared, positions_of
from hockeystick.training.jax.batches import BatchSampler
from hockeystick.training.jax.checkpoint import load_tree, save_tree
from hockeystick.training.jax.exact import ExactGradient
from hockeystick.training.jax.invariance import check_invariance
from hockeystick.training.jax.noise import WIDE, Noise, positive, refuse_mapped, size_of
from hockeystick.training.run import Run

try:
    from jax_privacy.execution_plan import DPExecutionPlan  # where versions after 2.0 have it
except ImportError:
    from jax_privacy.experimental.execution_plan import DPExecutionPlan

PLANNED = ("l2_clip_norm", "normalize_by", "rescale_to_unit_norm", "nan_safe")
"""Options of JAX Privacy's ``clipped_grad`` that decide what the noise has to hide; the plan sets them."""

PLAIN = ("argnums", "keep_batch_dim")
"""Options that it has for whole numbers too."""
SHORTEST = 2.0**-50
"""The smallest clipping norm, for one parameter; for more, times the root of their number. Squares below 2^-126 are 0
in float32, which makes the squared norm of n numbers short by n 2^-126 at most: 2^-26 of the square of this norm."""
ROOM = 2.0**-20
"""The part of the clipping norm that is left to the rounding of norms, factors and products in float32."""


class ExecutionPlanConfig(Engine):
    """Takes the place of JAX Privacy's ``BandMFExecutionPlanConfig``; loops over its execution plan stay as they are.

    >>> import hockeystick as hs
    >>> x, y = np.ones((60, 4), np.float32), np.zeros(60, np.float32)
    >>> params = jnp.zeros(4)
    >>> mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=6, epochs=2), noise_multiplier=2.0)
    >>> config = ExecutionPlanConfig(mechanism, params=params, l2_clip_norm=1.0, num_examples=60)
    >>> plan = config.make()
    >>> gradient = plan.clipped_grad(lambda w, x, y: jnp.mean((x @ w - y) ** 2), batch_argnums=(1, 2))
    >>> state = plan.noise_addition_transform.init(params)
    >>> for batch in plan.batch_selection_strategy.batch_iterator(60):
    ...     mean, state = plan.noise_addition_transform.update(gradient(params, x[batch], y[batch]), state)
    ...     params = params - 0.1 * mean
    >>> config.certificate(delta=1e-5).epsilon.upper < 6.0
    True

    The plan's parts belong together. ``batch_selection_strategy`` gives the batches of the plan's sampler, empty ones
    included. ``clipped_grad`` is JAX Privacy's, of the sum of clipped gradients over the plan's expected batch size: a
    public number, whatever the size of the batch. It tells the run how many examples that are no padding it summed,
    and takes batches without examples, which JAX Privacy's refuses outside of jit. It sums in float32, or in float64
    where its ``dtype`` says so, and refuses narrower types: in bfloat16 the rounding of a sum of many coordinates can
    move by many clipping norms when one example is taken away. It clips to a millionth less than the noise is for, as
    JAX Privacy leaves no room for rounding. ``noise_addition_transform`` is :class:`Noise`, at the
    same scale. ``dp_event`` names the mechanism, which :class:`Accountant` answers for and other accountants refuse.

    Where the plan's noise is exact, ``clipped_grad`` gives whole numbers of a proved norm in numpy arrays of int64
    (``docs/theory/exact-sums.md``), which sums of several calls stay, and the noise makes float32 of them. Both then
    work outside of ``jax.jit``; the gradients of a physical batch, filled up with zeros, are compiled by themselves.

    There is one run, however many plans are made. What ``clipped_grad`` returns beside the gradient, losses and norms
    of examples, is private, and no certificate covers it.

    Args:
        plan: a Plan or a Mechanism with a noise multiplier.
        params: the parameters that are trained, or anything with their shapes.
        l2_clip_norm: to which the gradient of each example is clipped, over all leaves together; at least 2^-50 times
            the root of the number of parameters, as shorter gradients have norms of 0 in float32.
        num_examples: size of the dataset, where the plan does not say it.
        rng: seeds batches and noise; None for a fresh seed of the operating system.
        secure_mode: take the noise from AES-256 under a key of the operating system.
        dtype: of the noise, ``numpy.float32`` or ``numpy.float64``, whatever the type of the parameters.
        attribution: of the examples to users, where the sampler has users.
        max_bytes, rows: as for :func:`hockeystick.noise.stream`, which says where the noise keeps its rows.
        physical_batch_size: of exact noise, the examples whose gradients are computed at a time; by default the batch
            size where it is fixed, else a quarter of the expected one, up to the next multiple of 32.
        rho: as for :class:`Noise`, where the noise is exact.
        invariance: of the loss at that size, from :func:`hockeystick.jax.invariance`, for the record of exact noise.

    Raises: InvalidInputError for what is neither a Plan nor a Mechanism, for one without noise multiplier or size of
    the dataset, for another size than the plan's, for an audit of something else, and for what :class:`Noise` and the
    run refuse; UnsupportedError for an audit that saw changes.
    """

    @called("hs.jax.ExecutionPlanConfig(run, params=params, l2_clip_norm=1.0, num_examples=50_000)")
    def __init__(
        self,
        plan: Plan | Mechanism,
        *,
        params: Any,
        l2_clip_norm: float,
        num_examples: int | None = None,
        rng: np.random.Generator | None = None,
        secure_mode: bool = False,
        dtype: Any = np.float32,
        attribution: Attribution | None = None,
        max_bytes: int = MAX_BYTES,
        rows: Rows | None = None,
        physical_batch_size: int | None = None,
        rho: float | None = None,
        invariance: Invariance | None = None,
    ) -> None:
        super().__init__(plan)
        noise = {"rng": rng, "secure": secure_mode, "dtype": dtype, "max_bytes": max_bytes, "rows": rows}
        check_options(self.mechanism.exact, **noise)
        self._rho, self._audit = rho, invariance
        for name, value in (("physical_batch_size", physical_batch_size), ("invariance", invariance)):
            if value is not None and not self.mechanism.exact:
                raise InvalidInputError(f"The {name!r} argument is for exact noise; leave it out.")
        self.l2_clip_norm = positive("l2_clip_norm", l2_clip_norm)
        size, shape = self._size(num_examples), size_of(params)
        if not self.mechanism.exact and self.l2_clip_norm < SHORTEST * shape**0.5:
            raise InvalidInputError(
                f"The 'l2_clip_norm' argument must be at least {SHORTEST * shape**0.5:.3g} for {shape} parameters, as "
                f"squares of float32 numbers end at 1e-38. Got {self.l2_clip_norm!r} instead."
            )
        self.physical_batch_size = rows_of(physical_batch_size, self.mechanism.sampler.promises(size, attribution), 1)
        check_invariance(invariance, self.physical_batch_size, rho)
        self._settle()  # may take long, so what can be wrong comes before
        run = Run(
            self.mechanism,
            num_examples=size,
            shape=shape,
            attribution=attribution,
            **noise,
        )
        self._run = run
        self._batches = BatchSampler(run)
        self._noise = Noise(run, clip_norm=self.l2_clip_norm, divisor=run.expected_batch_size, rho=rho)

    @property
    def rho(self) -> float | None:
        """The number that was given."""
        return self._rho

    @property
    def also_checked(self) -> tuple[str, ...]:
        """What an audit looked at."""
        return () if self._audit is None else ("invariance_audited",)

    def _size(self, given: int | None) -> int:
        planned = self._num_examples
        if given is None and planned is None:
            raise InvalidInputError("The 'num_examples' argument has to be given, as the plan does not state it.")
        if None not in (given, planned) and given != planned:
            raise InvalidInputError(
                f"The 'num_examples' argument must be the plan's {planned}, or be left out. Got {given!r} instead."
            )
        size: Any = planned if given is None else given
        return int(size)

    def make(self, performance_flags: Any = None) -> DPExecutionPlan:
        """The execution plan of the run.

        Args:
            performance_flags: those that versions of JAX Privacy after 2.0 have, for ``clipped_grad``.

        Raises: InvalidInputError for flags with a noise seed, which the run has.
        """
        if getattr(performance_flags, "noise_seed", None) is not None:
            raise InvalidInputError(
                "The 'noise_seed' performance flag must be left out; the rng of the config seeds the noise."
            )
        flags = ("microbatch_size", "spmd_axis_name", "keep_batch_dim", "dtype")
        options = {name: getattr(performance_flags, name) for name in flags if hasattr(performance_flags, name)}
        parts = {
            "clipped_grad": functools.wraps(clipped_grad)(functools.partial(self._clipped_grad, options)),
            "batch_selection_strategy": self._batches,
            "noise_addition_transform": self._noise,
            "dp_event": MechanismDpEvent(self.mechanism.pinned()),
            "neighboring_relation": relation_of(self.mechanism),
        }
        known = {field.name for field in dataclasses.fields(DPExecutionPlan)}  # 2.0 has no neighboring_relation
        return DPExecutionPlan(**{name: part for name, part in parts.items() if name in known})

    def _clipped_grad(
        self, defaults: dict[str, Any], fun: Any, *args: Any, batch_argnums: int | Sequence[int] = 1, **options: Any
    ) -> Any:
        """JAX Privacy's, with the plan's clipping norm and divisor; it counts the examples that it sums."""
        taken = [name for name in PLANNED if name in options]
        if taken:
            raise InvalidInputError(f"The {taken[0]!r} option of clipped_grad must be left out; the plan sets it.")
        if self._noise.steps is not None:
            return self._whole_numbers(fun, *args, batch_argnums=batch_argnums, **defaults | options)
        options = {"dtype": jnp.float32} | defaults | options | {"batch_argnums": batch_argnums}
        if options["dtype"] is None or jnp.dtype(options["dtype"]) not in WIDE:
            raise InvalidInputError(
                "The 'dtype' option of clipped_grad must be float32 or float64, as sums in a narrower type are rounded "
                f"by more than the noise covers. Got {options['dtype']!r} instead."
            )
        norm, divisor = self.l2_clip_norm, self.run.expected_batch_size
        made = clipped_grad(fun, *args, l2_clip_norm=norm * (1.0 - ROOM), normalize_by=divisor, **options)
        positions = positions_of(batch_argnums)
        apart = positions_of(positions, args[0] if args else options.get("argnums", 0), options.get("prng_argnum"))
        looked: list[int] = []  # the first batch that tells: later ones may have as many rows as anything by chance

        def counted(*args: Any, is_padding_example: Any = None, **more: Any) -> Any:
            refuse_mapped()
            size = jax.tree.leaves(args[positions[0]])[0].shape[0]
            if size > 1 and not looked:
                check_shared(args, apart, size)
                looked.append(size)
            padding = jnp.zeros(size, bool) if is_padding_example is None else jnp.asarray(is_padding_example)
            io_callback(self._counted, None, jnp.sum(~padding), ordered=True)
            if size:
                return made(*args, is_padding_example=padding, **more)
            rows = options.get("microbatch_size") or 1
            blank = [_zeros(arg, rows) if at in positions else arg for at, arg in enumerate(args)]
            result = made(*blank, is_padding_example=jnp.ones(rows, bool), **more)
            return (result[0], jax.tree.map(lambda part: part[:0], result[1])) if made.has_aux else result

        return BoundedSensitivityCallable(counted, norm / divisor, made.has_aux)

    def _whole_numbers(
        self, fun: Any, *args: Any, batch_argnums: int | Sequence[int], **options: Any
    ) -> BoundedSensitivityCallable:
        """The same in whole numbers, for losses without anything beside them."""
        options = dict(zip(PLAIN, args, strict=False)) | options
        taken = [name for name, value in options.items() if name not in PLAIN and value not in (None, False)]
        if taken or len(args) > 1:
            raise InvalidInputError(
                f"The {'has_aux' if not taken else taken[0]!r} option of clipped_grad must be left out with exact "
                "noise, which has gradients alone; physical_batch_size of the config says how many at a time."
            )
        steps = self._noise.steps
        assert steps is not None
        gradient = ExactGradient(
            fun,
            argnums=options.get("argnums", 0),
            batch_argnums=batch_argnums,
            keep_batch_dim=options.get("keep_batch_dim", True),
            rows=self.physical_batch_size,
            clip_norm=self.l2_clip_norm,
            steps=steps,
            count=self._counted,
        )
        return BoundedSensitivityCallable(gradient, float(steps), False)

    def _counted(self, number: Any) -> None:
        self._batches.check_in_step()
        self._noise.counted(int(number))

    def _of_bits(self) -> dict[str, int]:
        """What decides about whole numbers besides the plan; nothing for noise in floating point."""
        steps = self._noise.steps
        return {} if steps is None else {"physical_batch_size": self.physical_batch_size, "clipping_steps": steps}

    def save_checkpoint(self, path: str | Path, tree: Any) -> None:
        """Write the run and a tree of arrays, parameters with all states, to one file, whole or not at all.

        The file is secret, as it holds the run; only its owner can read it.
        """
        jax.block_until_ready(tree)
        jax.effects_barrier()
        save_tree(path, tree, self.run.state_dict() | self._of_bits())

    def load_checkpoint(self, path: str | Path, like: Any) -> Any:
        """Continue the run from :meth:`save_checkpoint`, and give the tree that was saved with it.

        Args:
            path: of the file.
            like: a tree of the same structure, shapes and types.

        Raises: InvalidInputError for a file that is no checkpoint, a tree of another structure, exact noise with
        another ``physical_batch_size`` or ``rho`` than before, and as
        :meth:`hockeystick.training.Run.load_state_dict` for the run of another plan.
        """
        tree, state = load_tree(path, like)
        for name, value in self._of_bits().items():
            if state.get(name) != value:
                raise InvalidInputError(
                    "The 'physical_batch_size' and 'rho' arguments must be those of the saved run, as steps that are "
                    f"repeated must have the same bits; its {name} is {state.get(name)}. Got {value} instead."
                )
        self.run.load_state_dict(state)
        return tree


def _zeros(batch: Any, rows: int) -> Any:
    """Examples of zeros in place of none."""
    return jax.tree.map(lambda part: jnp.zeros((rows, *part.shape[1:]), part.dtype), batch)
