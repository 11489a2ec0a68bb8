"""A training with JAX that can be killed at any moment; momentum and dropout keys have states of their own."""

import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy.batch_selection import pad_to_multiple_of

import hockeystick as hs

STEPS, EVERY = 90, 3
"""Of a training, and from one saved state to the next."""
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=5),
    sampler=hs.BMinSep(min_sep=5, sampling_prob=0.05, steps=STEPS),
    noise_multiplier=1.0,
)
COPIES = False
"""JAX has threads: a copy of its process may hang."""


def loss(weights, x, y, key):
    kept = jax.random.bernoulli(key, 0.7, x.shape)
    return jnp.mean((jnp.where(kept, x, 0.0) @ weights - y) ** 2)


def train(folder: Path, saved=lambda step: None) -> None:
    """``saved`` is called with the step of every state that was saved."""
    warnings.simplefilter("ignore")
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((100, 6)).astype(np.float32), generator.standard_normal(100).astype(np.float32)
    config = hs.jax.ExecutionPlanConfig(
        MECHANISM, params=jnp.zeros(6), l2_clip_norm=1.0, num_examples=100, rng=np.random.default_rng(1)
    )
    plan = config.make()
    gradient = plan.clipped_grad(loss, batch_argnums=(1, 2), prng_argnum=3)
    optimizer = optax.chain(plan.noise_addition_transform, optax.sgd(0.1, momentum=0.9))

    @jax.jit
    def step(params, state, key, x, y, padding):
        key, used = jax.random.split(key)
        mean = gradient(params, x, y, used, is_padding_example=padding)
        updates, state = optimizer.update(mean, state, params)
        return optax.apply_updates(params, updates), state, key

    params = jnp.zeros(6)
    tree = (params, optimizer.init(params), jax.random.key(0))
    path = folder / "state.npz"
    if path.exists():
        tree = config.load_checkpoint(path, like=tree)
    for batch in config.run.batches():
        padded = pad_to_multiple_of(np.append(batch, -1), 32)
        tree = step(*tree, x[padded], y[padded], padded == -1)
        done = int(tree[1][0].step)
        if done % EVERY == 0:
            config.save_checkpoint(path, tree)
            saved(done)
    config.record(config.certificate(1e-5, method="gaussian")).save(folder / "run.json")
