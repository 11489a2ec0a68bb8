"""What a process asked before changes no bit of a bound: else certificates would not verify in another process."""

from itertools import product

import pytest

import hockeystick as hs
from benchmarks.case import forget
from hockeystick.accountants import (
    fresh_epochs,
    moment_majorant,
    moving_average,
    participation_windows,
    separated_windows,
    split_noise,
)
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Kind, Side

BANDED = hs.BandedSquareRoot(bands=3)
RUNS = {
    "poisson": hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=500), noise_multiplier=1.0),
    "allocation": hs.Mechanism(sampler=hs.RandomAllocation(bins=12, epochs=2), noise_multiplier=1.0),
    "shuffle": hs.Mechanism(sampler=hs.Shuffle(batch_size=2, bins=6), noise_multiplier=1.0),
    "windows": hs.Mechanism(strategy=BANDED, sampler=hs.Poisson(sampling_prob=0.1, steps=24), noise_multiplier=1.0),
    "separated": hs.Mechanism(
        strategy=BANDED, sampler=hs.BMinSep(min_sep=4, sampling_prob=0.1, steps=12), noise_multiplier=1.0
    ),
    "bins": hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=hs.BallsInBins(bins=12), noise_multiplier=1.0),
}
KEPT = (
    *(fresh_epochs._KNOWN, split_noise._KNOWN, separated_windows._FITTED),
    *(separated_windows._CHOSEN, participation_windows._KNOWN, participation_windows._CHOSEN),
    *(moment_majorant._KNOWN, moving_average._KNOWN),
)
"""What accountants keep about matrices."""
MOST_SECONDS = 3.0
"""Accountants that expect to take longer are left out."""
QUESTIONS = tuple(product((1.4, 1.43), (1e-5, 1e-3), (True, False)))
"""Noise multipliers, of which an octave of windows separates two; deltas; and whether a single epsilon is asked for."""


def asked(mechanism: hs.Mechanism, questions: tuple[tuple[float, float, bool], ...]) -> dict[tuple[object, ...], str]:
    """The answers of all accountants, by what was asked, as in a process that knows nothing."""
    forget("hockeystick")
    for kept in KEPT:
        kept.clear()
    answers = dict[tuple[object, ...], str]()
    for noise, delta, alone in questions:
        pair = dominating_pair(mechanism.with_noise(noise))
        question = Question(delta=delta) if alone else None
        settings = hs.Settings(hs.Resolution(24, delta), question=question, effort=0.3)
        for accountant, side in product(ACCOUNTANTS.values(), Side):
            if accountant.kind is Kind.MONTE_CARLO or accountant.why_not(pair, side) is not None:
                continue
            if accountant.seconds(pair) <= MOST_SECONDS:
                try:
                    answer = repr(accountant.bound(pair, side, settings).epsilon(delta))
                except hs.UnsupportedError as error:
                    answer = str(error)
                answers[accountant.name, side, noise, delta, alone] = answer
    return answers


@pytest.mark.parametrize("name", RUNS)
def test_bounds_do_not_depend_on_what_was_asked_before(name: str) -> None:
    forwards, backwards = (asked(RUNS[name], questions) for questions in (QUESTIONS, QUESTIONS[::-1]))
    assert len(forwards) >= 2 * len(QUESTIONS)
    assert {key: (answer, backwards[key]) for key, answer in forwards.items() if answer != backwards[key]} == {}
