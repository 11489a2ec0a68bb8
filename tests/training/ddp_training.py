"""One rank of two, as torchrun starts them, trains in each mode, and keeps what it got.

MODE is of gradients, "hooks" or "ghost"; "layers" to clip by layers; "parts" for physical batches of one example;
"independent" for an adaptive optimizer; "alike" and "apart" for dropout with one seed, and with one for each rank;
"unwrapped" for a model that knows of no other process; "lightning" for its loop;
"exact" and "exact_layers" for sums of whole numbers; "exact_stopped" for a state in the middle of such a run, and
"exact_resumed" to go on from FOLDER/MODE/state.pt; or "noise" for a run without gradients for every kind of strategy,
in the first four modes by turns. FOLDER/MODE/RANK holds weights, gradients and the record of the run.
"""

import os
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs
from hockeystick.errors import InvalidInputError

MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.02, steps=30), noise_multiplier=2.0
)
LAYERS = {"clipping": "per_layer", "max_grad_norm": [1.2, 0.6, 0.6, 0.3]}
"""Norms that are 1.5 together."""
RESUMING = ("exact_resumed", "exact_stopped")
STOP = 13
"""Steps before the state of a run is saved."""
BY_LAYERS = {"layers": LAYERS, "exact_layers": LAYERS}


def train(wrap, mode: str, mechanism=MECHANISM, scale: float = 1.0, start: Path | None = None, end: Path | None = None):
    """Weights after the run, all gradients times the divisor over the clipping norm, and the engine.

    It begins with a state that was saved, or ends after STOP steps and saves its own, by one process alone.
    """
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 6), torch.randint(3, (60,)))
    between = torch.nn.Dropout(0.2) if mode in ("alike", "apart") else torch.nn.Tanh()
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), between, torch.nn.Linear(40, 3))
    adaptive = {"independent": hs.torch.IndependentAdam}
    optimizer = adaptive.get(mode, torch.optim.SGD)(model.parameters(), lr=0.1)
    exact = {"exact": True} if mode.startswith("exact") else {}
    engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(3), **exact)
    criterion = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=wrap(model),
        optimizer=optimizer,
        data_loader=DataLoader(data),
        criterion=criterion,
        **{"max_grad_norm": 1.5, "grad_sample_mode": "ghost" if mode == "ghost" else "hooks"} | BY_LAYERS.get(mode, {}),
    )
    wrapped, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else criterion
    if mode == "apart":
        torch.manual_seed(distributed.get_rank())
    if mode == "lightning":
        fit(wrapped, optimizer, loader)
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy(), np.zeros(0), np.zeros(0), engine
    rows: list[np.ndarray] = []
    sizes: list[int] = []
    if start is not None:
        state = torch.load(start, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    while engine.run.remaining:
        parts = BatchMemoryManager(data_loader=loader, max_physical_batch_size=1, optimizer=optimizer)
        with parts if mode == "parts" else nullcontext(loader) as batches:
            for x, y in batches:
                optimizer.zero_grad()
                (criterion(wrapped(x), y) * scale).backward()
                optimizer.step()
                sizes.append(len(x))
                if engine.run.step > len(rows):
                    rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).double().numpy())
                if end is not None and engine.run.step == STOP:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    if not distributed.is_initialized() or distributed.get_rank() == 0:
                        torch.save(state, end)
                    return np.zeros(0), np.zeros(0), np.array(sizes), engine
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    return weights, np.array(rows) * engine.run.expected_batch_size / 1.5, np.array(sizes), engine


def fit(model, optimizer, loader) -> None:
    """Two epochs of Lightning's loop, which takes each process for the only one."""
    import lightning
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            x, y = batch
            return torch.nn.functional.cross_entropy(self.model(x), y, reduction="sum") / max(len(y), 1)

        def configure_optimizers(self):
            return optimizer

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    strategy = SingleDeviceStrategy(torch.device("cpu"))
    lightning.Trainer(strategy=strategy, max_steps=30, use_distributed_sampler=False, **quiet).fit(Module(), loader)


def main(folder: Path, *modes: str) -> None:
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as Distributed
    from whiteness import STEPS, strategies

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for mode in modes:
        here = folder / mode / os.environ["RANK"]
        here.mkdir(parents=True)
        if mode == "noise":
            sampler = hs.Poisson(sampling_prob=0.02, steps=STEPS)
            for at, (kind, strategy) in enumerate(strategies(here).items()):
                mechanism = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0)
                how = ("hooks", "ghost", "layers", "parts")[at % 4]
                _, rows, _, engine = train(Distributed, how, mechanism, scale=0.0)
                assert (engine.run.step, engine.record().violations) == (STEPS, ())
                np.save(here / kind, rows)
        elif mode in ("alike", "unwrapped"):
            try:
                train(Distributed if mode == "alike" else lambda model: model, mode)
            except InvalidInputError as error:
                (here / "refused.txt").write_text(str(error))
        else:
            start, end = (folder / mode / "state.pt" if mode == name else None for name in RESUMING)
            weights, rows, sizes, engine = train(Distributed, mode, start=start, end=end)
            np.savez(here / "trained", weights=weights, sizes=sizes)
            engine.record().save(here / "run.json")
    distributed.destroy_process_group()
