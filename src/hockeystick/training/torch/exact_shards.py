"""Exact sums where ``fully_shard`` shares out the parameters: two backward passes, with one layer in memory at a time.

While a layer runs backward, FSDP gives every process all of its numbers, so the gradients of a process's own examples
are there as in one process. The first pass squares them, which gives the factor F of every example. The second one
makes the same gradients again, and sums the integers ``trunc(g F)`` over the examples; processes add up these sums, and
each of them keeps those of its shard.

That an example's integers have norm at most K does not rest on the second pass giving the same bits: their squares are
counted down from ``K^2``, and integers of a layer that do not fit are left out (``docs/theory/exact-sums.md``).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping_fsdp import (
    GradSampleHooksFastGradientClippingFSDP,
    GradSampleModuleFastGradientClippingFSDP,
)
from opacus.utils.module_utils import trainable_parameters
from torch import distributed

from hockeystick.errors import InvalidInputError
from hockeystick.training import exact_sums
from hockeystick.training.exact_sums import MOST_STEPS, scale_of
from hockeystick.training.torch.exact import SumsExactly
from hockeystick.training.torch.exact_sums import add_within, as_array, factors, squared_norms
from hockeystick.training.torch.guards import GhostCriterion, GhostLoss, Tried, running_once
from hockeystick.training.torch.loader import Piece
from hockeystick.training.torch.shards import joined, local

REDUCTIONS = {"mean": torch.mean, "sum": torch.sum}


class GivesSamples:
    """Comes before one of Opacus' classes for FSDP: hands on the gradients of every layer, in each of two passes."""

    receiver: Any
    hooks_enabled: bool
    _module: Any
    rearrange_grad_samples: Any
    _get_module_type: Any
    GRAD_SAMPLERS: Mapping[Any, Any]

    def capture_activations_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
        """As Opacus does; raises UnsupportedError for a layer that has run in this pass."""
        with running_once(self._module, module):
            super().capture_activations_hook(module, inputs, outputs)  # type: ignore[misc]

    def capture_backprops_hook(
        self, module: Any, _inputs: Any, outputs: Any, loss_reduction: str, batch_first: bool
    ) -> None:
        """Compute the gradients of a layer, when those of its outputs are known, for ``receiver.take``."""
        if not self.hooks_enabled:
            return
        kept = module.activations[-1]
        activations, backprops = self.rearrange_grad_samples(
            module=module, backprops=outputs[0].detach(), loss_reduction=loss_reduction, batch_first=batch_first
        )
        sampler = self.GRAD_SAMPLERS.get(self._get_module_type(module), ft_compute_per_sample_gradient)
        samples = sampler(module, [local(part) for part in activations], backprops)
        trained = [samples[parameter] for _, parameter in trainable_parameters(module)]
        if self.receiver.take(module, trained):
            module._forward_counter -= 1
            del module.max_batch_len
        else:
            module.activations.append(kept)


class ExactModule(GivesSamples, GradSampleModuleFastGradientClippingFSDP):
    """Opacus' wrapper of a model of ``fully_shard``."""


class ExactHooks(GivesSamples, GradSampleHooksFastGradientClippingFSDP):
    """Opacus' hooks on a model of ``fully_shard`` that is not wrapped."""


EXACT_CLASSES: Mapping[bool, type[Any]] = {True: ExactModule, False: ExactHooks}
"""By whether the model is to be wrapped."""


class ExactLoss(GhostLoss):
    """A loss whose backward passes sum whole numbers."""

    def backward(self) -> None:
        """Run backward twice, and leave the sums with the optimizer."""
        loss = REDUCTIONS[self.loss_reduction](self.loss_per_sample, dim=0)
        self.optimizer.begin_backward()
        loss.backward(retain_graph=True)
        self.optimizer.begin_sums()
        loss.backward()
        self.optimizer.end_backward()


class ExactCriterion(GhostCriterion):
    """The criterion of :class:`ExactLoss`."""

    LOSS = ExactLoss


