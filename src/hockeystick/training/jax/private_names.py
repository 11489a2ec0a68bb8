"""What JAX does not promise to keep, so that a release that moves it fails here alone."""

from contextlib import suppress

import jax

from hockeystick.errors import UnsupportedError


def recover() -> None:
    """Make JAX forget the error of a callback that it raises again in every later ordered callback of this thread.

    JAX 0.10 does so on GPUs, and on a CPU after an error in ``jax.shard_map``
    (https://github.com/jax-ml/jax/issues/37587): the token that orders callbacks has the error. This waits for all that
    is under way, and drops the tokens with the errors they have, so look at these first. The run is as it was: a step
    whose callback failed is not taken.

    Raises: UnsupportedError where the installed JAX has its tokens elsewhere.
    """
    try:
        from jax._src.dispatch import runtime_tokens

        tokens = [*runtime_tokens.current_tokens.values(), *runtime_tokens.output_runtime_tokens.values()]
    except (ImportError, AttributeError):
        raise UnsupportedError(
            f"The tokens of callbacks are not where JAX 0.10 has them in JAX {jax.__version__}; start Python again, "
            "and continue from the saved state."
        ) from None
    for token in tokens:
        with suppress(jax.errors.JaxRuntimeError):
            token.block_until_ready()
    runtime_tokens.clear()
