"""Naive samples of the privacy loss under P (remove): our kernels, plain numpy, and jax-privacy."""

from collections.abc import Callable
from typing import Any

from benchmarks.monte_carlo_cases import Case

Draw = Callable[[int], Any]
"""So many independent samples of the loss, shape (samples,)."""

OUR_BATCH = 4096
"""What one call of our kernels fills in a run."""
ONE_BY_ONE = 50
"""A batch for a contestant that makes its samples one after the other anyway."""


class NotOffered(Exception):
    """The contestant does not sample this kind of mechanism."""


def pair_of(case: Case) -> Any:
    """Our dominating pair."""
    from hockeystick.mechanism import Mechanism
    from hockeystick.pairs.registry import dominating_pair

    return dominating_pair(Mechanism.model_validate(case.mechanism))


def ours(case: Case) -> tuple[Draw, int]:
    """The naive proposal of the pair's family, on one thread."""
    import numpy as np

    from hockeystick.monte_carlo.families import family_of
    from hockeystick.types import Direction

    pair = pair_of(case)
    proposal = family_of(pair).build(pair, Direction.REMOVE, "naive", {})
    rng = np.random.Generator(np.random.SFC64(1))

    def draw(size: int) -> Any:
        log_weights, losses = np.empty(size), np.empty(size)
        proposal.draw(rng, log_weights, losses)
        return losses

    return draw, OUR_BATCH


def plain_numpy(case: Case) -> tuple[Draw, int]:
    """The same recursions over whole arrays, as one writes them down first."""
    kinds = {"balls_in_bins": _numpy_bins, "b_min_sep": _numpy_renewal, "poisson": _numpy_subsets}
    return kinds[case.sampler["kind"]](case), case.batch


def _numpy_bins(case: Case) -> Draw:
    import numpy as np
    from scipy.special import logsumexp

    pair, rng = pair_of(case), np.random.default_rng(1)
    factor = np.linalg.cholesky(pair.gram / pair.noise_multiplier**2)
    half = 0.5 * (factor**2).sum(axis=1)

    def draw(size: int) -> Any:
        z = rng.standard_normal((size, pair.bins))
        z += factor[rng.integers(0, pair.bins, size)]
        return logsumexp(z @ factor.T - half, axis=1) - np.log(pair.bins)

    return draw


def _numpy_renewal(case: Case) -> Draw:
    import numpy as np
    from scipy.special import logsumexp

    pair, rng = pair_of(case), np.random.default_rng(1)
    apart, prob, columns = pair.min_sep, pair.participation_prob, pair.columns / pair.noise_multiplier
    steps, bands = columns.shape
    half, first = 0.5 * (columns**2).sum(axis=1), pair.first_available

    def draw(size: int) -> Any:
        y = rng.standard_normal((steps + bands, size))
        # Where the example takes part next: a geometric number of steps after it is available.
        at = rng.choice(first.size, p=first, size=size) + rng.geometric(prob, size=size) - 1
        while (alive := np.flatnonzero(at < steps)).size:
            for band in range(bands):
                y[at[alive] + band, alive] += columns[at[alive], band]
            at[alive] += apart + rng.geometric(prob, size=alive.size) - 1
        f = np.zeros((steps + apart, size))  # log f_i; 0 beyond the end
        for i in range(steps - 1, -1, -1):
            log_ratio = columns[i] @ y[i : i + bands] - half[i]
            f[i] = np.logaddexp(np.log1p(-prob) + f[i + 1], np.log(prob) + log_ratio + f[i + apart])
        return logsumexp(f[: first.size], b=first[:, None], axis=0)

    return draw


