"""Compile the kernels once, into NUMBA_CACHE_DIR, before several test processes would each compile them."""

from contextlib import suppress
from pathlib import Path

from hockeystick import MonteCarlo, Plan, certify
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.errors import HockeystickError
from hockeystick.laws.warm_up import compile_kernels

compile_kernels()
for one in ACCOUNTANTS.values():
    one.warm_up()
sampled = MonteCarlo(failure_probability=0.1, ratio=100.0, seed=1)
for path in sorted(Path("examples/plans").glob("*.toml")):
    with suppress(HockeystickError):  # a second may be too little; the kernels are compiled all the same
        certify(Plan.load(path).mechanism(4.0), delta=1e-3, budget=1.0, monte_carlo=sampled)
