"""Opacus' optimizers, with the noise of a run in place of their own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from hockeystick.errors import InvalidInputError
from hockeystick.training.run import Run
from hockeystick.training.torch.loader import BatchSampler
from hockeystick.training.torch.noise import Noise, noisy

STATE = "hockeystick_run"
"""The entry of an optimizer's state that holds its run."""


class OnRun:
    """What comes before one of Opacus' optimizer classes, so that each of its steps is a step of a run.

    The noise of step t is ``max_grad_norm`` times row t of the run, added once all physical batches of the step are
    summed. Before it is taken, the run is told over how many examples the sum is; and whoever changed the clipping
    norm, the noise multiplier or the trained parameters broke a promise.
    """

    params: Any
    max_grad_norm: Any
    noise_multiplier: Any
    expected_batch_size: Any
    _step_skip_queue: list[bool]
    _is_last_step_skipped: bool

    def attach(self, run: Run, batches: BatchSampler, module: torch.nn.Module, names: Mapping[Any, str]) -> None:
        """Bind to a run, to the batches that are given out, and to the model with the names of its parameters."""
        self.run = run
        self.batches = batches
        self.model = module
        self.names = names
        self.noise = Noise(run, self.params)
        self.ghost = hasattr(self, "accumulate")
        self.examples: int = 0
        self.as_planned = self._settings()
        batches.begin = self._forget

    def _settings(self) -> tuple[Any, ...]:
        norm = self.model.max_grad_norm if self.ghost else self.max_grad_norm
        trained = tuple(id(parameter) for parameter in self.params)
        return (trained, norm, self.max_grad_norm, self.noise_multiplier, self.expected_batch_size)

    def _forget(self) -> None:
        """A new pass over the data begins: what an abandoned one left, half a batch or signals, is void."""
        self._step_skip_queue.clear()
        self._is_last_step_skipped = False
        self.examples = 0
        for parameter in self.params:
            parameter.summed_grad = None

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As Opacus does; the examples of a sum that is thrown away no longer count."""
        if not self._is_last_step_skipped:
            self.examples = 0
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def pre_step(self, closure: Any = None) -> Any:
        """As Opacus does, but never as an optimizer without noise."""
        if self._settings() != self.as_planned:
            self.run.violated("clipping_norm")
        if not self.ghost:
            missing = [p for p in self.params if getattr(p, "grad_sample", None) is None]
            self._refuse(missing, "Per-sample gradients are missing; run the model and its loss backward")
            self.examples += self._examples_of_all_parameters()
        else:
            self._refuse([p for p in self.params if p.grad is None], "Gradients are missing")
            norms = getattr(self.model, "_per_sample_gradient_norms", None)
            if norms is None:
                raise InvalidInputError(
                    "The gradients of this step were not clipped; use the criterion that make_private returned."
                )
            self.examples += len(norms)
            self.model._per_sample_gradient_norms = None
        return super().pre_step(closure)  # type: ignore[misc]

    def _examples_of_all_parameters(self) -> int:
        """How many examples each parameter has gradients of. Where one has fewer, as a layer that all examples share,
        a sum over several would be clipped as if it were one.
        """
        counts = [sum(len(part) for part in _parts(parameter.grad_sample)) for parameter in self.params]
        for parameter, count in zip(self.params, counts, strict=True):
            if count != counts[0]:
                raise InvalidInputError(
                    f"The parameter {self.names[parameter]!r} has gradients of {count} examples, where "
                    f"{self.names[self.params[0]]!r} has them of {counts[0]}; the input of every layer must have the "
                    "examples in its first dimension, position ids included."
                )
        return counts[0]

    def _refuse(self, missing: list[Any], what: str) -> None:
        if missing:
            raise InvalidInputError(
                f"{what}: {len(missing)} of {len(self.params)} trained parameters, the first of them "
                f"{self.names[missing[0]]!r}, would be updated without privacy."
            )

    def add_noise(self) -> None:
        """Take the run's next step, and put the noisy sums in ``p.grad``."""
        if self.batches.delivered not in (None, self.run.step) and self.run.remaining:
            self.run.violated("batches_in_step")
        for parameter in self.params:
            _check_processed_flag(parameter.summed_grad)
        rows = self.noise.next(self._examples_of_all_ranks())
        for index, parameter in enumerate(self.params):
            total = parameter.summed_grad
            if rows is not None:
                total = noisy(total, rows[index], self.max_grad_norm)
            parameter.grad = total.to(parameter.dtype).view_as(parameter)
            _mark_as_processed(parameter.summed_grad)
        self.examples = 0

    def _examples_of_all_ranks(self) -> int:
        if self.batches.world_size == 1:
            return self.examples
        total = torch.tensor(self.examples, device=self.params[0].device)
        torch.distributed.all_reduce(total)
        return int(total)

    def state_dict(self) -> dict[str, Any]:
        """Opacus' state with that of the run beside it, which is secret."""
        return super().state_dict() | {STATE: as_tensors(self.run.state_dict())}  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue optimizer and run.

        Raises: InvalidInputError for a state without a run, and as :meth:`hockeystick.training.Run.load_state_dict`.
        """
        if STATE not in state_dict:
            raise InvalidInputError(f"The {STATE!r} entry of the optimizer's state is missing; its noise is unknown.")
        self.run.load_state_dict(as_arrays(state_dict[STATE]))
        self._forget()
        self.batches.delivered = None
        super().load_state_dict({name: part for name, part in state_dict.items() if name != STATE})  # type: ignore[misc]


def on_run(base: type[Any]) -> type[Any]:
    """The class of Opacus with the noise of a run."""
    return type(f"{base.__name__}OnRun", (OnRun, base), {})


def _parts(grad_sample: Any) -> list[Any]:
    return grad_sample if isinstance(grad_sample, list) else [grad_sample]


def as_tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    """A run's state that ``torch.save`` writes and ``torch.load`` reads with ``weights_only=True``."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
        for name, value in state.items()
    }


def as_arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """The way back from :func:`as_tensors`."""
    return {name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for name, value in state.items()}
