"""Train on scikit-learn's digits with Opacus, and leave certificates that anybody can verify.

    python examples/training/digits_opacus.py --epsilon 1 2 4 8 --out digits

For every epsilon it calibrates the noise, trains, and writes a certificate and a record of the run; at the end it plots
the accuracy by epsilon and lets ``hockeystick verify`` check the last certificate. Needs
``pip install '.[examples]'``; takes about a minute.

A certificate is about one model. If you publish several models, or the plot, account for all of them together.
"""

import argparse
from pathlib import Path

import torch
from report import finish
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs

PLAN = Path(__file__).parent / "digits.toml"


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,500 digits to train on and 297 to test on, in a fixed order."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    return TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])


def network() -> torch.nn.Module:
    """Two convolutions and a linear layer, 12,000 parameters."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.Tanh(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 16, 10),
    )


def train(
    engine,
    data: TensorDataset,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float = 2.0,
    max_grad_norm: float = 0.5,
    make_model=network,
    make_optimizer=torch.optim.SGD,
    **options,
):
    """Opacus' training loop; ``engine`` is theirs or ours."""
    model = make_model()
    optimizer = make_optimizer(model.parameters(), lr=learning_rate)
    loader = DataLoader(data, batch_size=batch_size)
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, max_grad_norm=max_grad_norm, **options
    )
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def accuracy(model: torch.nn.Module, data: TensorDataset) -> float:
    """The part of the data whose label is the most likely one."""
    x, y = data.tensors
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).double().mean())


def main() -> None:
    """Train once for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, out="digits", epsilons=[1.0, 2.0, 4.0, 8.0])
    arguments = parser.parse_args()
    accuracy_by_epsilon(hs.Plan.load(PLAN), *digits(), epsilons=arguments.epsilon, out=arguments.out)


def add_arguments(parser: argparse.ArgumentParser, out: str, epsilons: list[float]) -> None:
    """What the examples have in common."""
    parser.add_argument("--epsilon", type=float, nargs="+", default=epsilons)
    parser.add_argument("--out", type=Path, default=Path(out), help="folder for certificates, records and the plot")


def accuracy_by_epsilon(
    plan: hs.Plan, training: TensorDataset, test: TensorDataset, *, epsilons: list[float], out: Path, **options
) -> None:
    """Train once for each epsilon, leave certificates, records and a plot, and verify the last certificate."""
    out.mkdir(exist_ok=True, parents=True)
    points = []
    for epsilon in epsilons:
        mechanism = hs.calibrate(plan.mechanism(), epsilon=epsilon, delta=plan.target.delta)
        torch.manual_seed(0)  # the weights to begin with; batches and noise are seeded by the operating system
        engine = hs.torch.PrivacyEngine(mechanism)
        batch_size = round(plan.data.batch_size)
        model = train(engine, training, epochs=plan.data.epochs, batch_size=batch_size, **options)
        certificate = engine.certificate(plan.target.delta)
        certificate.save(out / f"epsilon-{epsilon:g}.certificate.json")
        engine.record(certificate).save(out / f"epsilon-{epsilon:g}.run.json")
        points.append((certificate.epsilon.upper, accuracy(model, test)))
        print(f"epsilon {points[-1][0]:.4f}  noise multiplier {mechanism.sigma:.3f}  accuracy {points[-1][1]:.3f}")
    finish(points, out, out / f"epsilon-{epsilons[-1]:g}.certificate.json", plan.target.delta)


if __name__ == "__main__":
    main()
