"""Names by their letters: a recurrent layer of Opacus, a split data set, a worker, gradients that are zeroed last."""

import torch
from opacus import PrivacyEngine
from opacus.layers import DPLSTM
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

DELTA = 8e-5


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 5)
        self.rnn = DPLSTM(5, 6, num_layers=1, batch_first=True)
        self.out_layer = nn.Linear(6, 3)

    def forward(self, x, hidden=None):
        x, _ = self.rnn(self.embedding(x), hidden)
        return self.out_layer(x[:, -1, :])


def padded_collate(batch, padding_idx=0):
    x = pad_sequence([name for name, _ in batch], batch_first=True, padding_value=padding_idx)
    return x, torch.stack([language for _, language in batch]).long()


def train(model, criterion, optimizer, train_loader, privacy_engine):
    model.train()
    for x, y in train_loader:
        logits = model(x)
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return privacy_engine.accountant.get_epsilon(delta=DELTA)


torch.manual_seed(0)
names = [
    (torch.randint(1, 30, (int(length),)), torch.tensor(int(length) % 3)) for length in torch.randint(2, 7, (250,))
]
train_names, test_names = torch.utils.data.random_split(names, [200, 50])
train_loader = DataLoader(train_names, batch_size=40, num_workers=1, collate_fn=padded_collate)
test_loader = DataLoader(test_names, batch_size=50, shuffle=False, collate_fn=padded_collate)
model = Letters()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
privacy_engine = PrivacyEngine(accountant="rdp")
model, optimizer, train_loader = privacy_engine.make_private(
    module=model, optimizer=optimizer, data_loader=train_loader, noise_multiplier=1.0, max_grad_norm=1.5
)
epsilons = [train(model, criterion, optimizer, train_loader, privacy_engine) for _ in range(2)]
model.eval()
with torch.no_grad():
    accuracies = [float((model(x).argmax(-1) == y).float().mean()) for x, y in test_loader]
