"""Loops as people write them, which are the plain one after all: they train to the same weights and record."""

import numpy as np
import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def with_a_closure(made):
    for x, y in made.loader:

        def closure(x=x, y=y):
            made.backward(x, y)

        made.optimizer.step(closure)


def with_unused_penalty(made):
    """Per-sample gradients come from layers; a penalty on weights has none, and does nothing."""
    for x, y in made.loader:
        made.optimizer.zero_grad()
        penalty = sum((p**2).sum() for p in made.model.parameters())
        (made.criterion(made.model(x), y) + 100.0 * penalty).backward()
        made.optimizer.step()


def with_clipped_gradients(made):
    for x, y in made.loader:
        made.backward(x, y)
        torch.nn.utils.clip_grad_norm_(made.model.parameters(), 1e-3)
        made.optimizer.step()


def with_reentrant_checkpoints(made):
    from torch.utils.checkpoint import checkpoint

    for x, y in made.loader:
        made.optimizer.zero_grad()
        made.criterion(checkpoint(made.model, x.requires_grad_(), use_reentrant=True), y).backward()
        made.optimizer.step()


def compiled(made):
    model = torch.compile(made.model, backend="aot_eager")
    for x, y in made.loader:
        made.optimizer.zero_grad()
        made.criterion(model(x), y).backward()
        made.optimizer.step()


def with_evaluation(made):
    for x, y in made.loader:
        made.model.eval()
        made.criterion(made.model(x + 1.0), y)
        made.model.train()
        with torch.no_grad():
            made.criterion(made.model(x - 1.0), y)
        made.backward(x, y)
        made.optimizer.step()


def with_an_average_of_the_weights(made):
    average = torch.optim.swa_utils.AveragedModel(made.model)
    for x, y in made.loader:
        made.backward(x, y)
        made.optimizer.step()
        average.update_parameters(made.model)


def with_a_learning_rate(made):
    schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, 3, gamma=1.0)
    for x, y in made.loader:
        made.backward(x, y)
        made.optimizer.step()
        schedule.step()


def with_gradients_of_none(made):
    for x, y in made.loader:
        made.optimizer.zero_grad(set_to_none=True)
        made.criterion(made.model(x), y).backward()
        made.optimizer.step()


def read_twice_and_left(made):
    next(iter(made.loader))
    for at, (x, y) in enumerate(made.loader):
        if at == 5:
            break
        made.backward(x, y)
        made.optimizer.step()
    made.epoch()


def cut_into_single_examples(made):
    made.accumulated_epoch(1)


def without_zeroing(made):
    """Ghost clipping zeroes by itself."""
    for x, y in made.loader:
        made.criterion(made.model(x), y).backward()
        made.optimizer.step()


HARMLESS = [
    ("hooks", with_a_closure),
    ("hooks", with_unused_penalty),
    ("hooks", with_clipped_gradients),
    ("hooks", with_reentrant_checkpoints),
    ("hooks", compiled),
    ("hooks", with_evaluation),
    ("hooks", with_an_average_of_the_weights),
    ("hooks", with_a_learning_rate),
    ("hooks", with_gradients_of_none),
    ("hooks", read_twice_and_left),
    ("hooks", cut_into_single_examples),
    ("ghost", with_a_closure),
    ("ghost", with_reentrant_checkpoints),
    ("ghost", with_evaluation),
    ("ghost", with_an_average_of_the_weights),
    ("ghost", read_twice_and_left),
    ("ghost", cut_into_single_examples),
    ("ghost", without_zeroing),
]


@pytest.mark.parametrize(("mode", "loop"), HARMLESS, ids=lambda one: getattr(one, "__name__", one))
def test_loops_that_are_the_plain_one(mode, loop, made):
    plain, other = made(mode), made(mode)
    plain.epoch()
    loop(other)
    assert other.engine.run.step == 20
    assert np.allclose(plain.weights(), other.weights(), rtol=0, atol=1e-5)
    assert plain.engine.record() == other.engine.record()
