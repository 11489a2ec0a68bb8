"""What the steps of a training loop release, recorded in one run and replayed to the next."""

import random
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.calls import made_by
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.spec import plain

Array = NDArray[np.float64]
COARSEST = 2.0**-7
"""Relative rounding of a type of 16 bits that numpy does not know."""


@dataclass(frozen=True, eq=False)
class Step:
    """What left one step.

    Attributes:
        released: the noisy numbers, all in one row.
        resolution: relative rounding of a number of their type.
        normaliser: what the noisy sum was divided by.
        exposed: what left without noise.
    """

    released: Array
    resolution: float
    normaliser: float
    exposed: Mapping[str, Array]


@made_by("hs.audit.replay(train, data, neighbour, clip_norm=1.0)")
@dataclass
class Tape:
    """Passed to a training loop that is audited, which calls :meth:`Tape.step` at the end of every step.

    Attributes:
        steps: what left the steps so far.
        states: the states after the steps of the run that is played; of this one, if it is the first.
        playing: whether the states of an earlier run are given back.
        seed: of the generators of ``random``, numpy and torch.
    """

    seed: int
    playing: bool = False
    steps: list[Step] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        seed = plain(self.seed)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InvalidInputError(
                f"The 'seed' field must be a whole number of at least 0. Got {shortened(self.seed)} instead."
            )

    def begin(self) -> None:
        """Seed the generators that loops of others share, for the next step."""
        seed = int(np.random.SeedSequence([self.seed, len(self.steps)]).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)

    def step(
        self,
        released: Any,
        *,
        normaliser: float = 1.0,
        exposed: Mapping[str, Any] | None = None,
        state: Any = None,
    ) -> Any:
        """End a step: say what it releases, and continue from the state that is returned.

        Args:
            released: all that noise was added to: gradients after the noise, as an array, a tensor, or a list or
                dictionary of them.
            normaliser: the number by which the noisy sum was divided before that.
            exposed: whatever else can be seen, by name: losses, running averages, numbers of examples.
            state: the parameters and all else that the next step starts from: objects with ``state_dict`` and
                ``load_state_dict`` (a model, an optimizer), which are set in place, or copyable values; or a list or
                tuple of such.

        Returns: the state to continue from, which in a second run is that of the first one.

        Raises: InvalidInputError for values that are not numbers.
        """
        values, resolution = numbers_of(released)
        shown = {name: numbers_of(value)[0] for name, value in (exposed or {}).items()}
        self.steps.append(Step(values, resolution, float(normaliser), shown))
        place = len(self.steps) - 1
        if not self.playing:
            self.states.append(_saved(state))
        elif place < len(self.states):
            state = _restored(state, self.states[place])
        self.begin()
        return state


def numbers_of(value: Any) -> tuple[Array, float]:
    """All numbers in one row, and the coarsest relative rounding of their types."""
    if isinstance(value, Mapping):
        return numbers_of([value[name] for name in sorted(value)])
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value):
        parts = [numbers_of(part) for part in value]
        return np.concatenate([part for part, _ in parts]), max(resolution for _, resolution in parts)
    resolution = float(np.finfo(np.float64).eps)
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
        if value.is_floating_point():
            resolution = float(sys.modules["torch"].finfo(value.dtype).eps)
            value = value.double()
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 and its like
        array, resolution = array.astype(np.float32), COARSEST
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"What a step releases must be numbers. Got {shortened(value)} instead.")
    if array.dtype.kind == "f":
        resolution = max(resolution, float(np.finfo(array.dtype).eps))
    return array.astype(np.float64).ravel(), resolution


def _saved(state: Any) -> Any:
    if isinstance(state, list | tuple):
        return [_saved(part) for part in state]
    return deepcopy(state.state_dict() if hasattr(state, "load_state_dict") else state)


def _restored(state: Any, saved: Any) -> Any:
    if isinstance(state, list | tuple):
        parts = [_restored(part, kept) for part, kept in zip(state, saved, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)  # optax has named tuples
    if hasattr(state, "load_state_dict"):
        state.load_state_dict(deepcopy(saved))
        return state
    return deepcopy(saved)
