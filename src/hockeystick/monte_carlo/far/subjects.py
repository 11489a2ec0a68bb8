"""What the types of pairs say of their example: the strategy matrix, when it takes part, and whom nobody samples."""

from dataclasses import dataclass
from functools import singledispatch

from hockeystick.monte_carlo.far.columns import Columns, columns_of
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.visits import Visits
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.causal_columns import why_no_columns
from hockeystick.types import Side

MAX_COINS = 16
"""Of an opportunity."""
MAX_BINS = 1024
"""Chances of counts are held for every place of an epoch."""
NOT_RANDOM = "the example is in every batch: nothing is random"


@dataclass(frozen=True)
class Subject:
    """One example, or user, of a pair.

    Attributes:
        matrix: C, of which every column stands for all coins of its step.
        law: when it takes part.
        refusal: why it is not sampled here, but for what its columns say; or None.
        groups: those of cyclic sampling; opportunities are the steps of one.
        tuples: whether histories are drawn too, several at once and by the links of trees, in place of counts alone.
    """

    matrix: StrategyMatrix
    law: Visits
    refusal: str | None
    groups: int = 1
    tuples: bool = True


@singledispatch
def subject_of(pair: DominatingPair) -> Subject:
    """The example of a pair; raises TypeError for pairs of other types."""
    raise TypeError(f"nothing is known of the examples of {type(pair).__name__}")


@subject_of.register
def _of_subsets(pair: SubsetMixture) -> Subject:
    """Poisson and cyclic Poisson sampling, of users too."""
    refusal = NOT_RANDOM if pair.batches_are_public else None
    if refusal is None and pair.coins > MAX_COINS:
        refusal = f"a user has more than {MAX_COINS} examples"
    return Subject(pair.step_matrix, pair.visits, refusal, groups=pair.groups, tuples=False)


@subject_of.register
def _of_renewal(pair: RenewalMixture) -> Subject:
    """b-min-sep subsampling."""
    refusal = None
    if pair.banded and pair.too_large is None:
        refusal = "the columns of one example do not overlap"
    elif pair.examples_per_user > 1:
        refusal = "several examples of a user wait together, and their columns overlap"
    return Subject(pair.matrix, pair.visits, refusal)


@subject_of.register
def _of_visits(pair: FreshBins) -> Subject:
    """Random allocation."""
    refusal = NOT_RANDOM if pair.batches_are_public else None
    if refusal is None and pair.bins > MAX_BINS:
        refusal = f"it is for at most {MAX_BINS} bins"
    return Subject(pair.matrix, pair.visits, refusal)


def why_not(pair: DominatingPair) -> str | None:
    """Why the proposals of this folder are not for a pair, or None."""
    subject = subject_of(pair)
    return subject.refusal or why_no_columns(subject.matrix, subject.groups)


def columns_for(pair: DominatingPair, side: Side) -> Columns:
    """The columns of the opportunities, on this side of those of the pair."""
    subject = subject_of(pair)
    return columns_of(subject.matrix, pair.noise_multiplier, subject.law, side, groups=subject.groups)
