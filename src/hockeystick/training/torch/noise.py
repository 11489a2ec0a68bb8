"""The noise of a run as tensors of the parameters' shapes."""

from collections.abc import Iterable
from typing import Any

import torch
from numpy.typing import ArrayLike

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.training.exact_sums import refuse_exact
from hockeystick.training.run import Run
from hockeystick.training.torch.device_rows import placed
from hockeystick.training.torch.guards import WIDE, fault_of


@made_by("hs.torch.Noise(run, model.parameters())")
class Noise:
    """Rows of ``C^{-1} z``, cut into the shapes of some parameters, for training loops of one's own.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    >>> model = torch.nn.Linear(4, 2)
    >>> noise = Noise.of(mechanism, model.parameters(), num_examples=100)
    >>> for batch in noise.run.batches():
    ...     for parameter in model.parameters():
    ...         parameter.grad = torch.zeros_like(parameter)  # the sum of the clipped gradients of this batch
    ...     noise.add_(batch, clip_norm=1.0)

    One stream covers all parameters, as a certificate is about all of them together. The noise is made and added in
    the type of the run, float32 or float64, on the device of each parameter; that of an exact mechanism is in grid
    steps, int32, for sums by :func:`hockeystick.training.exact_sum`, and :meth:`next` gives it. Sums must not
    have been rounded to a narrower type before.

    Args:
        run: its noise has as many numbers as the parameters together, or it has none, and :meth:`next` gives None.
        parameters: tensors, in a fixed order.

    Raises: InvalidInputError when there are no parameters, or another number of them.
    """

    def __init__(self, run: Run, parameters: Iterable[torch.Tensor]) -> None:
        self.run = run
        self.parameters = list(parameters)
        self.size = size_of(self.parameters)
        self._staged: torch.Tensor | None = None
        if run.size is not None and run.size != self.size:
            raise InvalidInputError(
                f"The 'parameters' argument must have {run.size} numbers, as the run's noise. Got {self.size} instead."
            )

    @classmethod
    @called("hs.torch.Noise.of(run, model.parameters(), num_examples=50_000)")
    def of(cls, mechanism: Mechanism, parameters: Iterable[torch.Tensor], **options: Any) -> "Noise":
        """The noise of a new run of ``mechanism``; ``options`` are those of :class:`hockeystick.training.Run`.

        The rows are on the CUDA device of the parameters where it can make the noise, unless ``rows`` says where.
        """
        tensors = list(parameters)
        return cls(Run(mechanism, shape=size_of(tensors), **placed(tensors, options)), tensors)

    def next(self, examples: ArrayLike | int) -> list[torch.Tensor] | None:
        """Take the next step: its noise, in clipping norms, a tensor a parameter.

        Args:
            examples: the indices whose clipped gradients are summed, or how many they are.

        Raises: as :meth:`hockeystick.training.Run.noise`.
        """
        rows = self.borrow(examples)
        return None if rows is None else [row.clone() for row in rows]

    def borrow(self, examples: ArrayLike | int) -> list[torch.Tensor] | None:
        """As :meth:`next`, without a copy: of the rows that the run needs later, so nobody may write to them."""
        row = self.run.noise(examples, copy=False)
        if row is None:
            return None
        flat = row if isinstance(row, torch.Tensor) else torch.from_numpy(row)
        devices = {parameter.device for parameter in self.parameters}
        if flat.device.type == "cpu" and any(device.type == "cuda" for device in devices):
            if self._staged is None:
                self._staged = torch.empty_like(flat, pin_memory=True)  # from where the device copies by itself
            flat = self._staged.copy_(flat)
        if len(devices) == 1:
            flat = flat.to(self.parameters[0].device)
        parts = flat.split([parameter.numel() for parameter in self.parameters])
        return [
            part.view(parameter.shape).to(parameter.device)
            for part, parameter in zip(parts, self.parameters, strict=True)
        ]

    def add_(self, examples: ArrayLike | int, *, clip_norm: float) -> None:
        """Take the next step and add its noise, times the clipping norm, to the ``grad`` of every parameter.

        Args:
            examples: the indices whose clipped gradients are summed in ``grad``, or how many they are.
            clip_norm: to which the gradient of each example was clipped, over all parameters together.

        Raises: InvalidInputError when a parameter has no ``grad``; UnsupportedError for exact noise, and for a ``grad``
        in a type that is narrower than float32, whose rounding the noise does not cover: add the tensors of
        :meth:`next` to a wider sum instead; ViolationError when the sum is above the clipping norms of its examples
        together; and as :meth:`hockeystick.training.Run.noise`.
        """
        refuse_exact(self.run.mechanism.exact, "Noise.add_")
        if any(parameter.grad is None for parameter in self.parameters):
            raise InvalidInputError("Every parameter must have a 'grad', zeros for an empty batch; one has none.")
        narrow = [parameter.grad.dtype for parameter in self.parameters if parameter.grad.dtype not in WIDE]
        if narrow:
            raise UnsupportedError(
                f"Sums of gradients in {narrow[0]} are rounded by more than the noise covers; sum in float32, and add "
                "the noise that next gives."
            )
        fault = fault_of((parameter.grad for parameter in self.parameters), examples, clip_norm)
        if fault is not None:
            self.run.violated(fault)
        rows = self.borrow(examples)
        for parameter, row in zip(self.parameters, rows or [], strict=False):
            parameter.grad = noisy(parameter.grad, row, clip_norm).to(parameter.dtype)


def noisy(total: torch.Tensor, row: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """The sum plus noise, in the type of the noise or a wider one; in place where that is the type of the sum."""
    return total.detach().to(torch.promote_types(total.dtype, row.dtype)).add_(row, alpha=clip_norm)


def size_of(parameters: Iterable[torch.Tensor]) -> int:
    """Numbers in these tensors together; raises InvalidInputError where there are none."""
    size = sum(parameter.numel() for parameter in parameters)
    if size == 0:
        raise InvalidInputError("There must be at least one trainable parameter. Got none.")
    return size
