"""``python -m benchmarks.training``: what correlated noise costs a training step, beside Opacus, jax-privacy and opake.

The first table is a training step of Opacus' MNIST network (26,010 parameters) on batches of 64 images, on one core:
loader, forward and backward pass, clipping, noise, update. All contestants take turns in one process, a block of steps
each, so that whatever else the machine does falls on all of them; 'of Opacus' is the median over the rounds of the
ratio of their CPU times. The second table is the noise alone, of many more parameters: training steps on batches
without examples where it says 'loop'; ``zero_grad`` and ``step`` of the optimizer, without loader, forward and backward
pass, where it says 'optimizer'; and calls that give a step's noise elsewhere. Each contestant has a process of its own.
'CPU' counts all threads of the process. 'memory' is what is kept between steps.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from benchmarks.noise import jax_privacy
from benchmarks.runner import ONE_THREAD, ROOT, installed

BATCH, BATCHES = 64, 10
Contestant = tuple[Callable[[], object], int]
"""What makes one step, and the bytes that it keeps between steps."""


def mechanism(bands: int, sampler: Any) -> Any:
    """White noise for one band, the banded square root for more."""
    from hockeystick.mechanism import Mechanism
    from hockeystick.strategies import BandedSquareRoot

    return Mechanism(strategy=BandedSquareRoot(bands=bands), sampler=sampler, noise_multiplier=1.0)


def network() -> Any:
    """The network of Opacus' MNIST example."""
    from torch import nn

    features = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)]
    more = [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    return nn.Sequential(*features, *more, nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10))


def torch_step(engine: Any, model: Any, data: Any, **options: Any) -> Contestant:
    """A step of the loop that everybody writes, over and over the data."""
    import torch

    criterion = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        criterion=criterion,
        data_loader=data,
        max_grad_norm=1.0,
        **options,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else criterion

    def forever() -> Iterator[Any]:
        while True:
            yield from loader

    batches = forever()

    def one_step() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    noise = getattr(getattr(optimizer, "run", None), "_noise", None)
    return one_step, 0 if noise is None else noise.nbytes


def images() -> Any:
    """Batches of random images of the size of MNIST's."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    number = BATCH * BATCHES
    return DataLoader(TensorDataset(torch.randn(number, 1, 28, 28), torch.randint(10, (number,))), batch_size=BATCH)


def opacus_step(steps: int, mode: str = "hooks") -> Contestant:
    """Opacus' own engine, on the same batches."""
    from opacus import PrivacyEngine

    options = {"noise_multiplier": 1.0, "poisson_sampling": False, "grad_sample_mode": mode}
    return torch_step(PrivacyEngine(), network(), images(), **options)


