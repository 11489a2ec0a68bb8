"""Train on scikit-learn's digits with JAX Privacy, and leave certificates that anybody can verify.

    python examples/training/digits_jax.py --epsilon 1 2 4 8 --out digits-jax

For every epsilon it calibrates the noise, trains, and writes a certificate and a record of the run; at the end it plots
the accuracy by epsilon and lets ``hockeystick verify`` check the last certificate. Needs
``pip install '.[jax,plot]' scikit-learn``; takes about a minute.

A certificate is about one model. If you publish several models, or the plot, account for all of them together.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy.batch_selection import pad_to_multiple_of
from sklearn.datasets import load_digits

import hockeystick as hs

PLAN = Path(__file__).parent / "digits.toml"


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """1,500 digits to train on and 297 to test on, in a fixed order."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = (images / 16.0).astype(np.float32)[order].reshape(-1, 8, 8, 1), labels[order]
    return (x[:1500], y[:1500]), (x[1500:], y[1500:])


def network(key: jax.Array) -> dict[str, jax.Array]:
    """The parameters of two convolutions and a linear layer, 9,930 numbers."""
    shapes = {"first": (3, 3, 1, 16), "second": (3, 3, 16, 32), "last": (32 * 16, 10)}
    keys = jax.random.split(key, len(shapes))
    weights = {
        name: jax.random.normal(key, shape) / np.sqrt(np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights | {f"{name} bias": jnp.zeros(shape[-1]) for name, shape in shapes.items()}


def scores(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The scores of the ten classes."""
    for name, stride in (("first", 1), ("second", 2)):
        x = jax.lax.conv_general_dilated(
            x, params[name], (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jnp.tanh(x + params[f"{name} bias"])
    return x.reshape(len(x), -1) @ params["last"] + params["last bias"]


def loss(params: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, x), y).mean()


def train(plan, params, data, *, learning_rate: float = 1.0, padded_to: int = 64):
    """A training loop over a ``DPExecutionPlan``, JAX Privacy's or ours."""
    x, y = data
    gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
    optimizer = optax.chain(plan.noise_addition_transform, optax.sgd(learning_rate))

    @jax.jit
    def step(params, state, x, y, padding):
        mean = gradient(params, x, y, is_padding_example=padding)
        updates, state = optimizer.update(mean, state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for batch in plan.batch_selection_strategy.batch_iterator(len(x)):
        padded = pad_to_multiple_of(batch, padded_to)
        params, state = step(params, state, x[padded], y[padded], padded == -1)
    return params


def accuracy(params: dict[str, jax.Array], data: tuple[np.ndarray, np.ndarray]) -> float:
    """The part of the data whose label is the most likely one."""
    x, y = data
    return float((jnp.argmax(scores(params, x), axis=1) == y).mean())


def main() -> None:
    """Train once for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--out", type=Path, default=Path("digits-jax"))
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True)
    plan = hs.Plan.load(PLAN)
    training, test = digits()
    points = []
    for epsilon in arguments.epsilon:
        mechanism = hs.calibrate(plan.mechanism(), epsilon=epsilon, delta=plan.target.delta)
        params = network(jax.random.key(0))  # to begin with; batches and noise are seeded by the operating system
        config = hs.jax.ExecutionPlanConfig(
            mechanism, params=params, l2_clip_norm=0.5, num_examples=plan.data.num_examples
        )
        params = train(config.make(), params, training)
        certificate = config.certificate(plan.target.delta)
        certificate.save(arguments.out / f"epsilon-{epsilon:g}.certificate.json")
        config.record(certificate).save(arguments.out / f"epsilon-{epsilon:g}.run.json")
        points.append((certificate.epsilon.upper, accuracy(params, test)))
        print(f"epsilon {points[-1][0]:.4f}  noise multiplier {mechanism.sigma:.3f}  accuracy {points[-1][1]:.3f}")
    plot(points, arguments.out / "accuracy.png")
    last = arguments.out / f"epsilon-{arguments.epsilon[-1]:g}.certificate.json"
    print(f"hockeystick verify {last}", flush=True)
    subprocess.run([sys.executable, "-m", "hockeystick", "verify", str(last)], check=True)


def plot(points: list[tuple[float, float]], path: Path) -> None:
    """Accuracy by epsilon."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot(*zip(*sorted(points), strict=True), "o-")
    axes.set(xscale="log", xlabel="epsilon at delta = 1e-5", ylabel="test accuracy", ylim=(0.0, 1.0))
    figure.savefig(path)


if __name__ == "__main__":
    main()
