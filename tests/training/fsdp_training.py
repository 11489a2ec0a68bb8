"""One process of two that share out the parameters: ``python fsdp_training.py FOLDER PORT RANK``."""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs
from hockeystick.noise import Replay

CLIP = 1.5
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.02, steps=24), noise_multiplier=2.0
)


def whole(tensor: Any) -> Any:
    """All of a tensor that processes may share out."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(mesh: Any, scale: float, rows: Any = None) -> tuple[Any, Any, Any, Any]:
    """Weights after the run, all gradients times the divisor over the clipping norm, sizes of batches, and the engine.

    With a mesh, the run is saved at step 9 and continued in a new engine with its rows elsewhere.
    """
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 6), torch.randint(3, (60,)))
    model: Any = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    if mesh is not None:
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)

    def private(rows: Any) -> Any:
        engine = hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(3), rows=rows)
        made = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data),
            max_grad_norm=CLIP,
            criterion=torch.nn.CrossEntropyLoss(),
            grad_sample_mode="ghost" if mesh is None else "ghost_fsdp",
        )
        return engine, *made

    engine, wrapped, optimizer, criterion, loader = private(rows)
    gradients: list[Any] = []
    sizes: list[int] = []

    def steps(last: int) -> None:
        while engine.run.step < last:
            for x, y in loader:
                optimizer.zero_grad()
                (criterion(wrapped(x), y) * scale).backward()
                optimizer.step()
                sizes.append(len(x))
                gradients.append(torch.cat([whole(p.grad).reshape(-1) for p in optimizer.params]).double().numpy())
                if engine.run.step == last:
                    break

    if mesh is not None:
        steps(9)
        state = optimizer.state_dict()
        wrapped.remove_hooks() if hasattr(wrapped, "remove_hooks") else None
        engine, wrapped, optimizer, criterion, loader = private(Replay())
        optimizer.load_state_dict(state)
    steps(engine.run.steps)
    weights = torch.cat([whole(p.detach()).reshape(-1) for p in optimizer.params]).numpy()
    return weights, np.array(gradients) * engine.run.expected_batch_size / CLIP, np.array(sizes), engine


def main() -> None:
    folder, port, rank = sys.argv[1:]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    weights, _, sizes, engine = train(mesh, 1.0)
    _, noise, _, _ = train(mesh, 0.0)
    np.savez(Path(folder) / f"{rank}.npz", weights=weights, noise=noise, sizes=sizes)
    engine.record().save(Path(folder) / f"{rank}.json")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