def our_step(steps: int, bands: int, mode: str = "hooks", exact: bool | None = None) -> Contestant:
    """Our engine."""
    from hockeystick.samplers import Deterministic
    from hockeystick.training.torch import PrivacyEngine

    epochs = -(-max(steps, bands) // BATCHES)
    plan = mechanism(bands, Deterministic(bins=BATCHES, epochs=epochs))
    return torch_step(PrivacyEngine(plan, exact=exact), network(), images(), grad_sample_mode=mode)


STEPS: dict[str, Callable[[int, int], Contestant]] = {
    "Opacus": lambda steps, bands: opacus_step(steps),
    "hockeystick, white": lambda steps, bands: our_step(steps, 1),
    "hockeystick, bands": our_step,
    "hockeystick, bands, exact": lambda steps, bands: our_step(steps, bands, exact=True),
    "Opacus, ghost": lambda steps, bands: opacus_step(steps, "ghost"),
    "hockeystick, bands, ghost": lambda steps, bands: our_step(steps, bands, "ghost"),
}
"""A training step; those with 'ghost' are compared with the one of Opacus of that name."""


def square(size: int) -> Any:
    """A model of so many parameters, with one example that is never drawn."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(1, size), torch.zeros(1, dtype=torch.long))
    return torch.nn.Linear(size, 1, bias=False), DataLoader(data)


def our_loop(bands: int, size: int, steps: int) -> Contestant:
    """Whole steps on batches without examples."""
    from hockeystick.samplers import Poisson
    from hockeystick.training.torch import PrivacyEngine

    plan = mechanism(bands, Poisson(sampling_prob=1e-12, steps=steps))
    return torch_step(PrivacyEngine(plan), *square(size), batch_first=True)


def our_optimizer(bands: int, size: int, steps: int) -> Contestant:
    """What the optimizer alone does with per-sample gradients of no examples."""
    import torch

    from hockeystick.samplers import Poisson
    from hockeystick.training.torch import PrivacyEngine

    plan = mechanism(bands, Poisson(sampling_prob=1e-12, steps=steps))
    model, data = square(size)
    _, optimizer, loader = PrivacyEngine(plan).make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=data,
        max_grad_norm=1.0,
    )
    batches = (batch for _ in range(steps) for batch in loader.batch_sampler)

    def one_step() -> None:
        next(batches)
        optimizer.zero_grad()
        model.weight.grad_sample = torch.zeros(0, 1, size)
        optimizer.step()

    return one_step, optimizer.run._noise.nbytes


def our_noise(bands: int, size: int, steps: int) -> Contestant:
    """Tensors of noise for a loop of one's own."""
    import torch

    from hockeystick.samplers import Poisson
    from hockeystick.training.torch import Noise

    plan = mechanism(bands, Poisson(sampling_prob=1e-12, steps=steps))
    noise = Noise.of(plan, [torch.zeros(size)], num_examples=1)
    kept: Any = noise.run._noise
    return lambda: noise.next([]), kept.nbytes


def opacus_loop(bands: int, size: int, steps: int) -> Contestant:
    """White noise, for scale: whole steps on batches without examples."""
    import torch
    from opacus import PrivacyEngine

    model, data = square(size)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=data,
        max_grad_norm=1.0,
        noise_multiplier=1.0,
        poisson_sampling=False,
    )
    x, y = torch.zeros(0, size), torch.zeros(0, dtype=torch.long)

    def one_step() -> None:
        made[1].zero_grad()
        torch.nn.functional.cross_entropy(made[0](x), y).backward()
        made[1].step()

    return one_step, 0


def opake(bands: int, size: int, steps: int) -> Contestant:
    """Its noise for the banded square root, added to a zero gradient."""
    import torch
    from opake.dpftrl.noise import bsr_strategy, mf_gaussian_noise
    from opake.random import key
    from opake.types import ClippedPytree

    gradient = {"weight": torch.zeros(size)}
    strategy = bsr_strategy(bandwidth=bands, alpha=1.0, beta=0.0)
    add, state = mf_gaussian_noise(gradient, strategy, n_steps=steps, noise_multiplier=1.0, key=key(0))

    def one_step() -> None:
        nonlocal state
        _, state = add(ClippedPytree(gradient, 1.0), state)

    one_step()
    return one_step, sum(tensor.nbytes for tensor in tensors_of(state))


def tensors_of(state: Any) -> list[Any]:
    """The tensors in a state, each once."""
    import torch

    if isinstance(state, torch.Tensor):
        return [state]
    parts = list(state.values()) if isinstance(state, dict) else state if isinstance(state, list | tuple) else []
    parts = parts or list(getattr(state, "__dict__", {}).values())
    return list({id(tensor): tensor for part in parts for tensor in tensors_of(part)}.values())


NOISES: dict[str, tuple[str, Callable[[int, int, int], Contestant]]] = {
    "hockeystick, loop": ("opacus", our_loop),
    "hockeystick, optimizer": ("opacus", our_optimizer),
    "hockeystick, Noise": ("opacus", our_noise),
    "Opacus, white, loop": ("opacus", opacus_loop),
    "jax-privacy": ("jax_privacy", jax_privacy),
    "opake": ("opake.dpftrl", opake),
}
"""The package that has to be installed, and what to time."""


