"""Small random mechanisms of all kinds, with what the truth about them needs."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from monte_carlo_oracle import (
    Array,
    Law,
    absent,
    cut_batches,
    epoch_shuffle,
    participations,
    sums,
    turns,
    user_participations,
)

import hockeystick as hs
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair

MOST_STEPS = 5
SMALLEST_NOISE = 0.02
TOEPLITZ = 0.8
"""Of the cyclic cases: others are not sampled."""
EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.0)
NOT_EXACT = {"multi_attribution", "truncated", "longer_truncated", "replaced"}
"""Kinds whose pair is not always attained; lower bounds of the others are about the truth of the oracle."""
OF_USERS = {"users", "waiting_threes"}


Sampled = tuple[Any, tuple[tuple[Law, Law], ...]]
"""A sampler, and its :attr:`Case.worlds`."""


@dataclass(frozen=True)
class Case:
    """A mechanism, the truth's ingredients and where to look."""

    kind: str
    mechanism: hs.Mechanism
    entries: Array
    worlds: tuple[tuple[Law, Law], ...]
    """With the example, or user, and with its ghost; several where several datasets are possible."""
    attained: bool
    one_sided: bool
    """Whether Monte Carlo bounds the ratio of each sample from one side: close where participations are rare."""
    epsilon: float

    @property
    def pair(self) -> DominatingPair:
        return dominating_pair(self.mechanism)


def random_case(kind: str, rng: np.random.Generator, folder: Path) -> Case:
    """A case of this kind; small enough for the oracle."""
    bins, epochs = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    while bins * epochs > MOST_STEPS + 1:
        epochs -= 1
    steps = int(rng.integers(1, MOST_STEPS + 1))
    sampler, worlds = SAMPLERS[kind](rng, steps, bins, epochs)
    steps = sampler.steps
    identity = kind in ("random_allocation", "shuffle")
    if identity:
        strategy, entries = hs.Identity(), np.eye(steps)
    elif kind == "cyclic_poisson" and rng.random() < TOEPLITZ:
        strategy = hs.BandedSquareRoot(bands=int(rng.integers(1, steps + 1)))
        entries = strategy.matrix(steps).materialize()
    else:
        strategy, entries = random_strategy(rng, steps, folder)
    longest = np.linalg.norm(entries.sum(axis=1))
    sigma = float(longest * np.exp(rng.uniform(np.log(0.25), np.log(1.5))) / max(1.0, steps**0.5))
    mechanism = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=max(sigma, SMALLEST_NOISE))
    if kind in OF_USERS:
        examples = int(max(max(vector) for there, _ in worlds for vector in there))
        mechanism = mechanism.model_copy(update={"unit": hs.Unit(kind="user", examples_per_user=examples)})
    if kind == "replaced":
        mechanism = mechanism.model_copy(update={"unit": hs.Unit(neighbours="replace")})
    bands = int(max(np.subtract(*np.nonzero(entries)))) + 1
    attained, one_sided = kind not in NOT_EXACT, kind in OF_USERS
    if kind == "fresh_bins":
        one_sided = epochs > 1
    if kind == "b_min_sep":
        one_sided = bands > sampler.min_sep
    if kind == "multi_attribution" and sampler.exclusion == "example":
        attained, one_sided = True, bands > sampler.min_sep or sampler.examples_per_user > 1
    if kind == "multi_attribution" and sampler.exclusion == "participating" and not sampler.warm_up_steps:
        one_sided = bands > sampler.min_sep
        attained = not one_sided or sampler.examples_per_user == 1
    return Case(kind, mechanism, entries, worlds, attained, one_sided, float(rng.choice(EPSILONS)))


def random_strategy(rng: np.random.Generator, steps: int, folder: Path) -> tuple[Any, Array]:
    """Identity, banded square root, or any lower-triangular matrix, banded or dense."""
    bands = int(rng.integers(1, steps + 1))
    which = rng.integers(4)
    if which == 0:
        return hs.Identity(), np.eye(steps)
    if which == 1:
        strategy = hs.BandedSquareRoot(bands=bands)
        return strategy, strategy.matrix(steps).columns(np.arange(steps))
    entries = np.tril(rng.uniform(0.0, 1.0, (steps, steps)))
    entries[np.arange(steps)[:, None] - np.arange(steps)[None, :] >= bands] = 0.0
    entries[np.diag_indices(steps)] += 0.3
    if which == 3:
        entries[np.diag_indices(steps)] = rng.choice([0.05, 1.0, 3.0])
    path = folder / f"{rng.integers(1 << 62)}.npy"
    np.save(path, entries)
    return hs.Custom(path=str(path)), entries


