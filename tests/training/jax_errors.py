"""An error of a callback that JAX raises again, and that it forgets: prints what every update says. For two devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import hockeystick as hs
from hockeystick.training import Run

RUN = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)


def run_of():
    return Run(RUN, num_examples=20, shape=2, rng=np.random.default_rng(0))


def fail(x):
    raise ValueError("the old error")


def said(function, *arguments):
    """The last line of the error of a function; nothing where it has none."""
    try:
        jax.block_until_ready(function(*arguments))
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[-1]
    return ""


def main():
    called = jax.shard_map(
        lambda x: jax.experimental.io_callback(fail, x, x, ordered=True),
        mesh=jax.sharding.Mesh(np.array(jax.devices()), ("device",)),
        in_specs=PartitionSpec("device"),
        out_specs=PartitionSpec("device"),
    )
    noise, twin = hs.jax.Noise(run_of(), clip_norm=1.0), run_of()
    update = jax.jit(lambda state, examples: noise.update(jnp.zeros(2), state, examples=examples))
    state, batches = noise.init(jnp.zeros(2)), noise.run.batches()
    size = len(next(batches))
    print(said(jax.jit(called), jnp.zeros(2)))  # noqa: T201
    print(said(update, state, size), noise.run.step)  # noqa: T201
    hs.jax.recover()
    row, state = update(state, size)
    print(np.array_equal(row, twin.noise(next(twin.batches()))), int(state.step), noise.run.step)  # noqa: T201


if __name__ == "__main__":
    main()
