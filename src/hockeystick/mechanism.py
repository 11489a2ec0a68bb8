"""Mechanism: strategy + sampler + noise multiplier. Frozen, public information only; knows nothing of accountants."""

from typing import Self

from pydantic import Field, model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import Sampler
from hockeystick.spec import NoiseMultiplier, Spec
from hockeystick.strategies import Identity, Strategy, StrategyMatrix


class Mechanism(Spec):
    """What is run: ``C x + z`` with batches from a sampler and ``z ~ N(0, noise_multiplier^2 I)``.

    >>> import hockeystick as hs
    >>> run = Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> run.with_noise(2.0).sigma
    2.0

    Attributes:
        strategy: the matrix C; ``Identity()`` is plain DP-SGD.
        sampler: how the batches are drawn.
        noise_multiplier: standard deviation of z in units of the clipping norm, not divided by the sensitivity of C;
            None until it is calibrated.
    """

    strategy: Strategy = Field(default_factory=Identity)
    sampler: Sampler = Field(discriminator="kind")
    noise_multiplier: NoiseMultiplier | None = None

    @model_validator(mode="after")
    def _strategy_suits_the_steps(self) -> Self:
        self.strategy.check_all(self.sampler.steps)
        return self

    @property
    def matrix(self) -> StrategyMatrix:
        """C for the steps of the sampler; an optimised strategy is optimised on first use."""
        return self.strategy.matrix(self.sampler.steps)

    @property
    def sigma(self) -> float:
        """The noise multiplier; raises InvalidInputError if there is none yet."""
        if self.noise_multiplier is None:
            raise InvalidInputError(
                "The 'noise_multiplier' field is missing; give it, or calibrate the mechanism for a target epsilon."
            )
        return self.noise_multiplier

    def with_noise(self, noise_multiplier: float) -> "Mechanism":
        """The same mechanism with this noise multiplier."""
        return Mechanism(strategy=self.strategy, sampler=self.sampler, noise_multiplier=noise_multiplier)

    def pinned(self) -> "Mechanism":
        """The same mechanism, with files named by their digests."""
        return self.model_copy(update={"strategy": self.strategy.pinned()})
