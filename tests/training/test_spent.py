"""Epsilon so far: of the executed steps or of the fewest that are known to cover them, never below, and quick."""

import re
import time
import warnings

import pytest

import hockeystick as hs
from hockeystick.calls import WrongCallError
from hockeystick.errors import InvalidInputError, ViolationError
from hockeystick.training.spent import Spending, rounded_up

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Taken:
    """A run as far as epsilons look at it, after any number of steps."""

    def __init__(self, mechanism, examples=60):
        self.run = hs.training.Run(mechanism, num_examples=examples, shape=None)

    def after(self, steps):
        self.run._step = steps
        return self.run


def engine_of(mechanism):
    """An engine that has begun to train something small on sixty examples."""
    data, model = TensorDataset(torch.zeros(60, 1), torch.zeros(60, 1)), torch.nn.Linear(1, 1)
    engine = hs.torch.PrivacyEngine(mechanism)
    engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data),
        max_grad_norm=1.0,
    )
    return engine


def exact(run):
    return hs.certify(run.executed(), delta=1e-5).epsilon


@pytest.mark.parametrize("has_end", [True, False])
def test_spent_is_the_certificate_of_the_executed_steps(has_end):
    """From above, and within 1 percent of it: the steps are rounded up by at most 0.8, and epsilon grows no faster."""
    steps = 700 if has_end else 10**9
    taken = Taken(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=steps), noise_multiplier=1.0))
    spending = Spending(taken.run, 1e-5, has_end=has_end)
    for at in (1, 30, 257, 700) if has_end else (2, 333, 601):
        spent, executed = spending.after(taken.after(at)), exact(taken.run)
        assert executed.lower <= spent.epsilon <= 1.01 * executed.upper
        assert at <= spent.steps <= max(at + 2, 1.008 * at)
    if has_end:
        assert (spent.whose, spent.steps) == ("the executed steps", 700)
        assert spent.epsilon == exact(taken.run).upper


@pytest.mark.parametrize(
    "mechanism",
    [
        hs.Mechanism(sampler=hs.RandomAllocation(bins=10, epochs=6), noise_multiplier=1.0),
        hs.Mechanism(sampler=hs.RandomAllocation(bins=10, epochs=6, participations=2), noise_multiplier=2.0),
        hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=6), noise_multiplier=3.0),
        hs.Mechanism(sampler=hs.BallsInBins(bins=10, epochs=8), noise_multiplier=3.0),
        hs.Mechanism(
            sampler=hs.Poisson(sampling_prob=0.05, steps=60, truncated_batch_size=20, num_examples=60),
            noise_multiplier=2.0,
        ),
    ],
    ids=["allocation", "two_visits", "fixed", "bins", "cut"],
)
def test_spent_within_an_epoch_is_that_of_the_epoch(mechanism):
    """Or of the next eighth of the plan."""
    taken = Taken(mechanism)
    spending = Spending(taken.run, 1e-5, has_end=True)
    whole, before = hs.certify(mechanism, delta=1e-5).epsilon.upper, 0.0
    for at in range(1, mechanism.sampler.steps + 1, 17):
        spent = spending.after(taken.after(at))
        assert at <= spent.steps <= mechanism.sampler.steps
        shorter = taken.run.first(spent.steps)
        certified = hs.certify(mechanism if shorter is None else shorter, delta=1e-5).epsilon
        assert certified.lower <= spent.epsilon <= certified.upper * (1.0 + 1e-3)
        assert before <= spent.epsilon <= whole
        before = spent.epsilon
    assert spending.after(taken.after(10)).epsilon < whole


def test_where_no_first_steps_are_a_mechanism_the_plan_s_epsilon_is_named():
    sampler = hs.Deterministic(bins=10, epochs=2)
    mechanism = hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=9.0)
    engine = engine_of(mechanism)
    engine.run._step = 3
    with pytest.warns(UserWarning, match="returns the epsilon of all 20 planned steps, which cover the 3 so far"):
        epsilon = engine.get_epsilon(1e-5)
    assert epsilon == hs.certify(mechanism, delta=1e-5).epsilon.upper
    assert (engine.spent(1e-5).steps, engine.spent(1e-5).whose) == (20, "all 20 planned steps")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.get_epsilon(1e-5) == epsilon  # it was said once


@pytest.mark.parametrize("delta", ["x", 1.0, 0.0, [1e-5]])
def test_what_is_no_delta_is_named(delta):
    engine = engine_of(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=1.0))
    engine.run._step = 3
    for ask in (engine.get_epsilon, engine.spent):
        with pytest.raises(InvalidInputError, match=r"^The 'delta' field must be (a number|from 1e-30 to below 1)"):
            ask(delta)


def test_calls_of_the_engine_that_do_not_fit_are_answered_with_one_that_does():
    engine = engine_of(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=1.0))
    for wrong in (engine.get_epsilon, engine.make_private, engine.make_private_with_epsilon):
        assert isinstance(wrong.example, str)
        with pytest.raises(WrongCallError, match=f"; for example: {re.escape(wrong.example)}.$"):
            wrong(1, 2, 3)
    with pytest.raises(WrongCallError, match=r"^The 'target_delta' argument has to be given; for example: engine"):
        engine.make_private_with_epsilon(target_epsilon=2.0, epochs=2)


def test_later_epsilons_are_quick():
    """The median of 60 steps, most of which take no convolution."""
    taken = Taken(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=10**9), noise_multiplier=1.0))
    spending, seconds = Spending(taken.run, 1e-5, has_end=False), []
    for at in range(200, 260):
        started = time.process_time()
        spending.after(taken.after(at))
        seconds.append(time.process_time() - started)
    assert sorted(seconds)[30] < 0.05


def test_an_epsilon_at_every_step_makes_no_record(monkeypatch):
    """A record names every promise and digests the mechanism, whose matrix may be large; a broken promise is seen."""
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=60), noise_multiplier=1.0)
    engine = engine_of(mechanism)
    engine.run._step = 3

    def record(*arguments, **options):
        raise AssertionError("a record was made")

    monkeypatch.setattr(hs.training.Run, "record", record)
    assert 0.0 < engine.get_epsilon(1e-5) < hs.certify(mechanism, delta=1e-5).epsilon.lower
    with pytest.raises(ViolationError, match="number_of_examples"):
        engine.run.violated("number_of_examples")
    assert engine.run.violations == ("number_of_examples",)
    with pytest.raises(ViolationError, match="The run broke the promise 'number_of_examples', so no certificate"):
        engine.get_epsilon(1e-5)


def test_numbers_are_rounded_up_by_less_than_a_hundredth():
    for copies in (*range(1, 2_000), 10**6 + 1, 10**9 - 1):
        assert copies <= rounded_up(copies) <= max(copies, 1.008 * copies)
    assert rounded_up(255) == 255
