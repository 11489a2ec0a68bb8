"""Compile the kernels once, before several test processes would each compile them.

PYTHONPATH has what the tests have there: papers/, whose kernels would else be compiled again, and tests/conformance/.
"""

from contextlib import suppress
from itertools import product

import numpy as np
from strategy_examples import EXAMPLES, STEPS

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.errors import HockeystickError
from hockeystick.laws.warm_up import compile_kernels
from hockeystick.pairs.registry import dominating_pair

STRATEGIES = (hs.Identity(), hs.BandedSquareRoot(bands=3), hs.SquareRoot(), hs.BinaryTree())
SAMPLERS = (
    hs.BallsInBins(bins=8, epochs=3),
    hs.RandomAllocation(bins=8, epochs=3),
    hs.RandomAllocation(bins=24, participations=3),
    hs.Poisson(sampling_prob=0.05, steps=32),
    hs.CyclicPoisson(groups=4, sampling_prob=0.2, steps=32),
    hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=32),
    hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=32, truncated_batch_size=80, num_examples=1000),
    hs.Shuffle(batch_size=10, bins=8, epochs=3),
)
compile_kernels()
for one in every_accountant().values():
    one.warm_up()
sampling = ACCOUNTANTS["monte_carlo"]
samples = hs.Settings(
    question=hs.Question(delta=1e-3), monte_carlo=hs.MonteCarlo(failure_probability=0.1, ratio=100.0, seed=1), work=0.1
)
for strategy, sampler in product(STRATEGIES, SAMPLERS):
    with suppress(HockeystickError):  # some combinations are not sampled
        pair = dominating_pair(hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=3.0))
        sampling.bounds(pair, [side for side in hs.Side if sampling.why_not(pair, side) is None], samples)
for strategy, dtype, exact in product(EXAMPLES.values(), (np.float32, np.float64), (False, True)):
    with suppress(HockeystickError):  # some structures have no noise in whole numbers
        mechanism = hs.Mechanism(
            strategy=strategy, sampler=hs.Deterministic(bins=STEPS), noise_multiplier=3.0, exact=exact
        )
        list(hs.noise.stream(mechanism, 200, rng=np.random.default_rng(0), dtype=dtype))
