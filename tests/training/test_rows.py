"""Rows that go into layers and are not of the examples are found, whatever their number."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
EXAMPLES, CLIP = 12, 1e-3


class Reader(torch.nn.Module):
    """Reads words at their places; ``places`` gives the numbers of the places for words of shape (examples, length)."""

    def __init__(self, length, places):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(30, 8), torch.nn.Embedding(length, 8)
        self.out, self.numbers, self.calls = torch.nn.Linear(8, 2), places, 0
        self.words.requires_grad_(False)
        self.out.requires_grad_(False)

    def forward(self, x, *, scale=None):
        self.calls += 1
        read = torch.tanh(self.words(x) + self.places(self.numbers(x))).mean(dim=1)
        return self.out(read if scale is None else read * scale["of"])


def without_examples(x):
    return torch.arange(x.shape[1])


def for_each_example(x):
    return torch.arange(x.shape[1]).expand(x.shape)


def words(length, changed=None):
    """Random ones; the class of the example ``changed`` is the other one."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(30, (EXAMPLES, length), generator=generator)
    y = torch.arange(EXAMPLES) % 2  # of each batch as many of either class, so that one example turns the sum round
    if changed is not None:
        y[changed] = 1 - y[changed]
    return TensorDataset(x, y)


def first_step(data, places, size, mode="hooks", **inputs):
    """The model after the first step of fixed batches, and what the step released, in clipping norms of the sum."""
    torch.manual_seed(0)
    model = Reader(data.tensors[0].shape[1], places)
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=EXAMPLES // size), noise_multiplier=1.0)
    engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(0))
    criterion = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.places.parameters(), lr=0.0),
        data_loader=DataLoader(data),
        max_grad_norm=CLIP,
        grad_sample_mode=mode,
        criterion=criterion,
    )
    criterion = made[2] if mode == "ghost" else criterion
    x, y = next(iter(made[-1]))
    made[1].zero_grad()
    criterion(made[0](x, **inputs), y).backward()
    made[1].step()
    return model, model.places.weight.grad.clone() * size / CLIP


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_as_many_positions_as_examples_are_not_taken_for_them(mode):
    with pytest.raises(UnsupportedError, match="The layer 'places' has 6 rows both for 5 examples and for 6"):
        first_step(words(6), without_examples, 6, mode)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_one_example_moves_a_sum_by_two_norms_and_by_more_where_rows_are_positions(mode, monkeypatch):
    def moved(places):
        as_it_is, *others = (first_step(words(6, at), places, 6, mode)[1] for at in (None, *range(6)))
        return max((other - as_it_is).norm().item() for other in others)  # the noise of all of them is the same

    assert 1.0 < moved(for_each_example) < 2.001
    monkeypatch.setattr("hockeystick.training.torch.optimizer.watch_rows", lambda model: None)
    assert moved(without_examples) > 3.0  # as clipped rows of all positions turn round: what is refused


def test_the_first_batch_of_several_runs_twice_more_and_changes_nothing():
    model, _ = first_step(words(6), for_each_example, 1)
    assert model.calls == 1  # one example says nothing
    drawn = torch.rand(1)
    model, _ = first_step(words(6), for_each_example, 6, scale={"of": torch.ones(6, 1)})
    assert model.calls == 3
    assert torch.equal(torch.rand(1), drawn)  # the seed is that of first_step


def test_a_model_for_one_size_of_batches_trains():
    def six(x):
        if len(x) != 6:
            raise ValueError("six examples, please")
        return for_each_example(x)

    with pytest.warns(UserWarning, match=r"no batch of 5 examples, .* rows of 'places' are .* 'norms'"):
        model, _ = first_step(words(5), six, 6)
    assert model.calls == 3  # the trials of fewer and of other examples, and the step


@pytest.mark.parametrize("places", [for_each_example, "six"])
@pytest.mark.filterwarnings("ignore:The model takes no batch of 5 examples")
def test_norms_are_checked_where_the_rows_of_all_layers_were_tried(places):
    def six(x):
        if len(x) != 6:
            raise ValueError("six examples, please")
        return for_each_example(x)

    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=2), noise_multiplier=1.0)
    engine = hs.torch.PrivacyEngine(mechanism)
    model = Reader(5, six if places == "six" else places)
    optimizer = torch.optim.SGD(model.places.parameters(), lr=0.0)
    data = DataLoader(words(5))
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=data, max_grad_norm=CLIP
    )
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    record = engine.record()
    assert "norms" in (record.asserted if places == "six" else record.checked)
