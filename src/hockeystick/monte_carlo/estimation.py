"""An estimation: everything that is sampled for one question about one pair, and the resulting bounds.

1. Pilots, thrown away, find where the question's answer is and which proposal needs the least work.
2. A run is frozen: proposal, nodes, fractions to bet, chunk size. Its key is the hash of all that.
3. Chunks are drawn until upper and lower bound are as close as requested (valid at any stopping time), or until the
   run has used four times the samples that the pilot predicted. If a run has not closed by then, its pilot missed
   something: the next attempt takes another proposal and spends a failure probability of its own.
4. The bounds of all attempts hold together; the best of them is reported, however wide.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import ceil, inf, log2
from typing import ClassVar

import numpy as np

from hockeystick.bounds import Profile, Question
from hockeystick.claim import MonteCarloClaim, RunClaim, Statement, release_delta
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.monte_carlo.aims import Aim, CostlyBound
from hockeystick.monte_carlo.confidence import bet_from_pilot, samples_needed
from hockeystick.monte_carlo.families import family_of
from hockeystick.monte_carlo.pilots import (
    SEEN,
    Choice,
    Pilot,
    Pilots,
    rank,
    search_epsilon,
    steepness,
    unamplified_epsilon,
)
from hockeystick.monte_carlo.proposals import Family, Proposal
from hockeystick.monte_carlo.runs import MARGIN, fingerprint, in_this_process, seconds_per_sample
from hockeystick.monte_carlo.statistics import Tally, best_profile, profiles_of
from hockeystick.pairs.base import DominatingPair
from hockeystick.samples import Chunk, Node, Run
from hockeystick.settings import DEFAULT_WORK, MonteCarlo
from hockeystick.types import Direction, Side

ATTEMPT_SHARES = (0.75, 0.1875, 0.0625)
"""Shares of the failure probability for the first, second and third attempt at a direction."""
PATIENCE = 4.0
"""An attempt is given up at this multiple of the samples that its pilot predicted."""
LONGEST = 4.0 * 3600.0
"""Seconds on one core; fractions are not tuned for more work than this."""
FEWEST = 1e4
"""Samples that every attempt may use, however slow."""
CHUNK_SECONDS = 0.25
"""About how long a chunk takes on one core."""
CHUNK_SIZES = (64, 65536)
"""The fewest and the most samples of a chunk."""
GROWTH = 1.4
"""Factor by which the number of chunks grows from round to round."""
SMALLEST_BOUND = 1e-300
"""Weight bounds below this are taken for it, so that fractions are finite."""
LARGEST_FIRST = 32
"""Most chunks in the first round."""
FIRST_ROUND = 1 / 16
"""The first round's share of the planned samples, or of those that there is work for."""
FRACTIONS = (1.0, 1.0 / 10.0, 1.0 / 100.0)
"""Fractions are tuned for these parts of the planned samples, as time may run out early."""
FINE = 4
"""Nodes of an epsilon search per step in which delta changes by the requested ratio."""
FARTHER = 1 / 512
"""How far the first node beyond these is, relatively; the next ones are each twice as far."""
NARROWEST, WIDEST = 0.01, 1.0
"""Relative distance between an estimate and a goal that samples have to resolve."""
SPARE = 1.5
"""Safety factor in resolving that distance."""
ESTIMATING = 2
"""Proposals used for an estimate: each may miss what the other sees."""
ROOM, LEAST_RESERVE, MOST_RESERVE = 2.0, 0.1, 0.5
"""The direction that only has to be shown to be smaller is left ROOM times the work that it probably takes, but no less
and no more than these parts of the time."""
COSTLY_SHARE = 0.25
"""The most of the time that the costly bound of a direction may be planned to take."""
COSTLY_ALONE = 0.5
"""The costly bound takes the place of samples that would take more than this part of the work to show as much."""
SPARED = 0.9
"""A direction whose deterministic bound is below this fraction of the other's estimate is not sampled."""


