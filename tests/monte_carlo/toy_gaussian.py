"""A proposal whose answer is known: one Gaussian against its shift, drawn from a third one."""

from dataclasses import dataclass
from math import erfc, exp, sqrt
from typing import ClassVar

import numpy as np

from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Proposal
from hockeystick.monte_carlo.runs import MARGIN
from hockeystick.samples import Node, Run
from hockeystick.types import Direction, Side


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianProposal(Proposal):
    """``P = N(shift, 1)`` against ``Q = N(0, 1)``, drawn from ``R = N(centre, 1)``, ``centre >= shift > 0``."""

    name: ClassVar[str] = "toy"
    chosen: ClassVar[tuple[str, ...]] = ("shift", "centre")
    direction: Direction = Direction.REMOVE
    shift: float = 1.0
    centre: float = 1.0
    error: float = 1e-9

    @property
    def cost(self) -> float:
        return 1e-8

    @property
    def loss_error(self) -> float:
        return self.error

    def weight_bound(self, epsilon: float) -> float:
        """``w = c e^(-k l)``, and ``e^(-k l) (1 - e^(epsilon - l))`` is largest at ``l = epsilon + log((k + 1)/k)``."""
        k = (self.centre - self.shift) / self.shift
        constant = exp((self.centre**2 - self.shift**2 - k * self.shift**2) / 2)
        return constant * exp(-k * epsilon) * (k**k / (k + 1) ** (k + 1))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        outputs = self.centre + rng.standard_normal(losses.size)
        losses[:] = self.shift * outputs - self.shift**2 / 2
        log_weights[:] = (self.shift - self.centre) * outputs + (self.centre**2 - self.shift**2) / 2


def exact_delta(shift: float, epsilon: float) -> float:
    """The profile of the pair: ``Phi(s/2 - e/s) - e^e Phi(-s/2 - e/s)``."""

    def phi(x: float) -> float:
        return erfc(-x / sqrt(2)) / 2

    return phi(shift / 2 - epsilon / shift) - exp(epsilon) * phi(-shift / 2 - epsilon / shift)


def node(proposal: Proposal, side: Side, epsilon: float, share: float = 0.3, failure: float = 0.05) -> Node:
    """A node that bets ``share`` of 1 / M."""
    largest = proposal.weight_bound(epsilon) * (1 + MARGIN)
    return Node(side=side, epsilon=epsilon, theta=share / largest, weight_bound=largest, failure=failure)


def run_of(proposal: Proposal, nodes: tuple[Node, ...], chunk_size: int = 1000, seed: int = 1) -> Run:
    """A run of this proposal."""
    return Run(
        subject="toy",
        direction=proposal.direction,
        proposal=proposal.name,
        parameters=proposal.parameters,
        nodes=nodes,
        chunk_size=chunk_size,
        seed=seed,
    )
