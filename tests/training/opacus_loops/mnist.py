"""Small images and a convolution: make_private with a noise multiplier, epsilon after every epoch."""

import numpy as np
import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from torch import nn, optim

DELTA = 1e-5


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2)
        self.fc = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 1)
        return self.fc(x.flatten(1))


def train(model, train_loader, optimizer, privacy_engine):
    model.train()
    criterion = nn.CrossEntropyLoss()
    losses = []
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.nanmean(losses), privacy_engine.accountant.get_epsilon(delta=DELTA)


def test(model, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            correct += model(data).argmax(dim=1).eq(target).sum().item()
    return correct / len(test_loader.dataset)


torch.manual_seed(0)
labels = torch.randint(3, (300,))
images = torch.randn(300, 1, 8, 8) + labels[:, None, None, None]
digits = torch.utils.data.TensorDataset(images, labels)
train_loader = torch.utils.data.DataLoader(digits, batch_size=32, num_workers=0, pin_memory=True)
test_loader = torch.utils.data.DataLoader(digits, batch_size=100, shuffle=True)
epsilons, accuracies = [], []
for _ in range(2):  # the second run gets the loader that the first one was given
    model = Digits()
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0)
    privacy_engine = PrivacyEngine(secure_mode=False)
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model, optimizer=optimizer, data_loader=train_loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for _ in range(2):
        loss, epsilon = train(model, train_loader, optimizer, privacy_engine)
        epsilons.append(epsilon)
    accuracies.append(test(model, test_loader))