def clocked(one_step: Callable[[], object], steps: int) -> tuple[float, float]:
    """Wall and CPU seconds of a step."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        one_step()
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def measure_steps(bands: int, steps: int, repeats: int) -> dict[str, dict[str, float]]:
    """All training steps in turns: milliseconds of the best round, and CPU beside Opacus."""
    warnings.simplefilter("ignore")
    total = (repeats + 1) * steps
    made = {name: make(total, bands) for name, make in STEPS.items()}
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for at in range(repeats + 1):
        for name, (one_step, _) in made.items():
            clock = clocked(one_step, steps)
            if at:  # the first round warms up
                rounds[name].append(clock)
    table = {}
    for name, times in rounds.items():
        beside = rounds["Opacus, ghost" if name.endswith("ghost") else "Opacus"]
        table[name] = {
            "wall": 1e3 * min(wall for wall, _ in times),
            "cpu": 1e3 * min(cpu for _, cpu in times),
            "ratio": median(ours / theirs for (_, ours), (_, theirs) in zip(times, beside, strict=True)),
            "memory": made[name][1] / 1e6,
        }
    return table


def measure_noise(name: str, bands: int, size: int, steps: int, repeats: int) -> dict[str, float]:
    """Steps a second, by the wall and by the CPU: the best of some repeats, after two rounds of the bands."""
    warnings.simplefilter("ignore")
    warm_up = 2 * bands
    one_step, kept = NOISES[name][1](bands, size, warm_up + repeats * steps + 1)
    clocked(one_step, warm_up)
    times = [clocked(one_step, steps) for _ in range(repeats)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = (1.0 / min(column) for column in zip(*times, strict=True))
    return {"wall": wall, "cpu": cpu, "memory": kept / 1e6, "peak": peak}


def main(arguments: list[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--bands", type=int, default=32)
    parser.add_argument("--size", type=int, default=1_000_000, help="float32 parameters, in the second table")
    parser.add_argument("--steps", type=int, default=32, help="steps in each repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", choices=["steps", *NOISES], help="measure one table or contestant here; print JSON")
    parser.add_argument("--threads", type=int, default=1, help="threads for the noise, each on a core of its own")
    options = parser.parse_args(arguments)
    if options.one:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
        if options.one == "steps":
            print(json.dumps(measure_steps(options.bands, options.steps, options.repeats)))
        else:
            print(json.dumps(measure_noise(options.one, options.bands, options.size, options.steps, options.repeats)))
        return 0
    cores = "one core" if options.threads == 1 else f"{options.threads} cores"
    print(f"{options.bands} bands, {cores}, best of {options.repeats} blocks of {options.steps} steps\n")
    print(f"{'a training step':27}{'wall ms':>9}{'CPU ms':>9}{'of Opacus':>11}{'memory MB':>11}")
    for name, record in (_elsewhere("steps", options) if installed("opacus") else {}).items():
        print(f"{name:27}{record['wall']:9.2f}{record['cpu']:9.2f}{record['ratio']:11.3f}{record['memory']:11.1f}")
    print(f"\n{f'noise of {options.size} float32':27}{'steps/s':>9}{'by CPU':>9}{'memory MB':>11}{'peak MB':>9}")
    for name, (package, _) in NOISES.items():
        if not installed(package):
            print(f"{name:27}not installed")
            continue
        record = _elsewhere(name, options)
        if record:
            print(f"{name:27}{record['wall']:9.1f}{record['cpu']:9.1f}{record['memory']:11.1f}{record['peak']:9.0f}")
    return 0


def _elsewhere(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own measures; nothing, and a line that says why, where it fails."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.training", "--one", name]
    for field in ("size", "bands", "steps", "repeats", "threads"):
        command += [f"--{field}", str(getattr(options, field))]
    threads = {name: str(options.threads) for name in ONE_THREAD}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name:27}failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        return {}
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    sys.exit(main())
