"""The naive proposal for truncated b-min-sep subsampling (docs/theory/monte-carlo/truncated.md)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hockeystick.monte_carlo.proposals import Array, Family, Naive
from hockeystick.monte_carlo.renewal.truncated_kernels import Truncation, draw_truncated
from hockeystick.monte_carlo.weight_bounds import FARTHEST_NORMAL
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.strategies import StrategyMatrix
from hockeystick.strategies.matrix.band import band_of
from hockeystick.strategies.matrix.base import UNIT_ROUNDOFF
from hockeystick.types import Direction, Side

LARGEST_SHIFT = 2.0
"""Of a survivor in a truncated batch, in columns."""
SECONDS_PER_STEP = 2e-7
SECONDS_PER_ENTRY = 2e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class NaiveTruncated(Naive):
    """Counts of the others and an output of the direction's own first distribution, without a weight.

    Neither distribution is a single Gaussian, so the proposals of plain b-min-sep have no proved largest value here.

    Attributes:
        pair: the pair; not refused by :func:`why_not`.
    """

    pair: TruncatedRenewal

    @property
    def cost(self) -> float:
        """A binomial, and two recursions, for each step."""
        steps, bands = self.pair.columns.shape
        return float((steps + self.pair.min_sep) * SECONDS_PER_STEP + steps * bands * SECONDS_PER_ENTRY)

    @property
    def loss_error(self) -> float:
        """First-order bound: 8 roundings of a logarithm at each step, and the exponents of the participations.

        A logarithm is at most the sum of the exponents of ``ceil(n / b)`` participations, an exponent at most
        ``2 |c|_1 (2 |c|_max + z)`` for a column c in units of sigma and a normal of at most z.
        """
        scaled, _ = _scaled_columns(self.pair.matrix, self.pair.noise_multiplier)
        steps, bands = scaled.shape
        reach = LARGEST_SHIFT * float(scaled.max()) + FARTHEST_NORMAL
        exponent = LARGEST_SHIFT * float(scaled.sum(axis=1).max()) * reach
        participations = -(-steps // self.pair.min_sep)
        logarithm = participations * exponent + steps * abs(np.log1p(-min(self.pair.participation_prob, 0.5)))
        roundings = 8.0 * steps * (1.0 + logarithm) + 2.0 * (bands + 4.0) * participations * exponent
        return float(max(1e-9, 2.0 * UNIT_ROUNDOFF * roundings))

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        pair = self.pair
        scaled, half_norms = _scaled_columns(pair.matrix, pair.noise_multiplier)
        log_weights[:] = 0.0
        law = Truncation(
            scaled,
            half_norms,
            pair.min_sep,
            pair.participation_prob,
            pair.warm_start,
            pair.truncated_batch_size,
            pair.num_examples - 1,
        )
        draw_truncated(rng, law, self.direction is Direction.REMOVE, losses)


@lru_cache(maxsize=4)
def _scaled_columns(matrix: StrategyMatrix, sigma: float) -> tuple[Array, Array]:
    """``C[i + d, i] / sigma``, shape (n, p), and half the squared norms of these columns, shape (n,)."""
    scaled = band_of(matrix) / sigma
    return scaled, 0.5 * np.einsum("id,id->i", scaled, scaled)


def why_not(pair: TruncatedRenewal, side: Side) -> str | None:
    """Why the pair cannot be sampled for this side."""
    if side is Side.LOWER:
        return "the pair of truncated batches bounds the mechanism from above only"
    if pair.matrix.rows != pair.matrix.steps:
        return "its recursion needs a square strategy matrix"
    if pair.matrix.bands > pair.min_sep:
        return f"it needs a strategy with at most min_sep = {pair.min_sep} bands, not {pair.matrix.bands}"
    return None


FAMILY = Family(
    pair=TruncatedRenewal,
    kinds=(NaiveTruncated,),
    propose=lambda pair, direction, epsilon: (NaiveTruncated(direction=direction, pair=pair),),
    fingerprint=lambda pair: (
        pair.min_sep,
        pair.participation_prob,
        pair.warm_start,
        pair.truncated_batch_size,
        pair.num_examples,
        pair.columns,
    ),
    refusal=why_not,
)
