"""How many stored chunks have to be drawn again so that no forged evidence moves a bound unnoticed.

Whoever made the evidence knew every seed and chose which chunks to replace, and by what; which chunks are drawn again
is chosen afterwards, at random. Proofs: docs/theory/monte-carlo/evidence.md.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import exp, expm1, lgamma, log, log1p

import numpy as np

from hockeystick.bounds import Question
from hockeystick.monte_carlo.statistics import Tally, step_profile
from hockeystick.samples import Array, Chunk
from hockeystick.types import Side

MOVED = 0.05
"""A bound on delta that forged chunks make better by more than this part of it is noticed,"""
MISSED = 1e-3
"""except with this probability."""
CELLS = 1.0 + 1.0 / 64.0
"""The forger chooses what is stored; cells this wide are what the chances of all choices are added up over."""
FEWEST = 8
"""Chunks that are drawn again where no bound of a run counts."""


def redraws(tally: Tally, chunks: Sequence[Chunk], question: Question, slack: float) -> int:
    """How many of the chunks of a run to draw again, at random, before its bounds are taken from the stored ones.

    Args:
        tally: of these chunks.
        question: which bounds of the run count.
        slack: of the pair.
    """
    count, needed = len(chunks), [FEWEST]
    for side in Side:
        place = _decisive(tally, side, question, slack)
        if place is not None:
            logs = np.array([chunk.logs[place] for chunk in chunks])
            forged = _upper_forgery(tally, place, -logs) if side is Side.UPPER else _lower_forgery(tally, place, logs)
            needed.append(_draws(count, forged))
    return min(max(needed), count)


def _decisive(tally: Tally, side: Side, question: Question, slack: float) -> int | None:
    """The node that gives the run's answer on this side; None where its answer is trivial."""
    bounds = tally.bound(side)
    places = [epsilon for epsilon in bounds if question.epsilon is None or epsilon == question.epsilon]
    if question.delta is not None:
        profile, goal, sign = step_profile(bounds, side), question.delta, 1.0 if side is Side.UPPER else -1.0
        values = {epsilon: profile(epsilon) + sign * (1.0 + exp(epsilon)) * slack for epsilon in places}
        kept = [epsilon for epsilon in places if (values[epsilon] <= goal) == (side is Side.UPPER)]
        places = kept[:1] if side is Side.UPPER else kept[-1:]
    if not places:
        return None
    worst = max if side is Side.LOWER else min
    nodes = [place for place, node in enumerate(tally.run.nodes) if node.side is side and node.epsilon == places[0]]
    return worst(nodes, key=lambda place: tally.node_bound(place))


def _upper_forgery(tally: Tally, place: int, logs: Array) -> int:
    """The fewest chunks whose replacement can make an upper bound smaller than it is by MOVED.

    A replaced chunk hides at most ``n |log(1 - theta M)|``. And honest chunks have about equal sums of logs: numbers of
    them that hide enough, while the others have no more than is stored, with less than MISSED / 2 are too small.
    """
    node, count = tally.run.nodes[place], int(logs.size)
    each, nats = -log1p(-node.theta * node.weight_bound), -log(node.failure)
    stored = float(logs.sum()) + nats
    claimed = -expm1(-stored / CELLS / tally.samples)  # theta U; what is stored counts as within a factor of CELLS
    if claimed * (1.0 + MOVED) >= 1.0:  # no bound with this fraction is so large
        return count
    hidden = tally.samples * (log1p(-claimed) - log1p(-claimed * (1.0 + MOVED)))
    rest = stored * CELLS - nats
    part = hidden / (hidden + rest)
    tried = count * (count + 1.0) * len(tally.run.nodes) * (1.0 + log1p(tally.samples * each / nats) / log(CELLS))

    def possible(forged: int) -> bool:
        share = forged / count
        if forged * each * tally.run.chunk_size < hidden:
            return False
        if share >= part:
            return True
        divergence = part * log(part / share) + (1.0 - part) * log((1.0 - part) / (1.0 - share))
        return _log_choices(count, forged) - (hidden + rest) / each * divergence > log(0.5 * MISSED / tried)

    return next((forged for forged in range(1, count) if possible(forged)), count)


def _lower_forgery(tally: Tally, place: int, logs: Array) -> int:
    """The fewest chunks without which a lower bound is smaller by MOVED: what is stored of them is known."""
    claimed = tally.node_bound(place) * tally.run.nodes[place].theta
    if claimed <= 0.0:
        return int(logs.size)
    hidden = tally.samples * (log1p(claimed) - log1p(claimed / (1.0 + MOVED)))
    totals = np.cumsum(np.sort(logs)[::-1])
    return min(int(np.searchsorted(totals, hidden)) + 1, int(logs.size))


def _draws(count: int, forged: int) -> int:
    """How many of ``count`` to draw so that all miss ``forged`` ones with probability MISSED / 2 at most."""
    left = count - forged

    def enough(drawn: int) -> bool:
        return _log_choices(left, drawn) - _log_choices(count, drawn) <= log(0.5 * MISSED)

    return 1 + bisect_left(range(1, left + 1), True, key=enough)


def _log_choices(count: int, chosen: int) -> float:
    return lgamma(count + 1.0) - lgamma(chosen + 1.0) - lgamma(count - chosen + 1.0)
