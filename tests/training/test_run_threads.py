"""A loop may read batches ahead while another thread takes the steps, as compiled functions do by their callbacks."""

import queue
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import hockeystick as hs
from hockeystick.training import Run


class Slow(deque):
    """Gives other threads their turn right after the first batch is dropped, when a run is between two steps."""

    def popleft(self):
        first = super().popleft()
        time.sleep(1e-3)
        return first


def test_steps_of_another_thread():
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=200), noise_multiplier=1.0)
    run = Run(mechanism, num_examples=30, shape=1, rng=np.random.default_rng(0))
    run._drawn = Slow()
    given: queue.Queue[np.ndarray] = queue.Queue(maxsize=3)
    with ThreadPoolExecutor(1) as other:
        taken = other.submit(lambda: [run.noise(given.get(timeout=10)) for _ in range(200)])
        for batch, right in zip(run.batches(), run.all_batches(), strict=True):
            given.put(right, timeout=60)
            assert np.array_equal(batch, right)
        taken.result()
    assert run.remaining == 0
    assert not run.record().violations
