"""Canaries in a loop of torch, behind the engine of this library."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

REAL, COUNT, CLIP = 40, 200, 0.5
MECHANISM = hs.Mechanism(sampler=hs.Deterministic(bins=4, epochs=4), noise_multiplier=1.0)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 60), torch.nn.Tanh(), torch.nn.Linear(60, 2))


def run(canaries, *, noise=1.0):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(canaries.total, 5, generator=generator)
    y = torch.randint(2, (canaries.total,), generator=generator)
    model = network()
    engine = hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(3))
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(x, y, torch.arange(canaries.total)), batch_size=60),
        max_grad_norm=CLIP,
    )
    for _ in range(4):
        for x, y, index in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            canaries.plant(optimizer.params, index)
            optimizer.step()
            released = [parameter.grad for parameter in optimizer.params]
            canaries.observe(released, normaliser=optimizer.expected_batch_size)
    return engine.certificate(1e-5)


def made(seed=1):
    size = sum(parameter.numel() for parameter in network().parameters())
    return hs.audit.canaries(COUNT, num_examples=REAL, size=size, clip_norm=CLIP, seed=seed)


def test_planted_gradients_are_found_in_what_the_optimizer_releases():
    """False failure with probability at most 1e-3; the seeds are fixed."""
    canaries = made()
    certificate = run(canaries)
    assert certificate.statements.num_examples in (None, REAL + COUNT)
    verdict = canaries.verdict(certificate)
    assert not verdict.refuted
    assert verdict.epsilon.audited > 0.3 * verdict.epsilon.upper
    scores = canaries.scores(MECHANISM)
    assert scores[canaries.included].mean() > scores[~canaries.included].mean() + 2.0


def test_every_planted_gradient_replaces_that_of_its_example():
    canaries = made()
    parameter = torch.nn.Parameter(torch.zeros(canaries.size))
    parameter.grad_sample = torch.ones(4, canaries.size)
    batch = [REAL + int(np.flatnonzero(canaries.included)[0]), 3, REAL + int(np.flatnonzero(~canaries.included)[0]), 0]
    canaries.plant([parameter], torch.tensor(batch))
    rows = parameter.grad_sample.numpy()
    assert rows[0] == pytest.approx(canaries.sum_of(batch[:1]))
    assert np.linalg.norm(rows[0]) == pytest.approx(CLIP)
    assert not rows[2].any()
    assert (rows[[1, 3]] == 1.0).all()


def test_what_cannot_be_planted_is_named():
    canaries = made()
    parameter = torch.nn.Parameter(torch.zeros(canaries.size))
    with pytest.raises(InvalidInputError, match="grad_sample"):
        canaries.plant([parameter], [REAL])
    parameter.grad_sample = torch.ones(4, canaries.size)
    with pytest.raises(InvalidInputError, match="every index"):
        canaries.plant([parameter], [REAL])
    with pytest.raises(InvalidInputError, match="numbers"):
        canaries.plant([torch.nn.Parameter(torch.zeros(3))], [REAL])
