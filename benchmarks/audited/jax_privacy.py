"""jax-privacy: its batch selection strategies and its privatizers."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax_privacy import batch_selection, noise_addition
from jax_privacy.matrix_factorization import toeplitz

import hockeystick as hs
from benchmarks.audited import BSR, NUMBERS, ROWS, SIGMA, SIZE, Case, Outcome, column, of_batches, of_noise, of_steps

DISTRIBUTION = "jax-privacy"
INDEPENDENT = batch_selection.PartitionType.INDEPENDENT


def drawn(strategy: Any, claimed: Any) -> Outcome:
    """Two runs of a strategy."""
    return of_batches(
        lambda run: hs.audit.batches_of(strategy, num_examples=SIZE, rng=np.random.default_rng(run)), claimed
    )


def separated(warm_start: bool) -> Outcome:
    """Batches that are ten apart; their library counts the rate of available examples, and ours that of all."""
    prob = 0.05
    claimed = hs.BMinSep(min_sep=10, sampling_prob=prob / (1.0 + 9.0 * prob), steps=100, warm_start=warm_start)
    return drawn(batch_selection.BMinSepSampling(prob, 100, 10, warm_start), claimed)


def rows(
    matrix: Any = None, gradients: Any = jnp.float32, steps: int = ROWS, dtype: Any = None
) -> Iterator[np.ndarray]:
    """What a privatizer adds to gradients of zero, in clipping norms."""
    if matrix is None:
        privatizer = noise_addition.gaussian_privatizer(stddev=SIGMA, prng_key=1, dtype=dtype)
    else:
        privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=SIGMA, prng_key=1, dtype=dtype)
    zero = jnp.zeros(NUMBERS, gradients)
    state, update = privatizer.init(zero), jax.jit(privatizer.update)
    for _ in range(steps):
        noisy, state = update(zero, state)
        yield np.asarray(noisy).astype(np.float64)


def correlated() -> Outcome:
    """C^-1 z of a banded Toeplitz C, from its streaming inverse."""
    mechanism = of_steps(BSR)
    return of_noise(rows(toeplitz.inverse_as_streaming_matrix(jnp.asarray(column(mechanism)))), mechanism)


def dense(steps: int) -> Outcome:
    """C^-1 z from a dense matrix for 50 steps, which is asked for so many."""
    mechanism = of_steps(BSR, 50)
    inverse = jnp.asarray(np.linalg.inv(mechanism.matrix.materialize()))
    noise = list(rows(inverse, steps=steps))
    if steps <= 50:
        return of_noise(iter(noise), mechanism)
    same = sum(np.array_equal(noise[49], later) for later in noise[50:])
    return Outcome(same > 0, f"{same} of {steps - 50} rows after the last one repeat it", {"same": f"{same}"})


def coarse() -> Outcome:
    """Noise for gradients of bfloat16 with default options."""
    noise = list(rows(gradients=jnp.bfloat16))
    outcome = of_noise(iter(noise), of_steps())
    z = np.concatenate(noise) / SIGMA
    figures = {
        "jax": jax.__version__,
        "values": f"{np.unique(z).size}",
        "largest": f"{np.abs(z).max():.2f}",
        "mean": f"{z.mean():.3f}",
        "helped": of_noise(rows(gradients=jnp.bfloat16, dtype=jnp.float32), of_steps()).says,
    }
    return Outcome(outcome.found, f"{outcome.says}; {figures['values']} different values", figures)


CASES = {
    "jax-poisson": Case(
        "CyclicPoissonSampling(cycle_length=1)",
        "Poisson, q = 0.05",
        lambda: drawn(batch_selection.CyclicPoissonSampling(0.05, 100), hs.Poisson(sampling_prob=0.05, steps=100)),
    ),
    "jax-cyclic-poisson": Case(
        "CyclicPoissonSampling(cycle_length=10, partition_type=INDEPENDENT)",
        "cyclic Poisson with secret groups, q = 0.3",
        lambda: drawn(
            batch_selection.CyclicPoissonSampling(0.3, 100, cycle_length=10, partition_type=INDEPENDENT),
            hs.CyclicPoisson(groups=10, sampling_prob=0.3, steps=100, partition="independent"),
        ),
    ),
    "jax-balls-in-bins": Case(
        "BallsInBinsSampling",
        "balls in 20 bins, 5 epochs",
        lambda: drawn(batch_selection.BallsInBinsSampling(100, 20), hs.BallsInBins(bins=20, epochs=5)),
    ),
    "jax-b-min-sep": Case("BMinSepSampling", "b-min-sep with a warm start, b = 10, p = 0.05", lambda: separated(True)),
    "jax-b-min-sep-cold": Case(
        "BMinSepSampling(warm_start=False)", "b-min-sep from a cold start, b = 10, p = 0.05", lambda: separated(False)
    ),
    "jax-noise": Case("gaussian_privatizer, float32", "white noise", lambda: of_noise(rows(), of_steps())),
    "jax-noise-correlated": Case(
        "matrix_factorization_privatizer of a streaming inverse", "C^-1 z for C = BSR(8)", correlated
    ),
    "jax-noise-dense": Case(
        "matrix_factorization_privatizer of a dense matrix", "C^-1 z for C = BSR(8)", lambda: dense(50)
    ),
    "jax-noise-past-the-end": Case(
        "matrix_factorization_privatizer of a dense matrix for 50 steps, in steps 51 to 60",
        "an error, or new noise",
        lambda: dense(60),
        deviates=True,
        means="The step is an index into the matrix, and an index past its end means the last row: {same} of 10 more "
        "steps add exactly the noise of step 50, so the difference of two of these releases has no noise. Never "
        "make more steps than the matrix has rows.",
    ),
    "jax-noise-bfloat16": Case(
        "gaussian_privatizer for gradients of bfloat16, default options",
        "white noise",
        coarse,
        deviates=True,
        means="The noise is drawn in the type of the gradients, and `jax.random.normal` of jax {jax} in bfloat16 has "
        "{values} different values in all, none beyond {largest} standard deviations, with a mean of {mean} of "
        "them. The documentation says that types follow the gradients. Every analysis of the Gaussian mechanism "
        "assumes more than {values} values. With `dtype=jnp.float32` the same audit finds {helped}; the sum is "
        "rounded to bfloat16 after the noise was added.",
    ),
}
