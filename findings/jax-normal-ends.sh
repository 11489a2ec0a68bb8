#!/bin/bash
# Expected: normal numbers in float32 reach some 13 standard deviations.
# Happens: jax.random.normal transforms one of 2^23 uniform numbers. All of them are enumerated here: the values end at
# -5.42 and 5.22, with a different end on each side. Noise of one batch, with and without a gradient of one clipping
# norm, therefore has outcomes that prove which of the two it was: delta has a floor that no epsilon removes.
# Who is hurt: long runs at small noise: at noise multiplier 1 a full batch has at least delta 1.2e-5 at every epsilon.
# Version: jax 0.10.2. Source: jax/_src/random.py, _normal_real.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 scipy==1.17.1
"$room/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

low = np.nextafter(np.float32(-1), np.float32(0), dtype=np.float32)
bits = jnp.arange(2**23, dtype=jnp.uint32) | np.uint32(0x3F800000)
uniform = lax.bitcast_convert_type(bits, jnp.float32) - 1
values = np.asarray(jnp.float32(np.sqrt(2)) * lax.erf_inv(jnp.maximum(low, uniform * (1 - low) + low)))
drawn = np.asarray(jax.random.normal(jax.random.key(0), (1_000_000,)))
print(f"jax {jax.__version__}: {len(np.unique(values)):,} values from {values.min():.4f} to {values.max():.4f}")
assert np.isin(drawn, values).all()  # the enumeration is the generator's
assert values.max() < 5.3 and values.min() > -5.5
beyond = float(np.mean(values.astype(np.float64) + 1 > values.max()))
print(f"Chance that noise shifted by one standard deviation is where the noise itself never is: {beyond:.2e}")
assert beyond > 1e-5
PYTHON
