"""One rank of a distributed training: ``python ddp_training.py FOLDER PORT RANK MODE``. Keeps weights and gradients."""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs

MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.02, steps=30), noise_multiplier=2.0
)


def train(wrap, mode: str, scale: float = 1.0):
    """Weights after the run, all gradients times the divisor over the clipping norm, and the engine."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 6), torch.randint(3, (60,)))
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    adaptive = {"independent": hs.torch.IndependentAdam}
    optimizer = adaptive.get(mode, torch.optim.SGD)(model.parameters(), lr=0.1)
    engine = hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(3))
    criterion = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=wrap(model),
        optimizer=optimizer,
        data_loader=DataLoader(data),
        max_grad_norm=1.5,
        criterion=criterion,
        grad_sample_mode="hooks" if mode in adaptive else mode,
    )
    wrapped, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else criterion
    rows: list[np.ndarray] = []
    sizes: list[int] = []
    while engine.run.remaining:
        for x, y in loader:
            optimizer.zero_grad()
            (criterion(wrapped(x), y) * scale).backward()
            optimizer.step()
            sizes.append(len(x))
            rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).double().numpy())
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    return weights, np.array(rows) * engine.run.expected_batch_size / 1.5, np.array(sizes), engine


def main() -> None:
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

    folder, port, rank, mode = sys.argv[1:]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2)
    for scale in (1.0, 0.0):
        weights, rows, sizes, engine = train(DifferentiallyPrivateDistributedDataParallel, mode, scale)
        record = engine.record()
        np.savez(Path(folder) / f"{rank}-{scale:g}.npz", weights=weights, rows=rows, sizes=sizes)
        record.save(Path(folder) / f"{rank}-{scale:g}.json")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
