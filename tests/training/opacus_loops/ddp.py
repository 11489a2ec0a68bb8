"""Two processes: a wrapped model, the loader of one process, epsilon in all of them."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

DELTA, EPOCHS, WORLD_SIZE = 1e-5, 2, 2


def launch(rank, world_size, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DPDDP(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0)
    data = TensorDataset(torch.randn(150, 6), torch.randint(3, (150,)))
    data_loader = DataLoader(data, batch_size=20)
    privacy_engine = PrivacyEngine()
    model, optimizer, data_loader = privacy_engine.make_private(
        module=model, optimizer=optimizer, data_loader=data_loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    criterion = nn.CrossEntropyLoss()
    model.train()
    for _ in range(EPOCHS):
        for data, target in data_loader:
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            loss.backward()
            optimizer.step()
        epsilon = privacy_engine.get_epsilon(delta=DELTA)
    sys.stdout.write(f"epsilon = {epsilon:.3f}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(launch, args=(WORLD_SIZE, sys.argv[1]), nprocs=WORLD_SIZE, join=True)
