"""An accountant for Opacus' own engine: ``opacus.PrivacyEngine(accountant="hockeystick")``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from math import ceil, hypot
from types import FrameType
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping, DPPerLayerOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from hockeystick.calls import made_by
from hockeystick.certificate import Interval
from hockeystick.certification.description import check_floor
from hockeystick.certification.issue import certify
from hockeystick.errors import InvalidInputError, UnsupportedError, counted
from hockeystick.mechanism import Mechanism
from hockeystick.noise.generators import GENERATORS, floor
from hockeystick.samplers import Poisson
from hockeystick.training.torch.guards import WIDE, parts_of
from hockeystick.training.torch.layers import check_layers
from hockeystick.training.torch.norms import float32_excess
from hockeystick.training.torch.random_states import generator_state
from hockeystick.training.torch.rows import watch_rows

NAME = "hockeystick"
COIN = 2.0**-24
"""Opacus flips its coins by comparing a float32 in [0, 1) with the rate, which adds up to this much to the rate."""
COINS = (torch.float32, torch.float64)
"""Types of torch's default for which :data:`COIN` holds. A bfloat16 coin of rate .001 comes up three times as often."""
OPTIMIZERS = (DPOptimizer, DPPerLayerOptimizer, DPOptimizerFastGradientClipping)
"""Optimizers of Opacus for one process that release the noisy sum alone. The one for adaptive clipping also divides a
count by the size of the batch, which is secret; those for several processes add up batches that may share examples."""
BOX_MULLER_FROM = 16
"""Numbers of a tensor from which torch makes normal numbers in the tensor's own type, on a CPU."""


class CountedBatches(UniformWithReplacementSampler):
    """Opacus' sampler, which counts in ``drawn`` the batches that it gives."""

    drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            self.drawn += 1
            yield batch


