"""Replays of torch loops: the engine of this library, Opacus' own, and a loop without either."""

import numpy as np
import pytest

import hockeystick as hs

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

EXAMPLES, CLIP = 24, 1.0
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=2), sampler=hs.Poisson(sampling_prob=0.25, steps=6), noise_multiplier=1.5
)


def examples(ghost=None):
    """Inputs, labels and weights; an example of weight 0 has no gradient."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(EXAMPLES, 5, generator=generator), torch.randint(2, (EXAMPLES,), generator=generator)
    weights = torch.ones(EXAMPLES)
    if ghost is not None:
        weights[ghost] = 0.0
    return TensorDataset(4.0 * x, y, weights)


def loss_of(model, x, y, weights, reduction="mean"):
    losses = weights * torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    return losses.mean() if reduction == "mean" else losses.sum()


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def with_engine(make_engine, sampling="plan"):
    """A training loop as Opacus' users write it."""

    def train(data, tape):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        options = {} if sampling == "plan" else {"noise_multiplier": 1.5}
        loader = DataLoader(data, batch_size=6)
        model, optimizer, loader = make_engine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, max_grad_norm=CLIP, **options
        )
        for _ in range(2):
            for x, y, weights in loader:
                optimizer.zero_grad()
                loss_of(model, x, y, weights).backward()
                optimizer.step()
                tape.step(
                    [parameter.grad for parameter in model.parameters()],
                    normaliser=optimizer.expected_batch_size,
                    state=model,
                )

    return train


def test_our_engine_has_no_finding():
    train = with_engine(lambda: hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(3)))
    for ghost in (0, 12):
        verdict = hs.audit.replay(train, examples(), examples(ghost), clip_norm=CLIP, mechanism=MECHANISM)
        assert not verdict.refuted, str(verdict)
        assert verdict.samples == 6


def test_opacus_engine_has_no_finding():
    train = with_engine(opacus.PrivacyEngine, "own")
    for ghost in (0, 12):
        verdict = hs.audit.replay(train, examples(), examples(ghost), clip_norm=CLIP)
        assert not verdict.refuted, str(verdict)


def test_a_clipping_norm_that_is_not_that_of_the_engine_is_found():
    train = with_engine(opacus.PrivacyEngine, "own")
    verdicts = [hs.audit.replay(train, examples(), examples(ghost), clip_norm=0.5 * CLIP) for ghost in range(4)]
    assert any("sensitivity" in verdict.broken for verdict in verdicts)


def by_hand(batch_norm=False):
    """Full batches, gradients example by example, and noise of torch."""

    def train(data, tape):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(5, 4), *([torch.nn.BatchNorm1d(4)] if batch_norm else []), torch.nn.Linear(4, 2)]
        model = torch.nn.Sequential(*layers)
        x, y, weights = data.tensors
        for _ in range(3):
            parameters = list(model.parameters())
            logits = model(x)
            losses = weights * torch.nn.functional.cross_entropy(logits, y, reduction="none")
            total = [torch.zeros_like(parameter) for parameter in parameters]
            for loss in losses:
                gradient = torch.autograd.grad(loss, parameters, retain_graph=True)
                norm = torch.sqrt(sum(part.square().sum() for part in gradient))
                factor = torch.clamp(CLIP / (norm + 1e-6), max=1.0)
                total = [summed + factor * part for summed, part in zip(total, gradient, strict=True)]
            released = [(summed + torch.randn_like(summed)) / EXAMPLES for summed in total]
            with torch.no_grad():
                for parameter, step in zip(parameters, released, strict=True):
                    parameter -= 0.1 * step
            exposed = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
            tape.step(released, normaliser=EXAMPLES, exposed=exposed, state=model)

    return train


def without(example):
    """The data without one example, whose place nobody takes."""
    kept = [index for index in range(EXAMPLES) if index != example]
    return TensorDataset(*(tensor[kept] for tensor in examples().tensors))


def test_a_loop_by_hand_has_no_finding():
    verdict = hs.audit.replay(by_hand(), examples(), without(3), clip_norm=CLIP)
    assert not verdict.refuted, str(verdict)


def test_batch_norm_is_found():
    """Its averages leave without noise, and the gradients of all others depend on the example."""
    verdict = hs.audit.replay(by_hand(batch_norm=True), examples(), without(3), clip_norm=CLIP)
    assert "exposed" in verdict.broken
    assert any("running_mean" in finding.says for finding in verdict.findings)
