#!/bin/bash
# Expected: a configuration with `noise_multiplier=2.0` adds noise of two times what one example can change, whatever
# the scale of its strategy, as it does with `column_normalize=False`.
# Happens: with `column_normalize=True` the noise is multiplied by the norm of the strategy, but the normalised matrix
# no longer divides by it. The event of the plan says 2.0 all the same. For a strategy of norm .1 the noise is a tenth
# of what the accounting is for. The inner function says that it wants norm 1; the configuration neither says nor checks
# it, and its own example, [1.0, 0.5, 0.2, 0.1], has norm 1.14.
# Who is hurt: those who give a strategy of their own, scaled to a sum of 1, say, and normalise its columns.
# Version: jax-privacy 2.0.0. Source: experimental/execution_plan.py, BandMFExecutionPlanConfig.plan;
# matrix_factorization/toeplitz.py, inverse_as_streaming_matrix.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check jax-privacy==2.0.0 jax==0.10.2 dp-accounting==0.6.0
"$room/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import jax.numpy as jnp
import numpy as np
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

print(f"jax-privacy {version('jax-privacy')}: standard deviation of the first noise, at noise_multiplier=2.0")
nothing = jnp.zeros(100_000)
ratios = []
for strategy in ([1.0], [0.1], [0.5, 0.3, 0.2]):
    sizes = []
    for normalised in (False, True):
        plan = BandMFExecutionPlanConfig(
            iterations=6, strategy=np.array(strategy), epsilon=None, delta=None, noise_multiplier=2.0,
            sampling_prob=0.5, column_normalize=normalised, noise_seed=0,
        ).plan
        transform = plan.noise_addition_transform
        noise, _ = transform.update(nothing, transform.init(nothing))
        sizes.append(float(jnp.std(noise)))
        said = repr(plan.dp_event).split("noise_multiplier=")[1].split(")")[0]
        assert said == "2.0", said
    ratios.append(sizes[1] / sizes[0])
    print(f"strategy {strategy}: {sizes[0]:.4f} without, {sizes[1]:.4f} with column_normalize; the event says {said}")
# Both matrices have the first entry strategy[0] in units of the norm, so the first noise should be the same.
assert np.allclose(ratios, [1.0, 0.1, np.linalg.norm([0.5, 0.3, 0.2])], rtol=0.02), ratios
PYTHON
