"""Padded texts and an embedding: a shuffling loader with a collation of its own, Adam, no Poisson sampling."""

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from torch import nn, optim
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

DELTA = 1e-5


class Mood(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 6)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.fc1 = nn.Linear(6, 6)
        self.fc2 = nn.Linear(6, 2)

    def forward(self, x):
        x = self.pool(self.emb(x).transpose(1, 2)).squeeze(2)
        return self.fc2(F.relu(self.fc1(x)))


def padded_collate(batch, padding_idx=0):
    x = pad_sequence([review["input_ids"] for review in batch], batch_first=True, padding_value=padding_idx)
    return x, torch.stack([review["label"] for review in batch]).long()


torch.manual_seed(0)
reviews = [
    {"input_ids": torch.randint(1, 20, (int(length),)), "label": torch.tensor(int(length) % 2)}
    for length in torch.randint(3, 9, (200,))
]
train_loader = DataLoader(reviews, batch_size=16, collate_fn=padded_collate, pin_memory=True, shuffle=True)
model = Mood()
optimizer = optim.Adam(model.parameters(), lr=0.02)
privacy_engine = PrivacyEngine(secure_mode=False)
model, optimizer, train_loader = privacy_engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=train_loader,
    noise_multiplier=0.8,
    max_grad_norm=1.0,
    poisson_sampling=False,
)
criterion = nn.CrossEntropyLoss()
epsilons = []
for _ in range(2):
    model = model.train()
    for data, label in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(data).squeeze(1), label)
        loss.backward()
        optimizer.step()
    epsilons.append(privacy_engine.accountant.get_epsilon(delta=DELTA))
