"""What is trained: a linear classifier in closed form, on ``hockeystick.training.Run``, and networks, by Opacus' loop.

Both take the batches, the noise and the record from hockeystick, and end with the same weights, bit for bit, for the
same seed on the same machine with the same number of threads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hockeystick as hs
from experiments.task import Task

Reals = np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What a run leaves.

    Attributes:
        accuracy, loss: on the test examples; the loss is the mean cross entropy.
        weights: all of them in a row.
        record: gives the record of the run for a certificate.
    """

    accuracy: float
    loss: float
    weights: Reals
    record: Callable[[hs.Certificate], hs.training.RunRecord]


def rate_at(step: int, steps: int) -> float:
    """The learning rate over the base rate: 1, then linearly to 1/20 from a quarter to three quarters of the steps."""
    done = min(max((step / steps - 0.25) / 0.5, 0.0), 1.0)
    return 1.0 - 0.95 * done


def log_probabilities(scores: Reals) -> Reals:
    """Logarithms of the probabilities of the classes, row by row."""
    moved = scores - scores.max(axis=1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis=1, keepdims=True))


def judged(scores: Reals, labels: Reals) -> tuple[float, float]:
    """Accuracy and mean cross entropy."""
    logs = log_probabilities(scores)
    return float((logs.argmax(axis=1) == labels).mean()), float(-logs[np.arange(len(labels)), labels].mean())


def clipped_sum(residuals: Reals, x: Reals, scale: Reals, norm: float) -> Reals:
    """The sum of gradients ``scale * outer(residual, x)`` of l2 norm at most ``norm``: shape (classes, features).

    The norms are exact but for rounding, so no gradient of a single example is ever made. What is clipped is shortened
    by another millionth.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", (residuals * residuals) @ (scale * scale), x * x))
    factors = np.minimum(1.0, norm / np.maximum(lengths * (1.0 + 1e-6), 1e-300))
    return scale * ((residuals * factors[:, None]).T @ x)


class Momentum:
    """SGD with momentum and the decay of :func:`rate_at`."""

    scale: Any = 1.0

    def __init__(self, learning_rate: float, momentum: float, steps: int) -> None:
        self.learning_rate, self.momentum, self.steps = learning_rate, momentum, steps
        self.velocity: Any = 0.0
        self.taken = 0

    def step(self, noisy: Reals) -> Reals:
        """What to add to the weights."""
        self.velocity = self.momentum * self.velocity + noisy
        self.taken += 1
        return -self.learning_rate * rate_at(self.taken - 1, self.steps) * self.velocity


def owners(task: Task, mechanism: hs.Mechanism) -> hs.Attribution | None:
    """Who has which example, where the sampler looks at it."""
    return task.attribution if mechanism.sampler.kind == "multi_attribution" else None


def train_linear(
    task: Task, mechanism: hs.Mechanism, seed: int, learning_rate: float, settings: dict[str, Any]
) -> Outcome:
    """A linear classifier from zero weights; the seed is that of the batches and the noise."""
    classes, features = task.classes, task.x.shape[1]
    run = hs.training.Run(
        mechanism,
        num_examples=len(task.y),
        shape=classes * features,
        rng=np.random.default_rng(seed),
        dtype=np.float64,
        attribution=owners(task, mechanism),
    )
    clip_norm = settings["clip_norm"]
    if settings["optimizer"] == "scaled_adam":
        optimizer: Any = hs.training.ScaledAdam(learning_rate=learning_rate)
    else:
        optimizer = Momentum(learning_rate, settings["momentum"], run.steps)
    weights, targets = np.zeros((classes, features)), np.eye(classes)
    for batch in run.batches():
        x = task.x[batch]
        residuals = np.exp(log_probabilities(x @ weights.T)) - targets[task.y[batch]]
        scale = np.broadcast_to(np.asarray(optimizer.scale, dtype=np.float64), classes * features)
        total = clipped_sum(residuals, x, scale.reshape(classes, features), clip_norm).ravel()
        noisy = (total + clip_norm * run.noise(batch)) / run.expected_batch_size
        weights = weights + optimizer.step(noisy).reshape(classes, features)
    return Outcome(*judged(task.test_x @ weights.T, task.test_y), weights.ravel(), run.record)


def train_network(
    task: Task, mechanism: hs.Mechanism, seed: int, learning_rate: float, settings: dict[str, Any]
) -> Outcome:
    """A network by Opacus' loop; the seed is that of the initial weights, the batches and the noise."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    model = NETWORKS[settings["model"]]()
    data = TensorDataset(torch.from_numpy(task.x.astype(np.float32)), torch.from_numpy(task.y))
    engine = hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(seed), attribution=owners(task, mechanism))
    if settings["optimizer"] == "scaled_adam":
        optimizer: Any = hs.torch.ScaledAdam(model.parameters(), lr=learning_rate)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=settings["momentum"])
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=DataLoader(data), max_grad_norm=settings["clip_norm"]
    )
    for step, (x, y) in enumerate(loader):
        if settings["optimizer"] == "momentum":
            optimizer.param_groups[0]["lr"] = learning_rate * rate_at(step, engine.run.steps)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        parts = torch.from_numpy(task.test_x.astype(np.float32)).split(500)
        scores = torch.cat([model(part) for part in parts]).double().numpy()
        weights = torch.cat([parameter.ravel() for parameter in model.parameters()]).numpy().copy()
    return Outcome(*judged(scores, task.test_y), weights, engine.record)


def small() -> Any:
    """For digits: a convolution with stride 4 and two linear layers, 13,000 parameters."""
    from torch import nn

    layers = [nn.Conv2d(1, 8, 8, stride=4, padding=2), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 7 * 7, 32), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def vgg() -> Any:
    """For pictures of 32 by 32 points: VGG-11 with group norms in place of batch norms, 9 million parameters."""
    from torch import nn

    layers: list[Any] = []
    before = 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()]
            before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


NETWORKS: dict[str, Callable[[], Any]] = {"small": small, "vgg": vgg}


def train(task: Task, mechanism: hs.Mechanism, seed: int, learning_rate: float, settings: dict[str, Any]) -> Outcome:
    """One run of the model that the settings name."""
    how = train_linear if settings["model"] == "linear" else train_network
    return how(task, mechanism, seed, learning_rate, settings)
