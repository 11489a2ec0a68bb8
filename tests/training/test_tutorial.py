"""Opacus' MNIST tutorial on scikit-learn's digits: only the line that makes the engine is ours."""

import numpy as np
import pytest

import hockeystick as hs

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("sklearn", reason="needs scikit-learn")

import opacus
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

EPOCHS, BATCH, SIGMA, CLIP, DELTA, LR = 4, 48, 1.0, 1.0, 1e-5, 0.5


class SampleConvNet(nn.Module):
    """The tutorial's, for images of 16 x 16."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2, 1)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2, 1)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@pytest.fixture(scope="module")
def digits():
    """1,440 to train on, the rest to test."""
    images, labels = datasets.load_digits(return_X_y=True)
    x = functional.interpolate(torch.tensor(images / 8.0 - 1.0).float().reshape(-1, 1, 8, 8), 16)
    y = torch.tensor(labels)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    return [TensorDataset(x[part], y[part]) for part in (order[:1440], order[1440:])]


def tutorial(privacy_engine, digits):
    """The tutorial's calls in the tutorial's order; epsilon after every epoch, and the accuracy at the end."""
    torch.manual_seed(0)
    train_loader = DataLoader(digits[0], batch_size=BATCH, num_workers=0)
    test_loader = DataLoader(digits[1], batch_size=1024, shuffle=True)
    model = SampleConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0)
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
    )
    epsilons = []
    for _ in range(EPOCHS):
        model.train()
        criterion = nn.CrossEntropyLoss()
        for data, target in train_loader:
            optimizer.zero_grad()
            output = model(data)
            loss = criterion(output, target)
            loss.backward()
            optimizer.step()
        epsilons.append(privacy_engine.accountant.get_epsilon(delta=DELTA))
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(data).argmax(1) == target).sum()) for data, target in test_loader)
    return epsilons, hits / len(digits[1])


@pytest.mark.parametrize("strategy", [hs.Identity(), hs.BandedSquareRoot(bands=4)], ids=lambda one: one.kind)
def test_only_the_line_of_the_engine_changes(strategy, digits):
    """Seeds are fixed. Chance is 0.1."""
    sampler = hs.Poisson(sampling_prob=BATCH / 1440, steps=EPOCHS * 30)
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=SIGMA, strategy=strategy)
    expected = hs.certify(mechanism, delta=DELTA)
    engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(0))
    epsilons, accuracy = tutorial(engine, digits)
    assert accuracy > 0.6
    assert epsilons == sorted(epsilons)  # of the steps so far; with correlated noise, of a part that contains them
    assert epsilons[-1] == expected.epsilon.upper
    if strategy == hs.Identity():
        first = hs.Poisson(sampling_prob=sampler.sampling_prob, steps=30)
        spent = hs.certify(hs.Mechanism(sampler=first, noise_multiplier=SIGMA), delta=DELTA).epsilon
        assert spent.lower <= epsilons[0] <= spent.upper * 1.001
    record = engine.record(engine.certificate(DELTA))
    assert record.certificate == expected
    assert (record.steps, record.violations) == (EPOCHS * 30, ())


def test_epsilon_agrees_with_opacus_for_the_same_mechanism(digits):
    """Its accountant bounds epsilon to 0.01; the lower end of our certificate is below, and the upper not above."""
    accountant = opacus.accountants.PRVAccountant()
    accountant.history = [(SIGMA, BATCH / 1440, EPOCHS * 30)]
    sampler = hs.Poisson(sampling_prob=BATCH / 1440, steps=EPOCHS * 30)
    ours = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=SIGMA), delta=DELTA).epsilon
    theirs = accountant.get_epsilon(delta=DELTA)
    assert ours.lower <= theirs
    assert ours.upper <= theirs + 0.01
