"""Opacus' optimizers, with the noise of a run in place of their own."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
from opacus.grad_sample.gsm_base import AbstractGradSampleModule
from opacus.optimizers import FSDPOptimizerFastGradientClipping
from torch import distributed

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.record import SLACK
from hockeystick.training.run import Run
from hockeystick.training.torch.adaptive import AddsSquares, IndependentAdam, ScaledAdam, ScalesGradients
from hockeystick.training.torch.adaptive_clipping import AdaptsNorm
from hockeystick.training.torch.exact import SumsExactly
from hockeystick.training.torch.exact_shards import SumsShards
from hockeystick.training.torch.guards import (
    WIDE,
    Tried,
    add_no_examples,
    add_to_sum,
    clipped_sums,
    fault_of,
    fingerprint,
    give,
    is_used,
    parts_of,
    watch_other_steps,
)
from hockeystick.training.torch.loader import BatchSampler
from hockeystick.training.torch.noise import Noise, noisy
from hockeystick.training.torch.norms import total_norm
from hockeystick.training.torch.private_names import check_processed_flag, mark_as_processed
from hockeystick.training.torch.random_states import random_state
from hockeystick.training.torch.rows import watch_rows
from hockeystick.training.torch.shards import check_reductions, joined, local, norms_of_all

STATE = "hockeystick_run"
"""The entry of an optimizer's state that holds its run."""
WEIGHTS = "weights"
"""The entry of that with a fingerprint of the trained parameters, which have to be loaded with it."""


