"""Federated averaging on scikit-learn's digits: a client is an example, and its whole update is clipped.

    python examples/training/federated.py --epsilon 2 4 8 --out federated

1,500 digits are dealt to 500 clients. In each round the clients of a Poisson batch train a copy of the model on their
three digits. The difference of a client's weights is clipped to a norm as a whole, the sum gets the noise of the run,
and is divided by the *expected* number of clients. So neighbouring data sets differ in all data of one client.

The server averages, or with ``--server scaled`` it is Adam that scales updates before they are clipped. All of it is
numpy, through ``hs.training.Run``, which draws the clients, gives the noise and checks every round.

Needs ``pip install '.[plot]' scikit-learn``; takes some seconds for each epsilon.
"""

import argparse
from pathlib import Path

import numpy as np
from report import finish
from sklearn.datasets import load_digits

import hockeystick as hs

PLAN = Path(__file__).parent / "federated.toml"
CLIP_NORM = 1.0
PIXELS, CLASSES = 64, 10


def clients(number: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """The digits of every client, in a fixed order, and 297 digits to test on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = images[order] / 16.0 - 0.3, labels[order]
    dealt = zip(np.array_split(x[:1500], number), np.array_split(y[:1500], number), strict=True)
    return list(dealt), (x[1500:], y[1500:])


def probabilities(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Softmax regression: a row for each digit."""
    scores = x @ weights[: PIXELS * CLASSES].reshape(PIXELS, CLASSES) + weights[PIXELS * CLASSES :]
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return likely / likely.sum(axis=1, keepdims=True)


def update(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a client sends: how its copy of the weights changed in five steps on its own digits."""
    own = weights.copy()
    for _ in range(5):
        errors = (probabilities(own, x) - np.eye(CLASSES)[y]) / len(y)
        own -= 0.2 * np.concatenate([(x.T @ errors).ravel(), errors.sum(axis=0)])
    return own - weights


def train(run: hs.training.Run, everyone: list[tuple[np.ndarray, np.ndarray]], server: str) -> np.ndarray:
    """All rounds of the run; an empty round takes its noise like any other."""
    weights = np.zeros(PIXELS * CLASSES + CLASSES)
    adam = hs.training.ScaledAdam(learning_rate=0.03, betas=(0.9, 0.99)) if server == "scaled" else None
    for batch in run.batches():
        updates = np.array([update(weights, *everyone[client]) for client in batch]).reshape(batch.size, weights.size)
        kept = hs.training.clipped(updates if adam is None else updates * adam.scale, CLIP_NORM)
        mean = (kept.sum(axis=0) + CLIP_NORM * run.noise(batch)) / run.expected_batch_size
        weights = weights + (mean if adam is None else adam.step(-mean))
    return weights


def main() -> None:
    """Train once for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0, 4.0, 8.0])
    parser.add_argument("--out", type=Path, default=Path("federated"))
    parser.add_argument("--server", choices=["average", "scaled"], default="average")
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True, parents=True)
    plan = hs.Plan.load(PLAN)
    everyone, (x, y) = clients(plan.data.num_examples)
    points = []
    for epsilon in arguments.epsilon:
        mechanism = hs.calibrate(plan.mechanism(), epsilon=epsilon, delta=plan.target.delta)
        run = hs.training.Run(mechanism, num_examples=len(everyone), shape=PIXELS * CLASSES + CLASSES)
        weights = train(run, everyone, arguments.server)
        certificate = hs.certify(mechanism, delta=plan.target.delta)
        path = arguments.out / f"epsilon-{epsilon:g}.certificate.json"
        certificate.save(path)
        run.record(certificate).save(arguments.out / f"epsilon-{epsilon:g}.run.json")
        accuracy = float((probabilities(weights, x).argmax(axis=1) == y).mean())
        points.append((certificate.epsilon.upper, accuracy))
        print(f"epsilon {points[-1][0]:.4f}  noise multiplier {mechanism.sigma:.3f}  accuracy {accuracy:.3f}")
    finish(points, arguments.out, path, plan.target.delta)


if __name__ == "__main__":
    main()