class SumsShards(SumsExactly):
    """Comes before Opacus' class for FSDP on a run with exact noise: whole numbers are summed as layers run backward.

    The sum of a physical batch waits until ``step`` adds it to that of the batch; ``zero_grad`` throws it away.
    """

    grad_state: dict[Any, dict[str, Any]]
    _check_settings: Any
    _refuse: Any

    def sum_exactly(self, steps: int, rows: int) -> None:
        """As for parameters that are not shared out."""
        super().sum_exactly(steps, rows)
        place = {parameter: at for at, parameter in enumerate(self.params)}
        self.places = {
            module: [place[parameter] for _, parameter in trainable_parameters(module)]
            for module in self.model.iterate_submodules(self.model._module)
        }
        self._drop()
        self.model.receiver = self

    def _drop(self) -> None:
        """No physical batch waits to be added."""
        self.squares: list[Any] = [None] * len(self.params)
        self.waiting: list[Any] = [None] * len(self.params)
        self.scales: torch.Tensor | None = None
        self.left: Any = None
        self.gradients = 0

    def begin_backward(self) -> None:
        """The first pass begins, which squares gradients.

        Raises: InvalidInputError where a physical batch went backward before and no step was taken with it.
        """
        self._check_settings()
        if self.gradients:
            raise InvalidInputError(
                "With exact sums of a sharded model, every physical batch takes one backward pass, and then one "
                "optimizer.step() or zero_grad()."
            )
        self._drop()

    def begin_sums(self) -> None:
        """The second pass begins: the squares of all parameters give the factors."""
        self._refuse(
            [parameter for parameter, squares in zip(self.params, self.squares, strict=True) if squares is None],
            "Per-sample gradients are missing; run the model, once, and its loss backward",
        )
        total = self.squares[0]
        for squares in self.squares[1:]:  # in this order, as in one process
            total = total + squares.to(total.device)
        numbers = sum(parameter.numel() for parameter in self.params)
        self.scales = factors(total, numbers, self.scale, self.steps)
        self.left = torch.full_like(total, self.steps * self.steps, dtype=torch.int64)

    def take(self, module: Any, samples: Sequence[torch.Tensor]) -> bool:
        """The gradients of a layer, of every row; whether this was the second pass."""
        self.gradients = len(samples[0])
        examples = self.batches.pieces[0].examples if self.batches.pieces else 0
        for at, sample in zip(self.places[module], samples, strict=True):
            rows = sample.detach().reshape(len(sample), -1)[:examples]
            if self.scales is None:
                self.squares[at] = _squared_norms(rows)
                continue
            total = torch.zeros(rows.shape[1], dtype=torch.int64, device=rows.device)
            if len(rows):
                scales = self.scales.to(rows.device)
                self.left = _add_within(rows, total, scales, self.steps, self.left.to(rows.device))
            self.waiting[at] = _of_shard(total, self.params[at])
        return self.scales is not None

    @contextmanager
    def trying(self, examples: int) -> Iterator[None]:
        """As for sums in floating point; in the finest steps, as those of a run may be coarse beside a gradient."""
        kept = self.steps, self.scale
        self.steps, self.scale = MOST_STEPS, scale_of(self.max_grad_norm, MOST_STEPS)
        self.batches.pieces.append(Piece(self.run.step, examples, last=True))
        try:
            with super().trying(examples):  # type: ignore[misc]
                yield
        finally:
            self.batches.pieces.clear()
            self._drop()
            self.steps, self.scale = kept

    def tried(self) -> Tried:
        """What a backward pass over the same examples in all processes has left, within :meth:`trying`.

        Integers of d numbers were rounded towards zero, each by less than a step, for every example.
        """
        numbers, ranks = sum(parameter.numel() for parameter in self.params), distributed.get_world_size()
        norms = torch.stack(self.squares).sum(dim=0).sqrt().tolist()
        sums = {
            parameter: joined(sums.double().div_(self.scale * ranks), parameter)
            for parameter, sums in zip(self.params, self.waiting, strict=True)
        }
        return Tried(norms, sums, len(norms) * math.sqrt(numbers) / self.scale)

    def end_backward(self) -> None:
        """Gradients that were not clipped go."""
        for parameter in self.params:
            parameter.grad = None

    def _check_ghost(self) -> int:
        """The number of examples whose integers wait."""
        missing = [parameter for parameter, sums in zip(self.params, self.waiting, strict=True) if sums is None]
        self._refuse(missing, "Sums of whole numbers are missing; run the model, once, and its loss backward")
        return self._examples_in(self.gradients)

    def accumulate(self) -> None:
        """Add what waits to the sums of the batch."""
        for parameter, sums in zip(self.params, self.waiting, strict=True):
            state = self.grad_state[parameter]
            state["summed_grad"] = sums if state["summed_grad"] is None else state["summed_grad"].add_(sums)
        self._drop()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As in one process, where it throws away the gradients of every example."""
        self._drop()
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def _forget(self) -> None:
        self._drop()
        super()._forget()


def _squared_norms(rows: torch.Tensor) -> torch.Tensor:
    """Where the rows are; on a CPU by the kernels for arrays."""
    if rows.device.type == "cpu":
        return torch.from_numpy(exact_sums.squared_norms(as_array(rows)))
    return squared_norms(rows)


def _add_within(
    rows: torch.Tensor, total: torch.Tensor, scales: torch.Tensor, steps: int, left: torch.Tensor
) -> torch.Tensor:
    """Where the rows are; on a CPU by the kernels for arrays."""
    if rows.device.type == "cpu":
        held = exact_sums.add_within(as_array(rows), total.numpy(), scales.numpy(), steps, left.numpy())
        return torch.from_numpy(held)
    return add_within(rows, total, scales, steps, left)


def _of_shard(total: torch.Tensor, parameter: Any) -> torch.Tensor:
    """The sum over all processes of the numbers of this one's shard, in the shard's shape.

    ``fully_shard`` gives each of R processes ceil(rows / R) rows, but the last ones fewer or none.
    """
    mesh, shape = parameter.device_mesh, parameter.to_local().shape
    each = -(-parameter.shape[0] // mesh.size()) * (parameter.numel() // parameter.shape[0])
    padded = total.new_zeros(mesh.size() * each)
    padded[: len(total)] = total
    mine = total.new_empty(each)
    distributed.reduce_scatter(mine, list(padded.chunk(mesh.size())), group=mesh.get_group())
    return mine[: shape.numel()].view(shape)
