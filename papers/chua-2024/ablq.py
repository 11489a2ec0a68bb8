"""Algorithm 1 as a loop over our batches and our noise, and what its outputs give away.

The example is that of sections 3 and 4.3.1: the query returns the record, all records but the last are -1, and the last
is 1 in one data set and missing, which counts as 0, in the other.
"""

from collections.abc import Callable, Sequence
from math import exp

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom, binomtest

import hockeystick as hs
from hockeystick.noise import stream
from hockeystick.reproduction.papers import Check, Output

from .crossing import mass_above
from .runs import deterministic, poisson, shuffle

Query = Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
"""From the outputs so far and the records of a batch, shape (records, d), to one vector of norm at most 1 for each."""

STEPS, BATCH, SIGMA, EPSILON, RUNS = 10, 4, 0.5, 2.0, 5_000
SEED = 20240610
CONFIDENCE = 1.0 - 1e-6
"""Of one interval."""


def ablq(run: hs.Mechanism, query: Query, records: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Adaptive batch linear queries: each output is the sum of the batch's answers and noise.

    Args:
        run: how batches are drawn, and sigma.
        records: shape (n, d).

    Returns: the outputs g_1, ..., g_T, each of shape (d,).

    Raises: ValueError when an answer is longer than 1.
    """
    noise = stream(run, records.shape[1], rng=rng, dtype=np.float64)
    outputs: list[np.ndarray] = []
    for batch in run.sampler.batches(len(records), rng):
        answers = query(outputs, records[batch])
        if np.any(np.linalg.norm(answers, axis=1) > 1.0 + 1e-12):
            raise ValueError("The query must return vectors of norm at most 1.")
        outputs.append(answers.sum(axis=0) + noise.next())
    return outputs


def identity(outputs: Sequence[np.ndarray], records: np.ndarray) -> np.ndarray:
    """The query of section 4.3.1; it looks at no earlier output."""
    return records


def data(present: bool, count: int = STEPS * BATCH) -> np.ndarray:
    """The records of the example, shape (count, 1)."""
    records = np.full((count, 1), -1.0)
    records[-1] = 1.0 if present else 0.0
    return records


def exceeding(run: hs.Mechanism, present: bool, threshold: float, runs: int, seed: int) -> int:
    """How many of the runs have an output that exceeds what the other examples add up to by ``threshold``."""
    rng, records = np.random.default_rng(seed), data(present)
    return sum(
        max(float(output[0]) for output in ablq(run, identity, records, rng)) + BATCH >= threshold for _ in range(runs)
    )


def loop_checks(output: Output, runs: int = RUNS) -> list[Check]:
    """The loop's outputs against the laws of section 3, and the delta that they show against the certified one.

    Each interval is wrong with probability 1e-6.
    """
    threshold = best_threshold()
    mechanisms = {
        "D": (deterministic(STEPS, SIGMA), "gaussian"),
        "S": (shuffle(STEPS, SIGMA, BATCH), "gaussian"),
        "P": (poisson(STEPS, SIGMA), "direct"),
    }
    checks, shown = [], []
    for name, (run, method) in mechanisms.items():
        intervals = {}
        for present in (True, False):
            output.deadline.tick()
            count = output.kept.value(
                f"ablq {name} {present} {runs}",
                lambda run=run, present=present: exceeding(run, present, threshold, runs, SEED + present),
            )
            interval = intervals[present] = binomtest(count, runs).proportion_ci(CONFIDENCE)
            if name == "P":
                mass = poisson_mass(threshold, present)
            else:
                mass = mass_above(STEPS, SIGMA, threshold, 1.0 + present)
            record = "1" if present else "missing"
            what = f"Algorithm 1, {name}, last record {record}: mass of E_C, C={threshold:.3g}, {runs} runs"
            note = f"the loop shows {interval.low:.4g} to {interval.high:.4g}"
            checks.append(Check(what, "~", mass, count / runs, interval.low <= mass <= interval.high, note))
        least = intervals[True].low - exp(EPSILON) * intervals[False].high
        most = hs.bound(run, method).delta(EPSILON)
        shown.append(
            Check(f"Algorithm 1, {name}: delta({EPSILON:g}) that the loop shows", "<=", most, least, least <= most)
        )
    return [*checks, *shown]


def poisson_mass(threshold: float, present: bool) -> float:
    """The mass of the event with Poisson batches: every output has a binomial number of the other records."""
    others = STEPS * BATCH - 1
    counts = np.arange(others + 1)
    chances = binom.pmf(counts, others, 1.0 / STEPS)
    below = ndtr((threshold - BATCH + counts) / SIGMA)
    if present:
        with_example = ndtr((threshold - BATCH + counts - 1.0) / SIGMA)
        below = (1.0 - 1.0 / STEPS) * below + with_example / STEPS
    return float(1.0 - (chances @ below) ** STEPS)


def best_threshold() -> float:
    """The C of (3) for this example."""
    cuts = np.arange(0.0, 10.0, 0.01)
    shown = [mass_above(STEPS, SIGMA, c, 2.0) - exp(EPSILON) * mass_above(STEPS, SIGMA, c, 1.0) for c in cuts]
    return float(cuts[int(np.argmax(shown))])
