"""One process of two that share out the parameters, as torchrun starts them."""

import os
import signal
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
MANY = MECHANISM.model_copy(update={"sampler": hs.Poisson(sampling_prob=0.6, steps=24)})
"""Batches of several physical batches on every process, for exact sums."""


def whole(tensor: Any) -> Any:
    """All of a tensor that processes may share out."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(
    mesh: Any, scale: float, rows: Any = None, *, exact: bool = False, state_file: Path | None = None
) -> tuple[Any, Any, Any, Any]:
    """Weights after the run, all gradients times the divisor over the clipping norm, sizes of batches, and the engine.

    With a mesh, the run is saved at step 9 and continued in a new engine with its rows elsewhere. Without one and with
    exact sums, gradients are by hooks, all of them in memory. With a file for the state, the process is killed after
    step 9, or continues from there.
    """
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    size, mechanism = (60, MECHANISM) if not exact else (200, MANY)
    data = TensorDataset(torch.randn(size, 6), torch.randint(3, (size,)))
    model: Any = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    if mesh is not None:
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)

    def private(rows: Any) -> Any:
        whole_numbers: dict[str, Any] = {"exact": True, "physical_batch_size": 32} if exact else {}
        engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(3), rows=rows, **whole_numbers)
        made = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data),
            max_grad_norm=CLIP,
            criterion=torch.nn.CrossEntropyLoss(),
            grad_sample_mode=("hooks" if exact else "ghost") if mesh is None else "ghost_fsdp",
        )
        return engine, *made[:2], made[2] if len(made) == 4 else torch.nn.CrossEntropyLoss(), made[-1]

    engine, wrapped, optimizer, criterion, loader = private(rows)
    gradients: list[Any] = []
    sizes: list[int] = []

    def steps(last: int) -> None:
        while engine.run.step < last:
            for x, y in loader:
                optimizer.zero_grad()
                (criterion(wrapped(x), y) * scale).backward()
                before = engine.run.step
                optimizer.step()
                sizes.append(len(x))
                if engine.run.step > before:
                    gradients.append(torch.cat([whole(p.grad).reshape(-1) for p in optimizer.params]).double().numpy())
                if engine.run.step == last:
                    break

    if state_file is not None and not state_file.exists():
        steps(9)
        held = [p.detach().to_local() for p in optimizer.params]
        torch.save({"weights": held, "optimizer": optimizer.state_dict()}, state_file)
        steps(11)
        os.kill(os.getpid(), signal.SIGKILL)
    elif state_file is not None:
        state = torch.load(state_file)
        for parameter, numbers in zip(optimizer.params, state["weights"], strict=True):
            parameter.detach().to_local().copy_(numbers)
        optimizer.load_state_dict(state["optimizer"])
    elif mesh is not None:
        steps(9)
        state = optimizer.state_dict()
        wrapped.remove_hooks() if hasattr(wrapped, "remove_hooks") else None
        engine, wrapped, optimizer, criterion, loader = private(Replay())
        optimizer.load_state_dict(state)
    steps(engine.run.steps)
    weights = torch.cat([whole(p.detach()).reshape(-1) for p in optimizer.params]).numpy()
    return weights, np.array(gradients) * engine.run.expected_batch_size / CLIP, np.array(sizes), engine


def main(folder: Path, killed: bool = False) -> None:
    """With ``killed``, exact sums alone: saved at step 9 and killed at step 11, or continued where there is a state."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    mesh, rank = init_device_mesh("cpu", (2,)), distributed.get_rank()
    if killed:
        exact, *_ = train(mesh, 1.0, exact=True, state_file=folder / f"state-{rank}.pt")
        np.save(folder / f"killed-{rank}.npy", exact)
        distributed.destroy_process_group()
        return
    weights, _, sizes, engine = train(mesh, 1.0)
    _, noise, _, _ = train(mesh, 0.0)
    exact, sums, _, exact_engine = train(mesh, 1.0, exact=True)
    np.savez(folder / f"{rank}.npz", weights=weights, noise=noise, sizes=sizes, exact=exact, sums=sums)
    engine.record().save(folder / f"{rank}.json")
    exact_engine.record().save(folder / f"exact-{rank}.json")
    distributed.destroy_process_group()
