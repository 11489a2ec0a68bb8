"""Adam with privacy: optimisers that scale before clipping, or that release second moments of their own.

They need numpy alone and work on flat arrays; ``hockeystick.torch`` has them for models. The theory page
``docs/theory/adaptive-optimisers.md`` says what of them is post-processing, and proves that the certificate of a
mechanism covers the rest.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import called, made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism, expect_mechanism
from hockeystick.spec import real_number

Reals = NDArray[Any]

SMALLEST = {"float32": 1e-30, "float64": 1e-140}
"""The smallest clipping norm by the type of what is clipped."""


@called("hs.training.clipped(rows, 1.0)")
def clipped(rows: Reals, norm: float) -> Reals:
    """The contributions of examples, scaled down to l2 norm ``norm`` where they are longer.

    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(3)
    array([[0.6, 0.8],
           [0.3, 0.4]])

    Errs on the safe side: norms are summed in float64 and rounded up by more than that is short, and what is clipped is
    shortened by another millionth for the rounding of the result. A row that is not finite becomes zeros, as nothing
    bounds what it would add.

    Args:
        rows: of float32 or float64, shape (examples, size).
        norm: from 1e-30, or from 1e-140 for float64: smaller numbers are coarse, and so are their squares.

    Raises: InvalidInputError for a norm that is smaller, or not finite, and for rows of another type, whose rounding is
        coarser.
    """
    expect_positive("norm", norm)
    if not isinstance(rows, np.ndarray):
        raise InvalidInputError(f"The 'rows' argument must be an array of numpy. Got {shortened(rows)} instead.")
    if rows.ndim != 2:
        raise InvalidInputError(
            f"The 'rows' argument must have one row for each example. Got an array of shape {rows.shape} instead."
        )
    if rows.dtype not in (np.float32, np.float64):
        raise InvalidInputError(f"The 'rows' argument must be of float32 or float64. Got {rows.dtype} instead.")
    smallest = SMALLEST[rows.dtype.name]
    if norm < smallest:
        raise InvalidInputError(
            f"The 'norm' argument must be at least {smallest:g} for {rows.dtype}. Got {norm!r} instead."
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64, casting="same_kind"))
    known = np.isfinite(lengths)
    lengths *= 1.0 + (rows.shape[1] + 4) * 2.0**-53  # by more than a sum of so many squares in float64 is short
    # Rounding the divisor to float32, and each quotient, lengthens a row by a factor of 1 + 2^-24 each.
    with np.errstate(over="ignore"):  # a row that is too long to say by how much becomes zeros
        excess = np.where(known & (lengths > norm), (1.0 + 1e-6) * lengths / norm, 1.0).astype(rows.dtype)
    kept: Reals = np.where(known[:, None], rows, rows.dtype.type(0.0)) / excess[:, None]
    return kept


@called("hs.training.noise_variance(run)")
def noise_variance(mechanism: Mechanism) -> NDArray[np.float64]:
    """The variance of a coordinate of the noise of every step, in squared clipping norms: what squares gain by noise.

    It is ``sigma^2`` times the squared norm of a row of ``C^-1``, shape (steps,). Divide it by the squared normaliser
    for the noise of a mean. It promises no side. Subtracting it from squared noisy gradients leaves no bias where C is
    the identity. With correlated noise a bias is left, as gradients depend on the noise before them.

    >>> import hockeystick as hs
    >>> sampler = hs.Poisson(sampling_prob=0.1, steps=3)
    >>> noise_variance(hs.Mechanism(sampler=sampler, noise_multiplier=2.0))
    array([4., 4., 4.])
    """
    expect_mechanism(mechanism)
    matrix = mechanism.matrix
    own = np.zeros(matrix.steps)
    own[0] = 1.0
    return mechanism.sigma**2 * matrix.query_errors(own)


@made_by("hs.training.ScaledAdam(learning_rate=0.01)")
class ScaledAdam:
    """Adam that scales the gradient of every example by its preconditioner *before* it is clipped and noise is added.

    It is called scale-then-privatise. The scale of a step is a function of what was released before it, so the same
    certificate covers the run: the gradients are scaled, then clipped to the same norm, summed and noised.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    >>> run = hs.training.Run(mechanism, num_examples=100, shape=4, rng=np.random.default_rng(0))
    >>> data, weights, adam, clip_norm = np.ones((100, 4)), np.zeros(4), ScaledAdam(learning_rate=0.1), 2.0
    >>> for batch in run.batches():
    ...     gradients = weights - data[batch]  # of every example
    ...     total = clipped(gradients * adam.scale, clip_norm).sum(axis=0)
    ...     weights += adam.step((total + clip_norm * run.noise(batch)) / run.expected_batch_size)
    >>> run.record().violations
    ()

    Args:
        learning_rate: positive.
        betas: decay of the first and the second moment, each in [0, 1).
        eps: is added to the root of the second moment that divides the first, as in Adam.
        floor: bounds scales: with ``relative`` no coordinate's is more than ``1 / floor`` times that of a typical one.
        relative: scale by ``k / (sqrt(v) + floor * rms)`` with rms the root of the mean second moment over all
            coordinates, and k such that the noise in the gradients has the same total variance as without scales: the
            clipping norm keeps its meaning. False: by ``1 / (sqrt(v) + floor)``, where the clipping norm is one of
            updates, and noise of more than about ``clip_norm * sigma / batch_size = 1`` makes v grow without end.

    Raises: InvalidInputError for values outside these ranges.
    Reference: Ganesh, McMahan and Thakurta (2025), "On design principles for private adaptive optimizers"
    (``relative=False``), as used by Dong and Ganesh (2026), section 7.3.
    """

    def __init__(
        self,
        *,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        floor: float = 0.1,
        relative: bool = True,
    ) -> None:
        expect_positive("learning_rate", learning_rate)
        check_settings(betas, floor)
        expect_positive("eps", eps)
        self.learning_rate = learning_rate
        self.betas = betas
        self.eps = eps
        self.floor = floor
        self.relative = relative
        self._moments = _Moments(betas)

    @property
    def scale(self) -> Any:
        """What to multiply the gradients of the next step by before they are clipped: shape (size,), (1,) or ()."""
        return 1.0 / self._unscale

    @property
    def _unscale(self) -> Any:
        widths = self._moments.second**0.5
        typical = float(np.mean(widths * widths)) ** 0.5
        if not self.relative:
            return widths + self.floor
        widths = widths + self.floor * typical
        return widths / float(np.mean(widths * widths)) ** 0.5 if typical else 1.0

    def step(self, noisy: Reals) -> Reals:
        """What to add to the weights, shape (size,), and the scale of the next step; all of it post-processing.

        Args:
            noisy: sum of the clipped scaled gradients and noise, over the public normaliser, shape (size,).
        """
        gradient = np.asarray(noisy) * self._unscale
        self._moments.add(gradient, gradient * gradient)
        change: Reals = -self.learning_rate * self._moments.first / (self._moments.second**0.5 + self.eps)
        return change

    def state_dict(self) -> dict[str, Any]:
        """What was learned so far. As public as what was released."""
        return self._moments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._moments.load_state_dict(state)


@made_by("hs.training.IndependentAdam(learning_rate=0.01, clip_norm=1.0)")
class IndependentAdam:
    """Adam whose second moments are released with noise of their own: independent moment estimation.

    An example contributes its clipped gradient g and, weighted, the squares of its coordinates: a vector of twice the
    size, of norm at most ``clip_norm``. Second moments are not post-processing here; they are paid for by clipping g to
    ``clip_norm / sqrt(1 + share^2)``, and the noise of the run has twice as many numbers. The certificate is the same.

    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    >>> run = hs.training.Run(mechanism, num_examples=100, shape=2 * 4, rng=np.random.default_rng(0))
    >>> data, weights = np.ones((100, 4)), np.zeros(4)
    >>> adam = IndependentAdam(learning_rate=0.1, clip_norm=2.0)
    >>> for batch in run.batches():
    ...     total = adam.contributions(weights - data[batch]).sum(axis=0)
    ...     weights += adam.step((total + adam.clip_norm * run.noise(batch)) / run.expected_batch_size)
    >>> run.record().violations
    ()

    What it divides by estimates the mean *of the squared* gradients of examples, not the squared mean as in Adam, so
    steps are shorter, and larger learning rates fit.

    Args:
        learning_rate: positive.
        clip_norm: of all that an example contributes, gradient and squares together.
        betas: decay of the first and the second moment, each in [0, 1).
        share: norm of the squares' part over that of the gradient's, at most; more gives better second moments and more
            noise in the gradients.
        floor: in units of the root of the mean second moment over all coordinates; is added to the roots that divide.

    Raises: InvalidInputError for values outside these ranges.
    Reference: the name is from Ganesh, McMahan and Thakurta (2025); the joint norm is proved in
    ``docs/theory/adaptive-optimisers.md``.
    """

    def __init__(
        self,
        *,
        learning_rate: float,
        clip_norm: float,
        betas: tuple[float, float] = (0.9, 0.999),
        share: float = 1.0,
        floor: float = 0.5,
    ) -> None:
        expect_positive("learning_rate", learning_rate)
        check_settings(betas, floor)
        expect_positive("clip_norm", clip_norm)
        expect_positive("share", share)
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.betas = betas
        self.floor = floor
        self.gradient_norm, self.weight = split_norm(clip_norm, share)
        self._moments = _Moments(betas)

    def contributions(self, gradients: Reals) -> Reals:
        """Every example's clipped gradient and weighted squares: shape (examples, 2 size), norm <= clip_norm.

        Args:
            gradients: shape (examples, size).
        """
        kept = clipped(gradients, self.gradient_norm)
        return clipped(np.concatenate([kept, kept.dtype.type(self.weight) * kept * kept], axis=1), self.clip_norm)

    def step(self, noisy: Reals) -> Reals:
        """What to add to the weights, shape (size,).

        Args:
            noisy: sum of the contributions and noise, over the public normaliser, shape (2 size,).
        """
        first, second = np.split(np.asarray(noisy), 2)
        self._moments.add(first, second / self.weight)
        kept = np.maximum(self._moments.second, 0.0)
        widths = kept**0.5 + self.floor * float(np.mean(kept)) ** 0.5
        change: Reals = -self.learning_rate * self._moments.first / np.where(widths > 0.0, widths, np.inf)
        return change

    def state_dict(self) -> dict[str, Any]:
        """What was learned so far. As public as what was released."""
        return self._moments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self._moments.load_state_dict(state)


class _Moments:
    """Exponential averages of what was released, with Adam's correction for where they began."""

    def __init__(self, betas: tuple[float, float]) -> None:
        self._betas = betas
        self._sums: tuple[Reals, ...] = (np.zeros(1), np.zeros(1))
        self._steps = 0

    def add(self, *released: Reals) -> None:
        parts = zip(self._betas, self._sums, released, strict=True)
        self._sums = tuple(beta * total + (1.0 - beta) * new for beta, total, new in parts)
        self._steps += 1

    @property
    def first(self) -> Reals:
        return self._corrected(0)

    @property
    def second(self) -> Reals:
        return self._corrected(1)

    def _corrected(self, which: int) -> Reals:
        whole = 1.0 - self._betas[which] ** self._steps
        average: Reals = self._sums[which] / whole if self._steps else self._sums[which]
        return average

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._sums[0].copy(), "second": self._sums[1].copy(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums = (np.array(state["first"]), np.array(state["second"]))
        self._steps = int(state["steps"])


def split_norm(clip_norm: float, share: float) -> tuple[float, float]:
    """The norm of a gradient, and the weight of its squares, with which both together have norm at most ``clip_norm``.

    With ``|g| <= c`` the squares have norm at most ``c^2``, so with weight ``share / c`` both have at most
    ``c sqrt(1 + share^2)``. Attained by gradients of one coordinate.
    """
    gradient_norm = clip_norm / (1.0 + share * share) ** 0.5
    return gradient_norm, share / gradient_norm


def split_with_count(noise_multiplier: float, count_std: float) -> tuple[float, float]:
    """The weights a of a clipped gradient and c of a count, with which both together have norm at most 1.

    An example contributes ``a clip(g) / S`` and ``c (b - 1/2)`` with b of 0 or 1. For ``C = I`` the count's noise has
    standard deviation ``noise_multiplier / c = count_std``, and ``a^2 + (c / 2)^2 = 1`` leaves the gradient a noise
    multiplier of ``noise_multiplier / a``: Theorem 1 of Andrew et al. (2021).

    Raises: InvalidInputError unless the count's standard deviation is above half of the noise multiplier.
    """
    if not noise_multiplier / 2.0 < count_std < np.inf:
        raise InvalidInputError(
            f"The 'unclipped_num_std' argument must be finite and above {noise_multiplier / 2.0!r}, half of the noise "
            f"multiplier. Got {shortened(count_std)} instead."
        )
    of_count = noise_multiplier / count_std
    return (1.0 - of_count * of_count / 4.0) ** 0.5, of_count


def check_settings(betas: tuple[float, float], floor: float) -> None:
    """Raise InvalidInputError for settings that neither optimiser can take."""
    expect_positive("floor", floor)
    two = isinstance(betas, tuple | list) and len(betas) == 2
    if not two or not all(0.0 <= real_number("betas", beta) < 1.0 for beta in betas):
        raise InvalidInputError(
            f"The 'betas' argument must be two numbers of at least 0 and below 1. Got {shortened(betas)} instead."
        )


def expect_positive(name: str, value: float) -> None:
    """Raise InvalidInputError unless the value is positive and finite."""
    if not 0.0 < real_number(name, value) < np.inf:
        raise InvalidInputError(f"The {name!r} argument must be positive and finite. Got {shortened(value)} instead.")
