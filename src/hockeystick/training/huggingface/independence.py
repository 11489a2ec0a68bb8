"""Whether the loss and the gradient of an example depend on the examples beside it, tried on a few of them.

Clipping bounds what an example adds only if its gradient is its own. What makes it depend on others has many names (a
loss divided by the tokens of the batch, in-batch negatives, a balancing loss over experts, layers that look at whole
batches, caches), so none of them is looked for. Before the first step, the losses and the gradients of two examples are
computed by torch's autograd, each alone, and then for both in one batch by what the training uses: the collator, the
loss and the per-sample gradients of the engine. They have to agree to a tolerance, and in the batch of both no loss may
have a derivative by the other example, however small (``derivatives.py``). Dropout is left out, as its masks are drawn
by the place in the batch. Losses alone are also compared in a physical batch of more examples, in several orders.

Agreement on a few examples, with the weights of the beginning, is no proof. See ``docs/theory/runs.md``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from accelerate.utils import gather_object

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.huggingface.derivatives import dependence, dependence_of_mean
from hockeystick.training.huggingface.private_names import figures_kept
from hockeystick.training.torch.dropout import without_dropout
from hockeystick.training.torch.guards import WIDE, parts_of
from hockeystick.training.torch.mixing import Written, check_written
from hockeystick.training.torch.norms import total_norm
from hockeystick.training.torch.private_names import reductions
from hockeystick.training.torch.shards import narrow_types, norms_of_all

TOLERANCE = 1e-3
"""The change of a loss, or of a gradient in its norm, that rounding is allowed in float32."""
COARSE = 0.2
"""The same for models with parameters in 16 bits, or where torch may use TF32."""
SMALL = 1e-3
"""Gradients below this part of the clipping norm are compared with it, and losses with this number."""
LOOKED_AT = 16
"""Examples among which the shortest and the longest are the two, so that one of them is padded."""

OTHERS = 6
"""Examples that take turns beside two, where losses are not known by example; or that are in a crowd with them."""
CROWDS = 4
"""Times that a crowd is collated, in other orders: collators may draw random numbers."""
MOVES = 2
"""Times that losses which are not known by example are tried with weights that were moved."""
SPREAD = 0.1
"""The standard deviation of a move of a weight."""

Gradients = list[list[torch.Tensor]]
"""For each example, and for each parameter."""
Compute = Callable[[Any], torch.Tensor]
"""From the batch of some examples, in a list, to their loss."""
RULE = "An example's loss and gradient must not depend on the examples beside it"


class Alone(NamedTuple):
    """The losses and the gradients of examples, each in a batch of its own."""

    losses: list[float]
    gradients: Gradients


class Independence:
    """Two examples, and what they are alone.

    Args:
        trainer: has the ``model``, in training mode and without hooks for per-sample gradients yet, and the function
            ``example_losses`` by which ``compute`` gets the losses of single examples.
        examples: two of the training data, the longer one last.
        others: more of them, no longer than the longer one, for losses that are not known by example.
        compute: the loss of a list of examples, the mean of theirs.
    """

    def __init__(self, trainer: Any, examples: Sequence[Any], others: Sequence[Any], compute: Compute) -> None:
        model: torch.nn.Module = trainer.model
        self.trainer, self.model, self.examples, self.compute = trainer, model, examples, compute
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        narrow = any(p.is_floating_point() and p.dtype not in WIDE for p in model.parameters())
        narrow |= any(narrow_types(policy) for _, policy, _ in reductions(model))
        coarse = narrow or torch.get_float32_matmul_precision() != "highest"
        self.tolerance = COARSE if coarse else TOLERANCE
        with self._quietly():
            by_example = self._losses_of(list(examples)) is not None
            self.alone = [self._alone(move) for move in range(1 if by_example else 1 + MOVES)]
            self.dependence = (
                dependence(model, examples, self._losses_of, trainer.example_rows.most)
                if by_example
                else self._mean_depends(others)
            )
            self.crowd = self._crowd_depends(others) if by_example and self.dependence is None else None
            self.written = [self._left_by([first, examples[-1]]) for first in (examples[0], examples[-1])]

    def _crowd_depends(self, others: Sequence[Any]) -> str | None:
        """Losses of as many examples as a physical batch has, up to all that are given, beside their losses alone.

        Two examples are too few for what sorts, counts or draws: a permutation of two often changes nothing.
        """
        size = min(self.trainer.given.per_device_train_batch_size, 2 + len(others))
        crowd = [self.examples[0], *others[: max(size - 2, 0)], self.examples[-1]]
        with torch.no_grad():
            alone = [float(self.compute([example])) for example in crowd]
            for turn in range(CROWDS):
                order = [*range(turn, len(crowd)), *range(turn)] if turn < len(crowd) else [*range(len(crowd))]
                losses = self._losses_of([crowd[at] for at in order])
                for at, loss in zip(order, [] if losses is None else losses.tolist(), strict=False):
                    differs = abs(loss - alone[at]) / max(abs(alone[at]), SMALL)
                    if not differs <= self.tolerance:
                        return f"the loss of one changes by {differs:.2g} of it in a batch of {len(crowd)}"
        return None

    def _left_by(self, examples: list[Any]) -> Mapping[Any, torch.Tensor | None]:
        """What a forward pass over these examples leaves in the model, which is put back."""
        before = Written(self.model)
        with torch.no_grad():
            self.compute(examples)
        return before.undo()

    def _mean_depends(self, others: Sequence[Any]) -> str | None:
        rows = self.trainer.example_rows.most
        for move in range(1 + MOVES):
            with self._moved(move):
                beside = [self.examples[0], *others, self.examples[-1]]
                fault = dependence_of_mean(self.model, beside, self.compute, self.tolerance / 100, rows)
            if fault is not None:
                return fault
        return None

    def _alone(self, move: int) -> Alone:
        """What the examples are, each in a batch of its own."""
        losses, gradients = [], []
        with self._moved(move):
            for example in self.examples:
                loss = self.compute([example])
                loss.backward()
                losses.append(float(loss.detach()))
                gradients.append(
                    [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.trained.values()]
                )
                self.model.zero_grad()
        return Alone(losses, gradients)

    def check_meaning(self, compute: Compute, name: str) -> None:
        """Raise UnsupportedError where a Trainer has another loss for a single example than what takes its place.

        Args:
            compute: the loss of that Trainer.
            name: of its class.
        """
        with self._quietly(), torch.no_grad():
            for example, loss in zip(self.examples, self.alone[0].losses, strict=True):
                own = float(compute([example]))
                if not abs(own - loss) <= self.tolerance * max(abs(own), SMALL):
                    raise UnsupportedError(
                        f"The loss of {name} for a single example is {own:.6g}, and 'example_losses' has {loss:.6g}: "
                        "leave out the option that changes the loss, or give 'example_losses'."
                    )

    def check_processes(self) -> None:
        """Raise InvalidInputError unless the two examples have the same losses in all processes.

        Which process an example falls to depends on the others of its batch, and so would its loss, as where each
        process has made a reference model of its own.
        """
        if self.trainer.accelerator.num_processes == 1:
            return
        losses = np.array(gather_object([[alone.losses for alone in self.alone]]))
        apart = np.abs(losses - losses[0])
        if not np.all(apart <= self.tolerance * np.maximum(np.abs(losses[0]), SMALL)):
            at = np.unravel_index(np.argmax(np.nan_to_num(apart, nan=np.inf)), apart.shape)
            raise InvalidInputError(
                "An example must have the same loss in all processes; use the same loss, and a reference model with "
                f"the same weights, in each. Got {losses[0][at[1:]]:.6g} in process 0 and {losses[at]:.6g} in process "
                f"{at[0]}."
            )

    def check(self, optimizer: Any) -> None:
        """Compare with both in one batch, by the hooks that ``make_private`` put on the model.

        Nothing of it is left: no gradients, no random numbers were drawn, and no step was taken.

        Raises: UnsupportedError that says what mixes the examples; InvalidInputError as the optimizer does, for
        parameters without per-sample gradients.
        """
        check_written(*self.written)
        if self.dependence is not None:
            raise UnsupportedError(f"{RULE}, but {self.dependence}.")
        for move, alone in enumerate(self.alone):
            with self._quietly(), self._moved(move):
                self._compare(alone, optimizer)
        if self.crowd is not None:
            raise UnsupportedError(f"{RULE}, but {self.crowd}: the loss or the collator mixes them.")

    def _compare(self, alone: Alone, optimizer: Any) -> None:
        loss = self.compute(list(self.examples))
        together = float(loss.detach())
        mean = math.fsum(alone.losses) / len(alone.losses)
        change = abs(together - mean) / max(abs(mean), SMALL)
        if not change <= self.tolerance:
            raise self._mixed(f"their loss together is {change:.2g} of it from the mean of their losses alone")
        with optimizer.trying(len(self.examples)):
            loss.backward()
            self.trainer.example_rows.join(optimizer.trained)
            worst, name = (self._ghost if optimizer.ghost else self._samples)(alone.gradients, optimizer)
        if not worst <= self.tolerance:
            raise self._mixed(f"a gradient changes by {worst:.2g} of its norm beside another example, most in {name!r}")

    @contextmanager
    def _moved(self, move: int) -> Iterator[None]:
        """Trained weights that are moved at random, the same way for the same number; for 0, not moved."""
        kept = [parameter.detach().clone() for parameter in self.trained.values() if move]
        generator = torch.Generator().manual_seed(move)
        with torch.no_grad():
            for parameter, _ in zip(self.trained.values(), kept, strict=False):
                parameter += SPREAD * torch.randn(parameter.shape, generator=generator).to(parameter)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, weights in zip(self.trained.values(), kept, strict=False):
                    parameter.copy_(weights)

    def _losses_of(self, examples: list[Any]) -> torch.Tensor | None:
        """The losses of single examples in one batch; None where the Trainer makes one loss by other means."""
        seen: list[torch.Tensor] = []
        example_losses = self.trainer.example_losses

        def see(*given: Any) -> Any:
            seen.append(example_losses(*given))
            return seen[-1]

        with patch.object(self.trainer, "example_losses", see):
            self.compute(examples)
        return seen[0] if len(seen) == 1 and len(seen[0]) == len(examples) else None

    def _samples(self, gradients: Gradients, optimizer: Any) -> tuple[float, str]:
        """The largest change of an example's gradient over its norm, and the parameter that changes most."""
        optimizer.check_samples()
        rows = [torch.cat(parts_of(parameter.grad_sample)) for parameter in self.trained.values()]
        if len(rows[0]) != len(self.examples):
            raise self._mixed(f"a batch of both has {len(rows[0])} rows")
        return max(
            self._change([row[at] for row in rows], alone, self._norm(alone, optimizer))
            for at, alone in enumerate(gradients)
        )

    def _ghost(self, gradients: Gradients, optimizer: Any) -> tuple[float, str]:
        """The same of norms, and of the sum of clipped gradients."""
        tried, clip_norm = optimizer.tried(), optimizer.max_grad_norm
        if len(tried.norms) != len(self.examples):
            raise self._mixed("a batch of both has another number of rows")
        changes = [
            (abs(norm - _length(alone)) / self._norm(alone, optimizer), "the norm of all parameters")
            for norm, alone in zip(tried.norms, gradients, strict=True)
        ]
        factors = [min(1.0, clip_norm / norm) if norm else 1.0 for norm in tried.norms]
        total = [
            sum(f * part for f, part in zip(factors, parts, strict=True)) for parts in zip(*gradients, strict=True)
        ]
        longest = max(factor * self._norm(alone, optimizer) for factor, alone in zip(factors, gradients, strict=True))
        change, name = self._change([tried.sums[parameter] for parameter in self.trained.values()], total, longest)
        return max([*changes, (change - tried.rounded / longest, name)])

    def _norm(self, alone: Sequence[torch.Tensor], optimizer: Any) -> float:
        return max(_length(alone), SMALL * optimizer.max_grad_norm)

    def _change(self, gradient: Sequence[torch.Tensor], alone: Sequence[Any], norm: float) -> tuple[float, str]:
        changes = (together.double() - other.double() for together, other in zip(gradient, alone, strict=True))
        lengths = norms_of_all(changes)
        name = max(zip(lengths, self.trained, strict=True))[1]
        return math.hypot(*lengths) / norm, name

    def _mixed(self, what: str) -> UnsupportedError:
        layer = self._first_that_mixes()
        return UnsupportedError(
            f"{RULE}, but {what}; "
            f"{layer or 'what mixes them is the loss or the collator'}. Random numbers other than dropout's look alike."
        )

    def _first_that_mixes(self) -> str | None:
        """The first layer whose output for an example is another one beside another example."""
        alone, together = (self._outputs(examples) for examples in ([self.examples[0]], self.examples))
        for name, output in alone.items():
            other = together.get(name)
            if other is None or len(output) != 1 or other.shape[1:] != output.shape[1:] or len(other) < 2:
                continue
            change = total_norm([other[0].double() - output[0].double()])
            if not change <= self.tolerance * max(total_norm([output[0]]), SMALL):
                kind = type(self.model.get_submodule(name)).__name__
                return f"the first layer that mixes them is {name!r} of type {kind}"
        return None

    def _outputs(self, examples: Sequence[Any]) -> Mapping[str, torch.Tensor]:
        """What layers without layers of their own give, by name."""
        seen: dict[str, torch.Tensor] = {}

        def see(name: str, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point() and output.dim():
                seen[name] = output.detach().clone()

        layers = [(name, part) for name, part in self.model.named_modules() if not list(part.children())]
        handles = [
            part.register_forward_hook(lambda _, inputs, output, name=name: see(name, output)) for name, part in layers
        ]
        try:
            with self._quietly(), torch.no_grad():
                self.compute(list(examples))
        finally:
            for handle in handles:
                handle.remove()
        return seen

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Without dropout, and with torch's generators as they were afterwards."""
        devices = sorted({p.device for p in self.model.parameters() if p.device.type == "cuda"}, key=str)
        with figures_kept(self.trainer), torch.random.fork_rng(devices), without_dropout(), torch.enable_grad():
            yield


def check_rows(rows: Any, collate: Callable[[list[Any]], Any], dataset: Any) -> None:
    """Raise InvalidInputError where one of the first examples makes no row, or those of several.

    A batch in which one makes none and another two has the right number of rows.
    """
    for at in range(min(len(dataset), LOOKED_AT)):
        count = rows.examples_in(collate([dataset[at]]))
        if count != 1:
            raise InvalidInputError(
                f"The 'data_collator' must give a row for each example. Got {count} for example {at}; to train on "
                "packed texts, make each pack an example of the dataset, which is then what is protected."
            )


def some_of(dataset: Any) -> tuple[list[Any], list[Any]]:
    """The shortest and the longest of the first examples, one of them twice where there are no two; and some others."""
    some = [dataset[at] for at in range(min(len(dataset), LOOKED_AT))]
    some.sort(key=_tokens)
    return [some[0], some[-1]], some[1:-1][-OTHERS:]


def _length(gradient: Iterable[torch.Tensor]) -> float:
    """The norm of all tensors of a gradient together, over the processes that may share them out."""
    return math.hypot(*norms_of_all(gradient))


def _tokens(example: Any) -> int:
    """The number of tokens of an example, or what comes closest to it."""
    parts = example.values() if isinstance(example, Mapping) else []
    return max((np.shape(part)[0] for part in parts if np.ndim(part)), default=0)