@dataclass
class Estimation:
    """One question about one pair: :meth:`sample` draws, then :meth:`profiles` and :meth:`claim` say what came out.

    Attributes:
        pair, question, options: what is estimated, what is asked of it, and how sampling is to be done.
        deadline: for seconds of the clock; ``work`` is what is planned, whatever the clock says.
        statement: what the failure probability is a part of.
        tallies: the sums of each attempt, of either direction, in the order in which they began.
        known: upper bounds by direction that needed no sampling.
        known_upper: deterministic upper bounds by direction that the caller has already.
        costly: an upper bound of the add direction that takes seconds to compute; None where there is none.
        work: standard seconds of sampling that are left; an attempt ends when they are used up.
        spent: standard seconds of sampling so far.
        share: of the failure probability, where the samples choose which of several estimations is used.
    """

    pair: DominatingPair
    question: Question
    options: MonteCarlo
    deadline: Deadline
    statement: Statement = Statement.CONFIDENCE
    tallies: list[Tally] = field(default_factory=list)
    known: dict[Direction, Profile] = field(default_factory=dict)
    known_upper: Mapping[Direction, Profile] = field(default_factory=dict)
    costly: CostlyBound | None = None
    work: float = DEFAULT_WORK
    spent: float = 0.0
    share: float = 1.0

    shares: ClassVar[Sequence[float]] = ATTEMPT_SHARES
    upper_share: ClassVar[float] = 0.5
    """The share of the failure probability for upper bounds; the rest is for lower ones."""

    def __post_init__(self) -> None:
        self.family: Family = family_of(self.pair)
        self.subject = fingerprint(self.family, self.pair)
        self.seed = self.options.ledger.seed(self.options.seed)
        self.pilots = Pilots(self.seed, self.deadline, self.options.threads)

    def profiles(self, side: Side) -> dict[Direction, Profile]:
        """The bounds of this side; where the failure probability is part of delta, it is in them."""
        profiles = profiles_of(self.tallies, self.known, side)
        if self.statement is Statement.ESTIMATE_VERIFY_RELEASE and side is Side.UPPER:
            return {direction: self._released(profile) for direction, profile in profiles.items()}
        return profiles

    def _released(self, profile: Profile) -> Profile:
        """The profile of a mechanism that is released only if its verification passes."""
        return lambda epsilon: release_delta(profile(epsilon), self.options.failure_probability)

    def claim(self) -> MonteCarloClaim:
        """All attempts, for a certificate."""
        runs = tuple(RunClaim(run=tally.run, chunks=tally.chunks) for tally in self.tallies if tally.chunks)
        failure = self.options.failure_probability
        return MonteCarloClaim(statement=self.statement, failure_probability=failure, runs=runs)

    def estimate(self) -> float:
        """An estimate, not a bound, of the remove direction's delta at the question's epsilon, by pilots alone."""
        assert self.question.epsilon is not None
        epsilon = self.question.epsilon
        first = self.family.quick(self.pair, Direction.REMOVE, epsilon)
        pilots = [] if first is None else [self.pilots.draw(first, "estimate first")]
        if not pilots or pilots[0].effective(epsilon) < SEEN:
            proposals = self.family.propose(self.pair, Direction.REMOVE, epsilon)[:ESTIMATING]
            pilots += self.pilots.draw_each([(each, f"estimate {place}") for place, each in enumerate(proposals)])
        return max(pilot.mean(epsilon) for pilot in pilots)

    def sample(self, sides: Sequence[Side] = tuple(Side)) -> None:
        """Draw what the question needs; stops early, with the bounds so far, when time runs out.

        Nothing is drawn for lower bounds alone where nobody wants them.
        """
        self.learn_known()
        main, *others = self.aims()
        wanted = tuple(side for side in Side if side is Side.UPPER or side in sides)
        if not others:
            self.pursue_each(main, wanted, 1.0)
            return
        self.pursue_each(main, wanted, 1.0 - LEAST_RESERVE, beside=others[0])
        if any(Side.UPPER in choice.proposal.sides for choice in main.choices):  # else the other says nothing by itself
            self.pursue_each(others[0], (Side.UPPER,), 1.0)

    def needed(self, other: Aim) -> float:
        """Standard seconds in which the other direction can probably be shown to be smaller than what is known by now.

        0 as long as nothing is: the farther the upper bound is from where the direction was aimed, the less it takes.
        """
        tallies = [tally for tally in self.tallies if tally.run.direction is not other.direction]
        upper = [bound for tally in tallies for bound in tally.bound(Side.UPPER).items()]
        if self.question.delta is None:
            other = replace(other, goal=min((value for _, value in upper), default=1.0))
        else:
            reached = [epsilon for epsilon, value in upper if value <= self.question.delta]
            if not reached:
                return 0.0
            other = replace(other, epsilon=min(reached), delta=other.choices[0].pilot.mean(min(reached)))
        return self._seconds(other)

    def pursue_each(self, aim: Aim, sides: Sequence[Side], part: float, beside: Aim | None = None) -> None:
        """Attempts at these sides with this part of the time and work left.

        Where no proposal bounds them all, rounds alternate: the side goes on whose bound is farther from its estimate,
        for the work that it has had, as that tells what more of it gains. One that has no bound yet takes its share of
        the work, and no more.

        Args:
            beside: another direction, for which enough is left.
        """
        deadline, work, before = self.deadline.part(part), part * self.work, self.spent
        started = self.deadline.elapsed()

        def leaves_enough(more: float) -> bool:
            spent = self.spent - before
            if beside is None or spent == 0.0:
                return True
            left = min(self.work, spent / max(self.deadline.elapsed() - started, 1e-3) * self.deadline.remaining())
            return left - more >= min(ROOM * self.needed(beside), MOST_RESERVE * (spent + left))

        groups = _together(aim, sides)
        running = [self.attempts(aim, group, deadline, work) for group in groups]
        gaps, used = [inf for _ in running], [0.0 for _ in running]

        def gain(place: int) -> float:
            if gaps[place] == inf or used[place] == 0.0:
                return inf if used[place] * len(running) <= sum(used) else 0.0
            return (gaps[place] - 1.0) / used[place]

        try:
            while running:
                first = max(range(len(running)), key=gain)
                beyond = len(groups) > 1 and used[first] > 0.0 and self.spent - before >= work
                if beyond or not leaves_enough((GROWTH - 1.0) * used[first]):
                    return
                start = self.spent
                try:
                    gaps[first] = next(running[first])
                    used[first] += self.spent - start
                except StopIteration:
                    del running[first], gaps[first], used[first]
        except BudgetExceededError:
            if not any(tally.chunks for tally in self.tallies):
                raise

    def learn_known(self) -> None:
        """Bounds that need no sampling."""
        for direction in Direction:
            known = self.family.known_upper(self.pair, direction)
            parts = [profile for profile in (known, self.known_upper.get(direction)) if profile is not None]
            if parts:
                self.known[direction] = best_profile(parts, Side.UPPER)

    def aims(self) -> list[Aim]:
        """The directions that have to be sampled: first the one with the larger delta, then perhaps the other.

        The other one only has to be shown to be smaller where the first one has its answer. Where add is larger, but
        has no lower bounds, remove is first, and both are sampled in full.
        """
        remove = self.aim(Direction.REMOVE)
        goal = self.question.delta if self.question.delta is not None else remove.delta
        if self._spared(remove.epsilon, goal):
            return [remove]
        add = self.aim_at(Direction.ADD, remove.epsilon)
        if self._rests_on_costly(replace(add, goal=goal)):
            return [remove]
        if add.delta <= goal:
            return [remove, replace(add, goal=goal)]
        if self.question.delta is not None:
            add = self.aim(Direction.ADD)
        if not any(Side.LOWER in choice.proposal.sides for choice in add.choices):
            return [remove, add]
        if self.question.delta is None:
            return [add, replace(remove, goal=add.delta)]
        return [add, replace(self.aim_at(Direction.REMOVE, add.epsilon), goal=goal)]

    def _spared(self, epsilon: float, goal: float) -> bool:
        """Whether add is known to be smaller than the goal."""
        known = self.known.get(Direction.ADD)
        return known is not None and known(epsilon) <= SPARED * goal

    def _rests_on_costly(self, add: Aim) -> bool:
        """Whether the costly bound takes the place of samples of add.

        It is computed where it takes less time than they would, and a small part of what is left. It counts where it is
        below the goal, and where this work would hardly show as much by samples.
        """
        if self.costly is None:
            return False
        left = min(self.work, self.deadline.remaining())
        if self.costly.seconds >= min(self._seconds(add), COSTLY_SHARE * left):
            return False
        with suppress(BudgetExceededError):  # it takes longer here than it was planned to
            profile = self.costly.profile(self.deadline.part(0.5))
            reached = 1.0 if profile is None else profile(add.epsilon)
            counts = reached <= SPARED * add.goal or self._seconds(replace(add, goal=reached)) > COSTLY_ALONE * left
            if profile is not None and reached < 1.0 and counts:
                known = self.known.get(Direction.ADD, profile)
                self.known[Direction.ADD] = best_profile([known, profile], Side.UPPER)
                return True
        return False

    def _seconds(self, aim: Aim) -> float:
        """Standard seconds of sampling that an upper bound of a direction will probably take."""
        return min(self.plan(aim, choice) * self._each(aim, choice) for choice in aim.choices)

    def _each(self, aim: Aim, choice: Choice) -> float:
        """Standard seconds of one sample for an upper bound."""
        epsilons = [epsilon for epsilon in self.places(aim, Side.UPPER) for _ in FRACTIONS]
        return seconds_per_sample(choice.proposal, epsilons, choice.pilot.losses)

    def aim(self, direction: Direction) -> Aim:
        """Where the question's answer is in one direction, by pilots."""
        if self.question.epsilon is not None:
            return self.aim_at(direction, self.question.epsilon)
        assert self.question.delta is not None
        propose = partial(self.family.first, self.pair, direction)
        highest = unamplified_epsilon(self.pair, self.question.delta)
        return self.aim_at(direction, search_epsilon(propose, self.question.delta, highest, self.pilots))

    def aim_at(self, direction: Direction, epsilon: float) -> Aim:
        """The pilots' view of one direction at an epsilon."""
        proposals = self.family.propose(self.pair, direction, epsilon)
        choices = rank(proposals, epsilon, 0.5 * self.options.ratio, self.failure(0), self.pilots)
        best = choices[0].pilot
        return Aim(direction, epsilon, best.mean(epsilon), steepness(best, epsilon), choices)

    def failure(self, attempt: int) -> float:
        """The failure probability of one node of one side."""
        return self.share * self.upper_share * self.options.failure_probability * self.shares[attempt] / len(FRACTIONS)

    def pursue(self, aim: Aim, sides: Sequence[Side], deadline: Deadline, work: float) -> None:
        """Attempts at one direction until one succeeds, or this work is done."""
        for _ in self.attempts(aim, sides, deadline, work):
            pass

    def attempts(self, aim: Aim, sides: Sequence[Side], deadline: Deadline, work: float) -> Iterator[float]:
        """One attempt after the other; after each round how far its bounds are from its estimate (:meth:`gap`)."""
        useful = [choice for choice in aim.choices if not set(sides).isdisjoint(choice.proposal.sides)]
        if not useful:  # its proposals bound only the other side
            return
        useful.sort(key=lambda choice: self.plan(aim, choice) * choice.proposal.cost)
        for attempt, choice in enumerate(useful[: len(self.shares)]):
            planned = min(self.plan(aim, choice), max(LONGEST / choice.proposal.cost, FEWEST))
            run = self._freeze(aim, choice, planned, sides, self.failure(attempt))
            cost = seconds_per_sample(choice.proposal, [node.epsilon for node in run.nodes], choice.pilot.losses)
            result = Tally.empty(run)
            most = max(work / cost, FEWEST)
            succeeded = yield from self._draw(aim, choice, result, planned, deadline, most=most, cost=cost)
            work = max(work - cost * result.samples, 0.0)
            if succeeded or work == 0.0:
                return

    def plan(self, aim: Aim, choice: Choice) -> float:
        """How many samples an attempt will probably need: to be tight, or only to tell delta from the goal."""
        if aim.goal <= 0.0 or choice.pilot.missed(aim.epsilon, [other.pilot for other in aim.choices]):
            return choice.samples
        distance = min(max((1.0 - aim.delta / aim.goal) / SPARE, NARROWEST), WIDEST)
        variance = choice.pilot.sums(aim.epsilon)[1] / choice.pilot.losses.size / aim.goal**2
        over = max(choice.proposal.weight_bound(aim.epsilon) / aim.goal, 1.0)
        needed = float(samples_needed(variance, over, distance, self.failure(0)))
        return min(needed, choice.samples)

    def _freeze(self, aim: Aim, choice: Choice, planned: float, sides: Sequence[Side], failure: float) -> Run:
        proposal = choice.proposal
        nodes = [
            node
            for side in sides
            if side in proposal.sides
            for epsilon in self.places(aim, side)
            for node in _nodes(choice.pilot, side, epsilon, planned, failure)
        ]
        fewest, most = CHUNK_SIZES
        wanted = min(CHUNK_SECONDS / proposal.cost, planned / 8.0)
        return Run(
            subject=self.subject,
            direction=aim.direction,
            proposal=proposal.evidence_name,
            parameters=proposal.parameters,
            nodes=tuple(nodes),
            chunk_size=int(min(max(2 ** round(log2(wanted)), fewest), most)),
            seed=self.seed,
        )

    def places(self, aim: Aim, side: Side) -> list[float]:
        """The epsilons of the nodes of a side, ascending."""
        if self.question.epsilon is not None:
            return [self.question.epsilon]
        assert self.question.delta is not None
        step = self.options.ratio / aim.steepness / FINE
        sign = 1.0 if side is Side.UPPER else -1.0
        near = [aim.epsilon + sign * step * j for j in range(-FINE, 3 * FINE + 1)]
        edge = aim.epsilon + sign * 3 * FINE * step
        if side is Side.UPPER:
            end = max(unamplified_epsilon(self.pair, self.question.delta), edge)
            doublings = max(ceil(log2((end / edge - 1.0) / FARTHER)), 0) if end > edge else 0
            far = [min(edge * (1.0 + FARTHER * 2.0**j), end) for j in range(doublings + 1)]
        else:
            far = [edge * (1.0 - FARTHER * 2.0**j) for j in range(int(-log2(FARTHER)))]
        return sorted({min(epsilon, 700.0) for epsilon in near + far if epsilon >= 0.0})

    def _draw(
        self, aim: Aim, choice: Choice, result: Tally, planned: float, deadline: Deadline, *, most: float, cost: float
    ) -> Generator[float, None, bool]:
        """Draw chunks in rounds until the attempt has succeeded (True) or failed (False), ``most`` samples at most.

        Each of them takes ``cost`` standard seconds.
        """
        run, counted = result.run, 0
        self.tallies.append(result)
        expected = max(planned / run.chunk_size, 1.0)
        allowed = most / run.chunk_size
        last = ceil(min(PATIENCE * expected, allowed, 1e12))
        target = max(1, ceil(min(FIRST_ROUND * min(expected, allowed), LARGEST_FIRST)))
        while True:
            verdict: bool | None = None
            for chunk in self._chunks(choice.proposal, result, target, deadline):
                result.offer(chunk)
                while verdict is None and result.advance():  # one at a time: the end does not depend on their order
                    verdict = self.verdict(aim, result, planned)
                if verdict is not None:
                    break
            drawn, counted = cost * (result.samples - counted), result.samples
            self.work, self.spent = max(self.work - drawn, 0.0), self.spent + drawn
            if verdict is not None:
                return verdict
            if target >= last:
                return False
            yield self.gap(aim, result)
            target = min(max(target + 1, ceil(GROWTH * target)), last)

    def _chunks(self, proposal: Proposal, result: Tally, target: int, deadline: Deadline) -> Iterator[Chunk]:
        """The chunks of the streams below ``target`` that are not counted yet: stored ones, then new ones."""
        ledger, run = self.options.ledger, result.run
        yield from islice(ledger.chunks(run, result.chunks), max(target - result.chunks, 0))
        present = ledger.streams(run)
        missing = [stream for stream in range(result.chunks, target) if stream not in present]
        with closing((self.options.executor or in_this_process)(proposal, run, missing)) as drawn:
            for chunk in drawn:
                ledger.add(run, chunk)
                yield chunk
                deadline.tick()
        yield from islice(ledger.chunks(run, result.chunks), max(target - result.chunks, 0))

    def verdict(self, aim: Aim, result: Tally, planned: float) -> bool | None:
        """Whether an attempt has succeeded or failed; None to go on.

        Args:
            planned: samples that the pilot predicted, by which estimations of other statements give an attempt up.
        """
        main = next((tally for tally in self.tallies if tally.bound(Side.UPPER)), result)
        other = result is not main and bool(result.bound(Side.UPPER))
        return True if self.tight(aim, result) or (other and self._settled(main, result)) else None

    def tight(self, aim: Aim, result: Tally) -> bool:
        """Whether the bounds of a run are as close as requested where it was aimed."""
        upper, mean, lower = self._at(aim, result)
        whole, half = 1.0 + self.options.ratio, 1.0 + 0.5 * self.options.ratio
        if upper is not None and lower is not None:
            return upper <= lower * whole
        return mean > 0.0 and (upper or mean) <= mean * half and mean <= (mean if lower is None else lower) * half

    def gap(self, aim: Aim, result: Tally) -> float:
        """Upper bound over estimate, or estimate over lower bound, where a run was aimed; infinite without them."""
        upper, mean, lower = self._at(aim, result)
        parts = [1.0 if upper is None else upper / mean if mean > 0.0 else inf]
        parts.append(1.0 if lower is None else mean / lower if lower > 0.0 else inf)
        return max(parts)

    def _at(self, aim: Aim, result: Tally) -> tuple[float | None, float, float | None]:
        """Upper bound, estimate and lower bound of a run nearest to where it was aimed."""

        def nearest(bounds: dict[float, float]) -> float | None:
            return bounds[min(bounds, key=lambda epsilon: abs(epsilon - aim.epsilon))] if bounds else None

        mean = result.mean(
            min((node.epsilon for node in result.run.nodes), key=lambda epsilon: abs(epsilon - aim.epsilon))
        )
        return nearest(result.bound(Side.UPPER)), mean, nearest(result.bound(Side.LOWER))

    def _settled(self, main: Tally, result: Tally) -> bool:
        """Whether the other direction's upper bounds can no longer change the answer."""
        upper = result.bound(Side.UPPER)
        if self.question.epsilon is not None:
            return upper[self.question.epsilon] <= main.bound(Side.UPPER).get(self.question.epsilon, 0.0)
        assert self.question.delta is not None
        reached = [epsilon for epsilon, value in main.bound(Side.UPPER).items() if value <= self.question.delta]
        return bool(reached) and any(
            epsilon <= min(reached) and value <= self.question.delta for epsilon, value in upper.items()
        )


def _together(aim: Aim, sides: Sequence[Side]) -> list[Sequence[Side]]:
    """Sides that one proposal bounds are sampled together, others each in a run of its own."""
    if any(set(sides) <= set(choice.proposal.sides) for choice in aim.choices):
        return [sides]
    return [(side,) for side in sides if any(side in choice.proposal.sides for choice in aim.choices)]


def _nodes(pilot: Pilot, side: Side, epsilon: float, planned: float, failure: float) -> Iterator[Node]:
    """One node for each fraction at one epsilon."""
    most = max(pilot.proposal.drawn_bound(side, epsilon), SMALLEST_BOUND) * (1.0 + MARGIN)
    values = np.minimum(pilot.values(epsilon), most)
    for share in FRACTIONS:
        theta = bet_from_pilot(side, values, most, max(int(planned * share), 16), failure)
        yield Node(side=side, epsilon=epsilon, theta=theta, weight_bound=most, failure=failure)
