"""Batch normalisation that is replaced, a target epsilon, physical batches, epsilon within the epoch."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.validators import ModuleValidator
from torch import nn, optim

EPSILON, DELTA, EPOCHS, MAX_GRAD_NORM = 8.0, 1e-5, 2, 1.2

torch.manual_seed(0)
pictures = torch.utils.data.TensorDataset(torch.randn(200, 3, 6, 6), torch.randint(4, (200,)))
train_loader = torch.utils.data.DataLoader(pictures, batch_size=24)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4))
model = ModuleValidator.fix(model)
ModuleValidator.validate(model, strict=False)
optimizer = optim.RMSprop(model.parameters(), lr=1e-3)
privacy_engine = PrivacyEngine()
model, optimizer, train_loader = privacy_engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=train_loader,
    epochs=EPOCHS,
    target_epsilon=EPSILON,
    target_delta=DELTA,
    max_grad_norm=MAX_GRAD_NORM,
)
sigma = optimizer.noise_multiplier
criterion = nn.CrossEntropyLoss()
epsilons = []
for _ in range(EPOCHS):
    model.train()
    with BatchMemoryManager(
        data_loader=train_loader, max_physical_batch_size=10, optimizer=optimizer
    ) as memory_safe_data_loader:
        for i, (images, target) in enumerate(memory_safe_data_loader):
            optimizer.zero_grad()
            loss = criterion(model(images), target)
            loss.backward()
            optimizer.step()
            if (i + 1) % 10 == 0:
                epsilons.append(privacy_engine.get_epsilon(DELTA))
