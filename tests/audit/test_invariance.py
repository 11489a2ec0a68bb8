"""Batch invariance: ordinary models at one shape have no finding, and examples that mix are found and named."""

import json

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

LOSS = nn.CrossEntropyLoss()
ROWS = 32
"""At which kernels fill their registers: with fewer rows, or an odd number, some change bits with the place."""
WIDTH = 8
"""Numbers of an example: where rows are no multiples of 16 bytes, MKL on AVX-512 sums by place."""


@pytest.fixture(autouse=True)
def one_thread():
    """The claim of the tests is for one thread; the models' weights are the same every time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


class Attention(nn.Module):
    """Two heads over the tokens of an example, and a mean of what they give."""

    def __init__(self):
        super().__init__()
        self.embedding, self.mixed, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, tokens, positions):
        x = self.embedding(tokens) + positions
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.mixed(x).chunk(3, dim=-1))
        weights = torch.softmax(query @ key.transpose(-1, -2), dim=-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2).mean(dim=1))


class Leaks(nn.Module):
    """Adds a little of the mean over the batch, or what ``of`` makes of it."""

    def __init__(self, share=1e-7):
        super().__init__()
        self.share, self.scale = share, nn.Linear(8, 8)

    def forward(self, x):
        return self.scale(x) + self.share * x.mean(dim=0, keepdim=True)


def perceptron(*between):
    return nn.Sequential(nn.Linear(WIDTH, 8), *between, nn.Tanh(), nn.Linear(8, 3))


def convolution():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 3))


MODELS = {
    "perceptron": (perceptron, lambda: torch.randn(WIDTH)),
    "convolution": (convolution, lambda: torch.randn(1, 8, 8)),
    "attention": (Attention, lambda: {"tokens": torch.arange(5), "positions": torch.randn(5, 16)}),
}


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
@pytest.mark.parametrize("name", MODELS)
def test_no_bit_changes_at_one_shape(name, mode):
    model, inputs = MODELS[name]
    result = hs.audit.invariance(model(), LOSS, (inputs(), torch.tensor(2)), batch=ROWS, grad_sample_mode=mode)
    assert result.invariant, str(result)
    assert "No bit of the example's gradient changed" in result.text()
    assert (result.worst, result.dropout, result.mode) == (0.0, (), mode)
    assert [shape.examples for shape in result.shapes] == [1, 3, 2 * ROWS]
    assert max(shape.change for shape in result.shapes) < 1e-5
    assert json.loads(result.model_dump_json())["batch"] == ROWS


@pytest.mark.parametrize("share", [1e-7, 1e-2])
def test_a_layer_that_mixes_is_found(share):
    result = hs.audit.invariance(perceptron(Leaks(share)), LOSS, (torch.randn(WIDTH), torch.tensor(2)), batch=4)
    assert not result.invariant
    changed = {layer.parameter for layer in result.layers if layer.changed}
    assert {"0.weight", "3.weight"} <= changed
    assert share / 1e2 < result.worst
    assert "changed with its place or its neighbours" in str(result)


def test_only_the_layers_above_a_mixture_are_named():
    """What the last layer's gradient is made of depends on the mixture; a frozen layer has none that could change."""
    model = nn.Sequential(nn.Linear(WIDTH, 8), Leaks(1e-3), nn.Linear(8, 3))
    for part in (model[0], model[1]):
        part.requires_grad_(False)
    result = hs.audit.invariance(model, LOSS, (torch.randn(WIDTH), torch.tensor(1)), batch=4)
    assert [layer.parameter for layer in result.layers] == ["2.weight", "2.bias"]
    assert all(layer.dtype == "float32" for layer in result.layers)
    assert result.layers[0].changed


