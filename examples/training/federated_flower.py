"""Flower's simulation on scikit-learn's digits, with the cohorts, the clipping and the noise of a plan.

    python examples/training/federated_flower.py --clients 50 --out flower

1,500 digits are dealt to the clients, and each round is a step of the plan: half of all clients on average, twenty
times. The client app is any app of Flower: it gets the model, trains, and answers with a model. ``server`` differs from
one without privacy only in its strategy. Neighbouring data sets differ in all data of one client.

Needs ``pip install '.[flower]' 'flwr[simulation]' scikit-learn``; takes about a minute.
"""

import argparse
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits

import hockeystick as hs

PIXELS, CLASSES, TRAINED = 64, 10, 1500
CLIP_NORM, DELTA = 2.0, 1e-2


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All digits, in a fixed order; the last 297 are for the test."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order] / 16.0 - 0.3, labels[order]


def likely(weights: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Softmax regression: a row of probabilities for each digit."""
    scores = x @ weights + bias
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Ten steps on the client's own digits."""
    weights, bias = (array.numpy().copy() for array in message.content["arrays"].values())
    x, y = digits()
    mine = slice(int(context.node_config["partition-id"]), TRAINED, int(context.node_config["num-partitions"]))
    x, y = x[mine], y[mine]
    for _ in range(10):
        errors = (likely(weights, bias, x) - np.eye(CLASSES)[y]) / len(y)
        weights, bias = weights - 0.5 * x.T @ errors, bias - 0.5 * errors.sum(axis=0)
    arrays = ArrayRecord({"weights": Array(weights), "bias": Array(bias)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(content=content, reply_to=message)


def accuracy(arrays: ArrayRecord) -> float:
    """Of the digits that no client has."""
    x, y = digits()
    weights, bias = (array.numpy() for array in arrays.values())
    return float((likely(weights, bias, x[TRAINED:]).argmax(axis=1) == y[TRAINED:]).mean())


def main() -> None:
    """Simulate all clients on this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("flower"))
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True, parents=True)
    cohorts = hs.Poisson(sampling_prob=0.5, steps=20, num_examples=arguments.clients)
    plan = hs.Mechanism(sampler=cohorts, strategy=hs.BandedSquareRoot(bands=4))
    mechanism = hs.calibrate(plan, epsilon=arguments.epsilon, delta=DELTA)
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy = hs.flower.Strategy(mechanism, clip_norm=CLIP_NORM)
        model = ArrayRecord({"weights": Array(np.zeros((PIXELS, CLASSES))), "bias": Array(np.zeros(CLASSES))})
        result = strategy.start(grid, model)
        certificate = strategy.certificate(delta=DELTA)
        certificate.save(arguments.out / "certificate.json")
        strategy.record(certificate).save(arguments.out / "run.json")
        print(f"epsilon {certificate.epsilon.upper:.4f}  accuracy {accuracy(result.arrays):.3f}")

    run_simulation(server_app=server, client_app=app, num_supernodes=arguments.clients)


if __name__ == "__main__":
    main()