def _numpy_subsets(case: Case) -> Draw:
    import numpy as np

    from hockeystick.strategies.matrix.band import band_of

    pair, rng = pair_of(case), np.random.default_rng(1)
    prob = pair.sampling_prob
    columns = band_of(pair.matrix) / pair.noise_multiplier
    steps, bands = columns.shape
    patterns = np.arange(2**bands)  # bit d of a pattern: whether the example took part d steps ago
    bits = (patterns[:, None] >> np.arange(bands)) & 1
    chance = np.where(bits[:, 0] == 1, prob, 1.0 - prob)
    rows = np.zeros((steps, bands))  # rows[t, d] = C[t, t - d] / sigma
    for band in range(bands):
        rows[band:, band] = columns[: steps - band, band]

    def draw(size: int) -> Any:
        taken = rng.random((steps, size)) < prob
        y = rng.standard_normal((steps, size))
        for band in range(bands):
            y[band:] += columns[: steps - band, band, None] * taken[: steps - band]
        weights = np.zeros((2 ** (bands - 1), size))  # of the patterns without their oldest bit
        weights[0] = 1.0
        logs = np.zeros(size)
        for t in range(steps):
            shift = (bits @ rows[t])[:, None]
            grown = chance[:, None] * np.exp(shift * (y[t] - 0.5 * shift)) * weights[patterns >> 1]
            weights = grown[: 2 ** (bands - 1)] + grown[2 ** (bands - 1) :]
            total = weights.sum(axis=0)
            weights /= total
            logs += np.log(total)
        return logs

    return draw


def jax_privacy(case: Case) -> tuple[Draw, int]:
    """Its get_privacy_loss_sample."""
    from jax_privacy import batch_selection

    sampler = case.sampler
    if sampler["kind"] == "balls_in_bins":
        steps = sampler["bins"] * sampler["epochs"]
        bins = batch_selection.BallsInBinsSampling(iterations=steps, cycle_length=sampler["bins"])
        return _peer(case, bins), ONE_BY_ONE
    if sampler["kind"] != "b_min_sep":
        raise NotOffered(f"no Monte Carlo for {sampler['kind']}")
    rate, apart = sampler["sampling_prob"], sampler["min_sep"]
    strategy = batch_selection.BMinSepSampling(
        sampling_prob=rate / (1.0 - rate * (apart - 1)),
        iterations=sampler["steps"],
        min_sep=apart,
        warm_start=sampler.get("warm_start", True),
    )
    return _peer(case, strategy), case.batch


def jax_privacy_renewal(case: Case) -> tuple[Draw, int]:
    """Bins as warm b-min-sep batches that are always taken: the same law, by its code that works on whole arrays."""
    from jax_privacy import batch_selection

    sampler = case.sampler
    if sampler["kind"] != "balls_in_bins":
        raise NotOffered("only for bins")
    steps = sampler["bins"] * sampler["epochs"]
    strategy = batch_selection.BMinSepSampling(
        sampling_prob=1.0, iterations=steps, min_sep=sampler["bins"], warm_start=True
    )
    return _peer(case, strategy), case.batch


def _peer(case: Case, strategy: Any) -> Draw:
    import numpy as np
    from jax_privacy.experimental.monte_carlo import sample_generation

    from hockeystick.strategies import BandedSquareRoot

    bands = case.mechanism["strategy"]["bands"]
    column = BandedSquareRoot(bands=bands).matrix(bands).columns(np.zeros(1, np.int64))[:, 0]
    rng, sigma = np.random.default_rng(1), case.mechanism["noise_multiplier"]

    def draw(size: int) -> Any:
        losses, _ = sample_generation.get_privacy_loss_sample(strategy, sigma, column, rng, True, size)
        return losses

    return draw


OURS, NUMPY, PEER, PEER_RENEWAL = "hockeystick", "numpy", "jax-privacy", "jax-privacy, q=1"

CONTESTANTS: dict[str, tuple[str, Callable[[Case], tuple[Draw, int]]]] = {
    OURS: ("hockeystick", ours),
    NUMPY: ("numpy", plain_numpy),
    PEER: ("jax_privacy", jax_privacy),
    PEER_RENEWAL: ("jax_privacy", jax_privacy_renewal),
}
"""The package that has to be installed, and what samples."""


def suits(name: str, case: Case) -> bool:
    """Whether a contestant has a line of its own for a case."""
    return name != PEER_RENEWAL or case.sampler["kind"] == "balls_in_bins"