def test_given_neighbours_stand_beside_the_example():
    """A model that looks at its neighbours only where one of them is the number that the caller knows about."""

    class Wary(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(WIDTH, 3)

        def forward(self, x):
            return self.out(x) * (1.0 + 1e-3 * (x == 7.5).any())

    example, other = (torch.randn(WIDTH), torch.tensor(2)), (torch.full((WIDTH,), 7.5), torch.tensor(0))
    assert hs.audit.invariance(Wary(), LOSS, example, batch=ROWS).invariant
    assert not hs.audit.invariance(Wary(), LOSS, example, batch=ROWS, neighbours=[other]).invariant


def test_a_change_at_one_place_is_found_and_places_can_be_chosen():
    class Third(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(WIDTH, 3)

        def forward(self, x):
            return self.out(x) * (1.0 + 1e-6 * (torch.arange(len(x)) == 2)[:, None])

    example = (torch.randn(WIDTH), torch.tensor(2))
    assert not hs.audit.invariance(Third(), LOSS, example, batch=4).invariant
    assert hs.audit.invariance(Third(), LOSS, example, batch=ROWS, places=[0, 1]).invariant


def test_dropout_is_named():
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.2), nn.Linear(8, 3), nn.Dropout(0.0))
    result = hs.audit.invariance(model, LOSS, (torch.randn(WIDTH), torch.tensor(2)), batch=4)
    assert result.dropout == ("1",)
    assert not result.invariant
    assert "Dropout draws by the place in the batch, so masks depend on the other examples: 1." in str(result)
    model[1].eval()
    assert hs.audit.invariance(model, LOSS, (torch.randn(WIDTH), torch.tensor(2)), batch=ROWS).invariant


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.BatchNorm1d(8, affine=False)])
def test_statistics_of_batches_are_refused_and_named(layer):
    example = (torch.randn(WIDTH), torch.tensor(2))
    with pytest.raises(UnsupportedError, match="The layer '1' of type BatchNorm1d takes its statistics from whole"):
        hs.audit.invariance(perceptron(layer), LOSS, example, batch=4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_gradients_is_said(dtype):
    example = (torch.randn(WIDTH).to(dtype), torch.tensor(2))
    result = hs.audit.invariance(perceptron().to(dtype), LOSS, example, batch=ROWS)
    assert str(dtype).removeprefix("torch.") in str(result)
    assert result.invariant


def test_the_model_and_torch_s_generator_stay_as_they_are():
    model = perceptron()
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    hs.audit.invariance(model, LOSS, (torch.randn(WIDTH, generator=torch.Generator()), torch.tensor(2)), batch=4)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None and not hasattr(p, "grad_sample") for p in model.parameters())


def test_a_sum_of_losses_is_as_good_as_a_mean():
    loss = nn.CrossEntropyLoss(reduction="sum")
    example = (torch.randn(WIDTH), torch.tensor(2))
    assert hs.audit.invariance(perceptron(), loss, example, batch=ROWS, loss_reduction="sum").invariant


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch": 1}, "The 'batch' argument must be of whole numbers of at least 2. Got \\[1\\]"),
        ({"places": [4]}, "The 'places' argument must be of whole numbers from 0 to 3"),
        ({"places": []}, "The 'places' argument"),
        ({"shapes": [0]}, "The 'shapes' argument must be of whole numbers of at least 1"),
        ({"grad_sample_mode": "ghost"}, "The 'grad_sample_mode' argument must be 'hooks' or 'functorch'. Got 'ghost'"),
        ({"model": perceptron().eval()}, "must be in training mode"),
        ({"model": perceptron().requires_grad_(False)}, "have parameters that are trained"),
        ({"model": lambda x: x}, "must be a torch module as it was before make_private"),
        ({"example": ("text", torch.tensor(2))}, "must be made of tensors, tuples, lists and mappings"),
        (
            {"example": (torch.full((WIDTH,), np.nan), torch.tensor(2))},
            "must have a gradient that is finite and not zero",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(change, sentence):
    given = {"model": perceptron(), "criterion": LOSS, "example": (torch.randn(WIDTH), torch.tensor(2)), "batch": 4}
    with pytest.raises(InvalidInputError, match=sentence):
        hs.audit.invariance(**given | change)


def test_a_wrapped_model_is_refused():
    from opacus.grad_sample import GradSampleModule

    with pytest.raises(InvalidInputError, match="Got an object of type 'GradSampleModule'"):
        hs.audit.invariance(GradSampleModule(perceptron()), LOSS, (torch.randn(WIDTH), torch.tensor(2)), batch=4)
