"""A training with numpy alone that can be killed at any moment."""

import os
import time
from pathlib import Path

import numpy as np

import hockeystick as hs

EXAMPLES, SIZE = 200, 300
STEPS, EVERY = 60, 1
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=5),
    sampler=hs.BMinSep(min_sep=5, sampling_prob=0.05, steps=STEPS),
    noise_multiplier=1.0,
)


def save(path: Path, run, weights) -> None:
    """Weights and run in one file, whole or not at all."""
    with open(path.with_suffix(".new"), "wb") as file:
        np.savez(file, weights=weights, **run.state_dict())
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def train(folder: Path, saved=lambda step: None) -> None:
    """``saved`` is called with the step of every state that was saved."""
    run = hs.training.Run(MECHANISM, num_examples=EXAMPLES, shape=SIZE, rng=np.random.default_rng(5))
    weights = np.zeros(SIZE, np.float32)
    data = np.random.default_rng(0).standard_normal((EXAMPLES, SIZE)).astype(np.float32)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    state = folder / "state.npz"
    if state.exists():
        with np.load(state) as file:
            entries = dict(file)
        weights = entries.pop("weights")
        run.load_state_dict(entries)
    for batch in run.batches():
        total = (data[batch] * np.tanh(1.0 - data[batch] @ weights)[:, None]).sum(axis=0)
        weights += 0.1 * (total + run.noise(batch)) / np.float32(run.expected_batch_size)
        save(state, run, weights)
        saved(run.step)
        time.sleep(0.002)
    run.record(hs.certify(MECHANISM, delta=1e-5, method="gaussian")).save(folder / "run.json")
