"""Replays: correct loops have no finding, and planted faults have the right one, within two replays."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

CLIP = 0.5
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.BMinSep(min_sep=4, sampling_prob=0.2, steps=12),
    noise_multiplier=2.0,
)
EXAMPLES = 30


@dataclass
class Data:
    """Linear regression; an example of weight 0 is a ghost."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    @classmethod
    def random(cls):
        rng = np.random.default_rng(0)
        return cls(rng.normal(size=(EXAMPLES, 6)), 3.0 * rng.normal(size=EXAMPLES), np.ones(EXAMPLES))

    def ghost(self, example):
        weight = self.weight.copy()
        weight[example] = 0.0
        return Data(self.x, self.y, weight)

    def replaced(self, example, value):
        x = self.x.copy()
        x[example] = value
        return Data(x, self.y, self.weight)


def clipped(gradients):
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1.0, CLIP / np.maximum(norms, 1e-300))


@dataclass
class Loop:
    """A loop of numpy with our batches and noise; each fault changes one thing."""

    fault: str = ""
    mechanism: hs.Mechanism = MECHANISM

    def __call__(self, data, tape):
        entropy = None if self.fault == "fresh seeds" else 7
        run = hs.training.Run(self.mechanism, num_examples=EXAMPLES, shape=6, rng=np.random.default_rng(entropy))
        weights = np.zeros(6)
        for batch in run.batches():
            live = batch[data.weight[batch] > 0.0]
            gradients = (data.x[live] @ weights - data.y[live])[:, None] * data.x[live]
            noise = CLIP * np.asarray(run.noise(batch), dtype=np.float64)
            total, normaliser, divisor = self.sum(gradients, live, noise), run.expected_batch_size, None
            if self.fault == "batch mean":
                normaliser = max(live.size, 1)
            if self.fault == "hidden batch mean":
                divisor = max(live.size, 1)
            released = (total + noise) / (divisor or normaliser)
            loss = float(np.square(data.x[live] @ weights - data.y[live]).sum())
            weights = tape.step(
                released.astype(np.float32) if self.fault == "float32" else released,
                normaliser=normaliser,
                exposed={"loss": loss} if self.fault == "loss" else {"learning rate": 0.1},
                state=weights - 0.1 * released,
            )
            if self.fault == "early stop" and live.size < batch.size:
                break

    def sum(self, gradients, live, noise):
        if self.fault == "no clipping":
            return gradients.sum(axis=0)
        if self.fault == "clipping after averaging":
            mean = gradients.mean(axis=0, keepdims=True) if live.size else np.zeros((1, 6))
            return clipped(mean)[0] * max(live.size, 1)
        if self.fault == "pairs":
            return clipped(gradients + 5.0 * gradients.sum(axis=0)).sum(axis=0)
        if self.fault == "no noise on empty batches" and not live.size:
            return -noise
        return clipped(gradients).sum(axis=0)


@pytest.fixture(scope="module")
def data():
    return Data.random()


@pytest.mark.parametrize("fault", ["", "float32"])
@pytest.mark.parametrize("example", [0, 11, 29])
def test_a_correct_loop_has_no_finding(data, example, fault):
    for other, neighbours in ((data.ghost(example), "zero_out"), (data.replaced(example, 50.0), "replace")):
        verdict = hs.audit.replay(Loop(fault), data, other, clip_norm=CLIP, mechanism=MECHANISM, neighbours=neighbours)
        assert not verdict.refuted, str(verdict)
        assert verdict.samples == 12
        assert verdict.level == 0.0


