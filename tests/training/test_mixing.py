"""Models that mix the examples of a batch, or write what they are, are found in the first pass; others train."""

import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from opacus.layers import DPMultiheadAttention
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training.torch.mixing import Written, axes_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
EXAMPLES, SIZE, CLIP = 6, 8, 1e-3


class Classifier(torch.nn.Module):
    """Two classes; ``change`` takes the model and x of shape (examples, SIZE) and gives what is classified."""

    def __init__(self, change):
        super().__init__()
        self.register_buffer("seen", torch.zeros(SIZE))
        self.frozen = torch.nn.Linear(SIZE, SIZE).requires_grad_(False)
        self.drops, self.attention = torch.nn.Dropout(0.5), DPMultiheadAttention(SIZE, 2)
        self.attention.requires_grad_(False)
        self.out, self.change, self.calls = torch.nn.Linear(SIZE, 2), change, 0
        self.early = torch.nn.Linear(SIZE, SIZE).requires_grad_(getattr(change, "comes_after_a_layer", False))

    def forward(self, x):
        self.calls += 1
        return self.out(self.change(self, x))


def data(replaced=None):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, SIZE, generator=generator)
    if replaced is not None:
        x[replaced] *= -50.0
    return TensorDataset(x, torch.arange(EXAMPLES) % 2)


def first_step(change, examples=None, mode="hooks", noise=1.0):
    """The model after the first step, and what that released, in clipping norms of the sum."""
    torch.manual_seed(0)
    model = Classifier(change)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine = hs.torch.PrivacyEngine(
        hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=noise), rng=np.random.default_rng(0)
    )
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(trained, lr=0.0),
        data_loader=DataLoader(data() if examples is None else examples),
        max_grad_norm=CLIP,
        grad_sample_mode=mode,
        criterion=torch.nn.CrossEntropyLoss(),
    )
    criterion = made[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()
    x, y = next(iter(made[-1]))
    made[1].zero_grad()
    criterion(made[0](x), y).backward()
    made[1].step()
    gradients = torch.cat([parameter.grad.flatten() for parameter in trained])
    return model, gradients * EXAMPLES / CLIP


def centred(model, x):
    return x - x.mean(dim=0)


def largest(model, x):
    return x / x.abs().amax()


def normalised(model, x):
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def neighbours(model, x):
    return x.roll(1, dims=0)


def earlier_ones(model, x):
    return x.cumsum(dim=0)


def attended(model, x):
    """The first dimension is the sequence's, unless the layer is told otherwise."""
    return model.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("change", [centred, largest, normalised, neighbours, earlier_ones, attended])
def test_models_that_mix_the_examples_are_refused(change, mode):
    with pytest.raises(UnsupportedError, match="changes when the others of a batch of 6 are replaced"):
        first_step(change, mode=mode)


def test_one_example_moves_a_sum_by_two_norms_and_by_more_where_a_layer_mixes(monkeypatch):
    def moved(change):
        as_it_is, *others = (first_step(change, data(at))[1] for at in (None, *range(EXAMPLES)))
        return max((other - as_it_is).norm().item() for other in others)  # the noise of all of them is the same

    assert moved(lambda model, x: x) < 2.001
    monkeypatch.setattr("hockeystick.training.torch.optimizer.watch_rows", lambda model: None)
    assert moved(centred) > 3.0


class Backward(torch.autograd.Function):
    """The identity, whose backward pass changes the gradients of a batch."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def between(change):
    """A layer that is trained comes before that identity."""

    def changed(model, x):
        return Backward.apply(model.early(x), change)

    vars(changed)["comes_after_a_layer"] = True
    return changed


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize(
    "change",
    [
        lambda gradient: gradient - gradient.mean(dim=0),
        lambda gradient: gradient / gradient.norm(),
        lambda gradient: gradient.roll(1, dims=0),
        lambda gradient: gradient.sum(dim=0).expand_as(gradient),
    ],
    ids=["centred", "normalised", "rolled", "summed"],
)
def test_backward_passes_that_mix_the_examples_are_refused(change, mode):
    with pytest.raises(UnsupportedError, match="comes back for an example of a batch of 6 changes with the gradients"):
        first_step(between(change), mode=mode)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize(
    "change",
    [torch.neg, lambda gradient: gradient * torch.arange(SIZE), torch.relu],
    ids=["reversed", "weighted", "positive"],
)
def test_backward_passes_that_change_each_example_alone_train(change, mode, monkeypatch):
    _, released = first_step(between(change), mode=mode)
    monkeypatch.setattr("hockeystick.training.torch.optimizer.watch_rows", lambda model: None)
    assert torch.equal(released, first_step(between(change), mode=mode)[1])


def to_a_buffer_in_place(model, x):
    model.seen.mul_(0.9).add_(x.detach().mean(dim=0))
    return x


def to_a_buffer_anew(model, x):
    model.seen = 0.9 * model.seen + x.detach().mean(dim=0)
    return x


def to_a_buffer_that_it_makes(model, x):
    if not hasattr(model, "made"):
        model.register_buffer("made", torch.zeros(SIZE))
    model.made += x.detach().mean(dim=0)
    return x


def to_frozen_weights(model, x):
    model.frozen.weight.data[0] += x.detach().mean(dim=0)
    return x


def to_trained_weights(model, x):
    with torch.no_grad():
        model.out.weight[1] += x.mean(dim=0)
    return x


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    "change",
    [to_a_buffer_in_place, to_a_buffer_anew, to_a_buffer_that_it_makes, to_frozen_weights, to_trained_weights],
)
def test_models_that_write_what_the_examples_are_are_refused(change, mode):
    with pytest.raises(UnsupportedError, match=r"writes what the examples of a batch are to the (buffer|parameter) '"):
        first_step(change, mode=mode)


def counted(model, x):
    model.seen += 1.0
    return x


def cached(model, x):
    if not hasattr(model, "places"):
        model.register_buffer("places", torch.arange(SIZE) / SIZE)
    return x + model.places


def drawn(model, x):
    model.seen = torch.rand(SIZE)
    return x + model.seen * torch.randn(x.shape)


def dropped(model, x):
    return model.drops(x)


def dropped_where_positive(model, x):
    """As of packed sequences: how many numbers the mask has depends on the examples."""
    kept = torch.zeros_like(x)
    kept[x > 0.0] = model.drops(x[x > 0.0])
    return kept


def clamped(model, x):
    model.out.weight.data.clamp_(-0.1, 0.1)
    return x


@pytest.mark.parametrize("change", [counted, cached, drawn, clamped, dropped])
def test_what_does_not_depend_on_the_examples_may_be_written_and_drawn(change, monkeypatch):
    model, released = first_step(change)
    left = model.seen.clone()
    monkeypatch.setattr("hockeystick.training.torch.optimizer.watch_rows", lambda model: None)
    unwatched, same = first_step(change)
    assert torch.equal(released, same)  # both trials left no trace: neither in the model nor in random numbers
    assert torch.equal(left, unwatched.seen)
    assert (model.calls, unwatched.calls) == (3, 1)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_masks_of_as_many_numbers_as_the_examples_have_are_no_mixing(mode):
    model, _ = first_step(dropped_where_positive, mode=mode)
    assert model.calls == 5  # the two that are compared once more have no dropout


def test_a_model_for_one_size_of_batches_is_tried_as_well():
    def six(model, x):
        assert len(x) == EXAMPLES
        return centred(model, x)

    with pytest.raises(UnsupportedError, match="changes when the others"):
        first_step(six)


def test_a_trial_warns_of_nothing():
    """torch tells of backward hooks that no input has a gradient for, once for the step of the training itself."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first_step(clamped)
    assert [str(warning.message) for warning in told if "/torch/mixing.py" in warning.filename] == []


@dataclass
class Classes:
    logits: Any


def steps_of(change, returned):
    """A model that returns something else than a tensor makes two steps; the promises of its record by status."""

    class Wrapping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Classifier(change)

        def forward(self, x):
            return returned(self.inner(x))

    torch.manual_seed(0)
    model = Wrapping()
    engine = hs.torch.PrivacyEngine(hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=1.0))
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(data()),
        max_grad_norm=CLIP,
    )
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        output = getattr(output, "logits", output)
        (torch.nn.functional.cross_entropy(output, y) if output.dim() else output).backward()
        optimizer.step()
    return engine.record()


