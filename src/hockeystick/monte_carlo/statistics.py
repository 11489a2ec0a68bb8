"""From the statistics of runs to bounds. Nothing here draws samples; verification shares it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from hockeystick.bounds import Profile
from hockeystick.errors import VerificationError
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.confidence import betting_lower, betting_upper
from hockeystick.samples import Chunk, Run, misfit
from hockeystick.types import Direction, Side


@dataclass
class Tally:
    """The statistics of the streams 0, 1, ... of one run, added in their order whatever the order they come in."""

    run: Run
    chunks: int
    samples: int
    sums: Array
    logs: Array
    waiting: dict[int, Chunk]

    @classmethod
    def empty(cls, run: Run) -> "Tally":
        """No chunk yet."""
        count = len(run.nodes)
        return cls(run, 0, 0, np.zeros(count), np.zeros(count), {})

    def add(self, chunk: Chunk) -> None:
        """Count one chunk, once, and those that waited for it; a chunk behind a gap waits."""
        self.offer(chunk)
        while self.advance():
            pass

    def offer(self, chunk: Chunk) -> None:
        """Let one chunk wait to be counted.

        Raises: VerificationError for statistics that no samples of the run have.
        """
        reason = misfit(self.run, chunk)
        if reason is not None:
            raise VerificationError(f"The chunk {chunk.stream} is not one of the run {self.run.key[:12]}: {reason}.")
        if chunk.stream >= self.chunks:
            self.waiting[chunk.stream] = chunk

    def advance(self) -> bool:
        """Count the next chunk, if it is there."""
        if self.chunks not in self.waiting:
            return False
        following = self.waiting.pop(self.chunks)
        self.chunks += 1
        self.samples += following.samples
        self.sums += following.sums
        self.logs += following.logs
        return True

    def bound(self, side: Side) -> dict[float, float]:
        """The tightest bound on the mean of Y at each epsilon of this side, over its fractions."""
        bounds: dict[float, float] = {}
        pick, trivial = (min, 1.0) if side is Side.UPPER else (max, 0.0)
        for place, node in enumerate(self.run.nodes):
            if node.side is side and self.samples:
                bounds[node.epsilon] = pick(self.node_bound(place), bounds.get(node.epsilon, trivial))
        return dict(sorted(bounds.items()))

    def node_bound(self, place: int) -> float:
        """The bound of one node alone."""
        node = self.run.nodes[place]
        bound = betting_upper if node.side is Side.UPPER else betting_lower
        return bound(self.samples, float(self.logs[place]), node.theta, node.failure)

    def mean(self, epsilon: float) -> float:
        """The sample mean at a node; an estimate and no bound."""
        which = [i for i, node in enumerate(self.run.nodes) if node.epsilon == epsilon]
        return float(self.sums[which[0]]) / self.samples if which and self.samples else 0.0


def step_profile(nodes: Mapping[float, float], side: Side) -> Profile:
    """A profile from bounds at nodes that were tested in a fixed order: from the largest epsilon down for upper
    bounds, from the smallest up for lower ones, up to the first that fails.

    The order is what makes one failure probability enough for all of them (docs/theory/monte-carlo/confidence.md):
    the bound at a node is the worst of those before it, itself included. Between nodes delta falls with epsilon.
    """
    places = np.array(list(nodes))
    values = np.array(list(nodes.values()))
    down, up = np.maximum.accumulate(values[::-1])[::-1], np.minimum.accumulate(values)
    worst = down if side is Side.UPPER else up

    def profile(epsilon: float) -> float:
        if side is Side.UPPER:
            at = int(np.searchsorted(places, epsilon, side="right")) - 1
            return float(worst[at]) if at >= 0 else 1.0
        at = int(np.searchsorted(places, epsilon, side="left"))
        return float(worst[at]) if at < worst.size else 0.0

    return profile


def best_profile(profiles: Sequence[Profile], side: Side) -> Profile:
    """The tightest of several bounds at each epsilon; each holds on its own."""
    pick, trivial = (min, 1.0) if side is Side.UPPER else (max, 0.0)
    return lambda epsilon: pick((profile(epsilon) for profile in profiles), default=trivial)


def profiles_of(tallies: Sequence[Tally], known: Mapping[Direction, Profile], side: Side) -> dict[Direction, Profile]:
    """One profile a direction: the best of its runs and of what is known without sampling (upper bounds only)."""
    profiles: dict[Direction, Profile] = {}
    for direction in Direction:
        parts = [
            step_profile(tally.bound(side), side)
            for tally in tallies
            if tally.run.direction is direction and tally.bound(side)
        ]
        if side is Side.UPPER and direction in known:
            parts.append(known[direction])
        profiles[direction] = best_profile(parts, side)
    return profiles


def failure_spent(runs: Sequence[Run]) -> float:
    """The failure probability of the one claim that the nodes of these runs can make together.

    Upper bounds: only the direction that attains the profile can fail, by one of its attempts, at one node, with one
    of its fractions. Lower bounds: the attempts of all directions add up.
    """

    def spent(run: Run, side: Side) -> float:
        nodes: dict[float, float] = {}
        for node in run.nodes:
            if node.side is side:
                nodes[node.epsilon] = nodes.get(node.epsilon, 0.0) + node.failure
        return max(nodes.values(), default=0.0)

    upper = max(sum(spent(run, Side.UPPER) for run in runs if run.direction is direction) for direction in Direction)
    lower = sum(spent(run, Side.LOWER) for run in runs)
    return upper + lower if upper + lower < inf else 1.0