def _balls_in_bins(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    return _alone(hs.BallsInBins(bins=bins, epochs=epochs))


def _random_allocation(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    if rng.random() < 0.5:
        return _alone(hs.RandomAllocation(bins=int(rng.integers(1, 7))))
    return _alone(hs.RandomAllocation(bins=bins, participations=int(rng.integers(1, bins + 1)), epochs=epochs))


def _fresh_bins(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Random allocation with correlated noise."""
    return _alone(hs.RandomAllocation(bins=bins, epochs=epochs))


def _poisson(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    return _alone(hs.Poisson(sampling_prob=_rate(rng, 0.5), steps=steps))


def _users(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Poisson or b-min-sep batches: the examples of a user are sampled independently of each other."""
    steps, examples = min(steps, 4), int(rng.integers(2, 4))
    if rng.random() < 0.5:
        sampler: Any = hs.Poisson(sampling_prob=_rate(rng, 0.4), steps=steps)
    else:
        sampler, _ = _b_min_sep(rng, min(steps, 3), bins, epochs)
    law = _together(sampler, examples)
    return sampler, ((law, absent(law)),)


def _together(sampler: Any, examples: int) -> Law:
    """How many of so many examples are in each batch, if they know nothing of each other."""
    single = participations(sampler)
    law = single
    for _ in range(examples - 1):
        law = sums(law, single)
    return law


def _cyclic_poisson(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Nobody knows which group the example is in."""
    sampler = hs.CyclicPoisson(groups=int(rng.integers(2, 4)), sampling_prob=_rate(rng, 0.9), steps=steps)
    laws = [turns(sampler, group) for group in range(min(sampler.groups, steps))]
    return sampler, tuple((law, absent(law)) for law in laws)


def _secret_groups(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """The group is drawn like the coins, and an adversary does not know it."""
    rate, groups = _rate(rng, 0.9), int(rng.integers(2, 4))
    sampler = hs.CyclicPoisson(groups=groups, sampling_prob=rate, steps=steps, partition="independent")
    law: Counter[tuple[float, ...]] = Counter()
    for group in range(groups):
        for vector, chance in turns(sampler, group).items():
            law[vector] += chance / groups
    return sampler, ((dict(law), absent(law)),)


def _waiting_threes(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Three examples of a user, each of which waits after a participation."""
    sampler, _ = _b_min_sep(rng, min(max(steps, 3), 4), bins, epochs)
    law = _together(sampler, 3)
    return sampler, ((law, absent(law)),)


def _replaced(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """An example of gradient 1 that another one of gradient -1 takes the place of."""
    choices = (_poisson, _b_min_sep, _cyclic_poisson, _secret_groups, _balls_in_bins, _fresh_bins)
    sampler, worlds = choices[int(rng.integers(len(choices)))](rng, steps, bins, epochs)
    return sampler, tuple(
        (there, {tuple(-x for x in vector): chance for vector, chance in there.items()}) for there, _ in worlds
    )


def _b_min_sep(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    b, warm = int(rng.integers(1, steps + 2)), bool(rng.random() < 0.5)
    return _alone(hs.BMinSep(min_sep=b, sampling_prob=_rate(rng, 0.999 / b), steps=steps, warm_start=warm))


def _multi_attribution(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    steps = min(steps, 3)
    exclusion = str(rng.choice(["sampled", "participating", "example"]))
    sampler = hs.MultiAttribution(
        min_sep=int(rng.integers(1, steps + 2)),
        sampling_prob=_rate(rng, 0.99),
        steps=steps,
        examples_per_user=int(rng.integers(1, 4)),
        warm_up_steps=0 if exclusion == "example" else int(rng.integers(0, 3)),
        exclusion=exclusion,
    )
    alone = hs.BMinSep(
        min_sep=sampler.min_sep,
        sampling_prob=sampler.sampling_prob / (1.0 + (sampler.min_sep - 1) * sampler.sampling_prob),
        steps=steps,
        warm_start=False,
    )
    laws = [
        _together(alone, examples) if exclusion == "example" else user_participations(sampler, examples)
        for examples in range(1, sampler.examples_per_user + 1)
    ]
    return sampler, tuple((law, absent(law)) for law in laws)


def _truncated(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """One or two batches that are cut."""
    return _cut(rng, min(steps, 2), int(rng.integers(1, 5)))


def _longer_truncated(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    """Three or four batches that are cut."""
    steps = 3 + int(rng.random() < 0.3)
    return _cut(rng, steps, int(rng.integers(1, 7 - steps)))


def _cut(rng: np.random.Generator, steps: int, size: int) -> Sampled:
    """Poisson or b-min-sep batches that are cut, with other examples of gradient -1, 0 or 1; ``size`` in all."""
    cap = int(rng.integers(1, size + 1))
    cut: dict[str, Any] = {"truncated_batch_size": cap, "num_examples": size}
    if rng.random() < 0.3:
        sampler: Any = hs.Poisson(sampling_prob=_rate(rng, 0.2), steps=steps, **cut)
    else:
        b, warm = int(rng.integers(1, steps + 2)), bool(rng.random() < 0.5)
        sampler = hs.BMinSep(min_sep=b, sampling_prob=_rate(rng, 1.0 / b), steps=steps, warm_start=warm, **cut)
    taken = participations(sampler)
    return sampler, tuple(
        (cut_batches(taken, size - 1, cap, 1.0, theirs), cut_batches(taken, size - 1, cap, 0.0, theirs))
        for theirs in (-1.0, 0.0, 1.0)
    )


def _shuffle(rng: np.random.Generator, steps: int, bins: int, epochs: int) -> Sampled:
    count = int(rng.integers(1, 5))
    return hs.Shuffle(batch_size=1, bins=count, epochs=1), (epoch_shuffle(count),)


def _alone(sampler: Any) -> Sampled:
    law = participations(sampler)
    return sampler, ((law, absent(law)),)


def _rate(rng: np.random.Generator, most: float) -> float:
    return float(most * rng.choice([rng.uniform(0.02, 0.98), 0.01, 0.5, 1.0 - 1e-6]))


SAMPLERS = {
    "balls_in_bins": _balls_in_bins,
    "random_allocation": _random_allocation,
    "fresh_bins": _fresh_bins,
    "poisson": _poisson,
    "cyclic_poisson": _cyclic_poisson,
    "b_min_sep": _b_min_sep,
    "multi_attribution": _multi_attribution,
    "users": _users,
    "truncated": _truncated,
    "longer_truncated": _longer_truncated,
    "secret_groups": _secret_groups,
    "waiting_threes": _waiting_threes,
    "replaced": _replaced,
    "shuffle": _shuffle,
}