class OnRun:
    """What comes before one of Opacus' optimizer classes, so that each of its steps is a step of a run.

    The noise of step t is ``norm_of_noise`` times row t of the run, added once all physical batches of the step are
    summed. Before it is taken, the run is told over how many examples the sum is; and whoever changed the clipping
    norm, the noise multiplier or the trained parameters broke a promise, as did a sum that is above the clipping norms
    of its examples together, or another optimizer that steps on gradients without noise.
    """

    params: Any
    original_optimizer: Any
    max_grad_norm: Any
    noise_multiplier: Any
    expected_batch_size: Any
    grad_state: dict[Any, dict[str, Any]]
    _step_skip_queue: list[bool]
    _is_last_step_skipped: bool

    def attach(self, run: Run, batches: BatchSampler, module: torch.nn.Module, names: Mapping[Any, str]) -> None:
        """Bind to a run, to the batches that are given out, and to the model with the names of its parameters."""
        self.run = run
        self.batches = batches
        self.model = module
        self.names = names
        self.noise = Noise(run, [local(parameter) for parameter in self.params])
        self.ghost = hasattr(self, "accumulate")
        self.sharded = isinstance(self, FSDPOptimizerFastGradientClipping)
        if hasattr(self, "max_grad_norms"):  # Opacus rounds their joint norm to float32
            self.max_grad_norm = math.nextafter(math.hypot(*self.max_grad_norms), math.inf)
        self.examples: int = 0
        self.saved_weights = ""
        self.saw_batches = True
        self.random_before: int | None = None
        self.as_planned = self._settings()
        batches.begin = self._forget
        if self.ghost and module.max_grad_norm != self.max_grad_norm:
            raise InvalidInputError(
                f"The 'module' argument clips to {module.max_grad_norm!r}, and 'max_grad_norm' is "
                f"{self.max_grad_norm!r}; give the model as it was before Opacus wrapped it."
            )
        self._check_reductions()
        watch_other_steps(self)
        self.untried: list[str] = []
        """Layers of which the first batch could not tell whether their rows are those of the examples."""
        if isinstance(module, AbstractGradSampleModule) and not self.sharded:  # or processes would wait for each other
            self.untried = watch_rows(module)

    @property
    def trained(self) -> list[Any]:
        """The model's parameters alone; others of ``params`` are there for noise that some optimisers need."""
        own: list[Any] = super().params  # type: ignore[misc]
        return own

    @property
    def norm_of_noise(self) -> Any:
        """What the noise is multiplied by: the most that an example contributes."""
        return self.max_grad_norm

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by scalers of losses alone, of torch's and others', before they step."""
        raise InvalidInputError(
            "A GradScaler multiplies the loss before the gradient of each example is clipped, so the clipping norm "
            "would be too small by that factor; train in float32 or bfloat16 without a scaler."
        )

    @property
    def _device(self) -> torch.device:
        return torch.device(local(self.params[0]).device)

    def _settings(self) -> tuple[Any, ...]:
        norm = self.model.max_grad_norm if self.ghost else self.max_grad_norm
        trained = tuple(id(parameter) for parameter in self.params)
        of_layers = tuple(getattr(self, "max_grad_norms", ()))
        return (trained, norm, self.max_grad_norm, of_layers, self.noise_multiplier, self.expected_batch_size)

    def _check_settings(self) -> None:
        if self._settings() != self.as_planned:
            self.run.violated("clipping_norm")

    def _check_reductions(self) -> None:
        if self.sharded and not self.run.mechanism.exact:  # whole numbers are added up past fully_shard
            check_reductions(self.model._module)

    def _check_processes(self) -> None:
        """Raise InvalidInputError where each of several processes has all batches and all noise, as a run of its own.

        A wrapper that came after ``make_private`` would add up gradients that no step uses, and models would differ.
        """
        if self.batches.world_size > 1 or not (distributed.is_available() and distributed.is_initialized()):
            return
        if distributed.get_world_size() > 1:
            raise InvalidInputError(
                f"The model must be wrapped for all {distributed.get_world_size()} processes before make_private, by "
                "opacus.distributed.DifferentiallyPrivateDistributedDataParallel or fully_shard; otherwise each "
                "process would train another model."
            )

    def _forget(self) -> None:
        """A new pass over the data begins: what an abandoned one left, half a batch or signals, is void."""
        self._step_skip_queue.clear()
        self._is_last_step_skipped = False
        self.examples = 0
        self.random_before = random_state(self._device) if self.batches.world_size > 1 else None
        for parameter in self.params:
            self._sums(parameter)["summed_grad"] = None

    def _sums(self, parameter: Any) -> dict[str, Any]:
        """Where Opacus keeps the ``summed_grad`` of a parameter."""
        kept: dict[str, Any] = self.grad_state[parameter] if self.sharded else vars(parameter)
        return kept

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As Opacus does; the examples of a sum that is thrown away no longer count."""
        if not self._is_last_step_skipped:
            self.examples = 0
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def check_other_step(self, other: Any) -> None:
        """Another optimizer is about to step; refuse where it would use gradients of this one's without noise."""
        watched = {id(parameter) for parameter in self.params}
        stepping = [p for group in other.param_groups for p in group["params"] if id(p) in watched]
        if all(is_used(p) for p in stepping):
            return
        if self.run.remaining:
            self.run.violated("noise_is_added")
        raise InvalidInputError(
            "These gradients of the private model have no noise; to train on public data after the run, remove the "
            "hooks with the model's remove_hooks()."
        )

    def pre_step(self, closure: Any = None) -> Any:
        """As Opacus does, but never as an optimizer without noise."""
        self._check_settings()
        self._check_reductions()
        self._check_processes()
        if self.saved_weights and self.saved_weights != fingerprint(self.params):
            raise InvalidInputError(
                "The weights are not those that were saved with the optimizer's state, and its noise must not be used "
                "on others; load the model's state of the same step as well."
            )
        self.saved_weights = ""
        self.examples += self._check_ghost() if self.ghost else self._examples_in(self.check_samples())
        return super().pre_step(closure)  # type: ignore[misc]

    def check_samples(self) -> int:
        """The number of examples in the per-sample gradients.

        Raises: InvalidInputError where a parameter has none, or those of other examples than the rest.
        """
        missing = [p for p in self.params if getattr(p, "grad_sample", None) is None]
        self._refuse(missing, "Per-sample gradients are missing; run the model, once, and its loss backward")
        return self.check_numbers([sum(map(len, parts_of(p.grad_sample))) for p in self.trained])

    @contextmanager
    def trying(self, examples: int) -> Iterator[None]:
        """For a backward pass over so many examples whose gradients are not for a step; nothing of it is left."""
        del examples
        try:
            yield
        finally:
            self.discard()

    def tried(self) -> Tried:
        """What a backward pass of ghost clipping has left, within :meth:`trying`."""
        self.check_norms()
        squares = torch.stack([parameter._norm_sample.double().square() for parameter in self.trained])
        return Tried(squares.sum(dim=0).sqrt().tolist(), {parameter: parameter.grad for parameter in self.trained}, 0.0)

    def discard(self) -> None:
        """Leave nothing of a backward pass whose gradients are not for a step."""
        for parameter in self.trained:
            parameter.grad = parameter.grad_sample = None
            if self.ghost:
                parameter._norm_sample = None
        if self.ghost:
            self.model._per_sample_gradient_norms = None

    def _examples_in(self, rows: int) -> int:
        """How many of the per-sample gradients are of examples: all of them."""
        return rows

    def clip_and_accumulate(self) -> None:
        """As Opacus does, with norms whose error is proved, in float32 at least, and for no examples no sum."""
        if not any(len(part) for parameter in self.params for part in parts_of(parameter.grad_sample)):
            add_no_examples(self.params)
            return
        norms = getattr(self, "max_grad_norms", self.max_grad_norm)
        for parameter in self.params:
            check_processed_flag(parameter.grad_sample)
        for parameter, total in zip(self.params, clipped_sums(self.params, norms), strict=True):
            add_to_sum(parameter, total)
            mark_as_processed(parameter.grad_sample)

    def begin_backward(self) -> None:
        """A backward pass for ghost clipping begins: no norm of an earlier one may be taken for one of this."""
        self._check_settings()
        for parameter in self.trained:
            parameter._norm_sample = None
        self.model.backprop_types.clear()

    def leave_no_examples(self) -> None:
        """Put what a backward pass over no examples leaves in the parameters, for models that cannot run one."""
        for parameter in self.trained:
            if self.ghost:
                parameter.grad, parameter._norm_sample = torch.zeros_like(parameter), local(parameter).new_zeros(0)
            else:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        if self.ghost:
            self.model._per_sample_gradient_norms = local(self.trained[0]).new_zeros(0)

    def count_no_examples(self) -> None:
        """Have the gradients of a backward pass of ghost clipping be of no example here; they have to be zero."""
        for parameter in self.trained:
            parameter._norm_sample = parameter._norm_sample[:0]
        self.model._per_sample_gradient_norms = self.model._per_sample_gradient_norms[:0]

    def check_norms(self) -> int:
        """The number of examples that the norms for ghost clipping are of.

        Raises: InvalidInputError where a parameter has none, or of other examples than the rest.
        """
        samples: list[Any] = [getattr(parameter, "_norm_sample", None) for parameter in self.trained]
        missing = [parameter for parameter, norms in zip(self.trained, samples, strict=True) if norms is None]
        self._refuse(missing, "Norms of per-sample gradients are missing; run the model, once, and its loss backward")
        return self.check_numbers([len(norms) for norms in samples])

    def _check_ghost(self) -> int:
        """The number of examples whose gradients were clipped by Opacus and are in ``p.grad``.

        Ends the run where a gradient is longer than it can be by the norms that its examples were clipped by.
        """
        self._refuse([p for p in self.trained if p.grad is None or p.grad.is_sparse], "Gradients are missing or sparse")
        norms = getattr(self.model, "_per_sample_gradient_norms", None)
        if norms is None:
            raise InvalidInputError(
                "The gradients of this step were not clipped; use the criterion that make_private returned."
            )
        number = self.check_norms()
        dtypes = {parameter.dtype for parameter in self.trained}
        narrow = [dtype for dtype in dtypes | self.model.backprop_types if dtype not in WIDE]
        if narrow:
            raise UnsupportedError(
                f"Ghost clipping sums gradients in {narrow[0]} before the noise is added, with rounding errors that "
                "the noise does not cover; use grad_sample_mode='hooks', or float32."
            )
        if self.batches.world_size == 1 and not self.sharded:  # of several processes, gradients may be means already
            factors = (self.max_grad_norm / norms).clamp(max=1.0)
            longest = [float((factors * p._norm_sample.to(factors)).sum()) for p in self.trained]
            lengths = [total_norm([p.grad]) for p in self.trained]
            if not all(map(math.isfinite, lengths)):
                self.run.violated("finite_gradients")
            slack = SLACK * self.max_grad_norm * number
            if not all(length <= most + slack for length, most in zip(lengths, longest, strict=True)):
                self.run.violated("clipping")
        for parameter in self.trained:
            parameter._norm_sample = None
        self.model._per_sample_gradient_norms = None
        return number

    def check_numbers(self, numbers: Sequence[int]) -> int:
        """The number of examples in the gradients of every parameter; raises InvalidInputError for several numbers."""
        for parameter, number in zip(self.trained, numbers, strict=True):
            if number != numbers[0]:
                raise InvalidInputError(
                    f"The parameter {self.names[parameter]!r} has gradients of {number} examples, where "
                    f"{self.names[self.trained[0]]!r} has them of {numbers[0]}; the first dimension of what every "
                    "layer gets must be that of the examples, position ids included."
                )
        return numbers[0]

    def _refuse(self, missing: list[Any], what: str) -> None:
        if missing:
            raise InvalidInputError(
                f"{what}: {len(missing)} of {len(self.params)} trained parameters, the first of them "
                f"{self.names[missing[0]]!r}, would be updated without privacy."
            )

    def add_noise(self) -> None:
        """Take the run's next step, and put the noisy sums in ``p.grad``."""
        self._check_batch()
        self._check_random_numbers()
        totals = [self._sums(parameter)["summed_grad"] for parameter in self.params]
        for total in totals:
            check_processed_flag(total)
        examples = self._examples_of_all_ranks()
        fault = fault_of(self._sums_of_all_ranks(totals), examples, self.norm_of_noise)
        if fault is not None:
            self.run.violated(fault)
        rows = self.noise.borrow(examples)
        # The mean over the processes is added up from shards, each with all of its noise, or from copies, one with it.
        scale = self.norm_of_noise / (self.batches.world_size if self.sharded else 1)
        for index, (parameter, total) in enumerate(zip(self.params, totals, strict=True)):
            held = local(total)
            if rows is not None:
                held = noisy(held, rows[index], scale)
            give(parameter, joined(held.to(parameter.dtype), parameter).view_as(parameter))
            mark_as_processed(total)
        self.examples = 0

    def _check_batch(self) -> None:
        """The batch of this step has to be the one that was handed out last."""
        if not self.run.remaining:
            return
        last = self.batches.delivered
        if self.batches.drawn is None:
            self.run.violated("examples_of_the_batch")
        if last is None and not self.batches.reads_ahead:
            last = self.batches.drawn
        if last is None:  # workers draw for BatchMemoryManager; what it hands out cannot be seen, but for the number
            self.saw_batches = False
        elif last != self.run.step:
            self.run.violated("batches_in_step")

    def _check_random_numbers(self) -> None:
        """Raise InvalidInputError where layers drew random numbers in this pass, and two processes began it alike.

        The masks of dropout would be shared by two examples, and by which two would depend on the others.
        """
        if self.random_before is None:
            return
        drawn = random_state(self._device) != self.random_before
        own = torch.tensor([self.random_before, drawn], device=self._device)
        states = [torch.empty_like(own) for _ in range(self.batches.world_size)]
        distributed.all_gather(states, own)
        if any(bool(state[1]) for state in states):
            self.random_before = None
            if len({int(state[0]) for state in states}) < len(states):
                raise InvalidInputError(
                    "Layers such as dropout must have different random numbers in each process, and some processes "
                    "have the same: call torch.manual_seed(seed + rank) once the model is made."
                )

    def _sums_of_all_ranks(self, totals: list[Any]) -> list[Any]:
        """Tensors as long as the sums; of shards, which are means over the processes, one number."""
        if not self.sharded:
            return totals
        norm = math.hypot(*norms_of_all(totals))
        return [torch.tensor(norm, dtype=torch.float64) * self.batches.world_size]

    def _examples_of_all_ranks(self) -> int:
        if self.batches.world_size == 1:
            return self.examples
        total = torch.tensor(self.examples, device=self.params[0].device)
        distributed.all_reduce(total)
        return int(total)

    def state_dict(self) -> dict[str, Any]:
        """Opacus' state with that of the run beside it, which is secret."""
        run = as_tensors(self.run.state_dict()) | {WEIGHTS: fingerprint(self.params)}
        return super().state_dict() | {STATE: run}  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue optimizer and run. The next step needs the weights that were saved with it; load them as well.

        Raises: InvalidInputError for a state without a run, and as :meth:`hockeystick.training.Run.load_state_dict`.
        """
        if STATE not in state_dict:
            raise InvalidInputError(f"The {STATE!r} entry of the optimizer's state is missing; its noise is unknown.")
        self.run.load_state_dict(as_arrays(state_dict[STATE]))
        self.saved_weights = str(state_dict[STATE].get(WEIGHTS, ""))
        self._forget()
        self.batches.delivered = self.batches.drawn = None
        super().load_state_dict({name: part for name, part in state_dict.items() if name != STATE})  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuses copies: two continuations would have the same noise, whose difference has none."""
        raise InvalidInputError(
            "An optimizer on a run cannot be copied or pickled, as both would have the same noise; save its state_dict."
        )


CHANGES: Mapping[type[Any], type[Any]] = {ScaledAdam: ScalesGradients, IndependentAdam: AddsSquares}
"""What comes before the classes of Opacus for the optimisers that see per-sample gradients."""


def on_run(base: type[Any], optimizer: torch.optim.Optimizer, clipping: str, *, exact: bool = False) -> type[Any]:
    """The class of Opacus with the noise of a run, and with what the optimizer and the clipping change about it."""
    changes = tuple(change for kind, change in CHANGES.items() if isinstance(optimizer, kind))
    if clipping == "adaptive":
        changes = (AdaptsNorm,)
    if exact:
        changes = (*changes, SumsShards if issubclass(base, FSDPOptimizerFastGradientClipping) else SumsExactly)
    return type(f"{base.__name__}OnRun", (*changes, OnRun, base), {})


def as_tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    """A run's state that ``torch.save`` writes and ``torch.load`` reads with ``weights_only=True``."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
        for name, value in state.items()
    }


def as_arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """The way back from :func:`as_tensors`."""
    return {name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