def test_outputs_in_a_dataclass_are_compared():
    with pytest.raises(UnsupportedError, match="changes when the others of a batch of 6 are replaced"):
        steps_of(centred, Classes)
    assert "norms" in steps_of(clamped, Classes).checked


@pytest.mark.parametrize(
    "returned", [lambda logits: logits.square().mean(), lambda logits: SimpleNamespace(logits=logits)]
)
def test_a_model_that_returns_nothing_for_each_example_has_norms_as_asserted(returned):
    """As a loss, or an object of which nothing is known."""
    with pytest.warns(UserWarning, match="returns no tensor with a row for each example, .* 'norms' as asserted"):
        record = steps_of(centred, returned)
    assert "norms" in record.asserted


def test_a_model_that_takes_no_batch_of_one_example_many_times_has_norms_as_asserted():
    def different(model, x):
        if len(x) > 1 and bool((x[0] == x[-1]).all()):
            raise ValueError("each example once, please")
        return centred(model, x)

    with pytest.warns(UserWarning, match="takes no batch of one example many times, .* 'norms' as asserted"):
        record = steps_of(different, lambda logits: logits)
    assert "norms" in record.asserted


def test_a_model_whose_shapes_follow_what_is_in_a_batch_has_norms_as_asserted():
    """Here the last of six examples makes twice as many columns, and is in neither batch that is tried."""

    def by_content(logits):
        wide = len(logits) == EXAMPLES and bool(logits[-1, 0] != logits[0, 0])
        return torch.cat([logits, logits], dim=1) if wide else logits

    with pytest.warns(UserWarning, match="tensors of other shapes for a batch of one example many times, .* asserted"):
        record = steps_of(clamped, by_content)
    assert "norms" in record.asserted


def test_the_dimension_of_the_examples_is_the_one_that_is_shorter():
    def axes(*shapes):
        whole, fewer = (None if shape is None else [torch.zeros(shape)] for shape in shapes)
        return axes_of(4, whole, fewer)

    assert axes((4, 3), (3, 3)) == [0]
    assert axes((4, 4), (4, 3)) == [1]  # as many classes, or places, as examples
    assert axes((4, 4), (3, 3)) == axes((4, 3), (4, 3)) == axes((4, 3), (3, 2)) == axes((4,), (3, 3)) == [None]
    assert axes((4, 3), None) == [0]
    assert axes((3, 4), None) == axes((), None) == [None]
    assert axes_of(4, [torch.zeros(4)], []) == [None]


@pytest.mark.parametrize(
    "kind",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64, torch.uint8, torch.int32, torch.complex64],
    ids=lambda kind: str(kind).removeprefix("torch."),
)
def test_frozen_weights_of_any_type_are_compared(kind):
    """As those of a base model in 8 bits beside adapters."""
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.tensor([1.0, 0.0, 2.0]).to(kind), requires_grad=False)
    state = Written(model)
    assert state.undo() == {}
    model.weight.data = torch.tensor([1.0, 0.5, 2.0] if kind.is_floating_point else [1.0, 1.0, 2.0]).to(kind)
    assert state.undo() == {(model, "parameter", "weight"): None}
