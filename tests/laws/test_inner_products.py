"""Inner products in small blocks, against sums, and with several numbers of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hockeystick.laws.inner_products import inner_products

SHAPES = [(1, 1, 1), (1, 32, 700), (32, 1, 700), (300, 32, 32), (7, 5, 100_000), (2, 3, 0), (0, 4, 5), (1000, 40, 33)]


@pytest.mark.parametrize(("many", "others", "length"), SHAPES)
def test_they_are_sums(many: int, others: int, length: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(rows, length)) + 1j * rng.normal(size=(rows, length)) for rows in (many, others))
    for c, d in ((a, b), (a.real, b.imag), (a, b.real)):
        products = inner_products(c, d)
        assert np.iscomplexobj(products) == np.iscomplexobj(c)
        sizes = np.abs(c) @ np.abs(d).T
        assert (np.abs(products - np.einsum("an,bn->ab", c, d)) <= 1e-15 * (length + 4) * sizes).all()


def test_threads_change_no_bit() -> None:
    script = """
import hashlib
import numpy as np
from hockeystick.laws.inner_products import inner_products
rng, digest = np.random.default_rng(2), hashlib.sha256()
shapes = [(1, 32, 9000), (64, 32, 512), (700, 33, 32), (256, 900, 32), (3, 32, 30_000), (5, 1, 70_000)]
for many, others, length in shapes:
    a, b = (rng.normal(size=(one, length)) * (1 + 1j) for one in (many, others))
    digest.update(inner_products(a * np.exp(1j * a.real), b).tobytes())
    digest.update(inner_products(np.cos(a.real), b.real).tobytes())
print(digest.hexdigest())
"""
    results = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for threads in ("1", "2", "5")
    }
    assert len(results) == 1
