"""Opacus' optimizers with exact sums: whole numbers from the clipped gradients to the noise."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from hockeystick.calls import outside
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.training.exact_sums import MULTIPLE, check_steps, layer_steps, scale_of, steps_within
from hockeystick.training.invariance import Invariance
from hockeystick.training.run import Run
from hockeystick.training.torch.adaptive import Tensors
from hockeystick.training.torch.exact_sums import add_clipped
from hockeystick.training.torch.guards import give, parts_of
from hockeystick.training.torch.invariance import draws
from hockeystick.training.torch.loader import BatchSampler, Piece
from hockeystick.training.torch.private_names import DropoutNd, check_processed_flag, mark_as_processed
from hockeystick.training.torch.shards import joined

ROWS = "hockeystick_physical_batch_size"
"""The entry of an optimizer's state that holds the number of rows of its physical batches."""
STEPS = "hockeystick_clipping_steps"
"""The entry for the grid steps that gradients are clipped to."""
AUDITED = {"hooks": "hooks", "functorch": "functorch", "ghost_fsdp": "hooks"}
"""The gradient modes of exact sums, with the one that an audit has to have tried."""


class SumsExactly:
    """Comes before a class of Opacus on a run with exact noise: sums are of whole numbers, which no order changes.

    The gradients of an example become integers of norm at most K, of which a clipping norm has K
    (:mod:`hockeystick.training.exact_sums`). They are summed in 64 bits over physical batches and processes, the noise
    is added in whole numbers, and then the sum is divided by the public batch size and leaves in the parameter's type.

    Physical batches have one shape: the loader fills them up, and rows that fill are left out here. So each of them is
    a step that Opacus skips, but for the last one of its batch.
    """

    params: Tensors
    max_grad_norm: float
    norm_of_noise: float
    loss_reduction: str
    accumulated_iterations: int
    run: Run
    batches: BatchSampler
    model: Any
    noise: Any
    sharded: bool
    _check_batch: Any
    _examples_of_all_ranks: Any
    _sums: Any

    def sum_exactly(self, steps: int, rows: int) -> None:
        """Take K grid steps for a clipping norm, and physical batches of so many rows; after ``attach``."""
        check_steps(steps)
        norms = getattr(self, "max_grad_norms", None)
        self.steps, self.rows = steps, rows
        self.scale = scale_of(self.max_grad_norm, steps)
        self.of_layers = None if norms is None else layer_steps(norms, steps)
        self.piece: Piece | None = None
        self.shape: list[Any] | None = None
        self.model._module.register_forward_pre_hook(self._check_shape, with_kwargs=True)

    def _check_shape(self, model: torch.nn.Module, inputs: Any, named: Any) -> None:
        """Every physical batch that is trained on has the shape of the first."""
        if not model.training or not torch.is_grad_enabled():
            return
        shape = [(tuple(tensor.shape), tensor.dtype) for tensor in _tensors([inputs, named])]
        if self.shape is None:
            self.shape = shape
        if shape != self.shape:
            raise InvalidInputError(
                f"The model got tensors of shapes {_sizes(shape)} where it had {_sizes(self.shape)} before; with exact "
                "sums all physical batches must have one shape, sequences of one length included."
            )

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """Opacus' batch manager splits a batch; it may only pass on what is a physical batch already."""
        if do_skip:
            raise InvalidInputError(
                f"The 'max_physical_batch_size' of BatchMemoryManager must be at least {self.rows}, as exact sums have "
                "physical batches of one size: pass a smaller physical_batch_size to PrivacyEngine."
            )

    def _check_skip_next_step(self, pop_next: bool = True) -> bool:
        """Whether more physical batches of this step are to come."""
        del pop_next
        return self.piece is not None and not self.piece.last

    def _examples_in(self, rows: int) -> int:
        """How many of the rows of a physical batch are examples; takes the next one of those that were drawn.

        Ends the run where the loader gave out others in between.
        """
        if rows != self.rows:
            raise InvalidInputError(
                f"The gradients of a step must be of all {self.rows} rows of a physical batch. Got {rows} instead."
            )
        if not self.batches.pieces:
            if self.run.remaining:
                self.run.violated("examples_of_the_batch")
            return 0
        self.piece = self.batches.pieces.popleft()
        if self.piece.step != self.run.step:
            self.run.violated("batches_in_step")
        return self.piece.examples

    def _forget(self) -> None:
        """A new pass begins, with the first of its physical batches."""
        super()._forget()  # type: ignore[misc]
        self.piece = None

    def discard(self) -> None:
        """Leave nothing of a backward pass whose gradients are not for a step, nor its shape."""
        super().discard()  # type: ignore[misc]
        self.shape = None

    def clip_and_accumulate(self) -> None:
        """Add the integers of the examples of this physical batch."""
        for parameter in self.params:
            check_processed_flag(parameter.grad_sample)
            if parameter.summed_grad is None:
                parameter.summed_grad = torch.zeros_like(parameter, dtype=torch.int64, requires_grad=False)
        left = 0 if self.piece is None else self.piece.examples
        for parts in zip(*(parts_of(parameter.grad_sample) for parameter in self.params), strict=True):
            self._add([part[:left] for part in parts])
            left -= min(left, len(parts[0]))
        for parameter in self.params:
            mark_as_processed(parameter.grad_sample)

    def _add(self, rows: Sequence[torch.Tensor]) -> None:
        """The integers of some examples, over all parameters together or layer by layer."""
        totals = [parameter.summed_grad for parameter in self.params]
        if self.of_layers is None:
            add_clipped(rows, totals, self.scale, self.steps)
            return
        for row, total, steps in zip(rows, totals, self.of_layers, strict=True):
            if steps:
                add_clipped([row], [total], self.scale, steps)

    def add_noise(self) -> None:
        """Take the run's next step, add its whole numbers to the sums, over all processes, and leave the grid.

        ``p.grad`` is the sum in clipping norms, times the clipping norm, over the public batch size.
        """
        self._check_batch()
        totals = [self._sums(parameter)["summed_grad"] for parameter in self.params]
        for total in totals:
            check_processed_flag(total)
        rows = self.noise.borrow(self._examples_of_all_ranks())
        for at, (parameter, total) in enumerate(zip(self.params, totals, strict=True)):
            if rows is not None:
                total.add_(rows[at])
            if self.batches.world_size > 1 and not self.sharded:  # shards are of all processes already
                torch.distributed.all_reduce(total)
            row = total.double().mul_(self._step_of_mean()).to(parameter.dtype)
            give(parameter, joined(row, parameter).view_as(parameter))
            mark_as_processed(total)
        self.examples = 0

    def _step_of_mean(self) -> float:
        """What a grid step of the sum is in ``p.grad``."""
        divisor = self.run.expected_batch_size * self.accumulated_iterations if self.loss_reduction == "mean" else 1.0
        return self.norm_of_noise / (self.steps * divisor)

    def scale_grad(self) -> None:
        """Nothing: sums were divided as they left the grid."""

    def reduce_gradients(self) -> None:
        """Nothing: whole numbers were added up over the processes."""

    def state_dict(self) -> dict[str, Any]:
        """The state with what decides about bits, besides the plan: steps that are repeated have to have the same."""
        return super().state_dict() | {ROWS: self.rows, STEPS: self.steps}  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue; raises InvalidInputError for the state of a run with other physical batches, or another rho."""
        if state_dict.get(STEPS) != self.steps:
            raise InvalidInputError(
                "The 'invariance' argument must be that of the saved run, whose clipping norm had "
                f"{state_dict.get(STEPS)!r} grid steps. Got one that gives {self.steps} instead."
            )
        if state_dict.get(ROWS) != self.rows:
            raise InvalidInputError(
                f"The 'physical_batch_size' argument must be that of the saved run, {state_dict.get(ROWS)!r}, as "
                f"steps that are repeated must have the same bits. Got {self.rows} instead."
            )
        own = (ROWS, STEPS)
        super().load_state_dict({name: part for name, part in state_dict.items() if name not in own})  # type: ignore[misc]


def check_exact(module: torch.nn.Module, clipping: str, grad_sample_mode: str) -> None:
    """Raise UnsupportedError for what exact sums cannot be made of.

    A layer that draws random numbers by the place in the batch raises also when it is used later, as after ``train()``.
    """
    if grad_sample_mode not in AUDITED:
        raise UnsupportedError(
            "Exact sums need the gradient of every example, and ghost clipping sums in floating point: use "
            f"grad_sample_mode='hooks' or 'functorch', or fully_shard. Got {grad_sample_mode!r} instead."
        )
    if clipping == "adaptive":
        raise UnsupportedError(
            "Exact sums are for clipping='flat' and 'per_layer'; the count of adaptive clipping is no whole number yet."
        )
    for name, part in module.named_modules():
        _check_dropout(name, part)
        if isinstance(part, DropoutNd | torch.nn.MultiheadAttention | torch.nn.RNNBase):
            part.register_forward_pre_hook(lambda part, _, name=name: _check_dropout(name, part))


def _check_dropout(name: str, part: torch.nn.Module) -> None:
    if draws(part):
        raise UnsupportedError(
            f"The layer {name!r} of type {type(part).__name__} draws dropout by the place in the batch, so the "
            "gradient of an example depends on the others: set its probability to 0 for exact sums, or call its eval()."
        )


def warn_of_places() -> None:
    """Say so where torch computes equal rows of a batch with other bits on this processor, by where they stand.

    It tries some linear layers, not the model: silence is no audit.
    """
    for inputs, outputs in ((6, 8), (17, 5)):
        row, weight = torch.linspace(0.1, 1.3, inputs).sin(), torch.linspace(0.2, 9.1, outputs * inputs).cos()
        made = functional.linear(row.repeat(MULTIPLE, 1), weight.view(outputs, inputs))
        if bool((made != made[0]).any()):
            warnings.warn(
                "On this processor torch computes equal rows of a batch with different bits, so gradients may depend "
                "on the other examples, and exact sums need that they do not: start Python with MKL_CBWR=AUTO in its "
                "environment, and audit the model with hockeystick.audit.invariance.",
                stacklevel=outside(),
            )
            return


def clipping_steps(run: Run, ranks: int, rho: float) -> int:
    """The grid steps that gradients are clipped to; the process that has the noise knows those of a clipping norm."""
    steps = [run.norm_steps]
    if ranks > 1:
        torch.distributed.broadcast_object_list(steps)
    assert steps[0] is not None
    return steps_within(steps[0], rho)


def check_invariance(audit: Any, rows: int, module: torch.nn.Module, grad_sample_mode: str) -> None:
    """Raise for an audit of something else than the run, one that saw changes, and a rho out of range.

    Without any of them, None, it warns where the processor of the model may need another environment.
    """
    if audit is None:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            warn_of_places()
        return
    if isinstance(audit, int | float) and not isinstance(audit, bool) and 0.0 <= audit <= 1.0:
        return
    if not isinstance(audit, Invariance):
        raise InvalidInputError(
            "The 'invariance' argument must be what hockeystick.audit.invariance returned, or a number from 0 to 1. "
            f"Got {shortened(audit)} instead."
        )
    mode = AUDITED[grad_sample_mode]
    if (audit.batch, audit.mode) != (rows, mode):
        raise InvalidInputError(
            f"The 'invariance' argument must be an audit with batch={rows} and grad_sample_mode={mode!r}, "
            f"as the run has. Got {audit.batch} and {audit.mode!r} instead."
        )
    if not audit.invariant:
        raise UnsupportedError(
            f"The gradients of this model depend on the other examples of a batch, by {audit.worst:.2g} of the norm or "
            f"less in {audit.layers[0].parameter!r}, so exact sums do not make a certificate cover its bits. On a CPU, "
            "MKL_CBWR=AUTO in the environment of Python may prevent this. If you know a bound on how much one example "
            "changes the rounded gradients of all others, give it as 'invariance', as a fraction of the clipping norm."
        )


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    """All tensors in arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield from _tensors(value[name])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _sizes(shape: list[Any]) -> str:
    return ", ".join(str(size) for size, _ in shape)
