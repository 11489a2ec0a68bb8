"""A small model on small data, and training loops as Opacus' users write them."""

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hockeystick as hs

sys.path.insert(0, str(Path(__file__).parent))  # for what the tests of this folder share

EXAMPLES = 60
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4),
    sampler=hs.Poisson(sampling_prob=0.05, steps=40),
    noise_multiplier=2.0,
)


@cache
def has_cuda():
    """Whether torch is there, and sees a CUDA device."""
    return find_spec("torch") is not None and import_module("torch").cuda.is_available()


def pytest_generate_tests(metafunc):
    """Run tests that need a ``device``, as by ``training``, on CUDA too where there is one; other names stay."""
    if "device" in metafunc.fixturenames and has_cuda():
        metafunc.parametrize("device", [pytest.param("cpu", id=pytest.HIDDEN_PARAM), "cuda"])


@pytest.fixture
def device():
    """Where parameters and data are."""
    return "cpu"


@dataclass
class Training:
    """What ``make_private`` returned, with its engine."""

    engine: Any
    model: Any
    optimizer: Any
    criterion: Any
    loader: Any
    scale: float = 1.0

    def data(self):
        """The examples, on the CPU."""
        x, y = self.loader.dataset.tensors
        return list(zip(x.cpu(), y.cpu(), strict=True))

    def backward(self, x, y):
        """What comes before a step."""
        self.optimizer.zero_grad()
        self.criterion(self.model(x), y).backward()

    def epoch(self, loader=None, on_step=lambda: None):
        """One pass; ``on_step`` is called after every call of ``optimizer.step``."""
        for x, y in loader or self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y) * self.scale
            loss.backward()
            self.optimizer.step()
            on_step()

    def accumulated_epoch(self, largest, on_step=lambda: None):
        """One pass with physical batches of at most ``largest`` examples."""
        from opacus.utils.batch_memory_manager import BatchMemoryManager

        manager = BatchMemoryManager(data_loader=self.loader, max_physical_batch_size=largest, optimizer=self.optimizer)
        with manager as loader:
            self.epoch(loader, on_step)

    def run(self, on_step=lambda: None):
        """All of the plan."""
        while self.engine.run.remaining:
            self.epoch(on_step=on_step)

    def gradient(self):
        """All of ``p.grad``, flat."""
        import torch

        return torch.cat([p.grad.reshape(-1) for p in self.model.parameters()]).double().cpu().numpy().copy()

    def weights(self):
        """All parameters, flat."""
        import torch

        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()]).double().cpu().numpy().copy()


@pytest.fixture
def training(device):
    """Makes a Training; the arguments are those of ``make_private`` and of the engine."""
    pytest.importorskip("opacus")
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def make(
        mechanism=MECHANISM,
        *,
        seed=0,
        width=8,
        scale=1.0,
        dtype=None,
        noise_dtype=np.float32,
        loader=None,
        optimizer_of=None,
        **options,
    ):
        if device == "cuda" and loader and loader.get("num_workers"):
            pytest.skip("data on CUDA cannot be loaded by workers")
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(EXAMPLES, 6, dtype=dtype), torch.randint(3, (EXAMPLES,)))
        data.tensors = tuple(tensor.to(device) for tensor in data.tensors)
        model = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 3))
        model = model.to(device, dtype)
        if isinstance(options.get("module"), torch.nn.Module):
            options["module"].to(device)
        optimizer = (optimizer_of or torch.optim.SGD)(model.parameters(), lr=0.1)
        engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(seed), dtype=noise_dtype)
        criterion = torch.nn.CrossEntropyLoss()
        made = engine.make_private(
            **{
                "module": model,
                "optimizer": optimizer,
                "data_loader": DataLoader(data, **(loader or {})),
                "max_grad_norm": 1.5,
                "criterion": criterion,
            }
            | options
        )
        return Training(engine, made[0], made[1], made[2] if len(made) == 4 else criterion, made[-1], scale)

    return make


@pytest.fixture
def made(training):
    """A training with batches of one size, so that no number of examples gives anything away, in a gradient mode."""
    mechanism = hs.Mechanism(sampler=hs.Shuffle(batch_size=3, bins=20, epochs=2), noise_multiplier=2.0)
    return lambda mode="hooks", **options: training(mechanism, **{"grad_sample_mode": mode} | options)


@pytest.fixture
def trainer(tmp_path):
    """Makes a Trainer of transformers; ``arguments`` are those of TrainingArguments."""
    from huggingface_training import FIXED, QUIET, model_of, sentences
    from transformers import TrainingArguments

    def make(plan=FIXED, model=None, data=None, *, seed=0, folder="out", arguments=None, **options):
        run = {"max_steps": plan.sampler.steps, "per_device_train_batch_size": 5, "save_strategy": "no"}
        given = TrainingArguments(str(tmp_path / folder), **QUIET | run | (arguments or {}))
        return hs.huggingface.Trainer(
            plan=plan,
            model=model_of() if model is None else model,
            args=given,
            train_dataset=sentences() if data is None else data,
            rng=np.random.default_rng(seed),
            **options,
        )

    return make
