"""Layers that Opacus accepts, and that change or sum what no clipping and no noise is of."""

import pytest

from hockeystick.errors import UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

from hockeystick.training.torch import layers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class OfWords(torch.nn.Module):
    """Classes of examples as words; a part of theirs as the layer wants it."""

    def __init__(self, words):
        super().__init__()
        self.words, self.out = words, torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.words(as_words(x)).sum(dim=1))


class Tied(OfWords):
    """The output uses the words' weight once more, without a layer."""

    def forward(self, x):
        return (
            super().forward(x) + torch.nn.functional.linear(self.out.weight.sum() * x[:, :4], self.words.weight)[:, :3]
        )


def as_words(x):
    return (10 * x).long().abs() % 7


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_embeddings_that_shorten_their_rows_are_refused(kind, frozen, mode, training):
    model = OfWords(kind(7, 4, max_norm=1.0).requires_grad_(not frozen))
    before = model.words.weight.detach().clone()
    with pytest.raises(UnsupportedError, match=r"'words' of type Embedding(Bag)? has max_norm=1.0"):
        training(module=model, optimizer=sgd(model), grad_sample_mode=mode)
    model.words(torch.tensor([[2, 3]]))
    moved = (model.words.weight != before).any(dim=1)
    assert moved[2] or moved[3]  # which is what is refused
    assert not moved[[0, 1, 4, 5, 6]].any()


UNLIKE = {
    "bag": (lambda: torch.nn.EmbeddingBag(7, 4, mode="sum"), "counts an index once"),
    "by_frequency": (lambda: torch.nn.Embedding(7, 4, scale_grad_by_freq=True), "how often a batch has an index"),
    "circular": (lambda: torch.nn.Conv1d(1, 2, 3, padding_mode="circular"), "where padding_mode='circular'"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_ghost_clipping_refuses_layers_whose_norms_are_of_another_gradient(name, training):
    make, reason = UNLIKE[name]
    model = torch.nn.Sequential(make(), torch.nn.Linear(4, 3))
    with pytest.raises(UnsupportedError, match=f"layer '0' of type {type(model[0]).__name__} cannot.*{reason}"):
        training(module=model, optimizer=sgd(model), grad_sample_mode="ghost")
    training(module=model, optimizer=sgd(model), grad_sample_mode="hooks")  # sums what it clips


def test_ghost_clipping_takes_such_layers_frozen(training):
    model = torch.nn.Sequential(
        torch.nn.Conv1d(1, 2, 3, padding_mode="circular").requires_grad_(False), torch.nn.Linear(4, 3)
    )
    training(module=model, optimizer=sgd(model), grad_sample_mode="ghost")


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("kind", [OfWords, Tied])
def test_ghost_clipping_refuses_a_weight_that_is_used_outside_its_layer(kind, wrapped, training):
    model = kind(torch.nn.Embedding(7, 4))
    made = training(module=model, optimizer=sgd(model), grad_sample_mode="ghost", wrap_model=wrapped)
    x, y = next((x, y) for x, y in made.loader if len(x))
    loss = made.criterion((made.model if wrapped else model)(x), y)
    if kind is OfWords:
        loss.backward()
        return
    with pytest.raises(UnsupportedError, match=r"'weight' of the layer '(words|out)' is used 2 times in this pass"):
        loss.backward()


def test_uses_of_weights_are_counted_in_the_graph():
    """Layers once each; a weight in two places of an expression, behind others, and twice in one function."""
    layer = torch.nn.Linear(4, 4)
    x = torch.randn(5, 4)
    for used_once in (
        layer(x),
        layer(x).relu() + layer(x).detach(),
        torch.nn.functional.layer_norm(layer(x), (4,)) * 2,
    ):
        layers.check_uses(used_once, layer)
    for used_twice in (
        layer(layer(x)),
        layer(x) + layer.weight.sum(),
        layer(x) * layer.bias,
        torch.nn.functional.linear(layer.weight, layer.weight),
    ):
        with pytest.raises(UnsupportedError, match="is used 2 times"):
            layers.check_uses(used_twice, layer)
    layers.check_uses(x, layer)


def test_frozen_weights_may_be_used_anywhere():
    layer = torch.nn.Linear(4, 4).requires_grad_(False)
    x = torch.randn(5, 4, requires_grad=True)
    layers.check_uses(layer(layer(x)), layer)


def test_a_parameter_of_two_layers_has_two_uses():
    """Which is refused where norms are taken, in words of its own."""
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    second.weight = first.weight
    both = torch.nn.Sequential(first, second)
    layers.check_uses(both(torch.randn(5, 4)), both)
    with pytest.raises(UnsupportedError, match="is used 3 times"):
        layers.check_uses(both(torch.randn(5, 4)) + first.weight.sum(), both)
