#!/bin/bash
# Expected: with ghost clipping no example adds more than the clipping norm to a sum, whatever layers the model has.
# Happens: norms come from a formula for each layer, sums from a second backward pass of torch, and nothing compares the
# two. The formula for EmbeddingBag counts an index once that a bag has twenty times (mode "sum" and "mean"), and knows no
# mode "max", whose gradients have norm 0 to it and are not clipped at all. A weight that is used outside its layer, as
# by an output that is tied with F.linear(x, embedding.weight), has only the layer's part of its gradient in the norm.
# Truth inside: the gradient of the one example by torch alone, and the sum that Opacus adds noise to.
# Who is hurt: models of bags of words and tied outputs with ghost clipping: an example has 20, 388 (its whole gradient) and
# 5.5 clipping norms in the sum, and the noise is for 1. With grad_sample_mode="hooks" the sums are clipped.
# Version: opacus 1.6.0. Source: opacus/grad_sample/embedding.py, compute_embeddingbag_gradsampler;
# grad_sample/grad_sample_module_fast_gradient_clipping.py, capture_backprops_hook.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opacus==1.6.0 torch==2.13.0
"$room/venv/bin/python" - <<'PYTHON'
import warnings
from importlib.metadata import version

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
NORM, WORDS, WIDTH = 1e-3, 50, 16


class Bag(nn.Module):
    """Each row of indices is a bag; a fixed layer says the class."""

    def __init__(self, mode):
        super().__init__()
        self.words, self.out = nn.EmbeddingBag(WORDS, WIDTH, mode=mode), nn.Linear(WIDTH, 2).requires_grad_(False)
        nn.init.normal_(self.words.weight, std=0.01)  # so that no class is certain

    def forward(self, x):
        return self.out(self.words(x.flatten(), torch.arange(len(x)) * x.shape[1]))


class Tied(nn.Module):
    """Predicts a word by a fixed layer; the output uses the weight of the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.body = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        nn.init.normal_(self.body.bias)

    def forward(self, x):
        return nn.functional.linear(torch.tanh(self.body(self.words(x).mean(dim=1))), self.words.weight)


def norms(model, x, y, mode):
    """Of the example's gradient by torch alone, of what Opacus sums for it, and what the model says the norm is."""
    engine, criterion = PrivacyEngine(), nn.CrossEntropyLoss()
    (weight,) = [parameter for parameter in model.parameters() if parameter.requires_grad]
    (gradient,) = torch.autograd.grad(criterion(model(x), y), weight)
    made = engine.make_private(
        module=model, optimizer=torch.optim.SGD([weight], lr=0.0), data_loader=DataLoader(TensorDataset(x, y)),
        criterion=criterion, noise_multiplier=1.0, max_grad_norm=NORM, grad_sample_mode=mode,
    )
    private, optimizer, criterion = made[0], made[1], made[2] if mode == "ghost" else criterion
    optimizer.zero_grad()
    criterion(private(x), y).backward()
    optimizer.step()
    return gradient.norm().item(), weight.summed_grad.norm().item()


print(f"opacus {version('opacus')}: the sum for one example, clipping norm {NORM:g}")
repeated, several = torch.full((1, 20), 3), torch.arange(20)[None]
cases = {
    "bag of one word twenty times, sum": (lambda: Bag("sum"), repeated, (19.9, 20.1)),
    "bag of one word twenty times, mean": (lambda: Bag("mean"), repeated, (19.9, 20.1)),
    "bag of twenty words, sum": (lambda: Bag("sum"), several, (0.99, 1.001)),
    "bag of twenty words, max": (lambda: Bag("max"), several, (380, 390)),
    "tied output": (Tied, several, (5, 6)),
}
for name, (make, x, (low, high)) in cases.items():
    for mode in ("hooks", "ghost"):
        torch.manual_seed(0)
        alone, total = norms(make(), x, torch.tensor([1]), mode)
        times = total / NORM
        print(f"{name}, {mode}: gradient {alone:.4f}, in the sum {total:.6f}, {times:.2f} clipping norms")
        assert low < times < high if mode == "ghost" else times < 1.001
print("Ghost clipping lets through what its formulas do not see.")
PYTHON