@made_by("hs.torch.Accountant()")
class Accountant(IAccountant):
    """Steps of Opacus that are Poisson subsampled, with one noise multiplier and one rate; anything else is refused.

    Errs upward: epsilon is a certified upper bound, and the rate it is computed for is at least the one of the coins.
    Opacus clips by float32 norms, which are short for long tensors, so the noise multiplier is divided by the most that
    a clipped gradient can be too long, for the longest tensor of the model and any order of summation: 1.0003 for
    10,000 numbers, 1.03 for a million, and 3.2 for the token embedding of GPT-2.
    The history has the rate of the loader's own sampler. Opacus' accountants have the inverse of the number of batches,
    which is more where that number was rounded down.
    Opacus' checkpoints have no state of a generator. The accountant's has what the generators were like at the first
    step, so that a resumed run which would draw the same noise or the same batches again is refused.

    >>> accountant = Accountant()
    >>> for _ in range(100):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> 0.6 < accountant.get_epsilon(1e-5) < 1.0
    True
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.excess = 1.0
        """How many clipping norms a clipped gradient may have had, of the steps that a hook counted."""
        self.generators: set[str] = set()
        """Whose normal numbers the noise of the steps was made of, as far as the optimizer's steps show it."""
        self.finite = True
        """Whether all sums were finite, of the steps that a hook saw."""
        self.first_states: dict[str, set[int]] = {"noise": set(), "batches": set()}
        """Hashes of the states of generators after the first step, and after the first one of each resumed part."""
        self._goes_on = False

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step."""
        steps = 0
        if self.history:
            last_noise, last_rate, steps = self.history[-1]
            if (last_noise, last_rate) != (noise_multiplier, sample_rate):
                steps = 0
        if steps:
            self.history.pop()
        self.history.append((noise_multiplier, sample_rate, steps + 1))

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """A certified upper bound on epsilon; ``options`` are those of :func:`hockeystick.certify`.

        Raises: CannotCertifyError when the ends of the noise that was seen refute the delta; UnsupportedError when the
        noise multiplier or the rate changed during the run, and when a sum was not finite.
        """
        self._check_finite()
        if not self.history:
            return 0.0
        if len(self.history) > 1:
            raise UnsupportedError(
                "The noise multiplier or the sampling rate changed during the run, "
                f"{counted(len(self.history) - 1, 'time')}; the 'hockeystick' accountant needs one of each."
            )
        noise_multiplier, rate, steps = self.history[0]
        excess, caller = self.excess, sys._getframe(1)
        if caller.f_code is get_noise_multiplier.__code__:  # no step was made yet
            epochs = caller.f_locals.get("epochs")
            if epochs is not None:
                # Opacus calibrates for int(epochs / rate) steps, one fewer than the loader makes: 224 for 3 epochs of
                # 75. The quotient is a whole number but for its rounding, of which 1e-12 takes off what is above.
                steps = max(steps, ceil(epochs / rate * (1 - 1e-12)))
            excess = max(excess, _length_to_come(caller.f_back))
        sampler = Poisson(sampling_prob=min(rate + COIN, 1.0), steps=steps)
        sure = Mechanism(sampler=sampler, noise_multiplier=noise_multiplier / excess)
        run = Mechanism(sampler=sampler, noise_multiplier=noise_multiplier)
        worst = max(sorted(self.generators), key=lambda name: floor(run, name), default=None)
        generator = options.pop("generator", worst)
        if generator is not None:
            check_floor(run, generator, delta)
        epsilon = certify(sure, delta=delta, **options).epsilon
        return epsilon.upper if isinstance(epsilon, Interval) else epsilon

    def _check_finite(self) -> None:
        """Raise UnsupportedError once an example has had a gradient that is not finite, which Opacus does not clip."""
        if not self.finite:
            raise UnsupportedError(
                "A sum of gradients is not finite: Opacus multiplies an infinite gradient by 0 and a NaN by NaN, so "
                "that one example makes the whole model NaN, and no noise hides it; find out what makes such "
                "gradients, and train anew."
            )

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The hook that counts steps, for the loader of the ``make_private`` that asks for it.

        Opacus does not say which loader it made, so this looks at its caller; one that cannot be seen is refused too.

        Raises: UnsupportedError unless the loader draws Poisson batches, in one process, and the optimizer releases
            nothing but noisy sums, and for layers that change without noise; the model, for layers with rows of
            something else than examples, and where it mixes them; the hook, for steps on batches that this loader did
            not draw, as of the loader that ``make_private`` was given, for noise or batches that a generator would draw
            again, for steps that use several batches, for coins of another type, for noise of another norm than
            layers are clipped to, for layers with gradients of other rows than the examples, for sums that are not
            finite, and for ghost clipping and types narrower than float32, in which nothing bounds the error of Opacus'
            norms.
        """
        caller = sys._getframe(1).f_locals
        loader: Any = caller.get("data_loader")
        if type(loader) is not DPDataLoader or loader.distributed:
            raise UnsupportedError(
                "The 'hockeystick' accountant accounts for Opacus' Poisson batches in one process. The loader of this "
                f"run, of type {type(loader).__name__!r}, makes other batches; use "
                "hockeystick.torch.PrivacyEngine with a plan that describes them."
            )
        if loader.collate_fn.rand_on_empty:
            raise UnsupportedError(
                "With rand_on_empty=True a made-up example stands for an empty batch, so that an example changes the "
                "sum by up to two clipping norms; leave it out."
            )
        if type(caller.get("optimizer")) not in OPTIMIZERS:
            raise UnsupportedError(
                "The 'hockeystick' accountant accounts for the noisy sums of one process, which is not all that the "
                f"optimizer of type {type(caller.get('optimizer')).__name__!r} releases; use "
                "hockeystick.torch.PrivacyEngine."
            )
        check_layers(caller["module"]._module, ghost=False)
        watch_rows(caller["module"])
        del sample_rate  # the inverse of the number of batches
        sampler: Any = loader.batch_sampler
        sampler.__class__ = CountedBatches
        steps, before = 0, sampler.drawn

        def counted(optimizer: Any) -> None:
            nonlocal steps
            _check_coins()
            steps += 1
            if steps > sampler.drawn - before:
                raise UnsupportedError(
                    f"This step is number {steps}, and the loader that make_private returned has given batches for "
                    f"{sampler.drawn - before} so far; train on its batches, each in one step, because those of "
                    "another loader are not Poisson batches."
                )
            if optimizer.accumulated_iterations != 1:
                raise UnsupportedError(
                    f"This step adds up {optimizer.accumulated_iterations} batches, in which an example can be more "
                    "than once; the 'hockeystick' accountant needs a step for each batch."
                )
            _check_clipped_layers(optimizer)
            sums = [parameter.summed_grad for parameter in optimizer.params if parameter.summed_grad is not None]
            self.finite &= all(bool(summed.isfinite().all()) for summed in sums)
            self._check_finite()
            self._check_generators(optimizer, sampler.generator)
            self.excess = max(self.excess, clipped_length(optimizer))
            self.generators |= generators_of(optimizer)
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sampler.sample_rate)

        _check_coins()
        return counted

    def _check_generators(self, optimizer: Any, coins: torch.Generator | None) -> None:
        """Raise UnsupportedError where the generator of the noise, or of the batches, was seeded as at a first step.

        Noise is compared at every step; batches, which a loader may draw ahead, at the first step of a resumed run.
        """
        if optimizer.secure_mode or not optimizer.noise_multiplier:
            return  # a generator that cannot be seeded; no noise
        noise = generator_state(optimizer.generator, optimizer.params[0].device)
        states = {"noise": noise, "batches": generator_state(coins, torch.device("cpu"))}
        first = self._goes_on or not self.history
        for what, state in states.items():
            if state in self.first_states[what] and (first or what == "noise"):
                raise UnsupportedError(
                    f"The generator of the {what} is in the state in which it was at the first step of this run or of "
                    "a part of it, as after the same seed, so that the same numbers would be drawn again; save the "
                    "generator's state with a checkpoint, or seed a resumed run with another number."
                )
        if first:
            for what, state in states.items():
                if state is not None:
                    self.first_states[what].add(state)
        self._goes_on = False

    def state_dict(self, destination: Any = None) -> Any:
        """Opacus' state, with how long clipped gradients may have been, and what else was seen of the steps."""
        state = super().state_dict(destination)
        state["excess"] = self.excess
        state["generators"] = sorted(self.generators)
        state["finite"] = self.finite
        state["first_states"] = {what: sorted(states) for what, states in self.first_states.items()}
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue; raises InvalidInputError for a state that does not say how long clipped gradients may have been."""
        if not float(state_dict.get("excess", 0.0)) >= 1.0:
            raise InvalidInputError("The 'excess' entry of the accountant's state must be a number of at least 1.")
        super().load_state_dict(state_dict)
        self.excess = float(state_dict["excess"])
        self.generators = set(state_dict.get("generators", ()))
        self.finite = bool(state_dict.get("finite", True))
        saved = state_dict.get("first_states", {})
        self.first_states = {what: set(saved.get(what, ())) for what in self.first_states}
        self._goes_on = True

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return NAME


def _check_coins() -> None:
    """Raise UnsupportedError unless torch draws the coins of Opacus in a type, and where, the rate is known for."""
    coins = torch.empty(0)  # torch 2.6 does not name the device of a "with" block
    drawn = (coins.dtype, coins.device.type)
    if drawn[0] not in COINS or drawn[1] != "cpu":
        raise UnsupportedError(
            "Opacus draws its batches with torch's defaults, and the 'hockeystick' accountant knows the rate of "
            f"float32 and float64 coins on a CPU. Got {drawn[0]} on {drawn[1]!r}; set the type of the model instead."
        )


def _check_clipped_layers(optimizer: Any) -> None:
    """Raise UnsupportedError where clipping by layers does not bound what the noise of the step was for.

    Opacus clips by a list of norms and scales the noise by another number, which a schedule for the norm changes alone.
    And it clips the rows of each layer's gradients by themselves, whatever they are of: positions, say.
    """
    norms = getattr(optimizer, "max_grad_norms", None)
    if norms is None:
        return
    joint = hypot(*norms)
    if float(optimizer.max_grad_norm) < joint * (1.0 - 1e-6):  # Opacus rounds it to float32
        raise UnsupportedError(
            f"The noise of this step was for a norm of {float(optimizer.max_grad_norm):g}, but its layers are clipped "
            f"to {joint:g} together, as happens with a schedule for the clipping norm; use clipping='flat'."
        )
    rows = {sum(map(len, parts_of(parameter.grad_sample))) for parameter in optimizer.params}
    if len(rows) > 1:
        raise UnsupportedError(
            f"Layers have gradients of different numbers of rows, {min(rows)} to {max(rows)}, so that not all of them "
            "are of the examples; the first dimension of what every layer gets must be that of the examples, position "
            "ids included."
        )


def clipped_length(optimizer: Any) -> float:
    """How many clipping norms a gradient may have that one of Opacus' optimizers clipped, by its float32 norms.

    Raises: UnsupportedError for ghost clipping, where the rounding of a norm is relative to the norms of the tokens and
    may be all of it, and for parameters or gradients in types narrower than float32.
    """
    parameters = optimizer.params
    tensors = (part for p in parameters for part in (p, *parts_of(getattr(p, "grad_sample", None))))
    narrow = [tensor.dtype for tensor in tensors if tensor.dtype not in WIDE]
    if isinstance(optimizer, DPOptimizerFastGradientClipping) or narrow:
        what = f"computes norms in {narrow[0]}" if narrow else "computes norms from products of tokens in float32"
        raise UnsupportedError(
            f"Opacus {what}, with an error that nothing bounds; use hockeystick.torch.PrivacyEngine, or "
            "grad_sample_mode='hooks' with parameters in float32."
        )
    return _length(parameters, getattr(optimizer, "max_grad_norms", [float(optimizer.max_grad_norm)]))


def _length_to_come(frame: FrameType | None) -> float:
    """The same for the model that ``make_private_with_epsilon`` calibrates for; 1 where another function calibrates."""
    if frame is None or frame.f_code is not PrivacyEngine.make_private_with_epsilon.__code__:
        return 1.0
    given = frame.f_locals
    norms = given["max_grad_norm"]
    parameters = [parameter for parameter in given["module"].parameters() if parameter.requires_grad]
    return _length(parameters, norms if isinstance(norms, list) else [float(norms)])


def _length(parameters: Sequence[torch.Tensor], norms: Sequence[float]) -> float:
    longest = max((parameter.numel() for parameter in parameters), default=0)
    return float32_excess(longest, len(parameters), min(norms))


def generators_of(optimizer: Any) -> set[str]:
    """The generators of ``hockeystick.noise.GENERATORS`` that an optimizer of Opacus adds noise of; none where unsure.

    Only optimizers that clip all parameters together: of others, no coordinate moves by a whole clipping norm.
    """
    if type(optimizer) not in (DPOptimizer, DPOptimizerFastGradientClipping):
        return set()
    names = set()
    for parameter in optimizer.params:
        device, dtype = parameter.device.type, str(parameter.dtype).removeprefix("torch.")
        if optimizer.secure_mode:  # noise in the default type, whatever that of the parameters
            dtype = str(torch.get_default_dtype()).removeprefix("torch.")
            names.add(f"opacus-secure-{device}" if dtype == "float32" else "")
        elif device == "cpu" and parameter.numel() < BOX_MULLER_FROM:
            names.add("torch-cpu-small" if dtype == "float32" else "")
        else:
            names.add(f"torch-{device}-{dtype}")
    return names & GENERATORS.keys()


register_accountant(NAME, Accountant, force=True)
