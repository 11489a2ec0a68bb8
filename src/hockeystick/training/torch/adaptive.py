"""The optimisers of ``hockeystick.training.adaptive`` for models, and what they need of Opacus' optimizers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.adaptive import check_settings, expect_positive, split_norm
from hockeystick.training.torch.guards import parts_of
from hockeystick.training.torch.norms import clip_factors, numbers_in, squared_norms
from hockeystick.training.torch.private_names import check_processed_flag

Tensors = list[torch.Tensor]


@made_by("hs.torch.ScaledAdam(model.parameters(), lr=0.001)")
class ScaledAdam(torch.optim.Adam):
    """Adam that scales per-sample gradients by its preconditioner before they are clipped: scale-then-privatise.

    Hand it to ``PrivacyEngine.make_private``, and the loop stays as it is. The clipping norm and the noise then apply
    to scaled gradients, and the noisy sum is scaled back before Adam sees it. The certificate is that of any other
    optimizer; see ``docs/theory/adaptive-optimisers.md``. Without the engine it is plain Adam.

    >>> import hockeystick as hs
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(torch.randn(60, 4), torch.randint(2, (60,)))
    >>> model = torch.nn.Linear(4, 2)
    >>> engine = hs.torch.PrivacyEngine(hs.Mechanism(sampler=hs.BallsInBins(bins=6), noise_multiplier=2.0))
    >>> model, optimizer, loader = engine.make_private(
    ...     module=model,
    ...     optimizer=ScaledAdam(model.parameters(), lr=0.01),
    ...     data_loader=DataLoader(data),
    ...     max_grad_norm=1.0,
    ... )
    >>> for x, y in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(x), y).backward()
    ...     optimizer.step()

    Args:
        params, lr, betas, options: as ``torch.optim.Adam`` has them.
        floor, relative: as :class:`hockeystick.training.ScaledAdam` has them, over all parameters together.

    Raises: InvalidInputError for a learning rate or a floor that is not positive, and for betas outside [0, 1).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        *,
        floor: float = 0.1,
        relative: bool = True,
        **options: Any,
    ) -> None:
        expect_positive("lr", lr)
        check_settings(betas, floor)
        super().__init__(params, lr=lr, betas=betas, **options)
        self.floor = floor
        self.relative = relative

    def unscales(self) -> dict[torch.Tensor, Any]:
        """What scaled gradients have to be multiplied by, for every parameter: a tensor, or a number."""
        widths = {parameter: self._width(parameter, group) for group, parameter in _members(self)}
        if not self.relative:
            return {parameter: width + self.floor for parameter, width in widths.items()}
        typical = _rms(widths)
        if not typical:
            return dict.fromkeys(widths, 1.0)
        widths = {parameter: width + self.floor * typical for parameter, width in widths.items()}
        norm = _rms(widths)
        return {parameter: width / norm for parameter, width in widths.items()}

    def _width(self, parameter: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """The root of the second moment."""
        state = self.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return torch.zeros_like(parameter)
        return (state["exp_avg_sq"] / (1.0 - group["betas"][1] ** float(state["step"]))).sqrt()


@made_by("hs.torch.IndependentAdam(model.parameters(), lr=0.01)")
class IndependentAdam(torch.optim.Optimizer):
    """Adam whose second moments are released with noise of their own: independent moment estimation.

    Hand it to ``PrivacyEngine.make_private`` with flat clipping, and the loop stays as it is. An example then
    contributes its gradient, clipped to ``max_grad_norm / sqrt(1 + share^2)``, and the weighted squares of it, together
    of norm at most ``max_grad_norm``; the run has noise for both, twice as many numbers as the model. The certificate
    is that of any other optimizer; see ``docs/theory/adaptive-optimisers.md``.

    Args:
        params: as torch has them.
        lr, betas, share, floor: as :class:`hockeystick.training.IndependentAdam` has them, over all parameters.

    Raises: InvalidInputError for values outside their ranges, and by ``step`` without squares, as where another engine
    than hockeystick's made the gradients.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        *,
        share: float = 1.0,
        floor: float = 0.5,
    ) -> None:
        expect_positive("lr", lr)
        check_settings(betas, floor)
        expect_positive("share", share)
        super().__init__(params, {"lr": lr, "betas": betas})
        self.floor = floor
        self.share = share
        self.weight: float | None = None
        """What squares are multiplied by before they are released; set with the clipping norm, by the engine."""

    @cached_property
    def squares(self) -> dict[torch.Tensor, torch.Tensor]:
        """A companion of every parameter, whose ``grad`` is its privatised mean square, times ``weight``."""
        return {parameter: torch.zeros_like(parameter).requires_grad_() for _, parameter in _members(self)}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As Adam does, with the second moments that were released."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        if self.weight is None or any(square.grad is None for square in self.squares.values()):
            raise InvalidInputError(
                "The second moments are missing; IndependentAdam needs hockeystick.torch.PrivacyEngine's make_private."
            )
        firsts, seconds = {}, {}
        for group, parameter in _members(self):
            released = (parameter.grad, self.squares[parameter].grad / self.weight)
            firsts[parameter], seconds[parameter] = self._averages(parameter, group, released)
        widths = {parameter: second.clamp(min=0.0).sqrt() for parameter, second in seconds.items()}
        typical = _rms(widths)
        for group, parameter in _members(self):
            width = widths[parameter] + self.floor * typical
            change = firsts[parameter] / torch.where(width > 0.0, width, torch.inf)
            parameter.sub_(group["lr"] * change)
        return loss

    def _averages(self, parameter: torch.Tensor, group: dict[str, Any], released: tuple[Any, Any]) -> Tensors:
        state = self.state[parameter]
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        state["step"] += 1
        averages = []
        for name, beta, new in zip(("exp_avg", "exp_avg_sq"), group["betas"], released, strict=True):
            state[name].lerp_(new, 1.0 - beta)
            averages.append(state[name] / (1.0 - beta ** state["step"]))
        return averages


class ScalesGradients:
    """Comes before one of Opacus' optimizer classes: clips and sums scaled gradients, and scales noisy sums back."""

    params: Any
    original_optimizer: Any

    def clip_and_accumulate(self) -> None:
        """As Opacus does, of scaled per-sample gradients."""
        unscales = self.original_optimizer.unscales()
        for parameter in self.params:
            check_processed_flag(parameter.grad_sample)  # a new tensor would not have the flag
            scaled = [part.to(parameter.dtype) / unscales[parameter] for part in parts_of(parameter.grad_sample)]
            parameter.grad_sample = scaled if isinstance(parameter.grad_sample, list) else scaled[0]
        super().clip_and_accumulate()  # type: ignore[misc]

    def add_noise(self) -> None:
        """Add the noise to the scaled sums, and scale the result back."""
        super().add_noise()  # type: ignore[misc]
        unscales = self.original_optimizer.unscales()
        for parameter in self.params:
            parameter.grad = (parameter.grad * unscales[parameter]).to(parameter.dtype)


class AddsSquares:
    """Comes before one of Opacus' optimizer classes: the squares of clipped gradients count as gradients, too.

    Every trained parameter has a companion, and the per-sample gradients of a companion are the weighted squares of its
    parameter's. Clipping, summing, noise and division are then Opacus' for all of them together.
    """

    max_grad_norm: Any
    original_optimizer: Any
    check_numbers: Callable[[Sequence[int]], int]

    @property
    def params(self) -> Tensors:
        """The trained parameters, and then their companions."""
        trained: Tensors = super().params  # type: ignore[misc]
        return [*trained, *(self.original_optimizer.squares[parameter] for parameter in trained)]

    def attach(self, *about: Any) -> None:
        """Bind to a run; the weight of the squares follows from the clipping norm, which stays."""
        super().attach(*about)  # type: ignore[misc]
        optimizer = self.original_optimizer
        self.gradient_norm, optimizer.weight = split_norm(self.max_grad_norm, optimizer.share)

    def pre_step(self, closure: Any = None) -> Any:
        """Clip the per-sample gradients and take their squares; then as Opacus does with all of them."""
        trained: Tensors = super().params  # type: ignore[misc]
        if all(getattr(parameter, "grad_sample", None) is not None for parameter in trained):
            self._square(trained)
        return super().pre_step(closure)  # type: ignore[misc]

    def _square(self, trained: Tensors) -> None:
        squares, weight = self.original_optimizer.squares, self.original_optimizer.weight
        for parameter in trained:
            check_processed_flag(parameter.grad_sample)  # a new tensor would not have the flag
        for numbers in zip_longest(*([len(part) for part in parts_of(p.grad_sample)] for p in trained), fillvalue=0):
            self.check_numbers(numbers)  # a factor for each example would turn one row into many
        clipped: list[Tensors] = []  # for every physical batch, of every parameter
        for batch in zip(*(parts_of(parameter.grad_sample) for parameter in trained), strict=True):
            norms = torch.stack([squared_norms(part) for part in batch]).sum(dim=0).sqrt()
            factors = clip_factors(norms, self.gradient_norm, numbers_in(trained), torch.float32)
            clipped.append([part * factors.to(part.dtype).view(-1, *[1] * (part.dim() - 1)) for part in batch])
        for parameter, *parts in zip(trained, *clipped, strict=True):
            of_companion = [weight * part.square() for part in parts]
            several = isinstance(parameter.grad_sample, list)
            parameter.grad_sample = parts if several else parts[0]
            squares[parameter].grad_sample = of_companion if several else of_companion[0]


def noisy_parameters(optimizer: torch.optim.Optimizer, trained: Tensors, clipping: str) -> Tensors:
    """All tensors that need noise: the trained parameters, companions that some optimisers have, and a count."""
    companions: dict[torch.Tensor, torch.Tensor] = getattr(optimizer, "squares", {})
    return [*trained, *companions.values(), *([torch.zeros(1)] if clipping == "adaptive" else [])]


def check_clipping(
    optimizer: torch.optim.Optimizer, clipping: str, grad_sample_mode: str, *, distributed: bool
) -> None:
    """Raise UnsupportedError where an optimiser of this module needs other per-sample gradients than there are."""
    if not isinstance(optimizer, ScaledAdam | IndependentAdam):
        return
    name = type(optimizer).__name__
    if grad_sample_mode.startswith("ghost"):
        raise UnsupportedError(
            f"{name} changes per-sample gradients before they are clipped, and ghost clipping has none; use "
            "grad_sample_mode 'hooks' or 'functorch'."
        )
    if clipping != "flat" and (distributed or isinstance(optimizer, IndependentAdam)):
        raise UnsupportedError(
            f"{name} needs flat clipping{' in several processes' if isinstance(optimizer, ScaledAdam) else ''}. "
            f"Got clipping = {clipping!r}."
        )


def _members(optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, Any], torch.Tensor]]:
    """The trained parameters, each with its group."""
    return [
        (group, parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]


def _rms(tensors: Mapping[torch.Tensor, torch.Tensor]) -> float:
    """Root of the mean square over all numbers together."""
    total = sum(float(parameter.detach().to(torch.float64).square().sum()) for parameter in tensors.values())
    return math.sqrt(total / sum(parameter.numel() for parameter in tensors.values()))