FAULTS = {
    "no clipping": "sensitivity",
    "clipping after averaging": "sensitivity",
    "pairs": "sensitivity",
    "batch mean": "normaliser",
    "hidden batch mean": "sensitivity",
    "loss": "exposed",
    "early stop": "steps",
    "fresh seeds": "deterministic",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(data, fault):
    verdicts = [hs.audit.replay(Loop(fault), data, data.ghost(example), clip_norm=CLIP) for example in (0, 1)]
    assert any(FAULTS[fault] in verdict.broken for verdict in verdicts)
    assert "does not do what is claimed" in str(next(verdict for verdict in verdicts if verdict.refuted))


def test_a_loop_that_is_not_deterministic_is_said_to_be_so_and_nothing_else(data):
    verdict = hs.audit.replay(Loop("fresh seeds"), data, data.ghost(0), clip_norm=1e-6)
    assert [finding.name for finding in verdict.findings] == ["deterministic"]
    assert "give another result the second time, from step 0 on, so a replay shows nothing" in str(verdict)


def test_a_loop_that_makes_another_number_of_steps_each_time_is_not_deterministic():
    lengths = iter((2, 3))

    def train(data, tape):
        for _ in range(next(lengths)):
            tape.step(1.0)

    verdict = hs.audit.replay(train, 0, 1, clip_norm=1.0)
    assert verdict.broken == ("deterministic",)
    assert "with another number of steps" in str(verdict)


def test_noise_that_is_skipped_on_empty_batches_is_found(data):
    """All examples but one are ghosts, and then that one is too."""
    lone = data
    for example in range(1, EXAMPLES):
        lone = lone.ghost(example)
    loop = Loop("no noise on empty batches")
    assert "sensitivity" in hs.audit.replay(loop, lone, lone.ghost(0), clip_norm=CLIP).broken


def test_gradients_that_are_not_finite_are_found(data):
    assert "finite" in hs.audit.replay(Loop(), data, data.replaced(3, np.nan), clip_norm=CLIP).broken


def test_an_example_that_takes_part_too_often_is_found_by_the_whole_run(data):
    """Batches of Poisson sampling where the mechanism has a minimum separation: each step is within its bound."""
    often = hs.Mechanism(
        strategy=MECHANISM.strategy, sampler=hs.Poisson(sampling_prob=0.9, steps=12), noise_multiplier=2.0
    )
    verdict = hs.audit.replay(Loop(mechanism=often), data, data.ghost(0), clip_norm=CLIP, mechanism=MECHANISM)
    assert verdict.broken == ("whole_run",)


def test_a_clipping_norm_that_is_two_percent_too_large_is_found(data):
    verdict = hs.audit.replay(Loop(), data, data.ghost(0), clip_norm=CLIP / 1.02)
    assert verdict.broken == ("sensitivity",)


def test_every_step_starts_from_the_state_of_the_first_run():
    """Without that, the second step would differ by what the first one changed, which is no fault."""
    seen = []

    def train(start, tape):
        weights = np.array([0.0])
        for _ in range(3):
            seen.append(float(weights[0]))
            weights = tape.step(start, state=weights + start)

    hs.audit.replay(train, np.array([1.0]), np.array([1.5]), clip_norm=1.0)
    assert seen == [0.0, 1.0, 2.0] * 3


class State(NamedTuple):
    """As optax has them: of one entry, which a generator would be taken for, and of none."""

    weights: float


class Nothing(NamedTuple):
    """The state of a transformation without one."""


def test_states_may_be_named_tuples():
    starts = []

    def train(start, tape):
        state = (State(weights=start), Nothing())
        for _ in range(3):
            starts.append(state[0].weights)
            state = tape.step(state[0].weights + 1.0, state=(State(weights=state[0].weights + 1.0), Nothing()))

    assert not hs.audit.replay(train, 1.0, 1.5, clip_norm=1.0).refuted
    assert starts == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.5, 2.0, 3.0]


def test_shared_generators_are_seeded_before_every_step():
    """A loop that draws another number of shared random numbers in one step has the same in the next one."""
    import random

    def train(count, tape):
        for _ in range(3):
            noise = np.random.standard_normal(2) + random.random()  # noqa: NPY002
            for _ in range(count):
                np.random.standard_normal()  # noqa: NPY002
            tape.step(noise + 1e-10 * count)

    assert not hs.audit.replay(train, 0, 5, clip_norm=1e-9).refuted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": float("nan")}, "clip_norm"),
        ({"neighbours": "add"}, "neighbours"),
        ({"train": lambda data, tape: None}, "tape.step"),
        ({"neighbour": 0}, "changes no step"),
        ({"train": lambda data, tape: tape.step("text")}, "numbers"),
        ({"train": lambda data, tape: tape.step([object()])}, "numbers"),
    ],
)
def test_bad_input_is_named(arguments, says):
    good = {"train": lambda data, tape: tape.step([1.0 + data]), "data": 0, "neighbour": 1, "clip_norm": 1.0}
    with pytest.raises(InvalidInputError, match=says):
        hs.audit.replay(**(good | arguments))
